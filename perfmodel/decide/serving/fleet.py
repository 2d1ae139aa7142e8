"""Replicas for a demand: as many as keep each within the load at which the objectives end, and those that stand by.

A balancer that sends each request to a random replica leaves every replica its share of the demand with arrivals as
irregular as the demand's own, so the number of replicas is the least r with ``demand / r <= knee``. Requests dealt in turn
reach one of r replicas with 1/r of the variance, which moves the knee; to send each to the least loaded one is no worse.

Replicas are away independently, so of n and s spares at least n run with the probability of a binomial variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.serving.crossing import crossing
from perfmodel.decide.serving.curve import LoadCurve, knee_grid, latencies, saturation
from perfmodel.decide.serving.knee import ServedKnee
from perfmodel.decide.serving.money import MILLION, bill
from perfmodel.physics.serving import OPEN
from perfmodel.serving.setup import Service
from perfmodel.specs.serving import (
    STATISTICS,
    Failures,
    OfferedLoad,
    PooledLayout,
    Rates,
    ServedLayout,
    ServingJob,
)

Array = NDArray[np.float64]
USUAL_SPARES: Final = 1
_MOST_SPARES: Final = 1000
_ROUNDS: Final = 3
_REGULAR: Final = 0.05  # variation of requests that are dealt in turn to very many
_YEAR_H: Final = 8760.0
_GRID: Final = 1.0 - np.geomspace(0.98, 0.02, 9)  # shares of saturation


def replicas_for(demand_per_s: float, knee_per_s: float) -> int:
    """The least number of replicas that keeps each at or below its knee.

    >>> replicas_for(200.0, 8.0), replicas_for(201.0, 8.0)
    (25, 26)
    """
    return max(1, math.ceil(demand_per_s / knee_per_s * (1.0 - 1e-12)))


def spares_of(job: ServingJob, count: float = 1.0, accelerators: float = 1.0) -> int:
    """Replicas that stand by for `count`: those that the job asks for, that its availability needs, or one."""
    failures = job.serving.failures
    if failures is not None and failures.availability is not None:
        away = away_share(failures, accelerators)
        found = 0
        while enough_running(count, found, away) < failures.availability and found < _MOST_SPARES:
            found += 1
        return found
    return USUAL_SPARES if job.serving.spares is None else job.serving.spares


def away_share(failures: Failures, accelerators: float) -> float:
    """Share of the time in which a replica of so many accelerators does not answer."""
    between = failures.mtbf_per_accelerator / accelerators
    return failures.repair / (between + failures.repair)


def enough_running(count: float, spare: float, away: float) -> float:
    r"""Probability that at least `count` of ``count + spare`` replicas run, each away for a share of the time of its own.

    >>> round(enough_running(1, 0, 0.1), 3), round(enough_running(1, 1, 0.1), 3), round(enough_running(10, 1, 0.01), 5)
    (0.9, 0.99, 0.99482)
    """
    from scipy.special import betainc

    # At most `spare` of n are away: the binomial's distribution by the incomplete beta function.
    return float(betainc(count, spare + 1.0, 1.0 - away))


def worth(job: ServingJob, per_s: Array, accelerators: Array) -> Array:
    """By what layouts are compared: requests a second of an accelerator, whole replicas and spares counted where a demand is stated."""
    if job.serving.demand is None:
        return np.asarray(per_s / accelerators)
    count = np.ceil(job.serving.demand / np.maximum(per_s, 1e-12) * (1.0 - 1e-12))
    return np.asarray(
        np.where(per_s > 0.0, job.serving.demand / ((count + spares_of(job)) * accelerators), 0.0)
    )


def within_slo(service: Service, layouts: Sequence[ServedLayout], full: Array, shares: Array) -> Array:
    """Requests a second of each layout within the slo, read at shares of saturation; 0 where an idle one does not keep it."""
    slo = service.job.serving.slo
    limits = slo.limits if slo is not None else ()
    rates = full[:, None] * shares
    at = service.deployment([*layouts, layouts[0]]).column()  # two at least: arrays
    _, times = latencies(service, at, "rate", np.concatenate([rates, rates[:1]]))
    ends = np.zeros(len(layouts))
    for i in range(len(layouts)):
        values = {f"{q}_{s}": times[q][s][i] for q, s, _ in limits}
        end, _ = crossing(rates[i], values, {f"{q}_{s}": limit for q, s, limit in limits})
        ends[i] = 0.0 if np.isnan(end) else min(end, full[i])
    return ends


def widths(service: Service, layout: ServedLayout, demand: float) -> list[dict[str, object]]:
    """Scale up against scale out: the same demand on replicas of half, the same and twice the ranks, where they fit."""
    if isinstance(layout, PooledLayout) or layout.dp > 1:
        return []
    heads, domain = service.job.workload.heads or 1, int(service.machine.domain)
    every = [
        tp
        for tp in (layout.tp // 2, layout.tp, layout.tp * 2, layout.tp * 4)
        if 1 <= tp <= domain and heads % tp == 0
    ]
    layouts = [
        layout.model_copy(update={"tp": tp, "ep": tp if layout.ep > 1 else 1, "replicas": 1}) for tp in every
    ]
    if len(layouts) < 2:
        return []
    full = np.nan_to_num(saturation(service, service.deployment(layouts)))
    good = np.flatnonzero(full > 0.0)
    layouts, full = [layouts[i] for i in good], full[good]
    found: list[dict[str, object]] = []
    for one, end in zip(layouts, within_slo(service, layouts, full, _GRID), strict=True):
        count = replicas_for(demand, float(end)) if end > 0.0 else None
        all_of_them = (
            None
            if count is None
            else (count + spares_of(service.job, count, one.accelerators)) * one.accelerators
        )
        found.append({
            "tp": one.tp,
            "knee_requests_per_s": float(end) if end > 0.0 else None,
            "replicas": count,
            "accelerators": all_of_them,
            "usd_per_h": None if all_of_them is None else bill(service.job, all_of_them).usd_per_s * 3600.0,
        })  # fmt: skip
    return found


def dealt(service: Service, replicas: float) -> Service:
    """The service as one of `replicas` sees its requests: dealt in turn they come as regularly as r of them together."""
    said = service.job.serving
    if said.balancer == "random" or replicas <= 1:
        return service
    cv = service.load(OPEN, rate_per_s=1.0).arrival_cv / math.sqrt(replicas)
    load = OfferedLoad(rate=Rates((1.0,)), arrivals=max(cv, _REGULAR))
    return replace(
        service, job=service.job.model_copy(update={"serving": said.model_copy(update={"load": load})})
    )


def knee_of(service: Service, layout: ServedLayout) -> float:
    """The largest rate of one replica within the slo; nan where there is none."""
    slo = service.job.serving.slo
    limits = slo.limits if slo is not None else ()
    loads = knee_grid(service, layout, "rate", np.array([1.0]))
    _, times = latencies(service, service.deployment([layout]), "rate", loads)
    values = {f"{q}_{s}": times[q][s] for q, s, _ in limits}
    end, _ = crossing(loads, values, {f"{q}_{s}": limit for q, s, limit in limits})
    return float(min(end, loads[-1]))


def balanced(
    service: Service, layout: ServedLayout, demand: float, count: int
) -> tuple[Service, int, float | None]:
    """What a replica sees behind the job's balancer, how many are needed then, and its knee; None: as at random."""
    if service.job.serving.balancer == "random":
        return service, count, None
    seen, knee = service, math.nan
    for _ in range(_ROUNDS):  # fewer replicas see less regular requests: the last step is never downward
        seen = dealt(service, count)
        knee = knee_of(seen, layout)
        then = replicas_for(demand, knee) if knee > 0.0 else count
        if then >= count:
            break
        count = then
    return seen, count, knee


