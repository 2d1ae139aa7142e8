"""The one step model: operations, a machine, layouts and coefficients in; named parts of the step time out.

It serves predictions (a few K, many draws), searches (millions of layouts), calibration (inside an optimiser)
and audits alike. Every argument is a struct of arrays that broadcast against each other; an element of the
result depends on nothing but the same element of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.coefficients import Coefficients
from perfmodel.physics.compute import MicroBatch, host_stall, micro_batch
from perfmodel.physics.constants import BACKWARD_SHARE, OPTIMIZER_BYTES
from perfmodel.physics.exchanges import (
    Links,
    context_parallel,
    data_parallel,
    expert_parallel,
    local_parameters,
    pipeline_message,
    pipeline_messages,
    tensor_parallel,
)
from perfmodel.physics.exposure import exposed
from perfmodel.physics.fabric import soft_max, soft_share
from perfmodel.physics.layouts import Layouts, Sharding, uneven_stages
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations
from perfmodel.physics.parts import NAMES as PARTS
from perfmodel.physics.stragglers import expected_max_factor, variable_length_factor

Array = NDArray[np.float64]

ROUNDING = 1e-9  # a share below which replicas count as even


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds per part (they sum to `time_s`) and communication that compute hides."""

    parts: dict[str, Array]
    hidden_s: Array

    @property
    def time_s(self) -> Array:
        """Time of one optimizer step [s]."""
        return np.asarray(sum(self.parts.values(), np.zeros(())))


def _crowding(
    ops: Operations,
    machine: Machine,
    at: Layouts,
    c: Coefficients,
    alone: MicroBatch,
    slower: tuple[Array, Array] | None,
) -> tuple[Array, Array]:
    """Seconds by which a micro-batch and its logits take longer while the other ranks of a host work."""
    if slower is None:
        return np.zeros(()), np.zeros(())
    shared = replace(
        machine,
        peak_flop_per_s=machine.peak_flop_per_s / slower[0],
        peak16_flop_per_s=machine.peak16_flop_per_s / slower[0],
        plain_flop_per_s=machine.plain_flop_per_s / slower[0],
        memory_bytes_per_s=machine.memory_bytes_per_s / slower[1],
    )
    crowded = micro_batch(ops, shared, at, c)
    return crowded.device - alone.device, crowded.last - alone.last


