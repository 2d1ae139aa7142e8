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

Shares without a reference (0.75 and 1.6 of what lies between states, 0.8 of an empty step as the least first token, 0.98 as the
busiest prefill) are assumed: chosen against simulation, which a test repeats.

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

from perfmodel.physics.waiting import Mixture, busy_share, crossing, length_nodes, met_share

Array = NDArray[np.float64]
#: Time [s] of a step by decoding sequences and prompt tokens in it; both carry one more, last axis than the loads.
StepTime = Callable[[Array, Array], Array]

#: Nodes of the distribution of the number of sequences: exact up to so many slots, a sum with strides beyond.
NODES: Final = 64
_ROUNDS: Final = 4
#: How much the randomness of prefills adds to that of the number of sequences. Assumed: chosen against simulation.
_PREFILL_NOISE: Final = 1.5


@dataclass(frozen=True)
class Latency:
    """Latency of the requests of one replica, one entry a load; nan where the replica is saturated."""

    stable: NDArray[np.bool_]
    wait_s: Array  # mean time in front of full slots
    wait_share: Array  # of the requests that find the slots full
    ttft: Mixture
    tpot: Mixture  # time per output token after the first, by request
    e2e: Mixture
    batch: Array  # mean number of sequences that decode
    step_s: Array  # mean time of a step

    @property
    def ttft_mean_s(self) -> Array:
        """Mean time to the first token [s]."""
        return self.ttft.overall_mean_s

    @property
    def tpot_mean_s(self) -> Array:
        """Mean time per output token after the first [s]."""
        return self.tpot.overall_mean_s

    @property
    def e2e_mean_s(self) -> Array:
        """Mean time from arrival to the last token [s]."""
        return self.e2e.overall_mean_s

    def ttft_quantile_s(self, q: float) -> Array:
        """Quantile of the time to the first token [s]."""
        return self.ttft.quantile_s(q)

    def tpot_quantile_s(self, q: float) -> Array:
        """Quantile over requests of the time per output token [s]."""
        return self.tpot.quantile_s(q)

    def e2e_quantile_s(self, q: float) -> Array:
        """Quantile of the time from arrival to the last token [s]."""
        return self.e2e.quantile_s(q)


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
    filled: Array  # share of the steps that prefill
    filled_s: Array  # mean of those
    filled_square_s2: Array  # mean of their squares
    own_s: Array  # the step in which a prompt is prefilled
    others: Array  # prompts beside it
    prompt_s: Array  # what one prompt adds to the steps
    full_s: Array  # a step with all the prompt tokens it can take
    room: Array  # prompt tokens it can take
    load: Array  # of the prefill: 1 when every step is full


#: Three nodes of a lognormal variable: exact for the mean and nearly so for the next moments.
_NODES3: Final = np.array([-np.sqrt(3.0), 0.0, np.sqrt(3.0)])
_WEIGHTS3: Final = np.array([1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0])


def _steps(step_s: StepTime, decodes: Array, rate: Array, mix: _Mix) -> _Steps:
    """Equation (1), with the number of prompts in a step as random as their arrivals and lengths make it."""
    room = np.maximum(mix.chunk - decodes, np.minimum(mix.chunk, 16.0))
    zero = np.zeros_like(room + rate)
    room, n, tokens = room + zero, decodes + zero, mix.tokens
    empty, full = step_s(n, zero), step_s(n, room)
    beside = n[..., None]
    mean = empty
    for _ in range(_ROUNDS):
        a = np.maximum(rate * mean, 1e-9)
        busy = busy_share(a, mix.arrival_cv)
        prompts = a / busy
        bunch = prompts * -np.expm1(-a) / a  # how much larger a batch is than with Poisson arrivals
        dispersion = np.where(bunch > 1.0, 2.0 * bunch - 1.0, 1.0 - (1.0 - bunch) * 2.0)
        dispersion = np.clip(dispersion, 0.0, np.maximum(mix.arrival_cv**2, 1.0))
        square = (a * dispersion + a**2) / busy - prompts**2 + prompts * mix.input_cv**2
        sigma = np.sqrt(np.log1p(np.maximum(square, 0.0) / prompts**2))[..., None]
        size = np.exp(sigma * _NODES3)
        size = size * (tokens * prompts)[..., None] / (size @ _WEIGHTS3)[..., None]
        inside = np.minimum(size, room[..., None])
        times = step_s(beside, inside)
        share = inside @ _WEIGHTS3
        extra = times - empty[..., None]
        slope = (extra @ _WEIGHTS3) / share
        mean = np.minimum(empty / np.maximum(1.0 - rate * tokens * slope, 1e-6), full)
    filled = np.minimum(rate * tokens * mean / share, 1.0)  # share of steps that prefill
    others = np.maximum(dispersion - 1.0 + a, 0.0)  # prompts beside its own in the step of a prompt
    sigma = np.sqrt(np.log1p((others + (1.0 + others) * mix.input_cv**2) / (1.0 + others) ** 2))[..., None]
    size = np.exp(sigma * _NODES3)
    size = size * (tokens * (1.0 + others))[..., None] / (size @ _WEIGHTS3)[..., None]
    own = step_s(beside, np.minimum(size, room[..., None])) @ _WEIGHTS3
    first, second = times @ _WEIGHTS3, (times**2) @ _WEIGHTS3
    load = rate * tokens * full / room
    return _Steps(empty, mean, filled, first, second, own, others, tokens * slope, full, room, load)


