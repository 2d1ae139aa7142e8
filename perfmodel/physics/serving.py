r"""Throughput and mean latency of a replica with continuous batching, at any load: a state that repeats itself.

The state is D, the sequences that decode. All else follows from it. With I new prompt tokens, O output tokens, of which
a step yields `s` a sequence, and T the step of `serving_step`,

.. math:: C(D) = T(D, 0) + \frac{D}{o} I \frac{T(D, m) - T(D, 0)}{m}, \quad o = \frac{O - 1}{s}, \quad
          X(D) = \frac{D}{o\, C(D)}                                                                      (1)

is the mean time of a step and the rate of requests: D/o of them start in a step, and their prompts, m tokens in a step
that has any, lengthen it. X grows with D, so each kind of load has one answer:

- closed loop: ``D + X t_1 = S``, the slots; t_1 is the time in a slot until the first token;
- open loop: ``X(D) = rate`` below the rate at full slots, and nothing is steady at it or beyond;
- offline: closed with all slots, and the time in which the last ones end;
- a static batch: its prompts, then O - 1 steps with all of it.

Slots are the least of the concurrency, the engine's limit and what fits the memory. Little's law relates the rest: in a
closed loop throughput, first token and time per token are two numbers, not three.

References: Little, Operations Research 9 (1961) 383; Yu et al., OSDI 2022 (Orca: continuous batching); Agrawal et al.
2023 (arXiv:2308.16369: prompts in chunks beside decodes).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.machine import Machine
from perfmodel.physics.serving_coefficients import ServingCoefficients
from perfmodel.physics.serving_shape import ServingShape
from perfmodel.physics.serving_step import Deployment, ServingStep, cache_sequences, serving_step

Array = NDArray[np.float64]
Number = float | Array

#: Kinds of load.
CLOSED: Final = 0.0
OPEN: Final = 1.0
OFFLINE: Final = 2.0
STATIC: Final = 3.0

_ROUNDS: Final = 8  # of a secant; a test compares the state with one solved by bisection
_LEAST_ROOM: Final = 16.0  # prompt tokens that a step takes however many sequences decode (assumed)


@dataclass(frozen=True, slots=True)
class Load:
    """What one replica is asked. Arrays that broadcast; `concurrency` and `rate_per_s` are of one replica."""

    kind: Number = CLOSED
    concurrency: Number = np.nan  # closed loop; of a static batch its size
    rate_per_s: Number = np.nan  # open loop
    requests: Number = np.nan  # of the whole run; nan: a steady state
    input_tokens: Number = 1024.0
    output_tokens: Number = 256.0
    input_cv: Number = 0.0  # standard deviation over mean
    output_cv: Number = 0.0
    arrival_cv: Number = 1.0  # of the times between arrivals, in an open loop
    prefix_hit: Number = 0.0  # share of the input whose keys and values are there already


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """One entry a load; nan where there is no steady answer. Times in seconds, rates of one replica."""

    stable: NDArray[np.bool_]
    fits: NDArray[np.bool_]
    requests_per_s: Array
    throughput_out_tokens_per_s: Array
    throughput_total_tokens_per_s: Array
    ttft_s: Array
    tpot_s: Array
    e2e_s: Array
    step_s: Array  # between two tokens of a sequence, prompts of others included
    decodes: Array  # sequences that decode
    slots: Array
    fitting: Array  # sequences that fit the memory
    cache_share: Array  # of them that are taken
    burst_s: Array  # mean wait of a request in a burst that fills the slots
    saturation_requests_per_s: Array  # with all slots full
    is_saturated: NDArray[np.bool_]  # more is asked than slots or rate allow: first tokens wait in a line


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the state is made of, broadcast once."""

    step: ServingStep
    lanes: Array
    after: Array  # steps of a request after its first token
    new_tokens: Array
    chunk: Array
    mixed: Array
    all_mixed: bool
    interference: Array
    rest: Array
    line: Array


