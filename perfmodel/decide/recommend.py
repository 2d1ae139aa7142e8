"""One K for each goal, in one sentence that also says what the choice gives up.

Nightly batch: the cheapest K that meets the deadline. Interactive: the fastest K within the budget.
Balanced: the largest K whose efficiency stays at the threshold. When a goal cannot be met, the nearest K is
named together with what to relax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.decide.cost import argbest
from perfmodel.units import in_words, percent

Floats = npt.NDArray[np.float64]

GOALS = ("nightly", "interactive", "balanced")


@dataclass(frozen=True)
class Recommendation:
    """One goal's K. `met` is False when the constraint cannot be held; `relax` then says by how much."""

    goal: str
    k: int
    time_s: float
    cost_usd: float
    efficiency: float
    met: bool
    sentence: str
    relax: str | None

    def as_dict(self) -> dict[str, object]:
        """The mapping that results carry."""
        return asdict(self)


@dataclass(frozen=True)
class _Curve:
    k: Floats
    time_s: Floats
    cost_usd: Floats
    efficiency: Floats


def recommend(
    k: npt.ArrayLike,
    time_s: npt.ArrayLike,
    cost_usd: npt.ArrayLike,
    efficiency: npt.ArrayLike,
    *,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    threshold: float = 0.70,
) -> tuple[Recommendation, ...]:
    """Recommendations for the three goals, in the order of `GOALS`; empty when no K is feasible.

    Times [s] and costs [USD] are of the whole run, wall clock. Infeasible K are NaN.

    >>> for r in recommend([1, 2, 4], [800.0, 430.0, 260.0], [0.71, 0.76, 0.92], [1, 0.93, 0.77]):
    ...     print(r.goal, r.k)
    nightly 1
    interactive 4
    balanced 4
    """
    count, time, cost, eff = (np.asarray(v, dtype=float) for v in (k, time_s, cost_usd, efficiency))
    good = np.isfinite(time) & np.isfinite(cost)
    if not good.any():
        return ()
    curve = _Curve(count[good], time[good], cost[good], eff[good])
    picks = (
        _nightly(curve, deadline_s),
        _interactive(curve, budget_usd),
        _balanced(curve, threshold),
    )
    chosen = [at for at, _, _, _ in picks]
    return tuple(
        _sentence(goal, curve, at, met, why, relax, chosen)
        for goal, (at, met, why, relax) in zip(GOALS, picks, strict=True)
    )


Pick = tuple[int, bool, str, str | None]


def _nightly(curve: _Curve, deadline_s: float | None) -> Pick:
    if deadline_s is None:
        return int(argbest(curve.k, curve.cost_usd)), True, "the cheapest", None
    limit = in_words(deadline_s, "s")
    ok = curve.time_s <= deadline_s
    if ok.any():
        at = int(argbest(curve.k, np.where(ok, curve.cost_usd, np.nan)))
        return at, True, f"the cheapest that meets the deadline of {limit}", None
    at = int(argbest(curve.k, curve.time_s))
    need = in_words(float(curve.time_s[at]), "s")
    return at, False, f"no K meets the deadline of {limit}; this is the fastest", f"deadline to {need}"


def _interactive(curve: _Curve, budget_usd: float | None) -> Pick:
    if budget_usd is None:
        return int(argbest(curve.k, curve.time_s)), True, "the fastest", None
    limit = in_words(budget_usd, "USD")
    ok = curve.cost_usd <= budget_usd
    if ok.any():
        at = int(argbest(curve.k, np.where(ok, curve.time_s, np.nan)))
        return at, True, f"the fastest within {limit}", None
    at = int(argbest(curve.k, curve.cost_usd))
    need = in_words(float(curve.cost_usd[at]), "USD")
    return at, False, f"no K stays within {limit}; this is the cheapest", f"budget to {need}"


def _balanced(curve: _Curve, threshold: float) -> Pick:
    ok = curve.efficiency >= threshold
    if ok.any():
        at = int(np.argmax(np.where(ok, curve.k, -np.inf)))
        return at, True, f"the largest K with an efficiency of at least {percent(threshold)}", None
    at = int(np.nanargmax(curve.efficiency))
    why = f"no K reaches an efficiency of {percent(threshold)}; this is the most efficient"
    return at, False, why, f"efficiency threshold to {percent(float(curve.efficiency[at]))}"


def _sentence(
    goal: str, curve: _Curve, at: int, met: bool, why: str, relax: str | None, chosen: Sequence[int]
) -> Recommendation:
    time, cost = float(curve.time_s[at]), float(curve.cost_usd[at])
    efficiency = float(curve.efficiency[at])
    head = (
        f"{goal.capitalize()}: K = {int(curve.k[at])} ({in_words(time, 's')}, "
        f"{in_words(cost, 'USD')}, efficiency {percent(efficiency)}), {why}"
    )
    tail = f"; relax the {relax}" if relax else ""
    return Recommendation(
        goal,
        int(curve.k[at]),
        time,
        cost,
        efficiency,
        met,
        f"{head}{tail}; {_gives_up(curve, at, chosen)}.",
        relax,
    )


def _gives_up(curve: _Curve, at: int, chosen: Sequence[int]) -> str:
    """What the choice loses against the best of the other goals in time, cost and efficiency."""
    others = [other for other in chosen if other != at]
    losses = []
    quicker = min(others, key=lambda i: float(curve.time_s[i]), default=at)
    cheaper = min(others, key=lambda i: float(curve.cost_usd[i]), default=at)
    thriftier = max(others, key=lambda i: float(curve.efficiency[i]), default=at)
    speed = float(curve.time_s[at] / curve.time_s[quicker])
    price = float(curve.cost_usd[at] / curve.cost_usd[cheaper]) if curve.cost_usd[cheaper] > 0 else 1.0
    waste = float(curve.efficiency[thriftier] - curve.efficiency[at])
    if speed > 1.005:
        losses.append(f"{speed:.2f} times as long as K = {int(curve.k[quicker])}")
    if price > 1.005:
        losses.append(f"{price:.2f} times as dear as K = {int(curve.k[cheaper])}")
    if waste > 0.005:
        losses.append(f"{100 * waste:.3g} points less efficient than K = {int(curve.k[thriftier])}")
    if not losses:
        return "gives up nothing against the other goals"
    return "the price of it: " + ", ".join(losses)
