"""How far a service can be loaded: where its objectives end, why, and what would help by how much.

The objective that ends first and the part of the time that has grown to it name the cause. The remedy of a cause is
put into the same model, and the knee that it would give is told beside it: a remedy that does nothing is seen to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.knee import curvature_knee
from perfmodel.decide.serving.crossing import crossing
from perfmodel.decide.serving.curve import LoadCurve, latencies, saturation
from perfmodel.decide.serving.pools import Remedy, pool_remedies
from perfmodel.physics.serving import OPEN, replica_step
from perfmodel.physics.serving_step import Deployment

Array = NDArray[np.float64]
Limits = Sequence[tuple[str, str, float]]

_MUCH: Final = 0.8  # of a time: what more room leaves of it where room was scarce
_FASTER: Final = 1.5  # of a link or a memory, as a remedy
_MORE: Final = 4.0  # times the engine's limit, as a remedy
_NEARLY: Final = 0.95  # of saturation: beyond, the replicas are full


class ServedKnee(TypedDict):
    """A knee of one replica as results have it: the load up to which it is of use, why it ends there, what helps."""

    load: float | None
    low: float | None
    high: float | None
    objective: str | None
    cause: str
    remedy: str | None
    load_after_remedy: float | None


def knees(curve: LoadCurve, limits: Limits) -> dict[str, ServedKnee]:
    """The knee by the objectives and by the shape of the curve, loads of one replica."""
    return {"slo": _slo(curve, limits), "curvature": _curvature(curve)}


def _empty(cause: str) -> ServedKnee:
    return {
        "load": None,
        "low": None,
        "high": None,
        "objective": None,
        "cause": cause,
        "remedy": None,
        "load_after_remedy": None,
    }


def _slo(curve: LoadCurve, limits: Limits) -> ServedKnee:
    if not limits:
        return _empty("the job states no slo")
    if curve.kind == "offline":
        return _empty("all requests wait at the start: there is no load to limit")
    if not curve.answer.fits.all():
        return _empty("the model and one request do not fit the memory")
    bound = {f"{q}_{s}": limit for q, s, limit in limits}
    mean, low, high = ({} for _ in range(3))
    for quantity, statistic, _ in limits:
        name = f"{quantity}_{statistic}"
        mean[name] = curve.times[quantity][statistic]
        low[name], high[name] = curve.bounded(quantity, statistic)
    load, who = crossing(curve.load, mean, bound)
    worst, _ = crossing(curve.load, high, bound)
    best, _ = crossing(curve.load, low, bound)
    # At the fast end of the band the machine saturates later as well.
    stretch = float(np.exp(curve.half.saturation)) if curve.kind == "rate" else 1.0
    most = curve.saturation_per_s if curve.kind == "rate" else float(curve.load[-1])
    found = _empty("")
    found["low"] = None if np.isnan(worst) else min(worst, curve.load[-1])
    if curve.kind == "rate":  # beyond the largest rate of the curve nothing is steady
        best = min(best, float(curve.load[-1]))
    found["high"] = best * stretch if np.isfinite(best) else None
    if who is None and curve.kind == "rate":
        steady = np.flatnonzero(np.isfinite(curve.times["ttft"]["mean"]))
        found["load"] = float(curve.load[steady[-1]]) if steady.size else None
        found["cause"] = "every rate below saturation keeps the slo: the rate itself ends first"
        return found
    if who is None:
        found["cause"] = f"every load up to {curve.load[-1]:.3g} keeps the slo"
        found["low"] = found["low"] if np.isfinite(worst) else None
        return found
    found["objective"] = who
    if not np.isnan(load):
        found["load"] = float(min(load, most))
        if curve.kind == "rate" and found["high"] is not None:
            found["high"] = max(found["high"], float(min(load, most)))
    remedies = _remedies(curve, who, load)
    after = [_after(curve, remedy, limits) for remedy in remedies]
    # What is fullest need not be what ends the objective: the cause is what helps most.
    best_of = max(range(len(after)), key=lambda i: after[i] or 0.0)
    remedy = remedies[best_of]
    found["cause"], found["remedy"] = remedy.cause, remedy.words
    if np.isnan(load):
        value = float(mean[who][0])
        found["cause"] = f"{_said(who)} is {value:.3g} s even when nearly idle; {remedy.cause}"
    found["load_after_remedy"] = after[best_of]
    return found


def _after(curve: LoadCurve, remedy: Remedy, limits: Limits) -> float | None:
    service = curve.service
    load = curve.load
    if curve.kind == "rate":
        helped = replace(service, machine=remedy.machine, belief=service.belief)
        most = float(np.max(saturation(helped, remedy.deployment)))
        load = np.unique(np.concatenate([most * (1.0 - np.geomspace(0.98, 0.02, 12))]))
    _, times = latencies(
        service, remedy.deployment, curve.kind, load, machine=remedy.machine, coefficients=remedy.coefficients
    )
    values = {f"{q}_{s}": times[q][s] for q, s, _ in limits}
    end, who = crossing(load, values, {f"{q}_{s}": limit for q, s, limit in limits})
    if np.isnan(end):
        return None
    return float(load[-1]) if who is None else end


def _said(name: str) -> str:
    quantity, _, statistic = name.partition("_")
    return f"{statistic} {quantity.upper()}" if statistic != "mean" else f"mean {quantity.upper()}"


def _remedies(curve: LoadCurve, who: str, load: float) -> list[Remedy]:
    """The causes that an objective's end may have: of two pools any part, of one replica what has grown up to there."""
    at = curve.service.deployment([curve.layout])
    if at.prefill_at is not None and (not who.startswith("tpot") or _is_full(curve, load)):
        return pool_remedies(
            curve.service, at, _said(who), load if np.isfinite(load) else float(curve.load[0])
        )
    return [_remedy(curve, who, load)]


