"""A replica that serves, in plain arithmetic: one step, one state and one queue at a time, without arrays.

`physics/serving_step.py`, `physics/serving.py` and `physics/queueing.py` are vectorised over loads, states and draws. This is
the same model for one load, written from the equations of their docstrings: states are counted one by one, and equations are
solved by bisection. A wrong operator, factor or index in one of the two shows as a difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammainc, gammaincc, gammaincinv


def plain(struct: Any) -> Any:
    """Attributes of a struct of arrays as plain floats; tables are left out."""

    class Plain:
        pass

    found = Plain()
    for field in fields(struct):
        value = np.asarray(getattr(struct, field.name))
        if value.ndim == 0:
            setattr(found, field.name, float(value))
    return found


# The step -----------------------------------------------------------------------------------------------------------


def halving(op: str, n: float, m: Any, c: Any) -> tuple[float, float]:
    """(seconds without bytes, seconds a byte) among n neighbours by halving and doubling, inside domains and across."""
    near = min(max(m.domain, 1.0), n)
    domains = n / near
    up = m.up_bytes_per_s * c.exchange_rate
    spine = 1.0
    if m.oversubscription > 1.0:
        hosts = max(n / m.node, 1.0)
        spine = 1.0 + (m.oversubscription - 1.0) * min(max(1.0 - m.leaf_nodes / hosts, 0.0), 1.0)
    out = m.out_bytes_per_s * near * c.exchange_rate / spine
    inner, outer = math.log2(near), math.log2(domains)
    hop_up, hop_out = c.exchange_s + m.up_latency_s, c.exchange_s + m.out_latency_s
    if op == "all_reduce":
        return (
            2.0 * (inner * hop_up + outer * hop_out),
            2.0 * ((near - 1.0) / near / up + (domains - 1.0) / domains / out),
        )
    return inner * hop_up + outer * hop_out, 0.5 * (inner / up + near * outer / out)


def step_parts(
    s: Any, m: Any, at: Any, c: Any, context: float, prompt_context: float, d: float, p: float
) -> dict[str, float]:
    """Seconds by part of a step that decodes d sequences and prefills p tokens in one lane."""
    s, m, c = plain(s), plain(m), plain(c)
    t, stages, groups = float(at.tensor), float(at.pipeline), float(at.attention_replicas)
    ranks, rows = t * groups, 1.0 + float(at.draft_tokens)
    n = d * rows + p
    memory = m.memory_bytes_per_s
    peak = m.peak16_flop_per_s if at.dense_in_16_bit else m.peak_flop_per_s
    own = s.dense_params / t + s.whole_params
    read = (own * float(at.weight_bytes) + 2.0 * s.logit_params / t) / (memory * c.weight_read)
    made = n * 2.0 * own / (peak * c.compute * groups)
    made += d * rows * 2.0 * s.logit_params / (ranks * m.peak16_flop_per_s * c.compute)
    dense = max(read, made)

    experts = 0.0
    if s.expert_params > 0:
        fullest = 1.0 + c.imbalance * (1.0 - 1.0 / float(at.expert_ranks))
        chosen = n * s.top_k / s.experts
        touched = max(
            1.0 - (1.0 + c.popularity * chosen) ** (-1.0 / c.popularity), min(chosen, s.top_k / s.experts)
        )
        read = s.expert_params * float(at.expert_bytes) * touched / (ranks * memory * c.weight_read)
        flop = 2.0 * n * s.expert_params * s.top_k / s.experts
        experts = fullest * max(read, flop / (ranks * m.peak_flop_per_s * c.compute * c.expert_compute))

    near, near_prompt = min(context, s.window), min(prompt_context, s.window)
    attention = m.peak16_flop_per_s * c.attention * t
    kept = s.cache_elements * context + s.window_elements * near
    moved = kept * float(at.cache_bytes) / min(t, s.cache_heads) + 2.0 * s.state_bytes / t
    flop = s.decode_pair_flop * context + s.decode_window_flop * near
    cache = d * max(moved / (memory * c.cache_read), rows * flop / attention) / groups
    prompts = s.prompt_pair_flop * prompt_context + s.prompt_window_flop * near_prompt
    prompts = p * prompts / (attention * groups)

    exchange = 0.0
    mixers = s.attention_layers + s.linear_layers
    routed = (float(at.expert_ranks) > 1.0 or groups > 1.0) and ranks > 1.0
    if t > 1.0:
        alpha, beta = halving("all_reduce", t, m, c)
        sums = mixers + s.mlp_layers + (0.0 if routed else s.moe_layers)
        exchange += sums * (alpha + beta * n * s.hidden * 2.0 / groups)
    if routed:
        alpha, beta = halving("all_to_all", ranks, m, c)
        exchange += 2.0 * s.moe_layers * (alpha + beta * n * s.top_k * s.routed_width * 1.5 / ranks)
    if stages > 1.0:
        inside = ranks * stages <= m.domain
        rate = (m.up_bytes_per_s if inside else m.out_bytes_per_s) * c.exchange_rate
        wire = c.exchange_s + (m.up_latency_s if inside else m.out_latency_s)
        exchange += (stages - 1.0) * (wire + n * s.hidden * 2.0 / (groups * rate))

    layers = 0.5 * (mixers + s.mlp_layers + s.moe_layers)
    layers += (
        c.moe_layers * s.moe_layers + c.linear_layers * s.linear_layers + c.latent_layers * s.latent_layers
    )
    launch = c.layer_s * layers * (c.eager if p > 0.0 else 1.0)
    pace = c.pace * (1.0 + c.stage * (1.0 - 1.0 / stages))
    return {
        "weights": dense * pace,
        "experts": experts * pace,
        "cache": cache * pace,
        "prompt_attention": prompts * pace,
        "exchange": exchange * pace,
        "launch": launch * pace,
        "host": d * c.sequence_s,
        "draft": c.draft * float(at.draft_tokens) / s.layers * (dense + experts + launch) * pace,
    }


def fitting(s: Any, m: Any, at: Any, c: Any, tokens: float, outputs: float) -> float:
    """Sequences that fit beside the weights."""
    s, m, c = plain(s), plain(m), plain(c)
    t, stages, groups = float(at.tensor), float(at.pipeline), float(at.attention_replicas)
    rest = max(s.params - s.dense_params - s.whole_params - s.expert_params - s.logit_params, 0.0)
    held = (s.dense_params / t + s.whole_params) * float(at.weight_bytes)
    held += s.expert_params * float(at.expert_bytes) / (t * groups) + 2.0 * (s.logit_params + rest) / t
    context = tokens + float(at.reserve) * outputs
    kept = s.cache_elements * context + s.window_elements * min(context, s.window)
    each = kept * float(at.cache_bytes) / min(t, s.cache_heads) / stages + s.state_bytes / (t * stages)
    free = m.memory_bytes * float(at.memory_fraction) - held / stages
    return groups * max(free * min(c.cache_room, 1.0), 0.0) / each


# The state of a replica ---------------------------------------------------------------------------------------------


@dataclass
class Replica:
    """A replica whose mean step is `seconds(d, p)` of one lane, and what is asked of it."""

    seconds: Callable[[float, float], float]
    lanes: float
    rows: float
    advance: float
    new_tokens: float
    outputs: float
    chunk: float
    mixed: bool
    c: Any

    @property
    def after(self) -> float:
        return max(self.outputs - 1.0, 1e-3) / self.advance

    def state(self, decodes: float) -> dict[str, float]:
        """Equation (1): what follows from the number of sequences that decode."""
        d = decodes / self.lanes
        starts = max(d / self.after, 1e-9)
        room = max(self.chunk - (d * self.rows if self.mixed else 0.0), 16.0)
        tokens = min(self.new_tokens * starts / (1.0 - math.exp(-starts)), room)
        empty = self.seconds(d, 0.0)
        extra = self.seconds(d, tokens) - empty if self.mixed else self.seconds(0.0, tokens)
        slope = self.c.interference * extra / tokens
        arriving = starts * self.new_tokens
        carried = min(arriving, tokens) if self.mixed else arriving
        step = empty + slope * carried
        own = min(self.new_tokens * (1.0 + starts), room)
        first = max(self.new_tokens / room, 1.0) * (empty + extra * own / tokens)
        met = empty + min(carried / tokens, 1.0) * extra * (empty + extra) / step
        if self.mixed:
            load, service = arriving / room, (empty + extra) * self.new_tokens / room
            limit = self.lanes * self.after * room / self.new_tokens
        else:
            load, service, limit = 1.0 - empty / step, slope * self.new_tokens, math.inf
        return {"step": step, "empty": empty, "first": first, "met": met, "load": load, "service": service,
                "limit": limit}  # fmt: skip

    def in_slot(self, state: dict[str, float], slots: float) -> float:
        """Time in a slot until the first token."""
        others = max(slots / self.lanes - 1.0, 0.0)
        busy = min(state["load"], 0.95)
        line = min(self.c.line * 0.5 * busy / (1.0 - busy), 0.5 * others) * state["service"]
        return self.c.rest * state["met"] * others / (others + 1.0) + line + state["first"]

    def full(self, slots: float) -> tuple[float, float]:
        """(sequences that decode, requests a second) with all slots taken."""

        def excess(d: float) -> float:
            state = self.state(d)
            decoding = self.after * state["step"]
            return min(slots * decoding / (self.in_slot(state, slots) + decoding), state["limit"]) - d

        d = brentq(excess, 1e-7 * slots, slots, xtol=1e-13 * slots) if excess(slots) < 0.0 else slots
        return d, d / (self.after * self.state(d)["step"])

    def opened(self, rate: float, most: float) -> float:
        """Sequences that decode when requests start at a rate."""
        return float(
            brentq(lambda d: rate * self.after * self.state(d)["step"] - d, 0.0, most * (1.0 + 1e-9))
        )


# The queue in front of it -------------------------------------------------------------------------------------------

ROOT3 = math.sqrt(3.0)
EDGES = [0, 0.002, 0.01, 0.03, 0.08, 0.2, 0.4, 0.6, 0.8, 0.92, 0.97, 0.99, 0.998, 1.0]


def three(mean: float, relative_variance: float) -> list[tuple[float, float]]:
    """(weight, value) of a lognormal size in three nodes of its mean."""
    sigma = math.sqrt(math.log1p(max(relative_variance, 0.0)))
    nodes = [(1 / 6, math.exp(-ROOT3 * sigma)), (2 / 3, 1.0), (1 / 6, math.exp(ROOT3 * sigma))]
    whole = sum(w * x for w, x in nodes)
    return [(w, x * mean / whole) for w, x in nodes]


def lengths(cv: float) -> list[tuple[float, float]]:
    """(share, length) of gamma-distributed lengths of mean 1 by class."""
    shape = 1.0 / max(cv, 1e-3) ** 2
    found = [(b - a, float(gammaincinv(shape, 0.5 * (a + b))) / shape) for a, b in itertools.pairwise(EDGES)]
    mean = sum(w * x for w, x in found)
    return [(w, x / mean) for w, x in found]


@dataclass
class Queue:
    """One replica whose step is T(n, p), under an open stream of requests."""

    seconds: Callable[[float, float], float]
    rate: float
    tokens: float
    outputs: float
    input_cv: float
    output_cv: float
    arrival_cv: float
    slots: int
    chunk: float
    rounds: int = 4

    @property
    def after(self) -> float:
        return max(self.outputs - 1.0, 0.0)

    @property
    def cv2(self) -> float:
        """Squared variation of the tokens after the first."""
        return (self.output_cv * self.after / max(self.outputs, 1.0)) ** 2

    def busy_share(self, a: float) -> float:
        if self.arrival_cv == 1.0:
            return 1.0 - math.exp(-a)
        k = 1.0 / max(self.arrival_cv, 0.1) ** 2
        return float(1.0 - gammaincc(k + 1.0, k * a) + a * gammaincc(k, k * a))

    def steps(self, n: float, rate: float) -> dict[str, float]:
        """Equation (1) of the queue in a state with n sequences that decode."""
        ca2, ci2 = self.arrival_cv**2, self.input_cv**2
        room = max(self.chunk - n, min(self.chunk, 16.0))
        empty, full = self.seconds(n, 0.0), self.seconds(n, room)
        mean = empty
        for _ in range(self.rounds):
            a = max(rate * mean, 1e-9)
            busy = self.busy_share(a)
            prompts = a / busy
            bunch = prompts * (1.0 - math.exp(-a)) / a
            dispersion = min(max(2.0 * bunch - 1.0, 0.0), max(ca2, 1.0))
            second = (a * dispersion + a * a) / busy - prompts**2 + prompts * ci2
            sizes = three(self.tokens * prompts, second / prompts**2)
            inside = [(w, min(x, room)) for w, x in sizes]
            times = [(w, self.seconds(n, x)) for w, x in inside]
            share = sum(w * x for w, x in inside)
            slope = sum(w * (t - empty) for w, t in times) / share
            mean = min(empty / max(1.0 - rate * self.tokens * slope, 1e-6), full)
        others = max(dispersion - 1.0 + a, 0.0)
        beside = three(self.tokens * (1.0 + others), (others + (1.0 + others) * ci2) / (1.0 + others) ** 2)
        return {
            "room": room, "empty": empty, "full": full, "mean": mean,
            "filled": min(rate * self.tokens * mean / share, 1.0),
            "first": sum(w * t for w, t in times), "square": sum(w * t * t for w, t in times),
            "own": sum(w * self.seconds(n, min(x, room)) for w, x in beside),
            "others": others, "prompt": self.tokens * slope, "load": rate * self.tokens * full / room,
        }  # fmt: skip

    def chunks(self, room: float) -> float:
        """Steps in which a prompt is prefilled."""
        x = self.tokens / room
        vary = min(2.0 * self.input_cv, 1.0)
        return vary / (1.0 - math.exp(-1.0 / x)) + (1.0 - vary) * math.ceil(x - 1e-9)

    def held(self, n: float, rate: float) -> tuple[float, dict[str, float], float]:
        """(seconds in a slot, the steps, how many decode) when n slots are taken."""
        decodes = n
        for _ in range(2):
            at = self.steps(decodes, rate)
            own = at["prompt"] + at["empty"] * self.chunks(at["room"])
            whole = own + self.after * at["mean"]
            decodes = n * self.after * at["mean"] / whole
        return whole, at, decodes

    def saturation(self) -> float:
        """Largest rate that can be answered."""
        decodes = self.chunk * self.after / (self.tokens + self.after)
        if decodes < self.slots:
            left = max(self.chunk - decodes, min(self.chunk, 16.0))
            return left / (self.tokens * self.seconds(decodes, left))
        room = max(self.chunk - self.slots, min(self.chunk, 16.0))
        most = room / (self.tokens * self.seconds(self.slots, room))
        return float(brentq(lambda rate: rate * self.held(self.slots, rate)[0] - self.slots, 0.0, most))

    def first_token(self, n: float, at: dict[str, float], rate: float, working: float) -> dict[str, Any]:
        """Time to the first token in a state, for those who come to an empty replica, in a step without and in one with prefill.

        What fits the next step goes with it, the rest waits for full ones. `working` is the chance of a state with sequences.
        """
        ca2, ci2 = self.arrival_cv**2, self.input_cv**2
        busy = min(rate * at["prompt"], 0.98)
        second = at["first"] ** 2 + (at["square"] - at["first"] ** 2) / (1.0 - busy**2)
        relative = (second - at["first"] ** 2) / at["first"] ** 2
        met = (0.0, at["empty"], second / at["first"])
        idle = float(n == 0.0)

        def of(prefilling: float) -> tuple[float, float, float]:
            part = min(max(prefilling / working, 0.0), 1.0) * (1.0 - idle)
            return idle, 1.0 - idle - part, part

        service = self.tokens / at["room"] * at["full"]
        load = min(at["load"], 0.98)
        root = load
        if self.arrival_cv != 1.0:
            k = 1.0 / max(self.arrival_cv, 0.1) ** 2
            for _ in range(30):
                root = (1.0 + (1.0 - root) / (k * max(load, 1e-9))) ** -k
            root = min(root, 0.9999)
        root = min(max(root, 1e-9), 0.9999)
        wait = (ca2 + ci2) / (ca2 + 1.0) * service / (1.0 - root)

        inside = min(max(at["filled"] * at["first"] / at["mean"], 0.0), 1.0)
        beside = sum(s * x for s, x in zip(of(inside), met, strict=True))
        crowd = self.tokens * (1.0 + ci2 + rate * beside) / at["room"]
        part = crowd**2 / (1.0 + crowd**2)
        shares, means, variances = [], [], []
        for branch in (0, 1, 2):
            comes_in = 1.0 if branch else 0.0  # whether a step runs
            gated = at["own"] + 0.5 * met[branch] + busy * (met[branch] - at["mean"]) * comes_in
            varied = second * relative if branch == 2 else 0.0
            gated_variance = (
                varied * ((0.5 + busy) ** 2 + 1 / 12)
                + met[branch] ** 2 / 12
                + rate * met[branch] * at["prompt"] ** 2 * (ca2 + ci2)
            )
            running, behind = at["empty"] * comes_in, wait if branch == 2 else 0.0
            chunked = 0.5 * running + behind + self.chunks(at["room"]) * at["empty"] + at["prompt"]
            shares.append((1.0 - part) * of(inside)[branch] + part * of(root)[branch])
            means.append((1.0 - part) * gated + part * chunked)
            variances.append(
                (1.0 - part) * gated_variance
                + part * (running**2 / 12 + behind**2)
                + part * (1.0 - part) * (gated - chunked) ** 2
            )
        prefilling = (1.0 - part) * inside + part * root
        return {
            "share": shares, "mean": means, "variance": variances, "line": part,
            "prompt": (1.0 - part) * at["prompt"] + part * service, "rest": (0.0, at["empty"], 0.0), "busy": prefilling,
            "before": (1.0 - prefilling) * means[1] + prefilling * means[2],
        }  # fmt: skip

    def solve(self) -> dict[str, Any]:
        """Means, and the mixtures of which quantiles are taken, over all numbers of sequences up to the slots."""
        ca2, ci2, cv2, rate = self.arrival_cv**2, self.input_cv**2, self.cv2, self.rate
        limit = self.saturation()
        busy = rate / limit
        if busy >= 1.0:
            return {"stable": False}

        def short(n: float) -> float:
            return n - rate * self.held(n, rate)[0]

        likeliest = brentq(short, 0.0, self.slots) if short(self.slots) > 0.0 else float(self.slots)
        prefill = min(rate * self.held(likeliest, rate)[1]["prompt"], 0.98)
        peakedness = max(1.0 + (ca2 - 1.0) / (1.0 + cv2), 0.05)
        peakedness += 1.5 * prefill**2 * (ca2 + ci2) / (1.0 - prefill) ** 2
        held: list[tuple[float, dict[str, float], float]] = []
        logs, height = [], 0.0
        for n in range(self.slots + 1):
            seconds, at, decodes = self.held(float(n), rate)
            height += math.log(rate * seconds / n) / peakedness if n else 0.0
            held.append((float(n), at, decodes))
            logs.append(height)
        p = [math.exp(value - max(logs)) for value in logs]
        whole = sum(p)
        p = [value / whole for value in p]

        # In front of full slots a line that decays geometrically.
        variability = max(0.5 * (ca2 + cv2), 0.05)
        tail = min(busy, 0.999999) ** (1.0 / max(variability, 1.0))
        weight = [*p[:-1], p[-1] * (1.0 + tail / (1.0 - tail))]
        whole = sum(weight)
        weight = [value / whole for value in weight]
        chance = weight[-1]
        working = max(1.0 - weight[0], 1e-9)
        states = [(n, at, d, self.first_token(n, at, rate, working)) for n, at, d in held]
        wait = variability / (limit * max(1.0 - busy, 1e-6))

        def mean(
            of: Callable[[dict[str, float], float, dict[str, Any]], float], by: list[float] = weight
        ) -> float:
            return sum(w * of(at, d, first) for w, (_, at, d, first) in zip(by, states, strict=True))

        branches = []
        for branch in (0, 1, 2):
            share = mean(lambda at, d, first, b=branch: first["share"][b])
            m1 = mean(lambda at, d, first, b=branch: first["share"][b] * first["mean"][b]) / max(share, 1e-12)
            m2 = mean(
                lambda at, d, first, b=branch: (
                    first["share"][b] * (first["variance"][b] + first["mean"][b] ** 2)
                )
            ) / max(share, 1e-12)
            rest = mean(lambda at, d, first, b=branch: first["share"][b] * first["rest"][b]) / max(
                share, 1e-12
            )
            # Of the rest of a running step, which is uniform, each third stands apart.
            even = max(max(m2 - m1**2, 0.0) - 2.0 / 27.0 * rest**2, 1e-3 * rest**2)
            branches += [(share / 3.0, m1 + place * rest, even) for place in (-1.0 / 3.0, 0.0, 1.0 / 3.0)]
        started = sum(s * m for s, m, _ in branches)
        started_variance = sum(s * (v + m * m) for s, m, v in branches) - started**2
        own = mean(lambda at, d, first: first["prompt"])
        least = 0.8 * mean(lambda at, d, first: at["empty"])
        line = mean(lambda at, d, first: first["line"])
        busiest = mean(lambda at, d, first: d)
        beside = mean(lambda at, d, first: at["others"])
        room = max(self.chunk - busiest, 1.0)
        prompts = lengths(self.input_cv)
        alone = [(w, x, self.seconds(busiest, min(self.tokens * (x + beside), room))) for w, x in prompts]
        own_mean = sum(w * t for w, _, t in alone)
        ttft = []  # weight, mean, variance, least
        for share, m, v in branches:
            for w, x, t in alone:
                longer = (1.0 - line) * (t - own_mean) + line * own * (x - 1.0)
                ttft.append((share * w, max(m + longer, 1.01 * least), v, least))
        tpot, most = self.per_token(weight, states, chance)
        e2e = []
        for (w, x), (_, m, v, _) in zip(lengths(math.sqrt(cv2)), tpot, strict=True):
            after = self.after * x
            e2e.append(
                (w, started + after * m, started_variance + after**2 * v + (own * self.input_cv) ** 2, 0.0)
            )

        def waited(parts: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
            return [(w * (1.0 - chance), m, v, low) for w, m, v, low in parts] + [
                (w * chance, m + wait, v + wait**2, low) for w, m, v, low in parts
            ]

        return {
            "stable": True, "wait": chance * wait, "wait_share": chance,
            "ttft": (waited(ttft), math.inf), "tpot": (tpot, most), "e2e": (waited(e2e), math.inf),
            "batch": busiest, "step": mean(lambda at, d, first: at["mean"]),
        }  # fmt: skip

    def per_token(
        self, weight: list[float], states: list[Any], full: float
    ) -> tuple[list[tuple[float, ...]], float]:
        """Time per token of requests by output length, from the states that tokens see."""
        ca2, ci2, cv2, rate = self.arrival_cv**2, self.input_cv**2, self.cv2, self.rate
        made = [w * d / at["mean"] for w, (_, at, d, _) in zip(weight, states, strict=True)]
        whole = max(sum(made), 1e-300)  # nothing decodes where a request has one token
        left = pace = most = square = during = before = empty = some = 0.0
        for tokens, (_, at, _, first) in zip(made, states, strict=True):
            x = tokens / whole
            busy = min(rate * at["prompt"], 0.98)
            line = first["line"]
            behind = (1.0 - line) * at["own"] + line * first["before"]
            burst = (1.0 - full) * max(ca2 - 1.0, 0.0)
            late = line + (1.0 - line) * math.exp(-rate * behind)
            left += x * (rate * behind + 0.5 * burst * late) * at["prompt"] / (1.0 - busy)
            irregular = (1.0 - full) * ca2 + full * cv2 + ci2
            each = rate * at["prompt"] ** 2 * irregular / (1.0 - busy * (1.0 - full)) ** 2
            pace += x * at["mean"]
            square += x * at["mean"] ** 2
            most += x * at["full"]
            empty += x * at["empty"]
            during += x * each * at["mean"]
            before += x * each * behind
            some += x * ((1.0 - line) * (1.0 - math.exp(-rate * at["own"])) + line * first["busy"])
        between = max(square - pace**2, 0.0)
        room = max(most - pace, 1e-12)
        found = []
        for share, length in lengths(math.sqrt(cv2)):
            after = max(self.after * length, 1.0)
            part = left / after / room
            mean = pace + room * part * (1.0 - math.exp(-some / max(part, 1e-9)))
            variance = 0.75 * between + during / after + before / after**2
            variance = min(variance, (most - empty) * (mean - empty) + 1e-12 * mean**2 + 0.75 * between)
            least = min(max(empty - 1.6 * math.sqrt(between), 0.0), 0.999 * mean)
            found.append((share, mean, variance, least))
        return found, most


def mean_of(mixture: tuple[list[tuple[float, ...]], float]) -> float:
    """Mean of a mixture."""
    return sum(part[0] * part[1] for part in mixture[0])


def quantile_of(mixture: tuple[list[tuple[float, ...]], float], q: float) -> float:
    """Quantile of a mixture of gamma distributions, each above its least value, by bisection."""
    parts, most = mixture

    def excess(x: float) -> float:
        total = 0.0
        for weight, mean, variance, least in parts:
            size = max(mean - least, 1e-15)
            shape = min(max(size**2 / max(variance, 1e-30), 1e-3), 1e6)
            total += weight * float(gammainc(shape, max(x - least, 0.0) * shape / size))
        return total - q

    if excess(0.0) >= 0.0:
        return 0.0
    high = max(m + 40.0 * math.sqrt(max(v, 0.0)) for _, m, v, _ in parts)
    return min(float(brentq(excess, 0.0, high, xtol=1e-12)), most)
