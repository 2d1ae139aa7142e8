"""The fast reader gives the tree of the full parser, or leaves the text to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import SpecError
from perfmodel.specs import loader, simple_yaml
from perfmodel.specs.folders import ZOO, shipped_folder
from perfmodel.specs.loader import Source, Tree

FILES = sorted([*shipped_folder().rglob("*.yaml"), *ZOO.glob("*.yaml")])


def both(text: str) -> tuple[Tree | None, Tree | None]:
    """(by the fast reader, by the full parser); None where the one leaves it and the other refuses it."""
    source = Source("x.yaml", tuple(text.splitlines()))
    try:
        fast = loader._simple_tree(simple_yaml.items(text), source)
    except simple_yaml.NotSimpleError:
        return None, None
    try:
        return fast, loader._full_tree(text, source)
    except SpecError:
        return fast, None


@pytest.mark.parametrize("path", FILES[::17], ids=lambda path: path.stem)
def test_the_shipped_specs_read_the_same(path: Path) -> None:
    fast, full = both(path.read_text(encoding="utf-8"))
    assert fast == full


def test_nearly_all_shipped_specs_are_simple() -> None:
    left = [path for path in FILES if both_is_left(path)]
    assert len(left) < 0.03 * len(FILES), [path.name for path in left]


def both_is_left(path: Path) -> bool:
    try:
        simple_yaml.items(path.read_text(encoding="utf-8"))
    except simple_yaml.NotSimpleError:
        return True
    return False


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: 2.5\nc: -3\nd: +4\ne: 0\nf: true\ng: false",
        "a: x  y\nb: x:y\nc: x#y\nd: it's\ne: 5 GB/s\nf: (x)",
        'a: "x: y # z"\nb: ""\n',
        "# first\n\na:\n  b:\n    c: 1\n  d: 2\n# last\ne: 3\n",
        'a: {value: 3.3 TB/s, source: "x, y", date: 2026, ok: true}',
        "a.b-c: 1",
    ],
)
def test_simple_texts_are_read_here(text: str) -> None:
    fast, full = both(text)
    assert fast is not None
    assert fast == full


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "- a", "a:", "a: ", "a:b", "a: b: c", "a: b # c", "a: 'b'", "a: |\n  b", "a: [1, 2]", "a: *b", "a: &b c",
        "a: !!str 1", "a: 1_000", "a: 0x1f", "a: 010", "a: 1e3", "a: .5", "a: .inf", "a: 2026-01-02", "a: 12:30", "a: null",
        "a: ~", "a: yes", "a: True", "a: - b", "a: -", "a: b\n  c", "a: 1\na: 2", "a:\n   b: 1", "a:\n  b: 1\n c: 2",
        "true: 1", "8: x", "a: {}", "a: {b: 1", "a: {b: {c: 1}}", "a: {b: 1, b: 2}", "a: {b: 'c'}", "a: {b}", "a: {b: 1} c",
        'a: "b" c', 'a: "b\\n"', 'a: "b', "a: b\t", "---\na: 1", "a: 1\n...", "%YAML 1.2\n---\na: 1", "a: @b", "a: ? b",
        "? a", "a: b\r\nc: d", "{a: 1}", "a : 1", "a: {b: c: d}", " a: 1",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_full_parser(text: str) -> None:
    with pytest.raises(simple_yaml.NotSimpleError):
        simple_yaml.items(text)


_KEYS = st.sampled_from(["a", "b", "value", "on", "n-1", "x.y", "null", "1a"])
_WORDS = st.text("ab1 .-+:#{}[],\"'&*!|>%@~?_eE/()0", min_size=0, max_size=8)
_LINES = st.one_of(
    st.tuples(st.sampled_from(["", "  ", "    "]), _KEYS, _WORDS).map(lambda t: f"{t[0]}{t[1]}: {t[2]}"),
    st.tuples(st.sampled_from(["", "  "]), _KEYS).map(lambda t: f"{t[0]}{t[1]}:"),
    st.tuples(_KEYS, _KEYS, _WORDS, _KEYS, _WORDS).map(
        lambda t: f"{t[0]}: {{{t[1]}: {t[2]}, {t[3]}: {t[4]}}}"
    ),
    st.just("# note"),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_LINES, min_size=1, max_size=4))
def test_no_text_reads_otherwise_than_by_the_full_parser(lines: list[str]) -> None:
    fast, full = both("\n".join(lines))
    assert fast == full
