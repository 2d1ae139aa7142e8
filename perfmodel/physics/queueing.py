"""Requests that wait: latency and its tail in front of a replica with continuous batching.

A replica runs one step after another. A step decodes one token of each of the `n` sequences in its slots and
prefills what has arrived since the last step, at most `chunk_tokens` tokens together. Three queues follow.

*The step.* Prompts arrive while a step runs and are prefilled in the next one. With `lambda` requests a second of `I`
tokens, `m` tokens in a step that prefills and `T(n, p)` the time of a step,

.. math:: C(n) = T(n, 0) + \\lambda I C(n) \\frac{T(n, m) - T(n, 0)}{m}                                   (1)

is the mean time of a step with `n` sequences, which is what a token waits for (a gated queue with vacations).

*The slots.* All sequences progress at the same pace, so the number of them is that of a processor-sharing queue whose
pace depends on the state: it does not depend on the distribution of lengths, and

.. math:: \\log p(n) = \\frac{1}{z} \\sum_{k \\le n} \\log\\frac{\\lambda s(k)}{k} + const, \\quad
          s(n) = first(n) + (O - 1) C(n)                                                             (2)

up to the number of slots, with `z` the peakedness of the arrivals (1 for Poisson; Hayward's scaling).

*The line in front of full slots* decays geometrically; its mean wait is that of M/M/c by `p(slots)` times
``(ca^2 + cs^2)/2`` (Allen and Cunneen).

References: Cohen, Acta Informatica 12 (1979) 245 (processor sharing that depends on the state is insensitive);
Takagi, Queueing Analysis 1 (1991), ch. 2 (gated vacations); Allen, Probability, Statistics and Queueing Theory
(1990), 5.3; Fredericks, Bell Syst. Tech. J. 59 (1980) 1 (Hayward's peakedness); Mitzenmacher, IEEE TPDS 12 (2001)
1094 (choice of two).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
#: Time [s] of a step by decoding sequences and prompt tokens in it; both carry one more, last axis than the loads.
StepTime = Callable[[Array, Array], Array]

#: Nodes of the distribution of the number of sequences: exact up to so many slots, a sum with strides beyond.
NODES: Final = 128
_ROUNDS: Final = 6


@dataclass(frozen=True)
class Spread:
    """A non-negative time by its mean and variance; quantiles as of a gamma-distributed time above `least`."""

    mean_s: Array
    variance_s2: Array
    least_s: Array

    def quantile_s(self, q: float) -> Array:
        """Quantile [s] by matched moments.

        >>> exponential = Spread(np.asarray(1.0), np.asarray(1.0), np.asarray(0.0))
        >>> round(float(exponential.quantile_s(0.99)), 3)    # ln 100
        4.605
        """
        from scipy.special import gammaincinv

        shape, scale = _gamma(self.mean_s - self.least_s, self.variance_s2)
        return np.asarray(self.least_s + gammaincinv(shape, q) * scale)


@dataclass(frozen=True)
class Latency:
    """Latency of the requests of one replica, one entry a load; nan where the replica is saturated."""

    stable: NDArray[np.bool_]
    wait_s: Array  # mean time in front of full slots
    wait_share: Array  # of the requests that find the slots full
    wait_tail_s: Array  # mean wait of those
    started: Spread  # from a free slot to the first token
    tpot: Spread  # time per output token after the first, by request
    e2e_s: Array  # mean
    e2e_variance_s2: Array
    batch: Array  # mean number of sequences that decode
    step_s: Array  # mean time of a step, as tokens see it

    @property
    def ttft_mean_s(self) -> Array:
        """Mean time to the first token [s]."""
        return np.asarray(self.wait_s + self.started.mean_s)

    @property
    def tpot_mean_s(self) -> Array:
        """Mean time per output token after the first [s]."""
        return self.tpot.mean_s

    def ttft_quantile_s(self, q: float) -> Array:
        """Quantile of the time to the first token [s]: the start, plus an exponential wait for those who wait."""
        return _with_wait(q, self.started, self.wait_share, self.wait_tail_s)

    def tpot_quantile_s(self, q: float) -> Array:
        """Quantile over requests of the time per output token [s]."""
        return self.tpot.quantile_s(q)

    def e2e_quantile_s(self, q: float) -> Array:
        """Quantile of the time from arrival to the last token [s]."""
        served = Spread(self.e2e_s - self.wait_s, self.e2e_variance_s2, np.zeros_like(self.e2e_s))
        return _with_wait(q, served, self.wait_share, self.wait_tail_s)


def _gamma(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Shape and scale of the gamma distribution with these moments; bounded so that a constant stays finite."""
    mean = np.maximum(mean, 1e-15)
    shape = np.clip(mean**2 / np.maximum(variance, 1e-30), 1e-3, 1e6)
    return np.asarray(shape), np.asarray(mean / shape)


