"""Cost, energy and the two ends of the curve, for the K that clear the quality gate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.decide import metrics, pareto
from perfmodel.physics.laws import Array
from perfmodel.study.options import StudyOptions
from perfmodel.study.quality import Gate
from perfmodel.study.statistics import Points


@dataclass(frozen=True, slots=True)
class Money:
    """Arrays over all K; the choices look only at those that clear the gate.

    `equal_work_usd` is the cost of the baseline's amount of work at each K: the bill itself in the strong
    regime. Without a price it is NaN and the choices rest on worker-seconds, which rank the same as any price
    that is linear in K.
    """

    cost_usd: Array
    cost_per_work: Array
    work_per_usd: Array
    equal_work_usd: Array
    work: Array
    basis: str | None
    ladder: tuple[metrics.Step, ...]
    cost_optimal_k: int | None
    fastest_k: int | None
    exchange: metrics.Exchange | None


def price_runs(points: Points, gate: Gate, options: StudyOptions) -> Money:
    """Price every K and rank those that clear the gate."""
    k, time = points.k, points.mean_s
    basis: str | None = None
    bill = np.full_like(time, np.nan)
    if options.price_usd_per_s is not None:
        bill = metrics.cost(k, time, price_usd_per_s=options.price_usd_per_s)
        basis = "price per worker"
    elif "cost_usd" in points.columns:
        bill = points.columns["cost_usd"]
        basis = "price_usd_per_h of each row"
    work = metrics.work_done(
        k, work=options.work or 1.0, regime=points.regime, baseline_k=float(points.baseline_k)
    )
    per_work = bill / work
    equal = per_work * work[0]
    with np.errstate(divide="ignore"):
        per_usd = np.where(per_work > 0.0, 1.0 / per_work, np.nan)
    ranked_speedup = np.where(gate.passed, points.speedup, np.nan)
    ranked_cost = np.where(gate.passed, equal if basis else k * time / work, np.nan)
    cheap = metrics.best_index(ranked_cost)
    fast = metrics.best_index(ranked_speedup, largest=True)
    ladder = metrics.marginal_ladder(k, ranked_speedup, ranked_cost)
    if basis is None:
        ladder = tuple(metrics.Step(s.k, s.k_next, s.speedup, np.nan, np.nan) for s in ladder)
    return Money(
        bill,
        per_work,
        per_usd,
        equal,
        work,
        basis,
        ladder,
        int(k[cheap]) if cheap >= 0 else None,
        int(k[fast]) if fast >= 0 else None,
        metrics.exchange(ranked_speedup, ranked_cost),
    )


def energy_json(points: Points, gate: Gate, work: Array) -> dict[str, object] | None:
    """Energy per unit of work, and the K that needs least; None when the table has no energy."""
    energy = points.columns.get("energy_j")
    if energy is None:
        return None
    per_work = energy / work
    ranked = np.where(gate.passed, per_work, np.nan)
    best = metrics.best_index(ranked)
    return {
        "per_work_j": per_work,
        "mean_power_w": energy / points.mean_s,
        "optimal_k": int(points.k[best]) if best >= 0 else None,
    }


def serving_json(points: Points, gate: Gate, options: StudyOptions) -> dict[str, object] | None:
    """Throughput and p99 latency, one as the objective under the other as the constraint.

    Both choices are given, each where its constraint is known (a limit on p99, a floor on throughput), and the
    K that no other K beats in both. None when the table has neither column.
    """
    throughput = points.columns.get("throughput")
    latency = points.columns.get("latency_p99_s")
    if throughput is None and latency is None:
        return None
    nothing = np.full_like(points.k, np.nan)
    x = np.where(gate.passed, throughput if throughput is not None else nothing, np.nan)
    p99 = np.where(gate.passed, latency if latency is not None else nothing, np.nan)
    found: dict[str, object] = {"throughput": throughput, "latency_p99_s": latency, "pareto_k": None}
    on_front = pareto.front([-x, p99])
    if on_front.any():
        found["pareto_k"] = [int(k) for k in points.k[on_front]]
    limit, floor = options.max_latency_p99_s, options.min_throughput
    found["largest_throughput"] = _under(points, x, largest=True, allowed=p99, at_most=limit, unit="s p99")
    found["smallest_latency"] = _under(points, p99, largest=False, allowed=x, at_least=floor, unit="per s")
    return found


def _under(
    points: Points,
    objective: Array,
    *,
    largest: bool,
    allowed: Array,
    at_most: float | None = None,
    at_least: float | None = None,
    unit: str,
) -> dict[str, object]:
    constraint = "none given"
    if at_most is not None:
        objective = np.where(allowed <= at_most, objective, np.nan)
        constraint = f"at most {at_most:g} {unit}"
    if at_least is not None:
        objective = np.where(allowed >= at_least, objective, np.nan)
        constraint = f"at least {at_least:g} {unit}"
    best = metrics.best_index(objective, largest=largest)
    return {
        "k": int(points.k[best]) if best >= 0 else None,
        "value": float(objective[best]) if best >= 0 else None,
        "constraint": constraint,
    }
