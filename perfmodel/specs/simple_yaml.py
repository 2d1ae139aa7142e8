"""A fast reader of the simplest YAML, which most spec files are: a full parser takes 10 ms a file, this one 0.1 ms.

It reads mappings in block style, nested by two spaces, whose values are plain or double-quoted scalars of one line, or
flow mappings of such scalars. Whatever else it meets, doubt included, it reports as not simple, and `specs.loader` asks
the full parser. So it never decides that a file is wrong, and a test holds that both give the same tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

# Plain scalars start with a letter, a digit or a sign of a number; `: ` and ` #` end them, and in a flow mapping , { } [ ].
_KEY = re.compile(r"( *)([A-Za-z_][A-Za-z0-9_.-]*):(?: +(\S.*))?$")
_QUOTED = r'"[^"\\]*"'
_FLOW_PLAIN = r"[A-Za-z0-9(+/_.~$-][^,\[\]{}\"'#]*"
_FLOW_ITEM = re.compile(rf" *([A-Za-z_][A-Za-z0-9_.-]*): +({_QUOTED}|{_FLOW_PLAIN}?) *(,|\}}$)")
_PLAIN = re.compile(r"[A-Za-z0-9(+/_.$-]")
_NUMBER_LIKE = re.compile(r"[-+.0-9][-+0-9._eExXoObBaAcCdDfF:]*$|[-+]?\.(inf|nan)$", re.IGNORECASE)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_LONGEST_INTEGER = 30  # characters; the full parser says what is wrong with more
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]+$")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_OTHER_WORDS = frozenset({"null", "~", "yes", "no", "on", "off", "y", "n", "true", "false"})


class NotSimpleError(Exception):
    """The text is something that this reader leaves to the full parser."""


class Item(NamedTuple):
    """A key with its value: a scalar, or the items of a mapping. Lines and columns count from 1."""

    key: str
    line: int
    column: int
    value: Any
    value_line: int
    value_column: int


def items(text: str) -> list[Item]:
    """The mapping that the text holds.

    >>> [(item.key, item.value) for item in items('name: x\\nbandwidth: 900 GB/s\\nports: 18')]
    [('name', 'x'), ('bandwidth', '900 GB/s'), ('ports', 18)]
    """
    rows = list(_rows(text))
    if not rows:
        raise NotSimpleError
    found, end = _block(rows, 0, 0)
    if end != len(rows):
        raise NotSimpleError
    return found


class _Row(NamedTuple):
    line: int
    indent: int
    key: str
    value: str  # empty: the value is the block below
    column: int  # of the value


def _rows(text: str) -> Iterator[_Row]:
    if not text.replace("\n", "").isprintable():  # tabs and other line ends among it
        raise NotSimpleError
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.lstrip(" ")
        if not stripped or stripped[0] == "#":
            continue
        match = _KEY.match(line)
        if match is None or line[-1] == " ":
            raise NotSimpleError
        value = match[3] or ""
        yield _Row(number, len(match[1]), match[2], value, (match.start(3) if value else 0) + 1)


def _block(rows: list[_Row], start: int, indent: int) -> tuple[list[Item], int]:
    """Items of one level from a row on, and the row after them."""
    found: list[Item] = []
    seen: set[str] = set()
    at = start
    while at < len(rows) and rows[at].indent == indent:
        row = rows[at]
        if row.key in seen or row.key.lower() in _OTHER_WORDS:
            raise NotSimpleError
        seen.add(row.key)
        at += 1
        if row.value:
            value, line, column = _value(row.value, row.line, row.column), row.line, row.column
        elif at < len(rows) and rows[at].indent == indent + 2:
            line, column = rows[at].line, indent + 3
            value, at = _block(rows, at, indent + 2)
        else:
            raise NotSimpleError
        found.append(Item(row.key, row.line, indent + 1, value, line, column))
    if at < len(rows) and rows[at].indent > indent:
        raise NotSimpleError
    return found, at


def _value(text: str, line: int, column: int) -> Any:
    if text[0] == '"':
        if re.fullmatch(_QUOTED, text) is None:
            raise NotSimpleError
        return text[1:-1]
    if text[0] == "{":
        return _flow(text, line, column)
    if _PLAIN.match(text) is None or text[:2] == "- " or ": " in text or " #" in text or text[-1] == ":":
        raise NotSimpleError
    return _scalar(text)


def _flow(text: str, line: int, column: int) -> list[Item]:
    """Items of `{key: value, ...}`."""
    found: list[Item] = []
    at = 1
    while True:
        match = _FLOW_ITEM.match(text, at)
        if match is None or any(item.key == match[1] for item in found):
            raise NotSimpleError
        word = match[2]
        if word[0] == '"':
            value: Any = word[1:-1]
        elif ": " in word or word[:2] == "- " or word[-1] in " :" or match[1].lower() in _OTHER_WORDS:
            raise NotSimpleError
        else:
            value = _scalar(word)
        found.append(Item(match[1], line, column + match.start(1), value, line, column + match.start(2)))
        at = match.end()
        if match[3] != ",":
            return found


def _scalar(text: str) -> str | int | float | bool:
    """A plain scalar by YAML's core schema, where that is beyond doubt."""
    if text in ("true", "false"):
        return text == "true"
    if text.lower() in _OTHER_WORDS or _DATE.match(text):
        raise NotSimpleError
    if _NUMBER_LIKE.match(text) is None:
        return text
    if _INTEGER.match(text) and len(text) <= _LONGEST_INTEGER:
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    raise NotSimpleError
