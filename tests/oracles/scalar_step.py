"""A step of one layout in plain arithmetic, term by term as docs/theory writes it: no arrays, no shared helpers.

`perfmodel.training.step` is vectorised over layouts and draws and spread over eight modules. This is the same model for one
layout, written from the equations, so that a wrong operator, factor or index in one of the two shows as a difference.
Covered: transformers and counted networks with the usual buckets, the library's own algorithms and no bus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np


def near_max(x: float, y: float) -> float:
    """The rounded maximum (x | y)."""
    return (x**4 + y**4) ** 0.25


def near_one(x: float) -> float:
    """The rounded lesser of x and 1."""
    return x / (1.0 + x**8) ** (1.0 / 8.0)


@dataclass
class Numbers:
    """Attributes of a struct of arrays as plain floats."""

    def __init__(self, struct: Any) -> None:
        for field in fields(struct):
            value = np.asarray(getattr(struct, field.name))
            setattr(self, field.name, float(value) if value.ndim == 0 else value.tolist())


def collective(op: str, size: float, n: float, k: float, m: Any, c: Any, up: float, out: float) -> float:
    """Seconds of one call among n ranks in k domains; see docs/theory/collectives."""
    if n <= 1.0:
        return 0.0
    g = n / k
    across = min(k - 1.0, 1.0)
    inside = 1.0 - k / n
    ring = g - 1.0 if g <= 16.0 else min(g - 1.0, 15.0 + 8.0 * math.log2(g / 16.0))
    if op == "all_reduce":
        up_steps, out_steps = 2.0 * ring, 2.0 * math.log2(k)
        up_s = size * (2.0 * inside + 0.38 / n) / up
        if m.in_switch:
            up_s = min(up_s, size * (1.0 + (4.2 / g) ** 12) / (up * 0.7))
        out_s = size * across * min(2.0 * (1.0 - 1.0 / n), 2.0, k / 2.0) / out
        if m.in_network:
            out_s = min(out_s, size * across / out)
    elif op in ("all_gather", "reduce_scatter"):
        up_steps, out_steps = n - k, k - 1.0
        up_s = size * (inside + 0.38 / n) / up
        out_s = size * across * (n - 1.0) / n / out
    elif op == "all_to_all":
        up_steps, out_steps = math.log2(g), k - 1.0
        up_s = size * ((g - 1.0) / g + 0.38 / n) / up
        out_s = size * g * (1.0 - 1.0 / k) / out
    else:
        up_steps, out_steps = 1.0 - across, across
        up_s, out_s = size * (1.0 - across) / up, size * across / out
    latency = (
        c.base_s + up_steps * (c.up_step_s + m.up_latency_s) + out_steps * (c.out_step_s + m.out_latency_s)
    )
    moving = near_max(up_s, out_s)
    return latency + moving + (2.0 ** (1.0 / 0.65) - 2.0) * math.sqrt(latency * moving)


def call(op: str, size: float, n: float, stride: float, m: Any, at: Any, c: Any) -> float:
    """One collective among n ranks that lie `stride` apart in the order tensor, context, data, pipeline."""
    reach = min(m.domain, max(at.per_node, 1.0) * m.domain / m.node)
    near = min(max(reach / stride, 1.0), n)
    spine = 1.0
    if m.oversubscription > 1.0:
        nodes = n * stride / max(at.per_node, 1.0)
        spine = 1.0 + (m.oversubscription - 1.0) * min(max(1.0 - m.leaf_nodes / max(nodes, 1.0), 0.0), 1.0)
    up = m.up_bytes_per_s * c.up_efficiency
    out = m.out_bytes_per_s * c.out_efficiency * near / spine
    return collective(op, size, n, n / near, m, c, up, out)


def product(r: float, i: float, o: float, sheets: float, rate: float, memory: float, width: float) -> float:
    """Seconds of one pass of a product on the roofline."""
    return near_max(2.0 * r * i * o / rate, (sheets * i * o + r * (i + o)) * width / memory)


def lost(outputs: float, wave: float) -> float:
    """Waves of tiles lost, over those of the work."""
    return wave / max(outputs + wave / 10.0, 1.0)


def logit_rate(ops: Any, m: Any, at: Any, c: Any) -> float:
    """Rate of the product with the words."""
    rate = m.peak16_flop_per_s * c.matmul
    odd = math.gcd(int(ops.logit_width // at.tp), 8)
    if odd < 2 and m.plain_flop_per_s > 0.0:
        return m.plain_flop_per_s * c.matmul
    if odd < 8 and m.unit_hz > 0.0:
        return (rate**-4 + (c.unaligned * odd * m.unit_hz) ** -4) ** -0.25
    return rate


def products(ops: Any, m: Any, at: Any, c: Any, again: float) -> tuple[float, float]:
    """(products of the layers, product with the words) of a micro-batch, all passes."""
    tokens = at.micro_batch * ops.tokens / at.cp
    wave = m.units * 65536.0 / m.element_bytes
    layers = words = 0.0
    for slot in range(len(ops.slot_count)):
        split, last = ops.slot_split[slot], ops.slot_last[slot] > 0
        r = tokens * ops.slot_rows[slot] / (at.tp if split == 3 else 1.0)
        i = ops.slot_inner[slot] / (at.tp if split == 2 else 1.0)
        o = ops.slot_outer[slot] / (at.tp if split == 1 else 1.0)
        sheets = ops.slot_experts[slot] / at.ep if split == 3 else 1.0
        rate = logit_rate(ops, m, at, c) if last else m.peak_flop_per_s * c.matmul
        one = product(r, i, o, sheets, rate, m.memory_bytes_per_s * c.memory, m.element_bytes)
        forward = 1.0 if last else 1.0 + again
        idle = (forward + 1.0 + ops.trainable_fraction) * c.call_s * (1.0 + (sheets - 1.0) / 2.0)
        waves = forward * lost(r * o, wave) + lost(r * i, wave)
        waves += ops.trainable_fraction * lost(sheets * i * o, wave)
        idle += c.tail * waves * 2.0 * r * i * o / rate
        each = (forward + 1.0 + ops.trainable_fraction) * one + idle
        whole = each * ops.slot_count[slot] * c.pace * (c.imbalance if split == 3 else 1.0)
        if last:
            words += whole
        else:
            layers += whole / at.pp
    return layers, words


def micro_batch(ops: Any, m: Any, at: Any, c: Any) -> dict[str, float]:
    """Device seconds of an average stage, of the words, and host seconds."""
    again = at.freed ** -math.log2(c.recompute) if math.isnan(at.recompute) else at.recompute
    memory = m.memory_bytes_per_s * c.memory
    share = 1.0 / (at.cp * at.tp * at.pp)
    b, w = at.micro_batch, m.element_bytes
    layers, words = products(ops, m, at, c, again)

    kept = max(again, at.selective)
    ramp = 1.0 + 200.0 * (1.0 + ops.masked) * at.cp / max(ops.tokens, 1.0)
    fused = ops.attention_flop * (4.0 + kept) * ramp / (m.peak16_flop_per_s * c.attention)
    score = max(w, ops.least_score_bytes) / 2.0 * ops.score_elements / memory
    eager = near_max(
        ops.attention_flop * (1.0 + ops.masked) * (3.0 + kept) / (m.peak16_flop_per_s * c.matmul),
        score * (4.0 * (1.0 + kept) + 8.0),
    ) + score * (9.0 * (1.0 + kept) + 11.0)
    held = (
        b
        * share
        * ops.score_elements
        * max(w, ops.least_score_bytes)
        * max(1.0 - kept, 1.0 / max(ops.layers, 1.0))
    )
    written = c.unfused / (1.0 + (held / m.memory_bytes) ** 8)
    attention = b * share * ((1.0 - min(written, 1.0)) * fused + written * eager)

    cast = m.is_low_precision * c.cast_bytes * (ops.inner_traffic / 5.2 + ops.hidden_traffic / 6.5)
    kept_whole = share if at.sequence_parallel > 0 else share * at.tp
    bytes_ = ops.hidden_traffic * kept_whole + (ops.inner_traffic * w / 2.0 + cast) * share
    elementwise = b * bytes_ * c.elementwise * (2.6 + again) / memory
    routed = b * ops.tokens / (at.cp * at.tp) * ops.top_k * ops.routed_width * ops.moe_layers / at.pp
    elementwise += routed * c.routing_bytes / memory

    saved = m.fast_convolutions * min(c.winograd, 1.0) * ops.conv3x3_flop * (1.0 - 16.0 / 36.0)
    other = (3.0 + again) * near_max(
        b * (ops.other_flop - saved) * share / (m.peak_flop_per_s * c.other),
        b * ops.other_traffic * w / 2.0 * c.other_traffic * share / memory,
    )
    loss = b * ops.logit_elements / (at.cp * at.tp) * c.loss_bytes / memory
    host = ops.kernels / at.pp * c.host_kernel_s * (2.65 + again) * (1.0 + 0.12 * math.log2(at.tp))
    device = layers + (attention + elementwise + other) * c.pace
    return {"device": device, "last": words + loss * c.pace, "host": host, "again": again}


def owned(ops: Any, at: Any) -> tuple[float, float]:
    """Parameters of a device before sharding: (of all replicas alike, of its experts)."""
    words = ops.embedding_params / at.tp / (2.0 if at.pp > 1 else 1.0)
    return ops.block_params / at.tp / at.pp + words, ops.expert_params / max(at.ep, at.tp) / at.pp


def gradients(ops: Any, m: Any, at: Any, c: Any) -> tuple[float, float, float]:
    """(once a step, every micro-batch, every micro-batch but the last) seconds of gradients and weights."""
    n = at.dp * at.cp
    if n <= 1.0:
        return 0.0, 0.0, 0.0
    dense, experts = owned(ops, at)
    plain = 4.0 if m.element_bytes > 2 else 2.0
    wire = (at.gradient_bytes or plain) / at.compression
    trained = dense * ops.trainable_fraction
    ranks = min(at.shard_group, n)
    copies = n / ranks
    between = call("all_reduce", trained * wire / ranks, copies, at.tp * ranks, m, at, c)
    once, each, repeated = call("all_reduce", trained * wire, n, at.tp, m, at, c), 0.0, 0.0
    if at.sharding in (1, 2):
        scatter = call("reduce_scatter", trained * wire, ranks, at.tp, m, at, c)
        once = scatter + between + call("all_gather", trained * plain, ranks, at.tp, m, at, c)
        if at.sharding == 2 and at.accumulation > 1:
            repeated = scatter
    if at.sharding in (3, 4):
        layers = max(ops.layers / at.pp, 1.0)
        gather = call("all_gather", dense * plain / layers, ranks, at.tp, m, at, c)
        scatter = call("reduce_scatter", trained * wire / layers, ranks, at.tp, m, at, c)
        once, each = between, layers * (2.0 * gather + scatter)
    if at.sharding == 5:
        moved = trained * (wire + plain)
        nodes = at.k / at.per_node
        local = moved * at.per_node / (2.0 * m.host_link_bytes_per_s * c.server)
        spine = 1.0
        if m.oversubscription > 1.0:
            beyond = min(max(1.0 - m.leaf_nodes / max(nodes, 1.0), 0.0), 1.0)
            spine = 1.0 + (m.oversubscription - 1.0) * beyond
        network = (
            moved * (1.0 - 1.0 / nodes) * spine / (m.out_bytes_per_s * m.node * c.out_efficiency * c.server)
        )
        once = local + (network if nodes > 1 else 0.0) + c.base_s
    if experts > 0:
        ranks_of_experts = max(at.ep, at.tp)
        group = max(at.k / (ranks_of_experts * at.pp), 1.0)
        once += call("all_reduce", experts * ops.trainable_fraction * wire, group, ranks_of_experts, m, at, c)
    return once, each, repeated


def shows(seconds: float, window: float, never: float, unhidden: float) -> float:
    """What shows of one exchange."""
    rest = max((1.0 - never) * seconds, 0.0)
    top = near_max(rest, window)
    hidden = window / top if top > 0 else 0.0
    return max(never * seconds + rest * (1.0 - hidden), unhidden * seconds)


def slowest(k: float, spread: float) -> float:
    """Mean of the slowest of k lognormal workers over one's."""
    u = math.log(max(k, 1.0))
    mean = u / math.sqrt((1.2307 + 0.88186 * u + 0.218194 * u * u) / (1.0 + 0.421399 * u))
    variance = (1.0 + 0.3329 * u) / (1.0 + 0.8615 * u + 0.4102 * u * u)
    log = math.log(1.0 + spread * spread)
    return math.exp(math.sqrt(log) * mean + log * (variance - 1.0) / 2.0)