@dataclass(frozen=True)
class _Mix:
    """The traffic and limits with the axis of states."""

    tokens: Array
    after: Array  # output tokens after the first
    input_cv: Array
    length_cv2: Array
    arrival_cv: Array
    chunk: Array


@dataclass(frozen=True)
class _First:
    """The time from a free slot to the first token, without the variance of the prompt's own length.

    On the first axis: for those who come to an empty replica, whose step begins at once; while a step without prefill
    runs; and while others are being prefilled. The last axis is the state.
    """

    share: Array
    mean_s: Array
    variance_s2: Array
    prompt_s: Array  # what the mean prompt itself takes; by state alone
    line: Array  # 0: all that waits fits the next step; 1: prompts wait for one another; by state alone
    rest_s: Array  # length of the step without prefill that is met; prefills vary too much to have an end

    busy: Array  # chance to meet a prefill, whatever the state
    before_s: Array  # mean with that chance in every state


def _first_token(steps: _Steps, rate: Array, mix: _Mix, idle: Array, weight: Array) -> _First:
    """Prompts that fit the step: the rest of the running step, then a whole one with all that came in it (gated).

    Prompts that fill steps: M/G/1 with the share of full steps that a prompt takes as its service; only those who meet
    a busy server wait.
    """
    cv2 = mix.input_cv**2
    busy = np.minimum(rate * steps.prompt_s, 0.98)
    # Long steps follow long steps: what comes in one is prefilled in the next.
    second = steps.filled_s**2 + (steps.filled_square_s2 - steps.filled_s**2) / (1.0 - busy**2)
    nothing = 0.0 * second
    met = np.stack(np.broadcast_arrays(nothing, steps.empty_s, second / steps.filled_s))
    working = np.maximum(
        1.0 - (weight * idle).sum(axis=-1, keepdims=True), 1e-9
    )  # all prefills are in those states

    def of(prefilling: Array) -> Array:
        part = np.clip(prefilling / working, 0.0, 1.0) * (1.0 - idle)
        return np.stack(np.broadcast_arrays(idle, 1.0 - idle - part, part))

    prefilling = np.clip(steps.filled * steps.filled_s / steps.mean_s, 0.0, 1.0)
    share = of(prefilling)
    gated = steps.own_s + 0.5 * met + busy * (met - steps.mean_s) * (met > 0.0)
    # The steps that are met vary as well, and with them how many come beside: of a gamma distribution, length-biased.
    cv2_filled = (second - steps.filled_s**2) / steps.filled_s**2
    varied = np.stack(np.broadcast_arrays(nothing, nothing, second * cv2_filled))
    gated_variance = (
        varied * ((0.5 + busy) ** 2 + 1.0 / 12.0)
        + met**2 / 12.0
        + rate * met * steps.prompt_s**2 * (mix.arrival_cv**2 + cv2)
    )

    service = mix.tokens / steps.room * steps.full_s
    root = np.clip(met_share(np.minimum(steps.load, 0.98), mix.arrival_cv), 1e-9, 0.9999)
    variability = (mix.arrival_cv**2 + cv2) / (mix.arrival_cv**2 + 1.0)
    wait = variability * service / (1.0 - root)  # of those who meet a busy server
    behind = np.stack(np.broadcast_arrays(nothing, nothing, wait))
    running = steps.empty_s * (met > 0.0)
    chunked = 0.5 * running + behind + _chunks(mix, steps.room) * steps.empty_s + steps.prompt_s
    chunked_variance = running**2 / 12.0 + behind**2

    crowd = mix.tokens * (1.0 + cv2 + rate * (share * met).sum(axis=0)) / steps.room
    part = crowd**2 / (1.0 + crowd**2)
    mean, prefilling = (1.0 - part) * gated + part * chunked, (1.0 - part) * prefilling + part * root
    return _First(
        np.asarray((1.0 - part) * share + part * of(root)),
        np.asarray(mean),
        np.asarray(
            (1.0 - part) * gated_variance
            + part * chunked_variance
            + part * (1.0 - part) * (gated - chunked) ** 2
        ),
        np.asarray((1.0 - part) * steps.prompt_s + part * service),
        np.asarray(part),
        np.stack(np.broadcast_arrays(nothing, met[1], nothing)),
        np.asarray(prefilling),
        np.asarray((1.0 - prefilling) * mean[1] + prefilling * mean[2]),
    )


