"""Memory of a layout, and whether the layout can run at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.exchanges import copies_of_kv_heads
from perfmodel.physics.layouts import EAGER_LOGIT_BYTES, FUSED_LOGIT_BYTES, Layouts, Sharding
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations
from perfmodel.physics.state_bytes import (
    RESERVED_BYTES,
    chunks_alive,
    state_bytes,
    transformer_activation_bytes,
)
from perfmodel.specs.layout import MISSING_LAYERS

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

CONV_KEPT = 2.2  # saved tensors per layer output: the output, its normalised copy, part of the activation
BUFFER_BYTES = (
    2.0  # of a weight's gradient on its way to where gradients are added up, and of a gathered weight
)
SUMMED_BYTES = 4.0  # of a gradient that is added up whole (torch's fsdp: to_accumulated_grad_if_needed)
GATHERED_LAYERS = 2.0  # whose sharded weights are whole at once: the one at work and the next
# Of a logit, where torch's own loss is cut over tensor-parallel ranks: its backward pass adds the exponential to the gradient
# and multiplies, each in a tensor of its own (torch/distributed/tensor/parallel/loss.py).
CUT_LOSS_BYTES = 4.0
# Of torch's pipelines on the first stages, beyond what is counted: six published runs of one model (torchtitan's tables 5 and 6)
# hold 5 to 22 % more, and differ by 15 % where the count is the same. The cause is not known; this factor is from these runs.
PIPELINE_MORE = 0.11
KEPT_LOGIT_BYTES = (
    2.0  # of a logit that torch's pipeline keeps, of every micro-batch, to hand them back after the step
)

SELECTIVE_LEAST = 0.5  # of the activations, where some modules are repeated and nobody says which (assumed)
ROUGH_COUNT = 0.5  # of the activations of a network that is no transformer, that may not be there (assumed)

MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "reserved")

# Of 15 runs whose allocator was read (validation/measured/memory.csv), the caching allocator reserved 1.8 to 8.2 % more than
# the tensors took at their peak. The context and the communication buffers of a device take from half to some three GB.
FRAGMENTED = 1.08
RESERVED_RANGE = (0.5e9, 3.0e9)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per device by part, and how many of them may not be there."""

    parts: dict[str, Array]
    doubt: Array

    @property
    def total(self) -> Array:
        """Bytes per device."""
        return _sum(self.parts)

    @property
    def allocated(self) -> Array:
        """Bytes of tensors at their peak, as an allocator reports them: no context, no communication buffers."""
        return self.total - self.parts["reserved"]

    @property
    def low(self) -> Array:
        """Bytes per device that a run surely needs."""
        return self.total - self.doubt

    @property
    def high(self) -> Array:
        """Bytes per device with a fragmented allocator and large communication buffers."""
        return np.asarray(self.allocated * FRAGMENTED + RESERVED_RANGE[1])


def _sum(parts: dict[str, Array]) -> Array:
    return np.asarray(sum(parts.values(), np.zeros(())))


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
    parts = _stage(ops, machine, at, schedule, last=False)
    if np.any(at.pp > 1.0):
        # Of a pipeline either the first stage is the fullest, with its micro-batches, or the last, with the logits.
        final = _stage(ops, machine, at, schedule, last=True)
        fuller = _sum(final) > _sum(parts)
        parts = {name: np.where(fuller, final[name], parts[name]) for name in MEMORY_PARTS}
    return Memory(parts, _doubt(ops, at, parts))


def _doubt(ops: Operations, at: Layouts, parts: dict[str, Array]) -> Array:
    """Bytes that may not be there: what another setting of the software saves where nobody stated one, and rough counts.

    A narrower gradient, a loss that is one kernel, fused norms, buffers that are freed; modules whose activations are
    repeated beside attention. Of 43 measured families of detection, diffusion and recommendation whose whole batch exceeds
    the device by the count of their activations (by 59 % in the median), 83 % ran it whole.
    """
    fused = np.where(at.selective > 0.0, SELECTIVE_LEAST, 1.0) / at.kept_factor
    kept = np.where(ops.is_transformer > 0, fused, 1.0 - ROUGH_COUNT)
    loss = np.minimum(FUSED_LOGIT_BYTES / at.logit_bytes, 1.0)
    return np.asarray(
        parts["activations"] * (1.0 - kept)
        + parts["logits"] * (1.0 - loss)
        + parts["gradients"] * at.open_gradient
        + parts["buffers"]
        + RESERVED_BYTES
        - RESERVED_RANGE[0]
    )


