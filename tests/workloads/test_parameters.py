"""Counts of single parts against hand calculations, and how they grow."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.workloads.parameters import (
    Dimensions,
    attention_parameters,
    count,
    dimensions,
    mamba_parameters,
    mlp_parameters,
)

SMALL = Dimensions(
    hidden=64, vocab=100, attention_layers=2, heads=4, kv_heads=2, head_dim=16, mlp_layers=2, ffn=256, norms=5
)


def test_grouped_queries_save_on_keys_and_values() -> None:
    full = attention_parameters(replace(SMALL, kv_heads=4))
    assert full == 4 * 64 * 64
    assert attention_parameters(SMALL) == full - 2 * 64 * 2 * 16


def test_biases_and_query_norms_add_vectors() -> None:
    bare = attention_parameters(SMALL)
    assert attention_parameters(replace(SMALL, qkv_bias=True)) - bare == 64 + 2 * 2 * 16
    assert attention_parameters(replace(SMALL, output_bias=True)) - bare == 64
    assert attention_parameters(replace(SMALL, qk_norm=32)) - bare == 32


def test_latent_attention_with_and_without_query_rank() -> None:
    latent = replace(SMALL, kv_lora_rank=8, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12)
    keys = 64 * (8 + 6) + 8 + 8 * 4 * (10 + 12)
    output = 4 * 12 * 64
    assert attention_parameters(latent) == 64 * 4 * 16 + keys + output
    assert attention_parameters(replace(latent, q_lora_rank=20)) == 64 * 20 + 20 + 20 * 64 + keys + output


def test_mlp_gate_is_a_third_matrix() -> None:
    assert mlp_parameters(8, 32, gated=False) == 2 * 8 * 32
    assert mlp_parameters(8, 32, gated=True) == 3 * 8 * 32
    assert mlp_parameters(8, 32, gated=True, bias=True) == 3 * 8 * 32 + 64 + 8


def test_mamba_layer_by_hand() -> None:
    d = Dimensions(hidden=16, mamba_heads=4, mamba_head_dim=8, mamba_state=5, mamba_groups=2)
    inner, states = 32, 20
    expected = 16 * (64 + states + 4) + 5 * (inner + states) + 12 + inner + inner * 16
    assert mamba_parameters(d) == expected


def test_idle_experts_are_not_active() -> None:
    mixture = replace(SMALL, mlp_layers=0, moe_layers=2, experts=8, top_k=2, moe_ffn=32, gated=True)
    found = count(mixture)
    assert found.total - found.active == 6 * 3 * 64 * 32 * 2
    assert found.router == 2 * 64 * 8
    shared = count(replace(mixture, shared_ffn=64, shared_gate=True))
    assert shared.total - found.total == 2 * (3 * 64 * 64 + 64)


def test_latent_experts_work_at_the_narrow_width() -> None:
    mixture = replace(SMALL, moe_layers=1, experts=4, top_k=1, moe_ffn=32, moe_latent=16)
    found = count(mixture)
    assert found.experts == 4 * 2 * 16 * 32
    assert found.router == 64 * 4 + 2 * 64 * 16


def test_tied_embeddings_are_counted_once() -> None:
    assert count(SMALL).total - count(replace(SMALL, tied=True)).total == 64 * 100


def test_decoder_of_two_towers_attends_twice() -> None:
    towers = replace(SMALL, cross_attention_layers=1)
    assert count(towers).total - count(SMALL).total == attention_parameters(SMALL)


@given(
    hidden=st.sampled_from([64, 128, 256]),
    layers=st.integers(1, 8),
    vocab=st.integers(1, 5000),
    gated=st.booleans(),
    experts=st.sampled_from([0, 4, 8]),
)
def test_count_grows_with_every_size(hidden: int, layers: int, vocab: int, gated: bool, experts: int) -> None:
    def total(**changes: int) -> int:
        sizes = {"hidden": hidden, "layers": layers, "heads": 4, "ffn": 4 * hidden, "vocab": vocab}
        mixture = {"experts": experts, "top_k": 2, "moe_ffn": hidden, "gated_mlp": gated}
        found = dimensions(SimpleNamespace(kind="decoder-transformer", **(sizes | mixture | changes)))
        assert found is not None
        return count(found).total

    here = total()
    assert total(layers=layers + 1) > here
    assert total(vocab=vocab + 1) == here + 2 * hidden
    assert total(max_positions=10) == here + 10 * hidden
    assert total(hidden=2 * hidden) > here


@pytest.mark.parametrize(
    "stated",
    [
        {"kind": "convnet"},
        {"kind": "decoder-transformer", "hidden": 64, "layers": 2},
        {"kind": "diffusion", "hidden": 64, "layers": 2, "heads": 4, "ffn": 256},
        {"kind": "vision-transformer", "hidden": 64, "layers": 2, "heads": 4, "ffn": 256},
    ],
)
def test_too_little_stated_gives_none(stated: dict[str, object]) -> None:
    assert dimensions(SimpleNamespace(**stated)) is None