def _chunks(mix: _Mix, room: Array) -> Array:
    """Mean number of steps in which a prompt is prefilled: the whole number above, smoothed where lengths vary."""
    x = mix.tokens / room
    random = 1.0 / -np.expm1(-1.0 / x)  # exact for exponential lengths
    vary = np.minimum(2.0 * mix.input_cv, 1.0)
    return np.asarray(vary * random + (1.0 - vary) * np.ceil(x - 1e-9))


def saturation_rate_per_s(
    step_s: StepTime, traffic: Traffic, *, slots: ArrayLike, chunk_tokens: ArrayLike
) -> Array:
    """Largest rate [requests/s] that a replica can answer: its slots are full, or its steps are full of prefill.

    Solves ``lambda (first + (O - 1) C) = slots`` with (1), where C grows with lambda.

    Parameters
    ----------
    step_s : time of a step [s] by decoding sequences and prompt tokens.
    traffic : what arrives.
    slots : the largest number of sequences at once.
    chunk_tokens : token budget of a step.

    Returns
    -------
    Requests a second.

    >>> decode_only = lambda n, p: 0.01 + 0.0 * (n + p)
    >>> saturation_rate_per_s(decode_only, Traffic(1, 101), slots=[10, 20], chunk_tokens=8192).round(1).tolist()
    [9.9, 19.5]
    """
    rate, mix, n = _arrays(0.0, traffic, slots, chunk_tokens)
    return np.asarray(_saturation(step_s, n + 0.0 * rate, mix)[..., 0])


def _saturation(step_s: StepTime, n: Array, mix: _Mix) -> Array:
    low = np.zeros_like(n)
    room = np.maximum(mix.chunk - n, np.minimum(mix.chunk, 16.0))
    high = room / (mix.tokens * step_s(n, room + low))
    low = crossing(lambda rate: rate * _held(step_s, n, rate, mix)[0] - n, low, high, 3, 8)
    # Where prompts run out of steps before sequences run out of slots, every step is full: what they leave decodes.
    decodes = mix.chunk * mix.after / (mix.tokens + mix.after)
    left = np.maximum(mix.chunk - decodes, np.minimum(mix.chunk, 16.0))
    full = left / (mix.tokens * step_s(decodes + 0.0 * low, left + 0.0 * low))
    return np.asarray(np.where(decodes < n, full, low))


def _arrays(
    rate_per_s: ArrayLike, traffic: Traffic, slots: ArrayLike, chunk_tokens: ArrayLike
) -> tuple[Array, _Mix, Array]:
    """Rate, traffic and slots, broadcast and with one more axis."""
    given = (
        rate_per_s,
        traffic.input_tokens,
        traffic.output_tokens,
        traffic.input_cv,
        traffic.output_cv,
        traffic.arrival_cv,
        slots,
        chunk_tokens,
    )
    rate, tokens, outputs, input_cv, output_cv, arrival_cv, slot, chunk = (
        value[..., None] for value in np.broadcast_arrays(*(np.asarray(value, float) for value in given))
    )
    after = np.maximum(outputs - 1.0, 0.0)
    length_cv2 = (output_cv * after / np.maximum(outputs, 1.0)) ** 2
    return rate, _Mix(tokens, after, input_cv, length_cv2, arrival_cv, chunk), np.maximum(np.floor(slot), 1.0)


