"""A language model in the numbers that a serving step reads: weights by who holds them, and what a token keeps.

The matrix products are those of `perfmodel.physics.counting`; here they are summed by how tensor and expert
parallelism cut them, so that a step costs the same few operations whatever the model. Weights of a product are read once
a step and do ``2 n`` FLOP each for n tokens; keys and values are read for every sequence that decodes.

References: Pope et al. 2022 (arXiv:2211.05102) for the arithmetic of inference; DeepSeek-V2 (arXiv:2405.04434) for
latent attention, whose decode works in the latent space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.counting import operations
from perfmodel.physics.operations import LANGUAGE_KINDS, Split
from perfmodel.specs.workload import Workload

Array = NDArray[np.float64]

STATE_BYTES = 4.0  # of an element of a recurrent state, which stays in 32 bit


@dataclass(frozen=True, slots=True)
class ServingShape:
    """One model, or many along a trailing axis. Counts are of the whole model."""

    params: Array
    dense_params: Array  # in products that tensor parallelism cuts: attention, dense and shared feed-forward
    whole_params: Array  # in products that every rank repeats: routers, latent projections
    expert_params: Array  # in routed experts
    logit_params: Array  # of the product that makes logits
    layers: Array
    attention_layers: Array
    mlp_layers: Array  # dense feed-forward blocks
    moe_layers: Array
    linear_layers: Array
    latent_layers: Array
    hidden: Array
    routed_width: Array
    experts: Array
    top_k: Array
    cache_elements: Array  # keys and values of a token in the layers that look at everything
    window_elements: Array  # the same in layers with a window
    window: Array  # tokens that those look back
    cache_heads: Array  # by which tensor parallelism cuts keys and values; 1 for latent attention
    state_bytes: Array  # of a sequence in recurrent layers
    prompt_pair_flop: (
        Array  # attention of one token to one other in a prompt, all layers that look at everything
    )
    prompt_window_flop: Array  # the same in layers with a window
    decode_pair_flop: Array  # attention of a decoding token to one token of its past
    decode_window_flop: Array


def serving_shape(workload: Workload) -> ServingShape:
    """The numbers of a decoder: dense, mixture of experts, or hybrid with recurrent layers.

    Parameters
    ----------
    workload : its spec, with dimensions.

    Returns
    -------
    Scalars; `stack` makes arrays of many.

    >>> from perfmodel.physics.examples import decoder
    >>> llama = decoder()
    >>> round(float(llama.params) / 1e9, 2), float(llama.cache_elements)  # 2 x 8 heads x 128 x 32 layers
    (8.03, 65536.0)
    """
    if not is_served(workload):
        raise ValueError(f"{workload.name or workload.kind} is no decoder with dimensions")
    ops = operations(workload, 1)
    weights = ops.slot_inner * ops.slot_outer * ops.slot_count
    split, last = ops.slot_split, ops.slot_last > 0
    logits = float(weights[last].sum())
    cut = np.isin(split, (Split.COLUMN, Split.ROW)) & ~last
    layers = float(ops.attention_layers)
    is_windowed = bool(workload.attention_window)
    windowed = min(float(workload.window_layers or layers), layers) if is_windowed else 0.0
    heads = float(ops.heads)
    latent = bool(workload.kv_lora_rank)
    score, value = _pair_widths(workload, heads)
    prompt_flop = 2.0 * (score + value)
    rank, rope = float(workload.kv_lora_rank or 0), float(workload.qk_rope_head_dim or 0)
    decode_flop = 2.0 * heads * (2.0 * rank + rope) if latent else prompt_flop
    mamba = float(workload.mamba_layers or 0)
    state = mamba * float(workload.mamba_heads or 0) * float(workload.mamba_head_dim or 0)
    numbers = {
        "params": float(ops.params),
        "dense_params": float(weights[cut].sum()),
        "whole_params": float(weights[(split == Split.NONE) & ~last].sum()),
        "expert_params": float(ops.expert_params),
        "logit_params": logits,
        "layers": float(ops.layers),
        "attention_layers": layers,
        "mlp_layers": float(workload.mlp_layers or 0) if mamba else float(ops.layers - ops.moe_layers),
        "moe_layers": float(ops.moe_layers),
        "linear_layers": mamba,
        "latent_layers": layers if latent else 0.0,
        "hidden": float(ops.hidden),
        "routed_width": float(ops.routed_width),
        "experts": float(ops.experts),
        "top_k": float(ops.top_k),
        "cache_elements": float(ops.kv_width) * (layers - windowed),
        "window_elements": float(ops.kv_width) * windowed,
        "window": float(workload.attention_window or 1),
        "cache_heads": 1.0 if latent else max(float(ops.kv_heads), 1.0),
        "state_bytes": STATE_BYTES * state * float(workload.mamba_state or 0),
        "prompt_pair_flop": prompt_flop * (layers - windowed),
        "prompt_window_flop": prompt_flop * windowed,
        "decode_pair_flop": decode_flop * (layers - windowed),
        "decode_window_flop": decode_flop * windowed,
    }
    return ServingShape(**{name: np.asarray(number) for name, number in numbers.items()})


def is_served(workload: Workload) -> bool:
    """Whether this is a decoder whose dimensions are known: only those are served token by token.

    Parameters
    ----------
    workload : its spec.

    Returns
    -------
    True or False.

    >>> from perfmodel.specs.workload import Workload
    >>> is_served(Workload(name="x", kind="convnet", params=1_000_000))
    False
    """
    return workload.kind in LANGUAGE_KINDS and workload.is_counted


def _pair_widths(workload: Workload, heads: float) -> tuple[float, float]:
    """Widths of the products of queries with keys and of scores with values, all heads together."""
    if workload.kv_lora_rank:
        score = float(workload.qk_nope_head_dim or 0) + float(workload.qk_rope_head_dim or 0)
        return heads * score, heads * float(workload.v_head_dim or workload.head_dim or 0)
    width = heads * float(workload.head_dim or float(workload.hidden or 0) / heads)
    return width, width


def stack(items: Sequence[ServingShape]) -> ServingShape:
    """Many models along a trailing axis.

    Parameters
    ----------
    items : models.

    Returns
    -------
    One struct whose arrays have the models on their last axis.

    >>> from perfmodel.physics.examples import decoder
    >>> one = decoder()
    >>> stack([one, one]).layers.tolist()
    [32.0, 32.0]
    """
    return ServingShape(
        **{f.name: np.array([float(getattr(item, f.name)) for item in items]) for f in fields(ServingShape)}
    )