def fleet(curve: LoadCurve, knee: ServedKnee) -> dict[str, object]:
    """`replicas`, `accelerators`, `spare` and `fleet` of a prediction; without a demand those of the job."""
    job = curve.service.job
    ranks, demand = curve.layout.accelerators, job.serving.demand
    if demand is None:
        return {
            "replicas": job.replicas,
            "replicas_low": None,
            "replicas_high": None,
            "spare": 0,
            "accelerators": job.replicas * ranks,
            "fleet": None,
        }
    if knee["load"] is None:
        return {
            "replicas": None, "replicas_low": None, "replicas_high": None, "spare": spares_of(job), "accelerators": None,
            "fleet": {"demand_per_s": demand, "reason": f"no number of replicas keeps the slo: {knee['cause']}"},
        }  # fmt: skip
    count = replicas_for(demand, knee["load"])
    seen, count, better = balanced(curve.service, curve.layout, demand, count)
    most = float(knee["load"]) if better is None else max(better, demand / count)
    spare = spares_of(job, count, ranks)
    at = seen.deployment([curve.layout])
    loads = np.array([demand / count, demand / (count + spare)])
    answer, times = latencies(seen, at, "rate", loads)
    paid = bill(job, (count + spare) * ranks)
    out = demand * job.serving.output_tokens.mean
    total = out + demand * job.serving.input_tokens.mean
    by_day = None if job.serving.day is None else over_day(job, most, ranks)
    return {
        "replicas": count,
        "replicas_low": None if knee["high"] is None else min(replicas_for(demand, knee["high"]), count),
        "replicas_high": None if knee["low"] is None else replicas_for(demand, knee["low"]),
        "spare": spare,
        "accelerators": (count + spare) * ranks,
        "fleet": {
            "demand_per_s": demand,
            "rate_per_replica_per_s": demand / count,
            "headroom": count * most / demand - 1.0,
            "with_spares_headroom": (count + spare) * most / demand - 1.0,
            "load_of_saturation": demand / count / float(np.max(answer.saturation_requests_per_s)),
            "balancer": job.serving.balancer,
            "knee_per_replica_per_s": most,
            "failures": _failing(job, count, spare, ranks),
            "usd_per_h": paid.usd_per_s * 3600.0,
            "usd_per_million_tokens": paid.usd_per_s / out * MILLION,
            "usd_per_million_total_tokens": paid.usd_per_s / total * MILLION,
            "day": by_day,
            "widths": widths(curve.service, curve.layout, demand),
            **{
                f"{quantity}_s": {name: float(values[name][0]) for name in STATISTICS}
                for quantity, values in times.items()
            },
            # While all of the spares run as well, each replica has less to do.
            "with_spares": {
                f"{quantity}_s": {name: float(values[name][1]) for name in STATISTICS}
                for quantity, values in times.items()
            },
        },
    }


