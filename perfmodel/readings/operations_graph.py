"""Graphs of operations as people write them: JSON, CSV or Graphviz DOT, to nodes with seconds and edges.

JSON: `{"nodes": [{"id": "read", "time_s": 1}], "edges": [["read", "merge"]]}`; networkx's node-link form (`links` or
`edges` with `source` and `target`) too. CSV: columns `name,time_s,after`, where `after` names what must be done before,
separated by spaces or semicolons. DOT: `read [time_s=1]; read -> merge;`. Every fault is reported with its line.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfmodel.errors import Problem, SpecError
from perfmodel.files import read_bytes
from perfmodel.units import plain_number

SUFFIXES = (".json", ".csv", ".dot", ".gv")
MOST_NODES = 200_000
_LARGEST_S = 1e12
_HELP = {
    ".json": 'write {"nodes": [{"id": "read", "time_s": 1}], "edges": [["read", "merge"]]}',
    ".csv": "write a header name,time_s,after and a line for each operation",
    ".dot": "write digraph { read [time_s=1]; merge [time_s=2]; read -> merge; }",
}


@dataclass
class OperationsGraph:
    """Seconds of each operation, in the order of the file, and which waits for which."""

    time_s: dict[str, float] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class _Reader:
    name: str
    help: str
    graph: OperationsGraph = field(default_factory=OperationsGraph)
    problems: list[Problem] = field(default_factory=list)
    lines: dict[tuple[str, str], int | None] = field(default_factory=dict)

    def fail(self, line: int | None, message: str, help: str | None = None) -> None:
        self.problems.append(Problem(self.name, line, None, "T004", message, help=help))

    def node(self, line: int | None, name: Any, seconds: Any) -> None:
        text = str(name).strip() if name is not None and not isinstance(name, (dict, list)) else ""
        if not text:
            self.fail(line, "an operation without a name")
            return
        if text in self.graph.time_s:
            self.fail(line, f'operation "{text}" stands there twice')
            return
        self.graph.time_s[text] = self._seconds(line, text, seconds)

    def _seconds(self, line: int | None, name: str, given: Any) -> float:
        if given is None or isinstance(given, bool) or str(given).strip() == "":
            self.fail(line, f'operation "{name}" has no time_s', self.help)
            return 0.0
        try:
            value = plain_number(str(given).strip())
        except ValueError:
            self.fail(line, f'time_s of "{name}" is no number: {given}', "plain seconds")
            return 0.0
        if not 0.0 <= value <= _LARGEST_S:
            self.fail(line, f'time_s of "{name}" must be finite and not negative, got {given}')
            return 0.0
        return value

    def edge(self, line: int | None, before: Any, after: Any) -> None:
        pair = (str(before).strip(), str(after).strip())
        if pair not in self.lines:
            self.lines[pair] = line
            self.graph.edges.append(pair)

    def finish(self) -> OperationsGraph:
        known = self.graph.time_s
        if not known and not self.problems:
            self.fail(None, "no operation in the file", self.help)
        for pair in self.graph.edges:
            self.problems += [
                Problem(
                    self.name,
                    self.lines[pair],
                    None,
                    "T004",
                    f'"{end}" is no operation of the file',
                    help="each operation needs a time_s of its own",
                )
                for end in dict.fromkeys(pair)
                if end not in known
            ]
            if pair[0] == pair[1]:
                self.fail(self.lines[pair], f'"{pair[0]}" waits for itself')
        if len(known) > MOST_NODES:
            self.fail(None, f"more than {MOST_NODES:,} operations")
        if self.problems:
            raise SpecError(dict.fromkeys(self.problems))
        return self.graph


def read_graph(path: Path) -> OperationsGraph:
    """Read one file; every fault at once."""
    suffix = ".dot" if path.suffix.lower() == ".gv" else path.suffix.lower()
    reader = _Reader(str(path), _HELP.get(suffix, ""))
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise SpecError(Problem(str(path), code="T001", message=f"cannot read: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise SpecError(Problem(str(path), code="T009", message="not UTF-8 text")) from None
    {".json": _json, ".csv": _csv, ".dot": _dot}[suffix](text, reader)
    return reader.finish()


def _json(text: str, reader: _Reader) -> None:
    try:
        data = json.loads(text)
    except RecursionError:
        reader.fail(None, "nested too deeply")
        return
    except ValueError as error:
        reader.fail(getattr(error, "lineno", None), f"not JSON: {getattr(error, 'msg', error)}", reader.help)
        return
    nodes = data.get("nodes") if isinstance(data, dict) else None
    if not isinstance(nodes, list):
        reader.fail(None, 'no list "nodes"', reader.help)
        return
    for item in nodes:
        if isinstance(item, Mapping):
            reader.node(None, item.get("id", item.get("name")), item.get("time_s"))
        else:
            reader.fail(None, f"a node is a mapping with id and time_s, not {str(item)[:40]}", reader.help)
    edges = data.get("edges", data.get("links", []))
    for item in edges if isinstance(edges, list) else [None]:
        if isinstance(item, Mapping) and {"source", "target"} <= set(item):
            reader.edge(None, item["source"], item["target"])
        elif isinstance(item, list) and len(item) == 2:
            reader.edge(None, item[0], item[1])
        else:
            reader.fail(None, f"an edge is [before, after], not {str(item)[:40]}", reader.help)


def _csv(text: str, reader: _Reader) -> None:
    rows = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        names = [name.strip() for name in rows.fieldnames or ()]
        rows.fieldnames = names
        if missing := [column for column in ("name", "time_s") if column not in names]:
            reader.fail(1, f'missing column "{missing[0]}"', reader.help)
            return
        for row in rows:
            reader.node(rows.line_num, row.get("name"), row.get("time_s"))
            for before in _names(row.get("after") or ""):
                reader.edge(rows.line_num, before, row.get("name"))
    except csv.Error as error:
        reader.fail(rows.line_num, f"not CSV: {error}", reader.help)


def _names(text: str) -> Iterable[str]:
    return filter(None, re.split(r"[;\s]+", text))


_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = r'(?:"[^"\n]*"|[A-Za-z_0-9.:]+)'
_EDGES = re.compile(rf"{_WORD}(?:\s*->\s*{_WORD})+")
_NODE = re.compile(rf"({_WORD})\s*(?:\[([^\]]*)\])?")
_TIME = re.compile(r'\btime_s\s*=\s*"?([^",;\s\]]+)')
_DEFAULTS = ("node", "edge", "graph")


def _dot(text: str, reader: _Reader) -> None:
    """The part of Graphviz' language that a graph of operations needs: nodes with time_s, and chains of arrows."""
    blank = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    opening = re.match(rf"\s*(?:strict\s+)?digraph\s*(?:{_WORD})?\s*\{{", blank)
    if opening is None or "}" not in blank:
        reader.fail(1, "not a directed graph of Graphviz", reader.help)
        return
    start, body = opening.end(), blank[opening.end() : blank.rindex("}")]
    usual: str | None = None
    at = 0
    for statement in re.split(r"(?<=[;\n\]])", body):
        line = blank.count("\n", 0, start + at + len(statement) - len(statement.lstrip())) + 1
        at += len(statement)
        words = statement.strip().rstrip(";").strip()
        if not words or re.fullmatch(rf"{_WORD}\s*=\s*{_WORD}", words):
            continue
        edges, node = _EDGES.match(words), _NODE.fullmatch(words)
        if edges:
            chain = [_bare(word) for word in re.split(r"\s*->\s*", edges.group())]
            for before, after in itertools.pairwise(chain):
                reader.edge(line, before, after)
        elif node and _bare(node[1]) in _DEFAULTS:
            said = _TIME.search(node[2] or "")
            usual = said[1] if said and _bare(node[1]) == "node" else usual
        elif node:
            said = _TIME.search(node[2] or "")
            reader.node(line, _bare(node[1]), said[1] if said else usual)
        else:
            reader.fail(line, f"cannot read: {words[:60]}", reader.help)


def _bare(word: str) -> str:
    return word.strip().strip('"')
