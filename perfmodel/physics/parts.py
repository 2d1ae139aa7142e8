"""The parts of a step: each one's name, words, equation, inputs, activity and remedy.

`training.step` computes the seconds of each part, and they sum to the step. All else that is known of a part is here:
explanations read its formula and inputs, energy its activity, diagnosis its words and its remedy.

Symbols: m micro-batches a step, p pipeline stages, v virtual stages, K accelerators, N nodes, r the share of a forward
pass that is recomputed, P peak rate, B memory bandwidth, M bytes of a message, (x | y) the rounded maximum
(x^4 + y^4)^(1/4). The theory pages derive the equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Activity = Literal["compute", "memory", "communication", "waiting"]


@dataclass(frozen=True)
class Part:
    """One part of a step.

    Parameters
    ----------
    name : its key in results.
    words : what it is called in a sentence about a cause.
    formula : its equation in the symbols of this module.
    facts : names of the inputs that stand in the equation (keys of `decide.facts.facts`).
    beliefs : names of the coefficients that stand in it.
    activity : what an accelerator does meanwhile; decides its power.
    remedy : what shortens it in every job; empty where that depends on the job (`decide.remedies`).
    eased : factors on coefficients that stand for the remedy.
    """

    name: str
    words: str
    formula: str
    facts: tuple[str, ...]
    beliefs: tuple[str, ...]
    activity: Activity
    remedy: str
    eased: Mapping[str, float]


_NETWORK = (
    "scale-up bandwidth",
    "network bandwidth",
    "scale-up latency",
    "network latency",
    "accelerators per node",
    "scale-up domain",
)
_LINKS = ("up_efficiency", "up_step_s", "out_efficiency", "out_step_s", "base_s", "bus_bytes_per_s")
_FASTER_LINKS = {"up_efficiency": 2.0, "out_efficiency": 2.0, "bus_bytes_per_s": 2.0}

COMPUTE = Part(
    "compute",
    "arithmetic in pieces too small to run at full rate",
    "m pace (products (2 + trained + r) + attention + element-wise + other + logits); "
    "product = (2RIO/(P matmul) | V/(B memory)) + call + tail wave",
    (
        "peak rate",
        "memory bandwidth",
        "compute units",
        "FLOP per sample",
        "tokens per sample",
        "layers",
        "tp",
        "pp",
        "cp",
        "ep",
        "micro-batch",
        "accumulation",
        "recomputation",
    ),
    (
        "matmul",
        "attention",
        "unfused",
        "unaligned",
        "loss_bytes",
        "memory",
        "elementwise",
        "call_s",
        "tail",
        "other",
        "other_traffic",
        "winograd",
        "cast_bytes",
        "imbalance",
        "routing_bytes",
        "recompute",
        "pace",
        "last_stage",
    ),
    activity="compute",
    remedy="a larger batch per accelerator: small pieces of work run below the roofline",
    eased={"call_s": 0.5, "tail": 0.5},
)
HOST = Part(
    "host",
    "the host that cannot issue kernels fast enough",
    "m ((busy | host) - busy + micro) + step; host = kernels/p kernel (2.65 + r)",
    ("kernels", "accumulation", "pp", "framework"),
    ("host_kernel_s", "micro_s", "step_s"),
    activity="waiting",
    remedy="compile or capture graphs: halve the host's time per kernel",
    eased={"host_kernel_s": 0.5, "micro_s": 0.5, "step_s": 0.5},
)
TENSOR_PARALLEL = Part(
    "tensor_parallel",
    "tensor-parallel all-reduce",
    "m layers/p (4 + 2r) all_reduce(M over tp) exposed; M = tokens hidden bytes",
    (
        "tokens per sample",
        "hidden width",
        "layers",
        "tp",
        "micro-batch",
        "accumulation",
        "algorithm inside tensor groups",
        *_NETWORK,
    ),
    ("tp_exposed", *_LINKS),
    activity="communication",
    remedy="twice the bandwidth inside a tensor-parallel group, or a smaller group",
    eased=_FASTER_LINKS,
)
CONTEXT_PARALLEL = Part(
    "context_parallel",
    "context-parallel exchange of keys and values",
    "m layers/p (3 + r) all_gather(keys and values over cp) exposed",
    (
        "tokens per sample",
        "layers",
        "cp",
        "micro-batch",
        "accumulation",
        "algorithm along the sequence",
        *_NETWORK,
    ),
    ("cp_exposed", *_LINKS),
    activity="communication",
    remedy="twice the bandwidth between context-parallel ranks",
    eased=_FASTER_LINKS,
)
EXPERT_PARALLEL = Part(
    "expert_parallel",
    "expert all-to-all",
    "m moe layers/p (4 + 2r) all_to_all(tokens top_k width over ep) exposed; width = hidden, or the latent",
    (
        "tokens per sample",
        "hidden width",
        "layers",
        "ep",
        "micro-batch",
        "accumulation",
        "algorithm between experts",
        *_NETWORK,
    ),
    ("ep_exposed", *_LINKS),
    activity="communication",
    remedy="",
    eased=_FASTER_LINKS,
)
PIPELINE_MESSAGES = Part(
    "pipeline_messages",
    "pipeline messages",
    "2 m v p2p(tokens hidden bytes/tp) exposed",
    ("tokens per sample", "hidden width", "pp", "vpp", "micro-batch", "accumulation", *_NETWORK),
    ("p2p_exposed", "interleave", *_LINKS),
    activity="communication",
    remedy="twice the bandwidth between pipeline stages",
    eased=_FASTER_LINKS,
)
IMBALANCE = Part(
    "imbalance",
    "the last pipeline stage with logits and loss",
    "m logits last_stage (1 - 1/p): the other stages wait for the one with logits and loss; "
    "compute (1 - batch/(dp micro-batch m)): replicas wait for those with a sample more; "
    "work (E[max of dp] - 1): and for the longest samples, of spread length spread/sqrt(samples of a replica)",
    ("tokens per sample", "pp", "dp", "batch", "micro-batch", "accumulation", "length spread"),
    ("last_stage",),
    activity="waiting",
    remedy="",
    eased={"last_stage": 0.5},
)
BUBBLE = Part(
    "bubble",
    "the pipeline bubble",
    "(p - 1) ((stage + logits/p)/v + 2 p2p(tokens hidden bytes/tp)) bubble: the pipeline fills and drains, and nothing "
    "hides its messages then; v = (layers/p)^interleave where it is not stated",
    ("pp", "vpp", "accumulation", "tokens per sample", "hidden width", "micro-batch", *_NETWORK),
    ("bubble", "interleave", *_LINKS),
    activity="waiting",
    remedy="",
    eased={"bubble": 0.5},
)
SHARDED_WEIGHTS = Part(
    "sharded_weights",
    "gathering sharded weights",
    "m ((busy | shards) - busy + cost min(busy, shards)); shards = layers/p (2 all_gather + reduce_scatter), "
    "once a step in a pipeline",
    ("parameters", "dp", "sharding", "accumulation", "algorithm between replicas", *_NETWORK),
    ("shard_cost", *_LINKS),
    activity="communication",
    remedy="",
    eased=_FASTER_LINKS,
)
DATA_PARALLEL = Part(
    "data_parallel",
    "gradient all-reduce",
    "(max(never hidden share of exchange, exchange - overlap of the last backward pass), rounded, "
    "+ cost of compression)/synchronised every; M = parameters bytes of a gradient/compression; larger buckets add "
    "min(bucket, M)/M to what never hides, smaller ones a call each; zero2 scatters in every micro-batch",
    (
        "parameters",
        "dp",
        "sharding",
        "gradient bytes",
        "compression",
        "cost of compression",
        "synchronised every",
        "bucket",
        "first bucket",
        "algorithm between replicas",
        *_NETWORK,
    ),
    ("dp_exposed", "net_exposed", "dp_overlap", "server", *_LINKS),
    activity="communication",
    remedy="",
    eased=_FASTER_LINKS,
)
OPTIMIZER = Part(
    "optimizer",
    "the optimizer step",
    "34 optimizer parameters owned / (B memory)",
    ("parameters", "memory bandwidth", "sharding", "dp"),
    ("optimizer", "memory"),
    activity="memory",
    remedy="",
    eased={"optimizer": 0.5},
)
CONTENTION = Part(
    "contention",
    "contention for the host and the network",
    "work (on + half_node second half + local log2(K in node) + crossing [N > 1] + doubling log2 N) "
    "+ what the ranks of a host take from each other, where measured; N counts scale-up domains",
    ("accelerators per node", "scale-up domain", "K", "framework"),
    ("dp_on", "half_node", "local", "crossing", "doubling"),
    activity="memory",
    remedy="",
    eased={"dp_on": 0.5, "half_node": 0.5, "local": 0.5, "crossing": 0.5, "doubling": 0.5},
)
SYNCHRONISATION = Part(
    "synchronisation",
    "synchronisation of the workers",
    "(sync log2 K + node_sync log2 N)/synchronised every",
    ("K", "accelerators per node", "scale-up domain", "synchronised every"),
    ("sync_s", "node_sync_s"),
    activity="waiting",
    remedy="",
    eased={"sync_s": 0.5, "node_sync_s": 0.5},
)
STRAGGLER = Part(
    "straggler",
    "waiting for the slowest worker",
    "(E[max of K] (1 + (slowdown - 1)(1 - (1 - slow share)^K)) - 1) of all above; E[max of K] of the "
    "jitter's distribution, between replicas over the root of the steps from one exchange to the next",
    ("K", "synchronised every", "slow share", "slowdown", "distribution of the jitter"),
    ("jitter",),
    activity="waiting",
    remedy="",
    eased={"jitter": 0.5},
)
INPUT_STALL = Part(
    "input_stall",
    "the input pipeline",
    "(step | input) - step; input = seconds per MB input bytes batch/hosts, or by the loader's rate; "
    "at least input bytes batch/storage rate",
    ("input bytes per sample", "batch", "accelerators per node", "loader rate", "storage rate"),
    ("input_s",),
    activity="waiting",
    remedy="twice the input rate: more loader workers or faster storage",
    eased={"input_s": 0.5},
)
SERIAL = Part(
    "serial",
    "the serial part",
    "serial time + stalls: declared per step, whatever K is (of whole runs that were measured, + start/steps)",
    ("serial time", "stalls"),
    ("start_s",),
    activity="waiting",
    remedy="shorten the serial stage",
    eased={},
)

PARTS: Final = (
    COMPUTE, HOST, TENSOR_PARALLEL, CONTEXT_PARALLEL, EXPERT_PARALLEL, PIPELINE_MESSAGES, IMBALANCE, BUBBLE,
    SHARDED_WEIGHTS, DATA_PARALLEL, OPTIMIZER, CONTENTION, SYNCHRONISATION, STRAGGLER, INPUT_STALL, SERIAL,
)  # fmt: skip
NAMES: Final = tuple(part.name for part in PARTS)
BY_NAME: Final[Mapping[str, Part]] = {part.name: part for part in PARTS}
#: Parts by what the accelerator does: exchange of data, waiting for others, and work of the device itself.
TRAFFIC: Final = tuple(part.name for part in PARTS if part.activity == "communication")
WAITING: Final = tuple(part.name for part in (BUBBLE, IMBALANCE, SYNCHRONISATION, STRAGGLER))
DEVICE: Final = tuple(part.name for part in PARTS if part.activity in ("compute", "memory"))


def activity(name: str) -> str:
    """What an accelerator does during a part of the step, or during a column of a study's timings.

    Parameters
    ----------
    name : of a part or of a column.

    Returns
    -------
    One of `Activity`.

    >>> activity("optimizer"), activity("bubble"), activity("communication"), activity("idle")
    ('memory', 'waiting', 'communication', 'waiting')
    """
    if name in BY_NAME:
        return BY_NAME[name].activity
    return name if name in ("compute", "communication") else "waiting"
