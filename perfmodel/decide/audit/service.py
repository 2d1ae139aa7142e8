"""The audit of a claimed rate of tokens: bounds by arithmetic, bandwidth and memory, the belief, and what is not said.

The bounds are the most generous that physics allows: perfect kernels at the dense datasheet peak, prompts that cost nothing,
weights read once a step for all, nothing lost to exchanges or the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.audit.findings import Finding, ordered, verdict
from perfmodel.decide.audit.verdict import usual_cluster
from perfmodel.physics.machine import peak
from perfmodel.physics.serving import CLOSED, OFFLINE, serving_answer
from perfmodel.physics.serving_coefficients import NAMES, from_logs
from perfmodel.physics.serving_shape import ServingShape, is_served, serving_shape
from perfmodel.physics.serving_step import Deployment
from perfmodel.results.envelope import Result
from perfmodel.serving.beliefs import ServingBeliefs, shipped_beliefs
from perfmodel.serving.precision import CACHE_BYTES, FORMATS
from perfmodel.serving.setup import Service, layouts_of, service_of
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.economy import Price
from perfmodel.specs.serving import Lengths, Serving, ServingJob
from perfmodel.specs.serving_claims import ServiceClaim
from perfmodel.units import format_quantity

ROUNDING: Final = 1.01
_DRAFTED: Final = 8.0  # tokens of a sequence a step that no published scheme of drafts passes on text
_LITTLE: Final = 1.25  # by how much throughput, latency and requests in flight may disagree
_MILLION: Final = 1e6

QUESTIONS: Final[dict[str, str]] = {
    "tokens-above-arithmetic": "Which model, which precision, and do the tokens include prompts that a cache answered?",
    "tokens-above-bandwidth": "How many tokens does a step make for a user: are tokens drafted, with which acceptance?",
    "memory-does-not-fit": "In how many bits are weights, keys and values held, and how many requests are in flight?",
    "tokens-above-band": "Which software and settings reach this rate? Share the command and the log.",
    "numbers-disagree": "Which of throughput, latency and requests in flight were measured in one run?",
    "lengths-missing": "How many tokens have the prompts and the answers?",
    "latency-missing": "Is this offline, or within which time to the first token and per token, at which percentile?",
    "load-missing": "How many requests are in flight, or arrive each second?",
    "tokens-missing": "Are these output tokens, or prompts and outputs together?",
    "per-missing": "Is this of one accelerator, of one user, or of the whole system?",
    "accelerators-missing": "How many accelerators stand behind the number?",
    "precision-missing": "Which precision have the weights, the arithmetic, and the keys and values?",
    "speculative-missing": "Are tokens drafted, and with which acceptance on which text?",
    "engine-missing": "Which engine, which version, which settings?",
    "price-missing": "What does an accelerator hour cost?",
}


def _n(value: float) -> str:
    """A number as a slide writes it.

    >>> _n(25000.0), _n(112.54), _n(0.51234)
    ('25,000', '112.5', '0.5123')
    """
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.4g}"


@dataclass(frozen=True)
class _Read:
    """The claim in one unit: output tokens per second of `accelerators`."""

    rate: float
    accelerators: int
    concurrency: float | None
    inputs: float | None
    outputs: float | None
    shape: ServingShape
    weight_bytes: float
    cache_bytes: float
    advance: float | None  # None: nobody says whether tokens are drafted

    @property
    def words(self) -> str:
        return f"{_n(self.rate)} output tokens/s on {self.accelerators}"


def audit_service(
    claim: ServiceClaim,
    *,
    beliefs: ServingBeliefs | None = None,
    seed: int = 0,
    catalog: Catalog | None = None,
) -> Result:
    """Check a claim about a service; the `result` of an audit."""
    if not is_served(claim.workload):
        raise claim.error_at(
            "workload",
            "S010",
            f"{claim.workload.name} cannot be served: only decoders whose dimensions are known can",
        )
    notes: list[str] = []
    read = _read(claim, notes)
    found = [*_bounds(claim, read), *_disagree(claim, read), *_unsaid(claim)]
    expected = _expected(claim, read, beliefs or shipped_beliefs(), catalog or Catalog.default(), notes)
    if expected is not None and read.rate > expected[2] * ROUNDING:
        low, middle, high = expected
        found.append(
            Finding("tokens-above-band", "suspicious", read.words, f"{_n(high)} output tokens/s",
                    f"the model expects {_n(middle)} tokens/s (90 % band {_n(low)} to {_n(high)}) of the best layout there", read.rate / high)
        )  # fmt: skip
    listed = ordered(found)
    each = read.rate / read.accelerators
    user = None if read.concurrency is None else read.rate / read.concurrency
    restated = (
        f"{read.words}: {_n(each)} an accelerator" + ("" if user is None else f", {_n(user)} a user") + "."
    )
    if claim.price is not None:
        restated += (
            f" {claim.price * read.accelerators / read.rate * _MILLION:.3g} USD per million output tokens."
        )
    advice = "Ask for the rate within a latency that your users accept, at your own lengths: offline rates are up to twice those of a service."
    return Result(
        kind="audit",
        inputs={
            "claim": claim.model_dump(
                mode="json", exclude_none=True, exclude={"workload", "cluster", "accelerator"}
            ),
            "workload": claim.workload.name,
            "cluster": claim.cluster.name if claim.cluster else None,
            "accelerator": claim.device.name,
            "vendor": claim.vendor,
        },
        result={
            "verdict": verdict(listed),
            "findings": [_mapping(finding) for finding in listed],
            "restated": restated,
            "advice": advice,
            "points": [],
            "ladder": [],
            "notes": notes,
        },
        seed=seed,
    )


def _mapping(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code, "severity": finding.severity, "k": finding.k, "claim": finding.claim, "bound": finding.bound,
        "evidence": finding.evidence, "question": QUESTIONS[finding.code],
    }  # fmt: skip


def _read(claim: ServiceClaim, notes: list[str]) -> _Read:
    said = claim.serving
    count = said.accelerators or 1
    if said.accelerators is None:
        notes.append("The claim names no number of accelerators: it is read as one.")
    rate, per = said.tokens_per_s, said.per or "system"
    if said.per is None:
        notes.append("The claim does not say of what the rate is: it is read as that of the whole system.")
    if per == "accelerator":
        rate *= count
    if per == "user":
        rate *= said.concurrency or 1
    if said.tokens == "total" and said.input_tokens and said.output_tokens:
        rate *= said.output_tokens / (said.input_tokens + said.output_tokens)
    fewest = min(FORMATS[claim.precision].weight_bits if claim.precision else _fewest_bits(claim), 16.0)
    advance: float | None = None
    if said.speculative is False:
        advance = 1.0
    elif said.speculative is not None:
        advance = said.speculative.tokens + 1.0
    cache = CACHE_BYTES[said.kv_precision] if said.kv_precision else 1.0  # the kindest reading
    users = float(said.concurrency) if said.concurrency else 1.0 if per == "user" else None
    return _Read(
        rate,
        count,
        users,
        said.input_tokens,
        said.output_tokens,
        serving_shape(claim.workload),
        fewest / 8.0,
        cache,
        advance,
    )


def _fewest_bits(claim: ServiceClaim) -> float:
    """Of a claim without a precision, the fewest that its accelerator multiplies: the kindest reading."""
    peaks = claim.device.peak
    return 4.25 if "fp4" in peaks else 8.0 if {"fp8", "int8"} & peaks.keys() else 16.0


def _active(shape: ServingShape) -> float:
    """Parameters that a token uses."""
    routed = float(shape.expert_params * shape.top_k / np.maximum(shape.experts, 1.0))
    return float(shape.dense_params + shape.whole_params + shape.logit_params) + routed


def _bounds(claim: ServiceClaim, read: _Read) -> list[Finding]:
    device, said = claim.device, claim.serving
    found: list[Finding] = []
    active = _active(read.shape)
    rates = (
        [peak(device, FORMATS[claim.precision].arithmetic)] if claim.precision else list(device.peak.values())
    )
    most = max(rates)
    needed = read.rate * 2.0 * active / read.accelerators
    if needed > most * ROUNDING:
        found.append(
            Finding("tokens-above-arithmetic", "impossible", read.words,
                    f"{_n(most * read.accelerators / (2.0 * active))} output tokens/s",
                    f"{_n(read.rate)} /s x 2 FLOP x {_n(active / 1e9)} G parameters / {read.accelerators} = "
                    f"{format_quantity(needed, 'FLOP/s')} an accelerator, prompts not counted; the peak of {device.name} is "
                    f"{format_quantity(most, 'FLOP/s')}", needed / most)
        )  # fmt: skip
    weights = active * read.weight_bytes
    context = (read.inputs or 0.0) + 0.5 * (read.outputs or 0.0)
    tokens = np.minimum(context, read.shape.window)
    cache = (
        float(read.shape.cache_elements * context + read.shape.window_elements * tokens) * read.cache_bytes
    )
    bandwidth = device.memory_bandwidth * read.accelerators
    if read.concurrency is not None:
        a_step = (weights + read.concurrency * cache) / bandwidth
        steps = read.rate / read.concurrency  # a second, where a step makes one token for each user
        ahead = steps * a_step
        limit = read.advance if read.advance is not None else 1.0
        if ahead > limit * ROUNDING:
            is_sure = read.advance is not None or ahead > _DRAFTED
            drafts = (
                ""
                if read.advance is not None
                else f"; drafted tokens would have to make {ahead:.2g} of each step's token"
            )
            found.append(
                Finding("tokens-above-bandwidth", "impossible" if is_sure else "suspicious",
                        f"{_n(steps)} tokens/s of each of {read.concurrency:,.0f} users",
                        f"{_n(limit / a_step)} tokens/s of each",
                        f"a step reads {format_quantity(weights, 'B')} of weights that a token uses and {format_quantity(read.concurrency * cache, 'B')} of "
                        f"keys and values at {format_quantity(bandwidth, 'B/s')}: {format_quantity(a_step, 's')}{drafts}", ahead / limit)
            )  # fmt: skip
    held = float(read.shape.params) * read.weight_bytes
    if read.concurrency is not None and said.input_tokens is not None:
        held += read.concurrency * cache
    room = device.memory * read.accelerators
    if held > room * ROUNDING:
        found.append(
            Finding("memory-does-not-fit", "impossible", read.words, format_quantity(room, "B"),
                    f"weights, keys and values need {format_quantity(held, 'B')} of {format_quantity(room, 'B')}", held / room)
        )  # fmt: skip
    return found


def _disagree(claim: ServiceClaim, read: _Read) -> list[Finding]:
    """Little's law: requests in flight are requests a second times the mean time of one."""
    said = claim.serving
    ttft, tpot = (limits.mean or limits.p50 if limits else None for limits in (said.ttft, said.tpot))
    if None in (ttft, tpot) or not read.outputs or read.concurrency is None or said.per == "user":
        return []
    flight = read.rate / read.outputs * (float(ttft or 0.0) + (read.outputs - 1.0) * float(tpot or 0.0))
    off = max(flight / read.concurrency, read.concurrency / flight)
    if off <= _LITTLE:
        return []
    return [
        Finding("numbers-disagree", "suspicious", f"{read.concurrency:,.0f} requests in flight", f"{_n(flight)}",
                f"by Little's law {_n(read.rate / read.outputs)} requests/s that take TTFT + (tokens - 1) x TPOT are {_n(flight)} in flight", off)
    ]  # fmt: skip


