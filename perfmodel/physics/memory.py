"""Memory of a layout, and whether the layout can run at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.exchanges import local_parameters
from perfmodel.physics.layouts import Layouts, Sharding
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations
from perfmodel.physics.state_bytes import (
    RESERVED_BYTES,
    layers_alive,
    state_bytes,
    transformer_activation_bytes,
)

Array = NDArray[np.float64]

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

    >>> from types import SimpleNamespace
    >>> float(room(SimpleNamespace(memory_bytes=80e9), 0.05)) / 1e9
    76.0
    """
    return np.asarray(machine.memory_bytes * (1.0 - headroom))


def memory(ops: Operations, machine: Machine, at: Layouts, *, schedule: str | None = None) -> Memory:
    """Memory of the fullest device, element by element; `schedule` gpipe keeps every micro-batch alive."""
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
    # A share that nobody states is believed only where memory asks for it (`training.given`): it frees what it can.
    repeat = np.where(np.isnan(at.recompute), 1.0, at.recompute)
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
