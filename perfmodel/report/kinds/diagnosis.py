"""Whether a run is slow: expected beside measured, ranked causes, and what the configuration gives away."""

from __future__ import annotations

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import Cell, Column, Envelope, Table, as_cell, mapping, mappings, result_of


def title(envelope: Envelope) -> str:
    """The run."""
    return (
        f"Diagnosis of {common.subject(envelope) or 'a run'} on {result_of(envelope).get('k')} accelerators"
    )


def tables(envelope: Envelope) -> list[Table]:
    """Causes, parts, evidence, settings and checks."""
    result = result_of(envelope)
    found = [*_causes(result), *_parts(result), *_settings(result), *_evidence(result), *_checks(result)]
    return [*found, *_model(result)]


def _causes(result: dict[str, object]) -> list[Table]:
    rows = mappings(result.get("causes"))
    if not rows:
        return []
    columns = [
        Column("cause", "", 0, "cause"),
        Column("odds", "%", 0, "probability"),
        Column("as much as", "", 1, "amount"),
        Column("step with it", "s", 2, "explains_s"),
        Column("mended, saves", "%", 0, "gain"),
        Column("step then", "s", 1, "after_s", unit_of="explains_s"),
    ]
    cells: list[list[Cell]] = [
        [str(row.get("words")), *(as_cell(row.get(column.key)) for column in columns[1:])] for row in rows
    ]
    share = result.get("nothing_wrong")
    note = f"Odds that nothing is wrong: {float(share):.1%}." if isinstance(share, (int, float)) else ""
    return [Table("Causes", columns, cells, note=note, role="decision", marked=(0,))]


def _parts(result: dict[str, object]) -> list[Table]:
    rows = [row for row in mappings(result.get("parts")) if row.get("part") != "slowest_rank"]
    columns = [
        Column("what", "", 0, "meaning"),
        Column("measured", "s", 0, "measured"),
        Column("expected", "s", 0, "expected", unit_of="measured"),
        Column("low", "s", 1, "low", unit_of="measured"),
        Column("high", "s", 1, "high", unit_of="measured"),
    ]
    cells: list[list[Cell]] = [[as_cell(row.get(column.key)) for column in columns] for row in rows]
    late = mapping(result.get("slowest_rank"))
    note = "90 % bands. Parts of a trace are shares of the measured step." if len(rows) > 1 else "90 % band."
    if late:
        note += f" Slowest rank over the mean: {text.number(float(late.get('over_mean') or 0.0))} (rank {late.get('rank')})."
    return [Table("Expected and measured", columns, cells, note=note, role="curve")]


def _settings(result: dict[str, object]) -> list[Table]:
    rows = mappings(result.get("settings"))
    columns = [
        Column("change of the configuration", "", 0, "change"),
        Column("saves", "%", 0, "gain"),
        Column("expected step", "s", 1, "expected_s"),
        Column("stated at", "", 2, "stated_at"),
    ]
    cells: list[list[Cell]] = [[as_cell(row.get(column.key)) for column in columns] for row in rows]
    note = "Each alone, predicted; memory allows it."
    return (
        [Table("What the configuration gives away", columns, cells, note=note, role="breakdown")]
        if rows
        else []
    )


def _evidence(result: dict[str, object]) -> list[Table]:
    cells: list[list[Cell]] = []
    for cause in mappings(result.get("causes")):
        for row in mappings(cause.get("evidence")):
            keys = ("quantity", "measured", "expected", "under_cause", "speaks_for")
            cells.append([str(cause.get("cause")), *(as_cell(row.get(key)) for key in keys)])
    columns = [
        Column("cause", "", 0),
        Column("quantity", "", 0),
        Column("measured", "", 0),
        Column("expected", "", 0),
        Column("under the cause", "", 0),
        Column("speaks for it", "", 1),
    ]
    note = (
        "Seconds of a step (slowest_rank: a ratio). Speaks for it: half the difference of squared deviations."
    )
    return [Table("Evidence", columns, cells, note=note, role="breakdown")] if cells else []


def _checks(result: dict[str, object]) -> list[Table]:
    rows = mappings(result.get("causes"))
    cells: list[list[Cell]] = [[str(row.get("cause")), str(row.get("check"))] for row in rows]
    note = ""
    apart = mapping(result.get("tells_apart"))
    if apart:
        under = [
            f"{text.quantity(float(value), 's')} under {name}"
            for name, value in apart.items()
            if isinstance(value, float)
        ]
        note = f"A trace would tell the first two apart: {apart.get('meaning')}, {' and '.join(under)}."
    columns = [Column("cause", "", 0), Column("check", "", 0)]
    return [Table("Checks", columns, cells, note=note, role="breakdown")] if cells else []


def _model(result: dict[str, object]) -> list[Table]:
    parts = {name: value for name, value in mapping(result.get("parts_s")).items() if value}
    rows: list[list[Cell]] = [[name.replace("_", " "), as_cell(value)] for name, value in parts.items()]
    columns = [Column("part", "", 0, "part"), Column("expected", "s", 0, "expected_s")]
    return [Table("The expected step by part", columns, rows, role="detail")]
