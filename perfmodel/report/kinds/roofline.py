"""Where each phase sits under the roof, and how it moves as the batch of a worker shrinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import Cell, Column, Envelope, Table, result_of


def title(envelope: Envelope) -> str:
    """Whose roofline."""
    subject = common.subject(envelope)
    return "Roofline" + (f" of {subject}" if subject else "")


def answer(envelope: Envelope) -> str:
    """The ridge point, and which phases are bound by memory."""
    result = result_of(envelope)
    if isinstance(result.get("answer"), str):
        return str(result["answer"])
    ridge = result.get("ridge_flop_per_byte")
    words = f"The ridge lies at {text.number(float(ridge))} FLOP per byte. " if ridge is not None else ""
    memory = [str(p.get("name")) for p in phases(result) if _first(p.get("bound")) == "memory"]
    return words + (f"Bound by memory: {', '.join(memory)}." if memory else "")


def tables(envelope: Envelope) -> list[Table]:
    """A row for each phase and K."""
    rows: list[list[Cell]] = []
    for phase in phases(result_of(envelope)):
        ks = _as_list(phase.get("k"))
        for i in range(max(1, len(ks))):
            values = [
                _entry(phase.get(key), i)
                for key in ("k", "intensity_flop_per_byte", "flop_per_s", "time_s", "bound")
            ]
            rows.append([str(phase.get("name")), *values])
    columns = [
        Column("phase", "", 0, "phase"),
        Column("K", "", 0, "k"),
        Column("FLOP per byte", "", 0, "intensity_flop_per_byte"),
        Column("rate", "FLOP/s", 0, "flop_per_s"),
        Column("time", "s", 2, "time_s"),
        Column("bound by", "", 1, "bound"),
    ]
    return [Table("Phases", columns, rows, role="curve")] if rows else []


def figures(envelope: Envelope) -> list[str]:
    """The roofline."""
    return ["roofline"]


def notes(envelope: Envelope) -> list[str]:
    """The result's own notes."""
    return common.notes_of(result_of(envelope))


def phases(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The phases as rows."""
    return [dict(row) for row in result.get("phases") or () if isinstance(row, Mapping)]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def _first(value: Any) -> Any:
    items = _as_list(value)
    return items[0] if items else None


def _entry(value: Any, index: int) -> Any:
    items = _as_list(value)
    return items[min(index, len(items) - 1)] if items else None