@dataclass(frozen=True, slots=True)
class _State:
    """Equation (1) at some D."""

    step_s: Array  # C
    empty_s: Array
    prompt_step_s: Array  # a step that prefills
    per_token_s: Array  # what a prompt token adds
    queue_load: Array  # of the prompts: 1 when there is no room for more
    service_s: Array  # in which the queue of prompts takes one
    first_s: Array  # t_1 without the line and the rest of the running step
    met_s: Array  # the step that runs when a request comes, all of it
    limit: Array  # the largest D whose prompts fit the steps


_STATE = tuple(f.name for f in fields(_State))


def _state(terms: _Terms, decodes: Array) -> _State:
    d = decodes / terms.lanes
    starts = np.maximum(d / terms.after, 1e-9)
    room = np.maximum(terms.chunk - d * terms.step.rows * terms.mixed, _LEAST_ROOM)
    wanted = terms.new_tokens * starts / -np.expm1(-starts)
    tokens = np.minimum(wanted, room)
    empty = terms.step.seconds(d, np.zeros(()))
    extra = terms.step.seconds(d, tokens) - empty
    if not terms.all_mixed:
        alone = terms.step.seconds(np.zeros(()), tokens)
        extra = np.where(terms.mixed > 0.0, extra, alone)
    slope = terms.interference * extra / tokens
    arriving = starts * terms.new_tokens
    carried = np.where(terms.mixed > 0.0, np.minimum(arriving, tokens), arriving)
    chunks = np.maximum(terms.new_tokens / room, 1.0)
    own = np.minimum(terms.new_tokens * (1.0 + starts), room)  # those that come with it are as many as ever
    first = chunks * (empty + extra * own / tokens)
    step_s = empty + slope * carried
    filled = np.minimum(carried / tokens, 1.0)
    # Whoever comes meets long steps more often than short ones: the second moment over the first.
    met = empty + filled * extra * (empty + extra) / np.maximum(step_s, 1e-12)
    full = (empty + extra) * terms.new_tokens / room
    queue_load = np.where(terms.mixed > 0.0, arriving / room, 1.0 - empty / step_s)
    service = np.where(terms.mixed > 0.0, full, slope * terms.new_tokens)
    limit = np.where(terms.mixed > 0.0, terms.lanes * terms.after * room / terms.new_tokens, np.inf)
    return _State(step_s, empty, empty + extra, slope, queue_load, service, first, met, limit)


def _in_slot(terms: _Terms, state: _State, slots: Array) -> Array:
    """Time in a slot until the first token: rest of the running step, line of other prompts, own prompt."""
    others = np.maximum(slots / terms.lanes - 1.0, 0.0)
    busy = np.minimum(state.queue_load, 0.95)
    line = np.minimum(terms.line * 0.5 * busy / (1.0 - busy), 0.5 * others) * state.service_s
    rest = terms.rest * state.met_s * others / (others + 1.0)
    return np.asarray(rest + line + state.first_s)


def _closed(terms: _Terms, slots: Array) -> tuple[Array, _State, Array]:
    """Sequences that decode, the state, and the rate of requests of a replica whose slots are full."""
    decodes = np.asarray(0.8 * slots)
    before, excess_before = decodes, np.zeros_like(decodes)
    for _ in range(_ROUNDS):
        state = _state(terms, decodes)
        decoding = terms.after * state.step_s
        wanted = slots * decoding / (_in_slot(terms, state, slots) + decoding)
        excess = np.minimum(wanted, state.limit) - decodes
        moved = decodes - before
        safe = np.where(np.abs(moved) > 1e-12 * slots, moved, 1.0)
        slope = np.clip((excess - excess_before) / safe, -4.0, -0.25)
        slope = np.where(np.abs(moved) > 1e-12 * slots, slope, -1.0)
        before, excess_before = decodes, excess
        decodes = np.clip(decodes - excess / slope, 1e-6 * slots, slots)
    state = _state(terms, decodes)
    return decodes, state, np.asarray(decodes / (terms.after * state.step_s))


