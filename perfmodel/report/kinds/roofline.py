"""Where each phase sits under the roof, and how it moves as the batch of a worker shrinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import (
    Cell,
    Column,
    Envelope,
    Table,
    as_cell,
    listed,
    mapping,
    mappings,
    result_of,
)


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
        ks = listed(phase.get("k"))
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
    phases_table = [Table("Phases", columns, rows, role="curve")] if rows else []
    return [*_steps(result_of(envelope)), *phases_table]


def _steps(result: Mapping[str, object]) -> list[Table]:
    """The whole step at each K."""
    ks = listed(result.get("k"))
    keys = ("batch_per_accelerator", "step_flop_per_s", "model_flop_utilisation")
    if not ks or result.get("step_flop_per_s") is None:
        return []
    arrays = [common.array(result, key, len(ks)) for key in keys]
    layouts = [common.layout_text(item) for item in common.array(result, "layout", len(ks))]
    reasons = common.array(result, "reason", len(ks))
    rows: list[list[Cell]] = [
        [k, *(values[i] for values in arrays), layouts[i] or reasons[i] or None] for i, k in enumerate(ks)
    ]
    columns = [
        Column("K", "", 0, "k"),
        Column("batch per accelerator", "", 1, "batch_per_accelerator"),
        Column("model rate", "FLOP/s", 0, "step_flop_per_s"),
        Column("of the peak", "%", 0, "model_flop_utilisation"),
        Column("layout", "", 2, "layout"),
    ]
    note = "Model rate: counted FLOP of forward and backward over the whole step, per accelerator."
    return [Table("The step", columns, rows, note=note, role="decision")]


def figures(envelope: Envelope) -> list[str]:
    """The roofline."""
    return ["roofline"]


def notes(envelope: Envelope) -> list[str]:
    """What to do about each roof that binds, and the result's own notes."""
    result = result_of(envelope)
    found = []
    for bound, about in mapping(result.get("advice")).items():
        names = ", ".join(str(name) for name in mapping(about).get("phases") or ())
        found.append(f"Bound by {bound} ({names}): {mapping(about).get('remedy')}.")
    return [*found, *common.notes_of(result)]


def phases(result: Mapping[str, object]) -> list[dict[str, Any]]:
    """The phases as rows."""
    return mappings(result.get("phases"))


def _first(value: object) -> Cell:
    items = listed(value)
    return as_cell(items[0]) if items else None


def _entry(value: object, index: int) -> Cell:
    items = listed(value)
    return as_cell(items[min(index, len(items) - 1)]) if items else None
