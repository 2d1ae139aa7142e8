"""The gate: verdict, policies with their bands, and what changed against the baseline and why."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.report.ci.rows import AT_K, headline, number, rows
from perfmodel.report.kinds import common
from perfmodel.report.model import Column, Envelope, Table, inputs_of, mappings, result_of

_WORDS = {"pass": "pass", "fail": "FAIL", "undecided": "undecided"}
_STRADDLES = "Undecided: the 90 % band straddles the limit, or there is no baseline yet."


def title(envelope: Envelope) -> str:
    """The file that was checked."""
    file = inputs_of(envelope).get("file")
    return f"Check of {file}" if isinstance(file, str) else "Check"


def answer(envelope: Envelope) -> str:
    """Verdict, counts, and the first policy that does not pass."""
    return headline(envelope)


def tables(envelope: Envelope) -> list[Table]:
    """Policies, the reasons of those that do not pass, then changes."""
    result = result_of(envelope)
    found = [*_policies(envelope), *_reasons(envelope), *_changes(result)]
    return [*found, *common.assumptions(result), *common.limits(result)]


def _policies(envelope: Envelope) -> list[Table]:
    shown = rows(envelope)
    if not shown:
        return []
    columns = (
        Column("verdict", "", 0, "verdict"),
        Column("job", "", 1, "job"),
        Column("policy", "", 0, "expression"),
        Column("predicted", "", 0, "predicted"),
        Column("90 % band", "", 1, "band"),
    )
    # The K goes below the table: beside the number it would push the bands off a terminal.
    cells = [
        (
            _WORDS.get(row.verdict, row.verdict),
            row.job,
            row.expression,
            row.value.partition(AT_K)[0],
            row.band,
        )
        for row in shown
    ]
    placed = [f"{row.job}, {row.expression}{AT_K}{k}" for row in shown if (k := row.value.partition(AT_K)[2])]
    note = f"Policies that name no K were read so: {'; '.join(placed)}." if placed else ""
    if any(row.verdict == "undecided" for row in shown):
        note = f"{_STRADDLES} {note}".strip()
    return [Table("Policies", columns, cells, note=note, role="decision")]


def _reasons(envelope: Envelope) -> list[Table]:
    told = [
        (row.job, row.expression, row.reason)
        for row in rows(envelope)
        if row.verdict != "pass" and row.reason
    ]
    columns = (Column("job", "", 1), Column("policy", "", 0), Column("reason", "", 0))
    return [Table("Why", columns, told, role="breakdown")] if told else []


def _changes(result: Mapping[str, object]) -> list[Table]:
    told = mappings(result.get("changes"))
    if not told:
        return []
    cells = [
        (
            str(row.get("job") or ""),
            str(row.get("metric") or ""),
            number(row.get("before"), row.get("unit", "1")),
            number(row.get("after"), row.get("unit", "1")),
            str(row.get("cause") or ""),
        )
        for row in told
    ]
    columns = (
        Column("job", "", 2, "job"),
        Column("metric", "", 0, "metric"),
        Column("before", "", 0, "before"),
        Column("after", "", 0, "after"),
        Column("cause, alone", "", 0, "cause"),
    )
    return [Table("Changes against the baseline, one input at a time", columns, cells, role="breakdown")]


def figures(envelope: Envelope) -> list[str]:
    """Policies as bands against their limits."""
    return ["policies"] if result_of(envelope).get("policies") else []
