"""Rows of CSV files as people write them, with every fault of a file named at its line and column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, zip_longest
from pathlib import Path

import numpy as np

from perfmodel.errors import COMMA_HELP, Problem, has_comma
from perfmodel.files import read_bytes
from perfmodel.units import plain_number

NUMBERS = (
    "k", "nodes", "dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "accumulation", "global_batch", "seq_len",
    "step_s", "spread_s", "repeats", "accelerators_per_node", "network_gbit_per_s_per_node", "shard_group",
    "document_len", "vocab", "run_steps", "run_batch", "cuda", "bucket_bytes", "tp_hidden",
    "allocated_gib", "reserved_gib",
)  # fmt: skip
# Columns that the form lets out, of the table that may have them; corrections may fill them too.
UNSTATED = {
    "families.csv": ("cuda", "bucket_bytes"),
    "points.csv": ("document_len", "vocab", "run_steps", "run_batch", "tp_hidden"),
}
_COUNTS = ("k", "nodes", "dp", "tp", "pp", "cp", "ep", "vpp", "ranks")
_OF_RUNS = frozenset(column for columns in UNSTATED.values() for column in columns) - {"vocab"}
_WHOLE = (*_COUNTS, "accelerators_per_node", "shard_group", "vocab", "run_steps")
# The least a number may be where zero means nothing, and more than any count, size, rate or time of a run.
_LEAST = {
    **dict.fromkeys((*_WHOLE, "seq_len", "document_len"), 1.0),
    **dict.fromkeys(("step_s", "time_s"), 1e-9),
    **dict.fromkeys(("allocated_gib", "reserved_gib"), 1e-3),
    **dict.fromkeys(("global_batch", "run_batch", "micro_batch", "accumulation"), 1e-3),
    "network_gbit_per_s_per_node": 1e-3,
    "cuda": 1.0,
    "bucket_bytes": 1.0,
}
_MOST = {
    **dict.fromkeys((*_COUNTS, "shard_group"), 1e7),
    "accelerators_per_node": 4096.0,  # as for a node of the catalogue
    **dict.fromkeys(("seq_len", "document_len", "vocab"), 1e8),
    "cuda": 100.0,
    "bucket_bytes": 1e15,
    "tp_hidden": 4.0,
    **dict.fromkeys(("step_s", "spread_s", "time_s"), 1e7),
    **dict.fromkeys(("global_batch", "run_batch", "micro_batch"), 1e12),
    **dict.fromkeys(("accumulation", "repeats", "run_steps", "network_gbit_per_s_per_node"), 1e9),
    **dict.fromkeys(("allocated_gib", "reserved_gib"), 1e6),
    "bytes": 1e15,
}


@dataclass(frozen=True)
class Row:
    """One record of a CSV file: text by column, numbers parsed, and where it stands."""

    file: str
    line: int  # its first
    text: Mapping[str, str]
    number: Mapping[str, float | None]
    written: str  # as it stands in the file
    header: Sequence[str]

    def get(self, column: str, default: float) -> float:
        """A number, or `default` where the cell is blank."""
        value = self.number.get(column)
        return default if value is None else value

    @property
    def place(self) -> str:
        """`points.csv:3`, to find it by."""
        return f"{Path(self.file).name}:{self.line}"

    def problem(
        self, code: str, message: str, hint: str | None = None, *, at: str | int | None = None
    ) -> Problem:
        """What is wrong with this record, at the cell of the column `at`, by name or by number from 0."""
        index = at if isinstance(at, int) else self.header.index(at) if at in self.header else 0
        below, column = cell_place(self.written, index)
        shown = self.written.splitlines()[below]
        return Problem(self.file, self.line + below, column, code, message, shown, hint)

    def not_a_number(self, column: str, wrong: str) -> Problem:
        """What is wrong with a cell that should hold a number."""
        cell = self.text[column]
        if has_comma(cell):
            return self.problem("D004", f"{column} has a comma in its number", COMMA_HELP, at=column)
        message = f'{column} is "{cell}": {wrong}'
        return self.problem("D004", message, "leave a cell blank where it is not stated", at=column)


@dataclass(frozen=True)
class Table:
    """The rows of a file, and whether they are all that it holds."""

    rows: tuple[Row, ...] = ()
    is_whole: bool = False


def read_table(
    path: Path, required: tuple[str, ...], problems: list[Problem], form: Sequence[str] = ()
) -> Table:
    """Rows of a file that has at least the `required` columns; what is wrong with it goes to `problems`.

    Columns of the whole `form` that the file lacks are blank.
    """
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.append(_unreadable(path, line, "not UTF-8 text", "save it as UTF-8"))
        return Table()
    lines = _Lines(text)
    reader = csv.reader(lines, strict=True)
    rows: list[Row] = []
    beyond: list[list[str]] = []
    is_whole = True
    try:
        header = next(reader, [])
        fault, hint = _header_fault(header, required), f"the header needs {', '.join(required)}"
        if not fault and (fault := _misplaced(header, path.name)):
            hint = "move it there: here it has no effect"
        if fault:
            problems.append(Problem(file=str(path), line=1, column=1, code="D002", message=fault, help=hint))
            return Table()
        lines.taken()
        for cells in filter(None, reader):
            line, written = lines.taken()
            filled = zip_longest(header, cells[: len(header)], fillvalue="")
            named = {name: cell.strip() for name, cell in filled}
            rows.append(Row(str(path), line, dict.fromkeys(form, "") | named, {}, written, header))
            beyond.append([cell.strip() for cell in cells[_width(header) :]])
    except csv.Error as error:
        is_whole = False
        message = f"not readable as CSV: {error}"
        problems.append(_unreadable(path, lines.taken()[0], message, "a quote may be left open"))
    # A spreadsheet ends every row in as many commas; one row with more has a comma within a cell.
    lengths = {_width(header) + len(cells) for cells in beyond}
    allowed = len(header) if len(lengths) > 1 else max(lengths, default=0)
    # The cells of a row that is too wide stand under other columns' names: nothing more is said of them.
    fitting = [row for row, cells in zip(rows, beyond, strict=True) if _fits(row, cells, allowed, problems)]
    return Table(
        tuple(replace(row, number=_numbers(row, problems)) for row in fitting),
        is_whole and len(fitting) == len(rows),
    )


def _width(header: Sequence[str]) -> int:
    """Columns up to the last that has a name."""
    return max((at for at, name in enumerate(header, 1) if name.strip()), default=0)


def _fits(row: Row, beyond: Sequence[str], allowed: int, problems: list[Problem]) -> bool:
    """Whether the cells beyond the named columns hold nothing and are no more than `allowed`."""
    width = _width(row.header)
    filled = next((at for at, cell in enumerate(beyond, width) if cell), None)
    if filled is None and width + len(beyond) <= allowed:
        return True
    message = f"more cells than the {width} columns of the header"
    hint = "put a cell that holds a comma in quotes; decimals are written with a point"
    problems.append(row.problem("D003", message, hint, at=max(width, allowed) if filled is None else filled))
    return False


class _Lines:
    """Lines of a text for a CSV reader, which does not tell where its records began."""

    def __init__(self, text: str) -> None:
        self._source = io.StringIO(text, newline="")
        self._count = 0
        self._read: list[str] = []

    def __iter__(self) -> Iterator[str]:
        for line in self._source:
            self._count += 1
            self._read.append(line)
            yield line

    def taken(self) -> tuple[int, str]:
        """Where what was read since the last call begins, and the text; blank lines before it are none of it."""
        read = list(dropwhile(lambda line: not line.strip("\r\n"), self._read))
        self._read = []
        return self._count - len(read) + 1, "".join(read)


def cell_place(record: str, index: int) -> tuple[int, int]:
    """Lines below the record's first, and column from 1, where its cell of that index begins.

    >>> cell_place("a,b,c", 2), cell_place('"a,""b",c', 1), cell_place('5" disk,b', 1), cell_place('"a\\nb",c', 1)
    ((0, 5), (0, 9), (0, 9), (1, 4))
    >>> cell_place("a", 3)
    (0, 1)
    """
    place, cell, line, column = (0, 1), 0, 0, 0
    begins, has_quotes, inside = True, False, False
    for char in record:
        if cell == index:
            break
        column += 1
        if begins:
            has_quotes = char == '"'
        if char == '"' and has_quotes:
            inside = not inside
        begins = char == "," and not inside
        if begins:
            cell, place = cell + 1, (line, column + 1)
        elif char == "\n":
            line, column = line + 1, 0
    return place if cell == index else (0, 1)


def _header_fault(header: Sequence[str], required: Sequence[str]) -> str | None:
    if not header:
        return "the file is empty"
    if len(header) == 1 and any(sign in header[0] for sign in ";\t"):
        return "one column only: the cells must be separated by commas"
    missing = [column for column in required if column not in header]
    if missing:
        return f"missing column {', '.join(missing)}"
    twice = sorted({column for column in header if column and header.count(column) > 1})
    return f"column {', '.join(twice)} stands twice" if twice else None


def _unreadable(path: Path, line: int, message: str, hint: str) -> Problem:
    return Problem(file=str(path), line=line, column=1, code="D003", message=message, help=hint)


def _misplaced(header: Sequence[str], name: str) -> str | None:
    """Columns of families.csv in points.csv, or the other way round: they would be read and not used."""
    if name not in UNSTATED:
        return None
    for home, columns in UNSTATED.items():
        found = [column for column in columns if column in header and home != name]
        if found:
            return f"column {', '.join(found)} belongs in {home}"
    return None


def _numbers(row: Row, problems: list[Problem]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for column in (*NUMBERS, "ranks", "bytes", "time_s"):
        cell = row.text.get(column, "")
        # Of other tables they are whatever the folder's owner notes there.
        if cell == "" or (column in _OF_RUNS and Path(row.file).name not in UNSTATED):
            found[column] = None
            continue
        try:
            value = plain_number(cell)
        except ValueError:
            value = np.nan
        whole, least, most = column in _WHOLE, _LEAST.get(column, 0.0), _MOST[column]
        if not least <= value <= most or (whole and value != np.floor(value)):
            wrong = f"not a {'positive ' * (column != 'tp_hidden')}{'whole ' * whole}number"
            if value > most or 0.0 < value < least == 1.0:
                wrong = f"more than {most:g}" if value > most else "less than 1"
            problems.append(row.not_a_number(column, wrong))
            value = np.nan  # compares with nothing, so that no other fault follows from it
        found[column] = value
    return found


def stated_once(rows: Sequence[Row], column: str, problems: list[Problem]) -> Iterator[Row]:
    """Rows with a name of their own in `column`; the same line again says nothing new, another one contradicts."""
    first: dict[str, Row] = {}
    for row in rows:
        name = row.text[column]
        before = first.setdefault(name, row)
        if not name:
            problems.append(row.problem("D006", f"{column} is blank", "give the line a name", at=column))
        elif before.text != row.text:
            message = f'{column} "{name}" stands twice, with other values in line {before.line}'
            problems.append(row.problem("D006", message, "keep one of the two lines", at=column))
        elif before is row:
            yield row
