"""Operations: what one training sample asks of a machine, before any layout; `counting` makes them from a workload.

All amounts are per *sample* (a sequence, an image, ...) and for one forward pass unless the name says
otherwise. Matrix products keep their exact shapes as *slots* so that the step model can cut them by tensor,
expert and context parallelism; everything else is a handful of totals. A slot multiplies a
``(rows, inner)`` activation with an ``(inner, outer)`` weight:

    FLOP = 2 * rows * inner * outer          (1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.constants import ATTENTION_PASSES
from perfmodel.specs.workload import TRANSFORMER_KINDS as TRANSFORMER_KINDS

Array = NDArray[np.float64]


class Split(IntEnum):
    """How tensor and expert parallelism cut a slot's weight."""

    NONE = 0
    COLUMN = 1  # outer / tp
    ROW = 2  # inner / tp
    EXPERT = 3  # experts spread over ep ranks, tokens routed


LANGUAGE_KINDS = frozenset({"decoder-transformer", "moe-transformer", "hybrid-mamba-transformer"})

# Framework classes that round the vocabulary up, so that every rank has a multiple of eight logits (Megatron-LM: of 128).
PADS_VOCABULARY = frozenset({"megatron_core", "megatron_eager", "xla"})


@dataclass(frozen=True, slots=True)
class Operations:
    """Numbers of one workload at one sequence length, or of many stacked along a trailing axis.

    Slot arrays have shape ``(slots,)`` or ``(slots, n)``; all others ``()`` or ``(n,)``.
    """

    # matrix products
    slot_inner: Array
    slot_outer: Array
    slot_count: Array  # products of this shape in the whole model
    slot_rows: Array  # rows per token
    slot_split: Array  # a Split
    slot_experts: Array  # weights that the rows are spread over (1 for dense slots)
    slot_last: Array  # 1 where only the last pipeline stage holds it (logits)
    # transformer totals
    tokens: Array  # tokens per sample
    hidden: Array
    layers: Array  # blocks that pipeline stages may divide
    heads: Array
    attention_flop: Array
    score_elements: Array  # attention probabilities per sample, all heads and layers
    least_score_bytes: Array  # of one of them that is written out, whatever the precision
    kv_width: Array  # key plus value width per token, for context parallelism
    kv_heads: Array  # that tensor parallelism can cut; beyond, ranks hold copies; 0 where there are none
    attention_layers: Array
    hidden_traffic: Array  # bytes per sample at 2 B per element, not cut by tensor parallelism
    inner_traffic: Array  # the same, cut by tensor parallelism
    logit_elements: Array
    logit_width: Array  # logits of a token in one product; 0 where their number is round whatever cuts it
    # everything that is neither a slot nor attention
    other_flop: Array
    conv3x3_flop: Array  # of them, in dense 3x3 convolutions of stride 1 in two dimensions
    other_traffic: Array  # bytes forward at 2 B per element
    kernels: Array  # kernel launches of a forward pass
    # parameters
    params: Array
    block_params: Array  # in the layers, cut by tp and pp
    expert_params: Array  # in routed experts, cut by ep and pp
    embedding_params: Array  # word embeddings, on the first and last stage
    table_params: Array  # recommender tables, spread over all devices
    trainable_fraction: Array
    experts: Array
    top_k: Array
    moe_layers: Array
    routed_width: Array  # elements of a token that travel to its experts: the hidden width, or the latent one
    # memory
    activation_elements: Array  # kept for the backward pass, without recompute, non-transformers
    kept_hidden: (
        Array  # of a transformer, the same: elements that tensor parallelism cuts with the norms alone
    )
    kept_inner: Array  # elements that it always cuts
    given_hidden: Array  # of these, what products keep for the gradients of their own weights alone
    given_inner: Array
    widest_inner: Array  # elements whose gradients exist at once, of the widest layer
    layer_weights: Array  # of the widest layer, one of each shape
    first_dense_layers: Array  # before the first layer with experts; 0 where these are spread evenly
    # input and serial
    input_bytes: Array
    serial_s: Array
    is_transformer: Array
    masked: Array  # attention that a mask hides, against what it leaves

    def forward_flop(self) -> Array:
        """FLOP of one forward pass of one sample."""
        slots = 2.0 * self.tokens * self.slot_rows * self.slot_inner * self.slot_outer * self.slot_count
        return np.asarray(slots.sum(axis=0) + self.attention_flop + self.other_flop)

    def model_flop(self) -> Array:
        """FLOP of forward and backward of one sample as utilisation counts them: thrice the forward pass, nothing repeated.

        Frozen weights need no weight gradient.
        """
        slots = 2.0 * self.tokens * self.slot_rows * self.slot_inner * self.slot_outer * self.slot_count
        return np.asarray(3.0 * self.forward_flop() - (1.0 - self.trainable_fraction) * slots.sum(axis=0))

    def training_flop(self) -> Array:
        """FLOP of forward and backward; frozen weights need no weight gradient."""
        slots = 2.0 * self.tokens * self.slot_rows * self.slot_inner * self.slot_outer * self.slot_count
        frozen = 1.0 - self.trainable_fraction
        return np.asarray(
            slots.sum(axis=0) * (3.0 - frozen)
            + ATTENTION_PASSES * self.attention_flop
            + 3.0 * self.other_flop
        )


SLOT_FIELDS = tuple(f.name for f in fields(Operations) if f.name.startswith("slot_"))


def stack(items: Sequence[Operations]) -> Operations:
    """Many workloads along a trailing axis; missing slots are empty (count 0, shape 1).

    Parameters
    ----------
    items : operations with scalar numbers.

    Returns
    -------
    Operations whose arrays have one entry for each.

    >>> from perfmodel.physics.examples import transformer
    >>> stack([transformer(), transformer()]).tokens.tolist()
    [1024.0, 1024.0]
    """
    n_slots = max((item.slot_count.shape[0] for item in items), default=0)
    columns: dict[str, Array] = {}
    for field in fields(Operations):
        if field.name in SLOT_FIELDS:
            fill = 1.0 if field.name in ("slot_inner", "slot_outer", "slot_experts") else 0.0
            table = np.full((n_slots, len(items)), fill)
            for column, item in enumerate(items):
                values = getattr(item, field.name)
                table[: values.shape[0], column] = values
            columns[field.name] = table
        else:
            columns[field.name] = np.array([float(getattr(item, field.name)) for item in items])
    return Operations(**columns)


def take(operations: Operations, index: NDArray[np.intp]) -> Operations:
    """Stacked operations at the given positions (one workload may serve many points).

    Parameters
    ----------
    operations : stacked.
    index : positions on the last axis.

    Returns
    -------
    Operations of those positions.

    >>> from perfmodel.physics.examples import transformer
    >>> take(stack([transformer()]), np.array([0, 0])).layers.tolist()
    [2.0, 2.0]
    """
    return Operations(**{f.name: getattr(operations, f.name)[..., index] for f in fields(Operations)})
