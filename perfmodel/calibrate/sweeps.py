"""Collective sweeps of a user's log: latency, bandwidth and efficiency of each, and where one algorithm overtakes another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.calibrate.job import Direct
from perfmodel.calibrate.sweep_fit import SweepFit, fit_sweep
from perfmodel.physics.algorithms import AUTO, CODES
from perfmodel.physics.coefficients import NAMES, from_logs
from perfmodel.physics.exchanges import Links
from perfmodel.physics.fabric import OPERATIONS
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import Machine
from perfmodel.readings.sweeps import Sweep
from perfmodel.training.setup import Setup

Array = NDArray[np.float64]

TYPICAL = 0.1  # log error of a sweep's point
TROUBLE = 0.25
SMALL_BYTES = 65536.0


def nodes_of(sweep: Sweep, machine: Machine) -> int:
    """Machines that took part: as the log says, else as few as hold the ranks."""
    return int(sweep.nodes or max(1.0, np.ceil(sweep.ranks / float(machine.node))))


def link_rate(sweep: Sweep, machine: Machine) -> float:
    """Nominal bandwidth per accelerator of the link that limits the sweep [B/s]."""
    return float(machine.up_bytes_per_s if nodes_of(sweep, machine) == 1 else machine.out_bytes_per_s)


def fitted(sweep: Sweep, machine: Machine) -> SweepFit:
    """`T = (A^p + (f S / B)^p)^(1/p)` through one sweep."""
    return fit_sweep(sweep.op, sweep.bytes, sweep.time_s, sweep.ranks, nodes_of(sweep, machine))


# What one sweep can tell apart: a rate from its large messages, a latency from its small ones.
_INSIDE = ("up_efficiency", "base_s", "up_step_s")
_ACROSS = ("out_efficiency", "out_step_s")
SPREADS = {
    "up_efficiency": 0.05,
    "out_efficiency": 0.05,
    "base_s": 0.25,
    "up_step_s": 0.25,
    "out_step_s": 0.25,
}
WEAK = 3.0  # log-spread of the belief that a sweep leans on where its sizes do not tell


def informed(setup: Setup, beliefs: Beliefs, sweep: Sweep, source: str, notes: list[str]) -> list[Direct]:
    """Coefficients of the link under which the step model's own collective takes the times of a sweep.

    Least squares of the logarithms with soft outliers over all sizes; every other coefficient stays as believed. The same
    hardware in other hands differs by 2 to 3 % in rate and far more for small messages (`SPREADS`).
    """
    from scipy.optimize import least_squares

    if sweep.op not in OPERATIONS or sweep.ranks < 2 or sweep.bytes.size < 2:
        notes.append(f"{source}: a sweep of {sweep.op} among {sweep.ranks} ranks informs no belief")
        return []
    machine = setup.machine
    nodes = nodes_of(sweep, machine)
    names = _INSIDE if nodes == 1 else _ACROSS
    at = [NAMES.index(name) for name in names]
    believed = beliefs.belief(setup.features()).median
    ranks = np.asarray(float(sweep.ranks))
    by = np.asarray(_algorithm(sweep, setup))
    group = layouts(ranks, global_batch=ranks, accelerators_per_node=machine.node, per_node=ranks / nodes)

    def residuals(x: Array) -> Array:
        logs = believed.copy()
        logs[at] = x
        links = Links(machine, group, from_logs(logs))
        seconds = links.time(sweep.op, sweep.bytes, ranks, np.ones(()), by)
        return np.concatenate([np.log(seconds / sweep.time_s), (x - believed[at]) / WEAK * TYPICAL])

    found = least_squares(residuals, believed[at], loss="soft_l1", f_scale=TYPICAL)
    fitted_s = residuals(found.x)[: sweep.bytes.size]
    error = float(np.median(np.abs(np.expm1(fitted_s))))
    if error > TROUBLE:
        notes.append(
            f"{source}: {_label(sweep)}: the model's collective follows it to {error:.0%} only; its sizes are on the plot"
        )
    values = np.exp(found.x)
    told = {name: float(value) for name, value in zip(names, values, strict=True)}
    if float(sweep.bytes[0]) > SMALL_BYTES:
        told = {names[0]: told[names[0]]}  # no small message, no latency
    return [Direct(name, value, SPREADS[name], source) for name, value in told.items()]


_FORCED = {"ring": "ring", "tree": "tree"}  # names of NCCL_ALGO that are algorithms of the model


def _algorithm(sweep: Sweep, setup: Setup) -> float:
    """Code of the algorithm that a sweep went by: the one that was forced, else the one that the job declares.

    The latency and the bandwidth that a fit finds are then those of that algorithm.
    """
    forced = _FORCED.get((sweep.algorithm or "").lower())
    return CODES[forced] if forced else setup.declared.get("data_algorithm", CODES[AUTO])


def sweeps_json(sweeps: Sequence[Sweep], machine: Machine) -> dict[str, Any]:
    """A row for each sweep with its fit, one for each size with its efficiency, and the crossovers of algorithms."""
    rows, points = [], []
    for sweep in sweeps:
        fit, rate = fitted(sweep, machine), link_rate(sweep, machine)
        label = _label(sweep)
        rows.append(
            {
                "sweep": label,
                "alpha_s": fit.alpha_s,
                "bus_bandwidth_bytes_per_s": fit.bandwidth_bytes_per_s,
                "knee": fit.p,
                "latency_bound_below_bytes": fit.crossover_bytes,
                "median_error": fit.median_ape,
                "sizes": int(sweep.bytes.size),
                "trouble": "; ".join(
                    [f"{name} is not identified" for name in fit.unidentified]
                    + [f"{name} stands at its bound" for name in fit.at_bound]
                ),
            }
        )
        bus = sweep.bus_bandwidth()
        points += [
            {
                "sweep": label,
                "bytes": float(sweep.bytes[i]),
                "measured_s": float(sweep.time_s[i]),
                "fitted_s": float(fit.time_s(sweep.bytes[i])),
                "bus_bandwidth_bytes_per_s": float(bus[i]),
                "fitted_bus_bandwidth_bytes_per_s": float(
                    bus[i] * sweep.time_s[i] / fit.time_s(sweep.bytes[i])
                ),
                "efficiency": float(bus[i] / rate),
            }
            for i in range(sweep.bytes.size)
        ]
    return {"sweeps": rows, "sweep_points": points, "crossovers": crossovers(sweeps, machine)}


def crossovers(sweeps: Sequence[Sweep], machine: Machine) -> list[dict[str, Any]]:
    """Sizes at which one forced algorithm overtakes another of the same operation and group, by their fits."""
    found = []
    for a, b in combinations(sweeps, 2):
        same = (a.op, a.ranks, a.nodes, a.placement) == (b.op, b.ranks, b.nodes, b.placement)
        if not same or a.algorithm == b.algorithm or None in (a.algorithm, b.algorithm):
            continue
        low, high = max(a.bytes[0], b.bytes[0]), min(a.bytes[-1], b.bytes[-1])
        if low >= high:
            continue
        size = np.geomspace(low, high, 400)
        ahead = fitted(a, machine).time_s(size) < fitted(b, machine).time_s(size)
        for i in np.flatnonzero(np.diff(ahead)):
            first, then = (a, b) if ahead[i] else (b, a)
            found.append(
                {
                    "op": a.op,
                    "ranks": a.ranks,
                    "from": first.algorithm,
                    "to": then.algorithm,
                    "bytes": float(size[i + 1]),
                }
            )
    return found


def _label(sweep: Sweep) -> str:
    nodes = f" on {sweep.nodes} nodes" if sweep.nodes and sweep.nodes > 1 else ""
    algorithm = f" {sweep.algorithm}" if sweep.algorithm else ""
    return f"{sweep.op}{algorithm}, {sweep.ranks} ranks{nodes}"
