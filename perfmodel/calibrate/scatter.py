"""How much do jobs differ from the population? Found by predicting held-out families from their first points.

The variances of the random effects decide what a job's own measurements may move. Likelihoods are poor judges of
them here (most families have two or three points), so they are chosen by what matters: the error of predictions,
by beliefs that have not seen the family, from its calibration points to the rest. The same search finds how far to
trust one-line laws (`LawTrust`). The objective is smooth, and every number is held to where it started by a ridge:
medians and percentiles as objectives, followed greedily, gave up on unseen groups two thirds of what they gained.

With the model linearised at the population, a family is a Gaussian process whose covariance is a sum over groups of
effects, K = sum_g exp(2 theta_g) K_g. The K_g are made once (`Bank`), so that one evaluation takes milliseconds.
Deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.extrapolation import GROUNDS, LawTrust
from perfmodel.beliefs.population import EFFECTS
from perfmodel.beliefs.weighted import weighted_quantile
from perfmodel.calibrate.mixed import DEGREES_OF_FREEDOM
from perfmodel.calibrate.population import FREE_OFFSET, START_NOISE, scatter_prior
from perfmodel.calibrate.posterior import PASSES, WIDEST
from perfmodel.physics.coefficients import NAMES

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Effects that move together in the search.
GROUPS: tuple[tuple[str, ...], ...] = (
    (
        "matmul",
        "attention",
        "memory",
        "elementwise",
        "other",
        "other_traffic",
        "winograd",
        "call_s",
        "tail",
        "cast_bytes",
        "pace",
    ),
    ("unfused", "unaligned", "loss_bytes", "routing_bytes", "imbalance"),
    ("host_kernel_s",),
    ("micro_s",),
    ("step_s",),
    ("start_s",),
    ("recompute",),
    ("up_efficiency", "up_step_s", "base_s"),
    ("bus_bytes_per_s",),
    ("out_efficiency", "out_step_s"),
    ("tp_exposed", "cp_exposed", "ep_exposed", "p2p_exposed", "bubble", "interleave", "last_stage"),
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
)
MODES = ("one_node", "two_point")
SMALL = 0.004  # errors below it count as equal
TAIL = 0.01  # weight of the logarithmic loss, which looks after the median, beside the absolute error
TAIL_SCALE = 0.02
RIDGE = 0.01
LEAST, MOST = -3.0, 1.2  # log factors on the spreads between jobs
OTHERS = 1.5  # largest log factor on noise and on the laws' spreads, and largest slope of these
ITERATIONS = 25
DIFFERENCE = 1e-3
ROWS = 12  # of one family at most, on either side: some have a hundred
# Units of the slopes over the loss seen and the range of the laws, which are a few tenths at most.
LOSS_UNIT, RANGE_UNIT = 3.0, 5.0
BESIDE = 11  # numbers of a point after those of the groups: noise, two laws, doubt, seven slopes
# Laws are trusted no more the further they reach, the more the batch changed and the more they are at odds: a bad last row
# puts them at odds, and would take the curve with it.
NEVER_FALLING = (-7, -4, -3)  # of a point's numbers: the slopes of reach, resized and disagreement
CLIP = 2.0  # log error beyond which all are equally bad


@dataclass(frozen=True)
class Task:
    """One family in one mode, linearised: effects of calibration and target rows, and residuals from the population."""

    family: int
    mode: str
    seen: Array  # (n_effects, calibration rows)
    seen_residual: Array
    target: Array  # (n_effects, target rows)
    target_residual: Array
    open_variance: Array  # (n_coefficients,) what the population leaves open
    ratio_only: bool
    law_error: Array  # log error of the laws at the target rows
    grounds: Array  # (len(GROUNDS), target rows), see `extrapolation.py`
    weight: float = 1.0


@dataclass(frozen=True)
class Tuned:
    """What the search found."""

    scatter: Array
    noise: float
    trust: LawTrust


def tuned(point: Array) -> Tuned:
    """The numbers behind a point of the search: log factors by group, of noise, laws and doubt, then seven slopes."""
    scatter = scatter_prior()
    for theta, index in zip(point, _positions(), strict=False):
        scatter[index] *= np.exp(2.0 * theta)
    noise, crossing, familiar, doubt, *slopes = (float(v) for v in point[len(GROUPS) :])
    reach, loss, single, resized, apart, bus, retuned = slopes
    start = LawTrust()
    trust = LawTrust(
        crossing=start.crossing * float(np.exp(crossing)),
        familiar=start.familiar * float(np.exp(familiar)),
        doubt=start.doubt * float(np.exp(doubt)),
        reach=reach,
        loss=LOSS_UNIT * loss,
        single=single,
        resized=resized,
        disagreement=RANGE_UNIT * apart,
        bus=bus,
        tuned=retuned,
    )
    return Tuned(scatter, START_NOISE * float(np.exp(noise)), trust)


def _positions() -> list[Index]:
    place = {name: i for i, name in enumerate(EFFECTS)}
    return [np.array([place[name] for name in group], dtype=np.intp) for group in GROUPS]


def _evenly(count: int) -> Index:
    """At most ROWS positions, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, ROWS)).round().astype(np.intp))


