"""Numbers as people read them: three digits, one prefix for a whole column, never an exponent in a table."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TypeGuard

from perfmodel.report.model import Cell, Column, Table

MISSING = "-"

_DECIMAL = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
# A duration changes its unit where the larger one reads better: 90 min rather than 1.5 h.
_TIME_FROM = {"d": 2 * 86400.0, "h": 2 * 3600.0, "min": 120.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 0.0}
_KWH = 3.6e6
_SOLD = ((1e15, "T"), (1e12, "G"), (1e9, "M"), (1e6, "k"))  # of 3.6 J
_PREFIXED = ("B", "B/s", "FLOP", "FLOP/s", "W", "J", "g")


USUAL_DIGITS = 3
_DIGITS: ContextVar[int | None] = ContextVar("digits", default=None)


@contextlib.contextmanager
def with_digits(digits: int | None) -> Iterator[None]:
    """Show numbers with so many significant digits; None: as usual.

    >>> with with_digits(5):
    ...     number(0.512345)
    '0.51235'
    """
    before = _DIGITS.set(digits)
    try:
        yield
    finally:
        _DIGITS.reset(before)


def stated_digits() -> int | None:
    """The significant digits that were asked for, else None."""
    return _DIGITS.get()


def number(value: float, digits: int | None = None) -> str:
    """A number with `digits` significant digits, else those asked for, without an exponent between 1e-4 and 1e15.

    >>> number(0.51234), number(1234.5), number(123.4), number(0.00001234), number(8)
    ('0.512', '1,234', '123', '1.23e-05', '8')
    """
    digits = digits or stated_digits() or USUAL_DIGITS
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-4 or size >= 1e15:
        return f"{value:.{digits - 1}e}"
    value = float(f"{value:.12g}")  # 0.15 / 0.01 is an integer to the eye
    if value.is_integer():
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}"


def scale(values: Iterable[Cell], quantity: str) -> tuple[float, str]:
    """The factor and the unit that suit a set of values of one quantity: `shown = value / factor`.

    >>> scale([0.012, 0.5], "s"), scale([4e10], "B"), scale([0.5, 0.9], "%"), scale([7.2e9], "J")
    ((0.001, 'ms'), (1000000000.0, 'GB'), (0.01, '%'), (3600000000.0, 'MWh'))
    """
    sizes = sorted(abs(float(v)) for v in values if _is_number(v) and v != 0)
    if quantity == "%":
        return 0.01, "%"
    if quantity == "s":
        middle = sizes[(len(sizes) - 1) // 2] if sizes else 1.0
        return next((f, u) for f, u in _TIMES if middle >= _TIME_FROM[u])
    if quantity in _PREFIXED:
        middle = sizes[(len(sizes) - 1) // 2] if sizes else 1.0
        if quantity == "J" and middle >= _KWH:  # as electricity is sold
            return next((f * 3.6, f"{p}Wh") for f, p in _SOLD if middle >= 3.6 * f)
        factor, prefix = next(((f, p) for f, p in _DECIMAL if middle >= f), (1.0, ""))
        return factor, prefix + quantity
    return 1.0, quantity if quantity != "x" else ""


def quantity(value: Cell, unit: str, like: Cell = None) -> str:
    """One value with its unit, for sentences; the unit suits `like` where several stand together.

    >>> quantity(0.0123, "s"), quantity(0.701, "%"), quantity(1234.5, "USD"), quantity(None, "s"), quantity(180, "x")
    ('12.3 ms', '70.1 %', '1,234 USD', '-', '180x')
    >>> quantity(1.11e-15, "%")
    '0 %'
    """
    if not _is_number(value):
        return MISSING if value is None else str(value)
    if unit == "x":
        return number(value) + "x"
    value = _told(value, unit)
    factor, shown = scale([value if like is None else like], unit)
    if unit == "USD" and abs(value) < 100:
        return f"{value:.2f} USD" if abs(value) >= 1 or value == 0 else f"{number(value)} USD"
    return f"{number(value / factor)} {shown}".rstrip()


_LEAST_SHARE = 1e-6  # a smaller one is rounding, and an exponent beside a per cent sign tells nobody anything


def _told(value: int | float, unit: str) -> int | float:
    return 0 if unit == "%" and abs(value) < _LEAST_SHARE else value


def cell(value: Cell, factor: float = 1.0, *, apart: bool = False) -> str:
    """A table cell as text: numbers divided by the column's factor, thousands `apart`, booleans as yes and no."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and factor == 1.0:
        return f"{value:,d}" if apart else str(value)
    if isinstance(value, (int, float)):
        return number(value / factor)
    return str(value)


