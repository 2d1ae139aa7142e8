"""One service at one load: every part of its step with formula, inputs and what moves it; and its phases on a roofline."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.serving.choose import Chosen, choose
from perfmodel.decide.serving.curve import LoadCurve, latencies, load_curve, reported_loads
from perfmodel.decide.serving.knee import step_parts
from perfmodel.decide.serving.rests import rests_on
from perfmodel.physics.serving import OPEN, replica_step
from perfmodel.physics.serving_coefficients import LEVELS, MEANINGS, NAMES, UNITS, ideal
from perfmodel.physics.serving_step import (
    ServingStep,
    cache_sequences,
    touched_experts,
    weight_bytes_per_rank,
)
from perfmodel.results.envelope import Result
from perfmodel.serving.beliefs import ServingBeliefs, shipped_beliefs
from perfmodel.serving.setup import Service, service_of
from perfmodel.specs.serving import ServingJob
from perfmodel.units import format_quantity

Array = NDArray[np.float64]

#: How each part of the mean step is computed.
FORMULAS: Final[dict[str, str]] = {
    "weights": "max(bytes of dense weights / bandwidth, 2 FLOP x tokens x weights / rate)",
    "experts": "max(bytes of the experts that a batch touches / bandwidth, their FLOP / rate) x the fullest rank",
    "cache": "sequences x keys and values of their context / bandwidth",
    "prompt_attention": "prompt tokens x attention to what came before / rate",
    "exchange": "messages x (latency + bytes / link)",
    "launch": "layers x the time of one that no work explains",
    "host": "sequences x the host's time for one",
    "draft": "drafted tokens x the time of a drafted one",
    "prompts": "prompts of other requests that share the steps, per step",
}
_MACHINE: Final[dict[str, tuple[str, ...]]] = {
    "memory bandwidth": ("memory_bytes_per_s",),
    "peak rate": ("peak_flop_per_s", "peak16_flop_per_s"),
    "link bandwidth": ("up_bytes_per_s", "out_bytes_per_s"),
    "link latency": ("up_latency_s", "out_latency_s"),
    "memory": ("memory_bytes",),
}
_MOVE: Final = 0.10  # of an input, for a slope
_LEAST: Final = 1e-3
_MANY: Final = 1e9  # sequences: weights no longer count


def _service(job: ServingJob, beliefs: ServingBeliefs | None) -> tuple[Service, Chosen]:
    service = service_of(job, beliefs or shipped_beliefs())
    return service, choose(service)


def _at_one_load(service: Service, chosen: Chosen) -> LoadCurve:
    """The curve at the largest load of the job that is steady and within its slo, else at the least."""
    kind, loads = reported_loads(service, chosen.layout)
    whole = load_curve(service, chosen.layout, kind, loads)
    good = np.broadcast_to(whole.answer.stable, loads.shape).copy()
    if kind != "offline":
        good &= np.isfinite(whole.times["ttft"]["mean"])
    limits = service.job.serving.slo.limits if service.job.serving.slo is not None else ()
    kept = good.copy()
    for quantity, statistic, limit in limits:
        kept &= np.nan_to_num(whole.times[quantity][statistic], nan=np.inf) <= limit
    chosen_loads = np.flatnonzero(kept if kept.any() else good)
    index = int(chosen_loads[-1]) if chosen_loads.size else 0
    return load_curve(service, chosen.layout, kind, loads[index : index + 1])


def explain_service(job: ServingJob, beliefs: ServingBeliefs | None = None, *, seed: int = 0) -> Result:
    """Every part of the mean step of a service at one load, with its inputs, its share and what moves it."""
    service, chosen = _service(job, beliefs)
    curve = _at_one_load(service, chosen)
    parts = {name: float(value[0]) for name, value in step_parts(curve).items()}
    total = sum(parts.values())
    inputs = _inputs(curve)
    terms = [
        {
            "name": name,
            "time_s": time,
            "share": time / total,
            "formula": FORMULAS[name],
            "inputs": inputs.get(name, ""),
        }
        for name, time in sorted(parts.items(), key=lambda item: -item[1])
        if time > _LEAST * total
    ]
    times = {f"{q}_s": {s: float(v[0]) for s, v in values.items()} for q, values in curve.times.items()}
    load = float(curve.load[0]) * job.replicas
    largest = terms[0] if terms else None
    words = f"At {_count(load)} {'requests/s' if curve.kind == 'rate' else 'requests' if curve.kind == 'offline' else 'in flight'} "
    words += f"a step takes {format_quantity(total, 's', 3)}"
    if largest is not None:
        name, time_s = str(largest["name"]).replace("_", " "), parts[str(largest["name"])]
        words += f", {100.0 * time_s / total:.0f} % of it {name}"
    return Result(
        "service-explanation",
        job.model_dump(mode="json", exclude_none=True),
        {
            "answer": f"{words}.",
            "load_kind": curve.kind,
            "load": load,
            "layout": {
                **chosen.layout.model_dump(),
                "accelerators": chosen.layout.accelerators,
                "how": chosen.how,
            },
            "precision": service.precision,
            "engine": service.engine.era,
            "batch": float(np.ravel(curve.answer.decodes)[0]),
            "step_s": total,
            "terms": terms,
            **times,
            "memory": _memory(curve),
            "sensitivity": _moves(curve),
            "coefficients": _coefficients(curve),
            "rests_on": rests_on(service, chosen),
            "notes": list(job.notes),
        },
        seed,
    )


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.4g}"


def _inputs(curve: LoadCurve) -> dict[str, str]:
    """What each part read, in words."""
    service, machine, shape = curve.service, curve.service.machine, curve.service.shape
    at = service.deployment([curve.layout])
    batch = float(np.ravel(curve.answer.decodes)[0])
    said = service.job.serving
    context = said.input_tokens.mean + 0.5 * said.output_tokens.mean * (1.0 + said.output_tokens.spread**2)
    link = format_quantity(float(machine.up_bytes_per_s), "B/s", 3)
    bandwidth = format_quantity(float(machine.memory_bytes_per_s), "B/s", 3)
    dense = float(shape.dense_params) * float(at.weight_bytes)
    elements = float(
        shape.cache_elements * context + shape.window_elements * np.minimum(context, shape.window)
    )
    return {
        "weights": f"{format_quantity(dense, 'B', 3)} over tp {curve.layout.tp}, {bandwidth} each, {service.precision}",
        "experts": f"{float(shape.experts):.0f} experts, {float(shape.top_k):.0f} a token, {format_quantity(float(shape.expert_params) * float(at.expert_bytes), 'B', 3)} in all",
        "cache": f"{batch:.3g} sequences of {context:.0f} tokens, {format_quantity(elements * float(at.cache_bytes), 'B', 3)} each, {bandwidth}",
        "exchange": f"{curve.layout.tp * curve.layout.dp} ranks of a stage, {link} each",
        "launch": f"{float(shape.layers):.0f} layers",
        "host": f"{batch:.3g} sequences",
        "draft": ""
        if said.speculative is None
        else f"{said.speculative.tokens} tokens, acceptance {said.speculative.acceptance:g}",
        "prompts": f"prompts of {said.input_tokens.mean:.0f} tokens, {said.prefix_hit:.0%} of them cached, steps of up to {at.chunk_tokens:.0f} tokens",
    }


def _memory(curve: LoadCurve) -> dict[str, float]:
    """Of one accelerator, and sequences of a replica."""
    service = curve.service
    at = service.deployment([curve.layout])
    said = service.job.serving
    fitting = cache_sequences(
        service.shape,
        service.machine,
        at,
        said.input_tokens.mean,
        said.output_tokens.mean,
        service.coefficients,
    )
    return {
        "memory_bytes": float(service.machine.memory_bytes),
        "engine_bytes": float(service.machine.memory_bytes) * float(at.memory_fraction),
        "weight_bytes": float(weight_bytes_per_rank(service.shape, at)),
        "sequences_that_fit": float(fitting),
        "slots": float(np.ravel(curve.answer.slots)[0]),
        "cache_share": float(np.ravel(curve.answer.cache_share)[0]),
    }


def _moves(curve: LoadCurve) -> list[dict[str, object]]:
    """How times answer to each number of the datasheet: both ten per cent up and down."""
    service = curve.service
    at = service.deployment([curve.layout])
    if curve.kind == "offline":
        return []
    found: list[tuple[float, dict[str, object]]] = []
    for name, keys in _MACHINE.items():
        ends = []
        for factor in (1.0 - _MOVE, 1.0 + _MOVE):
            changed = replace(
                service.machine, **{key: getattr(service.machine, key) * factor for key in keys}
            )
            _, times = latencies(service, at, curve.kind, curve.load, machine=changed)
            ends.append(
                {q: float(times[q]["mean"][0] / curve.times[q]["mean"][0] - 1.0) for q in ("ttft", "tpot")}
            )
        reach = {f"{q}_{end}": ends[i][q] for q in ("ttft", "tpot") for i, end in enumerate(("low", "high"))}
        size = max(abs(reach["tpot_low"]), abs(reach["ttft_low"]))
        found.append((size, {"input": name, "change": _MOVE, **reach}))
    return [row for _, row in sorted(found, key=lambda item: -item[0])]


def _coefficients(curve: LoadCurve) -> list[dict[str, object]]:
    """Every coefficient that moves an answer: its value, its spread, and how much of the answers' doubt it is."""
    belief = curve.service.belief
    terms = {name: curve.slopes[name][:, 0] for name in ("tpot", "ttft", "throughput")}
    rows: list[dict[str, object]] = []
    for i in np.argsort(-np.abs(terms["tpot"]), kind="stable"):
        name = NAMES[i]
        if max(abs(float(value[i])) for value in terms.values()) < _LEAST:
            continue
        rows.append(
            {
                "coefficient": name,
                "meaning": MEANINGS[name],
                "value": float(np.exp(belief.median[i])),
                "unit": UNITS[name],
                "log_spread": float(belief.spread[i]),
                "levels": " ".join(LEVELS[name]),
                "measured": bool(belief.measured[name]),
                **{f"{quantity}_log_change": float(value[i]) for quantity, value in terms.items()},
            }
        )
    return rows


