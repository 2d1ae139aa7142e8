"""Timings from CSV: a million rows in well under a second, and every mistake with its file, line and column.

A well-formed table goes through numpy's own text reader. Anything that the quick way does not accept is read
again cell by cell, which either succeeds (quotes, comments, blank lines) or says what is wrong and where.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import COMMA_HELP, Problem, SpecError, closest, has_comma, told_once
from perfmodel.files import read_bytes
from perfmodel.physics.laws import Array
from perfmodel.specs.ranges import MAX_K
from perfmodel.units import plain_number

PARTS = ("compute_s", "communication_s", "idle_s", "io_s")
REQUIRED_PARTS = PARTS[:3]
OPTIONAL = (
    "price_usd_per_h",
    "quality",
    "global_batch",
    "energy_j",
    "throughput",
    "latency_p99_s",
    "setup_s",
    "carbon_g",
)
LABELS = ("repeat",)  # names a run; any text will do
KNOWN = ("k", "time_s", *PARTS, *OPTIONAL, *LABELS)

# What one table may hold. A curve has tens of K; beyond these bounds the file is not a table of timings.
MOST_COLUMNS = 1_000
MOST_BYTES = 1_000_000_000
MOST_DISTINCT_K = 2_000
_LONGEST_LOOK = 64  # for the zero bytes of UTF-16, which spreadsheets call Unicode
# What people call the two columns that every table needs.
_ALSO_CALLED = {
    "k": ("nodes", "n", "p"),
    "time_s": ("time", "t", "elapsed", "duration", "runtime", "step_time"),
}
# What can mean nothing else is read as if it were written so, and told.
_READ_AS = {
    "k": (
        "gpus",
        "world_size",
        "workers",
        "ranks",
        "accelerators",
        "n_workers",
        "n_gpus",
        "num_gpus",
        "ngpus",
    ),
    "time_s": ("seconds", "wall_s", "step_s", "step_time_s", "time_sec", "time_seconds"),
    "global_batch": ("global_batch_size",),
}
_DECIMAL = re.compile(rb",\d{1,2}(?!\d)|,\d{4,}")  # a comma that marks no thousands
_MEANT = {word: column for column, words in _READ_AS.items() for word in words}
_SPELLED = {word: column for column, words in _ALSO_CALLED.items() for word in words}
_HELP = "columns: k and time_s (or compute_s,communication_s,idle_s[,io_s]); optional " + ", ".join(
    (*LABELS, *OPTIONAL)
)


@dataclass(frozen=True, slots=True)
class Timings:
    """One row a run. `parts_s` and `columns` hold what the table has; a blank optional cell is NaN."""

    file: str
    k: Array
    time_s: Array
    parts_s: dict[str, Array] = field(default_factory=dict)
    columns: dict[str, Array] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    time_from_parts: bool = False
    told: tuple[str, ...] = ()  # how the file was read, where it is not as documented
    text: bytes = field(default=b"", repr=False)  # that was read, so that a run can be pointed at

    @property
    def rows(self) -> int:
        """Number of runs."""
        return int(self.k.size)

    @property
    def sha256(self) -> str:
        """Of what was read, whatever its form."""
        found = hashlib.sha256()
        for name, values in sorted(
            {"k": self.k, "time_s": self.time_s, **self.parts_s, **self.columns}.items()
        ):
            found.update(name.encode())
            found.update(np.ascontiguousarray(values, dtype=np.float64).tobytes())
        return found.hexdigest()

    def place(self, row: int) -> tuple[int, int, str] | None:
        """Line, column and text of the line where a run's time stands; of its first part where parts make it up."""
        if not self.text:
            return None
        header, _ = _read_header(self.text, self.file)
        timed = header.names.index(REQUIRED_PARTS[0] if self.time_from_parts else "time_s")
        number, line = next(islice(_runs(self.text, header), row, None))
        shown = line.decode("utf-8")
        at, cell = _cells(shown)[timed]
        return number, at + len(cell) - len(cell.lstrip()), shown


