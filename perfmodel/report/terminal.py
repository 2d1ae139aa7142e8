"""An envelope on a terminal: answer first, the curve, the tables that matter, notes; never wider than asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from perfmodel.report import spark, text
from perfmodel.report.kinds import common, rendering_of
from perfmodel.report.model import Column, Envelope, Table
from perfmodel.report.screen import Part, first_screen, printed
from perfmodel.report.stamp import stamp
from perfmodel.report.tables import main_table, tables

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80
WIDE = 120  # tables grow no further: eyes lose the line
NARROWEST = 24
MOST_ROWS = 500  # of one table: nobody scrolls through more, and a second draws some 300
HEADING_LINES = 2  # where there is room


def render(envelope: Envelope, console: Console | None = None, *, full: bool = True) -> None:
    """Print an envelope; without a console, to standard output with colour only where it is wanted.

    Not `full`, a kind that has a first screen prints that.
    """
    from rich.console import Console

    console = console or Console(highlight=False)
    console.width = max(console.width, NARROWEST)  # COLUMNS may say anything
    first = rendering_of(envelope).FIRST_SCREEN
    if first is not None and not full:
        for part in _first_screen(envelope, console, *first):
            console.file.write(part.printed)
        return
    _head(envelope, console)
    main = main_table(envelope)
    for table in _shown(envelope):
        _table(table, console, main)
    notes = rendering_of(envelope).notes(envelope)
    if notes:
        console.print()
    for note in notes:
        _note(note, console)
    _foot(envelope, console)


def _first_screen(envelope: Envelope, console: Console, budget: int, titles: Sequence[str]) -> list[Part]:
    """The parts of the first screen: head, the named tables, notes as far as they fit, and the stamp."""
    found = _shown(envelope)
    named = [table for title in titles for table in found if table.title == title]
    others = [table.title for table in found if table not in named]
    return first_screen(
        budget,
        printed(console, lambda: _head(envelope, console)),
        [
            (table, lambda one: printed(console, lambda: _table(one, console, None, all_columns=False)))
            for table in named
        ],
        others,
        [printed(console, partial(_note, note, console)) for note in rendering_of(envelope).notes(envelope)],
        printed(console, lambda: _foot(envelope, console)),
        lambda words: printed(console, lambda: _dim(words, console)),
    )


def _shown(envelope: Envelope) -> list[Table]:
    """The tables that a terminal shows."""
    return [t for t in tables(envelope) if t.role not in ("detail", "assumptions", "limits") and t.rows]


def _head(envelope: Envelope, console: Console) -> None:
    """Title, answer and curve."""
    from rich.markup import escape

    kind = rendering_of(envelope)
    console.print(escape(prose(kind.title(envelope), console)), highlight=False, style="bold")
    answer = kind.answer(envelope)
    if answer:
        console.print(escape(prose(answer, console)), highlight=False)
    for line in curve_lines(envelope, console.width, ascii_only=is_ascii(console)):
        console.print(
            escape(clean(line, console)),
            highlight=False,
            no_wrap=True,
            overflow="ignore",
            crop=False,
            soft_wrap=True,
        )


def _table(table: Table, console: Console, main: Table | None, *, all_columns: bool = True) -> None:
    console.print()
    held = main is not None and table.title == main.title
    print_table(table, console, fuller=("csv" if held else "md") if all_columns else "")


def _note(note: str, console: Console) -> None:
    _dim(note if note.startswith("warning: ") else f"note: {note}", console)


def _foot(envelope: Envelope, console: Console) -> None:
    from rich.markup import escape

    console.print(escape(clean(stamp(envelope).line, console)), highlight=False, style="dim")


def _dim(words: str, console: Console) -> None:
    from rich.markup import escape

    console.print(escape(prose(words, console)), highlight=False, style="dim")


def curve_lines(envelope: Envelope, width: int = WIDTH, *, ascii_only: bool = False) -> list[str]:
    """The main chart as characters: the speedup, or of weak scaling T(K0)/T(K) against a flat 1."""
    for chart in rendering_of(envelope).charts(envelope):
        is_flat = chart.title == common.WEAK_SCALING
        if not chart.series or not (is_flat or chart.y_title == "speedup"):
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
            is_flat=is_flat,
        )
        if lines:
            return ["", f"{chart.y_title} over K{'; ' + legend if legend else ''}"[:width], *lines]
    return []


def print_table(table: Table, console: Console, fuller: str = "csv") -> None:
    """One table; when it is too wide the columns of least priority are left out and named; `fuller` is the format that has all its columns (none: they are not named)."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table as RichTable

    heads = table.heads
    mark_width = 3 if table.marked else 0
    widths = fit_columns(table, min(console.width, WIDE) - mark_width)
    simple = is_ascii(console)
    if table.title:  # by itself: a narrow table would break it
        console.print(escape(prose(table.title, console)), highlight=False, style="bold")
    grid = RichTable(
        box=box.ASCII2 if simple else box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 0) if simple else (0, 1, 0, 0),
    )
    if table.marked:
        grid.add_column("", width=1, no_wrap=True)
    written = text.table_text(table)
    shown = {i: written[i] for i in widths}
    for i, width in widths.items():
        right = text.numeric(table.values(i))
        grid.add_column(
            escape(clean(shown[i][0], console)),
            width=width,
            justify="right" if right else "left",
            overflow="fold",
        )
    tick = "*" if simple else "✓"
    for r in range(min(len(table.rows), MOST_ROWS)):
        chosen = r in table.marked
        cells = [escape(text.in_cell(clean(cells[r], console), widths[i])) for i, (_, cells) in shown.items()]
        grid.add_row(
            *([tick if chosen else ""] if table.marked else []), *cells, style="bold" if chosen else None
        )
    console.print(grid, highlight=False)
    if len(table.rows) > MOST_ROWS:
        words = f"{len(table.rows) - MOST_ROWS:,} more rows with --format {fuller}"
        console.print(escape(prose(words, console)), highlight=False, style="dim")
    if table.note:
        console.print(escape(prose(table.note, console)), highlight=False, style="dim")
    dropped = [head.title for i, head in enumerate(heads) if i not in widths and _says(table, i)]
    if dropped and fuller:
        words = f"more columns with --format {fuller}: {', '.join(dropped)}"
        console.print(escape(prose(words, console)), highlight=False, style="dim")