def _with_wait(q: float, base: Spread, share: Array, tail_s: Array) -> Array:
    """Quantile of `base` plus, for a `share`, an exponential time of mean `tail_s`; by bisection on the mixture."""
    from scipy.special import gammainc

    shape, scale = _gamma(base.mean_s - base.least_s, base.variance_s2)
    both = Spread(base.mean_s + tail_s, base.variance_s2 + tail_s**2, base.least_s)
    shape2, scale2 = _gamma(both.mean_s - both.least_s, both.variance_s2)
    low, high = base.quantile_s(q), np.maximum(both.quantile_s(q), base.quantile_s(q))
    for _ in range(40):
        middle = 0.5 * (low + high)
        excess = np.maximum(middle - base.least_s, 0.0)
        below = (1.0 - share) * gammainc(shape, excess / scale) + share * gammainc(shape2, excess / scale2)
        low, high = np.where(below < q, middle, low), np.where(below < q, high, middle)
    return np.asarray(0.5 * (low + high))


def erlang_c(servers: ArrayLike, offered: ArrayLike) -> Array:
    """Probability that a request finds all `servers` busy, for an `offered` load in servers; 1 when overloaded.

    ``B = pdf / cdf`` of a Poisson number of mean a at c, ``C = B / (1 - rho (1 - B))``; c need not be whole.

    >>> erlang_c([1, 2, 10], [0.5, 1.0, 8.0]).round(4).tolist()
    [0.5, 0.3333, 0.4092]
    """
    from scipy.special import gammaincc, gammaln

    c, a = np.broadcast_arrays(np.asarray(servers, float), np.asarray(offered, float))
    rho = a / c
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.exp(c * np.log(a) - a - gammaln(c + 1.0))
        blocked = np.where(a > 0.0, density / gammaincc(c + 1.0, a), 0.0)
        waiting = blocked / (1.0 - rho * (1.0 - blocked))
    return np.asarray(np.where(rho >= 1.0, 1.0, waiting))


def wait_mean_s(
    rate_per_s: ArrayLike,
    service_s: ArrayLike,
    *,
    service_cv: ArrayLike = 1.0,
    arrival_cv: ArrayLike = 1.0,
    servers: ArrayLike = 1.0,
) -> Array:
    """Mean wait [s] in front of `servers` equal servers; inf when they are saturated.

    ``W = (ca^2 + cs^2)/2 C(c, a) s / (c (1 - rho))`` (Allen-Cunneen); exact for M/M/c and M/G/1.

    >>> float(wait_mean_s(0.5, 1.0)), float(wait_mean_s(0.5, 1.0, service_cv=0.0)), float(wait_mean_s(2.0, 1.0))
    (1.0, 0.5, inf)
    """
    rate, service, c = (np.asarray(value, float) for value in (rate_per_s, service_s, servers))
    rho = rate * service / c
    variability = 0.5 * (np.square(np.asarray(arrival_cv, float)) + np.square(np.asarray(service_cv, float)))
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = variability * erlang_c(c, rate * service) * service / (c * (1.0 - rho))
    return np.asarray(np.where(rho < 1.0, wait, np.inf))


def wait_quantile_s(
    q: float,
    rate_per_s: ArrayLike,
    service_s: ArrayLike,
    *,
    service_cv: ArrayLike = 1.0,
    arrival_cv: ArrayLike = 1.0,
    servers: ArrayLike = 1.0,
) -> Array:
    """Quantile of that wait [s]: 0 for those who do not wait, exponential for the others; exact for M/M/c.

    >>> float(wait_quantile_s(0.4, 0.5, 1.0)), round(float(wait_quantile_s(0.99, 0.5, 1.0)), 3)    # 2 ln 50
    (0.0, 7.824)
    """
    rate, service = np.asarray(rate_per_s, float), np.asarray(service_s, float)
    mean = wait_mean_s(rate, service, service_cv=service_cv, arrival_cv=arrival_cv, servers=servers)
    busy = erlang_c(servers, rate * service)
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = mean / busy * np.log(busy / (1.0 - q))
    return np.asarray(np.where(busy > 1.0 - q, wait, 0.0))


