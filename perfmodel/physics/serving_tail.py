"""Percentiles of a replica's latencies: the queue of `queueing` in front of the step of `serving_step`.

An open stream is that queue itself. In a closed loop the requests in flight keep their number, so the mean is that of
the state (`serving`), and the queue at the same rate says how much larger its quantiles are; what comes in the burst with
which a benchmark starts waits for the prompts of the burst, in the order of the requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.machine import Machine
from perfmodel.physics.queueing import Latency, Traffic, latency
from perfmodel.physics.serving import CLOSED, OPEN, Load, ServingAnswer, replica_step, serving_answer
from perfmodel.physics.serving_coefficients import ServingCoefficients
from perfmodel.physics.serving_shape import ServingShape
from perfmodel.physics.serving_step import Deployment, cache_sequences

Array = NDArray[np.float64]

QUANTILES: Final[dict[str, float]] = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
#: Share of the saturation rate at which the queue of a full closed loop is read: beyond, it says nothing of it.
_BUSIEST: Final = 0.97
_SPACIOUS: Final = 64.0  # more slots has that queue than the loop: nobody waits for one


@dataclass(frozen=True, slots=True)
class ServingLatency:
    """Mean and quantiles by name, one entry a load; nan where there is no steady answer [s]."""

    answer: ServingAnswer
    ttft_s: dict[str, Array]
    tpot_s: dict[str, Array]
    e2e_s: dict[str, Array]


def replica_queue(
    shape: ServingShape,
    machine: Machine,
    at: Deployment,
    load: Load,
    rate_per_s: Array,
    c: ServingCoefficients,
    slots: ArrayLike | None = None,
) -> Latency:
    """The queue of one lane of a replica at `rate_per_s` [1/s] of the replica; times of its steps are not yet per token.

    `slots` are those of the replica; what fits the memory and the engine's limit when not given.

    Parameters
    ----------
    shape, machine, at, load, c : as of `serving.serving_answer`.
    rate_per_s : requests of the replica [1/s].
    slots : sequences at once in the replica; what fits when not given.

    Returns
    -------
    Latency in seconds, tokens counted by steps.

    >>> from perfmodel.physics.examples import decoder, node
    >>> from perfmodel.physics.serving_coefficients import textbook
    >>> found = replica_queue(decoder(), node(), Deployment(), Load(), np.array([0.1, 1.0]), textbook())
    >>> bool(found.stable.all() and (np.diff(found.ttft_mean_s) > 0).all())
    True
    """
    step = replica_step(shape, machine, at, load, c)
    lanes = np.asarray(at.pipeline, float)
    mixed = np.asarray(at.mixed, float)
    if slots is None:
        fitting = cache_sequences(shape, machine, at, load.input_tokens, load.output_tokens, c)
        slots = np.maximum(np.minimum(fitting, at.max_sequences), 1.0)
    shapes = [np.shape(getattr(step, name)) for name in step.__slots__]
    loads = np.broadcast_shapes(
        *shapes, lanes.shape, mixed.shape, np.shape(rate_per_s), np.shape(c.interference)
    )
    deeper = {0: (step, mixed, np.asarray(c.interference))}

    def step_s(decodes: Array, prompt_tokens: Array) -> Array:
        beyond = decodes.ndim - len(loads)
        for depth in range(1, beyond + 1):
            if depth not in deeper:
                inner, share, factor = deeper[depth - 1]
                deeper[depth] = (inner.expanded(), share[..., None], factor[..., None])
        inner, share, factor = deeper[max(beyond, 0)]
        empty = inner.seconds(decodes, np.zeros(()))
        extra = inner.seconds(decodes, prompt_tokens) - empty
        if not (share > 0.0).all():
            alone = inner.seconds(np.zeros(()), prompt_tokens) * (prompt_tokens > 0.0)
            extra = np.where(share > 0.0, extra, alone)
        return np.asarray(empty + factor * extra)

    outputs = np.asarray(load.output_tokens, float)
    traffic = Traffic(
        input_tokens=np.maximum(
            np.asarray(load.input_tokens, float) * (1.0 - np.asarray(load.prefix_hit)), 1.0
        ),
        output_tokens=1.0 + np.maximum(outputs - 1.0, 0.0) / at.advance,
        input_cv=load.input_cv,
        output_cv=load.output_cv,
        arrival_cv=load.arrival_cv,
    )
    rate = np.broadcast_to(np.asarray(rate_per_s, float) / lanes, loads)
    return latency(step_s, rate, traffic, slots=np.maximum(slots / lanes, 1.0), chunk_tokens=at.chunk_tokens)


def serving_latency(
    shape: ServingShape, machine: Machine, at: Deployment, load: Load, c: ServingCoefficients
) -> ServingLatency:
    """Means and percentiles of one replica under open or closed loads; all arguments broadcast.

    Parameters
    ----------
    shape, machine, at, load, c : as of `serving.serving_answer`.

    Returns
    -------
    The answer of `serving_answer` with percentiles; in an open loop batch and means are those of the queue.

    >>> from perfmodel.physics.examples import decoder, node
    >>> from perfmodel.physics.serving_coefficients import textbook
    >>> load = Load(kind=OPEN, rate_per_s=np.array([0.5, 1.5]))
    >>> found = serving_latency(decoder(), node(), Deployment(), load, textbook())
    >>> bool((found.ttft_s["p99"] > found.ttft_s["mean"]).all() and (np.diff(found.tpot_s["p99"]) > 0).all())
    True
    """
    found = serving_answer(shape, machine, at, load, c)
    kind = np.asarray(load.kind, float)
    is_open = kind == OPEN
    most = found.saturation_requests_per_s
    rate = np.where(is_open, load.rate_per_s, np.minimum(found.requests_per_s, _BUSIEST * most))
    in_flight = np.where(kind == CLOSED, load.concurrency, 0.0)
    spacious = np.minimum(_SPACIOUS + 1.5 * found.slots, 0.25 * np.asarray(at.chunk_tokens))
    spacious = np.maximum(spacious, found.slots)
    slots = np.where(is_open, found.slots, spacious)
    known = np.asarray(found.fits & np.isfinite(rate))
    rate = np.where(known, np.minimum(rate, 2.0 * np.where(known, most, 1.0)), 1.0)
    queue = replica_queue(shape, machine, at, load, rate, c, np.where(known, slots, 1.0))
    steady = np.asarray(known & np.where(is_open, found.stable, kind == CLOSED))
    advance = at.advance
    first = {"mean": queue.ttft_mean_s + c.first_s}
    token = {"mean": queue.tpot_mean_s / advance}
    whole = {"mean": queue.e2e_mean_s + c.first_s}
    for name, q in QUANTILES.items():
        first[name] = queue.ttft_quantile_s(q) + c.first_s
        token[name] = queue.tpot_quantile_s(q) / advance
        whole[name] = queue.e2e_quantile_s(q) + c.first_s
    # In a loop beyond the slots everybody waits the same: the line is no part of what varies.
    line = np.maximum(in_flight - np.where(known, found.slots, in_flight), 0.0) / np.where(known, most, 1.0)
    share = _burst_share(found, load)
    usual = found.ttft_s - share * found.burst_s
    first = _about(found.ttft_s, usual - line, line, first, is_open)
    token = _about(found.tpot_s, found.tpot_s, 0.0 * line, token, is_open)
    whole = _about(found.e2e_s, found.e2e_s - line, line, whole, is_open)
    for name, q in QUANTILES.items():
        # Those of the burst are the last of the run's order, and wait in order themselves.
        place = np.clip(1.0 - (1.0 - q) / np.maximum(share, 1e-9), 0.0, 1.0)
        late = np.where(place > 0.0, usual + 2.0 * place * found.burst_s, 0.0)
        first[name] = np.asarray(np.maximum(first[name], late))
    batch = np.where(is_open, queue.batch * np.asarray(at.pipeline, float), found.decodes)
    held = np.where(is_open & steady, rate * whole["mean"], found.slots)
    taken = np.where(is_open & steady, np.minimum(held, found.slots) / found.fitting, found.cache_share)

    def at_steady(values: dict[str, Array]) -> dict[str, Array]:
        return {name: np.asarray(np.where(steady, value, np.nan)) for name, value in values.items()}

    first, token, whole = at_steady(first), at_steady(token), at_steady(whole)
    answer = replace(
        found,
        stable=np.asarray(found.stable & np.isfinite(token["mean"])),
        decodes=np.asarray(np.where(steady, batch, found.decodes)),
        cache_share=np.asarray(taken),
        ttft_s=np.asarray(np.where(is_open, first["mean"], found.ttft_s)),
        tpot_s=np.asarray(np.where(is_open, token["mean"], found.tpot_s)),
        e2e_s=np.asarray(np.where(is_open, whole["mean"], found.e2e_s)),
    )
    return ServingLatency(answer, first, token, whole)


def _about(
    mean_s: Array, varied_s: Array, fixed_s: Array, queue: dict[str, Array], is_open: NDArray[np.bool_]
) -> dict[str, Array]:
    """Quantiles where the loop is closed: what is fixed, and what varies as it does in the queue at the same rate."""
    found = {"mean": np.asarray(np.where(is_open, queue["mean"], mean_s))}
    mean = np.where(queue["mean"] > 0.0, queue["mean"], 1.0)  # a single token has none after it
    for name in QUANTILES:
        value = fixed_s + varied_s * queue[name] / mean
        found[name] = np.asarray(np.where(is_open, queue[name], value))
    return found


def _burst_share(found: ServingAnswer, load: Load) -> Array:
    """Requests of the burst with which a benchmark starts, as a share of all of its requests."""
    requests = np.asarray(load.requests, float)
    share = np.where(np.isfinite(requests), found.slots / np.maximum(requests, found.slots), 0.0)
    return np.asarray(np.where(np.asarray(load.kind) == CLOSED, share, 0.0))
