"""A model with other dimensions has other parameters: which counts go when a dimension is changed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

# What a workload counts from its dimensions, and so states for these dimensions alone.
COUNTED: Final = ("params", "trainable_params", "params_from_dimensions")
DIMENSIONS: Final = frozenset(
    [
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_dim",
        "ffn",
        "gated_mlp",
        "vocab",
        "tied_embeddings",
        "experts",
        "shared_experts",
        "moe_ffn",
        "dense_ffn",
        "shared_expert_ffn",
        "moe_latent",
        "first_dense_layers",
        "moe_interval",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "encoder_layers",
        "decoder_layers",
        "mamba_layers",
        "mlp_layers",
        "moe_layers",
        "attention_layers",
        "mamba_heads",
        "mamba_head_dim",
        "mamba_state",
        "mamba_groups",
    ]
)


def outdated(changed: Collection[str], stated: Collection[str]) -> list[str]:
    """Of what a workload states, the counts that no longer hold when these keys of it are changed.

    >>> outdated({"layers"}, {"layers", "hidden", "params"}), outdated({"layers", "params"}, {"layers", "hidden", "params"})
    (['params'], [])
    >>> outdated({"seq_len"}, {"layers", "hidden", "params"}), outdated({"layers"}, {"params"})
    ([], [])
    """
    if not DIMENSIONS & set(changed) or not {"layers", "hidden"} <= set(stated):
        return []
    return [key for key in COUNTED if key in stated and key not in changed]


def told(changed: Collection[str]) -> str:
    """What to say of it."""
    names = ", ".join(sorted(DIMENSIONS & set(changed)))
    return f"parameters are counted from the dimensions: {names} changed, and the stated count was of others"