def step(ops: Operations, machine: Machine, at: Layouts, c: Coefficients) -> Step:
    """Compose the parts of one step.

    With m micro-batches, p stages, v virtual stages and t the time of one micro-batch on an average stage,

        T = m (t + t_last) + (p - 1) (t0 / v + 2 message) + exchange + optimizer + waiting        (1)

    where t is a rounded max of device and host time plus exposed tensor, context and expert communication. Stages that
    hold unequal numbers of layers wait for the fullest, `physics.layouts.uneven_stages`.
    """
    at = interleaved(ops, at, c)
    links = Links(machine, at, c)
    mb = micro_batch(ops, machine, at, c)
    tensor = tensor_parallel(ops, at, links, mb.repeated)
    context = context_parallel(ops, at, links, mb.repeated)
    routed = expert_parallel(ops, at, links, mb.repeated)
    # Of a neighbouring micro-batch, where the job says that it runs under this one's compute.
    beside = mb.device + tensor + context
    under = at.expert_hidden > 0.0
    expert = np.where(under, soft_max(beside, routed) - beside, routed) if under.any() else routed
    own = beside + expert
    slower = machine.crowded(at.per_node)
    taken, taken_last = _crowding(ops, machine, at, c, mb, slower)
    # Whatever waits for compute, or hides behind it, meets it as slow as it is among neighbours.
    busy = own + taken
    stall = host_stall(busy, mb.host) + c.micro_s
    exchange = data_parallel(ops, at, links)
    # A pipeline keeps its stage's weights between micro-batches and gathers them once a step.
    gathers = exchange.shards * np.where(at.pp > 1.0, 1.0 / at.accumulation, 1.0)
    visible = soft_max(busy + stall, gathers) - (busy + stall)
    hosts = np.maximum(at.k / at.per_node, 1.0)
    # Scale-up links may join many hosts (a rack of NVLink, a torus): the network begins at their edge.
    nodes = np.maximum(hosts * machine.node / machine.domain, 1.0)
    # What a link cannot hide, where that was measured, slows compute down or shows.
    unhidden = 1.0 - np.where(
        nodes > 1.0, np.minimum(machine.up_overlap, machine.out_overlap), machine.up_overlap
    )
    shards = visible + np.maximum(c.shard_cost, unhidden) * np.minimum(busy + stall, gathers)
    message = pipeline_message(ops, at, links)
    p2p = pipeline_messages(at, message, c.p2p_exposed)

    m = at.accumulation
    slowest = np.where(at.pp > 1.0, c.last_stage, 1.0)
    own_last = mb.last * slowest
    last = own_last + taken_last * slowest
    stage = busy + stall + shards + p2p
    # While the pipeline fills and drains, nothing hides its messages.
    idle = (stage - p2p + (mb.last + taken_last) / at.pp) / at.vpp + 2.0 * message
    bubble = (at.pp - 1.0) * idle * c.bubble

    # The exchange of gradients hides behind the last backward pass; a part of it never does.
    # The backward pass lasts as long as whatever paces it, the host included.
    depth = np.where(at.pp > 1.0, np.minimum(at.vpp, m), 1.0)
    window = soft_share(c.dp_overlap) * (busy + stall + last) * depth * BACKWARD_SHARE
    crossed = np.minimum(nodes - 1.0, 1.0)
    never = soft_share(np.where(crossed > 0.0, c.net_exposed, c.dp_exposed))
    gradients = exposed(exchange, at, window, never, unhidden)

    dense, of_experts = local_parameters(ops, at)
    sharded = np.where(at.sharding >= Sharding.ZERO1, np.minimum(at.shard_group, at.dp * at.cp), 1.0)
    sharded = np.where(at.sharding == Sharding.PARAMETER_SERVER, 1.0, sharded)
    owned = dense / sharded + of_experts / np.where(at.sharding >= Sharding.ZERO1, at.expert_copies, 1.0)
    optimizer = (
        OPTIMIZER_BYTES
        * c.optimizer
        * owned
        * ops.trainable_fraction
        / (machine.memory_bytes_per_s * c.memory)
    )

    # The fullest stage of an uneven pipeline paces all of them.
    fuller = uneven_stages(ops.layers, at.pp) * ops.is_transformer * m * (busy + stall)

    work = m * (own + own_last)
    half = 0.5 * machine.node
    second_half = np.clip((at.per_node - half) / half, 0.0, 1.0)
    parallel = np.where(at.dp * at.cp > 1.0, 1.0, 0.0)
    log_nodes, log_k = np.log2(nodes), np.log2(at.k)
    # Replicas that do not meet do not wait for each other: side by side they lose nothing (Transformer-XL in the
    # corpus, 1 to 16 cards without an exchange, within 1 %).
    whole = at.k <= at.dp * machine.domain
    across = np.where(whole, 1.0 / at.sync_every, 1.0)
    contention = work * (
        parallel / at.sync_every * (c.dp_on + c.half_node * second_half + c.local * np.log2(at.per_node))
        + across * (c.crossing * crossed + c.doubling * log_nodes)
    )
    if slower is not None:
        contention = contention + m * (taken + taken_last * slowest) + optimizer * (slower[1] - 1.0)
    synchronisation = (parallel * c.sync_s * log_k + c.node_sync_s * log_nodes) / at.sync_every
    parts = {
        "compute": m * (mb.device + own_last) + np.zeros_like(at.k),
        "host": m * stall + c.step_s,
        "tensor_parallel": m * tensor,
        "context_parallel": m * context,
        "expert_parallel": m * expert,
        "pipeline_messages": m * p2p,
        "imbalance": _uneven_lengths(at, work) + fuller,
        "bubble": bubble,
        "sharded_weights": m * shards,
        "data_parallel": gradients.shown,
        "optimizer": optimizer,
        "contention": contention,
        "synchronisation": synchronisation,
    }
    running = sum(parts.values(), np.zeros(()))
    parts["straggler"] = running * (_slowest(at, c) - 1.0)
    running = running + parts["straggler"]
    parts["input_stall"] = soft_max(running, _input(ops, at, c, hosts)) - running
    parts["serial"] = ops.serial_s + at.stall_s + c.start_s / at.run_steps
    # Logits and loss on one stage of many leave the others waiting, and so do replicas that got a sample more than
    # others: name that waiting.
    waiting = m * own_last * np.where(at.pp > 1.0, 1.0 - 1.0 / at.pp, 0.0)
    busy_s = parts["compute"] - waiting
    spare = busy_s * _uneven_replicas(at)
    parts["compute"] = busy_s - spare
    parts["imbalance"] = parts["imbalance"] + waiting + spare
    hidden = gradients.hidden + m * (np.maximum(gathers - shards, 0.0) + routed - expert)
    return Step({name: np.asarray(parts[name]) for name in PARTS}, np.asarray(hidden))


