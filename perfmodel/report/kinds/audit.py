"""The audit of a claim: verdict, findings by weight, the honest headline and the questions to ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report.kinds import common
from perfmodel.report.model import Column, Envelope, Table, inputs_of, result_of

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
    """Findings, then the questions, then anything the audit rests on."""
    result = result_of(envelope)
    rows = findings(result)
    columns = [
        Column("code", "", 0, "code"),
        Column("severity", "", 0, "severity"),
        Column("claim", "", 0, "claim"),
        Column("bound", "", 1, "bound"),
        Column("evidence", "", 1, "evidence"),
    ]
    found = []
    if rows:
        keys = [column.key for column in columns]
        cells = [[str(row.get(key) if row.get(key) is not None else "") for key in keys] for row in rows]
        found.append(Table("Findings", columns, cells, role="decision"))
        asked = [(str(row.get("code", "")), str(row["question"])) for row in rows if row.get("question")]
        if asked:
            found.append(
                Table(
                    "Questions to ask",
                    (Column("code", "", 0), Column("question", "", 0)),
                    asked,
                    role="curve",
                )
            )
    return [*found, *common.assumptions(result), *common.limits(result)]


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


def findings(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Findings with the gravest first; the audit's order within a severity."""
    rows = [dict(row) for row in result.get("findings") or () if isinstance(row, Mapping)]
    return sorted(rows, key=lambda row: _WEIGHT.get(str(row.get("severity")), 3))
