"""Collective sweeps of a user's log: latency, bandwidth and efficiency of each, and where one algorithm overtakes another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from perfmodel.calibrate.readers.sweeps import Sweep
from perfmodel.calibrate.sweep_fit import SweepFit, fit_sweep
from perfmodel.predict.machine import Machine


def nodes_of(sweep: Sweep, machine: Machine) -> int:
    """Machines that took part: as the log says, else as few as hold the ranks."""
    return int(sweep.nodes or max(1.0, np.ceil(sweep.ranks / float(machine.node))))


def link_rate(sweep: Sweep, machine: Machine) -> float:
    """Nominal bandwidth per accelerator of the link that limits the sweep [B/s]."""
    return float(machine.up_bytes_per_s if nodes_of(sweep, machine) == 1 else machine.out_bytes_per_s)


def fitted(sweep: Sweep, machine: Machine) -> SweepFit:
    """`T = (A^p + (f S / B)^p)^(1/p)` through one sweep."""
    return fit_sweep(sweep.op, sweep.bytes, sweep.time_s, sweep.ranks, nodes_of(sweep, machine))


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
