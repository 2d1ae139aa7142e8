"""The gate: verdict, policies with their bands, and what changed against the baseline and why."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.report.kinds import common
from perfmodel.report.kinds.generic import as_cell
from perfmodel.report.model import Column, Envelope, Table, result_of

_WORDS = {"pass": "pass", "fail": "FAIL", "undecided": "undecided"}


def title(envelope: Envelope) -> str:
    """A fixed heading."""
    return "Check"


def answer(envelope: Envelope) -> str:
    """Verdict and counts."""
    result = result_of(envelope)
    verdicts = [str(row.get("verdict")) for row in result.get("policies") or () if isinstance(row, Mapping)]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("fail", "undecided", "pass") if v in verdicts)
    return f"Verdict: {result.get('verdict', 'unknown')}" + (f" ({counts})." if counts else ".")


def tables(envelope: Envelope) -> list[Table]:
    """Policies, then changes."""
    result = result_of(envelope)
    policies = [row for row in result.get("policies") or () if isinstance(row, Mapping)]
    changes = [row for row in result.get("changes") or () if isinstance(row, Mapping)]
    found = []
    if policies:
        jobs = any(row.get("job") for row in policies)
        columns = [
            Column("verdict", "", 0, "verdict"),
            *([Column("job", "", 1, "job")] if jobs else []),
            Column("policy", "", 0, "expression"),
            Column("value", "", 0, "value"),
            Column("low", "", 2, "low"),
            Column("high", "", 2, "high"),
            Column("limit", "", 1, "limit"),
        ]
        rows = []
        for row in policies:
            cells = [as_cell(row.get(column.key)) for column in columns]
            cells[0] = _WORDS.get(str(cells[0]), str(cells[0]))
            rows.append(cells)
        note = "Undecided: the 90 % band straddles the limit."
        found.append(Table("Policies", columns, rows, note=note, role="decision"))
    if changes:
        columns = [
            Column("metric", "", 0, "metric"),
            Column("before", "", 0, "before"),
            Column("after", "", 0, "after"),
            Column("cause", "", 0, "cause"),
        ]
        cells_ = [[as_cell(row.get(column.key)) for column in columns] for row in changes]
        found.append(Table("Changes against the baseline", columns, cells_, role="curve"))
    return [*found, *common.assumptions(result), *common.limits(result)]


def figures(envelope: Envelope) -> list[str]:
    """Policies as bands against their limits."""
    return ["policies"] if result_of(envelope).get("policies") else []


def notes(envelope: Envelope) -> list[str]:
    """The gate's own notes."""
    return common.notes_of(result_of(envelope))
