"""A framework's file where a job is expected: the hook of the job loader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfmodel.errors import SpecError
from perfmodel.frameworks.detect import roles_of
from perfmodel.frameworks.document import parse, read_text
from perfmodel.frameworks.here import written_by
from perfmodel.frameworks.reader import Reading, read_documents
from perfmodel.specs.loader import Tree

NEEDED = ("workload", "cluster")


def tree_of(path: Path, overrides: Mapping[str, Any]) -> tuple[Tree, tuple[str, ...]] | None:
    """The job in a framework's file, with notes on how it was read; None where no framework's names are in it.

    `overrides` are the values of flags: they answer what the file leaves open.
    """
    try:
        document = parse(read_text(path), str(path))
    except SpecError:
        return None
    roles = roles_of(document)
    if roles == ["slurm"]:
        roles += [role for one in written_by(document)[0] for role in roles_of(one)]
    if not roles or roles in (["slurm"], ["model"]):
        return None
    reading = read_documents([document], given(overrides), [path.parent])
    open_keys = [key for key in NEEDED if key not in overrides and reading.assembled.tree.get(key) is None]
    if open_keys:
        asked = reading.draft.questions or [f"the job lacks {', '.join(open_keys)}"]
        raise SpecError(
            document.start.problem(
                "F020", question, "perfmodel import writes a job file with what is known" if not at else None
            )
            for at, question in enumerate(asked)
        )
    return reading.assembled.tree, notes_of(reading)


def given(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The values of flags in the plain form that reading asks for; a flag for a part of a key answers no question."""
    return {key: value.plain() if isinstance(value, Tree) else value for key, value in overrides.items()}


def notes_of(reading: Reading) -> tuple[str, ...]:
    """How the job of a prediction was read."""
    draft = reading.draft
    named = " and ".join(reading.frameworks) or "launcher"
    notes = [
        f"read from {', '.join(reading.files)}: {len(draft.findings)} facts of {named}, "
        f"{len(draft.not_understood)} settings not understood"
        + (f" ({', '.join(entry.key for entry in draft.not_understood[:8])})" if draft.not_understood else "")
    ]
    return (*notes, *draft.notes, *(f"open: {question}" for question in draft.questions))
