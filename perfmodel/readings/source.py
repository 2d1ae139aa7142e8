"""Where readers get their lines, and how they account for each of them.

Every line of a file ends in one of three places: used (it gave data), ignored (known to hold none: comments,
banners, blank lines) or rejected (kept with its number, text and reason). `used + ignored + rejected_count`
is always `lines`.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from perfmodel.errors import Problem, SpecError

KEPT_REJECTIONS = 200  # with their text; of the rest the number alone
LONGEST_LINE = 1 << 20  # characters; a longer line is cut, so that a binary file cannot fill the memory
SNIPPET = 160

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Launchers put the rank before each line: mpirun "[1,0]<stdout>:", srun "0: ", torchrun "[rank0]:" "[default0]:".
_LAUNCHER = re.compile(
    r"^(?:\[\d+,\d+\]<std(?:out|err)>:\s?|\[(?:rank|default|trainer)\d+\]:\s?|[\w.-]{1,40}/\d+ (?=\[default)|\d{1,6}:\s)"
)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that was not used: `line` counts from 1 (0 where the format has no lines)."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What every reader returns beside its data.

    `rejected` holds the first rejected lines with text and reason, `rejected_lines` the numbers of all of them as
    (first, last) runs, `rejected_count` how many there are.
    """

    path: str
    lines: int = 0
    used: int = 0
    ignored: int = 0
    rejected: tuple[Rejected, ...] = ()
    rejected_count: int = 0
    rejected_lines: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()

    def reasons(self) -> dict[str, int]:
        """Reason -> how many of the kept rejections have it."""
        counts: dict[str, int] = {}
        for item in self.rejected:
            counts[item.reason] = counts.get(item.reason, 0) + 1
        return counts


R = TypeVar("R", bound=Reading)


@dataclass
class Tally:
    """Counts while a reader runs; `finish()` makes the result."""

    path: Path
    lines: int = 0
    used: int = 0
    rejected_count: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)  # of rejected lines
    notes: list[str] = field(default_factory=list)

    def reject(self, line: int, text: str, reason: str) -> None:
        """Count one line (or record) as not used."""
        self.rejected_count += 1
        if self.runs and line - self.runs[-1][1] in (0, 1):
            self.runs[-1] = (self.runs[-1][0], line)
        elif line > 0:
            self.runs.append((line, line))
        if len(self.rejected) < KEPT_REJECTIONS:
            self.rejected.append(Rejected(line, text.strip()[:SNIPPET], reason))

    def note(self, text: str) -> None:
        """Something the user should know about how the file was read."""
        if text not in self.notes:
            self.notes.append(text)

    def finish(self, kind: type[R], **data: Any) -> R:
        """A result of the given kind with the counts; what was neither used nor rejected was ignored."""
        return kind(
            path=str(self.path),
            lines=self.lines,
            used=self.used,
            ignored=self.lines - self.used - self.rejected_count,
            rejected=tuple(self.rejected),
            rejected_count=self.rejected_count,
            rejected_lines=tuple(sorted(self.runs)),
            notes=tuple(self.notes),
            **data,
        )


# What reading damaged gzip raises.
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
DAMAGE = "the compressed data ends early or is damaged"


class _Gunzip(gzip.GzipFile):
    """Gives all that can be unpacked before it complains that the rest is damaged."""

    def readinto(self, buffer: Any) -> int:
        data = self.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def damaged(path: Path | str) -> SpecError:
    """The error of a file that could not be unpacked."""
    return SpecError(Problem(str(path), code="R001", message=DAMAGE))


def open_bytes(path: Path) -> io.BufferedReader:
    """The file's bytes; gzip is unpacked, whatever the name says. Pipes are refused: files are read more than once."""
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir() and path != Path(os.devnull):
            raise SpecError(
                Problem(
                    str(path),
                    code="R001",
                    message="cannot read it: not a regular file",
                    help="save its text to a file first",
                )
            )
        raw = path.open("rb")
    except OSError as error:
        raise SpecError(
            Problem(str(path), code="R001", message=f"cannot read it: {error.strerror}")
        ) from None
    if raw.peek(2)[:2] == b"\x1f\x8b":
        raw.close()
        return io.BufferedReader(_Gunzip(path, "rb"))
    return raw


