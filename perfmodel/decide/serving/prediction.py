"""The whole answer for a serving job: curve with bands, knee with cause and remedy, fleet, dollars and joules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.serving.choose import Chosen, choose
from perfmodel.decide.serving.curve import (
    QUANTITIES,
    LoadCurve,
    knee_grid,
    load_curve,
    reported_loads,
)
from perfmodel.decide.serving.fleet import fleet
from perfmodel.decide.serving.knee import Limits, ServedKnee, knees, step_parts
from perfmodel.decide.serving.money import MILLION, bill, watts
from perfmodel.decide.serving.pools import pools_of
from perfmodel.decide.serving.rests import narrow, rests_on
from perfmodel.results.envelope import Result
from perfmodel.serving.beliefs import ServingBeliefs, shipped_beliefs
from perfmodel.serving.calibrated import CalibratedBeliefs
from perfmodel.serving.setup import Service, service_of
from perfmodel.specs.serving import STATISTICS, ServingJob

Array = NDArray[np.float64]
_UNITS: Final = {"rate": "rate_per_s", "concurrency": "concurrency", "offline": "requests"}


def predict_serving(job: ServingJob, beliefs: ServingBeliefs | None = None, *, seed: int = 0) -> Result:
    """Predict a serving job at all its loads. Nothing is drawn: the seed is only carried along."""
    service = service_of(job, beliefs or shipped_beliefs())
    result = answer(service, choose(service))
    if isinstance(beliefs, CalibratedBeliefs) and service.root is None:
        on = ", ".join(f"{key} {value}" for key, value in beliefs.on.items())
        result["notes"] = [
            *result["notes"],
            f"beliefs: calibrated on another stack ({on}): the shipped ones are used",
        ]
    return Result("serving", inputs_of(job), result, seed)


def inputs_of(job: ServingJob) -> dict[str, object]:
    """What reproduces the answer."""
    return job.model_dump(mode="json", exclude_none=True)


def answer(service: Service, chosen: Chosen) -> dict[str, Any]:
    """`serving.result` of one layout."""
    job, layout = service.job, chosen.layout
    replicas = float(job.replicas)
    kind, asked = reported_loads(service, layout)
    grid = asked if kind == "offline" else knee_grid(service, layout, kind, asked)
    whole = load_curve(service, layout, kind, np.unique(np.concatenate([asked, grid])))
    at = np.searchsorted(whole.load, asked)
    limits = job.serving.slo.limits if job.serving.slo is not None else ()
    found = knees(whole, limits)
    sized = fleet(whole, found["slo"])
    told = _curve(whole, at, replicas)
    result: dict[str, object] = {
        "load_kind": kind,
        "load_unit": _UNITS[kind],
        "load": asked * replicas,
        "is_one_pass": job.is_one_pass,
        **told,
        **_money(whole, at, replicas),
        "saturation": _saturation(whole, replicas) if kind != "concurrency" else None,
        "knee": {rule: _of_all(knee, replicas) for rule, knee in found.items()},
        "goodput": _goodput(
            found["slo"], layout.accelerators, job.serving.output_tokens.mean, kind, replicas
        ),
        "slo": [{"quantity": q, "statistic": s, "limit_s": limit} for q, s, limit in limits],
        "within_slo": _within(told, limits),
        **sized,
        "layout": {**layout.model_dump(), "accelerators": layout.accelerators, "how": chosen.how},
        "pools": pools_of(whole, at),
        "precision": service.precision,
        "engine": service.engine.era,
        "rests_on": rests_on(service, chosen),
        "narrow": narrow(whole, at),
        "notes": _notes(service, whole, limits),
    }
    return result


def _curve(curve: LoadCurve, at: NDArray[np.intp], replicas: float) -> dict[str, object]:
    answer = curve.answer
    fits = bool(np.all(answer.fits))
    stable = np.broadcast_to(answer.stable, curve.load.shape)[at]
    if curve.kind == "rate":
        stable = stable & np.isfinite(curve.times["ttft"]["mean"][at])
    steady = np.where(stable, 1.0, np.nan)

    def of(value: Array) -> Array:
        return np.asarray(np.broadcast_to(value, curve.load.shape)[at])

    out = of(answer.throughput_out_tokens_per_s) * replicas * steady
    total = of(answer.throughput_total_tokens_per_s) * replicas * steady
    ends = [end[at] * replicas * steady for end in curve.throughput_ends]
    ranks = curve.layout.accelerators * replicas
    parts = {name: value[at] * steady for name, value in step_parts(curve).items()}
    times: dict[str, dict[str, Array]] = {}
    for quantity in QUANTITIES:
        times[f"{quantity}_s"] = {}
        for statistic in STATISTICS:
            low, high = curve.bounded(quantity, statistic)
            shown = {"": curve.times[quantity][statistic], "_low": low, "_high": high}
            times[f"{quantity}_s"] |= {f"{statistic}{end}": value[at] for end, value in shown.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        user = 1.0 / times["tpot_s"]["mean"]
    reason = [None if good else _reason(curve, fits) for good in stable]
    return {
        "stable": stable,
        "reason": reason,
        "throughput_out_tokens_per_s": out,
        "throughput_out_tokens_per_s_low": ends[0],
        "throughput_out_tokens_per_s_high": ends[1],
        "throughput_total_tokens_per_s": total,
        "requests_per_s": of(answer.requests_per_s) * replicas * steady,
        "per_accelerator": {
            "throughput_out_tokens_per_s": out / ranks,
            "throughput_total_tokens_per_s": total / ranks,
        },
        "tokens_per_s_per_user": user,
        "batch": of(answer.decodes) * steady,
        "kv_share": of(answer.cache_share) * steady,
        **times,
        "step_s": sum(parts.values(), np.zeros(out.shape)),
        "parts_s": parts,
    }


def _reason(curve: LoadCurve, fits: bool) -> str:
    if not fits:
        return "the model and one request do not fit the memory"
    return "more is asked than answered: the line grows for as long as it lasts"


def _money(curve: LoadCurve, at: NDArray[np.intp], replicas: float) -> dict[str, object]:
    """Dollars and joules per million tokens: output tokens, and in and out together."""
    job = curve.service.job
    ranks = curve.layout.accelerators * replicas
    paid = bill(job, ranks)
    answer = curve.answer
    out = np.broadcast_to(answer.throughput_out_tokens_per_s, curve.load.shape)[at] * replicas
    total = np.broadcast_to(answer.throughput_total_tokens_per_s, curve.load.shape)[at] * replicas
    stable = np.broadcast_to(answer.stable, curve.load.shape)[at]
    out, total = np.where(stable, out, np.nan), np.where(stable, total, np.nan)
    parts = {name: value[at] for name, value in step_parts(curve).items()}
    in_flight = np.broadcast_to(answer.decodes, curve.load.shape)[at]
    drawn = watts(job, ranks, parts, in_flight)
    slow, fast = (end[at] * replicas for end in curve.throughput_ends)
    usd = paid.usd_per_s / out * MILLION
    return {
        "usd_per_h": paid.usd_per_s * 3600.0,
        "usd_per_million_tokens": usd,
        "usd_per_million_tokens_low": usd * out / fast,
        "usd_per_million_tokens_high": usd * out / slow,
        "usd_per_million_total_tokens": paid.usd_per_s / total * MILLION,
        "j_per_million_tokens": drawn / out * MILLION,
        "power_w": np.where(stable, drawn, np.nan),
    }


def _saturation(curve: LoadCurve, replicas: float) -> dict[str, object]:
    rate, moved = curve.saturation_per_s * replicas, math.exp(curve.half.saturation)
    high = max(min(rate * moved, curve.roof.requests_per_s * replicas), rate)
    return {"requests_per_s": rate, "low": rate / moved, "high": high}


def _goodput(
    knee: ServedKnee, ranks: int, outputs: float, kind: str, replicas: float
) -> dict[str, object] | None:
    """The most requests a second within the slo, of everything and of an accelerator; None where no rate is limited."""
    if kind != "rate" or knee["load"] is None:
        return None
    rate = float(knee["load"])
    return {
        "requests_per_s": rate * replicas,
        "requests_per_s_per_accelerator": rate / ranks,
        "out_tokens_per_s_per_accelerator": rate * outputs / ranks,
    }


def _of_all(knee: ServedKnee, replicas: float) -> dict[str, object]:
    """A knee of one replica as that of all of them."""
    keys = ("load", "low", "high", "load_after_remedy")
    return {
        key: value * replicas if key in keys and isinstance(value, float) else value
        for key, value in knee.items()
    }


def _within(told: Mapping[str, Any], limits: Limits) -> list[bool | None]:
    """Whether the slo is kept at each load; None where the job states none."""
    if not limits:
        return [None] * len(told["stable"])
    kept = np.asarray(told["stable"], bool)
    for quantity, statistic, limit in limits:
        kept = kept & (np.nan_to_num(told[f"{quantity}_s"][statistic], nan=np.inf) <= limit)
    return [bool(one) for one in kept]


def _notes(service: Service, curve: LoadCurve, limits: object) -> list[str]:
    notes = list(service.job.notes)
    if service.is_usual:
        notes.append(f"precision {service.precision} is a default: nobody gave one")
    if not service.beliefs.is_fitted:
        notes.append(
            "nothing measured stands behind the coefficients of serving yet: bands are those of a textbook"
        )
    if curve.kind == "rate" and not bool(np.all(curve.answer.stable)):
        notes.append(
            f"a rate of {curve.saturation_per_s * service.job.replicas:.3g} /s or more is answered by no steady state"
        )
    if curve.kind == "rate" and service.job.serving.requests is not None:
        notes.append("requests: a rate is answered in its steady state, whatever the number of requests")
    if service.job.serving.speculative is not None:
        notes.append(
            "drafted tokens are accepted independently of one another, each with the stated probability"
        )
    if limits and curve.kind == "concurrency":
        notes.append(
            "a closed loop slows its own users down: an open one at the same throughput has the longer tail"
        )
    return notes
