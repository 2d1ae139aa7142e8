r"""The bill of a curve: cost(K), p*, the fastest K, the exchange rate between them, and what moved p*.

.. math:: C(K) = (p\,K + f)\,T(K)

with p the price of an accelerator, f what is paid by the hour whatever K is, T the wall time. With f = 0
scaling every price leaves the argmin where it is; with f > 0 cheaper accelerators never move it inward
(if K1 < K2 became the cheaper one as p fell, K2 would have both the smaller K T and the larger T, which
cannot be). Whole nodes, tiers, commitments and interruptions bend this: `moved_by` says which did.

Inputs are arrays over K; a leading axis of draws is carried through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perfmodel.decide import goodput, metrics
from perfmodel.decide.pricing import HOUR_S, Tariff, accelerators_usd_per_s, whole_nodes
from perfmodel.errors import UsageError

Floats = npt.NDArray[np.float64]

# Two costs closer than this (relative) are one cost: rounding must not choose a K.
TIE = 1e-12

PARTS = {
    "accelerators": "accelerators at the flat price",
    "tiers": "price tiers",
    "whole_nodes": "accelerators of started nodes that do not compute",
    "spares": "spare accelerators",
    "commitment": "the minimum commitment",
    "interruptions": "time lost to interruptions",
    "fixed": "what is paid by the hour whatever K is",
    "storage": "storage while the run lasts",
    "waiting": "the value of the time spent waiting",
    "egress": "carrying the result away",
}


@dataclass(frozen=True)
class Bill:
    """What each K costs. `total_usd` is the sum of `parts_usd`; `wall_s` includes lost time [s]."""

    tariff: Tariff
    k: Floats
    time_s: Floats
    wall_s: Floats
    total_usd: Floats
    parts_usd: dict[str, Floats]


@dataclass(frozen=True)
class CostTerms:
    """The bill of each K as the few numbers that multiply a time: for many times at few K.

    `usd(t) = committed * max(slow * t, minimum) + hourly * slow * t + once`, the total of `bill`.
    """

    committed_usd_per_s: Floats
    slow: Floats
    hourly_usd_per_s: float
    minimum_s: float
    once_usd: float

    @classmethod
    def of(cls, k: npt.ArrayLike, tariff: Tariff) -> CostTerms:
        """The terms of `tariff` at each `k`."""
        count = np.asarray(k, dtype=float)
        billed = np.maximum(whole_nodes(count, tariff.node_size) + tariff.spares, tariff.minimum_k)
        slow = np.ones(count.shape)
        if tariff.interruptions is not None:
            slow = goodput.slowdown(count, tariff.interruptions)
        return cls(
            accelerators_usd_per_s(billed, tariff),
            slow,
            hourly_whatever_k(tariff),
            tariff.minimum_s,
            tariff.egress_usd,
        )

    def take(self, index: npt.NDArray[np.intp]) -> CostTerms:
        """The terms at the given positions."""
        return replace(self, committed_usd_per_s=self.committed_usd_per_s[index], slow=self.slow[index])

    def usd(self, time_s: npt.ArrayLike) -> Floats:
        """Cost of `time_s` useful seconds [USD]."""
        wall = np.asarray(time_s, dtype=float) * self.slow
        paid = np.maximum(wall, self.minimum_s) if self.minimum_s else wall
        return np.asarray(self.committed_usd_per_s * paid + self.hourly_usd_per_s * wall + self.once_usd)


def bill(k: npt.ArrayLike, time_s: npt.ArrayLike, tariff: Tariff) -> Bill:
    """Cost [USD] of `time_s` useful seconds on `k` accelerators under `tariff`, part by part.

    NaN times (infeasible K) give NaN costs.

    >>> from perfmodel.decide.pricing import on_demand, per_hour
    >>> b = bill([1, 2, 4], [800.0, 430.0, 260.0], on_demand(per_hour(3.20)))
    >>> b.total_usd.round(3).tolist()
    [0.711, 0.764, 0.924]
    """
    count = np.asarray(k, dtype=float)
    useful = np.asarray(time_s, dtype=float)
    terms = CostTerms.of(count, tariff)
    wall = useful * terms.slow
    paid = np.maximum(wall, tariff.minimum_s)
    full = whole_nodes(count, tariff.node_size)
    flat = tariff.usd_per_accelerator_s * count
    tiered = accelerators_usd_per_s(count, tariff)
    nodes = accelerators_usd_per_s(full, tariff)
    spare = accelerators_usd_per_s(full + tariff.spares, tariff)
    committed = terms.committed_usd_per_s
    parts = {
        "accelerators": flat * useful,
        "tiers": (tiered - flat) * useful,
        "whole_nodes": (nodes - tiered) * useful,
        "spares": (spare - nodes) * useful,
        "commitment": (committed - spare) * useful + committed * (paid - wall),
        "interruptions": (committed + terms.hourly_usd_per_s) * (wall - useful),
        "fixed": tariff.fixed_usd_per_s * useful,
        "storage": tariff.storage_usd_per_s * useful,
        "waiting": tariff.value_of_time_usd_per_s * useful,
        "egress": np.where(np.isnan(useful), np.nan, terms.once_usd),
    }
    return Bill(tariff, count, useful, wall, terms.usd(useful), parts)


def argbest(k: npt.ArrayLike, objective: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Index of the smallest objective along the last axis; ties (relative 1e-12) go to the smallest K.

    NaN entries never win; a row with nothing else gives -1.

    >>> argbest([4, 2, 1], [1.0, 1.0, 2.0]).item()
    1
    """
    count = np.asarray(k, dtype=float)
    value = np.where(np.isfinite(objective), np.asarray(objective, dtype=float), np.inf)
    least = value.min(axis=-1, keepdims=True)
    near = (value <= least + TIE * np.abs(least)) & np.isfinite(value)
    pick = np.argmin(np.where(near, count, np.inf), axis=-1)
    return np.asarray(np.where(near.any(axis=-1), pick, -1))