def numbered_lines(path: Path, tally: Tally, *, redrawn: bool = False) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without colours and carriage returns; undecodable bytes become U+FFFD.

    A progress bar redraws itself with carriage returns: the last drawing of each line counts, or, with
    `redrawn`, every drawing as a line of its own under the same number.
    """
    place = 0
    with open_bytes(path) as raw:
        try:
            head = raw.peek(2)[:2]
        except DAMAGED:
            tally.lines += 1
            tally.reject(1, "", DAMAGE)
            return
        encoding = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}.get(head, "utf-8-sig")
        text = io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="\n")
        while True:
            try:
                line = text.readline(LONGEST_LINE)
                cut = False
                while len(line) == LONGEST_LINE and not line.endswith("\n"):
                    cut = True
                    if len(text.readline(LONGEST_LINE)) < LONGEST_LINE:
                        break
            except DAMAGED:
                tally.lines += 1
                tally.reject(place + 1, "", DAMAGE)
                return
            if not line:
                return
            place += 1
            if cut:
                tally.lines += 1
                tally.reject(place, line, "line is too long")
                continue
            drawn = [part for part in line.rstrip("\r\n").split("\r") if part] or [""]
            for part in drawn if redrawn else drawn[-1:]:
                tally.lines += 1
                yield place, _ANSI.sub("", part)


def without_launcher(text: str) -> str:
    """The line without the rank that a launcher put before it.

    >>> without_launcher("[1,0]<stdout>:     8388608   2097152  float")
    '    8388608   2097152  float'
    """
    match = _LAUNCHER.match(text)
    return text[match.end() :] if match else text


def number(text: str) -> float | None:
    """A finite number, thousands separators allowed; None when it is none.

    >>> number("6,823"), number("1.2e-3"), number("N/A"), number("nan")
    (6823.0, 0.0012, None, None)
    """
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def csv_cells(text: str) -> list[str]:
    """The cells of one line of CSV without the space around them; none where the quotes are hopeless.

    >>> csv_cells('2024/05/01 12:00:00.000, 0, "245.31 W"')
    ['2024/05/01 12:00:00.000', '0', '245.31 W']
    """
    try:
        return [
            cell.strip()
            for row in csv.reader([text.replace("\0", " ")], skipinitialspace=True)
            for cell in row
        ]
    except csv.Error:
        return []


_SIZES = {"": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}


def binary_size(text: str) -> float | None:
    """Bytes of a benchmark's message size, where K, M and G are powers of two whatever the spelling.

    >>> binary_size("32KiB"), binary_size("1.5 GB"), binary_size("512")
    (32768.0, 1610612736.0, 512.0)
    """
    match = re.fullmatch(r"\s*([\d.,]+)\s*([kmgtKMGT]?)i?[bB]?\s*", text)
    value = number(match.group(1)) if match else None
    return None if match is None or value is None else value * _SIZES[match.group(2).lower()]


WARMUP_FACTOR = 1.5
WARMUP_RULE = (
    "warm-up left out: the first step, then leading steps slower than "
    f"{WARMUP_FACTOR:g} times the median of the second half, at most half of all"
)


def warmup_steps(durations: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    """How many leading steps are warm-up, by `WARMUP_RULE`; none of one or two steps.

    >>> warmup_steps([9.0, 3.1, 1.0, 1.1, 1.0, 1.0, 1.1, 1.0])
    2
    >>> warmup_steps([9.0, 1.0])
    0
    """
    values = np.asarray(durations, dtype=np.float64)
    if values.size < 3:
        return 0
    median = float(np.median(values[values.size // 2 :]))
    count = 1
    while count < values.size // 2 and values[count] > WARMUP_FACTOR * median:
        count += 1
    return count