def step(ops: Any, m: Any, at: Any, c: Any) -> dict[str, float]:
    """Seconds of each part of one step, and of what is hidden under `hidden`."""
    ops, m, at, c = Numbers(ops), Numbers(m), Numbers(at), Numbers(c)
    if math.isnan(at.vpp):
        at.vpp = max(ops.layers / at.pp, 1.0) ** min(c.interleave, 1.0)
    mb = micro_batch(ops, m, at, c)
    again, times, w = mb["again"], at.accumulation, m.element_bytes
    tokens = at.micro_batch * ops.tokens / at.cp

    tensor = context = experts = message = 0.0
    shown_experts = c.ep_exposed if math.isnan(at.expert_hidden) else 1.0
    if at.tp > 1:
        shown = (4.0 + 2.0 * again) * c.tp_exposed
        if not math.isnan(at.tp_hidden):
            shown = 4.0 + 2.0 * again - at.tp_hidden
        one = call("all_reduce", tokens * ops.hidden * w, at.tp, 1.0, m, at, c)
        tensor = one * ops.layers / at.pp * shown * ops.is_transformer
    if at.cp > 1:
        one = call("all_gather", tokens * at.cp * ops.kv_width / at.tp * w, at.cp, at.tp, m, at, c)
        context = one * ops.attention_layers / at.pp * (3.0 + again) * c.cp_exposed
    if at.ep > 1:
        one = call("all_to_all", tokens / at.tp * ops.top_k * ops.routed_width * w, at.ep, 1.0, m, at, c)
        experts = one * ops.moe_layers / at.pp * (4.0 + 2.0 * again) * shown_experts
    if ops.table_params > 0:
        experts += 2.0 * shown_experts * call("all_to_all", at.micro_batch * 3328.0 * w, at.dp, 1.0, m, at, c)
    if at.pp > 1:
        size = tokens * ops.hidden * w / at.tp
        message = call("p2p", size, min(at.pp, 2.0), at.tp * at.cp * at.dp, m, at, c)
    p2p = 2.0 * at.vpp * message * c.p2p_exposed

    beside = mb["device"] + tensor + context
    routed_s = experts
    if at.expert_hidden > 0.0:
        experts = near_max(beside, routed_s) - beside
    own = beside + experts
    stall = near_max(own, mb["host"]) - own + c.micro_s
    once, each, repeated = gradients(ops, m, at, c)
    gathers = each / times if at.pp > 1 else each
    nodes = max(max(at.k / at.per_node, 1.0) * m.node / m.domain, 1.0)
    unhidden = 1.0 - (min(m.up_overlap, m.out_overlap) if nodes > 1 else m.up_overlap)
    weights = near_max(own + stall, gathers) - (own + stall)
    weights += max(c.shard_cost, unhidden) * min(own + stall, gathers)

    tail = mb["last"] * (c.last_stage if at.pp > 1 else 1.0)
    stage = own + stall + weights + p2p
    bubble = (at.pp - 1.0) * ((stage - p2p + mb["last"] / at.pp) / at.vpp + 2.0 * message) * c.bubble

    depth = min(at.vpp, times) if at.pp > 1 else 1.0
    window = near_one(c.dp_overlap) * (own + stall + tail) * depth * 0.66
    crossed = min(nodes - 1.0, 1.0)
    never = near_one(c.net_exposed if crossed > 0 else c.dp_exposed)
    shown = shows(once, window, never, unhidden) + (times - 1.0) * shows(repeated, window, never, unhidden)
    total = once + (times - 1.0) * repeated
    codec = at.compression_s if once > 0 else 0.0

    dense, routed = owned(ops, at)
    if at.sharding in (1, 2, 3, 4):
        dense /= min(at.shard_group, at.dp * at.cp)
    if at.sharding >= 1:
        routed /= max(at.k / (max(at.ep, at.tp) * at.pp), 1.0)
    optimizer = (
        34.0 * c.optimizer * (dense + routed) * ops.trainable_fraction / (m.memory_bytes_per_s * c.memory)
    )

    work = times * (own + tail)
    parallel = 1.0 if at.dp * at.cp > 1 else 0.0
    half = min(max((at.per_node - m.node / 2.0) / (m.node / 2.0), 0.0), 1.0)
    every = at.sync_every
    across = 1.0 / every if at.k <= at.dp * m.domain else 1.0
    contention = work * parallel / every * (c.dp_on + c.half_node * half + c.local * math.log2(at.per_node))
    contention += work * across * (c.crossing * crossed + c.doubling * math.log2(nodes))
    parts = {
        "compute": times * (mb["device"] + tail),
        "host": times * stall + c.step_s,
        "tensor_parallel": times * tensor,
        "context_parallel": times * context,
        "expert_parallel": times * experts,
        "pipeline_messages": times * p2p,
        "imbalance": 0.0,
        "bubble": bubble,
        "sharded_weights": times * weights,
        "data_parallel": (shown + codec) / every,
        "optimizer": optimizer,
        "contention": contention,
        "synchronisation": (parallel * c.sync_s * math.log2(at.k) + c.node_sync_s * math.log2(nodes)) / every,
    }
    if at.length_spread > 0:
        spread = at.length_spread / math.sqrt(max(at.global_batch / at.dp, 1.0))
        parts["imbalance"] = work * (slowest(at.dp, spread) - 1.0)
    wait = slowest(at.k, c.jitter)
    if every > 1:
        alone = max(at.k / at.dp, 1.0)
        wait = min(wait, slowest(at.dp, c.jitter / math.sqrt(every)) * slowest(alone, c.jitter))
    if at.slow_share > 0:
        wait *= 1.0 + (at.slowdown - 1.0) * (1.0 - (1.0 - at.slow_share) ** at.k)
    parts["straggler"] = sum(parts.values()) * (wait - 1.0)
    hosts = max(at.k / at.per_node, 1.0)
    read = ops.input_bytes * at.global_batch
    feed = c.input_s * 1e-6 * read / hosts
    if math.isfinite(at.loader_bytes_per_s):
        feed = read / hosts / at.loader_bytes_per_s
    feed = max(feed, read / at.storage_bytes_per_s)
    busy = sum(parts.values())
    parts["input_stall"] = near_max(busy, feed) - busy
    parts["serial"] = ops.serial_s + at.stall_s + c.start_s / at.run_steps
    waiting = times * tail * (1.0 - 1.0 / at.pp)
    computing = parts["compute"] - waiting
    short = 1.0 - at.global_batch / (at.dp * at.micro_batch * times)
    uneven = computing * short if short > 1e-9 else 0.0
    parts["compute"] = computing - uneven
    parts["imbalance"] += waiting + uneven
    parts["hidden"] = (total - shown) / every + times * (max(gathers - weights, 0.0) + routed_s - experts)
    return parts
