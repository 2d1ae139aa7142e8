"""Worker counts as people write them: `8`, `1,2,4,8`, `1..1024` (doubling), `64..128:8` (steps)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from perfmodel.errors import UsageError

MAX_K = 10_000_000
MAX_COUNT = 10_000  # some ten seconds of a prediction
_RANGE = re.compile(r"(\d+)\s*\.\.\s*(\d+)(?:\s*:\s*(\d+))?", re.ASCII)
_HELP = "write 8, or 1,2,4,8, or 1..1024 (doubling), or 64..128:8 (steps of 8)"


def parse_k(text: str | int | Iterable[int | str]) -> tuple[int, ...]:
    """Distinct worker counts, ascending.

    >>> parse_k("1..16"), parse_k("64..96:16"), parse_k("1,3,8..32")
    ((1, 2, 4, 8, 16), (64, 80, 96), (1, 3, 8, 16, 32))
    >>> parse_k([4, 2])
    (2, 4)
    """
    if isinstance(text, bool):
        raise UsageError(f"not a worker count: {text}", code="U010", help=_HELP)
    pieces: list[object] = [text] if isinstance(text, int) else _split(text)
    found: set[int] = set()
    for piece in pieces:
        found.update(_expand(piece))
        if len(found) > MAX_COUNT:
            raise UsageError(f"more than {MAX_COUNT} worker counts", code="U010", help=_HELP)
    if not found:
        raise UsageError("no worker counts given", code="U010", help=_HELP)
    return tuple(sorted(found))


def _split(text: str | Iterable[int | str]) -> list[object]:
    return [part.strip() for part in text.split(",")] if isinstance(text, str) else list(text)


def _expand(piece: object) -> Iterable[int]:
    if isinstance(piece, int) and not isinstance(piece, bool):
        return (_checked(piece),)
    text = str(piece)
    if text.isascii() and text.isdecimal() and len(text) < 12:
        return (_checked(int(text)),)
    match = _RANGE.fullmatch(text)
    if match is None or max(len(group) for group in match.groups("")) > 11:
        raise UsageError(f'cannot read "{text}" as worker counts', code="U010", help=_HELP)
    first, last = _checked(int(match[1])), _checked(int(match[2]))
    if first > last:
        raise UsageError(f'"{text}" runs backwards', code="U010", help=f"write {last}..{first}")
    if match[3] is None:
        doubling = []
        while first <= last:
            doubling.append(first)
            first *= 2
        return doubling
    step = int(match[3])
    if step < 1:
        raise UsageError(f'"{text}" has a step of zero', code="U010", help=_HELP)
    if (last - first) // step >= MAX_COUNT:
        raise UsageError(f"more than {MAX_COUNT} worker counts", code="U010", help=_HELP)
    return range(first, last + 1, step)


def _checked(k: int) -> int:
    if not 1 <= k <= MAX_K:
        raise UsageError(f"a worker count must be between 1 and {MAX_K}, got {k}", code="U010", help=_HELP)
    return k
