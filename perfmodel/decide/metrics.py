"""What a scaling curve is judged by: S, E, rates of an accelerator, cost, work per dollar and the marginal ladder,
with bands of the ratios: what two points of one curve share is not uncertain in their ratio.

The last axis of every array is K; a leading axis of draws is carried through. NaN marks a K that is
infeasible or excluded: it never becomes a baseline, a best K or a step of the ladder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.beliefs.population import Beliefs
from perfmodel.physics.laws import Array, Regime, strong_efficiency, weak_efficiency
from perfmodel.physics.machine import peak
from perfmodel.physics.operations import Operations
from perfmodel.specs.job import Job
from perfmodel.training.curve import Curve


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the marginal ladder: what going from `k` to `k_next` adds.

    `speedup_per_usd` is NaN when the step costs nothing more: there is then no price of the speedup.
    """

    k: int
    k_next: int
    speedup: float
    cost_usd: float
    speedup_per_usd: float

    @property
    def label(self) -> str:
        """`4->8`."""
        return f"{self.k}->{self.k_next}"


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the fastest K costs against the cheapest one, and how much faster it is."""

    times_the_cost: float
    times_faster: float


def baseline_index(k: ArrayLike, time_s: ArrayLike) -> int:
    """Position of the smallest K that has a time in every draw; -1 when none has.

    >>> baseline_index([4, 1, 2], [0.3, float("nan"), 0.6])
    2
    """
    k = np.asarray(k, dtype=np.float64)
    time = np.atleast_2d(np.asarray(time_s, dtype=np.float64))
    usable = np.isfinite(time).all(axis=0)
    return int(np.argmin(np.where(usable, k, np.inf))) if usable.any() else -1


def efficiency(k: ArrayLike, time_s: ArrayLike, *, regime: Regime = "strong", baseline: int = 0) -> Array:
    """`E(K) = K0 T(K0)/(K T(K))` strong, `T(K0)/T(K)` weak; `baseline` is K0's position.

    >>> efficiency([1, 2, 4, 8, 16], [800.0, 430.0, 260.0, 206.0, 235.0]).round(2)
    array([1.  , 0.93, 0.77, 0.49, 0.21])
    """
    k = np.asarray(k, dtype=np.float64)
    time = np.asarray(time_s, dtype=np.float64)
    first = time[..., baseline, np.newaxis]
    if regime == "strong":
        return strong_efficiency(k, time, float(k[baseline]), first)
    return weak_efficiency(time, first)


def speedup(k: ArrayLike, time_s: ArrayLike, *, regime: Regime = "strong", baseline: int = 0) -> Array:
    """`S(K) = K E(K)`, so that S(K0) = K0 in both regimes."""
    return np.asarray(k, dtype=np.float64) * efficiency(k, time_s, regime=regime, baseline=baseline)


def rates(job: Job, ops: Operations, k: ArrayLike, time_s: ArrayLike, batch: ArrayLike) -> dict[str, Array]:
    """Utilisation and rates at each K, NaN where they make no sense: without FLOP, or of a workload without tokens.

    `mfu` counts the FLOP that the model needs (forward and backward, nothing repeated) against the datasheet's dense
    peak at the job's precision (PaLM, arXiv:2204.02311, appendix B).
    """
    each = np.asarray(batch, dtype=float) / np.asarray(time_s, dtype=float) / np.asarray(k, dtype=float)
    flop = float(ops.model_flop())
    tokens = job.tokens_per_sample
    achieved = each * (flop if flop > 0 else np.nan)
    return {
        "mfu": np.asarray(achieved / peak(job.cluster.accelerator, job.precision)),
        "tflop_per_s_per_accelerator": np.asarray(achieved / 1e12),
        "tokens_per_s_per_accelerator": np.asarray(each * (tokens or np.nan)),
        "samples_per_s_per_accelerator": np.asarray(each),
    }


def cost(
    k: ArrayLike,
    time_s: ArrayLike,
    *,
    price_usd_per_s: ArrayLike,
    fixed_usd_per_s: ArrayLike = 0.0,
) -> Array:
    """`C(K) = (price K + fixed) T(K)` in USD; `price_usd_per_s` is for one worker.

    >>> cost([1, 16], [800.0, 235.0], price_usd_per_s=3.20 / 3600).round(3)
    array([0.711, 3.342])
    """
    per_s = np.asarray(price_usd_per_s, dtype=np.float64) * np.asarray(k, dtype=np.float64) + np.asarray(
        fixed_usd_per_s, dtype=np.float64
    )
    return per_s * np.asarray(time_s, dtype=np.float64)


def work_done(
    k: ArrayLike, *, work: float = 1.0, regime: Regime = "strong", baseline_k: float = 1.0
) -> Array:
    """Units of work in one run at K: the same at each K (strong), or growing with K from `work` at K0 (weak)."""
    k = np.asarray(k, dtype=np.float64)
    return work * (np.ones_like(k) if regime == "strong" else k / baseline_k)


def marginal_ladder(k: ArrayLike, speedup: ArrayLike, cost_usd: ArrayLike) -> tuple[Step, ...]:
    """Speedup, cost and speedup per dollar gained by each step to the next usable K (one draw).

    >>> [(s.label, round(s.speedup_per_usd, 2)) for s in marginal_ladder([1, 2], [1.0, 1.86], [0.711, 0.764])]
    [('1->2', 16.23)]
    """
    k, s, c = (np.asarray(values, dtype=np.float64) for values in (k, speedup, cost_usd))
    usable = np.flatnonzero(np.isfinite(s) & np.isfinite(c))
    order = usable[np.argsort(k[usable], kind="stable")]
    found = []
    for low, high in pairwise(order.tolist()):
        gain, price = float(s[high] - s[low]), float(c[high] - c[low])
        found.append(Step(int(k[low]), int(k[high]), gain, price, gain / price if price > 0.0 else np.nan))
    return tuple(found)


def ladder_rows(steps: Iterable[Step]) -> list[dict[str, object]]:
    """The marginal ladder of a result. A step that costs nothing more has no price of the speedup."""
    return [
        {
            "step": step.label,
            "speedup": step.speedup,
            "cost_usd": step.cost_usd,
            "speedup_per_usd": step.speedup_per_usd,
        }
        | (
            {"note": "faster and not dearer" if step.speedup > 0 else "cheaper but not faster"}
            if step.cost_usd <= 0
            else {}
        )
        for step in steps
    ]


def best_index(values: ArrayLike, *, largest: bool = False) -> int:
    """Position of the smallest (or largest) finite value, the first of equals; -1 when there is none.

    >>> best_index([float("nan"), 2.0, 1.0, 1.0]), best_index([float("nan")])
    (2, -1)
    """
    values = np.asarray(values, dtype=np.float64)
    usable = np.isfinite(values)
    if not usable.any():
        return -1
    worst = -np.inf if largest else np.inf
    filled = np.where(usable, values, worst)
    return int(np.argmax(filled) if largest else np.argmin(filled))


def exchange(speedup: ArrayLike, cost_usd: ArrayLike) -> Exchange | None:
    """Rate between the cheapest and the fastest K (one draw); None when no K has both numbers.

    >>> exchange([1.0, 3.88], [0.75, 1.5])
    Exchange(times_the_cost=2.0, times_faster=3.88)
    """
    s, c = np.asarray(speedup, dtype=np.float64), np.asarray(cost_usd, dtype=np.float64)
    both = np.isfinite(s) & np.isfinite(c)
    cheap = best_index(np.where(both, c, np.nan))
    fast = best_index(np.where(both, s, np.nan), largest=True)
    if cheap < 0:
        return None
    return Exchange(float(c[fast] / c[cheap]) if c[cheap] else np.nan, float(s[fast] / s[cheap]))


@dataclass(frozen=True)
class EfficiencyBand:
    """E(K) against the curve's own baseline, with the band; NaN where infeasible."""

    baseline: int  # position of K0
    middle: Array
    low: Array
    high: Array


