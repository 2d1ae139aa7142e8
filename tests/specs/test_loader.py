"""Trees with positions: reading, merging, pointing."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.errors import SpecError
from perfmodel.specs.checking import build
from perfmodel.specs.hardware import Accelerator, Link
from perfmodel.specs.loader import Mark, Source, merge, parse_text, parse_value, read_file


def test_scalars_follow_yaml_1_2() -> None:
    tree = parse_text(
        "a: 1e9\nb: no\nc: 0x10\nd: 1_000\ne: 2024-10-01\nf: 12:30:00\ng: ~\nh: .5\ni: 007\n", "x"
    )
    assert tree.plain() == {
        "a": 1e9, "b": "no", "c": 16, "d": 1000, "e": "2024-10-01", "f": "12:30:00", "g": None, "h": 0.5, "i": 7,
    }  # fmt: skip


def test_every_value_knows_its_place() -> None:
    tree = parse_text("a: 1\nlist:\n  - {k: 2}\n", "x.yaml")
    mark = tree.mark_at("list.0.k")
    assert (mark.line, mark.column) == (3, 9)
    assert tree.mark_at("list.7.k") == tree.mark_at("list")


def test_merge_keeps_the_place_of_each_side() -> None:
    parent = parse_text("latency: 2 us\nbandwidth: 5 GB/s\n", "parent.yaml")
    child = parse_text("bandwidth: fast\n", "child.yaml")
    with pytest.raises(SpecError) as caught:
        build(Link, merge(parent, child.with_item("name", child.value["bandwidth"])))
    assert [problem.file for problem in caught.value.problems] == ["child.yaml"]


def test_a_sourced_value_is_replaced_as_a_whole() -> None:
    parent = parse_text("tdp: {value: 700 W, source: sheet}\n", "p")
    child = parse_text("tdp: 400 W\n", "c")
    assert merge(parent, child).plain() == {"tdp": "400 W"}


def test_origin_of_values() -> None:
    text = (
        "name: x\nmemory: {value: 80 GB, source: label, date: 2024, confidence: measured}\n"
        "memory_bandwidth: 3 TB/s\npeak: {bf16: {value: 900 TFLOP/s, note: dense}}\nsource: sheet\nconfidence: datasheet\n"
    )
    made = build(Accelerator, parse_text(text, "x"))
    assert made.memory == 80e9
    assert made.origin("memory").model_dump() == {
        "source": "label",
        "date": "2024",
        "confidence": "measured",
        "note": None,
    }
    assert made.origin("memory_bandwidth").source == "sheet"
    assert made.origin("peak.bf16").note == "dense"
    assert made.origin("peak.bf16").confidence == "datasheet"


def test_python_gives_si_numbers() -> None:
    link = Link(name="x", latency=3e-6, bandwidth=12.5e9)
    assert link.latency == 3e-6
    with pytest.raises(ValueError, match="beyond anything built"):
        Link(name="x", latency=3.0, bandwidth=12.5e9)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "no.yaml"
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"a: 1\nb: \xff\xfe\n")
    empty = tmp_path / "e.yaml"
    empty.write_text("# nothing\n")
    for path, code in ((missing, "S012"), (binary, "S012"), (empty, "S001"), (tmp_path, "S012")):
        with pytest.raises(SpecError) as caught:
            read_file(path)
        assert caught.value.problems[0].code == code


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_file(path).plain() == {"a": 1}


def test_deep_nesting_is_refused() -> None:
    for text in ("[" * 400, "a: " + "[" * 60 + "]" * 60):
        with pytest.raises(SpecError):
            parse_text(text, "x")


def test_values_of_flags() -> None:
    assert parse_value("{per_accelerator: 2 USD/h}", "--set price") == {"per_accelerator": "2 USD/h"}
    assert parse_value("8..64", "--set k") == "8..64"
    assert parse_value("  ", "--set name") == ""
    with pytest.raises(SpecError, match="--set price:1:"):
        parse_value("{a: ", "--set price")


def test_a_mark_without_a_line_has_no_snippet() -> None:
    problem = Mark(Source("--k")).problem("S007", "odd")
    assert str(problem) == "--k: error[S007]: odd"
