r"""The whole run at each K: its time and cost with 90 % bands, and the chance to keep a deadline or a budget.

A step's time is uncertain by its band, taken as lognormal: :math:`\ln T = \ln \hat T + \sigma Z` with
:math:`\sigma = \ln(T_{high}/\hat T)/z_{0.95}`. Where runs are interrupted, the wall time of a given useful time is random too
(`physics.failures`); both sources are joined by pairing stratified quantiles of one with shuffled quantiles of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from perfmodel.decide.cost import CostTerms
from perfmodel.decide.goodput import Reliability, wall_quantiles
from perfmodel.decide.pricing import Tariff

Array = npt.NDArray[np.float64]

Z95: Final = 1.6448536269514722
LEVELS: Final = 400  # stratified quantiles of the step time
MOST_LOG_S: Final = (
    600.0  # logarithm of the longest run that is computed with: bands of absurd beliefs must not overflow
)


@dataclass(frozen=True)
class WholeRun:
    """Arrays over K: wall time [s] and cost [USD] of the run, their bands, and the chances; NaN where unknown."""

    time_s: Array
    time_s_low: Array
    time_s_high: Array
    cost_usd: Array
    cost_usd_low: Array
    cost_usd_high: Array
    deadline_probability: Array | None
    budget_probability: Array | None

    def as_dict(self, steps: npt.ArrayLike) -> dict[str, Array | npt.NDArray[np.int64]]:
        """The mapping that results carry; a chance of no limit is a list of nothing."""
        nothing = np.full(self.time_s.shape, np.nan)
        names = ("time_s", "time_s_low", "time_s_high", "cost_usd", "cost_usd_low", "cost_usd_high")
        return {
            "steps": np.broadcast_to(np.asarray(steps, dtype=np.int64), self.time_s.shape),
            **{name: getattr(self, name) for name in names},
            "deadline_probability": nothing
            if self.deadline_probability is None
            else self.deadline_probability,
            "budget_probability": nothing if self.budget_probability is None else self.budget_probability,
        }


def whole_run(
    k: npt.ArrayLike,
    step_s: npt.ArrayLike,
    step_s_high: npt.ArrayLike,
    steps: npt.ArrayLike,
    tariff: Tariff,
    *,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    seed: int = 0,
) -> WholeRun:
    """The run of `steps` steps at each `k`, of steps that take `step_s` and, in one case of twenty, over `step_s_high`.

    >>> from perfmodel.decide.pricing import on_demand, per_hour
    >>> found = whole_run([8], [1.0], [1.2], 3600, on_demand(per_hour(2.0)), deadline_s=3600 * 1.2)
    >>> found.time_s.tolist(), found.time_s_high.round(6).tolist(), found.cost_usd.tolist()
    ([3600.0], [4320.0], [16.0])
    >>> found.deadline_probability.round(4).tolist()
    [0.95]
    """
    count, mean = np.asarray(k, dtype=float), np.asarray(step_s, dtype=float)
    useful = mean * np.asarray(steps, dtype=float)
    known = np.isfinite(useful)
    sigma = (
        np.log(np.where(known, np.asarray(step_s_high, dtype=float) / np.where(known, mean, 1.0), 1.0)) / Z95
    )
    # A run that is billed by its wall time: the losses are in the draws, not in the terms.
    terms = replace(CostTerms.of(count, tariff), slow=np.ones(count.shape))
    wall = useful * CostTerms.of(count, tariff).slow
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    draws = _draws(count, np.where(known, useful, 1.0), sigma, levels, tariff.interruptions, seed)
    if tariff.interruptions is None:  # the ends are those of the step's band, to the last digit
        low, high = useful * np.exp(-Z95 * sigma), useful * np.exp(Z95 * sigma)
    else:
        low, high = (
            np.where(known, np.quantile(np.where(known, draws, 0.0), q, axis=0), np.nan) for q in (0.05, 0.95)
        )
        # Few failures in a short run: the mean may lie beyond what nearly all runs take.
        low, high = np.minimum(low, wall), np.maximum(high, wall)

    def chance(values: Array, limit: float | None) -> Array | None:
        if limit is None:
            return None
        return np.where(known & np.isfinite(values[0]), _share_below(values, limit), np.nan)

    spent = terms.usd(draws)
    return WholeRun(
        wall,
        low,
        high,
        terms.usd(wall),
        terms.usd(low),
        terms.usd(high),
        chance(draws, deadline_s),
        chance(spent, budget_usd),
    )


def _draws(
    k: Array, useful: Array, sigma: Array, levels: Array, interruptions: Reliability | None, seed: int
) -> Array:
    """Wall times at each K, one row for each level of the step time."""
    from scipy.special import ndtri

    work = np.exp(np.minimum(np.log(useful) + ndtri(levels)[:, None] * sigma, MOST_LOG_S))
    if interruptions is None:
        return np.asarray(work)
    shuffled = np.random.default_rng(seed).permutation(levels)
    return wall_quantiles(k, work, interruptions, shuffled[:, None])


def _share_below(values: Array, limit: float) -> Array:
    """Share of the rows at or below a limit, between two rows by the logarithm: a chance that moves with the limit.

    >>> _share_below(np.array([[1.0], [2.0], [4.0], [8.0]]), 4.0).tolist(), _share_below(np.array([[1.0], [2.0]]), 4.0).tolist()
    ([0.625], [1.0])
    """
    rows = np.sort(values, axis=0)
    n = rows.shape[0]
    below = np.sum(rows <= limit, axis=0)
    lower = np.take_along_axis(rows, np.clip(below - 1, 0, n - 1)[None], axis=0)[0]
    upper = np.take_along_axis(rows, np.clip(below, 0, n - 1)[None], axis=0)[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.log(limit / lower) / np.log(upper / lower)
    inside = (below > 0) & (below < n) & np.isfinite(part)
    return np.asarray(np.where(inside, (below - 0.5 + np.where(inside, part, 0.0)) / n, below / n))
