"""One module for each kind of result: how its answer, tables, charts and figures are read from the envelope.

A kind module has `title(envelope)` and `tables(envelope)`. What else it may have are the fields of `Rendering`; what it
leaves out is the usual. A kind without a module is rendered by `generic`, so a new verb has readable output from its first
day.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from perfmodel.report.kinds import common
from perfmodel.report.model import Chart, Envelope, Table, kind_of


@dataclass(frozen=True)
class Rendering:
    """How one kind is read."""

    title: Callable[[Envelope], str]
    tables: Callable[[Envelope], list[Table]]
    answer: Callable[[Envelope], str] = common.answer
    notes: Callable[[Envelope], list[str]] = common.notes
    charts: Callable[[Envelope], list[Chart]] = lambda _: []
    #: Names of matplotlib plots that suit it.
    figures: Callable[[Envelope], list[str]] = lambda _: []
    #: The table for programs (CSV, data frames) where none of the tables for people is.
    data: Callable[[Envelope], Table | None] = lambda _: None
    #: Label, value and addition of what a page shows beside the answer.
    facts: Callable[[Envelope], Sequence[tuple[str, str, str]]] = lambda _: ()
    #: Lines of the first screen, and the titles of its tables; None prints all.
    FIRST_SCREEN: tuple[int, tuple[str, ...]] | None = None


def rendering(kind: str) -> Rendering:
    """How a kind is read; as `generic` has it for one without a module."""
    name = kind.replace("-", "_")
    path = f"{__name__}.{name}"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or importlib.util.find_spec(path) is None:
        path = f"{__name__}.generic"
    module = vars(importlib.import_module(path))
    if "title" not in module:  # a helper of this folder
        return rendering("generic")
    return Rendering(
        **{field.name: module[field.name] for field in fields(Rendering) if field.name in module}
    )


def rendering_of(envelope: Envelope) -> Rendering:
    """How an envelope is read."""
    return rendering(kind_of(envelope))
