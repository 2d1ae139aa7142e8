"""The first screen of a result: what is read first, in a stated number of lines; `--full` has the rest.

A kind of result may have one: `FIRST_SCREEN` is the number of lines at 80 columns, and the titles of the tables that
belong there, the most important first. Rows without a value go first from a table that is too long, then those in the
middle of a run; what is marked stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfmodel.report.model import Table
from perfmodel.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

FEWEST_ROWS = 3  # of a table that is shown at all
NOTE_LINES = 8  # that notes may take where tables want them as well


@dataclass(frozen=True)
class Part:
    """Something that was printed, and what it is called where it is left out."""

    name: str
    printed: str

    @property
    def lines(self) -> int:
        """Lines of the terminal that it takes."""
        return self.printed.count("\n")


def printed(console: Console, write: Callable[[], None], name: str = "") -> Part:
    """What a function prints on a console, kept instead of shown."""
    with console.capture() as captured:
        write()
    return Part(name, captured.get())


def shorter(table: Table, rows: int) -> Table:
    """A table of so many rows: those without a value go first, then every other one of the longest run of the rest."""
    timed = [i for i, row in enumerate(table.rows) if _says(row)] or list(range(len(table.rows)))
    kept = timed
    while len(kept) > rows:
        spare = [i for i in kept[1:-1] if i not in table.marked]
        if not spare:
            break
        kept = [i for i in kept if i != spare[len(spare) // 2]]
    return _of_rows(table, kept)


def _says(row: Sequence[object]) -> bool:
    """Whether a row has a value beside its first one, which names it."""
    return len(row) < 2 or row[1] is not None


def _of_rows(table: Table, kept: Sequence[int]) -> Table:
    marked = tuple(kept.index(i) for i in table.marked if i in kept)
    return replace(table, rows=[table.rows[i] for i in kept], marked=marked)


def first_screen(
    budget: int,
    head: Part,
    tables: Sequence[tuple[Table, Callable[[Table], Part]]],
    others: Sequence[str],
    notes: Sequence[Part],
    foot: Part,
    told: Callable[[str], Part],
) -> list[Part]:
    """What of a result is shown in `budget` lines: the head, tables with as many rows as fit, notes, and what is left out."""
    free = budget - head.lines - foot.lines - 2  # the last for what is left out
    shown: list[Part] = [head]
    left = list(others)
    wanted = min(NOTE_LINES, 1 + sum(note.lines for note in notes))
    for table, write in tables:
        part = _fitted(table, write, free - wanted)
        if part is None:
            left.insert(0, table.title)
            continue
        shown.append(part)
        free -= part.lines
    kept: list[Part] = []
    for note in notes:
        if note.lines <= free - (0 if kept else 1):
            free -= note.lines + (0 if kept else 1)
            kept.append(note)
    if kept:
        shown += [Part("", "\n"), *kept]
    if left or len(kept) < len(notes):
        dropped = len(notes) - len(kept)
        words = [
            *([counted(dropped, "more note", "more notes")] if dropped else []),
            *([f"{len(left)} more tables"] if len(left) > 1 else left),
        ]
        shown.append(told(f"--full has {' and '.join(words)}"))
    return [*shown, foot]


def _fitted(table: Table, write: Callable[[Table], Part], room: int) -> Part | None:
    """A table with as many rows as go into so many lines; None where not even a few do."""
    part = write(table)
    least = shorter(table, FEWEST_ROWS)
    if part.lines <= room:
        return part
    for rows in range(len(table.rows), FEWEST_ROWS - 1, -1):
        made = shorter(table, rows)
        if len(made.rows) > rows:
            break
        part = write(made)
        if part.lines <= room:
            return part
    part = write(replace(least, note=""))
    return part if part.lines <= room else None
