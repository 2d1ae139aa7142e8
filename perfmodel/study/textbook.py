"""What a textbook's scaling study adds to ours: the gap to ideal in its order, prices by regime, idle dollars.

The textbook splits the gap of the speedup in two steps: ideal to Amdahl (what the fitted serial fraction takes), Amdahl to
measured (what is left: communication, waiting, everything that grows with K). Ours splits lost seconds by measured part
or by the best-fitting law. They differ where time grows with K: Amdahl's fit takes the growth for serial work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide import metrics
from perfmodel.errors import UsageError
from perfmodel.physics.fits import fit_amdahl
from perfmodel.physics.laws import Array, amdahl_speedup
from perfmodel.study.money import Money
from perfmodel.study.quality import Gate
from perfmodel.study.regimes import HOUR_S, PriceRegime
from perfmodel.study.statistics import Points
from perfmodel.study.table import Timings

PROPORTIONAL: Final = 0.05  # by which a price per worker may differ from K to K
SUPERLINEAR: Final = 0.005  # excess of E over 1 that counts when no interval is known


def by_regime(
    points: Points, gate: Gate, money: Money, regimes: tuple[PriceRegime, ...], recommended: int | None
) -> list[dict[str, object]]:
    """p* and the fastest K under each price, with the sentence why."""
    work = money.work / money.work[0]
    found = []
    for regime in regimes:
        bill = metrics.cost(points.k, points.mean_s, price_usd_per_s=regime.usd_per_h / HOUR_S)
        ranked = np.where(gate.passed, bill / work, np.nan)
        best = metrics.best_index(ranked)
        fast = metrics.best_index(np.where(gate.passed, points.speedup, np.nan), largest=True)
        at = [int(i) for i in (best, fast) if i >= 0]
        p_star, fastest = (
            (_choice(points, bill, at[0]), _choice(points, bill, at[-1])) if len(at) == 2 else (None, None)
        )
        chosen = np.flatnonzero(points.k == recommended)
        found.append(
            {
                "regime": regime.name,
                "price_usd_per_h": regime.list_usd_per_h,
                "utilisation": regime.utilisation,
                "usd_per_working_h": regime.usd_per_h,
                "cost_usd": bill,
                "p_star": p_star,
                "fastest": fastest,
                "recommended": _choice(points, bill, int(chosen[0])) if chosen.size else None,
                "why": _why(regime, regimes[0], p_star, fastest),
            }
        )
    return found


class Choice(TypedDict):
    """A K, what it costs, and the time there."""

    k: int
    cost_usd: float
    time_s: float


def _choice(points: Points, bill: Array, at: int) -> Choice:
    return {"k": int(points.k[at]), "cost_usd": float(bill[at]), "time_s": float(points.mean_s[at])}


def _why(regime: PriceRegime, first: PriceRegime, p_star: Choice | None, fastest: Choice | None) -> str:
    """Why p* lies where it does under this price."""
    if p_star is None or fastest is None:
        return "no K clears the quality gate"
    text = f"every worker-hour costs {regime.usd_per_h:.4g} USD"
    if regime.utilisation < 1.0:
        text += (
            f" ({regime.list_usd_per_h:.4g} at {regime.utilisation:.0%} utilisation: idle hours are paid too)"
        )
    text += f", so the least worker-time wins: K = {p_star['k']}"
    if regime is not first and regime.usd_per_h != first.usd_per_h:
        ratio = regime.usd_per_h / first.usd_per_h if first.usd_per_h else float("inf")
        text += f"; all bills are {ratio:.3g} times those of {first.name}, which moves no optimum"
        if regime.utilisation < 1.0 and regime.list_usd_per_h < first.usd_per_h:
            text += f"; it beats {first.name} above {regime.list_usd_per_h / first.usd_per_h:.0%} utilisation"
    if fastest["k"] != p_star["k"] and p_star["cost_usd"] > 0:
        text += (
            f"; the fastest, K = {fastest['k']}, costs {fastest['cost_usd'] / p_star['cost_usd']:.3g} times as much for "
            f"{p_star['time_s'] / fastest['time_s']:.3g} times the speed"
        )
    return text


def gap_to_ideal(points: Points, fitted: Points) -> dict[str, object] | None:
    """Ideal, Amdahl's and the measured speedup, and the two steps between them; None in the weak regime or for one K.

    The law is that of the points `fitted`, which may be fewer.
    """
    if points.regime == "weak" or fitted.k.size < 2:
        return None
    fit = fit_amdahl(fitted.k, fitted.speedup, baseline_k=fitted.baseline_k)
    k0 = float(points.baseline_k)
    law = k0 * amdahl_speedup(points.k / k0, min(max(fit.serial_fraction, 0.0), 1.0))
    return {
        "ideal": points.k,
        "amdahl": law,
        "measured": points.speedup,
        "serial_gap": points.k - law,
        "rest_gap": law - points.speedup,
        "note": "Ideal to Amdahl is what the fitted serial fraction takes, Amdahl to measured the rest. Where time grows with K "
        "the fit takes a part of the growth for serial work, and the rest is of both signs; the split of lost seconds by part "
        "or by the best law (`fits.split`, `ledger_worker_s`) does not mix the two.",
    }


def part_dollars(points: Points, money: Money) -> dict[str, Array] | None:
    """Dollars of each part of a run: its share of the time, at the run's bill."""
    if money.basis is None or not points.parts_s:
        return None
    return {name: money.cost_usd * part / points.mean_s for name, part in points.parts_s.items()}


