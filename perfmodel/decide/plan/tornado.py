"""How the step time of one layout answers when one input moves: the data of a tornado plot."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from perfmodel.predict.beliefs import Beliefs
from perfmodel.predict.coefficients import MEANINGS, NAMES, from_logs
from perfmodel.predict.curve import centre, choose
from perfmodel.predict.layouts import Layouts
from perfmodel.predict.machine import Machine
from perfmodel.predict.setup import Setup
from perfmodel.predict.step import step
from perfmodel.workloads.operations import Operations

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


def tornado(setup: Setup, beliefs: Beliefs) -> list[dict[str, Any]]:
    """Rows {input, change, low, high}: relative change of the step time when one input moves down and up.

    Hardware figures move by 20 %; coefficients by one standard deviation of the belief about them.
    """
    belief, logs = centre(setup, beliefs)
    at, _ = choose(setup, logs)
    ops, machine = setup.operations, setup.machine
    base = _time(ops, machine, at, logs)
    rows = []
    for name, label in HARDWARE.items():
        ends = []
        for factor in (1.0 - HARDWARE_CHANGE, 1.0 + HARDWARE_CHANGE):
            moved = {name: getattr(machine, name) * factor}
            if name == "peak_flop_per_s":
                moved["peak16_flop_per_s"] = machine.peak16_flop_per_s * factor
            ends.append(_time(ops, dataclasses.replace(machine, **moved), at, logs) / base - 1.0)
        rows.append(_row(label, HARDWARE_CHANGE, ends))
    for index, name in enumerate(NAMES):
        spread = float(belief.spread[index])
        ends = []
        for shift in (-spread, spread):
            moved_logs = logs.copy()
            moved_logs[index] += shift
            ends.append(_time(ops, machine, at, moved_logs) / base - 1.0)
        rows.append(_row(MEANINGS[name], float(np.expm1(spread)), ends))
    rows = [row for row in rows if max(abs(row["low"]), abs(row["high"])) > SMALLEST]
    rows.sort(key=lambda row: (-max(abs(row["low"]), abs(row["high"])), row["input"]))
    return rows[:ROWS]


def _time(
    ops: Operations, machine: Machine, at: Layouts, logs: np.ndarray[Any, np.dtype[np.float64]]
) -> float:
    return float(step(ops, machine, at, from_logs(logs[:, None])).time_s[0])


def _row(label: str, change: float, ends: list[float]) -> dict[str, Any]:
    return {"input": label, "change": change, "low": ends[0], "high": ends[1]}
