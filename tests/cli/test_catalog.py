"""`catalog`, `schema` and `init` as typed in a shell."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest

from perfmodel.cli.main import main

ROOT = Path(__file__).parents[2]
TODAY = ["--today", "2026-09-01"]


def out_of(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def test_list_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["catalog", "list", "links", "--sort", "bandwidth", *TODAY]
    assert "nvlink-6" in out_of(arguments, capsys)
    data = json.loads(out_of([*arguments, "--format", "json"], capsys))
    assert data["schema"] == "perfmodel/catalog/1"
    rows = list(csv.DictReader(io.StringIO(out_of([*arguments, "--format", "csv"], capsys))))
    assert [row["name"] for row in rows] == [row["name"] for row in data["result"]["entries"]]
    assert "| nvlink-6" in out_of([*arguments, "--format", "md"], capsys)


def test_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    out = out_of(["catalog", "list"], capsys)
    assert "accelerators" in out
    assert "grids" in out


def test_show_names_sources_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    out = out_of(["catalog", "show", "a100-sxm4-80gb", *TODAY], capsys)
    assert "ridge point bf16" in out
    assert "FLOP per byte per USD" in out
    assert "Sources" in out
    assert "measured" in out


def test_show_writes_counts_and_answers_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    out = out_of(["catalog", "show", "llama3-8b", *TODAY], capsys)
    assert re.search(r"^params +8,030,261,248 ", out, re.MULTILINE)
    assert re.search(r"^vocab +128,256 ", out, re.MULTILINE)
    assert re.search(r"^causal +yes ", out, re.MULTILINE)
    assert re.search(r"^seq_len +8192 ", out, re.MULTILINE)


def test_own_specs_by_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "mine.yaml").write_text("latency: 2 us\nbandwidth: 5 GB/s\n")
    assert "mine" in out_of(["catalog", "list", "links", "--specs", str(tmp_path), *TODAY], capsys)


def test_same_question_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["catalog", "list", "prices", "--format", "json", *TODAY]
    assert out_of(arguments, capsys) == out_of(arguments, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "old.yaml").write_text(
        "name: old\naccelerators: 1\non_demand: 2 USD/h\ndate: 2020\nsource: x\n"
    )
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "bad.yaml").write_text("latency: 2 us\nbandwidth: 400 Gb/s\n")
    return tmp_path


def test_lint_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(out_of(["catalog", "lint", str(folder), "--format", "json", *TODAY], capsys, 2))[
        "result"
    ]
    assert (result["files"], result["errors"], result["warnings"]) == (2, 1, 1)
    assert [(item["code"], item["line"], item["severity"]) for item in result["problems"]] == [
        ("S006", 2, "error"),
        ("L002", 4, "warning"),
    ]


def test_lint_as_sarif(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = json.loads(out_of(["catalog", "lint", str(folder), "--format", "sarif", *TODAY], capsys, 2))
    schema = json.loads((ROOT / "tests" / "schemas" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.validate(log, schema)
    assert [result["level"] for result in log["runs"][0]["results"]] == ["error", "warning"]
    region = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (2, 12)


def test_lint_of_warnings_alone_is_good(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "links" / "bad.yaml").unlink()
    out = out_of(["catalog", "lint", str(folder), *TODAY], capsys)
    assert "warning[L002]" in out
    assert (
        "warning"
        not in out_of(["catalog", "lint", str(folder), "--quiet", *TODAY], capsys)
        .splitlines()[0]
        .split(":")[0]
    )


def test_lint_writes_a_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        out_of(
            ["catalog", "lint", str(folder), "--format", "sarif", "-o", str(tmp_path / "x.sarif"), *TODAY],
            capsys,
            2,
        )
        == ""
    )
    assert json.loads((tmp_path / "x.sarif").read_text())["version"] == "2.1.0"


def test_lint_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "lint", str(tmp_path / "nowhere")]) == 2
    assert "no file or folder" in capsys.readouterr().err
    assert main(["catalog", "lint", str(tmp_path)]) == 2
    assert "no spec files (.yaml, .yml) below" in capsys.readouterr().err
    strange = tmp_path / "strange.yaml"
    strange.write_text("colour: blue\n")
    assert "cannot tell what this file declares" in out_of(["catalog", "lint", str(strange)], capsys, 2)


def test_lint_tells_kinds_by_their_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        "a": "memory: 80 GB\nmemory_bandwidth: 3 TB/s\npeak: {bf16: 9 TFLOP/s}\nsource: x\n",
        "b": "node: dgx-h100\nsource: x\n",
        "c": "accelerator: a10\naccelerators_per_node: 4\nsource: x\n",
        "d": "layers: 2\nkind: convnet\nsource: x\n",
        "e": "# yaml-language-server: $schema=schemas/price.json\naccelerators: 1\npurchase: 3 USD\nsource: x\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    assert "5 files: 0 errors, 0 warnings" in out_of(["catalog", "lint", str(tmp_path)], capsys)


def test_today_must_be_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "list", "prices", "--today", "soon"]) == 2
    assert "--today" in capsys.readouterr().err


def test_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "accelerator\n" in out_of(["schema"], capsys)
    assert json.loads(out_of(["schema", "job"], capsys))["title"] == "perfmodel job"
    assert out_of(["schema", "job", "-o", str(tmp_path / "j.json")], capsys) == ""
    assert main(["schema", "jobb"]) == 2


def test_init_writes_what_the_tool_itself_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "project"
    out = out_of(["init", str(folder)], capsys)
    assert "next: perfmodel predict" in out
    assert "2 files" not in out
    for name in ("job.yaml", "perfmodel.yaml"):
        assert main(["catalog", "lint", str(folder / name)]) == 0, capsys.readouterr().out
    schema = json.loads((folder / ".perfmodel" / "job.json").read_text())
    from perfmodel.specs.loader import read_file

    jsonschema.validate(read_file(folder / "job.yaml").plain(), schema)
    workflow = json.loads((ROOT / "tests" / "schemas" / "github-workflows.json").read_text(encoding="utf-8"))
    jsonschema.validate(read_file(folder / "perfmodel-ci.yml").plain(), workflow)


def test_a_new_project_passes_its_own_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out_of(["init", str(tmp_path / "new")], capsys)
    assert main(["check", str(tmp_path / "new" / "perfmodel.yaml")]) == 0, capsys.readouterr().out


def test_init_takes_a_folder_and_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "job.yaml")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_init_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text("mine\n")
    assert main(["init", str(tmp_path)]) == 2
    assert "is already there" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]
    assert (tmp_path / "job.yaml").read_text() == "mine\n"
    assert main(["init", str(tmp_path / "job.yaml")]) == 2


def test_lint_of_the_shipped_catalogue_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = out_of(["catalog", "lint", *TODAY], capsys).splitlines()
    assert any("warning[L002]" in line for line in lines)
    assert max(len(line) for line in lines[1:]) <= 80  # the first names the folder, wherever it is
    places = [line for line in lines if line.startswith("prices/")]
    assert all(re.match(r"prices/\S+\.yaml:\d+:\d+: warning\[L\d+\]:", line) for line in places)
    assert sum("help for L002" in line for line in lines) == 1
