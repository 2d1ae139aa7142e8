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
    name: (entry["config"], entry["parameters"])
    for name, entry in json.loads(Path(__file__).with_name("hf_configs.json").read_text("utf-8")).items()
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


def test_scores_in_32_bit_are_of_models_whose_code_takes_them_so() -> None:
    fields = {
        name: parse_config(json.dumps(CONFIGS[name][0])).fields for name in ("gpt-j-6b", "llama-3.1-8b")
    }
    assert fields["gpt-j-6b"]["scores_in_fp32"] is True
    assert "scores_in_fp32" not in fields["llama-3.1-8b"]


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
