"""Replicas for a demand: as many as keep each within the load at which the objectives end, and those that stand by.

A balancer that sends each request to a random replica, or the next one, leaves every replica its share of the demand
with arrivals no less regular than the demand's own, so what one replica answers at r-th of the demand is what each of r
does. The number of replicas is the least r with ``demand / r <= knee``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from perfmodel.decide.serving.curve import LoadCurve, latencies
from perfmodel.decide.serving.knee import ServedKnee
from perfmodel.decide.serving.money import MILLION, bill
from perfmodel.specs.serving import STATISTICS

USUAL_SPARES: Final = 1


def replicas_for(demand_per_s: float, knee_per_s: float) -> int:
    """The least number of replicas that keeps each at or below its knee.

    >>> replicas_for(200.0, 8.0), replicas_for(201.0, 8.0)
    (25, 26)
    """
    return max(1, math.ceil(demand_per_s / knee_per_s * (1.0 - 1e-12)))


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
    spare = USUAL_SPARES if job.serving.spares is None else job.serving.spares
    if knee["load"] is None:
        return {
            "replicas": None, "replicas_low": None, "replicas_high": None, "spare": spare, "accelerators": None,
            "fleet": {"demand_per_s": demand, "reason": f"no number of replicas keeps the slo: {knee['cause']}"},
        }  # fmt: skip
    count = replicas_for(demand, knee["load"])
    each = demand / count
    at = curve.service.deployment([curve.layout])
    answer, times = latencies(curve.service, at, "rate", np.array([each, demand / (count + spare)]))
    paid = bill(job, (count + spare) * ranks)
    out = demand * job.serving.output_tokens.mean
    total = out + demand * job.serving.input_tokens.mean
    return {
        "replicas": count,
        "replicas_low": None if knee["high"] is None else replicas_for(demand, knee["high"]),
        "replicas_high": None if knee["low"] is None else replicas_for(demand, knee["low"]),
        "spare": spare,
        "accelerators": (count + spare) * ranks,
        "fleet": {
            "demand_per_s": demand,
            "rate_per_replica_per_s": each,
            "headroom": count * knee["load"] / demand - 1.0,
            "with_spares_headroom": (count + spare) * knee["load"] / demand - 1.0,
            "load_of_saturation": each / float(np.max(answer.saturation_requests_per_s)),
            "usd_per_h": paid.usd_per_s * 3600.0,
            "usd_per_million_tokens": paid.usd_per_s / out * MILLION,
            "usd_per_million_total_tokens": paid.usd_per_s / total * MILLION,
            **{
                f"{quantity}_s": {name: float(values[name][0]) for name in STATISTICS}
                for quantity, values in times.items()
            },
        },
    }