def _remedy(curve: LoadCurve, who: str, load: float) -> Remedy:
    """The cause of an objective's end, from what has grown up to there."""
    service, c = curve.service, curve.service.coefficients
    at = service.deployment([curve.layout])
    machine = service.machine
    index = int(
        np.clip(
            np.searchsorted(curve.load, load if np.isfinite(load) else curve.load[0]), 0, curve.load.size - 1
        )
    )
    answer = curve.answer
    slots, fitting = float(np.ravel(answer.slots)[-1]), float(np.ravel(answer.fitting)[-1])
    quantity, _, statistic = who.partition("_")
    name = _said(who)
    limit = float(at.max_sequences)
    waits = quantity != "tpot" and _waits_for_slots(curve, at, quantity, statistic, load)

    def made(cause: str, words: str, **changed: Any) -> Remedy:
        return Remedy(
            f"{name}: {cause}",
            words,
            changed.get("machine", machine),
            changed.get("at", at),
            changed.get("c", c),
        )

    if waits and fitting <= limit:
        cause = f"keys and values of {slots:,.0f} sequences fill the memory, and requests wait for a slot"
        if service.cache_bytes > 1.0:
            return made(
                cause,
                "kv_precision: fp8, which halves what a sequence holds",
                at=replace(at, cache_bytes=1.0),
            )
        larger = replace(machine, memory_bytes=machine.memory_bytes * 2.0)
        return made(cause, "accelerators of twice the memory", machine=larger)
    if waits and fitting > limit:
        return made(
            f"all {limit:,.0f} slots of the engine are taken, and requests wait for one",
            f"max_batch: {min(limit * _MORE, fitting):,.0f} (as many as fit the memory)".replace(",", ""),
            at=replace(at, max_sequences=min(limit * _MORE, fitting)),
        )
    part, share = _grown(curve, index)
    if service.job.serving.output_tokens.mean <= 1.0 and part == "weights" and not waits:
        faster = replace(
            machine,
            peak_flop_per_s=machine.peak_flop_per_s * _FASTER,
            peak16_flop_per_s=machine.peak16_flop_per_s * _FASTER,
        )
        return made(
            f"products are {share * 100:.0f} % of a batch: arithmetic",
            "1.5 times the peak (or a smaller precision)",
            machine=faster,
        )
    if quantity == "ttft" or part == "prompts":
        told = "prompts wait for one another and for the steps of others" if quantity == "ttft" else (
            f"prompts of other requests lengthen the steps ({share * 100:.0f} % of one)"
        )  # fmt: skip
        return made(
            told,
            "half of the prefill work (a prefix cache, or prefill on machines of its own)",
            c=replace(c, interference=np.asarray(c.interference) * 0.5, compute=np.asarray(c.compute) * 2.0,
                      expert_compute=np.asarray(c.expert_compute)),
        )  # fmt: skip
    if part == "exchange":
        links = replace(
            machine,
            up_bytes_per_s=machine.up_bytes_per_s * _FASTER,
            out_bytes_per_s=machine.out_bytes_per_s * _FASTER,
        )
        return made(f"exchange between ranks is {share * 100:.0f} % of a step", "half of the latency and 1.5 times the rate of links",
                    machine=links, c=replace(c, exchange_s=np.asarray(c.exchange_s) * 0.5))  # fmt: skip
    if part in ("launch", "host"):
        return made(f"kernel launches and the host are {share * 100:.0f} % of a step", "half of the launch and host time (graphs, a newer engine)",
                    c=replace(c, layer_s=np.asarray(c.layer_s) * 0.5, sequence_s=np.asarray(c.sequence_s) * 0.5))  # fmt: skip
    if part == "cache" and service.cache_bytes > 1.0:
        return made(f"reading keys and values is {share * 100:.0f} % of a step", "kv_precision: fp8 halves what is read",
                    at=replace(at, cache_bytes=1.0))  # fmt: skip
    what = {
        "weights": "reading weights",
        "experts": "reading experts",
        "cache": "reading keys and values",
    }.get(part, part)
    return made(f"{what} is {share * 100:.0f} % of a step: memory bandwidth", "1.5 times the memory bandwidth (or a wider tp)",
                machine=replace(machine, memory_bytes_per_s=machine.memory_bytes_per_s * _FASTER))  # fmt: skip


