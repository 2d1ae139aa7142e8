"""Configs that cannot be read are refused at their line, with what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfmodel.errors import SpecError
from perfmodel.workloads.from_hf import parse_config, read_config


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{\n  "model_type": "llama",\n  "hidden_size" 4096\n}', 3, "not valid JSON"),
        ("", 1, "not valid JSON"),
        ("[1, 2]", 1, "a config is a JSON object"),
        ('{"hidden_size": 4096}', 1, '"model_type" is missing'),
        ('{\n"model_type": "lama"\n}', 2, 'no reader for model type "lama".*did you mean "llama"'),
        ('{\n"architectures": ["RwkvForCausalLM"],\n"model_type": "rwkv"\n}', 3, "RwkvForCausalLM"),
    ],
)
def test_refusals_point_at_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        parse_config(text, file="config.json")
    assert caught.value.problems[0].line == line
    assert str(caught.value).startswith(f"config.json:{line}:")


def test_unknown_family_says_what_is_needed() -> None:
    with pytest.raises(SpecError) as caught:
        parse_config('{"model_type": "rwkv"}')
    help = caught.value.problems[0].help or ""
    for word in ("layers", "hidden", "from-torch", "llama", "deepseek_v3"):
        assert word in help


def test_everything_missing_is_named_at_once() -> None:
    config = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": "32", "vocab_size": True}
    with pytest.raises(SpecError) as caught:
        parse_config(json.dumps(config, indent=1))
    said = [problem.message for problem in caught.value.problems]
    assert sorted(said) == [
        '"intermediate_size" is missing',
        "\"num_attention_heads\" must be a whole number, not '32'",
        '"num_hidden_layers" is missing',
        '"vocab_size" must be a whole number, not True',
    ]
    assert [p.line for p in caught.value.problems if "heads" in p.message] == [4]


def test_zero_heads_are_refused() -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 0,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    with pytest.raises(SpecError, match="must not be 0"):
        parse_config(json.dumps(config))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        read_config(tmp_path / "config.json")
    binary = tmp_path / "model.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not a text file"):
        read_config(binary)


GEMMA3 = {"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 512}
KINDS = '"layer_types" must name sliding_attention or full_attention for each of the 4 layers'


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"sliding_window": -1}, '"sliding_window" must be at least 0, not -1'),
        ({"sliding_window": True}, '"sliding_window" must be a whole number, not True'),
        ({"sliding_window": 10**30}, f"makes no workload: attention_window: must be at most 1e+15, got {10**30}"),
        ({"sliding_window_pattern": 0}, '"sliding_window_pattern" must be at least 1, not 0'),
        ({"layer_types": "sliding_attention"}, KINDS),
        ({"layer_types": ["sliding_attention"] * 5}, KINDS),
        ({"layer_types": ["sliding_attention"] * 3}, KINDS),
        ({"layer_types": [1, 2, 3, 4]}, KINDS),
        ({"layer_types": [["a"], {}, None, 4]}, KINDS),
        ({"num_hidden_layers": 0}, "makes no workload: layers: must be at least 1, got 0"),
        ({"max_position_embeddings": -5}, '"max_position_embeddings" must be at least 0, not -5'),
        ({"max_position_embeddings": "4096"}, "\"max_position_embeddings\" must be a whole number, not '4096'"),
    ],
)  # fmt: skip
def test_a_size_that_cannot_be_is_refused_once(stated: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_config(json.dumps(GEMMA3 | stated))
    assert [problem.message for problem in caught.value.problems] == [said]


def test_windows_that_are_not_read_are_told() -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
    config = {"model_type": "qwen2", "vocab_size": 100, **sizes, "sliding_window": 512}
    assert parse_config(json.dumps(config)).remarks == ()
    told = parse_config(json.dumps(config | {"use_sliding_window": True})).remarks
    assert told == (
        "use_sliding_window is not read: layers that have a window are counted as full attention",
    )
