"""What every rendering is made from: tables with units, and charts as plain data.

A kind of result (`report/kinds/<kind>.py`) turns an envelope into these; terminal, Markdown, CSV, HTML and
notebook only draw them. Nothing here computes a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = str | int | float | bool | None
Envelope = Mapping[str, Any]

Role = Literal["decision", "curve", "breakdown", "assumptions", "sensitivity", "limits", "detail"]
ROLES: tuple[Role, ...] = ("decision", "curve", "breakdown", "assumptions", "sensitivity", "limits", "detail")


@dataclass(frozen=True)
class Column:
    """A column's title and the base unit of its numbers.

    `quantity` is one of "s", "B", "B/s", "FLOP", "FLOP/s", "W", "J", "USD", "USD/h", "g", "%" (a fraction,
    shown in percent), "x" (a ratio) or "" (text, counts, numbers as they are). `key` names the column in CSV.
    `priority` 0 is always shown; in a narrow terminal the largest numbers go first. `unit_of` names the column
    (key, else title) whose prefix this one takes, so that a band reads in the unit of what it lies around;
    columns of one `unit_of` and priority are shown all or not at all.
    """

    title: str
    quantity: str = ""
    priority: int = 1
    key: str = ""
    unit_of: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under titled columns; plain strings are accepted for columns without a unit.

    `marked` holds the indices of the rows to point at (the chosen one). Tables of role `detail`, `assumptions`
    and `limits` are left out of the terminal.
    """

    title: str
    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    role: Role = "detail"
    marked: tuple[int, ...] = ()

    @property
    def heads(self) -> tuple[Column, ...]:
        """The columns, each as a `Column`."""
        return tuple(Column(item) if isinstance(item, str) else item for item in self.columns)

    def values(self, index: int) -> list[Cell]:
        """One column's cells; rows that are too short give None."""
        return [row[index] if index < len(row) else None for row in self.rows]


@dataclass(frozen=True)
class Series:
    """One line (or set of dots, or layer of a stack): `y` over `x`, None where there is no value."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    style: Literal["line", "dashed", "dots", "ghost"] = "line"


@dataclass(frozen=True)
class Mark:
    """A labelled vertical line (`y` None) or point of a chart."""

    label: str
    x: float
    y: float | None = None
    style: Literal["point", "line", "boundary"] = "line"


@dataclass(frozen=True)
class Chart:
    """A chart as data, with the sentence that describes it to those who cannot see it."""

    title: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    alt: str
    kind: Literal["lines", "stack"] = "lines"
    x_log: bool = True
    x_amount: bool = False  # of times or dollars, on round decimal ticks
    y_log: bool = False
    y_quantity: str = ""
    marks: Sequence[Mark] = field(default_factory=tuple)
    floor: float | None = None
    note: str = ""


def kind_of(envelope: Envelope) -> str:
    """The kind named by an envelope's schema.

    >>> kind_of({"schema": "perfmodel/prediction/1"})
    'prediction'
    """
    parts = str(envelope.get("schema", "")).split("/")
    return parts[1] if len(parts) == 3 and parts[0] == "perfmodel" else ""


def result_of(envelope: Envelope) -> dict[str, Any]:
    """The `result` mapping of an envelope, empty when it has none."""
    result = envelope.get("result")
    return dict(result) if isinstance(result, Mapping) else {}


def inputs_of(envelope: Envelope) -> dict[str, object]:
    """The `inputs` mapping of an envelope, empty when it has none."""
    inputs = envelope.get("inputs")
    return dict(inputs) if isinstance(inputs, Mapping) else {}


def mapping(value: object) -> dict[str, Any]:
    """A mapping, empty for anything else."""
    return dict(value) if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[dict[str, Any]]:
    """The mappings of a list, without anything else that was in it."""
    items = value if isinstance(value, (list, tuple)) else ()
    return [dict(item) for item in items if isinstance(item, Mapping)]


def amount(row: Mapping[str, object], key: str) -> float | None:
    """A number of a mapping, None for anything else.

    >>> amount({"k": 8, "cause": "host"}, "k"), amount({"k": 8, "cause": "host"}, "cause")
    (8, None)
    """
    value = row.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def as_cell(value: object) -> Cell:
    """What a table can hold: nested things become short text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={as_cell(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(as_cell(item)) for item in value)
    return str(value)


def listed(value: object) -> list[Any]:
    """A list, one item for a single value, none for None."""
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]