def slowest_of_repeats(timings: Timings, points: Points, threshold: float) -> dict[str, object] | None:
    """The exercise's straggler: at each K above the baseline the slowest of the repeats instead of their mean."""
    if not (points.repeats > 1).any():
        return None
    worst = np.array([timings.time_s[timings.k == k].max() for k in points.k])
    time = np.where(points.k > points.baseline_k, worst, points.mean_s)
    efficiency = metrics.efficiency(points.k, time, regime=points.regime)
    below = np.flatnonzero(efficiency < threshold - 1e-12)
    return {
        "time_s": time,
        "speedup": points.k * efficiency,
        "efficiency": efficiency,
        "bend_k": int(points.k[below[0]]) if below.size else None,
        "over_mean": time / points.mean_s,
    }


def from_baseline(timings: Timings, baseline_k: int | None) -> Timings:
    """The runs from a K on, which becomes the baseline."""
    if baseline_k is None:
        return timings
    if not np.any(timings.k == baseline_k):
        known = ", ".join(f"{k:g}" for k in np.unique(timings.k))
        raise UsageError(
            f"--baseline-k: no run at K = {baseline_k}", code="U020", help=f"runs are at K = {known}"
        )
    kept = timings.k >= baseline_k
    return replace(
        timings,
        k=timings.k[kept],
        time_s=timings.time_s[kept],
        parts_s={name: values[kept] for name, values in timings.parts_s.items()},
        columns={name: values[kept] for name, values in timings.columns.items()},
    )


def beyond_one(points: Points) -> NDArray[np.bool_]:
    """Where E is above 1 by more than its interval."""
    margin = np.where(np.isfinite(points.efficiency_ci95), points.efficiency_ci95, SUPERLINEAR)
    return np.asarray(points.efficiency > 1.0 + np.maximum(margin, 1e-9))


def honest_baseline(points: Points) -> int | None:
    """The smallest K against which no larger one is superlinear; None where there is none but the last."""
    for i in range(points.k.size - 1):
        relative = points.efficiency[i:] / points.efficiency[i]
        if (relative <= 1.0 + SUPERLINEAR).all():
            return int(points.k[i])
    return None


def per_worker(timings: Timings, price_per: str | None) -> Timings:
    """A `price_usd_per_h` that is of one worker, as that of the whole cluster, which the study computes with."""
    price = timings.columns.get("price_usd_per_h")
    if price is None or price_per != "worker":
        return timings
    return replace(timings, columns={**timings.columns, "price_usd_per_h": price * timings.k})


def price_reads_as(timings: Timings) -> Literal["worker", "cluster", "unclear"] | None:
    """What `price_usd_per_h` looks like from its numbers; None where a table has none, or too few K to tell.

    One price at every K is that of a worker, one that grows in proportion to K that of the whole cluster.
    """
    price = timings.columns.get("price_usd_per_h")
    if (
        price is None
        or np.unique(timings.k).size < 2
        or not np.isfinite(price).all()
        or not (price > 0).any()
    ):
        return None
    if np.allclose(price, price[0], rtol=1e-9):
        return "worker"
    per_worker = price / timings.k
    return "cluster" if np.allclose(per_worker, per_worker[0], rtol=PROPORTIONAL) else "unclear"
