"""Operations against the parameter count: every weight that multiplies is used once for each token."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics.constants import MASKED_SHARE
from perfmodel.physics.counting import operations
from perfmodel.physics.operations import TRANSFORMER_KINDS, stack, take
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.workload import Workload
from perfmodel.workloads.parameters import count, dimensions, mlp_parameters

CATALOG = Catalog.default()


def two_towers(**changes: object) -> Workload:
    stated = {
        "name": "towers",
        "kind": "encoder-decoder-transformer",
        "sample": "sequence",
        "layers": 5,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "hidden": 256,
        "heads": 8,
        "head_dim": 64,  # wider than hidden / heads, as in T5 11B
        "ffn": 1024,
        "gated_mlp": True,
        "vocab": 1000,
        "seq_len": 128,
        "tied_embeddings": True,
        "causal": True,
    }
    return Workload.model_validate(stated | changes)


def test_linear_work_is_twice_the_active_weights() -> None:
    """Over the zoo, within 4 %: pooler, patches and transforms of small encoders are not modelled."""
    checked = 0
    for name in CATALOG.names("workloads"):
        workload = CATALOG.get("workloads", name)
        stated = dimensions(workload)
        counted = workload.kind in TRANSFORMER_KINDS and workload.sample != "token"
        if stated is None or not counted or workload.decoder_seq_len:
            continue
        ops, parts = operations(workload.model_copy(update={"memory_len": None})), count(stated)
        linear = float(ops.forward_flop() - ops.attention_flop - ops.other_flop)
        projected = MASKED_SHARE if workload.kind == "encoder-transformer" else 1.0
        head = projected * stated.hidden * (workload.projected_vocab or stated.vocab)
        weights = parts.active - parts.embedding - parts.norm - parts.head + head
        assert linear == pytest.approx(2 * float(ops.tokens) * weights, rel=0.04), name
        checked += 1
    assert checked > 200


def test_memory_is_attended_to_and_projected_again() -> None:
    """Transformer-XL: queries of s tokens look at m more, keys and values of which are projected in every segment."""
    workload = CATALOG.get("workloads", "transformer-xl-base")
    plain = operations(workload.model_copy(update={"memory_len": None}))
    back = operations(workload)
    assert workload.memory_len == workload.seq_len == 192
    # Half of s^2 and all of s m, with a second score for relative positions: (0.5 + 1) 3 against 0.5 2.
    assert float(back.attention_flop) == pytest.approx(4.5 * float(plain.attention_flop))
    assert float(plain.masked) == 1.0
    assert float(back.masked) == pytest.approx(1 / 3)
    qkv = 2 * 192 * 512 * 3 * 512 * 16
    linear = [float(ops.forward_flop() - ops.attention_flop) for ops in (back, plain)]
    assert linear[0] - linear[1] == pytest.approx(qkv)


def test_an_adaptive_softmax_projects_on_less() -> None:
    whole = operations(CATALOG.get("workloads", "transformer-xl-base"))
    less = operations(CATALOG.get("workloads", "transformer-xl-base-adaptive"))
    assert float(less.params) == float(whole.params)
    assert float(whole.logit_elements) == 192 * 267735
    saved = float(whole.forward_flop() - less.forward_flop())
    assert saved == pytest.approx(2 * 512 * float(whole.logit_elements - less.logit_elements))


def test_logits_are_as_many_as_words_unless_somebody_rounds_them() -> None:
    workload = CATALOG.get("workloads", "llama3-8b").model_copy(update={"vocab": 50257})
    assert float(operations(workload).logit_width) == 50257
    assert float(operations(workload, pads_vocabulary=True).logit_width) == 0
    adaptive = workload.model_copy(update={"projected_vocab": 10001})
    assert float(operations(adaptive).logit_width) == 0


def test_a_gate_moves_more_than_an_activation_and_less_than_two() -> None:
    """Three widths forward and five backward, where an activation alone has two and three."""
    gated = CATALOG.get("workloads", "llama3-8b")
    plain = gated.model_copy(update={"gated_mlp": False, "params": None})
    attention = 5.2 * 8192 * 4096 * 32
    of_mlp = [float(operations(w).inner_traffic) - attention for w in (plain, gated)]
    assert of_mlp[0] == pytest.approx(5.2 * 8192 * 14336 * 32)
    assert of_mlp[1] / of_mlp[0] == pytest.approx(8 / 5)


def test_tokens_travel_to_their_experts_in_the_latent_width() -> None:
    """A mixture with a latent projects tokens down before it routes them (Nemotron 3: 1024 of 4096)."""
    latent = CATALOG.get("workloads", "nemotron3-super")
    wide = latent.model_copy(update={"moe_latent": None})
    assert float(operations(latent).routed_width) == latent.moe_latent == 1024
    assert float(operations(wide).routed_width) == latent.hidden == 4096


def test_a_causal_mask_halves_attention() -> None:
    workload = CATALOG.get("workloads", "llama3-8b")
    both = operations(workload.model_copy(update={"causal": False}), 2048)
    back = operations(workload, 2048)
    assert float(both.attention_flop) == 2 * float(back.attention_flop) == 4 * 32 * 2048**2 * 4096


def test_two_towers_count_their_own_tokens() -> None:
    ops = operations(two_towers(decoder_seq_len=32))
    attention = 4 * 256 * 8 * 64
    block = attention + mlp_parameters(256, 1024, gated=True)
    encoder = 128 * 3 * block
    decoder = 32 * 2 * block
    cross = 2 * (32 * attention / 2 + 128 * attention / 2)
    logits = 32 * 256 * 1000
    linear = float(ops.forward_flop() - ops.attention_flop)
    assert linear == pytest.approx(2 * (encoder + decoder + cross + logits))
    scores = 3 * 128**2 + 2 * (0.5 * 32**2 + 32 * 128)
    assert float(ops.attention_flop) == pytest.approx(4 * 8 * 64 * scores)
    assert float(ops.logit_elements) == 32 * 1000


def test_equal_lengths_need_no_decoder_length() -> None:
    assert (
        operations(two_towers()).forward_flop() == operations(two_towers(decoder_seq_len=128)).forward_flop()
    )


def test_a_token_that_states_its_work_is_taken_at_its_word() -> None:
    workload = CATALOG.get("workloads", "transformer-big")
    assert workload.sample == "token"
    assert float(operations(workload).forward_flop()) == workload.flop_per_sample_forward


@pytest.mark.parametrize("name", ["deepseek-v3", "mixtral-8x7b", "nemotron3-nano", "llama3-8b"])
def test_parameters_are_shared_out_completely(name: str) -> None:
    ops = operations(CATALOG.get("workloads", name))
    assert float(ops.block_params + ops.expert_params + ops.embedding_params) == pytest.approx(
        float(ops.params), rel=1e-9
    )


def test_stacking_changes_no_element() -> None:
    names = ("llama3-8b", "deepseek-v3", "resnet50", "t5-3b")
    single = [operations(CATALOG.get("workloads", name)) for name in names]
    together = stack(single)
    flops = [float(item.forward_flop()) for item in single]
    np.testing.assert_allclose(together.forward_flop(), flops, rtol=1e-12)
    np.testing.assert_allclose(take(together, np.array([3, 0])).forward_flop(), [flops[3], flops[0]])


def test_masked_language_models_project_masked_tokens_only() -> None:
    def logits(kind: str) -> float:
        model = Workload.model_validate(
            {"name": "x", "kind": kind, "sample": "sequence", "layers": 2, "hidden": 64, "heads": 1, "ffn": 256,
             "vocab": 1000, "seq_len": 512, "params": 1e6}
        )  # fmt: skip
        return float(operations(model).logit_elements)

    assert logits("decoder-transformer") == 512 * 1000
    assert logits("encoder-transformer") == pytest.approx(80 * 1000, rel=0.01)


def test_share_of_3x3_convolutions_of_resnet_50():
    """Layer by layer: bottlenecks of 3, 4, 6 and 3 blocks, the stride in the first 3x3 of a stage (v1.5)."""
    rows = ((56, 64, 3), (28, 128, 3), (14, 256, 5), (7, 512, 2))  # side, width, blocks of stride 1
    flop = sum(2 * 9 * width**2 * side**2 * blocks for side, width, blocks in rows)
    ops = operations(CATALOG.get("workloads", "resnet50"))
    assert float(ops.conv3x3_flop) == pytest.approx(flop, rel=2e-3)
    assert float(ops.conv3x3_flop) < float(ops.other_flop)


@pytest.mark.parametrize(
    ("stated", "share"),
    [
        ({"document_len": 512}, 1 / 16),  # 16 documents of 512: 16 squares of 1/256
        ({"document_len": 100_000}, 1.0),
        ({"attention_window": 2048}, 2 / 4 - 1 / 16),  # a causal band less the corner that is not there
        ({"attention_window": 2048, "window_layers": 16}, (1 + 2 / 4 - 1 / 16) / 2),
        ({"attention_window": 512, "document_len": 512}, 1 / 16),  # a window as wide as its document
        ({"attention_window": 2048, "causal": False}, 2 * 1 / 4),  # both ways: no mask halves it
    ],
)
def test_documents_and_windows_leave_a_share_of_attention(stated: dict[str, object], share: float) -> None:
    """8,192 tokens of Llama 3 8B; kernels without fused attention compute what they mask, so much more."""
    workload = CATALOG.get("workloads", "llama3-8b")
    whole, less = operations(workload, 8192), operations(workload.model_copy(update=stated), 8192)
    assert float(less.attention_flop) == pytest.approx(share * float(whole.attention_flop))
    assert float(less.attention_flop * (1 + less.masked)) == pytest.approx(
        float(whole.attention_flop * (1 + whole.masked))
    )
    assert float(less.score_elements) == float(whole.score_elements)


def test_a_generic_workload_is_a_third_forward() -> None:
    stated = {"name": "w", "kind": "generic", "params": 1e6, "flop_per_sample": 6e9, "bytes_per_sample": 3e6}
    found = operations(Workload.model_validate(stated))
    assert float(found.other_flop) == 2e9
    assert float(found.other_traffic) == 1e6
    assert float(found.params) == 1e6
