"""Every term of the step at one K: formula, numbers, sources, share, sensitivity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.kinds.generic import as_cell, records
from perfmodel.report.model import Cell, Column, Envelope, Table, result_of


def title(envelope: Envelope) -> str:
    """The job and K."""
    k = common.setting(envelope, "k")
    return f"{common.subject(envelope) or 'The step'} at K = {k}"


def answer(envelope: Envelope) -> str:
    """The step time and its largest term."""
    result = result_of(envelope)
    if isinstance(result.get("answer"), str):
        return str(result["answer"])
    rows = terms(result)
    words = f"The step takes {text.quantity(result.get('time_s'), 's')}"
    shares = [row for row in rows if isinstance(row.get("share"), (int, float))]
    if shares:
        top = max(shares, key=lambda row: float(row["share"]))
        words += f"; {text.quantity(top['share'], '%')} of it is {top.get('name')}"
    return words + "."


def tables(envelope: Envelope) -> list[Table]:
    """Terms, inputs with sources, and any further rows the explanation gives."""
    result = result_of(envelope)
    rows = terms(result)
    found = []
    if rows:
        columns = [
            Column("term", "", 0),
            Column("time", "s", 0),
            Column("share", "%", 0),
            Column("formula", "", 1),
            Column("sensitivity", "", 2),
        ]
        cells: list[list[Cell]] = [
            [
                str(r.get("name")),
                r.get("time_s"),
                r.get("share"),
                as_cell(r.get("formula")),
                as_cell(r.get("sensitivity")),
            ]
            for r in rows
        ]
        found.append(Table("Terms", columns, cells, role="decision"))
    inputs: list[list[Cell]] = []
    for row in rows:
        for item in row.get("inputs") or ():
            if isinstance(item, Mapping):
                keys = ("name", "value", "confidence", "source")
                inputs.append([str(row.get("name")), *(as_cell(item.get(key)) for key in keys)])
    if inputs:
        columns = [Column(c, "", i) for i, c in enumerate(("term", "input", "value", "confidence", "source"))]
        found.append(Table("Inputs of the terms", columns, inputs, role="breakdown"))
    for key, value in result.items():
        rows_given = isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value)
        if rows_given and key not in ("terms", "sensitivity", "not_modelled"):
            found.append(records(key, value))
    return [*found, *common.assumptions(result), *common.sensitivity(result), *common.limits(result)]


def figures(envelope: Envelope) -> list[str]:
    """The step as one bar; the tornado when sensitivities are given."""
    result = result_of(envelope)
    return [*(["terms"] if terms(result) else []), *(["tornado"] if result.get("sensitivity") else [])]


def notes(envelope: Envelope) -> list[str]:
    """Inputs that fell back to a default."""
    result = result_of(envelope)
    defaults = [str(item) for item in result.get("defaults") or ()]
    found = common.notes_of(result)
    return [*found, f"Defaults were used for: {', '.join(defaults)}."] if defaults else found


def terms(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The terms, largest first."""
    rows = [dict(row) for row in result.get("terms") or () if isinstance(row, Mapping)]
    return sorted(rows, key=lambda row: -(row.get("time_s") or 0))
