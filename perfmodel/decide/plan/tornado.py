"""How the step time of one layout answers when one input moves: the data of a tornado plot."""

from __future__ import annotations

import dataclasses
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.physics.coefficients import MEANINGS, NAMES, from_logs
from perfmodel.physics.layouts import Layouts
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations
from perfmodel.training.curve import centre, choose
from perfmodel.training.setup import Setup
from perfmodel.training.step import step

Array = NDArray[np.float64]

# Hardware figures that a buyer can choose, moved by a fifth; the search's layout stays.
HARDWARE = {
    "peak_flop_per_s": "peak FLOP/s",
    "memory_bytes_per_s": "memory bandwidth",
    "up_bytes_per_s": "scale-up bandwidth",
    "out_bytes_per_s": "network bandwidth",
}
HARDWARE_CHANGE = 0.20
ROWS = 14
SMALLEST = 1e-4  # effects below this share of the step are left out


class Moved(TypedDict):
    """How the step time changes when one input moves down and up, as fractions."""

    input: str
    change: float
    low: float
    high: float


def tornado(setup: Setup, beliefs: Beliefs) -> list[Moved]:
    """Rows {input, change, low, high}: relative change of the step time when one input moves down and up.

    Hardware figures move by 20 %; coefficients by one standard deviation of the belief about them.
    """
    belief, logs = centre(setup, beliefs)
    at, _ = choose(setup, logs)
    ops, machine = setup.operations, setup.machine
    base = float(_times(ops, machine, at, logs[:, None])[0])
    rows: list[Moved] = []
    for name, label in HARDWARE.items():
        ends = []
        for factor in (1.0 - HARDWARE_CHANGE, 1.0 + HARDWARE_CHANGE):
            moved = {name: getattr(machine, name) * factor}
            if name == "peak_flop_per_s":
                moved["peak16_flop_per_s"] = machine.peak16_flop_per_s * factor
            changed = dataclasses.replace(machine, **moved)
            ends.append(float(_times(ops, changed, at, logs[:, None])[0]) / base - 1.0)
        rows.append(_row(label, HARDWARE_CHANGE, ends))
    # Every coefficient down and every one up: one step with as many draws.
    shifts = np.diag(belief.spread)
    down, up = (_times(ops, machine, at, logs[:, None] + sign * shifts) / base - 1.0 for sign in (-1.0, 1.0))
    for index, name in enumerate(NAMES):
        ends = [float(down[index]), float(up[index])]
        rows.append(_row(MEANINGS[name], float(np.expm1(belief.spread[index])), ends))
    rows = [row for row in rows if max(abs(row["low"]), abs(row["high"])) > SMALLEST]
    rows.sort(key=lambda row: (-max(abs(row["low"]), abs(row["high"])), row["input"]))
    return rows[:ROWS]


def _times(ops: Operations, machine: Machine, at: Layouts, logs: Array) -> Array:
    """Step time under every column of `logs` (n_coefficients, draws)."""
    return np.asarray(step(ops, machine, at, from_logs(logs[:, :, None])).time_s[:, 0])


def _row(label: str, change: float, ends: list[float]) -> Moved:
    return {"input": label, "change": change, "low": ends[0], "high": ends[1]}
