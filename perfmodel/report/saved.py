"""Saved results: JSON files and HTML reports, read back into envelopes with errors a person can act on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfmodel.errors import Problem, SpecError
from perfmodel.files import parse_json, read_bytes
from perfmodel.report import html
from perfmodel.report.model import kind_of

_MOST_BYTES = 500_000_000


def load(path: Path) -> dict[str, object]:
    """The envelope in `path`; HTML and JSON differ in their first character."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SpecError(Problem(str(path), code="R003", message="too large for a saved result"))
        text = read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise SpecError(
            Problem(str(path), code="R003", message=f"cannot read it: {error.strerror}")
        ) from None
    except UnicodeDecodeError:
        raise SpecError(Problem(str(path), code="R003", message="not a text file")) from None
    try:
        envelope: dict[str, object] = plain(parse(text))
        return envelope
    except SpecError as error:
        raise SpecError(
            [Problem(str(path), p.line, p.column, p.code, p.message, help=p.help) for p in error.problems]
        ) from None


def parse(text: str) -> dict[str, object]:
    """An envelope from the text of a JSON file or an HTML report."""
    if text.lstrip()[:1] == "<":
        return check(html.read(text))
    return check(parse_json(text, None, "R004"))


def plain(value: Any) -> Any:
    """The same value with no control characters in its texts: what was read must not steer the terminal.

    >>> plain({"answer": ["red" + chr(27) + "[31m", 1]}) == {"answer": ["red" + chr(0xFFFD) + "[31m", 1]}
    True
    """
    if isinstance(value, str):
        return (
            value
            if value.isprintable()
            else "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in value)
        )
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def check(found: object) -> dict[str, object]:
    """Insist on the envelope's form."""
    wanted = 'a saved result starts {"schema": "perfmodel/<kind>/1", "version": ..., "inputs": {...}, "result": {...}}'
    if not isinstance(found, dict) or not kind_of(found):
        raise SpecError(Problem(code="R005", message="not a perfmodel result", help=wanted))
    if not str(found["schema"]).endswith("/1"):
        raise SpecError(
            Problem(code="R006", message=f"schema {found['schema']} is newer than this version reads")
        )
    if not isinstance(found.get("inputs"), dict) or not isinstance(found.get("result"), dict):
        raise SpecError(Problem(code="R005", message="inputs or result is missing", help=wanted))
    if not isinstance(found.get("version"), str) or not isinstance(found.get("seed"), int):
        raise SpecError(Problem(code="R005", message="version or seed is missing", help=wanted))
    return found
