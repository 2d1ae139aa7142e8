"""Configuration files that a launch script writes for itself: `cat > ds.json <<EOF` and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from perfmodel.errors import SpecError
from perfmodel.frameworks.document import Document, parse
from perfmodel.frameworks.draft import UNKNOWN
from perfmodel.frameworks.shell import read_script

MOST_FILES = 20
_START = re.compile(r"<<-?\s*(?P<quote>['\"\\\\]?)(?P<word>\w+)['\"]?")
_TARGET = re.compile(r"(?:>|\btee\s)\s*[\"']?(?P<name>[^\s<>|;&\"']+)")


def written_by(document: Document) -> tuple[list[Document], list[str]]:
    """The files that a script writes, as documents with the script's lines, and the names of those not to be read.

    >>> script = parse("#!/bin/bash\\nS=3\\ncat > d.json <<EOF\\n{\\"stage\\": $S}\\nEOF\\n", "run.sh")
    >>> found, _ = written_by(script)
    >>> found[0].written, found[0].entries["stage"].value, found[0].entries["stage"].mark.line
    ('d.json', 3, 4)
    """
    found: list[Document] = []
    failed: list[str] = []
    if document.syntax != "shell":
        return found, failed
    for name, first, body in _bodies(document.source.lines):
        padded = "\n" * (first - 1) + body
        try:
            found.append(replace(parse(padded, document.source.name), written=name))
        except SpecError:
            failed.append(name)
        if len(found) + len(failed) >= MOST_FILES:
            break
    return found, failed


def _bodies(lines: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
    """Name, first line and text of each here-document that becomes a file; of its variables those that are known."""
    at = 0
    variables: dict[str, str] | None = None
    while at < len(lines):
        line = lines[at]
        at += 1
        start = _START.search(line)
        if start is None or line.lstrip().startswith("#") or "<<<" in line:
            continue
        end = next((i for i in range(at, len(lines)) if lines[i].strip() == start["word"]), len(lines))
        body, first = "\n".join(lines[at:end]), at + 1
        at = end + 1
        target = _TARGET.search(line.replace(start.group(), ""))
        kept = target is not None and re.search(r"[{}\[\]:=]", body) is not None
        if not kept or target is None:
            continue
        if not start["quote"] and "$" in body:
            if variables is None:
                variables = _variables("\n".join(lines))
            body = _filled(body, variables)
        yield target["name"].rsplit("/", 1)[-1], first, body


def _filled(body: str, known: dict[str, str]) -> str:
    return re.sub(
        r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))",
        lambda name: known.get(name.group(1) or name.group(2), UNKNOWN),
        body,
    )


def _variables(text: str) -> dict[str, str]:
    """What the script's variables hold in the end; lists are of no use inside a file."""
    found = {}
    for name, words in read_script(text).variables.items():
        if len(words) == 1:
            found[name] = "".join(char for char, _ in words[0])[:1000]
    return found
