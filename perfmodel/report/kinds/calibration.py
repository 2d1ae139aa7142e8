"""A fit report that admits trouble: each coefficient before and after, with its spread and status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report.kinds import common
from perfmodel.report.kinds.generic import records
from perfmodel.report.model import Cell, Column, Envelope, Table, mappings, result_of

_KEYS = ("name", "unit", "prior", "value", "low", "high", "step_change", "status", "source")


def title(envelope: Envelope) -> str:
    """What was calibrated."""
    subject = common.subject(envelope)
    return "Calibration" + (f" of {subject}" if subject else "")


def answer(envelope: Envelope) -> str:
    """The result's own sentence, else how many coefficients moved."""
    result = result_of(envelope)
    if isinstance(result.get("answer"), str):
        return str(result["answer"])
    rows = coefficients(result)
    moved = [row for row in rows if row.get("prior") is not None and row.get("value") != row.get("prior")]
    return f"{len(moved)} of {len(rows)} coefficients were moved by the measurements."


def tables(envelope: Envelope) -> list[Table]:
    """Coefficients, fitted points, everything else that the fit reports as rows."""
    result = result_of(envelope)
    found = []
    rows = coefficients(result)
    if rows:
        keys = [key for key in _KEYS if any(row.get(key) is not None for row in rows)]
        columns = [_column(key) for key in keys]
        cells: list[list[Cell]] = [[row.get(key) for key in keys] for row in rows]
        note = (
            "Factors on the beliefs before, and what each did to the measured steps. Unidentified: moved along with others, "
            "though these measurements do not tell it from them. What is not listed did not move; "
            "at a bound: as far from its prior as a fit may go."
        )
        found.append(Table("Coefficients", columns, cells, note=note, role="decision"))
    for key, value in result.items():
        if key in ("coefficients", "notes", "warnings") or not isinstance(value, list) or not value:
            continue
        if all(isinstance(item, Mapping) for item in value):
            shown = [
                {**row, "layout": common.layout_text(row["layout"])} if "layout" in row else row
                for row in value
            ]
            found.append(
                records(key, shown, "detail" if key in ("readings", "rejected", "sweep_points") else "curve")
            )
    return [*found, *common.assumptions(result)]


def _column(key: str) -> Column:
    around = "value" if key in ("low", "high") else ""
    if key == "step_change":
        return Column("moved the step", "%", 0, key)
    return Column(key, "", 0 if key in ("name", "value") else 1, key, around)


def figures(envelope: Envelope) -> list[str]:
    """Fitted against measured points; collective sweeps when they were read."""
    result = result_of(envelope)
    return [name for name, key in (("calibration", "points"), ("sweeps", "sweep_points")) if result.get(key)]


def coefficients(result: Mapping[str, object]) -> list[dict[str, Any]]:
    """Coefficients as rows, given as a list or as a mapping by name."""
    found = result.get("coefficients")
    if isinstance(found, Mapping):
        return [
            {"name": str(name), **(item if isinstance(item, Mapping) else {"value": item})}
            for name, item in found.items()
        ]
    return mappings(found)