def _held(step_s: StepTime, n: Array, rate: Array, mix: _Mix) -> tuple[Array, _Steps, Array]:
    """Seconds in a slot when n are taken, the steps, and how many of the n decode."""
    decodes = n
    for _ in range(2):
        steps = _steps(step_s, decodes, rate, mix)
        own = steps.prompt_s + steps.empty_s * _chunks(mix, steps.room)
        decodes = n * mix.after * steps.mean_s / (own + mix.after * steps.mean_s)
    return own + mix.after * steps.mean_s, steps, decodes


def _nodes(slots: Array, peakedness: Array, centre: Array) -> tuple[Array, Array]:
    """Numbers of sequences n that span ten standard deviations about the likeliest, and the stride between them.

    The last is the number of slots where they reach so far; those below zero are no states.
    """
    width = 10.0 * np.sqrt(np.maximum(centre, 1.0) * np.maximum(peakedness, 1.0)) + 12.0
    least = np.floor(np.maximum(centre - 0.7 * width, 0.0))
    most = np.maximum(np.minimum(np.ceil(centre + width), slots), np.minimum(least + 1.0, slots))
    stride = np.maximum(np.ceil((most - least) / (NODES - 1)), 1.0)
    return np.asarray(most - stride * np.arange(NODES)[::-1]), stride