def _open(terms: _Terms, rate: Array, most: Array) -> tuple[Array, _State]:
    """The state in which requests start at `rate`, by false position on a bracket; at most `most` decode."""
    low, high = np.zeros_like(most + rate), most + 0.0 * rate
    at_low = rate * terms.after * _state(terms, low).step_s
    at_high = rate * terms.after * _state(terms, high).step_s - high
    for _ in range(_ROUNDS + 6):
        middle = high - at_high * (high - low) / np.minimum(at_high - at_low, -1e-300)
        middle = np.clip(middle, low, high)
        value = rate * terms.after * _state(terms, middle).step_s - middle
        below = value > 0.0
        low, at_low, at_high = (
            np.where(below, middle, low),
            np.where(below, value, 0.5 * at_low),
            np.where(below, 0.5 * at_high, value),
        )
        high = np.where(below, high, middle)
    return middle, _state(terms, middle)


def replica_step(
    shape: ServingShape, machine: Machine, at: Deployment, load: Load, c: ServingCoefficients
) -> ServingStep:
    """The step of a replica at the mean context of a load: input, and half the output or more where lengths vary.

    Parameters
    ----------
    shape : the model (`serving_shape`).
    machine : the accelerators and links (`physics.machine`).
    at : layout, number formats and limits of the engine.
    load : what is asked of one replica.
    c : coefficients (`serving_coefficients`).

    Returns
    -------
    The step as a function of sequences and prompt tokens.

    >>> from perfmodel.physics.examples import decoder, node
    >>> from perfmodel.physics.serving_coefficients import textbook
    >>> step = replica_step(decoder(), node(), Deployment(), Load(input_tokens=1000.0, output_tokens=200.0), textbook())
    >>> bool(step.seconds(8.0, 500.0) > step.seconds(8.0, 0.0) > step.seconds(1.0, 0.0))
    True
    """
    tokens, outputs = np.asarray(load.input_tokens, float), np.asarray(load.output_tokens, float)
    hit = np.asarray(load.prefix_hit, float)
    context = tokens + 0.5 * outputs * (1.0 + np.asarray(load.output_cv, float) ** 2)
    return serving_step(shape, machine, at, context, 0.5 * (1.0 + hit) * tokens, c)


def serving_answer(
    shape: ServingShape, machine: Machine, at: Deployment, load: Load, c: ServingCoefficients
) -> ServingAnswer:
    """Throughput, time to first token and time per token of one replica under a load; all arguments broadcast.

    One element of the last axis is one measured row or one load; coefficients may carry a leading axis of draws.

    Parameters
    ----------
    shape : the model (`serving_shape`).
    machine : the accelerators and links (`physics.machine`), at the precision of the arithmetic.
    at : layout, number formats and limits of the engine.
    load : what is asked of one replica.
    c : coefficients (`serving_coefficients`).

    Returns
    -------
    Rates and means of one replica.

    >>> from perfmodel.physics.examples import decoder, node
    >>> from perfmodel.physics.serving_coefficients import textbook
    >>> shape = decoder()
    >>> load = Load(concurrency=np.array([1.0, 16.0, 64.0]))
    >>> found = serving_answer(shape, node(), Deployment(tensor=2.0), load, textbook())
    >>> bool((np.diff(found.tpot_s) > 0).all() and (np.diff(found.throughput_out_tokens_per_s) > 0).all())
    True
    """
    if at.prefill_at is not None:
        from perfmodel.physics.serving_pools import pooled_answer  # which asks this function of each pool

        return pooled_answer(shape, machine, at, load, c)
    step = replica_step(shape, machine, at, load, c)
    tokens, outputs = np.asarray(load.input_tokens, float), np.asarray(load.output_tokens, float)
    kind = np.asarray(load.kind, float)
    fitting = cache_sequences(shape, machine, at, tokens, outputs, c)
    asked = np.where((kind == CLOSED) | (kind == STATIC), load.concurrency, np.inf)
    asked = np.where((kind == OFFLINE) & np.isfinite(load.requests), load.requests, asked)
    limit = np.minimum(fitting, at.max_sequences)
    slots = np.asarray(np.maximum(np.minimum(asked, limit), 1.0))
    mixed = np.asarray(at.mixed, float)
    terms = _Terms(
        step=step,
        lanes=np.asarray(at.pipeline, float),
        after=np.maximum(outputs - 1.0, 1e-3) / at.advance,
        new_tokens=np.maximum(tokens * (1.0 - np.asarray(load.prefix_hit, float)), 1.0),
        chunk=np.asarray(at.chunk_tokens, float),
        mixed=mixed,
        all_mixed=bool((mixed > 0.0).all()),
        interference=np.asarray(c.interference),
        rest=np.asarray(c.rest),
        line=np.asarray(c.line),
    )
    decodes, state, most = _closed(terms, slots)
    rate, is_saturated = most, np.asarray(asked > slots * (1.0 + 1e-9))
    in_slot = np.maximum(_in_slot(terms, state, slots), slots / most - terms.after * state.step_s)
    is_open = kind == OPEN
    if is_open.any():
        arriving = np.where(is_open, np.minimum(load.rate_per_s, most), most)
        found, opened = _open(terms, arriving, decodes)
        decodes = np.where(is_open, found, decodes)
        state = _State(*(np.where(is_open, getattr(opened, n), getattr(state, n)) for n in _STATE))
        in_slot = np.where(is_open, _in_slot(terms, state, np.maximum(decodes, 1.0)), in_slot)
        is_saturated = np.asarray(np.where(is_open, np.asarray(load.rate_per_s) >= most, is_saturated))
        rate = arriving
    return _answer(terms, state, decodes, rate, most, in_slot, slots, fitting, is_saturated, at, load, c)