def fit_columns(table: Table, width: int) -> dict[int, int]:
    """The width of each column that is shown, by index; columns go by priority until the rest fits.

    One without a single value goes first: dashes would take the place of another that has some. A number is never broken.
    Text may wrap between words; headings always may.
    """
    least: dict[int, int] = {}
    most: dict[int, int] = {}
    headings: dict[int, str] = {}
    for i, (heading, cells) in enumerate(text.table_text(table)):
        headings[i] = heading
        word = max((len(w) for w in heading.split()), default=1)
        longest = max((len(c) for c in cells), default=1)
        most[i] = max(word, longest)
        if text.numeric(table.values(i)):
            least[i] = most[i]
        else:
            words = max((len(w) for c in cells for w in c.split()), default=1)
            prose = 24 if longest > 40 else 12
            least[i] = max(word, min(longest, max(prose, min(words, 24))))
    kept = {i: size for i, size in least.items() if _says(table, i)}
    if any(head.priority == 0 and i not in kept for i, head in enumerate(table.heads)):
        kept = dict(least)  # nothing could be predicted: the dashes are the answer

    def total(columns: dict[int, int]) -> int:
        return sum(columns.values()) + 2 * (len(columns) - 1)

    while total(kept) > width and len(kept) > 1:
        worst = max(kept, key=lambda i: (table.heads[i].priority, i))
        if table.heads[worst].priority == 0:
            break
        kept = {i: size for i, size in kept.items() if not _go_together(table.heads[i], table.heads[worst])}
    for i in kept:  # what is left over goes to the text, in order, and to headings if all then take few lines
        kept[i] += min(most[i] - kept[i], max(0, width - total(kept)))
    wider = {i: max(kept[i], text.width_for(headings[i], HEADING_LINES)) for i in kept}
    if total(wider) <= width:
        kept = wider
    for i in sorted(kept, key=lambda i: -kept[i]):  # only always-shown columns are left: text gives way
        if total(kept) > width and not text.numeric(table.values(i)):
            kept[i] = max(6, kept[i] - (total(kept) - width))
    return kept


def _says(table: Table, index: int) -> bool:
    """Whether a column has a value in some row; one of no rows at all is as it is."""
    return not table.rows or any(value is not None for value in table.values(index))


def _go_together(one: Column, other: Column) -> bool:
    """Whether a narrow terminal shows both or neither, as the two ends of a band."""
    around = (one.unit_of, one.priority)
    return one == other or (bool(one.unit_of) and around == (other.unit_of, other.priority))


def prose(value: str, console: Console) -> str:
    """Text for the console in lines that fit; numbers stay with their units and names."""
    return "\n".join(
        text.lines(part, console.width) if part else part for part in clean(value, console).split("\n")
    )


def clean(value: str, console: Console) -> str:
    """Text that the console can show and that cannot steer it: no control characters, nothing it cannot encode."""
    kept = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in value)
    return kept.encode(console.encoding, "replace").decode(console.encoding)


def is_ascii(console: Console) -> bool:
    """Whether the console's encoding cannot show box and block characters."""
    return not console.encoding.lower().replace("-", "").startswith("utf")
