"""A file of a framework as settings with their lines: YAML, JSON, TOML, or a launch script and its arguments.

Nothing is executed, imported or followed: a file is text. Sizes, depths and aliases are bounded.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfmodel.errors import Problem, SpecError
from perfmodel.files import read_bytes
from perfmodel.frameworks.draft import Entry
from perfmodel.frameworks.launch import Command, commands_of
from perfmodel.specs.loader import Mark, Source, Tree, graft, parse_text

MOST_BYTES = 2_000_000
MOST_SHELL_BYTES = 200_000  # a script is followed character by character
MOST_YAML_BYTES = 500_000  # which takes some seconds to parse
MOST_NODES = 50_000
MOST_DEPTH = 40
MOST_BRACKETS = 400  # open at once; a script's comments and quotes may leave some open


@dataclass
class Document:
    """One file: its settings by dotted key, or the commands of a script."""

    source: Source
    syntax: str  # yaml, json, toml, shell
    entries: dict[str, Entry] = field(default_factory=dict)
    top: frozenset[str] = frozenset()
    commands: list[Command] = field(default_factory=list)
    directives: list[Entry] = field(default_factory=list)
    doubtful: list[Entry] = field(default_factory=list)
    written: str | None = None  # the name of the file, where a script writes it before it starts

    def has(self, *keys: str) -> bool:
        """Whether every one of these keys, or something below it, is there."""
        return all(
            key in self.entries or any(name.startswith(f"{key}.") for name in self.entries) for key in keys
        )

    def below(self, prefix: str) -> dict[str, Entry]:
        """The settings below a key, by the rest of theirs."""
        return {
            key.removeprefix(f"{prefix}."): entry
            for key, entry in self.entries.items()
            if key.startswith(f"{prefix}.")
        }

    @property
    def start(self) -> Mark:
        """The first line of the file."""
        return Mark(self.source, 1)


def read_text(path: Path) -> str:
    """The text of a file within the limits; the reason where it cannot be read."""
    name = str(path)
    try:
        data = read_bytes(path, MOST_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(Problem(name, code="F001", message=f"cannot read the file: {reason}")) from None
    return decoded(data, name)


def decoded(data: bytes, name: str) -> str:
    """Bytes as text, or the reason why they are none."""
    if len(data) > MOST_BYTES:
        raise SpecError(
            Problem(name, code="F001", message=f"the file is larger than {MOST_BYTES // 1_000_000} MB")
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(Problem(name, 1, code="F001", message="the file is not UTF-8 text")) from None
    if "\0" in text:
        raise SpecError(Problem(name, 1, code="F001", message="the file is not text"))
    return text


def parse(text: str, name: str) -> Document:
    """Text as a document; the syntax is recognised from the text, since names of files mislead."""
    source = Source(name, tuple(text.splitlines()))
    stripped = text.lstrip()
    if not stripped:
        raise SpecError(Mark(source, 1).problem("F001", "there is nothing in it"))
    _bounded(text, source)
    if stripped.startswith(("{", "[{")):
        return _from_tree("json", _json(text, source), source)
    if _looks_like_toml(text):
        return _from_tree("toml", _toml(text, source), source)
    if looks_like_shell(text):
        return _shell(text, source)
    if len(text) > MOST_YAML_BYTES:
        what = f"a configuration of more than {MOST_YAML_BYTES // 1000} kB is not read"
        raise SpecError(Mark(source, 1).problem("F001", what))
    return _from_tree("yaml", parse_text(text, name), source)


def _bounded(text: str, source: Source) -> None:
    """Refuse brackets without end before a parser follows them."""
    depth = 0
    for found in re.finditer(r"[\[{(]|[\]})]", text):
        depth = depth + 1 if found.group() in "[{(" else max(depth - 1, 0)
        if depth > MOST_BRACKETS:
            line = text.count("\n", 0, found.start()) + 1
            raise SpecError(Mark(source, line).problem("F002", "nested too deeply"))


def looks_like_shell(text: str) -> bool:
    """Whether text is a script or a list of arguments rather than data.

    >>> looks_like_shell("#!/bin/bash"), looks_like_shell("TP=4\\ntorchrun x.py"), looks_like_shell("a: 1\\nb: --x")
    (True, True, False)
    """
    if text.startswith("#!") or re.search(r"(?m)^\s*#SBATCH\s", text):
        return True
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    shell = r"(export\s+)?[A-Za-z_]\w*\+?=\S*|(srun|torchrun|python3?|deepspeed|accelerate|composer|export|set|mpirun)\b.*|--?[A-Za-z][\w-]*([ =].*)?\\?"
    data = r"[\w.\-\"' ]+:(\s.*)?|-\s.*"
    scored = [
        (bool(re.fullmatch(shell, line)), bool(re.fullmatch(data, line[:2000]))) for line in lines[:200]
    ]
    return sum(a for a, _ in scored) > sum(b for _, b in scored)


def _looks_like_toml(text: str) -> bool:
    head = re.search(r"(?m)^\s*\[\[?[A-Za-z_][\w.\"-]*\]?\]\s*(#.*)?$", text)
    return (
        head is not None
        and re.search(r"(?m)^\s*[\w.\"-]+\s*=\s*\S", text) is not None
        and not text.startswith("#!")
    )


def _toml(text: str, source: Source) -> Tree:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+), column (\d+)", str(error))
        mark = Mark(source, int(at.group(1)), int(at.group(2))) if at else Mark(source, 1)
        said = re.sub(r"\s*\(at .*", "", str(error))
        raise SpecError(mark.problem("F002", f"not valid TOML: {said}")) from None
    except RecursionError:
        raise SpecError(Mark(source, 1).problem("F002", "nested too deeply")) from None
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(source.lines, start=1):
        head = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line)
        key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if head and "=" not in line.split("]")[0]:
            section = head.group(1).replace('"', "")
            lines.setdefault(section, number)
        elif key:
            name = key.group(1).strip("\"'")
            lines.setdefault(f"{section}.{name}" if section else name, number)
    return _placed(data, source, lines, "", 0)


def _placed(value: Any, source: Source, lines: Mapping[str, int], path: str, depth: int) -> Tree:
    """Plain values as a tree, each at the line where its key stands."""
    mark = Mark(source, lines.get(path, lines.get(path.rpartition(".")[0], 1)))
    if depth > MOST_DEPTH:
        raise SpecError(mark.problem("F002", "nested too deeply"))
    if isinstance(value, dict):
        items = {
            str(key): _placed(item, source, lines, f"{path}.{key}" if path else str(key), depth + 1)
            for key, item in value.items()
        }
        return Tree(items, mark, {key: item.mark for key, item in items.items()})
    if isinstance(value, list):
        return Tree([_placed(item, source, lines, path, depth + 1) for item in value], mark)
    return Tree(value if isinstance(value, (str, int, float, bool, type(None))) else str(value), mark)


def _json(text: str, source: Source) -> Tree:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        try:
            return parse_text(text, source.name)  # flow YAML, or JSON with comments
        except SpecError:
            mark = Mark(source, error.lineno, error.colno)
            raise SpecError(mark.problem("F002", f"not valid JSON: {error.msg}")) from None
    except (RecursionError, ValueError):
        raise SpecError(Mark(source, 1).problem("F002", "nested too deeply, or a number too long")) from None
    if "\t" not in text and len(text) < 100_000:
        try:
            return parse_text(text, source.name)
        except SpecError:
            pass  # JSON that YAML reads otherwise: the places are then searched for
    try:
        return _placed(data, source, _json_lines(source), "", 0)
    except RecursionError:
        raise SpecError(Mark(source, 1).problem("F002", "nested too deeply")) from None


def _json_lines(source: Source) -> dict[str, int]:
    """Lines of keys by path, for JSON that is written over lines; a key in one line with others has that line."""
    lines: dict[str, int] = {}
    path: list[str] = []
    last = ""
    for number, line in enumerate(source.lines, start=1):
        for found in re.finditer(r'"((?:[^"\\]|\\.)*)"\s*(:)?|([{}])', line):
            if found.group(3) == "{":
                path.append(last)
                last = ""
            elif found.group(3) == "}":
                path = path[:-1]
            elif found.group(2):
                last = found.group(1)
                lines.setdefault(".".join([*filter(None, path), last]), number)
    return lines


def _shell(text: str, source: Source) -> Document:
    if len(text) > MOST_SHELL_BYTES:
        raise SpecError(
            Mark(source, 1).problem(
                "F001", f"a script of more than {MOST_SHELL_BYTES // 1000} kB is not followed"
            )
        )
    try:
        commands, directives, doubtful = commands_of(text, source)
    except RecursionError:
        raise SpecError(Mark(source, 1).problem("F002", "nested too deeply")) from None
    return Document(source, "shell", {}, frozenset(), commands, directives, doubtful)


def _from_tree(syntax: str, tree: Tree, source: Source) -> Document:
    if not isinstance(tree.value, dict):
        found = "a list" if isinstance(tree.value, list) else "plain text"
        raise SpecError(tree.mark.problem("F002", f"a configuration is a mapping of keys, this is {found}"))
    entries: dict[str, Entry] = {}
    for key, value, mark in _flattened(tree, "", 0):
        entries.setdefault(key, Entry(key, value, mark))
        if len(entries) > MOST_NODES:
            raise SpecError(mark.problem("F002", "more settings than a configuration has"))
    return Document(source, syntax, _interpolated(entries), frozenset(tree.value))


def _flattened(tree: Tree, path: str, depth: int) -> Iterator[tuple[str, Any, Mark]]:
    if depth > MOST_DEPTH:
        raise SpecError(tree.mark.problem("F002", "nested too deeply"))
    if isinstance(tree.value, dict):
        if not tree.value and path:
            yield path, {}, tree.mark
        for key, item in tree.value.items():
            if key == "<<":  # a merge: its keys count where the mapping has none of its own
                continue
            inner = f"{path}.{key}" if path else key
            yield from _flattened(item, inner, depth + 1)
        merged = tree.value.get("<<")
        if merged is not None and isinstance(merged.value, (dict, list)):
            for one in merged.value if isinstance(merged.value, list) else [merged]:
                yield from _flattened(one, path, depth + 1) if isinstance(one.value, dict) else ()
    elif isinstance(tree.value, list) and any(isinstance(item.value, (dict, list)) for item in tree.value):
        for number, item in enumerate(tree.value):
            yield from _flattened(item, f"{path}.{number}", depth + 1)
    else:
        value = [item.value for item in tree.value] if isinstance(tree.value, list) else tree.value
        yield path, value, tree.mark


def _interpolated(entries: dict[str, Entry]) -> dict[str, Entry]:
    """`${a.b}` of OmegaConf replaced by the setting that it names, some levels deep."""
    for _ in range(4):
        changed = False
        for key, entry in list(entries.items()):
            name = (
                re.fullmatch(r"\$\{(?:variables\.|\.)?([\w.]+)\}", entry.value)
                if isinstance(entry.value, str)
                else None
            )
            if name is None:
                continue
            for path in (
                name.group(1),
                f"variables.{name.group(1)}",
                f"{key.rpartition('.')[0]}.{name.group(1)}",
            ):
                if path in entries and path != key:
                    entries[key] = Entry(key, entries[path].value, entry.mark)
                    changed = True
                    break
        if not changed:
            break
    return entries


def mapping(values: Mapping[str, Any], mark: Mark) -> Tree:
    """Plain values at one place."""
    return graft(dict(values), mark)
