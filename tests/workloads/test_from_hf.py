"""Configs as they stand on the hub (sizes only) against the parameter counts of the published weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfmodel.specs.workload import Workload
from perfmodel.workloads.from_hf import parse_config, read_config
from perfmodel.workloads.parameters import count, dimensions

# name -> (config, published parameters). Sizes are those of the models' own config.json; counts are the totals
# of the published safetensors (bytes / bytes per weight), or of the model card where it says so.
CONFIGS: dict[str, tuple[dict[str, Any], int]] = {
    "llama-2-7b": (
        {
            "model_type": "llama",
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 32000,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        },
        6_738_415_616,
    ),
    "llama-3.1-8b": (
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "mlp_bias": False,
            "tie_word_embeddings": False,
        },
        8_030_261_248,
    ),
    "llama-3.2-1b": (
        {
            "model_type": "llama",
            "head_dim": 64,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
        1_235_814_400,
    ),
    "mistral-7b-v0.1": (
        {
            "model_type": "mistral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
            "sliding_window": 4096,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": False,
        },
        7_241_732_096,
    ),
    "mixtral-8x7b-v0.1": (
        {
            "model_type": "mixtral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": 32000,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": False,
        },
        46_702_792_704,
    ),
    "qwen2.5-7b": (
        {
            "model_type": "qwen2",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
        },
        7_615_616_512,
    ),
    "qwen3-8b": (
        {
            "model_type": "qwen3",
            "attention_bias": False,
            "head_dim": 128,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
            "tie_word_embeddings": False,
        },
        8_190_735_360,
    ),
    "qwen1.5-moe-a2.7b": (
        {
            "model_type": "qwen2_moe",
            "decoder_sparse_step": 1,
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "vocab_size": 151936,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
        },
        14_315_784_192,
    ),
    "qwen3-30b-a3b": (
        {
            "model_type": "qwen3_moe",
            "attention_bias": False,
            "decoder_sparse_step": 1,
            "head_dim": 128,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "mlp_only_layers": [],
            "moe_intermediate_size": 768,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
            "tie_word_embeddings": False,
        },
        30_532_122_624,
    ),
    "gemma-7b": (
        {
            "model_type": "gemma",
            "head_dim": 256,
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
        },
        8_537_680_896,
    ),
    "gemma-2-9b": (
        {
            "model_type": "gemma2",
            "head_dim": 256,
            "hidden_size": 3584,
            "intermediate_size": 14336,
            "num_hidden_layers": 42,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "vocab_size": 256000,
            "sliding_window": 4096,
            "max_position_embeddings": 8192,
        },
        9_241_705_984,
    ),
    "gemma-3-1b": (
        {
            "model_type": "gemma3_text",
            "head_dim": 256,
            "hidden_size": 1152,
            "intermediate_size": 6912,
            "num_hidden_layers": 26,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "vocab_size": 262144,
            "sliding_window": 512,
            "max_position_embeddings": 32768,
        },
        999_885_952,
    ),
    "phi-2": (
        {
            "model_type": "phi",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "qk_layernorm": False,
            "vocab_size": 51200,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
        },
        2_779_683_840,
    ),
    "phi-3-mini-4k": (
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "vocab_size": 32064,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        },
        3_821_079_552,
    ),
    "phi-4": (
        {
            "model_type": "phi3",
            "hidden_size": 5120,
            "intermediate_size": 17920,
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "num_key_value_heads": 10,
            "vocab_size": 100352,
            "max_position_embeddings": 16384,
            "tie_word_embeddings": False,
        },
        14_659_507_200,
    ),
    "gpt2": (
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_inner": None,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
        124_439_808,
    ),
    "gpt2-xl": (
        {
            "model_type": "gpt2",
            "n_embd": 1600,
            "n_layer": 48,
            "n_head": 25,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
        1_557_611_200,
    ),
    "pythia-1.4b": (  # exact count in the model card of the suite
        {
            "model_type": "gpt_neox",
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "vocab_size": 50304,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
        },
        1_414_647_808,
    ),
    "bert-base-uncased": (
        {
            "architectures": ["BertForMaskedLM"],
            "model_type": "bert",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "type_vocab_size": 2,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
        },
        110_106_428,
    ),
    "t5-base": (
        {
            "model_type": "t5",
            "d_model": 768,
            "d_ff": 3072,
            "d_kv": 64,
            "num_layers": 12,
            "num_heads": 12,
            "relative_attention_num_buckets": 32,
            "vocab_size": 32128,
            "n_positions": 512,
        },
        222_903_552,
    ),
    "flan-t5-xl": (
        {
            "model_type": "t5",
            "d_model": 2048,
            "d_ff": 5120,
            "d_kv": 64,
            "feed_forward_proj": "gated-gelu",
            "num_layers": 24,
            "num_decoder_layers": 24,
            "num_heads": 32,
            "vocab_size": 32128,
            "n_positions": 512,
            "tie_word_embeddings": False,
        },
        2_849_757_184,
    ),
    "deepseek-v2-lite": (
        {
            "model_type": "deepseek_v2",
            "first_k_dense_replace": 1,
            "hidden_size": 2048,
            "intermediate_size": 10944,
            "kv_lora_rank": 512,
            "moe_intermediate_size": 1408,
            "moe_layer_freq": 1,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_attention_heads": 16,
            "num_experts_per_tok": 6,
            "num_hidden_layers": 27,
            "num_key_value_heads": 16,
            "q_lora_rank": None,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "vocab_size": 102400,
            "max_position_embeddings": 163840,
            "tie_word_embeddings": False,
        },
        15_706_484_224,
    ),
    "deepseek-v2": (
        {
            "model_type": "deepseek_v2",
            "first_k_dense_replace": 1,
            "hidden_size": 5120,
            "intermediate_size": 12288,
            "kv_lora_rank": 512,
            "moe_intermediate_size": 1536,
            "moe_layer_freq": 1,
            "n_routed_experts": 160,
            "n_shared_experts": 2,
            "num_attention_heads": 128,
            "num_experts_per_tok": 6,
            "num_hidden_layers": 60,
            "num_key_value_heads": 128,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "vocab_size": 102400,
            "max_position_embeddings": 163840,
            "tie_word_embeddings": False,
        },
        235_741_434_880,
    ),
    "deepseek-v3": (
        {
            "model_type": "deepseek_v3",
            "first_k_dense_replace": 3,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "kv_lora_rank": 512,
            "moe_intermediate_size": 2048,
            "moe_layer_freq": 1,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_attention_heads": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 61,
            "num_key_value_heads": 128,
            "num_nextn_predict_layers": 1,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "topk_method": "noaux_tc",
            "v_head_dim": 128,
            "vocab_size": 129280,
            "max_position_embeddings": 163840,
            "tie_word_embeddings": False,
        },
        671_026_419_200,
    ),
    "opt-1.3b": (
        {
            "model_type": "opt",
            "hidden_size": 2048,
            "ffn_dim": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "word_embed_proj_dim": 2048,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
        },
        1_315_758_080,
    ),
    "bloom-7b1": (
        {
            "model_type": "bloom",
            "hidden_size": 4096,
            "n_layer": 30,
            "num_attention_heads": 32,
            "vocab_size": 250880,
            "seq_length": 2048,
        },
        7_069_016_064,
    ),
    "falcon-7b": (
        {
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "multi_query": True,
            "new_decoder_architecture": False,
            "parallel_attn": True,
            "bias": False,
            "vocab_size": 65024,
        },
        6_921_720_704,
    ),
    "gpt-j-6b": (
        {
            "model_type": "gptj",
            "n_embd": 4096,
            "n_layer": 28,
            "n_head": 16,
            "n_positions": 2048,
            "vocab_size": 50400,
            "tie_word_embeddings": False,
        },
        6_050_882_784,
    ),
    "gpt-oss-20b": (
        {
            "model_type": "gpt_oss",
            "head_dim": 64,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_hidden_layers": 24,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "vocab_size": 201088,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
        },
        20_914_757_184,
    ),
    "olmo-2-7b": (
        {
            "model_type": "olmo2",
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "vocab_size": 100352,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        },
        7_298_617_344,
    ),
    "roberta-base": (
        {
            "model_type": "roberta",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "type_vocab_size": 1,
            "vocab_size": 50265,
            "max_position_embeddings": 514,
        },
        124_697_433,
    ),
    "phi-3.5-moe": (
        {
            "model_type": "phimoe",
            "attention_bias": True,
            "hidden_size": 4096,
            "intermediate_size": 6400,
            "lm_head_bias": True,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 16,
            "num_experts_per_tok": 2,
            "vocab_size": 32064,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
        },
        41_873_153_344,
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_count_is_the_published_one(name: str) -> None:
    config, published = CONFIGS[name]
    assert parse_config(json.dumps(config)).parameters.total == published


def test_active_parameters_of_a_mixture() -> None:
    config, _ = CONFIGS["mixtral-8x7b-v0.1"]
    assert parse_config(json.dumps(config)).parameters.active == 12_879_925_248


@pytest.mark.parametrize("name", CONFIGS)
def test_fields_make_a_workload_with_the_same_count(name: str) -> None:
    """What is written to YAML loses biases, never more than 0.6 % of the parameters."""
    config, published = CONFIGS[name]
    workload = Workload.model_validate(dict(parse_config(json.dumps(config)).fields))
    assert workload.params == published
    stated = dimensions(workload)
    assert stated is not None
    assert count(stated).total == pytest.approx(published, rel=0.006)


def test_sequence_is_a_choice_where_the_model_reads_more() -> None:
    config, _ = CONFIGS["llama-3.1-8b"]
    found = parse_config(json.dumps(config))
    assert found.fields["seq_len"] == 8192
    assert "the model reads up to 131072 tokens" in " ".join(found.remarks)
    assert parse_config(json.dumps(config), seq_len=2048).fields["seq_len"] == 2048


@pytest.mark.parametrize(
    ("name", "stated", "window", "layers"),
    [
        ("gemma-2-9b", {}, 4096, 21),  # every second layer
        ("gemma-3-1b", {}, 512, 22),  # all but every sixth
        ("gemma-3-1b", {"sliding_window_pattern": 2}, 512, 13),
        (
            "gpt-oss-20b",
            {"sliding_window": 128, "layer_types": ["sliding_attention"] * 5 + ["full_attention"] * 19},
            128,
            5,
        ),
        ("mixtral-8x7b-v0.1", {"sliding_window": 4096}, 4096, 32),
        ("gpt-oss-20b", {}, None, None),
        ("llama-3.1-8b", {"sliding_window": 4096}, None, None),  # an entry that this family does not read
    ],
)
def test_layers_with_a_window(name: str, stated: dict[str, object], window: int, layers: int) -> None:
    found = parse_config(json.dumps(CONFIGS[name][0] | stated))
    assert (found.fields.get("attention_window"), found.fields.get("window_layers")) == (window, layers)
    assert ("counted as full attention" in " ".join(found.remarks)) == (name == "gpt-oss-20b" and not stated)


def test_name_comes_from_file_hub_path_or_size(tmp_path: Path) -> None:
    config, _ = CONFIGS["gpt2"]
    assert parse_config(json.dumps(config)).fields["name"] == "gpt2-124m"
    assert parse_config(json.dumps(config | {"_name_or_path": "acme/My Model"})).fields["name"] == "my-model"
    file = tmp_path / "small-gpt.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    assert read_config(file).fields["name"] == "small-gpt"
    assert read_config(file, name="Mine").fields["name"] == "Mine"


def test_text_tower_of_a_multimodal_config() -> None:
    """Gemma 3 ships a text_config that leans on the defaults of its class."""
    inner = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
    }
    config = {"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 1152}}
    found = parse_config(json.dumps(config))
    assert found.parameters.total == 3_880_263_168
    assert "other towers are not counted" in " ".join(found.remarks)


def test_llama4_interleaves_dense_layers() -> None:
    """Maverick: experts in every second layer, the others dense and twice as wide (400 B in its card)."""
    config = {
        "model_type": "llama4_text",
        "hidden_size": 5120,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "interleave_moe_layer_step": 2,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "vocab_size": 202048,
        "tie_word_embeddings": False,
    }
    found = parse_config(json.dumps(config))
    assert found.parameters.total == pytest.approx(400e9, rel=0.005)
    assert found.parameters.active == pytest.approx(17e9, rel=0.02)
    assert found.fields["moe_layers"] == 24