def roofline_service(job: ServingJob, beliefs: ServingBeliefs | None = None, *, seed: int = 0) -> Result:
    """Prefill and decode of a service on the roofline of one accelerator."""
    service, chosen = _service(job, beliefs)
    curve = _at_one_load(service, chosen)
    machine = service.machine
    peak, bandwidth = float(machine.peak_flop_per_s), float(machine.memory_bytes_per_s)
    ridge = peak / bandwidth
    batch = float(np.ravel(curve.answer.decodes)[0]) / float(service.deployment([chosen.layout]).pipeline)
    batch = (
        batch if batch > 1.0 else 1.0
    )  # nothing to decode, or nothing fits: a step has one sequence at least
    chunk = float(service.deployment([chosen.layout]).chunk_tokens)
    said = job.serving
    new = said.input_tokens.mean * (1.0 - said.prefix_hit)
    points = (("decode of one", 1.0, 0.0), (f"decode of {batch:.3g}", batch, 0.0), ("prefill of one prompt", 0.0, min(new, chunk)),
              ("prefill of a full step", 0.0, chunk))  # fmt: skip
    phases = [_phase(name, curve, decodes, prompts, peak, bandwidth) for name, decodes, prompts in points]
    here = phases[1]
    most = _phase("", curve, _MANY, 0.0, peak, bandwidth)["intensity_flop_per_byte"]
    answer = (
        f"Decode of {batch:.3g} sequences does {here['intensity_flop_per_byte']:.3g} FLOP a byte and the ridge is {ridge:.3g}: "
        f"{'memory bandwidth' if here['bound'] == 'memory' else 'arithmetic'} bounds it. More sequences raise it up to {most:.3g}, "
    )
    answer += (
        "where keys and values, which are read for each, take all of the bandwidth."
        if most < ridge
        else "beyond the ridge."
    )
    return Result(
        "service-roofline",
        job.model_dump(mode="json", exclude_none=True),
        {
            "answer": answer,
            "load_kind": curve.kind,
            "load": float(curve.load[0]) * job.replicas,
            "layout": {
                **chosen.layout.model_dump(),
                "accelerators": chosen.layout.accelerators,
                "how": chosen.how,
            },
            "precision": service.precision,
            "peak_flop_per_s": peak,
            "memory_bandwidth_bytes_per_s": bandwidth,
            "ridge_flop_per_byte": ridge,
            "phases": phases,
            "notes": [
                *job.notes,
                "of one accelerator, exchanges and launches apart; time_s is the believed time of such a step",
            ],
        },
        seed,
    )