def _probabilities(nodes: Array, stride: Array, slots: Array, ratio: Array) -> Array:
    """Equation (2) at the nodes, for ratio = log(lambda s(n) / n) / z; sums over skipped states by the trapezoid."""
    part = stride * 0.5 * (ratio[..., 1:] + ratio[..., :-1]) + 0.5 * (ratio[..., 1:] - ratio[..., :-1])
    log_p = np.concatenate([np.zeros_like(part[..., :1]), np.cumsum(part, axis=-1)], axis=-1)
    log_p = np.where((nodes > -0.5) & (nodes < slots + 0.5), log_p, -np.inf)
    p = np.exp(log_p - log_p.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def _per_token(
    steps: _Steps,
    rate: Array,
    mix: _Mix,
    weight: Array,
    decodes: Array,
    first: _First,
    lengths: tuple[Array, Array],
    full: Array,
) -> Mixture:
    """Time per token of requests by output length (last axis), from the states that tokens see.

    The tokens of a request take the busy period that its own steps and the prompts that wait at its first token
    begin: ``((O - 1) T0 + B) / (1 - rho)``, B the prefill of what arrived while its own prompt was prefilled: nothing, or
    an exponential amount that cannot make a step longer than a full one.
    """
    made = weight * decodes / steps.mean_s
    made = made / np.maximum(made.sum(axis=-1, keepdims=True), 1e-300)
    busy = np.minimum(rate * steps.prompt_s, 0.98)
    behind = (1.0 - first.line) * steps.own_s + first.line * first.before_s
    burst = (1.0 - full) * np.maximum(mix.arrival_cv**2 - 1.0, 0.0)
    late = first.line + (1.0 - first.line) * np.exp(-rate * behind)
    left = (made * (rate * behind + 0.5 * burst * late) * steps.prompt_s / (1.0 - busy)).sum(axis=-1)
    pace, most = (made * steps.mean_s).sum(axis=-1), (made * steps.full_s).sum(axis=-1)
    between = np.maximum((made * steps.mean_s**2).sum(axis=-1) - pace**2, 0.0)
    # While the slots are full a prompt comes as often as a sequence ends, which is as regular as their lengths are.
    irregular = (1.0 - full) * mix.arrival_cv**2 + full * mix.length_cv2 + mix.input_cv**2
    each = rate * steps.prompt_s**2 * irregular / (1.0 - busy * (1.0 - full)) ** 2
    during, before = (made * each * steps.mean_s).sum(axis=-1), (made * each * behind).sum(axis=-1)
    empty = (made * steps.empty_s).sum(axis=-1)

    after = np.maximum(mix.after * lengths[0], 1.0)
    room = np.maximum(most - pace, 1e-12)[..., None]
    some = (1.0 - first.line) * -np.expm1(-rate * steps.own_s) + first.line * first.busy
    chance = (made * some).sum(axis=-1)[..., None]  # that anything was left
    share = left[..., None] / after / room
    extra = room * share * -np.expm1(-chance / np.maximum(share, 1e-9))
    variance = 0.75 * between[..., None] + during[..., None] / after + before[..., None] / after**2
    mean = pace[..., None] + extra
    variance = np.minimum(
        variance,
        (most[..., None] - empty[..., None]) * (mean - empty[..., None])
        + 1e-12 * mean**2
        + 0.75 * between[..., None],
    )
    least = np.minimum(np.maximum(empty[..., None] - 1.6 * np.sqrt(between)[..., None], 0.0), 0.999 * mean)
    return Mixture(np.broadcast_to(lengths[1], mean.shape), mean, variance, least, most)


def latency(
    step_s: StepTime, rate_per_s: ArrayLike, traffic: Traffic, *, slots: ArrayLike, chunk_tokens: ArrayLike
) -> Latency:
    """Latency of an open stream of `rate_per_s` requests [1/s] at one replica, in the steady state.

    `slots` is the largest number of sequences at once: the batch limit, or what fits the memory of keys and values.
    `chunk_tokens` is the token budget of a step. Loads, lengths and limits broadcast.

    Parameters
    ----------
    step_s : time of a step [s] by decoding sequences and prompt tokens.
    rate_per_s : requests a second.
    traffic : what arrives.
    slots : the largest number of sequences at once.
    chunk_tokens : token budget of a step.

    Returns
    -------
    Means and mixtures in seconds; nan where the replica is saturated.

    >>> steps = lambda n, p: 0.010 + 1e-4 * n + 4e-5 * p
    >>> found = latency(steps, [0.1, 5.0], Traffic(500, 200), slots=64, chunk_tokens=2048)
    >>> found.ttft_mean_s.round(3).tolist(), found.tpot_mean_s.round(4).tolist(), found.batch.round(1).tolist()
    ([0.031, 0.04], [0.0101, 0.0126], [0.2, 12.6])
    >>> bool(latency(steps, 60.0, Traffic(500, 200), slots=64, chunk_tokens=2048).stable)
    False
    """
    rate, mix, slot = _arrays(rate_per_s, traffic, slots, chunk_tokens)

    def held_s(n: Array) -> tuple[Array, _Steps, Array]:
        return _held(step_s, n, rate, mix)

    # With requests in front of full slots prompts come as fast as slots free up, not as fast as requests arrive.
    limit = _saturation(step_s, slot, mix)
    busy = rate / limit
    stable = busy < 1.0
    low, high = np.zeros_like(slot), slot
    likeliest = crossing(lambda n: n - rate * held_s(n)[0], low, high, 3, 6)
    cv2 = mix.length_cv2
    peakedness = np.maximum(1.0 + (mix.arrival_cv**2 - 1.0) / (1.0 + cv2), 0.05)
    # Prefills slow every sequence at once: their randomness adds to that of the arrivals.
    held, steps, _ = held_s(likeliest)
    prefill = np.minimum(rate * steps.prompt_s, 0.98)
    noise = prefill**2 * (mix.arrival_cv**2 + mix.input_cv**2) / (1.0 - prefill) ** 2
    peakedness = peakedness + _PREFILL_NOISE * noise
    nodes, stride = _nodes(slot, peakedness, likeliest)
    held, steps, decodes = held_s(np.maximum(nodes, 0.0))
    p = _probabilities(nodes, stride, slot, np.log(rate * held / np.maximum(nodes, 0.5)) / peakedness)

    variability = np.maximum(0.5 * (mix.arrival_cv**2 + cv2), 0.05)
    tail = np.minimum(busy, 0.999999) ** (1.0 / np.maximum(variability, 1.0))
    full = (nodes > slot - 0.5).astype(float)
    behind = p * full / stride * tail / (1.0 - tail)  # states in which someone waits
    weight = p + behind
    weight = weight / weight.sum(axis=-1, keepdims=True)
    share = (weight * full).sum(axis=-1)
    wait_tail = (variability / (limit * np.maximum(1.0 - busy, 1e-6)))[..., 0]

    idle = (nodes < 0.5).astype(float)
    first = _first_token(steps, rate, mix, idle, weight)
    seen = weight * first.share
    chance = seen.sum(axis=-1)  # by branch; the states within one are mixed by their moments
    mean = (seen * first.mean_s).sum(axis=-1) / np.maximum(chance, 1e-12)
    square = (seen * (first.variance_s2 + first.mean_s**2)).sum(axis=-1) / np.maximum(chance, 1e-12)
    branches = [value[..., None] for value in (chance, mean, np.maximum(square - mean**2, 0.0))]
    # The rest of a running step is uniform, with an end that a gamma tail has not: three parts of it stand apart.
    rest = ((seen * first.rest_s).sum(axis=-1) / np.maximum(chance, 1e-12))[..., None]
    even = np.maximum(branches[2] - 2.0 / 27.0 * rest**2, 1e-3 * rest**2)
    branches = [
        np.concatenate([branches[0] / 3.0] * 3),
        np.concatenate([branches[1] + place * rest for place in (-1.0 / 3.0, 0.0, 1.0 / 3.0)]),
        np.concatenate([even] * 3),
    ]
    started = (branches[0] * branches[1]).sum(axis=0)
    started_variance = (branches[0] * (branches[2] + branches[1] ** 2)).sum(axis=0) - started**2
    own = (weight * first.prompt_s).sum(axis=-1)[..., None]
    least = 0.8 * (weight * steps.empty_s).sum(axis=-1)[..., None]
    outputs = length_nodes(np.sqrt(cv2[..., 0]))
    tpot = _per_token(steps, rate, mix, weight, decodes, first, outputs, share[..., None])
    prompts, prompt_shares = length_nodes(mix.input_cv[..., 0])
    line = (weight * first.line).sum(axis=-1)[..., None]
    busiest = (weight * decodes).sum(axis=-1)[..., None]
    beside = (weight * steps.others).sum(axis=-1)[..., None]
    room = np.maximum(mix.chunk - busiest, 1.0)
    alone = step_s(busiest + 0.0 * prompts, np.minimum(mix.tokens * (prompts + beside), room))
    own_mean = (alone * prompt_shares).sum(axis=-1)[..., None]
    longer = (1.0 - line) * (alone - own_mean) + line * own * (prompts - 1.0)
    ttft_mean = np.concatenate([np.maximum(m + longer, 1.01 * least) for m in branches[1]], axis=-1)
    ttft_variance = np.concatenate([v + 0.0 * longer for v in branches[2]], axis=-1)
    ttft_shares = np.concatenate([c * prompt_shares + 0.0 * longer for c in branches[0]], axis=-1)
    after = mix.after * outputs[0]
    e2e_mean = started + after * tpot.mean_s
    e2e_variance = started_variance + after**2 * tpot.variance_s2 + (own * mix.input_cv) ** 2
    good = stable[..., 0]

    def known(value: Array) -> Array:
        return np.asarray(np.where(good.reshape(good.shape + (1,) * (value.ndim - good.ndim)), value, np.nan))

    def waited(shares: Array, mean: Array, variance: Array, least: Array) -> Mixture:
        """Beside those who start at once, those who wait an exponential time for a slot."""
        tail, chance = wait_tail[..., None], share[..., None]
        variance, least = variance + 0.0 * mean, least + 0.0 * mean
        return Mixture(
            np.concatenate([shares * (1.0 - chance), shares * chance], axis=-1),
            known(np.concatenate([mean, mean + tail], axis=-1)),
            np.concatenate([variance, variance + tail**2], axis=-1),
            np.concatenate([least, least], axis=-1),
        )

    return Latency(
        stable=good,
        wait_s=known(share * wait_tail),
        wait_share=known(share),
        ttft=waited(ttft_shares, ttft_mean, ttft_variance, least),
        tpot=Mixture(tpot.weight, known(tpot.mean_s), tpot.variance_s2, tpot.least_s, tpot.most_s),
        e2e=waited(np.broadcast_to(outputs[1], e2e_mean.shape), e2e_mean, e2e_variance, 0.0 * least),
        batch=known((weight * decodes).sum(axis=-1)),
        step_s=known((weight * steps.mean_s).sum(axis=-1)),
    )