@dataclass(frozen=True, slots=True)
class _Header:
    names: tuple[str, ...]
    line: int  # counted from 1
    text: str
    columns: tuple[int, ...]  # where each name starts, counted from 1


def read_timings(path: Path | str) -> Timings:
    """Read a timings table, or raise SpecError with every problem in it."""
    name = str(path)
    try:
        data = read_bytes(Path(path), MOST_BYTES + 1)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise SpecError(Problem(name, code="T001", message=f"cannot read: {reason}")) from None
    return parse_timings(data, name)


def parse_timings(data: bytes | str, name: str = "timings.csv") -> Timings:
    """The same from memory; `name` stands in messages.

    >>> t = parse_timings("k,time_s\\n1,10\\n2,5.5\\n")
    >>> t.k.tolist(), t.time_s.tolist()
    ([1.0, 2.0], [10.0, 5.5])
    """
    raw = data.encode() if isinstance(data, str) else data
    if len(raw) > MOST_BYTES:
        raise SpecError(Problem(name, code="T010", message=f"more than {MOST_BYTES:,} bytes of timings"))
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\0" in raw[:_LONGEST_LOOK]:
        raise SpecError(Problem(name, 1, 1, "T009", "not UTF-8 text", None, "save it as UTF-8"))
    raw, told = _separated(raw)
    header, body_start = _read_header(raw, name)
    written = _written(header)
    told += tuple(f'column "{words}" is read as {column}' for words, column in written.items())
    problems = _header_problems(header, name)
    wanted = tuple(dict.fromkeys(n for n in header.names if n in KNOWN and n not in LABELS))
    values = None if problems else _quick(raw[body_start:], header, wanted)
    if problems and len(header.names) == 1:  # cut at other signs than commas: so is every row
        raise SpecError(problems)
    if values is None or _faults(values):
        values, more = _slow(raw, header, wanted, name)
        problems += more
    if problems:
        raise SpecError(told_once(problems))
    distinct = np.unique(values["k"]).size
    if distinct > MOST_DISTINCT_K:
        message = f"{distinct:,} different worker counts: a curve has at most {MOST_DISTINCT_K:,}"
        help = "k is the number of workers of a run; a number of the step or the row is another column"
        raise SpecError(Problem(name, header.line, 1, "T010", message, header.text, help))
    return _timings(values, header, name, raw, told)


def _timings(
    values: dict[str, Array], header: _Header, name: str, raw: bytes, told: tuple[str, ...]
) -> Timings:
    parts = {part: values[part] for part in PARTS if part in values}
    from_parts = "time_s" not in values
    time = np.sum([values[part] for part in parts], axis=0) if from_parts else values["time_s"]
    return Timings(
        name,
        values["k"],
        np.asarray(time, dtype=np.float64),
        {part.removesuffix("_s"): column for part, column in parts.items()},
        {key: values[key] for key in OPTIONAL if key in values},
        tuple(n for n in header.names if n not in KNOWN),
        from_parts,
        told,
        raw,
    )


# --- header ---------------------------------------------------------------------------------------------


def _read_header(raw: bytes, name: str) -> tuple[_Header, int]:
    """The first line that is neither blank nor a comment, and where the body starts."""
    start = 0
    line = 0
    while start < len(raw):
        end = raw.find(b"\n", start)
        end = len(raw) if end < 0 else end
        line += 1
        text = raw[start:end].decode("utf-8", errors="replace")
        start = end + 1
        if text.strip() and not text.lstrip().startswith("#"):
            if text.count(",") >= MOST_COLUMNS:
                message = f"{text.count(',') + 1:,} columns: a table of timings has at most {MOST_COLUMNS:,}"
                raise SpecError(Problem(name, line, 1, "T010", message, None, _HELP))
            cells = _cells(text)
            names = _meant(tuple(cell.strip().lower() for _, cell in cells))
            return _Header(names, line, text, tuple(at for at, _ in cells)), start
    raise SpecError(Problem(name, 1, 1, "T001", "the file is empty", None, _HELP))


