"""A discrete-event simulation of one replica (or several) that answers requests with continuous batching.

It is the oracle for `perfmodel.physics.queueing`: it shares no code with it. One step decodes one token of every running
sequence and fills what is left of the token budget with chunks of prompts, in the order of arrival. The step that
finishes a prompt gives its first token. Tokens of keys and values are bounded: `reserve` books input and
output at admission, `evict` books what is there and sends the youngest sequence back when memory runs out.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Seconds of a step by sequences that decode, prompt tokens in the step, and tokens of context that are read.
StepTime = Callable[[float, float, float], float]


@dataclass(frozen=True)
class Replica:
    """What one replica can hold and do in a step."""

    step_s: StepTime
    max_batch: int = 256
    max_batched_tokens: int = 8192
    kv_tokens: float = float("inf")
    reserve: bool = False


@dataclass(frozen=True)
class Requests:
    """Arrival times (sorted) and lengths, one entry a request."""

    arrival_s: Array
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """Times of each request, in the order of `Requests`; the steps, for gaps between tokens."""

    arrival_s: Array
    first_s: Array
    finish_s: Array
    output_tokens: NDArray[np.int64]
    step_s: Array
    step_decodes: Array
    preemptions: int

    def kept(self, warmup: float, cooldown: float = 0.0) -> Run:
        """Without the first and last shares of requests."""
        n = self.arrival_s.size
        part = slice(int(n * warmup), n - int(n * cooldown))
        return Run(
            self.arrival_s[part],
            self.first_s[part],
            self.finish_s[part],
            self.output_tokens[part],
            self.step_s,
            self.step_decodes,
            self.preemptions,
        )

    @property
    def ttft_s(self) -> Array:
        return self.first_s - self.arrival_s

    @property
    def tpot_s(self) -> Array:
        many = self.output_tokens > 1
        return (self.finish_s[many] - self.first_s[many]) / (self.output_tokens[many] - 1)

    @property
    def e2e_s(self) -> Array:
        return self.finish_s - self.arrival_s

    def gap_quantile_s(self, q: float) -> float:
        """Quantile of the time between two tokens, over all tokens."""
        order = np.argsort(self.step_s)
        share = np.cumsum(self.step_decodes[order])
        return float(self.step_s[order][np.searchsorted(share, q * share[-1])])


def lengths(rng: np.random.Generator, mean: float, cv: float, n: int) -> NDArray[np.int64]:
    """Whole lengths of at least 1: all the same for cv 0, else gamma-distributed."""
    if cv == 0.0:
        return np.full(n, max(round(mean), 1))
    return np.maximum(np.rint(rng.gamma(1.0 / cv**2, mean * cv**2, n)), 1).astype(np.int64)


def arrivals(rng: np.random.Generator, rate: float, n: int, cv: float = 1.0) -> Array:
    """Times of n arrivals with gamma-distributed intervals of this coefficient of variation."""
    if cv == 0.0:
        return (np.arange(n) + 1.0) / rate
    return np.asarray(np.cumsum(rng.gamma(1.0 / cv**2, cv**2 / rate, n)))


@dataclass
class _State:
    waiting: deque[int] = field(default_factory=deque)
    prefilling: deque[int] = field(default_factory=deque)
    ends: list[tuple[int, int]] = field(default_factory=list)  # (decode count at its end, request)
    admitted: list[int] = field(default_factory=list)  # in order; entries of finished ones are skipped


def simulate(replica: Replica, requests: Requests, concurrency: int | None = None) -> Run:
    """Serve every request; with `concurrency` a client sends its next as one ends and arrival times are ignored."""
    n = requests.arrival_s.size
    inputs, outputs = requests.input_tokens.tolist(), requests.output_tokens.tolist()
    arrive = [0.0] * n if concurrency else requests.arrival_s.tolist()
    first, finish = [0.0] * n, [0.0] * n
    left = [0] * n  # prompt tokens still to prefill
    start = [0] * n  # decode count at the first token since (re)admission
    done_before = [0] * n  # tokens made before an eviction
    live = bytearray(n)  # 1 while it holds memory
    sent = min(concurrency, n) if concurrency else 0
    state = _State(waiting=deque(range(sent)))
    waiting, prefilling, ends = state.waiting, state.prefilling, state.ends
    now, count, decodes, held, context, preempted, finished = 0.0, 0, 0, 0.0, 0.0, 0, 0
    steps: list[float] = []
    widths: list[int] = []
    step_s, room = replica.step_s, replica.kv_tokens
    while finished < n:
        if not concurrency:
            while sent < n and arrive[sent] <= now:
                waiting.append(sent)
                sent += 1
        # Memory that this step's decodes will need comes first.
        if not replica.reserve:
            while held + decodes > room and decodes > 1:
                victim = state.admitted.pop()
                if not live[victim] or left[victim]:
                    continue
                made = count - start[victim] + 1
                live[victim], decodes = 0, decodes - 1
                held -= inputs[victim] + done_before[victim] + made
                context -= inputs[victim] + done_before[victim] + made
                done_before[victim] += made
                preempted += 1
                waiting.appendleft(victim)
                ends[:] = [end for end in ends if end[1] != victim]
                heapq.heapify(ends)
        budget = replica.max_batched_tokens - decodes
        chunk = 0
        completed: list[int] = []
        for _ in range(len(prefilling)):
            if budget <= 0:
                break
            request = prefilling[0]
            part = min(left[request], budget)
            left[request] -= part
            budget -= part
            chunk += part
            if left[request]:
                break
            completed.append(prefilling.popleft())
        while waiting and budget > 0 and decodes + len(prefilling) + len(completed) < replica.max_batch:
            request = waiting[0]
            prompt = inputs[request] + done_before[request]
            need = inputs[request] + outputs[request] if replica.reserve else prompt + 1
            if held + need + (0 if replica.reserve else decodes) > room and live.count(1) > 0:
                break
            waiting.popleft()
            held += need
            live[request] = 1
            state.admitted.append(request)
            part = min(prompt, budget)
            left[request] = prompt - part
            budget -= part
            chunk += part
            (prefilling if left[request] else completed).append(request)
        if decodes == 0 and chunk == 0:
            now = arrive[sent]
            continue
        now += (time := step_s(decodes, chunk, context))
        if decodes:
            steps.append(time)
            widths.append(decodes)
            count += 1
            context += decodes
            held += 0 if replica.reserve else decodes
        ended: list[int] = []
        while ends and ends[0][0] <= count:
            request = heapq.heappop(ends)[1]
            ended.append(request)
            decodes -= 1
            context -= inputs[request] + outputs[request]
        for request in completed:
            if not done_before[request]:
                first[request] = now
            start[request] = count
            remaining = outputs[request] - done_before[request] - 1
            if remaining > 0:
                heapq.heappush(ends, (count + remaining, request))
                decodes += 1
                context += inputs[request] + done_before[request] + 1
            else:
                ended.append(request)
        for request in ended:
            finish[request] = now
            live[request] = 0
            held -= inputs[request] + outputs[request]
            finished += 1
            if concurrency and sent < n:
                arrive[sent] = now
                waiting.append(sent)
                sent += 1
    return Run(
        np.asarray(arrive),
        np.asarray(first),
        np.asarray(finish),
        np.asarray(requests.output_tokens),
        np.asarray(steps),
        np.asarray(widths, float),
        preempted,
    )


def simulate_fleet(
    replica: Replica, requests: Requests, replicas: int, *, balance: str = "round_robin"
) -> list[Run]:
    """Requests dealt to replicas in turn, or at random; each replica then runs alone."""
    n = requests.arrival_s.size
    if balance == "round_robin":
        to = np.arange(n) % replicas
    else:
        to = np.random.default_rng(0).integers(replicas, size=n)
    return [
        simulate(
            replica,
            Requests(
                requests.arrival_s[to == r], requests.input_tokens[to == r], requests.output_tokens[to == r]
            ),
        )
        for r in range(replicas)
    ]
