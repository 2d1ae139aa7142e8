"""Memory per device: weights, gradients, optimizer states, activations, logits and buffers. Bytes.

References: Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054) for the sharding of states; Korthikanti et al. 2022
(arXiv:2205.05198), table 2, for activations under tensor and sequence parallelism and recomputation; Narayanan et
al. 2021 (arXiv:2104.04473) for the micro-batches that a pipeline stage keeps alive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.exchanges import local_parameters
from perfmodel.physics.layouts import Layouts, Sharding
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations

Array = NDArray[np.float64]

RESERVED_BYTES = 1.2e9  # driver context, libraries' workspaces and communication buffers
CONV_KEPT = 2.2  # saved tensors per layer output: the output, its normalised copy, part of the activation
LOGIT_BYTES = 6.0  # 16-bit logits and their 32-bit softmax

ROUGH_COUNT = 0.5  # of the activations of a network that is no transformer, that may not be there (assumed)

MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "reserved")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per device by part."""

    parts: dict[str, Array]

    @property
    def total(self) -> Array:
        """Bytes per device."""
        return np.asarray(sum(self.parts.values(), np.zeros(())))

    def least(self, is_transformer: Array) -> Array:
        """Bytes per device that a run surely needs: of networks whose activations are a rough count, half of these.

        Of 43 measured families of detection, diffusion and recommendation whose whole batch exceeds the device by this
        count (by 59 % in the median), 83 % ran it whole.
        """
        doubt = np.where(is_transformer > 0, 0.0, ROUGH_COUNT)
        return np.asarray(self.total - doubt * self.parts["activations"])


# Share of a device's memory that a layout found by a search leaves free, for fragmentation and what a run adds to its
# steady state (assumed; a stated layout may fill the device).
HEADROOM = 0.05


def room(machine: Machine, headroom: float) -> Array:
    """Bytes of a device that a layout may take when a share of it stays free.

    Parameters
    ----------
    machine : devices.
    headroom : share that stays free.

    Returns
    -------
    Bytes of a device.

    >>> from types import SimpleNamespace
    >>> float(room(SimpleNamespace(memory_bytes=80e9), 0.05)) / 1e9
    76.0
    """
    return np.asarray(machine.memory_bytes * (1.0 - headroom))


def memory(ops: Operations, machine: Machine, at: Layouts, *, schedule: str | None = None) -> Memory:
    """Memory of the fullest device, element by element; `schedule` gpipe keeps every micro-batch alive.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    machine : devices.
    at : layouts (`physics.layouts`).
    schedule : order of the passes of a pipeline.

    Returns
    -------
    Bytes of a device by part.

    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts
    >>> found = memory(transformer(), node(), layouts(8, global_batch=8, accelerators_per_node=8))
    >>> float(found.parts["weights"]) == 2 * float(transformer().params)
    True
    """
    dense, routed = local_parameters(ops, at)
    routed = routed + ops.table_params / at.k
    group = at.dp * at.cp
    kind = at.sharding
    sharded = (kind == Sharding.FSDP) | (kind == Sharding.HSDP)
    states = (kind >= Sharding.ZERO1) & (kind != Sharding.PARAMETER_SERVER)
    gradients = sharded | (kind == Sharding.ZERO2)
    ranks = np.minimum(at.shard_group, group)
    # A pipeline gathers the weights of its stage, and scatters their gradients, once a step: both stay whole.
    whole = sharded & (at.pp > 1.0)
    totals = [np.zeros(()), np.zeros(()), np.zeros(())]
    for count, size, apart in ((dense, ranks, ~whole), (routed, at.expert_copies, True)):
        found = state_bytes(
            count,
            trainable_fraction=ops.trainable_fraction,
            weight_bytes=machine.element_bytes,
            weight_shards=np.where(sharded & apart, size, 1.0),
            gradient_shards=np.where(gradients & apart, size, 1.0),
            optimizer_shards=np.where(states, size, 1.0),
            gradient_bytes=at.gradient_bytes,
        )
        totals = [total + part for total, part in zip(totals, found, strict=True)]
    repeat = np.where(np.isnan(at.recompute), 0.0, at.recompute)
    # Fused attention keeps no scores, so that repeating it alone frees nothing.
    repeat = np.where(at.selective > 0.0, 0.0, repeat)
    tokens = at.micro_batch * ops.tokens / at.cp
    layer = transformer_activation_bytes(
        tokens,
        ops.hidden,
        ops.ffn_width,
        tp=at.tp,
        sequence_parallel=at.sequence_parallel,
        recompute=repeat,
        element_bytes=machine.element_bytes,
    )
    alive = layers_alive(ops.layers, at.pp, at.vpp, at.accumulation)
    if schedule == "gpipe":
        alive = ops.layers / at.pp * np.where(at.pp > 1.0, at.accumulation, 1.0)
    # With full recomputation one layer is unfolded at a time; a share of it lies between all and nothing.
    unfolded = repeat * tokens * ops.hidden * 34.0 / at.tp * machine.element_bytes / 2.0
    elements = at.micro_batch * ops.activation_elements * CONV_KEPT * (1.0 - 0.8 * repeat)
    other = elements * machine.element_bytes / (at.pp * at.tp) * np.minimum(at.pp, at.accumulation)
    activations = np.where(ops.is_transformer > 0, layer * alive + unfolded, other)
    logits = at.micro_batch * ops.logit_elements / (at.cp * at.tp) * LOGIT_BYTES
    values = (*totals, activations, logits, RESERVED_BYTES + np.zeros(()))
    return Memory(dict(zip(MEMORY_PARTS, values, strict=True)))


