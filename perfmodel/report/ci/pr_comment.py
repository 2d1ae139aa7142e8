"""A pull-request comment: one sentence, a small table, folded details, and a marker to update it in place."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.report.ci.rows import Row, causes, headline, number, rows
from perfmodel.report.model import Envelope

MARKER = "<!-- perfmodel-check -->"
_SIGNS = {"pass": "✅ pass", "fail": "❌ fail", "undecided": "❔ undecided"}


def cell(text: str) -> str:
    """Text that cannot leave its table cell or become markup.

    >>> cell("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.replace("\\", "\\\\").replace("|", "\\|").replace("`", "'").split())


def table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; every cell is escaped."""
    body = ["| " + " | ".join(cell(value) for value in line) + " |" for line in lines]
    return ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns), *body]


def _line(row: Row) -> list[str]:
    return [row.job, row.expression, _SIGNS[row.verdict], row.value, row.band]


def _changes(envelope: Envelope) -> list[str]:
    lines = [
        [
            str(change.get("job", "")),
            str(change["metric"]),
            number(change["before"], change.get("unit", "1")),
            number(change["after"], change.get("unit", "1")),
            str(change["cause"]),
        ]
        for change in envelope["result"]["changes"]
    ]
    return table(("job", "metric", "before", "after", "cause"), lines) if lines else []


def _fold(title: str, lines: Sequence[str]) -> list[str]:
    return ["", "<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>"]


def render(envelope: Envelope) -> str:
    """The comment, ending in a newline. The first line is the marker that a bot looks for."""
    found = rows(envelope)
    open_rows = [row for row in found if row.verdict != "pass"]
    lines = [MARKER, f"**perfmodel**: {cell(headline(envelope))}"]
    lines += [f"- {cell(line)}" for line in causes(envelope)]
    columns = ("job", "policy", "verdict", "predicted", "90 % band")
    if open_rows:
        lines += ["", *table(columns, [_line(row) for row in open_rows])]
        reasons = [f"- {cell(row.sentence)}" for row in open_rows if row.reason]
        if reasons:
            lines += ["", *reasons]
    passed = [row for row in found if row.verdict == "pass"]
    if passed:
        noun = "policy" if len(passed) == 1 else "policies"
        lines += _fold(f"{len(passed)} {noun} passed", table(columns, [_line(row) for row in passed]))
    changes = _changes(envelope)
    if changes:
        lines += _fold("What changed since the baseline, one input at a time", changes)
    return "\n".join(lines) + "\n"