def _meant(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names with those in place that can mean nothing else, where the table has no column of that name already.

    >>> _meant(("gpus", "step_s")), _meant(("k", "gpus", "time_s"))
    (('k', 'time_s'), ('k', 'gpus', 'time_s'))
    """
    taken = set(names)
    found = []
    for name in names:
        column = _MEANT.get(name)
        if column is not None and column not in taken:
            taken.add(column)
            name = column
        found.append(name)
    return tuple(found)


def _written(header: _Header) -> dict[str, str]:
    """Columns that are read under another name than they have: the name, and what it is read as."""
    cells = [cell.strip().lower() for _, cell in _cells(header.text)]
    return {cell: name for cell, name in zip(cells, header.names, strict=True) if cell != name}


def _separated(raw: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A table whose cells are cut by semicolons or tabs, as one cut by commas, sign for sign; what was done is reported.

    Such tables come from places where the comma marks decimals: there it becomes a point.
    """
    first = next(
        (line for line in raw.split(b"\n") if line.strip() and not line.lstrip().startswith(b"#")), b""
    )
    if b"," in first or b'"' in raw:
        return raw, ()
    for sign, words in ((b";", "semicolons"), (b"\t", "tabs")):
        if sign in first:
            decimals = b"," in raw
            if decimals and not _DECIMAL.search(raw):  # they may as well mark thousands
                return raw, ()
            told = (f"cells are cut by {words}" + (", and commas are decimals" if decimals else ""),)
            return raw.replace(b",", b".").replace(sign, b","), told
    return raw, ()


def _header_problems(header: _Header, name: str) -> list[Problem]:
    problems: list[Problem] = []

    def add(at: int, code: str, message: str, help: str | None = None) -> None:
        problems.append(Problem(name, header.line, at, code, message, header.text, help))

    if len(header.names) == 1 and any(sign in header.text for sign in ";\t"):  # in quotes
        add(1, "T002", "one column only: the cells must be separated by commas", _HELP)
        return problems
    seen: dict[str, int] = {}
    mistyped: set[str] = set()
    for at, column in zip(header.columns, header.names, strict=True):
        if column in seen:
            add(at, "T003", f'duplicate column "{column}"', f"it is already at column {seen[column]}")
        elif not column:
            add(at, "T003", "a column without a name")
        elif column not in KNOWN:
            absent = [known for known in KNOWN if known not in header.names]
            likely = _SPELLED.get(column) or closest(column, absent, 0.75)
            if likely in absent:
                mistyped.add(likely)
                add(at, "T002", f'unknown column "{column}"; did you mean "{likely}"?', _HELP)
        seen.setdefault(column, at)
    present = set(header.names) | mistyped
    if "k" not in present:
        add(1, "T002", 'missing column "k" (the number of workers)', _HELP)
    if "time_s" not in present:
        missing = [part for part in REQUIRED_PARTS if part not in present]
        if len(missing) == len(REQUIRED_PARTS):
            add(1, "T002", 'missing column "time_s"', _HELP)
        elif missing:
            wanted = ", ".join(f'"{part}"' for part in missing)
            add(1, "T002", f"missing column {wanted}: without time_s the parts must be complete", _HELP)
    return problems


# --- quick ----------------------------------------------------------------------------------------------


def _quick(body: bytes, header: _Header, wanted: tuple[str, ...]) -> dict[str, Array] | None:
    """The columns by numpy's reader, or None when this table needs the careful reader."""
    body = body.rstrip(b"\n")
    if not body or b'"' in body or b"#" in body:
        return None
    shape = _shape(body, len(header.names))
    if not shape.rectangular:
        return None
    if shape.blanks:
        if b"nan" in body.lower():
            return None  # a written NaN is a mistake, a blank is not: only the careful reader sees which
        body = _filled(body, shape.blanks)
    positions = [header.names.index(column) for column in wanted]
    try:
        lines = body.decode("utf-8").split("\n")
        values = np.loadtxt(lines, delimiter=",", usecols=positions, ndmin=2, comments=None)
    except (ValueError, UnicodeDecodeError):
        return None
    return {column: np.ascontiguousarray(values[:, i]) for i, column in enumerate(wanted)}


@dataclass(frozen=True, slots=True)
class _Shape:
    rectangular: bool
    blanks: frozenset[bytes]  # what stands around empty cells: ",,", ",\n", "\n,"


def _shape(body: bytes, width: int) -> _Shape:
    """Whether every line has `width` cells (numpy skips surplus cells without a word), and where some are empty."""
    data = np.frombuffer(body, dtype=np.uint8)
    separators = np.flatnonzero((data == ord(",")) | (data == ord("\n")))
    kinds = data[separators]
    expected = np.zeros(separators.size, dtype=np.bool_)
    expected[width - 1 :: width] = True
    rectangular = (separators.size + 1) % width == 0 and np.array_equal(kinds == ord("\n"), expected)
    # The file's two ends count as line ends.
    empty = np.flatnonzero(np.diff(separators) == 1)
    pairs = set(np.unique(kinds[empty].astype(np.int64) * 256 + kinds[empty + 1]).tolist())
    blanks = {bytes(divmod(pair, 256)) for pair in pairs}
    if body[:1] == b",":
        blanks.add(b"\n,")
    if body[-1:] == b",":
        blanks.add(b",\n")
    return _Shape(rectangular, frozenset(blanks))


def _filled(body: bytes, blanks: frozenset[bytes]) -> bytes:
    """The body with NaN in its empty cells."""
    if b",," in blanks:
        body = body.replace(b",,", b",nan,").replace(b",,", b",nan,")  # twice: neighbours share a comma
    if b",\n" in blanks:
        body = body.replace(b",\n", b",nan\n") + (b"nan" if body[-1:] == b"," else b"")
    if b"\n," in blanks:
        body = (b"nan" if body[:1] == b"," else b"") + body.replace(b"\n,", b"\nnan,")
    return body


_Rule: TypeAlias = tuple[str, Callable[[Array], NDArray[np.bool_]]]
_CHECKS: dict[str, _Rule] = {
    "k": ("", lambda x: (x < 1) | (x > MAX_K) | (x != np.floor(x))),
    "time_s": ("must be above zero", lambda x: x <= 0),
    "quality": ("", lambda x: np.zeros_like(x, dtype=np.bool_)),
    "global_batch": ("must be above zero", lambda x: x <= 0),
    "latency_p99_s": ("must be above zero", lambda x: x <= 0),
}
_NOT_NEGATIVE: _Rule = ("must not be negative", lambda x: x < 0)


_LARGEST = 1e18
_SHORTEST_S = 1e-12


def _unreal(column: str, x: Array) -> NDArray[np.bool_]:
    """Values that no run has: infinite, beyond 1e18, or a time below a picosecond but not zero."""
    short = (x > 0.0) & (x < _SHORTEST_S) & column.endswith("_s")
    return np.asarray((np.abs(x) > _LARGEST) | short)


def _faults(values: dict[str, Array]) -> bool:
    """Whether any value breaks its column's rule; where, the careful reader finds out."""
    for column, x in values.items():
        if _unreal(column, x).any() or (column not in OPTIONAL and np.isnan(x).any()):
            return True
        if _CHECKS.get(column, _NOT_NEGATIVE)[1](x).any():
            return True
    return "time_s" not in values and bool(
        (np.sum([values[p] for p in PARTS if p in values], axis=0) <= 0).any()
    )


# --- careful --------------------------------------------------------------------------------------------


def _runs(raw: bytes, header: _Header) -> Iterator[tuple[int, bytes]]:
    """Lines under the header that hold a run, with their numbers."""
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if number > header.line and line.strip() and not line.lstrip().startswith(b"#"):
            yield number, line


def _slow(
    raw: bytes, header: _Header, wanted: tuple[str, ...], name: str
) -> tuple[dict[str, Array], list[Problem]]:
    problems: list[Problem] = []
    found: dict[str, list[float]] = {column: [] for column in wanted}
    positions = {column: header.names.index(column) for column in wanted}
    rows = 0
    for number, line_bytes in _runs(raw, header):
        rows += 1
        try:
            line = line_bytes.decode("utf-8")
        except UnicodeDecodeError as error:
            shown = line_bytes.decode("utf-8", errors="replace")
            problems.append(
                Problem(name, number, error.start + 1, "T009", "not UTF-8 text", shown, "save it as UTF-8")
            )
            continue
        cells = _cells(line)
        if len(cells) != len(header.names):
            at = cells[len(header.names)][0] if len(cells) > len(header.names) else len(line) + 1
            message = f"{len(cells)} cells, but the header names {len(header.names)}"
            hint = COMMA_HELP if len(cells) > len(header.names) else None
            problems.append(Problem(name, number, at, "T008", message, line, hint))
            continue
        total = 0.0
        before = len(problems)
        for column, position in positions.items():
            at, text = cells[position]
            value, fault = _value(column, text.strip())
            if fault:
                at += len(text) - len(text.lstrip())
                problems.append(Problem(name, number, at, fault[0], f"{column}: {fault[1]}", line, fault[2]))
            if column in PARTS:
                total += value
            found[column].append(value)
        if "time_s" not in positions and total <= 0 and len(problems) == before and "compute_s" in positions:
            message = "the parts of this run add up to zero"
            problems.append(Problem(name, number, 1, "T005", message, line))
    if rows == 0:
        problems.append(Problem(name, header.line, 1, "T001", "no timings under the header", header.text))
    return {column: np.array(items, dtype=np.float64) for column, items in found.items()}, problems


def _value(column: str, text: str) -> tuple[float, tuple[str, str, str | None] | None]:
    """A cell's number, and what is wrong with it: code, message, help."""
    if not text:
        if column in OPTIONAL:
            return np.nan, None
        return np.nan, ("T004", "an empty cell", None)
    try:
        value = plain_number(text)
    except ValueError:
        if has_comma(text):
            return np.nan, ("T004", "a comma in the number", COMMA_HELP)
        return np.nan, (
            "T004",
            f'not a number: "{text}"',
            "write plain numbers; the unit is in the column's name",
        )
    if not np.isfinite(value):
        return np.nan, (
            "T006",
            f"not a finite number: {text}",
            "leave an optional cell empty where there is no value",
        )
    if _unreal(column, np.array([value])).any():
        return np.nan, ("T005", f"too {'large' if abs(value) > 1 else 'small'} to be real: {text}", None)
    if column == "k":
        if value < 1:
            return value, ("T007", f"a run has at least 1 worker, got {text}", None)
        if value != np.floor(value):
            return value, ("T007", f"a whole number of workers, got {text}", None)
        if value > MAX_K:
            return value, ("T007", f"more than {MAX_K} workers: {text}", None)
        return value, None
    rule, broken = _CHECKS.get(column, _NOT_NEGATIVE)
    if broken(np.array([value])).any():
        return value, ("T005", f"{rule}, got {text}", None)
    return value, None


def _cells(line: str) -> list[tuple[int, str]]:
    """Cells of one line with the column (from 1) at which each starts; quotes as in RFC 4180, kept where left open.

    >>> _cells('1,"a ""b"", c",3')
    [(1, '1'), (3, 'a "b", c'), (16, '3')]
    >>> _cells('1,"2')
    [(1, '1'), (3, '"2')]
    """
    if '"' not in line:
        found = []
        at = 1
        for text in line.split(","):
            found.append((at, text))
            at += len(text) + 1
        return found
    found, start, quoted, i = [], 0, False, 0
    text = ""
    while i <= len(line):
        char = line[i] if i < len(line) else ","
        if quoted and i < len(line):
            if char == '"' and line[i + 1 : i + 2] == '"':
                text += '"'
                i += 1
            elif char == '"':
                quoted = False
            else:
                text += char
        elif char == ",":
            found.append((start + 1, '"' * quoted + text))
            text, start = "", i + 1
        elif char == '"' and not text.strip():
            text, quoted = "", True
        else:
            text += char
        i += 1
    return found