@dataclass(frozen=True)
class Traffic:
    """What arrives at one replica. `output_tokens` counts the first token; cv is standard deviation over mean."""

    input_tokens: ArrayLike
    output_tokens: ArrayLike
    input_cv: ArrayLike = 0.0
    output_cv: ArrayLike = 0.0
    arrival_cv: ArrayLike = 1.0


def _last(value: ArrayLike) -> Array:
    return np.asarray(np.asarray(value, float)[..., None])


@dataclass(frozen=True)
class _Steps:
    """The steps of a replica in a state: every array has the axis of states last."""

    empty_s: Array  # a step without prefill
    mean_s: Array  # the mean step (1)
    prompt_s: Array  # what one prompt adds to the steps
    full_s: Array  # a step with all the prompt tokens it can take
    room: Array  # prompt tokens it can take
    load: Array  # of the prefill: 1 when every step is full


def _steps(step_s: StepTime, decodes: Array, rate: Array, tokens: Array, chunk: Array) -> _Steps:
    """Equation (1), where a step that prefills has ``lambda C I / (1 - exp(-lambda C))`` tokens, at most `room`."""
    room = np.maximum(chunk - decodes, np.minimum(chunk, 16.0))
    zero = np.zeros_like(room + rate)
    empty, full = step_s(decodes + zero, zero), step_s(decodes + zero, room + zero)
    mean = empty
    slope = zero
    for _ in range(_ROUNDS):
        prompts = np.maximum(rate * mean, 1e-9)
        inside = np.minimum(tokens * prompts / -np.expm1(-prompts), room)
        slope = (step_s(decodes + zero, inside) - empty) / inside
        mean = np.minimum(empty / np.maximum(1.0 - rate * tokens * slope, 1e-6), full)
    return _Steps(empty, mean, tokens * slope, full, room + zero, rate * tokens * full / room)


def _first_token(
    steps: _Steps, rate: Array, tokens: Array, input_cv: Array, arrival_cv: Array
) -> tuple[Array, Array]:
    """Mean and variance of the time from a free slot to the first token, by state.

    Prompts that fit the step: the rest of the running step, then a whole one with all that came in it (gated).
    Prompts that fill steps: M/G/1 with the share of full steps that a prompt takes as its service.
    """
    square = arrival_cv**2 + input_cv**2
    busy = np.minimum(rate * steps.prompt_s, 0.98)
    second = rate * steps.mean_s * steps.prompt_s**2 * square
    spread = second / (1.0 - busy**2)  # variance of a step
    shape, scale = _gamma(steps.mean_s, spread)
    seen = scale * (shape + 1.0)  # the step that an arrival meets, longer than the mean one
    seen2 = scale**2 * (shape + 1.0) * (shape + 2.0)
    gated = steps.empty_s + steps.prompt_s + (0.5 + busy) * seen
    gated_variance = (
        seen2 / 3.0
        - seen**2 / 4.0
        + busy**2 * (seen2 - seen**2)
        + busy * (seen2 - seen**2)
        + rate * seen * steps.prompt_s**2 * square
        + steps.prompt_s**2 * input_cv**2
    )
    service = tokens / steps.room * steps.full_s
    load = np.minimum(steps.load, 0.98)
    line = rate * service**2 * square / (2.0 * (1.0 - load))
    own = np.maximum(tokens / steps.room, 1.0)
    chunked = 0.5 * seen + line + own * steps.empty_s + steps.prompt_s
    third = (1.0 + input_cv**2) * (1.0 + 2.0 * input_cv**2)
    chunked_variance = (
        seen2 / 3.0
        - seen**2 / 4.0
        + rate * service**3 * third / (3.0 * (1.0 - load))
        + line**2
        + service**2 * input_cv**2
    )
    crowd = tokens * (1.0 + rate * seen) / steps.room
    part = crowd**2 / (1.0 + crowd**2)
    mean = (1.0 - part) * gated + part * chunked
    variance = (1.0 - part) * gated_variance + part * chunked_variance
    return np.asarray(mean), np.asarray(variance + part * (1.0 - part) * (gated - chunked) ** 2)