def interleaved(ops: Operations, at: Layouts, c: Coefficients) -> Layouts:
    """Layouts with the believed virtual stages where their number is not stated."""
    unsaid = np.isnan(at.vpp)
    if not unsaid.any():
        return at
    believed = np.maximum(ops.layers / at.pp, 1.0) ** np.minimum(c.interleave, 1.0)
    return replace(at, vpp=np.where(unsaid, believed, at.vpp))


def _uneven_replicas(at: Layouts) -> Array:
    """Share of its work that the mean replica lacks against the fullest: ``1 - batch/(dp micro_batch accumulation)``."""
    lacking = 1.0 - at.global_batch / (at.dp * at.micro_batch * at.accumulation)
    return np.where(lacking > ROUNDING, lacking, 0.0)


def _uneven_lengths(at: Layouts, work: Array) -> Array:
    """Waiting for the replica with the longest samples: ``work (E[max of dp] - 1)``.

    A replica's share of a step is a sum over its samples, whose spread falls with the root of their number.
    """
    if not at.length_spread.any():
        return np.zeros(())
    samples = np.maximum(at.global_batch / at.dp, 1.0)
    return np.asarray(work * (variable_length_factor(at.dp, at.length_spread, samples) - 1.0))


def _slowest(at: Layouts, c: Coefficients) -> Array:
    """Step of the slowest of K over that of one: jitter of the step, and devices that are always slow.

    Replicas that meet every n steps wait for sums over n steps, of spread ``jitter/sqrt(n)``; the ranks inside a
    replica still wait for each other in every step. A share f of devices slower by a factor s lengthens the step by
    ``1 + (s - 1)(1 - (1 - f)^K)``, the limit of `physics.stragglers.expected_max_with_slow_devices` for s - 1 above
    the jitter.
    """
    factor = expected_max_factor(at.k, c.jitter)
    if (at.sync_every > 1.0).any():
        replica = np.maximum(at.k / at.dp, 1.0)
        levels = expected_max_factor(at.dp, c.jitter / np.sqrt(at.sync_every)) * expected_max_factor(
            replica, c.jitter
        )
        factor = np.where(at.sync_every > 1.0, np.minimum(factor, levels), factor)
    if at.slow_share.any():
        any_slow = 1.0 - np.power(1.0 - at.slow_share, at.k)
        factor = factor * (1.0 + (at.slowdown - 1.0) * any_slow)
    return np.asarray(factor)


def _input(ops: Operations, at: Layouts, c: Coefficients, hosts: Array) -> Array:
    """Seconds in which the input of a step arrives: by the belief, or by the rates that the job declares."""
    feed = c.input_s * 1e-6 * ops.input_bytes * at.global_batch / hosts
    if np.isfinite(at.loader_bytes_per_s).any() or np.isfinite(at.storage_bytes_per_s).any():
        step_bytes = ops.input_bytes * at.global_batch
        declared = step_bytes / hosts / at.loader_bytes_per_s
        feed = np.maximum(
            np.where(np.isfinite(at.loader_bytes_per_s), declared, feed), step_bytes / at.storage_bytes_per_s
        )
    return np.asarray(feed)