class Bank:
    """Tasks with equally many calibration rows: covariances by group, target rows padded to the longest."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Make the covariances; the first is of what the population leaves open, the others follow GROUPS."""
        rows = [(_evenly(task.seen_residual.size), _evenly(task.target_residual.size)) for task in tasks]
        n, m, count = rows[0][0].size, max(b.size for _, b in rows), len(tasks)
        parts = len(GROUPS) + 1
        self.within = np.zeros((parts, count, n, n))
        self.across = np.zeros((parts, count, m, n))
        self.own = np.zeros((parts, count, m))
        self.residual = np.zeros((count, n))
        self.truth, self.law = np.zeros((count, m)), np.zeros((count, m))
        self.grounds = np.zeros((len(GROUNDS), count, m))
        self.real = np.zeros((count, m), dtype=bool)
        prior, positions = scatter_prior(), _positions()
        for t, (task, (a, b)) in enumerate(zip(tasks, rows, strict=True)):
            left_open = np.zeros(len(EFFECTS))
            left_open[: len(NAMES)] = task.open_variance
            variance = prior.copy()
            if task.ratio_only:
                variance[len(NAMES)] *= FREE_OFFSET
            for g, index in enumerate([np.arange(len(EFFECTS)), *positions]):
                v = (left_open if g == 0 else variance)[index]
                seen, target = task.seen[np.ix_(index, a)], task.target[np.ix_(index, b)]
                self.within[g, t] = (seen.T * v) @ seen
                self.across[g, t, : b.size] = (target.T * v) @ seen
                self.own[g, t, : b.size] = v @ np.square(target)
            self.residual[t] = task.seen_residual[a]
            self.truth[t, : b.size] = task.target_residual[b]
            self.law[t, : b.size] = task.law_error[b]
            self.grounds[:, t, : b.size] = task.grounds[:, b]
            self.real[t, : b.size] = True

    def errors(self, factors: Array, noise: float, trust: LawTrust) -> Array:
        """Log errors at the target rows, the laws joined in: the equations of `posterior.py`, all tasks at once."""
        factors = np.concatenate([[1.0], factors])
        within, across = (np.tensordot(factors, part, axes=1) for part in (self.within, self.across))
        count, n = self.residual.shape
        weight, widening, diagonal = np.ones((count, n)), np.ones(count), np.arange(n)
        for last in (False,) * (PASSES - 1) + (True,):
            marginal = within * widening[:, None, None]
            marginal[:, diagonal, diagonal] += noise**2 / weight
            solved = np.linalg.solve(marginal, self.residual[:, :, None])[:, :, 0]
            if not last:
                left = solved * noise**2 / weight
                weight = (DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + np.square(left / noise))
                distance = (self.residual * solved).sum(axis=1) * widening
                widening = np.clip((DEGREES_OF_FREEDOM + distance) / (DEGREES_OF_FREEDOM + n), 1.0, WIDEST)
        cross = across * widening[:, None, None]
        error = np.einsum("tmn,tn->tm", cross, solved) - self.truth
        explained = np.einsum("tmn,tnm->tm", cross, np.linalg.solve(marginal, cross.transpose(0, 2, 1)))
        variance = np.tensordot(factors, self.own, axes=1) * widening[:, None] - explained + noise**2
        variance += np.square(trust.doubt * (error - self.law))
        share = variance / (variance + np.square(trust.spread(self.grounds)))
        return np.asarray(((1.0 - share) * error + share * self.law)[self.real])