def saturation_rate_per_s(
    step_s: StepTime, traffic: Traffic, *, slots: ArrayLike, chunk_tokens: ArrayLike
) -> Array:
    """Largest rate [requests/s] that a replica can answer: its slots are full, or its steps are full of prefill.

    Solves ``lambda (first + (O - 1) C) = slots`` with (1), where C grows with lambda, by bisection.

    >>> decode_only = lambda n, p: 0.01 + 0.0 * (n + p)
    >>> saturation_rate_per_s(decode_only, Traffic(1, 101), slots=[10, 20], chunk_tokens=8192).round(1).tolist()
    [9.9, 19.8]
    """
    tokens, outputs = np.asarray(traffic.input_tokens, float), np.asarray(traffic.output_tokens, float)
    slot, chunk = np.asarray(slots, float), np.asarray(chunk_tokens, float)
    shape = np.broadcast_shapes(tokens.shape, outputs.shape, slot.shape, chunk.shape)
    n, zero = np.broadcast_to(slot, shape)[..., None], np.zeros((*shape, 1))
    low = np.zeros((*shape, 1))
    room = np.maximum(chunk[..., None] - n, np.minimum(chunk[..., None], 16.0))
    high = room / (tokens[..., None] * step_s(n, room + zero))
    for _ in range(40):
        middle = 0.5 * (low + high)
        steps = _steps(step_s, n, middle, tokens[..., None], chunk[..., None])
        held = middle * (steps.empty_s + steps.prompt_s + (outputs[..., None] - 1.0) * steps.mean_s)
        low, high = np.where(held < n, middle, low), np.where(held < n, high, middle)
    return np.asarray(low[..., 0])


def _states(
    log_ratio: Callable[[Array], Array], slots: Array, peakedness: Array, centre: Array
) -> tuple[Array, Array]:
    """Nodes n and probabilities of (2) up to the slots, for log_ratio(k) = log(lambda s(k) / k).

    Nodes span ten standard deviations about the largest term; sums over skipped states by the trapezoid.
    """
    width = 10.0 * np.sqrt(np.maximum(centre, 1.0) * np.maximum(peakedness, 1.0)) + 12.0
    least = np.floor(np.maximum(centre - 0.7 * width, 0.0))
    most = np.maximum(np.minimum(np.ceil(centre + width), slots), np.minimum(least + 1.0, slots))
    stride = np.maximum(np.ceil((most - least) / (NODES - 1)), 1.0)
    least = np.maximum(most - stride * (NODES - 1), 0.0)
    nodes = least + stride * np.arange(NODES)
    inside = nodes <= slots + 1e-9
    ratio = log_ratio(np.maximum(nodes, 0.5)) / peakedness
    part = stride * 0.5 * (ratio[..., 1:] + ratio[..., :-1]) + 0.5 * (ratio[..., 1:] - ratio[..., :-1])
    log_p = np.concatenate([np.zeros_like(part[..., :1]), np.cumsum(part, axis=-1)], axis=-1)
    log_p = np.where(inside, log_p, -np.inf)
    p = np.exp(log_p - log_p.max(axis=-1, keepdims=True))
    return nodes, np.asarray(p / p.sum(axis=-1, keepdims=True))


