"""YAML with positions. Every use of ruamel.yaml is in this file; `simple_yaml` reads what needs no full parser.

Text becomes a `Tree`: plain values, each with the file, line and column where it stands. Trees of several files
can be merged (inheritance, references) and each value keeps its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfmodel.errors import Problem, SpecError
from perfmodel.files import read_bytes
from perfmodel.specs import simple_yaml

MAX_BYTES = 4_000_000
MAX_NODES = 50_000  # aliases can make a small file expand without end
MAX_DEPTH = 50
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Source:
    """A text that was read: a file, or a flag of the command line; without a name, a call from Python."""

    name: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in a source, counted from 1; a flag has none."""

    source: Source
    line: int | None = None
    column: int | None = None

    def problem(self, code: str, message: str, help: str | None = None, severity: str = "error") -> Problem:
        """A problem at this position, with its line."""
        known = self.line is not None and 0 < self.line <= len(self.source.lines)
        snippet = self.source.lines[self.line - 1] if known and self.line is not None else None
        return Problem(
            self.source.name or None, self.line, self.column, code, message, snippet, help, severity
        )


@dataclass(slots=True)
class Tree:
    """A value with its position: a scalar, a list of trees, or a mapping from text to trees."""

    value: Any
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)

    def plain(self) -> Any:
        """The value without positions."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def get(self, key: str) -> Tree | None:
        """The tree under a key of a mapping, or None."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def mark_at(self, path: str) -> Mark:
        """The position of a value (`layout.tp`, `points.2.k`), or of the nearest one above it.

        What a reference was replaced by stands in another file: then the key is the place.
        """
        node, mark = self, self.mark
        for part in path.split("."):
            if isinstance(node.value, list) and part.isdecimal() and int(part) < len(node.value):
                node = node.value[int(part)]
                mark = node.mark
                continue
            inner = node.get(part)
            if inner is None:
                return mark
            key = node.keys.get(part, inner.mark)
            mark = (
                inner.mark
                if inner.mark.source == node.mark.source or key.source == inner.mark.source
                else key
            )
            node = inner
        return mark

    def with_item(self, key: str, item: Tree) -> Tree:
        """A copy of this mapping with one key set."""
        keys = self.keys if key in self.keys else {**self.keys, key: item.mark}
        return Tree({**self.value, key: item}, self.mark, keys)

    def without(self, *names: str) -> Tree:
        """A copy of this mapping without some keys."""
        return Tree(
            {key: item for key, item in self.value.items() if key not in names},
            self.mark,
            {key: mark for key, mark in self.keys.items() if key not in names},
        )


def merge(parent: Tree, child: Tree) -> Tree:
    """The child's values over the parent's; mappings are merged key by key, a value with its origin as a whole."""
    both = isinstance(parent.value, dict) and isinstance(child.value, dict)
    if not both or "value" in parent.value or "value" in child.value:
        return child
    merged = dict(parent.value)
    for key, item in child.value.items():
        merged[key] = merge(merged[key], item) if key in merged else item
    return Tree(merged, child.mark, {**parent.keys, **child.keys})


def graft(value: Any, mark: Mark) -> Tree:
    """Plain Python values as a tree whose every node has the same position."""
    if isinstance(value, Tree):
        return value
    if isinstance(value, dict):
        items = {str(key): graft(item, mark) for key, item in value.items()}
        return Tree(items, mark, dict.fromkeys(items, mark))
    if isinstance(value, (list, tuple)):
        return Tree([graft(item, mark) for item in value], mark)
    return Tree(value, mark)