def _failing(job: ServingJob, count: int, spare: int, ranks: int) -> dict[str, object] | None:
    """How often too few replicas run; None where the job does not say how often one fails."""
    failures = job.serving.failures
    if failures is None:
        return None
    away = away_share(failures, ranks)
    enough = enough_running(count, spare, away)
    return {
        "away_share": away,
        "availability": enough,
        "hours_below_a_year": (1.0 - enough) * _YEAR_H,
        "availability_without_spares": enough_running(count, 0, away),
    }


def over_day(job: ServingJob, knee_per_s: float, ranks: int) -> dict[str, Any]:
    r"""A base that is always there and what is rented beside it, over a day.

    With r replicas needed at a time, spares included, at prices p of the base and q of what is rented, a base of b costs
    :math:`p b + q\,\overline{\max(r - b, 0)}` a time; all b up to the peak are tried.
    """
    rates = np.asarray(job.serving.day, float) * float(job.serving.demand or 0.0)
    count = np.ceil(rates / knee_per_s * (1.0 - 1e-12))
    spares = np.array([spares_of(job, max(one, 1.0), ranks) for one in np.unique(count)])
    needed = count + spares[np.searchsorted(np.unique(count), count)]
    base = np.arange(int(needed.max()) + 1, dtype=float)
    beyond = np.maximum(needed - base[:, None], 0.0)
    fixed = bill(job, 0).usd_per_s
    price = np.array([bill(job, one * ranks).usd_per_s for one in base])
    rented = job.serving.rented
    hourly = price if rented is None else fixed + base * ranks * rented  # of so many rented replicas
    cost = price + hourly[beyond.astype(int)].mean(axis=1) - fixed
    best = int(np.argmin(cost)) if np.isfinite(cost).any() else int(needed.max())
    if rented is None:  # one price: nothing is gained by a base beyond what is always needed
        best = int(needed.min())
    day_s = 86400.0
    mean_rate = float(rates.mean())
    tokens = mean_rate * job.serving.output_tokens.mean * day_s
    return {
        "hour": np.arange(rates.size) * 24.0 / rates.size,
        "rate_per_s": rates,
        "replicas": needed,
        "base_replicas": best,
        "rented_replicas": np.maximum(needed - best, 0.0),
        "base_accelerators": best * ranks,
        "rented_accelerator_hours": float(beyond[best].mean()) * ranks * 24.0,
        "usd_per_day": float(cost[best]) * day_s,
        "usd_per_day_all_base": float(cost[-1]) * day_s,
        "usd_per_day_all_rented": None if rented is None else float(cost[0]) * day_s,
        "usd_per_million_tokens": float(cost[best]) * day_s / tokens * MILLION,
        "busy_share": mean_rate / float((needed * knee_per_s).mean()),
    }