def table_text(table: Table) -> list[tuple[str, list[str]]]:
    """Each column's heading and cells as text.

    >>> heads = [Column("time", "s"), Column("high", "s", unit_of="time")]
    >>> table_text(Table("", heads, [(0.9, 1.2)]))
    [('time [ms]', ['900']), ('high [ms]', ['1,200'])]
    """
    places = {head.key or head.title: i for i, head in enumerate(table.heads)}
    return [
        column_text(head, table.values(i), table.values(places.get(head.unit_of, i) if head.unit_of else i))
        for i, head in enumerate(table.heads)
    ]


def column_text(
    column: Column, values: Sequence[Cell], scaled_by: Sequence[Cell] = ()
) -> tuple[str, list[str]]:
    """A column's heading with its unit, and its cells as text; the prefix suits `scaled_by`, else the cells.

    >>> column_text(Column("time", "s"), [0.5, 0.25, None])
    ('time [ms]', ['500', '250', '-'])
    >>> column_text(Column("error", "%"), [0.05, 1.11e-15])
    ('error [%]', ['5', '0'])
    """
    factor, unit = scale(scaled_by or values, column.quantity)
    values = [_told(v, column.quantity) if _is_number(v) else v for v in values]
    # Four digits are read at a glance, as in K = 1024; a column with more has them apart throughout.
    apart = any(isinstance(v, int) and abs(v) >= 10_000 for v in values)
    if column.quantity == "" or not any(_is_number(v) for v in values):
        return column.title, [cell(v, apart=apart) for v in values]
    heading = f"{column.title} [{unit}]" if unit else column.title
    return heading, [cell(v, factor, apart=apart) for v in values]


# What reads as one word: "K = 8", "90 %", "12 USD/h", "2 days".
_TOGETHER = re.compile(
    r"\(?[A-Za-z*]+ (?:=|<|>|>=|<=) \S+|\(?[\d.,]+ (?:%|USD|[kMGTPE]?(?:B|W|J|FLOP)\b|d|h|min|s|ms|us|ns|bit|days?)\S*|\S+"
)


def lines(value: str, width: int) -> str:
    """Text broken into lines of at most `width`, never between a number and what it belongs to.

    >>> print(lines("the fastest is K = 1024 at 1,500 USD", 20))
    the fastest is
    K = 1024 at
    1,500 USD
    """
    done: list[str] = []
    line = ""
    for word in _TOGETHER.findall(value):
        if line and len(line) + 1 + len(word) > width:
            done.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*done, line])


def folded(value: str, width: int) -> str:
    """Words wider than `width` broken where they have a joint (after / _ . - @), else where they must be.

    >>> folded("see github.com/example/some-project", 14).split()
    ['see', 'github.com/', 'example/some-', 'project']
    """
    return " ".join("\n".join(_pieces(word, width)) for word in value.split(" "))


def in_cell(value: str, width: int) -> str:
    """A cell in lines of at most `width`, broken as prose is and, where a word is too wide, at its joints.

    >>> in_cell("a step in 5.5 s at K = 1024", 12).split("\\n")
    ['a step in', '5.5 s at', 'K = 1024']
    """
    if len(value) <= width:
        return value
    return "\n".join(lines(part, width) for part in folded(value, width).split("\n"))


def _pieces(word: str, width: int) -> list[str]:
    found = []
    while len(word) > width > 0:
        joint = max(word.rfind(mark, 0, width) for mark in "/_.-@")
        cut = joint + 1 if joint > 0 else width
        found.append(word[:cut])
        word = word[cut:]
    return [*found, word]


def width_for(heading: str, most_lines: int) -> int:
    """The least width at which a heading takes at most so many lines.

    >>> width_for("change of input [%]", 2), width_for("K", 2)
    (9, 1)
    """
    longest = max((len(word) for word in heading.split()), default=1)
    return next(
        width
        for width in range(longest, max(longest, len(heading)) + 1)
        if lines(heading, width).count("\n") < most_lines or width >= len(heading)
    )


def numeric(values: Sequence[Cell]) -> bool:
    """Whether a column holds numbers, and so belongs on the right."""
    return any(_is_number(v) for v in values) and not any(isinstance(v, str) for v in values)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