def _unsaid(claim: ServiceClaim) -> list[Finding]:
    said, found = claim.serving, []

    def missing(code: str, what: str, why: str, severity: str = "note") -> None:
        found.append(Finding(code, severity, "not stated", what, why))

    if said.input_tokens is None or said.output_tokens is None:
        missing("lengths-missing", "lengths of prompts and answers",
                "Short prompts and long answers, or the other way round, change tokens per second tenfold: without lengths it is no experiment.",
                "suspicious")  # fmt: skip
    if said.ttft is None and said.tpot is None and said.scenario != "offline" and said.per != "user":
        missing(
            "latency-missing",
            "the latency",
            "Throughput without a latency is bought with waiting: a service gets half to nine tenths of it.",
        )
    if said.concurrency is None and said.scenario != "offline":
        missing(
            "load-missing",
            "requests in flight",
            "A rate of one user and one of a thousand are different experiments.",
        )
    if said.tokens is None:
        missing(
            "tokens-missing",
            "which tokens are counted",
            "Prompts counted in can be most of the number, and cost far less than outputs.",
        )
    if said.per is None:
        missing("per-missing", "of what the rate is", "A rate of a rack reads like one of an accelerator.")
    if said.accelerators is None:
        missing("accelerators-missing", "the number of accelerators", "Without it there is no rate of one.")
    if claim.precision is None:
        missing(
            "precision-missing",
            "the precision",
            "Half the bits is up to twice the tokens, and another model.",
        )
    if said.speculative is None:
        missing(
            "speculative-missing",
            "drafted tokens",
            "Drafts make 1.4 to 2 times the tokens on easy text, fewer on other text.",
        )
    if said.engine is None:
        missing("engine-missing", "the engine", "Versions of one engine differ by more than accelerators do.")
    if claim.price is None:
        missing("price-missing", "the price", "Tokens per second are bought by the hour.")
    return found


