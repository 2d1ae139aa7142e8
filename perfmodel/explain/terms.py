"""The terms of a step as people read them: formula, the facts and the beliefs that each rests on.

Symbols: m micro-batches a step, p pipeline stages, v virtual stages, K accelerators, N nodes, r the share of a forward
pass that is recomputed, P peak rate, B memory bandwidth, M bytes of a message, (x | y) the rounded maximum
(x^4 + y^4)^(1/4). The theory pages derive them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """One part of the step: its formula, and the inputs that stand in it by name."""

    formula: str
    facts: tuple[str, ...]  # names in `facts.facts`
    beliefs: tuple[str, ...]  # names of coefficients


_NETWORK = (
    "scale-up bandwidth",
    "network bandwidth",
    "scale-up latency",
    "network latency",
    "accelerators per node",
    "scale-up domain",
)
_LINKS = ("up_efficiency", "up_step_s", "out_efficiency", "out_step_s", "base_s", "bus_bytes_per_s")

TERMS: dict[str, Term] = {
    "compute": Term(
        "m pace (products (2 + trained + r) + attention + element-wise + other + logits); "
        "product = (2RIO/(P matmul) | V/(B memory)) + call + tail wave",
        ("peak rate", "memory bandwidth", "compute units", "FLOP per sample", "tokens per sample", "layers", "tp", "pp",
         "cp", "ep", "micro-batch", "accumulation", "recomputation"),
        ("matmul", "attention", "unfused", "unaligned", "loss_bytes", "memory", "elementwise", "call_s", "tail", "other",
         "other_traffic", "winograd", "cast_bytes", "imbalance", "routing_bytes", "recompute", "pace", "last_stage"),
    ),
    "host": Term(
        "m ((busy | host) - busy + micro) + step; host = kernels/p kernel (2.65 + r)",
        ("kernels", "accumulation", "pp", "framework"),
        ("host_kernel_s", "micro_s", "step_s"),
    ),
    "tensor_parallel": Term(
        "m layers/p (4 + 2r) all_reduce(M over tp) exposed; M = tokens hidden bytes",
        ("tokens per sample", "hidden width", "layers", "tp", "micro-batch", "accumulation", *_NETWORK),
        ("tp_exposed", *_LINKS),
    ),
    "context_parallel": Term(
        "m layers/p (3 + r) all_gather(keys and values over cp) exposed",
        ("tokens per sample", "layers", "cp", "micro-batch", "accumulation", *_NETWORK),
        ("cp_exposed", *_LINKS),
    ),
    "expert_parallel": Term(
        "m moe layers/p (4 + 2r) all_to_all(tokens top_k width over ep) exposed; width = hidden, or the latent",
        ("tokens per sample", "hidden width", "layers", "ep", "micro-batch", "accumulation", *_NETWORK),
        ("ep_exposed", *_LINKS),
    ),
    "pipeline_messages": Term(
        "2 m v p2p(tokens hidden bytes/tp) exposed",
        ("tokens per sample", "hidden width", "pp", "vpp", "micro-batch", "accumulation", *_NETWORK),
        ("p2p_exposed", *_LINKS),
    ),
    "imbalance": Term(
        "m logits last_stage (1 - 1/p): the other stages wait for the one with logits and loss; "
        "compute (1 - batch/(dp micro-batch m)): replicas wait for those with a sample more; "
        "work (E[max of dp] - 1): and for the longest samples, of spread length spread/sqrt(samples of a replica)",
        ("tokens per sample", "pp", "dp", "batch", "micro-batch", "accumulation", "length spread"),
        ("last_stage",),
    ),
    "bubble": Term(
        "(p - 1) ((stage + logits/p)/v + 2 p2p(tokens hidden bytes/tp)) bubble: the pipeline fills and drains, and nothing "
        "hides its messages then; v = (layers/p)^interleave where nobody says",
        ("pp", "vpp", "accumulation", "tokens per sample", "hidden width", "micro-batch", *_NETWORK),
        ("bubble", "interleave", *_LINKS),
    ),
    "sharded_weights": Term(
        "m ((busy | shards) - busy + cost min(busy, shards)); shards = layers/p (2 all_gather + reduce_scatter), "
        "once a step in a pipeline",
        ("parameters", "dp", "sharding", "accumulation", *_NETWORK),
        ("shard_cost", *_LINKS),
    ),
    "data_parallel": Term(
        "(max(never hidden share of exchange, exchange - overlap of the last backward pass), rounded, "
        "+ cost of compression)/synchronised every; M = parameters bytes of a gradient/compression; larger buckets add "
        "min(bucket, M)/M to what never hides, smaller ones a call each; zero2 scatters in every micro-batch",
        ("parameters", "dp", "sharding", "gradient bytes", "compression", "cost of compression", "synchronised every",
         "bucket", "first bucket", *_NETWORK),
        ("dp_exposed", "net_exposed", "dp_overlap", "server", *_LINKS),
    ),
    "optimizer": Term(
        "34 optimizer parameters owned / (B memory)",
        ("parameters", "memory bandwidth", "sharding", "dp"),
        ("optimizer", "memory"),
    ),
    "contention": Term(
        "work (on + half_node second half + local log2(K in node) + crossing [N > 1] + doubling log2 N) "
        "+ what the ranks of a host take from each other, where measured; N counts scale-up domains",
        ("accelerators per node", "scale-up domain", "K", "framework"),
        ("dp_on", "half_node", "local", "crossing", "doubling"),
    ),
    "synchronisation": Term(
        "(sync log2 K + node_sync log2 N)/synchronised every",
        ("K", "accelerators per node", "scale-up domain", "synchronised every"),
        ("sync_s", "node_sync_s"),
    ),
    "straggler": Term(
        "(E[max of K] (1 + (slowdown - 1)(1 - (1 - slow share)^K)) - 1) of all above; E[max of K] of a lognormal with the "
        "jitter's spread, between replicas over the root of the steps from one exchange to the next",
        ("K", "synchronised every", "slow share", "slowdown"),
        ("jitter",),
    ),
    "input_stall": Term(
        "(step | input) - step; input = seconds per MB input bytes batch/hosts, or by the loader's rate; "
        "at least input bytes batch/storage rate",
        ("input bytes per sample", "batch", "accelerators per node", "loader rate", "storage rate"),
        ("input_s",),
    ),
    "serial": Term(
        "serial time + stalls: declared per step, whatever K is (of whole runs that were measured, + start/steps)",
        ("serial time", "stalls"),
        ("start_s",),
    ),
}  # fmt: skip