def read_file(path: Path, shown: str | None = None) -> Tree:
    """Read a YAML file; `shown` is its name in messages."""
    name = shown or str(path)
    try:
        data = read_bytes(path, MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(
            Problem(name, code="S012", message=f"cannot read the file: {error.strerror or error}")
        ) from None
    if len(data) > MAX_BYTES:
        raise SpecError(
            Problem(name, code="S012", message=f"the file is larger than {MAX_BYTES // 1_000_000} MB")
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecError(_not_text(name, line)) from None
    if "\0" in text:  # UTF-16 without a mark at its start
        raise SpecError(_not_text(name, text[: text.index("\0")].count("\n") + 1))
    return parse_text(text, name)


def _not_text(name: str, line: int) -> Problem:
    return Problem(name, line, code="S012", message="the file is not UTF-8 text", help="save it as UTF-8")


def parse_text(text: str, name: str) -> Tree:
    """YAML text as a tree; syntax errors, duplicate keys and tags are collected and raised together."""
    source = Source(name, tuple(text.splitlines()))
    try:
        return _simple_tree(simple_yaml.items(text), source)
    except simple_yaml.NotSimpleError:
        return _full_tree(text, source)


def _simple_tree(found: list[simple_yaml.Item], source: Source) -> Tree:
    """The tree of a text that needs no full parser."""
    values, keys = {}, {}
    for key, line, column, value, value_line, value_column in found:
        keys[key] = Mark(source, line, column)
        if isinstance(value, list):
            inner = _simple_tree(value, source)
            values[key] = Tree(inner.value, Mark(source, value_line, value_column), inner.keys)
        else:
            values[key] = Tree(value, Mark(source, value_line, value_column))
    return Tree(values, Mark(source, found[0].line, found[0].column), keys)


def _full_tree(text: str, source: Source) -> Tree:
    node = _compose(text, source)
    if node is None:
        raise SpecError(
            Mark(source, 1, 1).problem("S001", "there is nothing in it", "write at least one key: value")
        )
    builder = _Builder(source)
    tree = builder.build(node, 0)
    if builder.problems:
        raise SpecError(builder.problems)
    return tree


def parse_value(text: str, where: str) -> Any:
    """The YAML value of a command-line flag, as plain Python; empty text is an empty string."""
    return parse_text(text, where).plain() if text.strip() else ""


def _compose(text: str, source: Source) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    yaml = YAML(typ="safe", pure=True)
    try:
        return yaml.compose(text)
    except MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(source, at.line + 1, at.column + 1) if at is not None else Mark(source, 1)
        words = " ".join(str(part) for part in (error.problem, error.context) if part)
        raise SpecError(
            mark.problem("S001", f"not valid YAML: {words}", _syntax_help(source, mark))
        ) from None
    except RecursionError:
        raise SpecError(Mark(source, 1).problem("S001", "nested too deeply")) from None
    except Exception as error:  # the parser fails in many ways on bytes that are no YAML at all
        words = " ".join(str(error).split())[:200]
        raise SpecError(
            Mark(source, 1).problem("S001", f"not valid YAML: {words or type(error).__name__}")
        ) from None


def _syntax_help(source: Source, mark: Mark) -> str | None:
    line = source.lines[mark.line - 1] if mark.line is not None and mark.line <= len(source.lines) else ""
    if "\t" in line:
        return "YAML indents with spaces, not with tabs"
    if re.search(r":\S", line) and ": " not in line:
        return "put a space after the colon"
    if line.count(": ") > 1 and "{" not in line:
        return "quote a value that holds a colon"
    return None


class _Builder:
    """Turns composed nodes into trees and collects what is wrong on the way."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.count = 0

    def build(self, node: Any, depth: int) -> Tree:
        self.count += 1
        mark = Mark(self.source, node.start_mark.line + 1, node.start_mark.column + 1)
        if depth > MAX_DEPTH or self.count > MAX_NODES:
            raise SpecError(mark.problem("S013", "nested too deeply, or aliases that expand without end"))
        tag = str(node.tag)
        if not tag.startswith(_TAG):
            self.problems.append(
                mark.problem("S013", f"tags are not allowed: {tag}", "write the plain value")
            )
            return Tree(None, mark)
        kind = tag.removeprefix(_TAG)
        if isinstance(node.value, list):
            return (
                self._mapping(node, mark, depth) if kind == "map" else self._sequence(node, mark, kind, depth)
            )
        return Tree(self._scalar(str(node.value), kind, mark), mark)

    def _sequence(self, node: Any, mark: Mark, kind: str, depth: int) -> Tree:
        if kind != "seq":
            self.problems.append(
                mark.problem("S013", f"tags are not allowed: !!{kind}", "write a plain list or mapping")
            )
            return Tree(None, mark)
        return Tree([self.build(item, depth + 1) for item in node.value], mark)

    def _mapping(self, node: Any, mark: Mark, depth: int) -> Tree:
        items: dict[str, Tree] = {}
        keys: dict[str, Mark] = {}
        for key_node, value_node in node.value:
            key_mark = Mark(self.source, key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if isinstance(key_node.value, list):
                self.problems.append(key_mark.problem("S005", "a key must be plain text"))
                continue
            key = str(key_node.value)
            if key in keys:
                first = keys[key].line
                self.problems.append(
                    key_mark.problem(
                        "S002", f'key "{key}" is given twice', f"it is already on line {first}; keep one"
                    )
                )
                continue
            keys[key] = key_mark
            item = self.build(value_node, depth + 1)
            # The parser places a missing value at the next token, often on another line.
            items[key] = Tree(None, key_mark) if item.value is None and not value_node.value else item
        return Tree(items, mark, keys)

    def _scalar(self, text: str, kind: str, mark: Mark) -> Any:
        if kind in ("str", "timestamp"):
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        try:
            if kind == "int":
                return _integer(text.replace("_", ""))
            if kind == "float":
                return _float(text.replace("_", "").lower())
        except ValueError:
            self.problems.append(mark.problem("S005", f'cannot read "{text[:40]}" as a number'))
            return None
        self.problems.append(mark.problem("S013", f"tags are not allowed: !!{kind}", "write the plain value"))
        return None


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return int(text, 10)


def _float(text: str) -> float:
    if text.lstrip("+-") == ".inf":
        return float(text.replace(".", ""))
    return float("nan") if text == ".nan" else float(text)
