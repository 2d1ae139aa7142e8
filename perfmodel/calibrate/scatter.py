"""How much do jobs differ from the population? Found by predicting held-out families from their first points.

The variances of the random effects decide what a job's own measurements may move. Likelihoods are poor judges of
them here (most families have two or three points), so they are chosen by what matters: the error of predictions,
by beliefs that have not seen the family, from its calibration points to the rest. Coordinate descent over groups of
effects, on the model linearised at the population; deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.mixed import DEGREES_OF_FREEDOM
from perfmodel.calibrate.population import DISCREPANCY_SPREADS, FREE_OFFSET
from perfmodel.calibrate.posterior import WIDEST
from perfmodel.predict.beliefs import DISCREPANCIES, EFFECTS
from perfmodel.predict.coefficients import NAMES, SPREADS

Array = NDArray[np.float64]

# Effects that move together in the search.
GROUPS: tuple[tuple[str, ...], ...] = (
    (
        "matmul",
        "attention",
        "memory",
        "elementwise",
        "other",
        "other_traffic",
        "call_s",
        "cast_bytes",
        "pace",
    ),
    ("score_bytes", "routing_bytes", "imbalance"),
    ("host_kernel_s",),
    ("micro_s",),
    ("step_s",),
    ("recompute",),
    ("up_efficiency", "up_step_s", "base_s"),
    ("bus_bytes_per_s",),
    ("out_efficiency", "out_step_s"),
    ("tp_exposed", "cp_exposed", "ep_exposed", "p2p_exposed", "bubble", "last_stage"),
    ("dp_exposed", "dp_overlap"),
    ("net_exposed",),
    ("shard_cost",),
    ("server",),
    ("optimizer",),
    ("dp_on",),
    ("half_node",),
    ("local",),
    ("crossing",),
    ("doubling",),
    ("sync_s",),
    ("node_sync_s",),
    ("jitter",),
    ("input_s",),
    ("offset",),
    ("log2_k",),
    ("crossed",),
    ("log2_nodes",),
    ("log_batch",),
    ("log_tp", "log_pp", "log_cp", "log_ep", "repeated"),
    ("log_micro_batch",),
    ("log_tokens",),
    ("noise",),
)
SMALLEST_GAIN = 2e-3
ROUNDS = 2


def largest_scatter() -> Array:
    """Upper limit of each variance: beyond it an effect would be free, and extrapolate without bound."""
    own = [min(2.5 * SPREADS[name], 2.0) ** 2 for name in NAMES]
    return np.array(own + [(4.0 * DISCREPANCY_SPREADS[name]) ** 2 for name in DISCREPANCIES])


@dataclass(frozen=True)
class Task:
    """One family in one mode, linearised: effects of calibration and target rows, and residuals from the population."""

    mode: str
    seen: Array  # (n_effects, calibration rows)
    seen_residual: Array
    target: Array  # (n_effects, target rows)
    target_residual: Array
    open_variance: Array  # (n_coefficients,) what the population leaves open
    ratio_only: bool
    law_error: Array  # log error of the laws at the target rows
    law_spread: Array


def predict_task(task: Task, scatter: Array, noise: float) -> Array:
    """Log errors at the target rows, the laws joined in."""
    variance = scatter.copy()
    variance[: len(NAMES)] += task.open_variance
    if task.ratio_only:
        variance[len(NAMES)] *= FREE_OFFSET
    count = task.seen_residual.size
    weight, widening = np.ones(count), 1.0
    diagonal = np.diag_indices(count)
    for last in (False, False, True):
        prior = variance * widening
        marginal = (task.seen.T * prior) @ task.seen
        marginal[diagonal] += noise**2 / weight
        solved = np.linalg.solve(marginal, task.seen_residual)
        mean = prior * (task.seen @ solved)
        if not last:
            left = task.seen_residual - task.seen.T @ mean
            weight = (DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + np.square(left / noise))
            distance = float(task.seen_residual @ solved) * widening
            ratio = (DEGREES_OF_FREEDOM + distance) / (DEGREES_OF_FREEDOM + count)
            widening = min(max(1.0, ratio), WIDEST)
    cross = (task.target.T * prior) @ task.seen
    explained = (cross * np.linalg.solve(marginal, cross.T).T).sum(axis=1)
    total = (np.square(task.target) * prior[:, None]).sum(axis=0) - explained + noise**2
    error = task.target.T @ mean - task.target_residual
    share = total / (total + np.square(task.law_spread))
    return np.asarray((1.0 - share) * error + share * task.law_error)


def figures(errors: Sequence[Array]) -> Array:
    """Median, mean and 90th percentile of the absolute error, every family weighing the same."""
    weights = np.concatenate([np.full(e.size, 1.0 / e.size) for e in errors])
    values = np.abs(np.expm1(np.clip(np.concatenate(list(errors)), -3.0, 3.0)))
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    quantiles = [values[order][min(int(np.searchsorted(share, q)), values.size - 1)] for q in (0.5, 0.9)]
    return np.array([quantiles[0], float(weights @ values / weights.sum()), quantiles[1]])


def objective(tasks: Sequence[Task], scatter: Array, noise: float) -> float:
    """Sum over modes of median, mean and 90th percentile, each against the laws' own on the same points."""
    total = 0.0
    for mode in sorted({task.mode for task in tasks}):
        chosen = [task for task in tasks if task.mode == mode]
        ours = figures([predict_task(task, scatter, noise) for task in chosen])
        total += float((ours / figures([task.law_error for task in chosen])) @ np.array([1.0, 1.5, 1.0]))
    return total


def tune(tasks: Sequence[Task], scatter: Array, noise: float, rounds: int = ROUNDS) -> tuple[Array, float]:
    """Scatter and noise that predict best; every group is doubled or halved while that helps, then by less."""
    position = {name: i for i, name in enumerate(EFFECTS)}
    limit = largest_scatter()
    scatter = np.minimum(scatter, limit)
    best = objective(tasks, scatter, noise)
    step = 2.0
    for _ in range(rounds):
        for group in GROUPS:
            for factor in (step, 1.0 / step):
                while True:
                    moved, scale = scatter.copy(), noise
                    if group == ("noise",):
                        scale = float(np.clip(noise * factor, 0.005, 0.1))
                    else:
                        index = [position[name] for name in group]
                        moved[index] = np.minimum(moved[index] * factor**2, limit[index])
                    if scale == noise and np.allclose(moved, scatter, rtol=1e-12, atol=0.0):
                        break
                    value = objective(tasks, moved, scale)
                    if value > best - SMALLEST_GAIN:
                        break
                    best, scatter, noise = value, moved, scale
        step = float(np.sqrt(step))
    return scatter, noise
