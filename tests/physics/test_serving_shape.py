"""A decoder in the numbers of a serving step, counted by hand from its dimensions."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.physics.serving_shape import ServingShape, is_served, serving_shape, stack
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.workload import Workload

#: Width, heads, heads of keys and values, feed-forward, words, layers: all different, so that none stands for another.
H, A, KV, F, V, L = 1536, 12, 3, 5000, 32_000, 20
WIDTH = H // A


def of(**more: Any) -> ServingShape:
    common = {"name": "x", "kind": "decoder-transformer", "layers": L, "hidden": H, "heads": A, "kv_heads": KV,
              "ffn": F, "vocab": V, "params": 10**9}  # fmt: skip
    return serving_shape(Workload.model_validate(common | more))


def numbers(shape: ServingShape, *names: str) -> list[float]:
    return [float(getattr(shape, name)) for name in names]


@pytest.mark.parametrize(("gated", "matrices"), [(True, 3), (False, 2)])
def test_a_dense_decoder(gated: bool, matrices: int) -> None:
    shape = of(gated_mlp=gated)
    attention = H * H + 2 * H * KV * WIDTH + H * H
    assert float(shape.dense_params) == L * (attention + matrices * H * F)
    assert numbers(shape, "logit_params", "params") == [H * V, 1e9]
    assert (
        numbers(shape, "whole_params", "expert_params", "moe_layers", "linear_layers", "latent_layers")
        == [0] * 5
    )
    assert numbers(shape, "layers", "attention_layers", "mlp_layers", "hidden") == [L, L, L, H]
    assert numbers(shape, "cache_elements", "window_elements", "cache_heads") == [2 * KV * WIDTH * L, 0.0, KV]
    # A score and a sum of values, each a multiplication and an addition for every head's width.
    assert numbers(shape, "prompt_pair_flop", "decode_pair_flop") == [4 * H * L] * 2
    assert numbers(shape, "prompt_window_flop", "decode_window_flop", "state_bytes") == [0.0] * 3


def test_layers_with_a_window_keep_no_more_than_it() -> None:
    shape = of(attention_window=700, window_layers=15)
    assert float(shape.window) == 700.0
    assert numbers(shape, "cache_elements", "window_elements") == [2 * KV * WIDTH * 5, 2 * KV * WIDTH * 15]
    assert numbers(shape, "prompt_pair_flop", "prompt_window_flop") == [4 * H * 5, 4 * H * 15]
    assert numbers(shape, "decode_pair_flop", "decode_window_flop") == [4 * H * 5, 4 * H * 15]
    everywhere = of(attention_window=700)
    assert numbers(everywhere, "cache_elements", "window_elements") == [0.0, 2 * KV * WIDTH * L]


def test_routed_experts_are_apart_from_the_router_that_every_rank_repeats() -> None:
    shape = of(kind="moe-transformer", experts=16, top_k=3, moe_ffn=640, gated_mlp=True, params=3 * 10**9)
    assert float(shape.expert_params) == L * 16 * 3 * H * 640
    assert float(shape.whole_params) == L * H * 16
    assert float(shape.dense_params) == L * (2 * H * H + 2 * H * KV * WIDTH)
    assert numbers(shape, "experts", "top_k", "moe_layers", "mlp_layers", "routed_width") == [16, 3, L, 0, H]


def test_latent_attention_keeps_one_vector_a_token_and_decodes_in_it() -> None:
    rank, rope, nope, value = 256, 32, 96, 64
    shape = of(kv_lora_rank=rank, qk_rope_head_dim=rope, qk_nope_head_dim=nope, v_head_dim=value, kv_heads=A)
    assert numbers(shape, "cache_elements", "cache_heads", "latent_layers") == [(rank + rope) * L, 1.0, L]
    assert float(shape.prompt_pair_flop) == 2 * A * (nope + rope + value) * L
    assert float(shape.decode_pair_flop) == 2 * A * (rank + rope + rank) * L


def test_recurrent_layers_keep_a_state_and_no_tokens() -> None:
    catalog = Catalog.default()
    workload = catalog.get("workloads", "nemotron-h-56b")
    shape = serving_shape(workload)
    heads, size, state = workload.mamba_heads, workload.mamba_head_dim, workload.mamba_state
    assert heads
    assert size
    assert state
    assert workload.mamba_layers
    assert float(shape.state_bytes) == 4.0 * workload.mamba_layers * heads * size * state
    assert numbers(shape, "linear_layers", "mlp_layers") == [workload.mamba_layers, workload.mlp_layers or 0]
    width = workload.head_dim or workload.hidden / workload.heads
    assert float(shape.cache_elements) == 2 * workload.kv_heads * width * float(shape.attention_layers)


def test_only_decoders_with_dimensions_are_served() -> None:
    catalog = Catalog.default()
    assert [is_served(catalog.get("workloads", name)) for name in ("llama3-8b", "resnet50")] == [True, False]
    with pytest.raises(ValueError, match="no decoder with dimensions"):
        serving_shape(catalog.get("workloads", "resnet50"))


def test_models_stand_beside_each_other_in_their_order() -> None:
    few, many = of(), of(layers=2 * L)
    both = stack([few, many])
    assert both.layers.tolist() == [L, 2 * L]
    assert both.dense_params.tolist() == [float(few.dense_params), 2 * float(few.dense_params)]
