"""The shared flags: ranges, layouts, --set, and where results go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfmodel.cli.options import Format, emit, parse_layout, parse_set
from perfmodel.errors import SpecError, UsageError
from perfmodel.results.envelope import Result
from perfmodel.specs.ranges import parse_k

RESULT = Result("demo", {"a": 1}, {"k": [1, 2], "time_s": [2.0, 1.0]}, seed=3)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("8", (8,)),
        (8, (8,)),
        ("1,2,4,8", (1, 2, 4, 8)),
        ("1..1024", tuple(2**n for n in range(11))),
        ("8..100", (8, 16, 32, 64)),
        ("3..24", (3, 6, 12, 24)),
        ("64..128:8", tuple(range(64, 129, 8))),
        ([16, "1..4"], (1, 2, 4, 16)),
        ("4,4,2", (2, 4)),
        ("1 .. 8", (1, 2, 4, 8)),
    ],
)
def test_counts(text: object, counts: tuple[int, ...]) -> None:
    assert parse_k(text) == counts  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "8..4",
        "0",
        "-3",
        "1..8:0",
        "1..8:2:3",
        "99999999999",
        "1..",
        "1.5",
        True,
        [],
        "1..9000000:1",
        [2.5],
        "\u0664",
        "1..\u0664",
    ],
)
def test_bad_counts(text: object) -> None:
    with pytest.raises(UsageError) as caught:
        parse_k(text)  # type: ignore[arg-type]
    assert caught.value.problems[0].code == "U010"


def test_layouts() -> None:
    assert parse_layout("auto") == "auto"
    assert parse_layout(" tp=2, pp=4,sharding=zero1,sequence_parallel=true") == {
        "tp": 2,
        "pp": 4,
        "sharding": "zero1",
        "sequence_parallel": True,
    }
    assert parse_layout("tp=+-5,pp=\u0664") == {"tp": "+-5", "pp": "\u0664"}  # no numbers: refused as text
    for text in ("tp", "tp=2,tp=4", "=3", ""):
        with pytest.raises(UsageError):
            parse_layout(text)


def test_set() -> None:
    found = parse_set(["price={per_accelerator: 2 USD/h}", "k=[1, 2]", "name=", "a.b=x=y"])
    assert {path: value.plain() for path, value in found.items()} == {
        "price": {"per_accelerator": "2 USD/h"}, "k": [1, 2], "name": "", "a.b": "x=y",
    }  # fmt: skip
    with pytest.raises(UsageError):
        parse_set(["price"])
    with pytest.raises(SpecError, match="--set price:1:"):
        parse_set(["price={a: "])


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("r.json", '{\n  "schema": "perfmodel/demo/1"'),
        ("r.csv", "k,time_s\n"),
        ("r.md", "## Demo\n"),
        ("r.txt", "Demo\n"),
    ],
)
def test_the_name_of_the_output_gives_the_format(
    tmp_path: Path, name: str, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    emit(RESULT, None, path)
    assert capsys.readouterr().out == ""
    text = path.read_text(encoding="utf-8")
    assert text.startswith(begins)
    assert "\x1b[" not in text


def test_formats_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    emit(RESULT, Format.json)
    assert json.loads(capsys.readouterr().out)["schema"] == "perfmodel/demo/1"
    emit(RESULT, quiet=True)
    assert capsys.readouterr().out == ""


def test_plots_and_reports(tmp_path: Path) -> None:
    emit(RESULT, quiet=True, report=tmp_path / "r.html")
    assert "<html" in (tmp_path / "r.html").read_text(encoding="utf-8")
    with pytest.raises(UsageError, match=r"cannot write x\.gif"):
        emit(RESULT, quiet=True, plot=tmp_path / "x.gif")


@pytest.mark.parametrize("name", ["nowhere/r.json", "."])
def test_files_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        emit(RESULT, Format.json, tmp_path / name)
