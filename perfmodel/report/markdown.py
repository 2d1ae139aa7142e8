"""An envelope as Markdown: answer first, tables, notes, and how to reproduce it."""

from __future__ import annotations

from perfmodel.report import spark, text
from perfmodel.report.kinds import rendering_of
from perfmodel.report.model import Envelope, Table
from perfmodel.report.stamp import stamp
from perfmodel.report.tables import tables


def render(envelope: Envelope) -> str:
    """GitHub-flavoured Markdown; details are folded."""
    kind = rendering_of(envelope)
    lines = [f"## {escape(kind.title(envelope))}", ""]
    answer = kind.answer(envelope)
    if answer:
        lines += [escape(answer), ""]
    lines += _spark(envelope)
    folded: list[Table] = []
    for item in tables(envelope):
        if item.role in ("decision", "curve"):
            lines += table(item)
        else:
            folded.append(item)
    for note in kind.notes(envelope):
        lines.append(f"- {escape(note)}")
    if kind.notes(envelope):
        lines.append("")
    if folded:
        lines += ["<details><summary>Breakdown, assumptions and limits</summary>", ""]
        for item in folded:
            lines += table(item)
        lines += ["</details>", ""]
    lines.append(f"<sub>{escape(stamp(envelope).line)}</sub>")
    return "\n".join(lines) + "\n"


def _spark(envelope: Envelope) -> list[str]:
    """The speedup as one line of characters, where there is one."""
    for chart in rendering_of(envelope).charts(envelope):
        if chart.y_title == "speedup" and chart.series and len(chart.series[0].x) > 1:
            main = chart.series[0]
            drawn = spark.sparkline(main.y)
            span = f"K = {text.number(main.x[0])} to {text.number(main.x[-1])}"
            return [f"Speedup, {span}: `{drawn}`", ""] if drawn else []
    return []


def table(item: Table) -> list[str]:
    """One table with its title, numbers on the right."""
    if not item.rows:
        return []
    columns = text.table_text(item)
    right = [text.numeric(item.values(i)) for i in range(len(columns))]
    lines = [f"**{escape(item.title)}**", "", "| " + " | ".join(escape(h) for h, _ in columns) + " |"]
    lines.append("|" + "|".join("--:" if r else ":--" for r in right) + "|")
    for i in range(len(item.rows)):
        cells = [escape(cells[i]) for _, cells in columns]
        if i in item.marked:
            cells = [f"**{c}**" if c else c for c in cells]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    if item.note:
        lines += [escape(item.note), ""]
    return lines


def escape(value: str) -> str:
    """Text that stays text: no table breaks, no HTML, no links or emphasis made from a name.

    >>> escape("a|b <script> [x](y) *z*")
    'a\\\\|b &lt;script&gt; \\\\[x](y) \\\\*z\\\\*'
    """
    value = " ".join(value.split())
    value = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\\", "\\\\")
    for sign in ("|", "`", "*", "[", "]"):
        value = value.replace(sign, "\\" + sign) if sign != "]" else value
    return value