def log_half_width(drawn: Array, base: Array, noise: float, factor: float) -> Array:
    """Half-width of ln(T / T0): `factor * sqrt(var(ln T - ln T0 over the draws) + 2 noise^2)`, zero for T0 itself.

    `drawn` has shape (draws, K), `base` (draws, 1); `noise` is the log-spread of one measurement and `factor` the
    conformal factor of the beliefs (1.645 for 90 % where the draws are honest by themselves).
    """
    spread = np.std(np.log(drawn) - np.log(base), axis=0)
    return np.asarray(np.where(spread > 0, factor * np.hypot(spread, np.sqrt(2.0) * noise), 0.0))


def conformal_factor(found: Curve, beliefs: Beliefs) -> float:
    """The widening of 90 % bands of drawn ratios that the validation asked for, for this kind of workload."""
    return beliefs.factor("ratio", found.setup.workload.kind)


def is_timed(beliefs: Beliefs) -> bool:
    """Whether step times of the job were measured: its baseline is known then."""
    return beliefs.calibration is not None and bool(beliefs.calibration.k.size)


def efficiency_band(found: Curve, beliefs: Beliefs, widen: float = 1.0) -> EfficiencyBand | None:
    """E(K) = (K0 T(K0) / B(K0)) / (K T(K) / B(K)), B the global batch: strong, weak and anything between.

    Errors at two K of one job are alike rather than opposed, so a ratio is no less certain than the two times are
    apart. On held-out runs 91 % of the ratios lie inside, with that bound and without it.
    """
    usable = np.flatnonzero(found.feasible)
    if usable.size == 0:
        return None
    first = int(usable[0])
    work = found.setup.global_batch / found.k
    middle = found.time_s[first] / found.time_s * work / work[first]
    times = widen * np.log(found.high_s / found.time_s)
    if is_timed(beliefs):
        # As knees are validated: against a measured baseline the doubt is that of T(K).
        half = times.copy()
        half[first] = 0.0
    elif found.draws_s.shape[0] < 2:
        return EfficiencyBand(first, middle, middle, middle)
    else:
        half = log_half_width(
            found.draws_s,
            found.draws_s[:, first : first + 1],
            beliefs.noise,
            widen * conformal_factor(found, beliefs),
        )
        half = np.minimum(half, np.hypot(times, times[first]))
    return EfficiencyBand(first, middle, middle * np.exp(-half), middle * np.exp(half))
