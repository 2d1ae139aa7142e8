"""An imported job as YAML that people keep: every value with the setting it comes from, and what is still open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.frameworks.draft import Finding
from perfmodel.frameworks.reader import Reading
from perfmodel.workloads.text import scalar

_SHOWN = 60  # of a list in a comment; --format json has all


def render(reading: Reading, job: Mapping[str, Any]) -> str:
    """The job file.

    Settings that were not understood and questions stand above it as comments.
    """
    draft = reading.draft
    lines = ["# yaml-language-server: $schema=.perfmodel/job.json"]
    lines.append(
        f"# Imported from {', '.join(reading.files)} ({', '.join(reading.frameworks) or 'no framework'})."
    )
    lines += [f"# Question: {_line(question)}" for question in draft.questions]
    lines += [f"# Note: {_line(note)}" for note in draft.notes]
    unread = [f"{entry.key} ({entry.mark.source.name}:{entry.mark.line})" for entry in draft.not_understood]
    lines += [f"# Not understood: {_line(item)}" for item in unread[:_SHOWN]]
    if len(unread) > _SHOWN:
        lines.append(f"# Not understood: {len(unread) - _SHOWN} more; --format json lists them")
    for key, value in job.items():
        lines += _key(key, value, reading.assembled.origins, "", 0)
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _key(key: str, value: Any, origins: Mapping[str, Finding], path: str, depth: int) -> list[str]:
    pad = "  " * depth
    found = origins.get(f"{path}{key}")
    comment = f"  # {_line(f'{found.place} {found.key}')}" if found is not None else ""
    if isinstance(value, Mapping):
        if not value:
            return [f"{pad}{key}: {{}}{comment}"]
        lines = [f"{pad}{key}:{comment}"]
        for inner, item in value.items():
            lines += _key(str(inner), item, origins, f"{path}{key}.", depth + 1)
        return lines
    if isinstance(value, (list, tuple)):
        return [f"{pad}{key}: [{', '.join(scalar(item, flow=True) for item in value)}]{comment}"]
    return [f"{pad}{key}: {scalar(value)}{comment}"]