def state_bytes(
    params: ArrayLike,
    *,
    trainable_fraction: ArrayLike,
    weight_bytes: ArrayLike,
    weight_shards: ArrayLike,
    gradient_shards: ArrayLike,
    optimizer_shards: ArrayLike,
    gradient_bytes: ArrayLike = 0.0,
) -> tuple[Array, Array, Array]:
    """(weights, gradients, optimizer) of `params` parameters held by one device.

    Mixed-precision Adam keeps a 16-bit weight, a 16-bit gradient and 12 bytes of master weight and moments; in 32
    bit the weight is its own master and the moments take 8 bytes. A gradient is as wide as its weight, or as
    `gradient_bytes` where that is wider.

    Parameters
    ----------
    params : parameters of the device before sharding.
    trainable_fraction : share of them that is trained.
    weight_bytes : of a weight [B].
    weight_shards, gradient_shards, optimizer_shards : ranks that share each.
    gradient_bytes : of a gradient [B], where wider than a weight.

    Returns
    -------
    Bytes of weights, gradients and optimizer states.

    >>> w, g, o = state_bytes(1e9, trainable_fraction=1, weight_bytes=2, weight_shards=1, gradient_shards=1,
    ...                       optimizer_shards=8)
    >>> float(w / 1e9), float(g / 1e9), float(o / 1e9)
    (2.0, 2.0, 1.5)
    """
    count, width = np.asarray(params, float), np.asarray(weight_bytes, float)
    trained = count * np.asarray(trainable_fraction, float)
    states = np.where(width > 2.0, 8.0, 12.0)
    return (
        np.asarray(count * width / weight_shards),
        np.asarray(trained * np.maximum(width, gradient_bytes) / gradient_shards),
        np.asarray(trained * states / optimizer_shards),
    )


def transformer_activation_bytes(
    tokens: ArrayLike,
    hidden: ArrayLike,
    ffn_width: ArrayLike,
    *,
    tp: ArrayLike,
    sequence_parallel: ArrayLike,
    recompute: ArrayLike,
    element_bytes: ArrayLike = 2.0,
) -> Array:
    """Activations of one layer and micro-batch kept for the backward pass.

    .. math:: s b h \\left(10 + \\frac{8 + 4 f / h}{t}\\right) \\frac{w}{2} \\quad\\text{or}\\quad 2 s b h \\frac{w}{2}
        \\text{ with full recomputation}                                                     (1)

    With sequence parallelism the first term is divided by t as well. Fused attention keeps no score matrix.
    With f = 4h and t = 1 this is 34 s b h.

    Parameters
    ----------
    tokens : s b, of a micro-batch on a context rank.
    hidden : h, width of the model.
    ffn_width : f, width of the feed-forward layer.
    tp : t, tensor ranks.
    sequence_parallel : 1 where norms are cut too.
    recompute : share of the forward pass that is repeated.
    element_bytes : w, of an element [B].

    Returns
    -------
    Bytes of one layer and micro-batch.

    >>> float(transformer_activation_bytes(1.0, 1.0, 4.0, tp=1, sequence_parallel=1, recompute=0.0))
    34.0
    """
    t = np.asarray(tp, float)
    sbh = np.asarray(tokens, float) * np.asarray(hidden, float) * np.asarray(element_bytes, float) / 2.0
    ratio = np.asarray(ffn_width, float) / np.asarray(hidden, float)
    common = np.where(np.asarray(sequence_parallel, float) > 0, 10.0 / t, 10.0)
    kept = common + (8.0 + 4.0 * ratio) / t
    boundary = np.where(np.asarray(sequence_parallel, float) > 0, 2.0 / t, 2.0)
    share = np.clip(np.asarray(recompute, float), 0.0, 1.0)
    return np.asarray(sbh * (kept * (1.0 - share) + boundary * share))


def layers_alive(layers: ArrayLike, pp: ArrayLike, vpp: ArrayLike, micro_batches: ArrayLike) -> Array:
    """Layers times micro-batches whose activations the first stage holds under 1F1B.

    One stage keeps min(p, m) micro-batches of L/p layers; interleaving adds (p - 1)/(p v).

    Parameters
    ----------
    layers : L, of the model.
    pp : p, pipeline stages.
    vpp : v, virtual stages of a device.
    micro_batches : m, of a step.

    Returns
    -------
    Layers times micro-batches.

    >>> float(layers_alive(32, 4, 1, 16)), float(layers_alive(32, 1, 1, 16))
    (32.0, 32.0)
    """
    p, v = np.asarray(pp, float), np.asarray(vpp, float)
    alive = np.minimum(p, np.asarray(micro_batches, float))
    interleaving = np.where(v > 1.0, 1.0 + (p - 1.0) / (p * v), 1.0)
    return np.asarray(np.asarray(layers, float) / p * alive * interleaving)
