r"""Prefill and decode on replicas of their own: two queues in line, with keys and values that cross a link between them.

A replica that prefills makes no token after the prompt's, and one that decodes finds the keys and values of every prompt:
both are replicas of `serving` under another load, so their steps, memory and queues are those of any other. Of a group with
n_p replicas that prefill and n_d that decode, at a rate X,

.. math:: t_{first} = t_p(X / n_p) + t_{kv}(X) + t_d(X / n_d), \quad
          X_{max} = \min\Big(n_p X_p,\ n_d X_d,\ \frac{1}{s} \min(n_p, n_d)\Big)                               (1)

with t_p the time to prefill, t_d the wait for a place and a step where the request decodes, and s the time in which the
cache of one prompt crosses:

.. math:: s = \frac{b_{kv} I}{\min(r_p, r_d)\, B_{link}}, \qquad t_{kv} = s + \frac{\rho}{2 (1 - \rho)} s          (2)

since r_p ranks hold a part of it each, r_d ranks take one, and caches come one after another (M/D/1, rho = X s over the
replicas of the smaller pool). Decoding begins when all of the cache is there, and the replica that decodes makes every
token that the user sees. In a closed loop of C requests X solves ``X (t_first + (O - 1) t_token) = C``.

References: Zhong et al., OSDI 2024 (DistServe); Patel et al., ISCA 2024 (Splitwise); Kleinrock, Queueing Systems 1 (1975),
5.7 (M/D/1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.batch_queue import BatchWait, batch_wait
from perfmodel.physics.machine import Machine
from perfmodel.physics.serving import (
    CLOSED,
    OFFLINE,
    OPEN,
    Load,
    ServingAnswer,
    longest_of,
    replica_step,
    serving_answer,
)
from perfmodel.physics.serving_coefficients import ServingCoefficients
from perfmodel.physics.serving_shape import ServingShape
from perfmodel.physics.serving_step import Deployment, cache_sequences, mean_context

Array = NDArray[np.float64]

_ROUNDS: Final = 14
_FULL: Final = 0.999  # of a link's rate, beyond which a cache waits for as long as the load lasts


@dataclass(frozen=True, slots=True)
class Transfer:
    """The cache of a mean prompt on its way from one pool to the other."""

    bytes: Array  # of one prompt
    seconds: Array  # without waiting
    most_per_s: Array  # requests whose caches cross in a second
    is_inside: NDArray[np.bool_]  # whether both pools share scale-up links

    def wait_s(self, rate_per_s: ArrayLike) -> Array:
        """Mean wait behind the caches of others (2)."""
        busy = np.minimum(np.asarray(rate_per_s, float) / self.most_per_s, _FULL)
        return np.asarray(0.5 * busy / (1.0 - busy) * self.seconds)


def pool_loads(load: Load) -> tuple[Load, Load]:
    """What a replica of each pool is asked, an open stream: prompts without tokens, and tokens without prompts."""
    steady = replace(load, kind=OPEN, requests=np.nan, concurrency=np.nan)
    return (
        replace(steady, output_tokens=1.0, output_cv=0.0),
        replace(steady, prefix_hit=1.0, input_cv=0.0),
    )


def pool_deployments(at: Deployment) -> tuple[Deployment, Deployment]:
    """A replica that prefills and one that decodes."""
    if at.prefill_at is None:
        raise ValueError("the deployment has one pool")
    return at.prefill_at, replace(at, prefill_at=None, mixed=1.0)


def pool_coefficients(c: ServingCoefficients) -> tuple[ServingCoefficients, ServingCoefficients]:
    """Of each pool: who decodes launches what it always does, and the way to the engine is counted once."""
    return c, replace(c, eager=np.ones(()), first_s=np.zeros(()))


def transfer(
    shape: ServingShape, machine: Machine, at: Deployment, load: Load, c: ServingCoefficients
) -> Transfer:
    """The cache of a mean prompt on the links between the pools: scale-up links where both lie in one domain.

    >>> from perfmodel.physics.examples import decoder, node
    >>> from perfmodel.physics.serving_coefficients import ideal
    >>> at = Deployment(tensor=4.0, prefill_at=Deployment(tensor=4.0))
    >>> found = transfer(decoder(), node(), at, Load(input_tokens=1000.0), ideal())
    >>> float(found.bytes) == 1000 * 65536 * 2.0, bool(found.is_inside)
    (True, True)
    """
    prefill, decode = pool_deployments(at)
    seen, in_window = mean_context(load.input_tokens, shape.window)
    elements = shape.cache_elements * seen + shape.window_elements * in_window
    size = elements * decode.cache_bytes + shape.state_bytes

    def parts(one: Deployment) -> Array:
        cut = np.minimum(np.asarray(one.tensor, float), shape.cache_heads)
        return np.asarray(cut * np.asarray(one.pipeline, float))

    is_inside = np.asarray(at.accelerators <= machine.domain)
    rate = np.where(is_inside, machine.up_bytes_per_s, machine.out_bytes_per_s) * c.exchange_rate
    latency = c.exchange_s + np.where(is_inside, machine.up_latency_s, machine.out_latency_s)
    seconds = size / (np.minimum(parts(prefill), parts(decode)) * rate) + latency
    # Groups that hold sequences of their own have links of their own.
    senders = np.asarray(at.prefill_replicas, float) * np.asarray(prefill.attention_replicas, float)
    takers = np.asarray(at.decode_replicas, float) * np.asarray(decode.attention_replicas, float)
    return Transfer(
        np.asarray(size), np.asarray(seconds), np.asarray(np.minimum(senders, takers) / seconds), is_inside
    )


def prefill_wait(
    shape: ServingShape, machine: Machine, at: Deployment, prompts: Load, c: ServingCoefficients
) -> BatchWait:
    """From arrival to the end of prefill at one replica that does nothing else: all prompts that wait share a step."""
    step = replica_step(shape, machine, at, prompts, c)
    new = np.maximum(np.asarray(prompts.input_tokens, float) * (1.0 - np.asarray(prompts.prefix_hit)), 1.0)
    empty, zero = step.seconds(0.0, 0.0), np.zeros(())
    lanes = np.asarray(at.pipeline, float)
    return batch_wait(
        lambda tokens: empty + c.interference * (step.seconds(zero, tokens) - empty),
        np.asarray(prompts.rate_per_s, float) / lanes + 0.0 * (empty + c.interference),
        work=new,
        most_work=at.chunk_tokens,
        work_cv=prompts.input_cv,
        arrival_cv=prompts.arrival_cv,
    )


def pooled_answer(
    shape: ServingShape, machine: Machine, at: Deployment, load: Load, c: ServingCoefficients
) -> ServingAnswer:
    """Throughput and means of a group of two pools; batch, slots and cache are those of a replica that decodes."""
    prefill_at, decode_at = pool_deployments(at)
    prompts, tokens = pool_loads(load)
    c_prefill, c_decode = pool_coefficients(c)
    crossing = transfer(shape, machine, at, load, c)
    senders, takers = np.asarray(at.prefill_replicas, float), np.asarray(at.decode_replicas, float)
    outputs, inputs = np.asarray(load.output_tokens, float), np.asarray(load.input_tokens, float)
    after = np.maximum(outputs - 1.0, 0.0)

    kind = np.asarray(load.kind, float)
    requests, flight = np.asarray(load.requests, float), np.asarray(load.concurrency, float)
    # Of C requests in a loop one meets the C - 1 others.
    others = np.where(kind == CLOSED, 1.0 - 1.0 / np.maximum(flight, 1.0), 1.0)

    def asked(rate: Array) -> tuple[BatchWait, ServingAnswer]:
        first = replace(prompts, rate_per_s=rate / senders * others)
        then = replace(tokens, rate_per_s=rate / takers)
        return (
            prefill_wait(shape, machine, prefill_at, first, c_prefill),
            serving_answer(shape, machine, decode_at, then, c_decode),
        )

    def times(first: BatchWait, then: ServingAnswer, rate: Array) -> tuple[Array, Array]:
        start = c.first_s + first.mean_s + crossing.seconds + crossing.wait_s(rate * others) + then.ttft_s
        return start, start + after * then.tpot_s

    idle = asked(np.full(np.broadcast_shapes(senders.shape, takers.shape), 1e-9))
    room = cache_sequences(shape, machine, prefill_at, inputs, 1.0, c)
    fits = np.asarray(idle[1].fits & (room >= 1.0))
    most_prefill = np.asarray(prefill_at.pipeline, float) * idle[0].saturation_per_s
    most = np.minimum(senders * most_prefill, takers * idle[1].saturation_requests_per_s)
    most = np.minimum(most, crossing.most_per_s)
    most = np.where(fits, most, np.nan)
    rate = np.where(kind == OPEN, np.minimum(load.rate_per_s, most), most)
    is_saturated = np.asarray((kind == OPEN) & (np.asarray(load.rate_per_s, float) >= most))
    if (kind == CLOSED).any():
        low, high = np.zeros(np.broadcast_shapes(most.shape, flight.shape)), _FULL * most + 0.0 * flight
        at_high = high * times(*asked(high), high)[1] - flight
        is_full = np.asarray((kind == CLOSED) & (at_high < 0.0))
        at_low = -flight + 0.0 * high
        for _ in range(_ROUNDS):  # false position on a bracket: more requests a second are more in flight
            middle = high - at_high * (high - low) / np.where(at_high > at_low, at_high - at_low, 1.0)
            middle = np.clip(middle, low, high)
            value = middle * times(*asked(middle), middle)[1] - flight
            below = value < 0.0
            low, at_low, at_high = (
                np.where(below, middle, low),
                np.where(below, value, 0.5 * at_low),
                np.where(below, 0.5 * at_high, value),
            )
            high = np.where(below, high, middle)
        rate = np.where(kind == CLOSED, np.where(is_full, most, middle), rate)
        is_saturated = np.asarray(is_saturated | is_full)
    steady = np.minimum(rate, _FULL * most)
    first, then = asked(steady)
    ttft, e2e = times(first, then, steady)
    # Beyond saturation: a closed loop waits by Little's law, an open one half of the run's line.
    line = np.where(kind == CLOSED, np.where(is_saturated, flight / most - e2e, 0.0), 0.0)
    over = 0.5 * requests * np.maximum(1.0 / most - 1.0 / np.asarray(load.rate_per_s, float), 0.0)
    line = np.where((kind == OPEN) & is_saturated, over, line)
    # A benchmark's first requests come together, each behind half of the prompts of its replica.
    ahead = 0.5 * np.maximum(flight / senders - 1.0, 0.0)
    together = np.where((kind == CLOSED) & np.isfinite(requests), np.minimum(flight / requests, 1.0), 0.0)
    burst_s = c.wave * ahead / most_prefill
    waited = np.nan_to_num(line) + np.nan_to_num(together * burst_s)
    ttft, e2e = ttft + waited, e2e + waited
    done = np.where(kind == CLOSED, flight / e2e, rate)
    # A run ends with its longest answer, which then decodes beside ever fewer others.
    is_run = (kind == OFFLINE) & np.isfinite(requests)
    cv = np.asarray(load.output_cv, float)
    left = 0.5 * (1.0 + cv**2)  # mean length still to go when the last request starts
    longest = longest_of(np.where(is_run, requests, 1.0), cv)
    emptying = after * idle[1].tpot_s * np.maximum(longest - left, 0.0)
    done = np.where(is_run, requests / (requests / most + emptying), done)
    stable = fits & ~np.asarray((kind == OPEN) & is_saturated)

    def known(value: Array) -> Array:
        return np.asarray(np.where(fits, value, np.nan))

    return replace(
        then,
        stable=np.asarray(stable),
        fits=fits,
        requests_per_s=known(done),
        throughput_out_tokens_per_s=known(done * outputs),
        throughput_total_tokens_per_s=known(done * (inputs + outputs)),
        ttft_s=known(ttft),
        e2e_s=known(e2e),
        burst_s=known(burst_s),
        saturation_requests_per_s=known(most),
        is_saturated=is_saturated,
    )