def _expected(
    claim: ServiceClaim, read: _Read, beliefs: ServingBeliefs, catalog: Catalog, notes: list[str]
) -> tuple[float, float, float] | None:
    """Low, middle and high of the output tokens per second that the best layout within the claim's accelerators makes."""
    if read.inputs is None or read.outputs is None:
        return None
    cluster = claim.cluster or usual_cluster(claim.device, catalog)
    if cluster is None:
        notes.append("No catalogue node carries this accelerator, so nothing is predicted.")
        return None
    said = claim.serving
    serving = Serving(
        engine=said.engine,
        version=said.version if said.engine else None,
        input_tokens=Lengths(mean=read.inputs),
        output_tokens=Lengths(mean=read.outputs),
        precision=claim.precision or _kindest(claim),
        kv_precision=said.kv_precision,
        prefix_hit=min(said.prefix_hit or 0.0, 0.999),
        speculative=said.speculative or None,
    )
    job = ServingJob(name="claim", workload=claim.workload, cluster=cluster, serving=serving, price=Price())
    service = service_of(job, beliefs)
    layouts = [one for one in layouts_of(service) if read.accelerators % one.accelerators == 0]
    if not layouts:
        return None
    at = service.deployment(layouts, max_sequences=1e6)
    replicas = read.accelerators / np.atleast_1d(at.accelerators)
    middle, half = _throughput(service, at, read.concurrency, replicas)
    if not np.isfinite(middle).any():
        return None
    best = int(np.nanargmax(middle))
    moved = float(np.exp(half[best]))
    return float(middle[best]) / moved, float(middle[best]), float(middle[best]) * moved


def _kindest(claim: ServiceClaim) -> object:
    peaks = claim.device.peak
    return next((name for name in ("fp4", "fp8", "int8", "bf16", "fp16") if name in peaks), "fp32")


def _throughput(
    service: Service, at: Deployment, concurrency: float | None, replicas: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    step = 0.05
    moved = np.concatenate([np.zeros((len(NAMES), 1)), np.diag(np.full(len(NAMES), step))], axis=1)
    c = from_logs((service.belief.median[:, None] + moved)[:, :, None])
    load = (
        service.load(OFFLINE)
        if concurrency is None
        else service.load(CLOSED, concurrency=np.maximum(concurrency / replicas, 1.0))
    )
    found = serving_answer(service.shape, service.machine, at, load, c)
    rate = (
        found.saturation_requests_per_s * load.output_tokens
        if concurrency is None
        else found.throughput_out_tokens_per_s
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.nan_to_num((np.log(rate[1:]) - np.log(rate[:1])) / step) * service.belief.spread[:, None]
    half = service.beliefs.half_width("throughput", np.sqrt((slopes**2).sum(axis=0)))
    return np.broadcast_to(rate[0] * replicas, replicas.shape), np.broadcast_to(half, replicas.shape)