@dataclass(frozen=True)
class Choice:
    """One K with what it costs and takes. `k_low` and `k_high` hold 90 % of the draws, where draws exist."""

    k: int
    cost_usd: float
    time_s: float
    k_low: int
    k_high: int


@dataclass(frozen=True)
class Decision:
    """Both ends of a curve under one tariff, the way between them, and what moved p*."""

    tariff: Tariff
    bill: Bill
    p_star: Choice
    fastest: Choice
    times_the_cost: float
    times_faster: float
    usd_per_hour_saved: float | None
    ladder: tuple[dict[str, object], ...]
    p_star_accelerators_only: int
    moved_by: tuple[str, ...]
    sentence: str

    def as_dict(self) -> dict[str, object]:
        """The mapping that results carry."""
        return {
            "regime": self.tariff.name,
            "usd_per_accelerator_h": self.tariff.usd_per_accelerator_s * HOUR_S,
            "fixed_usd_per_h": hourly_whatever_k(self.tariff) * HOUR_S,
            "cost_usd": self.bill.total_usd,
            "parts_usd": {name: part for name, part in self.bill.parts_usd.items() if np.any(part != 0)},
            "wall_s": self.bill.wall_s,
            "p_star": vars(self.p_star),
            "fastest": vars(self.fastest),
            "exchange": {
                "times_the_cost": self.times_the_cost,
                "times_faster": self.times_faster,
                "usd_per_hour_saved": self.usd_per_hour_saved,
            },
            "marginal": list(self.ladder),
            "p_star_accelerators_only": self.p_star_accelerators_only,
            "moved_by": list(self.moved_by),
            "sentence": self.sentence,
            "note": self.tariff.note,
        }


def hourly_whatever_k(tariff: Tariff) -> float:
    """What is paid per second whatever K is: fixed prices, storage and the value of time [USD/s]."""
    return tariff.fixed_usd_per_s + tariff.storage_usd_per_s + tariff.value_of_time_usd_per_s


def decide(
    k: npt.ArrayLike,
    time_s: npt.ArrayLike,
    tariff: Tariff,
    *,
    work: npt.ArrayLike = 1.0,
    draws_s: npt.ArrayLike | None = None,
) -> Decision:
    """p*, fastest K, exchange rate, ladder and cause under one tariff.

    `time_s` may be `(draws, K)`; choices are then made on the median curve and their spread over draws is
    reported. `draws_s` gives the draws apart, where the curve to choose on is not their median. `work` divides cost and time: give the work done at each K when it grows with K (weak scaling),
    so that cost is per unit of work. Raises ValueError when no K is feasible, UsageError when interruptions let
    no run finish.
    """
    count = np.asarray(k, dtype=float)
    times = np.atleast_2d(np.asarray(time_s, dtype=float))
    draws = times if draws_s is None or not np.size(draws_s) else np.asarray(draws_s, dtype=float)
    units = np.broadcast_to(np.asarray(work, dtype=float), count.shape)
    curve = bill(count, _median(times), tariff)
    if not np.isfinite(curve.total_usd).any():
        if np.isfinite(curve.time_s).any():
            raise UsageError(
                "reliability: no run would finish at any K: it fails again before it has won anything",
                code="U018",
                help="checkpoint more often, or state a longer time between failures or preemptions",
            )
        raise ValueError("no K has a time: nothing to decide")
    terms = CostTerms.of(count, tariff)
    cost = curve.total_usd / units
    wall = curve.wall_s / units
    cheap_at, fast_at = int(argbest(count, cost)), int(argbest(count, wall))
    cheap = _choice(cheap_at, count, cost, wall, terms.usd(draws) / units)
    fast = _choice(fast_at, count, cost, wall, draws * terms.slow / units)
    saved_h = (wall[cheap_at] - wall[fast_at]) / HOUR_S
    extra = float(cost[fast_at] - cost[cheap_at])
    alone = int(count[argbest(count, curve.parts_usd["accelerators"] / units)])
    moved = moved_by(curve, units)
    return Decision(
        tariff=tariff,
        bill=curve,
        p_star=cheap,
        fastest=fast,
        times_the_cost=float(cost[fast_at] / cost[cheap_at]) if cost[cheap_at] else 1.0,
        times_faster=float(wall[cheap_at] / wall[fast_at]),
        usd_per_hour_saved=extra / float(saved_h) if saved_h > 0 else None,
        ladder=tuple(ladder(count, wall, cost)),
        p_star_accelerators_only=alone,
        moved_by=moved,
        sentence=_sentence(cheap.k, alone, moved, tariff),
    )