def _stage(
    ops: Operations, machine: Machine, at: Layouts, schedule: str | None, *, last: bool
) -> dict[str, Array]:
    """Bytes of a device of the first or the last pipeline stage, by part."""
    layers, experts, words = _held(ops, at, last)
    share = layers / np.maximum(ops.layers, 1.0)
    copied = ops.hidden * ops.kv_width * ops.attention_layers * (copies_of_kv_heads(ops, at) - 1.0)
    dense = (ops.block_params + copied) * share / at.tp, words / at.tp
    routed = ops.expert_params * experts / at.expert_ranks + ops.table_params / at.k
    sharded, whole, states = _states(ops, machine, at, dense, routed)
    # A share that nobody states is believed only where memory asks for it (`training.given`): it frees what it can.
    repeat = np.where(np.isnan(at.recompute), 1.0, at.recompute)
    # Fused attention keeps no scores, so that repeating it alone frees nothing.
    repeat = np.where(at.selective > 0.0, 0.0, repeat)
    batch, width = at.micro_batch / at.cp, machine.element_bytes
    alive = chunks_alive(at.pp, at.vpp, at.accumulation, last=last)
    if schedule == "gpipe":
        alive = np.where(at.pp > 1.0, at.accumulation, 1.0)
    # A product with narrow weights is a function of its own, which keeps its input (bitsandbytes' MatMul4Bit); of a product
    # with frozen weights in full width only the weights are kept.
    narrow = np.where(at.frozen_bytes > 0.0, 1.0, 0.0)
    # PyTorch's own tensor parallelism keeps the whole sequence that it gathered for a product; Megatron gathers it again.
    torch = at.logit_bytes >= EAGER_LOGIT_BYTES
    once = np.where(at.sequence_parallel > 0.0, at.tp, 1.0)
    gathered = np.where(torch, ops.given_hidden * (1.0 - 1.0 / once), 0.0)
    kept = transformer_activation_bytes(
        batch * (ops.kept_hidden * at.kept_factor + ops.given_hidden * narrow),
        batch * (ops.kept_inner * at.kept_factor + ops.given_inner * narrow),
        batch * ops.tokens * ops.hidden * ops.layers * (1.0 - at.offloaded_activations),
        tp=at.tp,
        sequence_parallel=at.sequence_parallel,
        recompute=repeat,
        element_bytes=width,
    ) + batch * gathered * width * (1.0 - repeat)
    # With full recomputation one layer is unfolded at a time; a share of it lies between all and nothing.
    layer = (ops.kept_hidden / once + ops.kept_inner / at.tp) * at.kept_factor + gathered
    unfolded = repeat * batch * layer * width / np.maximum(ops.layers, 1.0)
    logits = _at_the_loss(ops, machine, at, batch, last=last)
    # The loss is done before the first layer is unfolded, and, where nothing is added up, before there is any gradient.
    none_yet = np.where(sharded & ~whole & (at.accumulation <= 1.0), states[1], 0.0)
    once_a_time = np.minimum(logits, unfolded + none_yet)
    unfolded, states[1] = (
        unfolded - np.minimum(once_a_time, unfolded),
        states[1] - np.maximum(once_a_time - unfolded, 0.0),
    )
    elements = at.micro_batch * ops.activation_elements * CONV_KEPT * (1.0 - 0.8 * repeat)
    other = elements * width / (at.pp * at.tp) * np.minimum(at.pp, at.accumulation)
    activations = np.where(ops.is_transformer > 0, kept * share * alive + unfolded, other)
    passing = batch * ops.widest_inner / at.tp * width
    # PyTorch's pipeline has a buffer for what each micro-batch receives, and keeps what the stage made of those in flight.
    handed = batch * ops.tokens * ops.hidden * width / once * (at.accumulation + alive)
    held = sum(states, np.zeros(())) + activations + logits
    more = 0.0 if last else PIPELINE_MORE
    passing = passing + np.where(torch & (at.pp > 1.0), handed + more * held, 0.0)
    return dict(
        zip(
            MEMORY_PARTS,
            (
                *states,
                activations,
                logits,
                passing + _buffers(ops, at, sharded, whole),
                RESERVED_BYTES + np.zeros(()),
            ),
            strict=True,
        )
    )


def _at_the_loss(ops: Operations, machine: Machine, at: Layouts, batch: Array, *, last: bool) -> Array:
    """Bytes at the loss: logits, what is computed of them, and what only PyTorch's own parallelism keeps beside them."""
    torch = at.logit_bytes >= EAGER_LOGIT_BYTES
    cut = torch & (at.tp > 1.0)
    each = at.logit_bytes + np.where(cut, CUT_LOSS_BYTES, 0.0)
    elements = batch * ops.logit_elements / at.tp
    # The last product is given the whole sequence, and keeps it for the gradient of its weights.
    gathered = np.where(cut, batch * ops.tokens * ops.hidden * machine.element_bytes, 0.0)
    stages = at.pp > 1.0
    every = np.where(torch & stages, at.accumulation * elements * KEPT_LOGIT_BYTES, 0.0)
    found = elements * each + gathered + every
    return np.asarray(found if last else np.where(stages, 0.0, found))


