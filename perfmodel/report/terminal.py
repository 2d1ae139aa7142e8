"""An envelope on a terminal: answer first, the curve, the tables that matter, notes; never wider than asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report import spark, text
from perfmodel.report.kinds import charts_of, module_of
from perfmodel.report.model import Envelope, Table
from perfmodel.report.stamp import stamp
from perfmodel.report.tables import tables

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80


def render(envelope: Envelope, console: Console | None = None) -> None:
    """Print an envelope; without a console, to standard output with colour only where it is wanted."""
    from rich.console import Console
    from rich.markup import escape

    console = console or Console(highlight=False)
    kind = module_of(envelope)
    console.print(f"[bold]{escape(clean(kind.title(envelope)))}[/bold]", highlight=False)
    answer = kind.answer(envelope)
    if answer:
        console.print(escape(clean(answer)), highlight=False)
    for line in curve_lines(envelope, console.width, ascii_only=is_ascii(console)):
        console.print(
            escape(line), highlight=False, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True
        )
    for table in tables(envelope):
        if table.role not in ("detail", "assumptions", "limits") and table.rows:
            console.print()
            print_table(table, console)
    notes = kind.notes(envelope)
    if notes:
        console.print()
    for note in notes:
        console.print(f"note: {escape(clean(note))}", highlight=False, style="dim")
    console.print(escape(stamp(envelope).line), highlight=False, style="dim")


def curve_lines(envelope: Envelope, width: int = WIDTH, *, ascii_only: bool = False) -> list[str]:
    """The main chart as characters: the speedup where there is one."""
    for chart in charts_of(envelope):
        if not chart.series or chart.y_title != "speedup":
            continue
        main = chart.series[0]
        letters = [(mark.label[:1].upper(), mark.x) for mark in chart.marks if mark.style != "boundary"]
        legend = ", ".join(
            f"{mark.label[:1].upper()} {mark.label}" for mark in chart.marks if mark.style != "boundary"
        )
        lines = spark.curve(
            main.x,
            main.y,
            low=main.low,
            high=main.high,
            marks=letters,
            width=min(width, WIDTH) - 2,
            ascii_only=ascii_only,
        )
        if lines:
            return ["", f"speedup over K{'; ' + legend if legend else ''}"[:width], *lines]
    return []


def print_table(table: Table, console: Console) -> None:
    """One table; when it is too wide the columns of least priority are left out and named."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table as RichTable

    heads = table.heads
    shown = [text.column_text(head, table.values(i)) for i, head in enumerate(heads)]
    kept, dropped = fit_columns(table, console.width)
    grid = RichTable(
        title=escape(clean(table.title)),
        title_justify="left",
        title_style="bold",
        box=box.ASCII2 if is_ascii(console) else box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    if table.marked:
        grid.add_column("", width=1, no_wrap=True)
    for i in kept:
        right = text.numeric(table.values(i))
        grid.add_column(
            escape(clean(shown[i][0])), justify="right" if right else "left", no_wrap=right, overflow="fold"
        )
    for r in range(len(table.rows)):
        cells = [escape(clean(shown[i][1][r])) for i in kept]
        if table.marked:
            cells.insert(0, ("*" if is_ascii(console) else "✓") if r in table.marked else "")
        grid.add_row(*cells, style="bold" if r in table.marked else None)
    console.print(grid, highlight=False)
    if table.note:
        console.print(escape(clean(table.note)), highlight=False, style="dim")
    if dropped:
        names = ", ".join(heads[i].title for i in dropped)
        console.print(
            f"not shown here (use --format csv): {escape(clean(names))}", highlight=False, style="dim"
        )


def fit_columns(table: Table, width: int) -> tuple[list[int], list[int]]:
    """Indices of the columns that fit in `width`, and of those left out, by priority.

    Text may be wrapped to 16 characters, numbers never are.
    """
    need = []
    for i, head in enumerate(table.heads):
        heading, cells = text.column_text(head, table.values(i))
        longest = max([len(heading), *(len(c) for c in cells)])
        # A heading may break between its words.
        word = max(len(w) for w in (heading.split() or [""]))
        if text.numeric(table.values(i)):
            need.append(max([word, *(len(c) for c in cells)]))
        else:
            need.append(min(longest, 16))
    kept = list(range(len(need)))
    while sum(need[i] + 2 for i in kept) + (2 if table.marked else 0) > width and len(kept) > 1:
        worst = max(kept, key=lambda i: (table.heads[i].priority, i))
        if table.heads[worst].priority == 0:
            break
        kept.remove(worst)
    return kept, [i for i in range(len(need)) if i not in kept]


def clean(value: str) -> str:
    """Text without control characters: a name in a spec cannot steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in value)


def is_ascii(console: Console) -> bool:
    """Whether the console's encoding cannot show box and block characters."""
    return not console.encoding.lower().replace("-", "").startswith("utf")