def _median(draws: Floats) -> Floats:
    """Median over draws, NaN where a K is infeasible in all of them."""
    if draws.shape[0] == 1:
        return np.asarray(draws[0])
    dead = np.isnan(draws).all(axis=0)
    live = np.where(dead, 0.0, draws)
    middle = np.nanmedian(live, axis=0) if np.isnan(live).any() else np.median(live, axis=0)
    return np.asarray(np.where(dead, np.nan, middle))


def _choice(at: int, count: Floats, cost: Floats, wall: Floats, draws: Floats) -> Choice:
    """The chosen K, with the span that holds 90 % of the choices made draw by draw."""
    picks = argbest(count, draws)
    among = np.sort(count[picks[picks >= 0]])
    low, high = (among[round(q * (among.size - 1))] for q in (0.05, 0.95))
    return Choice(int(count[at]), float(cost[at]), float(wall[at]), int(low), int(high))


def moved_by(curve: Bill, units: Floats | float = 1.0) -> tuple[str, ...]:
    """Names of the parts without which p* would be another K; they are keys of `PARTS`.

    Each part of the bill is taken away on its own. When none matters alone but together they moved p* off
    the K that accelerators alone would choose, all that are paid are named.
    """
    total = curve.total_usd / units
    now = int(argbest(curve.k, total))
    others = [name for name, part in curve.parts_usd.items() if name != "accelerators" and np.any(part != 0)]
    alone = tuple(
        name for name in others if int(argbest(curve.k, total - curve.parts_usd[name] / units)) != now
    )
    if alone or int(argbest(curve.k, curve.parts_usd["accelerators"] / units)) == now:
        return alone
    return tuple(others)


def ladder(k: npt.ArrayLike, time_s: npt.ArrayLike, cost_usd: npt.ArrayLike) -> list[dict[str, object]]:
    """Each step from one feasible K to the next: speedup gained, money added, speedup per USD.

    Speedup counts from the smallest feasible K0 with S(K0) = K0. A step that adds no cost has no price per
    unit: `speedup_per_usd` is None there.

    >>> ladder([1, 2], [800.0, 430.0], [0.7, 0.8])[0]["step"]
    '1->2'
    """
    count, time = np.asarray(k, dtype=float), np.asarray(time_s, dtype=float)
    base = metrics.baseline_index(count, time)
    if base < 0:
        return []
    steps = metrics.marginal_ladder(count, metrics.speedup(count, time, baseline=base), cost_usd)
    return [
        {
            "step": step.label,
            "speedup": step.speedup,
            "cost_usd": step.cost_usd,
            "speedup_per_usd": step.speedup_per_usd if np.isfinite(step.speedup_per_usd) else None,
        }
        for step in steps
    ]


def compare(
    k: npt.ArrayLike, time_s: npt.ArrayLike, tariffs: Sequence[Tariff], *, work: npt.ArrayLike = 1.0
) -> list[Decision]:
    """One decision per tariff, in the order given: the table of regimes."""
    return [decide(k, time_s, tariff, work=work) for tariff in tariffs]


def _sentence(k: int, alone: int, moved: tuple[str, ...], tariff: Tariff) -> str:
    """Why p* is where it is, in one sentence."""
    hourly = hourly_whatever_k(tariff) * HOUR_S
    if k == alone and not moved:
        if hourly == 0.0 and tariff.interruptions is None and not tariff.tiers:
            return (
                f"p* = {k}: nothing is paid by the hour besides accelerators, so p* is the K with the least "
                "accelerator-time and no price level can move it."
            )
        return f"p* = {k}: the K with the least accelerator-time; nothing else that is paid moves it."
    causes = " and ".join(PARTS[name] for name in moved)
    if k == alone:
        return f"p* = {k}, as for accelerators alone, but only because of {causes}."
    way = "outward" if k > alone else "inward"
    detail = f" ({hourly:.3g} USD/h)" if hourly and set(moved) & {"fixed", "storage", "waiting"} else ""
    return f"p* moves {way} from {alone} to {k} because of {causes}{detail}."
