"""`perfmodel workload` from the shell."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from perfmodel.cli.main import main
from perfmodel.specs.jobs import load_job

CONFIG = {
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
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG, indent=2), encoding="utf-8")
    return file


def test_yaml_goes_to_stdout(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "from-hf", str(config)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("# yaml-language-server: $schema=")
    assert "params: 46702792704" in said.out
    assert "# seq_len is a choice" in said.out
    assert said.err == ""


def test_written_file_passes_the_lint(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = config.with_name("mixtral.yaml")
    assert main(["workload", "from-hf", str(config), "-o", str(target)]) == 0
    assert "46,702,792,704 parameters" in capsys.readouterr().err
    assert main(["catalog", "lint", str(target)]) == 0


def test_json_holds_the_count_by_part(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "from-hf", str(config), "--format", "json"]) == 0
    envelope = json.loads(capsys.readouterr().out)
    assert envelope["schema"] == "perfmodel/workload/1"
    result = envelope["result"]
    assert sum(result["params_by_part"].values()) == result["params"] == 46_702_792_704
    assert result["active_params"] == 12_879_925_248


def test_table_answers_first(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "from-hf", str(config), "--format", "md"]) == 0
    assert "46,702,792,704 parameters, 12,879,925,248 of them active" in capsys.readouterr().out


def test_sequence_length_can_be_chosen(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "from-hf", str(config), "--seq-len", "4096"]) == 0
    assert "seq_len: 4096" in capsys.readouterr().out


def test_bad_json_is_a_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text('{\n  "model_type": "llama",,\n}', encoding="utf-8")
    assert main(["workload", "from-hf", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{file}:2:")
    assert "not valid JSON" in said
    assert "Traceback" not in said


def test_unknown_family_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "rwkv", "architectures": ["RwkvForCausalLM"]}', encoding="utf-8")
    assert main(["workload", "from-hf", str(file)]) == 2
    assert 'no reader for model type "rwkv"' in capsys.readouterr().err


def test_a_job_may_name_a_config(config: Path) -> None:
    job = config.with_name("job.yaml")
    job.write_text("workload: {hf: config.json}\ncluster: dgx-h100\n", encoding="utf-8")
    assert load_job(job).workload.params == 46_702_792_704


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="says how to get torch without it")
def test_without_torch_the_verb_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "from-torch", "models:build"]) == 2
    said = capsys.readouterr().err
    assert "needs PyTorch" in said
    assert "perfmodel[torch]" in said
