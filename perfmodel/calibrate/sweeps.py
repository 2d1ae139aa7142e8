"""Collective sweeps of a user's log: latency, bandwidth and efficiency of each, and where one algorithm overtakes another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.calibrate.job import Direct
from perfmodel.calibrate.sweep_fit import SweepFit, fit_sweep
from perfmodel.errors import Problem, SpecError
from perfmodel.physics.algorithms import AUTO, CODES
from perfmodel.physics.coefficients import NAMES, from_logs
from perfmodel.physics.exchanges import Links
from perfmodel.physics.fabric import OPERATIONS
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import Machine
from perfmodel.readings.sweeps import Sweep
from perfmodel.specs.job import Job
from perfmodel.training.setup import Setup
from perfmodel.units import format_quantity

Array = NDArray[np.float64]

TYPICAL = 0.1  # log error of a sweep's point
TROUBLE = 0.25
SMALL_BYTES = 65536.0


def nodes_of(sweep: Sweep, machine: Machine) -> int:
    """Machines that took part: as the log states, else as few as hold the ranks."""
    return int(sweep.nodes or max(1.0, np.ceil(sweep.ranks / float(machine.node))))


def link_rate(sweep: Sweep, machine: Machine) -> float:
    """Nominal bus bandwidth of a sweep by the datasheet of the link that limits it [B/s].

    Across machines the ranks of one add up their cards, but in an exchange of all with all, where each has its own.
    """
    inside, nodes = float(machine.up_bytes_per_s), nodes_of(sweep, machine)
    if nodes == 1:
        return inside
    cards = 1.0 if sweep.op == "all_to_all" else sweep.ranks / nodes
    across = cards * float(machine.out_bytes_per_s)
    return min(across, inside) if cards > 1.0 and inside > 0.0 else across


def fitted(sweep: Sweep, machine: Machine) -> SweepFit:
    """`T = (A^p + (f S / B)^p)^(1/p)` through one sweep."""
    return fit_sweep(sweep.op, sweep.bytes, sweep.time_s, sweep.ranks, nodes_of(sweep, machine))


# Bus bandwidth over the link's datasheet: switches that reduce in the network pass 1, another machine's log passes these.
FASTEST_INSIDE, FASTEST_ACROSS = 1.25, 2.5
TIMED = 2.0  # the same over a rate that was itself timed, maybe beside other work
SLOWEST = 0.03  # of the link's rate, by messages from LARGE_BYTES
LARGE_BYTES = 64e6


def refuse_foreign(job: Job, machine: Machine, sweeps: Sequence[Sweep], log: Path) -> None:
    """Raise a SpecError where a sweep is one of another machine: more ranks than there are, or faster than its links."""
    problems = [
        Problem(
            str(log),
            sweep.line or None,
            None,
            "R014",
            f"{_label(sweep)}: {why}, so this is no sweep of {job.cluster.name}",
            help="name the cluster that was measured: -c, or nics_per_node and scale_out of an inline one",
        )
        for sweep in sweeps
        if (why := _foreign(job, machine, sweep))
    ]
    if problems:
        raise SpecError(problems)


def _foreign(job: Job, machine: Machine, sweep: Sweep) -> str:
    most, each = job.cluster.max_accelerators, int(machine.node)
    if most is not None and sweep.ranks > most:
        return f"the cluster has {most} accelerators"
    nodes = nodes_of(sweep, machine)
    if sweep.ranks > nodes * each:
        return f"{-(-sweep.ranks // nodes)} ranks a machine, where each has {each} accelerators"
    rate, most_of_it = link_rate(sweep, machine), FASTEST_INSIDE if nodes == 1 else FASTEST_ACROSS
    link = job.cluster.node.scale_up if nodes == 1 else job.cluster.network
    if link is not None and link.confidence == "measured":
        most_of_it = max(most_of_it, TIMED)
    best = float(sweep.bus_bandwidth().max())
    if 0.0 < rate * most_of_it < best:
        return f"its bus bandwidth of {format_quantity(best, 'B/s')} is above the link's {format_quantity(rate, 'B/s')}"
    return ""


def too_slow(machine: Machine, sweep: Sweep) -> str | None:
    """Doubt about a sweep whose large messages reach next to nothing of the link that the cluster has."""
    large = sweep.bytes >= LARGE_BYTES
    rate = link_rate(sweep, machine)
    if not large.any() or float(sweep.bus_bandwidth()[large].max()) >= SLOWEST * rate:
        return None
    best = format_quantity(float(sweep.bus_bandwidth()[large].max()), "B/s")
    return (
        f"{_label(sweep)}: large messages reach {best} where the link has {format_quantity(rate, 'B/s')}: another machine's "
        "log, or a path that is not that link (peer-to-peer off, the wrong interface)"
    )


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
    if (doubt := too_slow(machine, sweep)) is not None:
        notes.append(f"{source}: {doubt}")
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


def sweeps_json(sweeps: Sequence[Sweep], machine: Machine) -> dict[str, object]:
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


def crossovers(sweeps: Sequence[Sweep], machine: Machine) -> list[dict[str, object]]:
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
