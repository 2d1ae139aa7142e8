"""What became of every line of every file that was read, as plain data for a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perfmodel.readings.source import Reading


def account(reading: Reading) -> dict[str, Any]:
    """One file: how many lines were used, ignored and rejected, and which were rejected."""
    return {
        "file": reading.path,
        "lines": reading.lines,
        "used": reading.used,
        "ignored": reading.ignored,
        "rejected": reading.rejected_count,
        "rejected_lines": numbers(reading.rejected_lines),
    }


def notes(readings: Iterable[Reading]) -> list[str]:
    """What readers report of how they read, each with its file; what several files share is reported once."""
    found: dict[str, list[str]] = {}
    for reading in readings:
        for note in reading.notes:
            found.setdefault(note, []).append(reading.path)
    return [
        f"{files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''}: {note}"
        for note, files in found.items()
    ]


def rejections(readings: Iterable[Reading]) -> list[dict[str, Any]]:
    """The rejected lines with text and reason, of each file the first ones (`source.KEPT_REJECTIONS`)."""
    return [
        {"file": reading.path, "line": item.line or None, "reason": item.reason, "text": item.text}
        for reading in readings
        for item in reading.rejected
    ]


def numbers(runs: Sequence[tuple[int, int]]) -> str:
    """Runs of line numbers in words.

    >>> numbers([(3, 3), (7, 9)])
    '3, 7-9'
    """
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
