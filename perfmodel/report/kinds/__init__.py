"""One module for each kind of result: how its answer, tables, charts and figures are read from the envelope.

A kind module has `title(envelope)`, `answer(envelope)`, `tables(envelope)`, `figures(envelope)` (names of
matplotlib plots that suit it) and `notes(envelope)`; `charts(envelope)` is optional, and so is `data(envelope)`, the
table for programs (CSV, data frames) where none of the tables for people is. A kind without a module is rendered by
`generic`, so a new verb has readable output from its first day.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from typing import Protocol, cast

from perfmodel.report.model import Chart, Envelope, Table, kind_of


class Kind(Protocol):
    """What a kind module offers, as functions of the envelope."""

    title: Callable[[Envelope], str]
    answer: Callable[[Envelope], str]
    tables: Callable[[Envelope], list[Table]]
    figures: Callable[[Envelope], list[str]]
    notes: Callable[[Envelope], list[str]]


def module_for(kind: str) -> Kind:
    """The module that renders a kind; `generic` for one that has none."""
    name = kind.replace("-", "_")
    path = f"{__name__}.{name}"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or importlib.util.find_spec(path) is None:
        path = f"{__name__}.generic"
    return cast(Kind, importlib.import_module(path))


def module_of(envelope: Envelope) -> Kind:
    """The module that renders an envelope."""
    return module_for(kind_of(envelope))


def charts_of(envelope: Envelope) -> list[Chart]:
    """The charts of an envelope; none for a kind that draws none."""
    charts = getattr(module_of(envelope), "charts", None)
    return list(charts(envelope)) if charts is not None else []
