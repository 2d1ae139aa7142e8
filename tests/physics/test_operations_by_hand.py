"""Operations of small models counted by hand: every number of a dense, a routed, a latent, a hybrid and a generic one."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.physics.counting import operations
from perfmodel.physics.operations import Operations
from perfmodel.specs.workload import Workload

#: Tokens, width, heads, heads of keys and values, feed-forward, words, layers: none stands for another.
S, H, A, KV, F, V, L = 96, 240, 12, 3, 700, 1000, 10
D = H // A
HIDDEN, INNER = 26.0, 5.2  # bytes at two an element, moved by a hidden unit and by one of an activation


def of(pads: bool = False, **more: Any) -> Operations:
    common = {"name": "x", "kind": "decoder-transformer", "layers": L, "hidden": H, "heads": A, "kv_heads": KV,
              "ffn": F, "vocab": V, "seq_len": S}  # fmt: skip
    return operations(Workload.model_validate(common | more), pads_vocabulary=pads)


def check(found: Operations, **expected: float) -> None:
    told = {name: float(getattr(found, name)) for name in expected}
    assert told == pytest.approx(expected, rel=1e-12)


ATTENTION = 2 * H * H + 2 * H * KV * D  # queries and output, keys and values


@pytest.mark.parametrize(
    ("gated", "matrices", "widths", "activation"), [(True, 3, 4.0, 1.6), (False, 2, 5.0, 1.0)]
)
def test_a_dense_decoder(gated: bool, matrices: int, widths: float, activation: float) -> None:
    found = of(gated_mlp=gated, tied_embeddings=False)
    layer = ATTENTION + matrices * H * F
    products = 2.0 * S * (L * layer + H * V)
    scores = 0.5 * L * 2 * S * S * (H + H)  # a mask hides half of both products
    check(
        found, tokens=S, hidden=H, layers=L, heads=A, kv_heads=KV, kv_width=2 * KV * D, attention_layers=L,
        attention_flop=scores, score_elements=A * S * S * L, logit_elements=S * V, logit_width=V, least_score_bytes=0.0,
        params=L * layer + 2 * H * V, block_params=L * layer, embedding_params=2 * H * V, expert_params=0.0,
        trainable_fraction=1.0, kernels=14.0 * L, layer_weights=layer, moe_layers=0.0, first_dense_layers=0.0,
        hidden_traffic=HIDDEN * S * H * L, inner_traffic=INNER * S * L * (activation * F + H), input_bytes=4.0 * S,
        kept_hidden=widths * S * H * L, kept_inner=S * L * (H + 2 * KV * D + H + matrices * F),
        widest_inner=S * matrices * F, masked=1.0, other_flop=0.0, is_transformer=1.0, serial_s=0.0,
    )  # fmt: skip
    assert float(found.forward_flop()) == pytest.approx(products + scores)
    assert float(found.model_flop()) == pytest.approx(3.0 * (products + scores))
    # Fused attention makes its scores again on the way back.
    assert float(found.training_flop()) == pytest.approx(3.0 * products + 3.5 * scores)


def test_frozen_weights_need_no_gradient_of_their_own() -> None:
    rank = 6
    whole, tuned = of(), of(adapter_rank=rank, adapter_on="attention")
    trained = rank * L * ((H + H) + 2 * (H + KV * D) + (H + H))
    check(tuned, trainable_fraction=trained / float(whole.params))
    products = float(whole.forward_flop() - whole.attention_flop)
    frozen = 1.0 - trained / float(whole.params)
    assert float(tuned.model_flop()) == pytest.approx(float(whole.model_flop()) - frozen * products)
    assert float(tuned.training_flop()) == pytest.approx(float(whole.training_flop()) - frozen * products)


@pytest.mark.parametrize(
    ("on", "more", "each"),
    [
        ("query-value", {}, (H + H) + (H + KV * D)),
        ("all", {}, (H + H) + 2 * (H + KV * D) + (H + H) + 2 * (H + F)),
        ("all", {"gated_mlp": True}, (H + H) + 2 * (H + KV * D) + (H + H) + 3 * (H + F)),
        (
            None,
            {
                "kind": "moe-transformer",
                "experts": 8,
                "top_k": 2,
                "moe_ffn": 90,
                "shared_experts": 1,
                "gated_mlp": True,
            },
            (H + H) + 2 * (H + KV * D) + (H + H) + 3 * (H + 90) * 9,
        ),
    ],
)
def test_adapters_have_two_narrow_matrices_for_each_that_they_stand_beside(
    on: Any, more: dict[str, Any], each: float
) -> None:
    found = of(adapter_rank=4, **({"adapter_on": on} if on else {}), **more)
    assert float(found.trainable_fraction) * float(found.params) == pytest.approx(4 * L * each)


def test_a_mixture_of_experts() -> None:
    width, experts, top_k, shared = 90, 8, 2, 3
    found = of(
        kind="moe-transformer", gated_mlp=True, experts=experts, top_k=top_k, moe_ffn=width, shared_experts=shared,
        first_dense_layers=2, dense_ffn=F,
    )  # fmt: skip
    routed = L - 2
    router, expert, both = H * experts, 3 * H * width, 3 * H * width * shared
    active = L * ATTENTION + 2 * 3 * H * F + routed * (router + top_k * expert + both)
    assert float(found.forward_flop() - found.attention_flop) == pytest.approx(2.0 * S * (active + H * V))
    inside = L * ATTENTION + 2 * 3 * H * F + routed * (router + experts * expert + both)
    check(
        found, moe_layers=routed, first_dense_layers=2.0, expert_params=routed * experts * expert, experts=experts, top_k=top_k,
        block_params=inside - routed * experts * expert, routed_width=H,
        inner_traffic=INNER * S * (1.6 * (2 * F + routed * width * (top_k + shared)) + H * L),
        kept_inner=S * (L * (2 * H + 2 * KV * D) + 2 * 3 * F + routed * (top_k * (2 * H + 3 * width) + 3 * shared * width)),
        widest_inner=S * max(3 * F, top_k * (2 * H + 3 * width) + 3 * shared * width),
        layer_weights=ATTENTION + router + expert + both,
    )  # fmt: skip


def test_experts_in_every_other_layer_and_in_a_latent_width() -> None:
    found = of(kind="moe-transformer", experts=4, top_k=1, moe_ffn=90, moe_interval=2, moe_latent=60)
    routed = L / 2
    check(
        found,
        moe_layers=routed,
        first_dense_layers=0.0,
        routed_width=60.0,
        expert_params=routed * 4 * 2 * 60 * 90,
    )
    active = L * ATTENTION + routed * (2 * H * F + H * 4 + H * 2 * 60 + 2 * 60 * 90)
    assert float(found.forward_flop() - found.attention_flop) == pytest.approx(2.0 * S * (active + H * V))


@pytest.mark.parametrize("q_rank", [None, 50])
def test_latent_attention(q_rank: int | None) -> None:
    rank, rope, nope, value = 40, 8, 12, 16
    more = {"q_lora_rank": q_rank} if q_rank else {}
    found = of(
        kv_lora_rank=rank, qk_rope_head_dim=rope, qk_nope_head_dim=nope, v_head_dim=value, kv_heads=A, **more
    )
    query = H * A * (nope + rope) if q_rank is None else H * q_rank + q_rank * A * (nope + rope)
    attention = query + H * (rank + rope) + rank * A * (nope + value) + A * value * H
    assert float(found.forward_flop() - found.attention_flop) == pytest.approx(
        2.0 * S * (L * (attention + 2 * H * F) + H * V)
    )
    projections = 2 * A * (nope + rope) + A * nope + 2 * A * value
    check(
        found, kv_width=rank + rope, kv_heads=0.0, attention_flop=L * S * S * A * (nope + rope + value),
        kept_hidden=S * L * (5 * H + 2 * ((q_rank or 0) + rank + rope)), kept_inner=S * L * (projections + 2 * F),
        inner_traffic=INNER * S * L * (F + A * (nope + rope)),
    )  # fmt: skip


def test_a_hybrid_has_attention_feed_forward_and_state_space_layers_apart() -> None:
    heads, size, state, groups = 6, 30, 16, 2
    inner = heads * size
    found = of(
        kind="hybrid-mamba-transformer", attention_layers=2, mlp_layers=3, mamba_layers=5, mamba_heads=heads,
        mamba_head_dim=size, mamba_state=state, mamba_groups=groups,
    )  # fmt: skip
    block = H * (2 * inner + 2 * groups * state + heads) + inner * H
    active = 2 * ATTENTION + 3 * 2 * H * F + 5 * block
    scan = S * 5 * inner * (4 * state + 2 * 256)
    assert float(found.forward_flop()) == pytest.approx(
        2.0 * S * (active + H * V) + float(found.attention_flop) + scan
    )
    check(
        found, other_flop=scan, attention_layers=2.0, block_params=active, attention_flop=2 * S * S * 2 * H,
        hidden_traffic=HIDDEN * S * H * L / 2, inner_traffic=INNER * S * (3 * F + 2 * H + 5 * 2 * inner),
        kept_hidden=S * 5 * H * L / 2, kept_inner=S * (2 * (2 * H + 2 * KV * D) + 3 * 2 * F + 4 * inner * 5),
        score_elements=A * S * S * 2,
    )  # fmt: skip
    assert float(found.training_flop()) == pytest.approx(
        3.0 * (2.0 * S * (active + H * V) + scan) + 3.5 * float(found.attention_flop)
    )


def test_a_masked_model_looks_both_ways_and_projects_a_share_of_its_tokens() -> None:
    found = of(kind="encoder-transformer", scores_in_fp32=True)
    check(
        found,
        attention_flop=L * 4 * S * S * H,
        masked=0.0,
        logit_elements=0.156 * S * V,
        least_score_bytes=4.0,
    )
    assert float(of(pads=True).logit_width) == 0.0


def test_windows_and_documents_leave_a_share_of_attention() -> None:
    whole = float(of().attention_flop)
    window, document = 24, 48
    left = 2 * window / S - (window / S) ** 2
    check(of(attention_window=window), attention_flop=left * whole, masked=2.0 / left - 1.0)
    check(of(attention_window=window, window_layers=4), attention_flop=(0.4 * left + 0.6) * whole)
    check(of(document_len=document), attention_flop=0.5 * whole, masked=3.0)
    inside = 2 * window / document - (window / document) ** 2
    check(of(document_len=document, attention_window=window), attention_flop=0.5 * inside * whole)
    both_ways = of(kind="encoder-transformer", attention_window=window)
    check(both_ways, attention_flop=window / S * L * 4 * S * S * H)


def test_a_stated_count_gives_the_rest_to_the_layers_or_takes_it_from_the_words() -> None:
    counted = of()
    inside, words = float(counted.block_params), float(counted.embedding_params)
    more = of(params=int(1.1 * (inside + words)))
    check(more, embedding_params=words)
    assert float(more.block_params + more.embedding_params) == pytest.approx(float(more.params))
    narrow = of(params=int(inside + 0.4 * words))
    check(narrow, block_params=inside, embedding_params=0.4 * words)
    tied = of(tied_embeddings=True)
    assert float(tied.embedding_params) == H * V
    check(
        of(trainable_params=int(inside / 4), params=int(inside + words)),
        trainable_fraction=int(inside / 4) / int(inside + words),
    )


def generic(**more: Any) -> Operations:
    common = {"name": "x", "kind": "convnet", "params": 9_000_000, "sample": "image"}
    return operations(Workload.model_validate(common | more))


def test_a_generic_model_has_a_third_of_its_stated_work_forward() -> None:
    found = generic(
        flop_per_sample=9e9, bytes_per_sample=6e8, conv3x3_share=0.4, kernels=77, input_shape="224x200x3"
    )
    check(
        found, other_flop=3e9, other_traffic=2e8, conv3x3_flop=1.2e9, kernels=77.0, params=9e6, block_params=9e6,
        activation_elements=2e8 / 28.0, input_bytes=224 * 200 * 3, tokens=1.0, layers=1.0, is_transformer=0.0,
    )  # fmt: skip
    assert float(found.model_flop()) == 9e9
    forward = generic(flop_per_sample_forward=3e9)
    check(forward, other_flop=3e9, other_traffic=3e9 / 40.0, kernels=150.0, input_bytes=1.5e5)


def test_tables_of_a_recommender_are_beside_its_dense_weights() -> None:
    found = generic(
        kind="recommendation",
        params=10**9,
        embedding_table_params=999_000_000,
        flop_per_sample=3e6,
        bytes_per_sample=3e5,
    )
    check(found, table_params=9.99e8, block_params=1e6, params=1e9, kernels=40.0)


def test_two_towers_move_and_keep_by_the_tokens_of_each() -> None:
    """Three layers of an encoder of 96 tokens, seven of a decoder of 48 that look at both."""
    found = of(
        kind="encoder-decoder-transformer",
        encoder_layers=3,
        decoder_layers=7,
        decoder_seq_len=48,
        causal=True,
    )
    blocks = 3 + 1.5 * 0.5 * 7  # with cross attention a decoder's layer is half a block more
    check(
        found, hidden_traffic=HIDDEN * S * H * blocks, inner_traffic=INNER * S * (3 + 0.5 * 7) * (F + H),
        attention_flop=2 * S * S * 2 * H * (3 + (0.5 * 0.25 + 0.5) * 7), score_elements=A * S * S * (3 + 0.75 * 7),
        kept_hidden=S * 5 * H * blocks, logit_elements=0.5 * S * V,
    )  # fmt: skip
    alike = of(
        kind="encoder-decoder-transformer", causal=True
    )  # half of the layers in either, as many tokens
    check(
        alike, attention_flop=2 * S * S * 2 * H * (5 + 1.5 * 5), hidden_traffic=HIDDEN * S * H * (5 + 1.5 * 5)
    )
