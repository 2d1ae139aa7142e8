"""The one step model: operations, a machine, layouts and coefficients in; named parts of the step time out.

It serves predictions (a few K, many draws), searches (millions of layouts), calibration (inside an optimiser)
and audits alike. Every argument is a struct of arrays that broadcast against each other; an element of the
result depends on nothing but the same element of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.models.fabric import soft_max
from perfmodel.models.stragglers import expected_max_factor
from perfmodel.predict.coefficients import Coefficients
from perfmodel.predict.communication import (
    Links,
    context_parallel,
    data_parallel,
    expert_parallel,
    local_parameters,
    pipeline_messages,
    tensor_parallel,
)
from perfmodel.predict.compute import host_stall, micro_batch
from perfmodel.predict.layouts import Layouts, Sharding
from perfmodel.predict.machine import Machine
from perfmodel.workloads.operations import Operations

Array = NDArray[np.float64]

OPTIMIZER_BYTES = (
    34.0  # per parameter: gradient, master weight and two moments read, three of them written, norm
)

PARTS: tuple[str, ...] = (
    "compute",
    "host",
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_messages",
    "imbalance",
    "bubble",
    "sharded_weights",
    "data_parallel",
    "optimizer",
    "contention",
    "synchronisation",
    "straggler",
    "input_stall",
    "serial",
)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds per part (they sum to `time_s`) and communication that compute hides."""

    parts: dict[str, Array]
    hidden_s: Array

    @property
    def time_s(self) -> Array:
        """Time of one optimizer step [s]."""
        return np.asarray(sum(self.parts.values(), np.zeros(())))


def step(ops: Operations, machine: Machine, at: Layouts, c: Coefficients) -> Step:
    """Compose the parts of one step.

    With m micro-batches, p stages, v virtual stages and t the time of one micro-batch on an average stage,

        T = m (t + t_last) + (p - 1) t / v + exchange + optimizer + waiting        (1)

    where t is a rounded max of device and host time plus exposed tensor, context and expert communication.
    """
    links = Links(machine, at, c)
    mb = micro_batch(ops, machine, at, c)
    tensor = tensor_parallel(ops, at, links, mb.repeated)
    context = context_parallel(ops, at, links, mb.repeated)
    expert = expert_parallel(ops, at, links, mb.repeated)
    busy = mb.device + tensor + context + expert
    stall = host_stall(busy, mb.host) + c.micro_s
    exchange = data_parallel(ops, at, links)
    # A pipeline keeps its stage's weights between micro-batches and gathers them once a step.
    gathers = exchange.shards * np.where(at.pp > 1.0, 1.0 / at.accumulation, 1.0)
    visible = soft_max(busy + stall, gathers) - (busy + stall)
    shards = visible + c.shard_cost * np.minimum(busy + stall, gathers)
    p2p = pipeline_messages(ops, at, links)

    m = at.accumulation
    last = mb.last * np.where(at.pp > 1.0, c.last_stage, 1.0)
    stage = busy + stall + shards + p2p
    bubble = (at.pp - 1.0) * (stage + mb.last / at.pp) / at.vpp * c.bubble

    # The exchange of gradients hides behind the last backward pass; a part of it never does.
    # The backward pass lasts as long as whatever paces it, the host included: two thirds of the micro-batch.
    depth = np.where(at.pp > 1.0, np.minimum(at.vpp, m), 1.0)
    window = np.minimum(c.dp_overlap, 1.0) * (busy + stall + last) * depth * 0.66
    late = exchange.gradients - window
    rounded = 0.5 * (late + np.sqrt(late * late + np.square(0.2 * exchange.gradients)))
    nodes = np.maximum(at.k / at.per_node, 1.0)
    crossed = np.minimum(nodes - 1.0, 1.0)
    never = np.minimum(np.where(crossed > 0.0, c.net_exposed, c.dp_exposed), 1.0)
    gradients = np.maximum(never * exchange.gradients, np.minimum(rounded, exchange.gradients))

    dense, routed = local_parameters(ops, at)
    sharded = np.where(
        at.sharding >= Sharding.ZERO1,
        np.where(at.sharding >= Sharding.FSDP, at.shard_group, at.dp * at.cp),
        1.0,
    )
    sharded = np.where(at.sharding == Sharding.PARAMETER_SERVER, 1.0, sharded)
    owned = dense / sharded + routed / np.where(
        at.sharding >= Sharding.ZERO1, np.maximum(at.k / (at.ep * at.pp), 1.0), 1.0
    )
    optimizer = (
        OPTIMIZER_BYTES
        * c.optimizer
        * owned
        * ops.trainable_fraction
        / (machine.memory_bytes_per_s * c.memory)
    )

    work = m * (busy + last)
    half = 0.5 * machine.node
    second_half = np.clip((at.per_node - half) / half, 0.0, 1.0)
    parallel = np.where(at.dp * at.cp > 1.0, 1.0, 0.0)
    log_nodes, log_k = np.log2(nodes), np.log2(at.k)
    contention = work * (
        parallel * (c.dp_on + c.half_node * second_half + c.local * np.log2(at.per_node))
        + c.crossing * crossed
        + c.doubling * log_nodes
    )
    synchronisation = parallel * c.sync_s * log_k + c.node_sync_s * log_nodes
    parts = {
        "compute": m * (mb.device + last) + np.zeros_like(at.k),
        "host": m * stall + c.step_s,
        "tensor_parallel": m * tensor,
        "context_parallel": m * context,
        "expert_parallel": m * expert,
        "pipeline_messages": m * p2p,
        "imbalance": np.zeros(()),
        "bubble": bubble,
        "sharded_weights": m * shards,
        "data_parallel": gradients,
        "optimizer": optimizer,
        "contention": contention,
        "synchronisation": synchronisation,
    }
    running = sum(parts.values(), np.zeros(()))
    parts["straggler"] = running * (expected_max_factor(at.k, c.jitter) - 1.0)
    running = running + parts["straggler"]
    feed = c.input_s * 1e-6 * ops.input_bytes * at.global_batch / nodes
    parts["input_stall"] = soft_max(running, feed) - running
    parts["serial"] = ops.serial_s + np.zeros(())
    # Logits and loss on one stage of many leave the others waiting: name that waiting.
    waiting = m * last * np.where(at.pp > 1.0, 1.0 - 1.0 / at.pp, 0.0)
    parts["compute"] = parts["compute"] - waiting
    parts["imbalance"] = waiting
    hidden = exchange.gradients - gradients + m * np.maximum(gathers - shards, 0.0)
    return Step({name: np.asarray(parts[name]) for name in PARTS}, np.asarray(hidden))