def _held(ops: Operations, at: Layouts, last: bool) -> tuple[Array, Array, Array]:
    """Of the first or the last stage: its layers, the share of all experts, and the word embeddings."""
    stages = at.pp > 1.0
    full = np.ceil(ops.layers / at.pp)
    missing = np.minimum(full * at.pp - ops.layers, MISSING_LAYERS)
    layers = np.where(stages, np.maximum(full - (missing >= (2.0 if last else 1.0)), 1.0), ops.layers)
    mixed = np.maximum(ops.layers - ops.first_dense_layers, 1.0)
    experts = np.minimum(layers if last else np.maximum(layers - ops.first_dense_layers, 0.0), mixed) / mixed
    out = np.minimum((ops.slot_inner * ops.slot_outer * ops.slot_last).sum(axis=0), ops.embedding_params)
    rest = ops.embedding_params - out
    # One matrix for both ends is there twice.
    one = out if last else np.where(rest > 0.5 * out, rest, out)
    return layers, experts, np.where(stages, one, ops.embedding_params)


def _states(
    ops: Operations, machine: Machine, at: Layouts, dense: tuple[Array, Array], routed: Array
) -> tuple[Mask, Mask, list[Array]]:
    """(where weights are sharded, where they stay whole all the same, [weights, gradients, optimizer])."""
    group = at.dp * at.cp
    kind = at.sharding
    sharded = np.asarray((kind == Sharding.FSDP) | (kind == Sharding.HSDP))
    cut = (kind >= Sharding.ZERO1) & (kind != Sharding.PARAMETER_SERVER)
    gradients = sharded | (kind == Sharding.ZERO2)
    ranks = np.minimum(at.shard_group, group)
    # A pipeline gathers the weights of its stage, and scatters their gradients, once a step: both stay whole.
    whole = np.asarray(sharded & (at.pp > 1.0))
    totals = [np.zeros(()), np.zeros(()), np.zeros(())]
    blocks, words = dense
    # Embeddings and logits keep the type of the training where other frozen weights are narrow.
    for count, size, apart, frozen in (
        (blocks, ranks, ~whole, at.frozen_bytes),
        (words, ranks, ~whole, 0.0),
        (routed, at.expert_copies, True, at.frozen_bytes),
    ):
        found = state_bytes(
            count,
            trainable_fraction=ops.trainable_fraction,
            weight_bytes=machine.element_bytes,
            weight_shards=np.where(sharded & apart, size, 1.0),
            gradient_shards=np.where(gradients & apart, size, 1.0),
            optimizer_shards=np.where(cut, size, 1.0),
            # Those that FSDP adds up over micro-batches, before it scatters them, are in 32 bit.
            gradient_bytes=np.maximum(
                at.gradient_bytes,
                np.where(
                    np.logical_not(apart), SUMMED_BYTES, np.where(gradients, 0.0, at.held_gradient_bytes)
                ),
            ),
            optimizer_bytes=at.optimizer_bytes,
            frozen_bytes=frozen,
        )
        totals = [total + part for total, part in zip(totals, found, strict=True)]
    weights, grads, optimizer = totals
    here = [weights * (1.0 - at.offloaded_parameters), grads, optimizer * (1.0 - at.offloaded_optimizer)]
    return sharded, whole, here


def _buffers(ops: Operations, at: Layouts, sharded: Mask, whole: Mask) -> Array:
    """Gradients of a layer's weights before they are added to the others, and sharded weights while they are whole.

    A product writes the gradient of a weight before it is added to the main one; where it adds by itself, Transformer
    Engine hands an unused one of each shape to the framework, and keeps it. Weights that are gathered layer by layer are
    whole for the layer at work and the next, and so is a layer's gradient, in 32 bit, before it is scattered.
    """
    gathers = sharded & ~whole
    layer = (ops.block_params + ops.expert_params / at.expert_ranks * at.tp) / np.maximum(ops.layers, 1.0)
    passing = np.where(gathers, layer * (BUFFER_BYTES * GATHERED_LAYERS + 4.0 * ops.trainable_fraction), 0.0)
    return np.asarray((ops.layer_weights * BUFFER_BYTES * ops.trainable_fraction + passing) / at.tp)
