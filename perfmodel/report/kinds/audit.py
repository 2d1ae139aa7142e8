"""The audit of a claim: verdict, findings by weight, the honest headline and the questions to ask."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.report.kinds import common
from perfmodel.report.model import Cell, Column, Envelope, Table, inputs_of, mappings, result_of

_WEIGHT = {"impossible": 0, "suspicious": 1, "note": 2}


def title(envelope: Envelope) -> str:
    """Whose claim."""
    vendor = common.setting(envelope, "vendor") or common.name_of(inputs_of(envelope).get("claim"))
    subject = common.subject(envelope)
    return (
        "Audit of a claim"
        + (f" by {vendor}" if vendor else "")
        + (f": {subject}" if subject != vendor and subject else "")
    )


def answer(envelope: Envelope) -> str:
    """The verdict, the restated headline and the advice."""
    result = result_of(envelope)
    words = [f"Verdict: {result.get('verdict', 'unknown')}."]
    words += [str(result[key]) for key in ("restated", "advice") if isinstance(result.get(key), str)]
    return " ".join(words)


def tables(envelope: Envelope) -> list[Table]:
    """Findings that weigh, why and what to ask; then notes, then claimed beside predicted."""
    result = result_of(envelope)
    rows = findings(result)
    heavy = [row for row in rows if row.get("severity") != "note"]
    light = [row for row in rows if row.get("severity") == "note"]
    found = []
    if heavy:
        columns = [Column(key, "", 0, key) for key in ("severity", "code", "claim", "bound")]
        found.append(Table("Findings", columns, _cells(heavy, columns), role="decision"))
        reasons = [Column("code", "", 0, "code"), Column("evidence", "", 0, "evidence")]
        found.append(Table("Evidence", reasons, _cells(heavy, reasons), role="decision"))
        asked = [Column("code", "", 0, "code"), Column("question", "", 0, "question")]
        found.append(Table("Questions to ask", asked, _cells(heavy, asked), role="decision"))
    if light:
        columns = [
            Column("code", "", 0, "code"),
            Column("what it hides", "", 0, "evidence"),
            Column("question", "", 1, "question"),
        ]
        found.append(Table("Not said", columns, _cells(light, columns), role="breakdown"))
    return [*found, *_versus(result), *_points(result), *common.assumptions(result), *common.limits(result)]


def _cells(rows: list[dict[str, object]], columns: list[Column]) -> list[list[str]]:
    return [
        [str(row.get(column.key) if row.get(column.key) is not None else "") for column in columns]
        for row in rows
    ]


def _versus(result: Mapping[str, object]) -> list[Table]:
    """The claimed ratio of two machines beside what their hardware and the model give."""
    versus = result.get("versus")
    if not isinstance(versus, Mapping):
        return []
    rows: list[list[Cell]] = [["claimed", versus.get("claimed"), None, None]]
    rows += [["predicted", versus.get("predicted"), versus.get("low"), versus.get("high")]]
    rows += [[str(name), value, None, None] for name, value in (versus.get("hardware") or {}).items()]
    columns = [Column("of", "", 0), Column("ratio", "x", 0), Column("low", "x", 0), Column("high", "x", 0)]
    note = (
        f"{versus.get('k')} accelerators of the claim's machine over {versus.get('other_k')} of the other. "
        + (
            "low and high: 95 % band"
            if versus.get("predicted")
            else "Not predicted: no layout that was tried fits both."
        )
    )
    return [Table("Two machines", columns, rows, note=note, role="curve")]


def _points(result: Mapping[str, object]) -> list[Table]:
    """What was claimed beside what is expected, K by K."""
    ladder = mappings(result.get("ladder"))
    expected = {str(row.get("k")): row.get("efficiency") for row in ladder}
    rows = [
        {**row, "expected_efficiency": expected.get(str(row.get("k"))) if row.get("efficiency") else None}
        for row in mappings(result.get("points"))
    ]
    if not rows:
        return []
    columns = [
        Column("K", "", 0, "k"),
        Column("batch", "", 2, "global_batch"),
        Column("claimed step", "s", 0, "claimed_s"),
        Column("expected", "s", 0, "predicted_s"),
        Column("low", "s", 1, "low_s", "predicted_s"),
        Column("high", "s", 1, "high_s", "predicted_s"),
        Column("claimed S", "", 1, "speedup"),
        Column("claimed E", "", 0, "efficiency"),
        Column("expected E", "", 0, "expected_efficiency"),
    ]
    cells = [[row.get(column.key) for column in columns] for row in rows]
    note = "low and high: 90 % band"
    if all(row.get("predicted_s") is None for row in rows):
        note = "No step time is claimed or expected: neither times nor a batch are stated; expected E is of the ladder."
    elif any(row.get("predicted_s") is None for row in rows):
        note += "; - where no batch is stated, or no layout that was tried fits"
    return [Table("Claimed and expected", columns, cells, note=note, role="curve")]


def figures(envelope: Envelope) -> list[str]:
    """Claimed against predicted speedup where the audit gives both."""
    return ["audit"] if result_of(envelope).get("points") else []


def notes(envelope: Envelope) -> list[str]:
    """The audit's own notes."""
    result = result_of(envelope)
    found = common.notes_of(result)
    return (
        found
        if findings(result)
        else [*found, "No finding: nothing in the claim contradicts the model or itself."]
    )


def findings(result: Mapping[str, object]) -> list[dict[str, object]]:
    """Findings with the gravest first; the audit's order within a severity."""
    rows = mappings(result.get("findings"))
    return sorted(rows, key=lambda row: _WEIGHT.get(str(row.get("severity")), 3))