class RoofPoint(TypedDict):
    """A step on the roofline of one accelerator."""

    name: str
    tokens: float
    flop: float
    bytes: float
    intensity_flop_per_byte: float
    attainable_flop_per_s: float
    roof_s: float
    time_s: float
    share_of_roof: float
    bound: str


def _phase(
    name: str, curve: LoadCurve, decodes: float, prompts: float, peak: float, bandwidth: float
) -> RoofPoint:
    """FLOP and bytes of a step on one accelerator: the step of an ideal machine, whose times are work over rates."""
    service = curve.service
    at = service.deployment([curve.layout])
    load = service.load(OPEN, rate_per_s=1.0)
    step = replica_step(service.shape, service.machine, at, load, ideal())
    believed = replica_step(service.shape, service.machine, at, load, service.coefficients)
    flop, read = _work(step, decodes, prompts, peak, bandwidth)
    intensity = flop / read
    attainable = min(peak, intensity * bandwidth)
    time_s = float(believed.seconds(decodes, prompts))
    return {
        "name": name,
        "tokens": decodes + prompts,
        "flop": flop,
        "bytes": read,
        "intensity_flop_per_byte": intensity,
        "attainable_flop_per_s": attainable,
        "roof_s": flop / attainable,
        "time_s": time_s,
        "share_of_roof": flop / attainable / time_s,
        "bound": "compute" if intensity * bandwidth >= peak else "memory",
    }


def _work(
    step: ServingStep, decodes: float, prompts: float, peak: float, bandwidth: float
) -> tuple[float, float]:
    tokens = decodes * float(step.rows) + prompts
    touched = (
        float(touched_experts(tokens, step.experts, step.top_k, 1e-6)) if np.any(step.expert_read_s) else 0.0
    )
    seconds = (
        tokens * float(step.dense_token_s)
        + decodes * float(step.logit_sequence_s)
        + tokens * float(step.expert_token_s)
    )
    seconds += prompts * float(step.prompt_token_s)
    reads = (
        float(step.weights_s) + touched * float(step.expert_read_s) + decodes * float(step.cache_sequence_s)
    )
    return seconds * peak, reads * bandwidth