def _is_full(curve: LoadCurve, load: float) -> bool:
    """Whether an objective ends where nothing more is answered at all."""
    return bool(np.isfinite(load) and load > _NEARLY * curve.saturation_per_s)


def _waits_for_slots(curve: LoadCurve, at: Deployment, quantity: str, statistic: str, load: float) -> bool:
    """Whether a time would be much shorter at the knee with memory and slots in plenty."""
    service = curve.service
    machine = replace(service.machine, memory_bytes=service.machine.memory_bytes * _MORE)
    roomy = replace(at, max_sequences=np.asarray(at.max_sequences) * _MORE)
    there = np.array([load if np.isfinite(load) else curve.load[0]])
    _, now = latencies(service, at, curve.kind, there)
    _, then = latencies(service, roomy, curve.kind, there, machine=machine)
    return bool(then[quantity][statistic][0] < _MUCH * now[quantity][statistic][0])


def _grown(curve: LoadCurve, index: int) -> tuple[str, float]:
    """The part of a step that has grown most from the least load to this one, and its share there."""
    parts = step_parts(curve)
    total = sum(parts.values(), np.zeros(()))
    growth = {name: float(value[index] - value[0]) for name, value in parts.items()}
    if max(growth.values()) < 0.1 * float(total[index]):  # too slow from the start: the largest part
        growth = {name: float(value[index]) for name, value in parts.items()}
    name = max(growth, key=lambda key: growth[key])
    return name, float(parts[name][index] / total[index])


def step_parts(curve: LoadCurve) -> dict[str, Array]:
    """The mean step between two tokens, by part; `prompts` is what prompts of other requests add. They sum to it."""
    service, answer = curve.service, curve.answer
    at = service.deployment([curve.layout])
    load = service.load(OPEN, rate_per_s=curve.load)
    step = replica_step(service.shape, service.machine, at, load, service.coefficients)
    if service.job.serving.output_tokens.mean <= 1.0 and curve.kind == "rate":  # the batch of a mean step
        tokens = (
            answer_decodes(curve)
            * service.job.serving.input_tokens.mean
            * (1.0 - service.job.serving.prefix_hit)
        )
        inside = np.minimum(tokens, float(at.chunk_tokens))
        return {
            name: np.broadcast_to(value, curve.load.shape) for name, value in step.parts(0.0, inside).items()
        }
    decodes = answer_decodes(curve) / np.asarray(at.pipeline, float)
    parts = {
        name: np.broadcast_to(value, curve.load.shape) for name, value in step.parts(decodes, 0.0).items()
    }
    if curve.kind == "offline":
        return {**parts, "prompts": np.maximum(answer.step_s - sum(parts.values()), 0.0)}
    per_token = np.nan_to_num(answer.tpot_s)
    pace = np.where(per_token > 0.0, per_token * at.advance, answer.step_s)
    rest = pace - sum(parts.values())
    scale = np.where(
        rest < 0.0, pace / np.maximum(pace - rest, 1e-300), 1.0
    )  # a queue of fewer sequences than its mean
    return {name: np.asarray(value * scale) for name, value in parts.items()} | {
        "prompts": np.maximum(rest, 0.0)
    }


def answer_decodes(curve: LoadCurve) -> Array:
    """Sequences that decode, of a replica."""
    return np.asarray(np.broadcast_to(curve.answer.decodes, curve.load.shape))


def _curvature(curve: LoadCurve) -> ServedKnee:
    """The bend of throughput over end-to-end time: beyond it a request waits more than the service gains."""
    if curve.kind == "offline" or curve.load.size < 3:
        return _empty("too few loads to see a bend" if curve.kind != "offline" else "one load has no bend")
    whole = curve.times["e2e"]["mean"]
    rate = curve.answer.throughput_out_tokens_per_s
    steady = np.flatnonzero(np.isfinite(whole) & np.isfinite(rate))
    steady = steady[np.concatenate([[True], np.diff(whole[steady]) > 0.0])] if steady.size else steady
    if steady.size < 3:
        return _empty("too few loads are steady to see a bend")
    found = curvature_knee(whole[steady], rate[steady])
    if not bool(found.reached):
        return _empty(f"no bend up to {curve.load[steady[-1]]:.3g}")
    at = steady[int(np.argmin(np.abs(whole[steady] - float(found.k))))]
    made = _empty("throughput gains less than the time of a request loses")
    made["load"] = load = float(curve.load[at])
    if curve.kind == "rate":
        moved = float(np.exp(curve.half.saturation))
        made["low"], made["high"] = load / moved, load * moved
    return made
