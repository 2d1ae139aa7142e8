"""One layout of a service over loads: medians from the physics, 90 % bands from what is believed of its coefficients.

A band is the half-width that the beliefs give an answer (`ServingBeliefs.half_width`) from the spread that the
coefficients alone cause, which is linear in their logarithms:

    s^2 = sum_i (d ln y / d ln c_i)^2 sigma_i^2                                                             (1)

All slopes are taken at once, a coefficient a row. A rate that the slow end of the band of the saturation rate cannot
answer has no high end: there the time grows for as long as the run lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.machine import Machine
from perfmodel.physics.serving import CLOSED, OFFLINE, OPEN, Load, ServingAnswer, replica_step, serving_answer
from perfmodel.physics.serving_coefficients import NAMES, ServingCoefficients, from_logs, ideal
from perfmodel.physics.serving_step import Deployment
from perfmodel.physics.serving_tail import serving_latency
from perfmodel.serving.setup import Service
from perfmodel.specs.serving import ServedLayout

Array = NDArray[np.float64]

KINDS: Final = {"rate": OPEN, "concurrency": CLOSED, "offline": OFFLINE}
QUANTITIES: Final = ("ttft", "tpot", "e2e")
_STEP: Final = 0.05  # of a logarithm, in which a slope is taken
_TAILS: Final = ("p90", "p95", "p99")
#: Shares of the saturation rate at which a curve is read where nobody says at what.
USUAL_SHARES: Final = np.array([0.05, 0.2, 0.4, 0.6, 0.75, 0.9])
_LINEAR: Final = 0.8  # of the saturation rate, up to which slopes are taken
_STEEPEST: Final = 4.0  # of a slope: nearer to saturation nothing is linear
_GRID: Final = 16  # loads between which a knee is looked for


@dataclass(frozen=True)
class Half:
    """Logarithmic half-widths of the 90 % bands of one curve."""

    saturation: float
    throughput: Array
    times: Mapping[str, Array]  # ttft, ttft_p99, tpot, tpot_p99

    def of(self, quantity: str, statistic: str, ttft: Array, tpot_rest: Array) -> Array:
        """Of a time by its statistic; end to end is first token and the others, whose doubts add."""
        tail = "_p99" if statistic in _TAILS else ""
        if quantity != "e2e":
            return self.times[quantity + tail]
        share = ttft / (ttft + tpot_rest)
        return np.asarray(share * self.times["ttft" + tail] + (1.0 - share) * self.times["tpot" + tail])


@dataclass(frozen=True)
class Roof:
    """What no replica passes, whatever its coefficients: a machine at its datasheet rates that loses nothing."""

    tpot_s: float  # weights read once, a token for each sequence
    ttft_s: float  # of the mean prompt
    after: float  # mean output tokens after the first
    is_even: bool  # prompts are all alike
    out_tokens_per_s: Array
    requests_per_s: float  # by arithmetic

    def least_s(self, quantity: str, statistic: str) -> float:
        """The least time; 0 where requests that are shorter than the mean may be quicker."""
        if quantity == "tpot":
            return self.tpot_s
        if quantity == "ttft":
            return self.ttft_s if self.is_even or statistic == "mean" else 0.0
        return self.ttft_s + self.after * self.tpot_s if statistic == "mean" else 0.0


@dataclass(frozen=True)
class LoadCurve:
    """One layout at loads of one replica, ascending; nan where nothing is steady."""

    service: Service
    layout: ServedLayout
    kind: str
    load: Array  # per replica
    answer: ServingAnswer
    times: Mapping[str, Mapping[str, Array]]  # quantity -> statistic -> seconds
    half: Half
    slopes: Mapping[str, Array]  # quantity -> d ln y / d ln c times sigma, a coefficient a row
    roof: Roof

    @property
    def saturation_per_s(self) -> float:
        """Requests a second of a replica whose slots are all full."""
        return float(np.max(self.answer.saturation_requests_per_s))

    def bounded(self, quantity: str, statistic: str) -> tuple[Array, Array]:
        """The low and the high end of a time; inf where the slow end of the machine is overrun."""
        value = self.times[quantity][statistic]
        ttft = self.times["ttft"]["mean"]
        half = self.half.of(quantity, statistic, ttft, np.maximum(self.times["e2e"]["mean"] - ttft, 1e-9))
        high = value * np.exp(half)
        if self.kind == "rate":
            slow = self.saturation_per_s * np.exp(-self.half.saturation)
            high = np.where(np.isfinite(value) & (self.load >= slow), np.inf, high)
        low = np.maximum(value * np.exp(-half), np.minimum(self.roof.least_s(quantity, statistic), value))
        return np.asarray(low), np.asarray(high)

    @property
    def throughput_ends(self) -> tuple[Array, Array]:
        """Output tokens a second of a replica at the low and the high end of the band; never above the roofs."""
        made = np.broadcast_to(self.answer.throughput_out_tokens_per_s, self.load.shape)
        if self.kind == "rate":  # below saturation what is asked is answered
            return made, made
        high = np.minimum(made * np.exp(self.half.throughput), np.maximum(self.roof.out_tokens_per_s, made))
        return np.asarray(made * np.exp(-self.half.throughput)), np.asarray(high)


def loaded(service: Service, kind: str, load: Array) -> Load:
    """The loads of one replica."""
    said, replicas = service.job.serving, service.job.replicas
    requests = np.nan if said.requests is None else said.requests / replicas
    if kind == "rate":
        return service.load(OPEN, rate_per_s=load)
    if kind == "offline":
        return service.load(OFFLINE, requests=load)
    return service.load(CLOSED, concurrency=load, requests=requests)


def saturation(service: Service, at: Deployment) -> Array:
    """Requests a second of one replica with all its slots full; nan where nothing fits."""
    found = serving_answer(service.shape, service.machine, at, service.load(OFFLINE), service.coefficients)
    return found.saturation_requests_per_s


def reported_loads(service: Service, layout: ServedLayout) -> tuple[str, Array]:
    """The kind of load and the loads of one replica that the job asks about; shares of saturation where it names none."""
    said, replicas = service.job.serving.load, service.job.replicas
    if said is None:
        most = float(saturation(service, service.deployment([layout])))
        rates = USUAL_SHARES * most if np.isfinite(most) else np.array([1.0])
        digits = 2 - np.floor(np.log10(rates)).astype(int)
        return "rate", np.array([round(float(r), int(d)) for r, d in zip(rates, digits, strict=True)])
    if said.rate is not None:
        return "rate", np.array(said.rate.per_s) / replicas
    if said.concurrency is not None:
        return "concurrency", np.array(said.concurrency, float) / replicas
    return "offline", np.array([float(said.offline or 1)]) / replicas


def knee_grid(service: Service, layout: ServedLayout, kind: str, loads: Array) -> Array:
    """Loads between which a knee is looked for, from nearly idle to where no more is answered."""
    at = service.deployment([layout])
    if kind == "rate":
        most = float(saturation(service, at))
        if not np.isfinite(most):
            return loads
        return np.asarray(most * (1.0 - np.geomspace(0.98, 0.02, _GRID)))
    most = float(loads.max())
    return np.asarray(np.geomspace(min(1.0, most), max(most, 1.0), _GRID if most > 1.0 else 1))


def latencies(
    service: Service,
    at: Deployment,
    kind: str,
    load: Array,
    *,
    machine: Machine | None = None,
    coefficients: ServingCoefficients | None = None,
) -> tuple[ServingAnswer, dict[str, dict[str, Array]]]:
    """Answer and times of a deployment under loads of one replica, at the medians unless told otherwise."""
    found = serving_latency(
        service.shape,
        machine or service.machine,
        at,
        loaded(service, kind, load),
        coefficients or service.coefficients,
    )
    token = found.tpot_s
    if service.job.serving.output_tokens.mean <= 1.0:  # there is no time between tokens where there is one
        token = {name: np.full_like(value, np.nan) for name, value in token.items()}
    tails = service.beliefs.tails
    first, token = (
        _tailed(times, tails.get(name, 1.0)) for name, times in (("ttft", found.ttft_s), ("tpot", token))
    )
    return found.answer, {"ttft": first, "tpot": token, "e2e": found.e2e_s}


def _tailed(times: dict[str, Array], power: float) -> dict[str, Array]:
    """Quantiles with their distance from the mean, in logarithms, as much longer or shorter as measured tails were."""
    mean = times["mean"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            name: value if name == "mean" else mean * (value / mean) ** power for name, value in times.items()
        }


def load_curve(service: Service, layout: ServedLayout, kind: str, loads: Array) -> LoadCurve:
    """The whole curve of one layout, loads ascending."""
    at = service.deployment([layout])
    if kind == "offline":
        answer = serving_answer(
            service.shape, service.machine, at, loaded(service, kind, loads), service.coefficients
        )
        none = {name: np.full(loads.shape, np.nan) for name in ("mean", "p50", *_TAILS)}
        times: dict[str, dict[str, Array]] = {quantity: dict(none) for quantity in QUANTITIES}
    else:
        answer, times = latencies(service, at, kind, loads)
    slopes = _slopes(service, at, kind, loads)
    scaled = {name: value * service.belief.spread[:, None] for name, value in slopes.items()}
    half = _half(service, slopes, scaled)
    return LoadCurve(
        service,
        layout,
        kind,
        loads,
        answer,
        times,
        half,
        scaled,
        roof_of(service, at, answer.slots, loads.shape),
    )


def roof_of(service: Service, at: Deployment, slots: Array, loads: tuple[int, ...]) -> Roof:
    """The roofs of a deployment, with at most `slots` sequences at each load."""
    said = service.job.serving
    step = replica_step(service.shape, service.machine, at, service.load(OPEN, rate_per_s=1.0), ideal())
    lanes, advance = float(at.pipeline), float(at.advance)
    new = max(said.input_tokens.mean * (1.0 - said.prefix_hit), 1.0)
    chunk = float(at.chunk_tokens)
    taken = np.nan_to_num(np.broadcast_to(slots, loads), nan=1.0) / lanes
    a_token = float(step.dense_token_s) + float(step.expert_token_s)
    most = lanes / ((new + said.output_tokens.mean) * a_token)
    out = lanes * taken * advance / step.seconds(taken, 0.0)
    prompt = float(step.seconds(0.0, min(new, chunk))) * max(new / chunk, 1.0)
    return Roof(
        tpot_s=float(step.seconds(1.0, 0.0)) / advance,
        ttft_s=prompt,
        after=max(said.output_tokens.mean - 1.0, 0.0),
        is_even=said.input_tokens.spread == 0.0,
        out_tokens_per_s=np.minimum(out, most * said.output_tokens.mean),
        requests_per_s=most,
    )


def _slopes(service: Service, at: Deployment, kind: str, loads: Array) -> dict[str, Array]:
    """Slopes of (1): change of the logarithm of each answer with that of each coefficient."""
    median = service.belief.median
    moved = np.concatenate([np.zeros((len(NAMES), 1)), np.diag(np.full(len(NAMES), _STEP))], axis=1)
    c = from_logs((median[:, None] + moved)[:, :, None])
    full = serving_answer(service.shape, service.machine, at, service.load(OFFLINE), c)
    if (
        kind == "rate"
    ):  # near saturation nothing is linear: there the band of that rate itself tells (`bounded`)
        loads = np.fmin(loads, _LINEAR * np.min(full.saturation_requests_per_s))
    found = serving_answer(service.shape, service.machine, at, loaded(service, kind, loads), c)

    def slope(value: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.broadcast_to(value, (len(NAMES) + 1, loads.size)))
            change = (logs[1:] - logs[:1]) / _STEP
        return np.asarray(np.clip(np.nan_to_num(change, posinf=0.0, neginf=0.0), -_STEEPEST, _STEEPEST))

    rate = full.saturation_requests_per_s if kind == "rate" else found.throughput_out_tokens_per_s
    return {"throughput": slope(rate), "ttft": slope(found.ttft_s), "tpot": slope(found.tpot_s)}


def _half(service: Service, slopes: Mapping[str, Array], scaled: Mapping[str, Array]) -> Half:
    if service.root is not None:
        scaled = {name: service.root.T @ value for name, value in slopes.items()}
    spread = {name: np.sqrt((value**2).sum(axis=0)) for name, value in scaled.items()}
    width = service.beliefs.half_width
    throughput = width("throughput", spread["throughput"])
    times = {
        name: width(name, spread[name.partition("_")[0]]) for name in ("ttft", "tpot", "ttft_p99", "tpot_p99")
    }
    return Half(float(np.max(throughput)), throughput, times)