def latency(
    step_s: StepTime, rate_per_s: ArrayLike, traffic: Traffic, *, slots: ArrayLike, chunk_tokens: ArrayLike
) -> Latency:
    """Latency of an open stream of `rate_per_s` requests [1/s] at one replica, in the steady state.

    `slots` is the largest number of sequences at once: the batch limit, or what fits the memory of keys and values.
    `chunk_tokens` is the token budget of a step. Loads, lengths and limits broadcast.

    >>> steps = lambda n, p: 0.010 + 1e-4 * n + 4e-5 * p
    >>> found = latency(steps, [0.1, 5.0], Traffic(500, 200), slots=64, chunk_tokens=2048)
    >>> found.ttft_mean_s.round(3).tolist(), found.tpot_mean_s.round(4).tolist(), found.batch.round(1).tolist()
    ([0.035, 0.04], [0.0101, 0.0126], [0.2, 12.6])
    >>> bool(latency(steps, 60.0, Traffic(500, 200), slots=64, chunk_tokens=2048).stable)
    False
    """
    rate, tokens, outputs, input_cv, output_cv, arrival_cv, slot, chunk = (
        value[..., None]
        for value in np.broadcast_arrays(
            *(
                np.asarray(value, float)
                for value in (
                    rate_per_s,
                    traffic.input_tokens,
                    traffic.output_tokens,
                    traffic.input_cv,
                    traffic.output_cv,
                    traffic.arrival_cv,
                    slots,
                    chunk_tokens,
                )
            )
        )
    )
    slot = np.maximum(np.floor(slot), 1.0)
    after = np.maximum(outputs - 1.0, 0.0)

    def held_s(n: Array) -> tuple[Array, _Steps, Array]:
        """Seconds in a slot, the steps, and how many of n sequences decode."""
        decodes = n
        for _ in range(2):
            steps = _steps(step_s, decodes, rate, tokens, chunk)
            own = steps.prompt_s + steps.empty_s * np.maximum(tokens / steps.room, 1.0)
            decodes = n * after * steps.mean_s / (own + after * steps.mean_s)
        return own + after * steps.mean_s, steps, decodes

    at_limit, steps, _ = held_s(slot)
    busy = rate * at_limit / slot
    stable = (busy < 1.0) & (steps.load < 1.0)
    low, high = np.zeros_like(slot), slot
    for _ in range(20):
        middle = 0.5 * (low + high)
        more = rate * held_s(middle)[0] > middle
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    length_cv2 = (output_cv * after / np.maximum(outputs, 1.0)) ** 2
    peakedness = np.maximum(1.0 + (arrival_cv**2 - 1.0) / (1.0 + length_cv2), 0.05)
    nodes, p = _states(lambda n: np.log(rate * held_s(n)[0] / n), slot, peakedness, 0.5 * (low + high))

    _, steps, decodes = held_s(nodes)
    variability = np.maximum(0.5 * (arrival_cv**2 + length_cv2), 0.05)
    tail = np.minimum(busy, 0.999999) ** (1.0 / variability)
    full = (nodes > slot - 0.5).astype(float)
    stride = nodes[..., 1:2] - nodes[..., :1]
    behind = p * full / stride * tail / (1.0 - tail)  # states in which someone waits
    weight = p + behind
    weight = weight / weight.sum(axis=-1, keepdims=True)
    share = (weight * full).sum(axis=-1)
    wait_tail = (variability * at_limit / (slot * np.maximum(1.0 - busy, 1e-6)))[..., 0]

    mean, variance = _first_token(steps, rate, tokens, input_cv, arrival_cv)
    started = (weight * mean).sum(axis=-1)
    started_variance = (weight * (variance + mean**2)).sum(axis=-1) - started**2

    made = weight * decodes / steps.mean_s
    made = made / np.maximum(made.sum(axis=-1, keepdims=True), 1e-300)
    tpot = (made * steps.mean_s).sum(axis=-1)
    between = (made * steps.mean_s**2).sum(axis=-1) - tpot**2
    chance = rate * steps.mean_s * steps.prompt_s**2 * (1.0 + input_cv**2) / np.maximum(after, 1.0)
    tpot_variance = 0.75 * np.maximum(between, 0.0) + (made * chance).sum(axis=-1)
    least = (made * steps.empty_s).sum(axis=-1) * 0.0

    after_, cv2 = after[..., 0], length_cv2[..., 0]
    waits = share * wait_tail
    e2e = waits + started + after_ * tpot
    e2e_variance = (
        started_variance + after_**2 * tpot_variance + cv2 * outputs[..., 0] ** 2 * (tpot**2 + tpot_variance)
    )
    good = stable[..., 0]

    def known(value: Array) -> Array:
        return np.asarray(np.where(good, value, np.nan))

    return Latency(
        stable=good,
        wait_s=known(waits),
        wait_share=known(share),
        wait_tail_s=known(wait_tail),
        started=Spread(known(started), known(started_variance), known(np.zeros_like(started))),
        tpot=Spread(known(tpot), known(tpot_variance), known(least)),
        e2e_s=known(e2e),
        e2e_variance_s2=known(e2e_variance),
        batch=known((weight * decodes).sum(axis=-1)),
        step_s=known((weight * steps.mean_s).sum(axis=-1)),
    )
