"""GitHub workflow commands: `::error file=...,line=...::message` lines that become annotations on the change."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.errors import Problem
from perfmodel.report.ci.rows import headline, rows
from perfmodel.report.model import Envelope


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def command(
    level: str, message: str, *, file: str = "", line: int = 0, column: int = 0, title: str = ""
) -> str:
    """One workflow command; the escapes are those of the runner (`%`, CR, LF; in properties also `:` and `,`).

    >>> command("error", "90 % is over", file="a,b.yaml", line=3, title="memory: fail")
    '::error file=a%2Cb.yaml,line=3,title=memory%3A fail::90 %25 is over'
    """
    properties = {"file": file, "line": line if file else 0, "col": column if file else 0, "title": title}
    shown = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value)
    return f"::{level}{' ' if shown else ''}{shown}::{_data(message)}"


def render(envelope: Envelope) -> str:
    """An annotation for each policy that did not pass, and the headline as a notice."""
    lines = [
        command(
            "error" if row.blocking else "warning",
            row.sentence,
            file=row.file,
            line=row.line,
            column=row.column,
            title=f"perfmodel: {row.verdict}",
        )
        for row in rows(envelope)
        if row.verdict != "pass"
    ]
    lines.append(command("notice", headline(envelope), title="perfmodel check"))
    return "\n".join(lines) + "\n"


def render_problems(problems: Sequence[Problem]) -> str:
    """Files that could not be read."""
    lines = [
        command(
            "error",
            problem.message + (f" ({problem.help})" if problem.help else ""),
            file=problem.file or "",
            line=problem.line or 0,
            column=problem.column or 0,
            title=f"perfmodel {problem.code}",
        )
        for problem in problems
    ]
    return "\n".join(lines) + "\n"