def longest_of(count: ArrayLike, cv: ArrayLike) -> Array:
    r"""The longest of `count` lengths over their mean: a quantile of the gamma distribution, by Wilson and Hilferty.

    .. math:: l = (1 - v^2/9 + z v/3)^3                                                                            (8)

    with v the spread over the mean and z the normal quantile that one of `count` exceeds. Reference: Wilson & Hilferty
    1931, PNAS 17:684; z by Abramowitz & Stegun 1964, eq. 26.2.22.

    Parameters
    ----------
    count : lengths that are drawn.
    cv : standard deviation over mean.

    Returns
    -------
    Plain numbers, at least 1.

    >>> longest_of(1000.0, np.array([0.0, 1.0])).round(1).tolist()  # of an exponential ln 1000 = 6.9
    [1.0, 7.1]
    """
    t = np.sqrt(2.0 * np.log(np.maximum(np.asarray(count, float), 1.0)))
    z = np.maximum(t - (2.30753 + 0.27061 * t) / (1.0 + 0.99229 * t + 0.04481 * t**2), 0.0)
    v = np.asarray(cv, float)
    return np.asarray(np.maximum((1.0 - v**2 / 9.0 + z * v / 3.0) ** 3, 1.0))


def _emptying(terms: _Terms, slots: Array, requests: Array, cv: Array) -> Array:
    """Time that a run needs beyond its work at full slots, because at its end steps carry ever fewer sequences.

    What a sequence adds to a step is the same however few they are; what a step costs by itself is paid until the longest
    sequence has ended, and not for their mean. A single wave starts together and so ends with the longest of all lengths.
    """
    one = np.ones(())
    step = terms.step.seconds(one, np.zeros(()))
    waves = np.minimum(slots / np.maximum(requests, 1.0), 1.0)
    left = waves + (1.0 - waves) * 0.5 * (1.0 + cv**2)  # mean length still to go when the last request starts
    return np.asarray(terms.after * step * np.maximum(longest_of(slots, cv) - left, 0.0))