class Bench:
    """All tasks, in banks, with the objective over any part of them."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Sort the tasks into banks of equal size."""
        sizes: dict[tuple[int, int], list[int]] = {}
        for i, task in enumerate(tasks):
            target = min(task.target_residual.size, ROWS)
            key = (min(task.seen_residual.size, ROWS), int(np.ceil(np.log2(target))))
            sizes.setdefault(key, []).append(i)
        members = [sizes[key] for key in sorted(sizes)]
        self.banks = [Bank([tasks[i] for i in part]) for part in members]
        self.task = np.concatenate(
            [np.repeat(part, bank.real.sum(axis=1)) for part, bank in zip(members, self.banks, strict=True)]
        )
        self.weight = np.array([task.weight for task in tasks])[self.task] / np.bincount(self.task)[self.task]
        self.mode = np.array([task.mode for task in tasks])[self.task]
        self.family = np.array([task.family for task in tasks])[self.task]
        law = np.abs(np.expm1(np.concatenate([bank.law[bank.real] for bank in self.banks])))
        self.scale = {mode: self._mean(law, self.mode == mode) for mode in MODES if (self.mode == mode).any()}

    def _mean(self, values: Array, inside: NDArray[np.bool_]) -> float:
        return float(self.weight[inside] @ values[inside] / self.weight[inside].sum())

    def errors(self, point: Array) -> Array:
        """Log errors of all target rows."""
        found = tuned(point)
        factors = np.exp(2.0 * point[: len(GROUPS)])
        return np.concatenate([bank.errors(factors, found.noise, found.trust) for bank in self.banks])

    def objective(self, point: Array, inside: NDArray[np.bool_]) -> float:
        """Mean loss of each mode against the laws' own mean error there, and the ridge."""
        error = np.clip(self.errors(point), -CLIP, CLIP)
        loss = np.hypot(np.expm1(error), SMALL) + TAIL * np.log1p(np.square(error / TAIL_SCALE))
        parts = [
            self._mean(loss, inside & (self.mode == mode)) / scale
            for mode, scale in self.scale.items()
            if (inside & (self.mode == mode)).any()
        ]
        return sum(parts) + RIDGE * float(point @ point)

    def tune(self, inside: NDArray[np.bool_] | None = None, iterations: int = ITERATIONS) -> Array:
        """The best point for the rows `inside` (all)."""
        from scipy.optimize import minimize

        chosen = np.ones(self.weight.size, dtype=bool) if inside is None else inside
        size = len(GROUPS) + BESIDE

        def slope(point: Array) -> tuple[float, Array]:
            value = self.objective(point, chosen)
            moved = point + DIFFERENCE * np.eye(size)
            return value, np.array([self.objective(row, chosen) - value for row in moved]) / DIFFERENCE

        bounds = [(LEAST, MOST)] * len(GROUPS) + [(-OTHERS, OTHERS)] * BESIDE
        for slope_of in NEVER_FALLING:
            bounds[slope_of] = (0.0, OTHERS)
        found = minimize(
            slope, np.zeros(size), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations}
        )
        return np.asarray(found.x)

    def figures(self, error: Array) -> dict[str, list[float]]:
        """Median, mean and 90th percentile of the absolute error by mode, every family weighing the same."""
        table = {}
        for mode in self.scale:
            inside = self.mode == mode
            values, weights = np.abs(np.expm1(error[inside])), self.weight[inside]
            middle, far = (weighted_quantile(values, weights, q) for q in (0.5, 0.9))
            table[mode] = [round(float(v), 4) for v in (middle, weights @ values / weights.sum(), far)]
        return table

    def nested(self, fold_of: Mapping[int, int], iterations: int = ITERATIONS) -> Array:
        """Errors of every fold's rows with everything tuned on the other folds."""
        fold = np.array([fold_of[int(family)] for family in self.family])
        error = np.empty(self.weight.size)
        for one in np.unique(fold):
            error[fold == one] = self.errors(self.tune(fold != one, iterations))[fold == one]
        return error
