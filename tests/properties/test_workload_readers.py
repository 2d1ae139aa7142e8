"""Whatever a config holds, the reader returns a workload or says what is wrong; it never falls over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import Problem, SpecError
from perfmodel.workloads.from_hf import HfWorkload, parse_config
from perfmodel.workloads.hf_families import FAMILIES

KEYS = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_only_layers",
    "decoder_sparse_step",
    "num_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_routed_experts",
    "n_shared_experts",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "first_k_dense_replace",
    "moe_layer_freq",
    "n_embd",
    "n_layer",
    "n_head",
    "n_positions",
    "d_model",
    "d_ff",
    "d_kv",
    "num_layers",
    "num_heads",
    "feed_forward_proj",
    "moe_layers",
    "architectures",
    "_name_or_path",
    "text_config",
    "topk_method",
    "shared_expert_intermediate_size",
    "ffn_dim",
    "word_embed_proj_dim",
]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.lists(st.integers(0, 5), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
GOOD: dict[str, Any] = {key: 8 for key in KEYS if key not in ("mlp_only_layers", "moe_layers")} | {
    "tie_word_embeddings": False,
    "attention_bias": False,
    "feed_forward_proj": "relu",
    "architectures": ["Model"],
    "_name_or_path": "x",
    "text_config": None,
}


def attempt(text: str) -> HfWorkload | tuple[Problem, ...]:
    """The workload, or the problems of the refusal; anything else that is raised fails the test."""
    try:
        return parse_config(text)
    except SpecError as error:
        return error.problems


@given(
    family=st.sampled_from(sorted(FAMILIES)), junk=st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=4)
)
def test_junk_is_refused_not_crashed_on(family: str, junk: dict[str, Any]) -> None:
    found = attempt(json.dumps({**GOOD, "model_type": family, **junk}))
    if isinstance(found, HfWorkload):
        assert found.parameters.total >= found.parameters.active >= 0
    else:
        assert found
        assert all(problem.line for problem in found)


@given(
    junk=JUNK, key=st.sampled_from(("mlp_only_layers", "moe_layers", "architectures", "decoder_sparse_step"))
)
def test_lists_of_layers_are_checked(junk: Any, key: str) -> None:
    for family in ("qwen3_moe", "llama4_text", "unknown"):
        assert attempt(json.dumps({**GOOD, "model_type": family, "intermediate_size_mlp": 8, key: junk}))


@given(text=st.text(max_size=40))
def test_any_text_is_refused_by_name(text: str) -> None:
    found = attempt(text)
    assert not isinstance(found, HfWorkload)
    assert found[0].file == "config.json"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_names_what_an_empty_config_lacks(family: str) -> None:
    found = attempt(json.dumps({"model_type": family}))
    if family == "gemma3_text":  # its class has a default for every size
        assert isinstance(found, HfWorkload)
    else:
        assert not isinstance(found, HfWorkload)
        assert all("is missing" in problem.message for problem in found)