def _answer(
    terms: _Terms,
    state: _State,
    decodes: Array,
    rate: Array,
    most: Array,
    in_slot: Array,
    slots: Array,
    fitting: Array,
    is_saturated: NDArray[np.bool_],
    at: Deployment,
    load: Load,
    c: ServingCoefficients,
) -> ServingAnswer:
    """The state in the terms of a user: first tokens, tokens and throughput by kind of load."""
    kind = np.asarray(load.kind, float)
    outputs, tokens = np.asarray(load.output_tokens, float), np.asarray(load.input_tokens, float)
    requests = np.asarray(load.requests, float)
    is_run = np.isfinite(requests)
    service = slots / most  # time in a slot with all slots full
    # Closed loop beyond the slots, by Little's law; open loop beyond saturation, half the run's line.
    line = np.where(kind == CLOSED, np.asarray(load.concurrency) / most - service, 0.0)
    over = 0.5 * requests * np.maximum(1.0 / most - 1.0 / np.asarray(load.rate_per_s, float), 0.0)
    line = np.where((kind == OPEN) & is_saturated, over, line)
    line = np.where(kind == OFFLINE, 0.5 * np.maximum(requests - slots, 0.0) / most, line)
    # Who starts together waits for half of the others' prompts, and so decodes that much less beside them.
    together = is_run & ((kind == CLOSED) | (kind == OFFLINE))
    burst = np.where(together, slots / np.maximum(requests, slots), 0.0)
    ahead = 0.5 * np.maximum(slots / terms.lanes - 1.0, 0.0)
    room = np.maximum(terms.chunk - ahead * terms.step.rows * terms.mixed, _LEAST_ROOM)
    full = np.minimum(room, 2.0 * ahead * terms.new_tokens + terms.new_tokens)
    burst_s = c.wave * ahead * terms.step.seconds(ahead * terms.mixed, full) * terms.new_tokens / full
    ttft = c.first_s + in_slot + burst * burst_s + np.maximum(line, 0.0)
    beside = np.minimum(burst * burst_s / terms.after, state.step_s - state.empty_s)
    tpot = (state.step_s - np.where(kind == OFFLINE, beside, 0.0)) / at.advance

    static = kind == STATIC
    if static.any():
        batch = np.maximum(np.asarray(load.concurrency, float), 1.0)
        held = np.minimum(batch, slots)
        lane = held / terms.lanes
        prompts = lane * terms.new_tokens
        chunk = np.minimum(prompts, terms.chunk)
        prefill = terms.step.seconds(np.zeros(()), chunk) * prompts / chunk
        ttft = np.where(static, c.first_s + prefill, ttft)
        tpot = np.where(static, terms.step.seconds(lane, np.zeros(())) / at.advance, tpot)
        decodes = np.where(static, held, decodes)
    after = np.maximum(outputs - 1.0, 0.0)
    e2e = ttft + after * tpot
    closed_rate = np.asarray(load.concurrency) / e2e
    run_s = requests / most + _emptying(terms, slots, requests, np.asarray(load.output_cv, float))
    offline_rate = np.where(is_run, requests / run_s, most)
    done = np.select(
        [kind == OPEN, kind == OFFLINE, static],
        [rate, offline_rate, np.minimum(np.asarray(load.concurrency), slots) / e2e],
        closed_rate,
    )
    fits = np.asarray(fitting >= 1.0)
    held = np.where(kind == OPEN, decodes + rate * in_slot, slots)
    stable = fits & ~(np.asarray(kind == OPEN) & np.asarray(is_saturated))

    def known(value: Array, where: NDArray[np.bool_] = fits) -> Array:
        return np.asarray(np.where(where, value, np.nan))

    return ServingAnswer(
        stable=np.asarray(stable),
        fits=fits,
        requests_per_s=known(done),
        throughput_out_tokens_per_s=known(done * outputs),
        throughput_total_tokens_per_s=known(done * (tokens + outputs)),
        ttft_s=known(ttft),
        tpot_s=known(tpot),
        e2e_s=known(e2e),
        step_s=known(state.step_s),
        decodes=known(decodes),
        slots=known(slots),
        fitting=known(fitting),
        burst_s=known(burst_s),
        cache_share=known(np.minimum(held, fitting) / np.maximum(fitting, 1e-9)),
        saturation_requests_per_s=known(most),
        is_saturated=np.asarray(is_saturated),
    )
