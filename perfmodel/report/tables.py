"""The tables of an envelope, and CSV made from them."""

from __future__ import annotations

import csv
import io

from perfmodel.report.kinds import rendering_of
from perfmodel.report.model import ROLES, Cell, Column, Envelope, Table

_UNIT_NAMES = {
    "s": "s",
    "B": "bytes",
    "B/s": "bytes_per_s",
    "FLOP": "flop",
    "FLOP/s": "flop_per_s",
    "W": "w",
    "J": "j",
}
_UNIT_NAMES |= {"USD": "usd", "USD/h": "usd_per_h", "g": "g"}


def tables(envelope: Envelope) -> list[Table]:
    """All tables of an envelope in reading order: decision, curve, breakdown, then what they rest on."""
    return sorted(rendering_of(envelope).tables(envelope), key=lambda table: ROLES.index(table.role))


def main_table(envelope: Envelope) -> Table | None:
    """The table that CSV holds: what the kind calls its data, else the curve (a row per K), else the first."""
    own = rendering_of(envelope).data(envelope)
    if own is not None:
        return own
    found = tables(envelope)
    return next((table for table in found if table.role == "curve"), found[0] if found else None)


def to_csv(envelope: Envelope) -> str:
    """The main table as CSV: base units, full precision, `\\n` line ends, empty for no value.

    Text that a spreadsheet would take for a formula gets a leading apostrophe.
    """
    table = main_table(envelope)
    if table is None:
        return ""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([header(column) for column in table.heads])
    for row in rows(table):
        writer.writerow(["" if value is None else _safe(value) for value in row])
    return out.getvalue()


def rows(table: Table) -> list[list[Cell]]:
    """Rows filled up to the number of columns."""
    width = len(table.columns)
    return [[*row[:width], *([None] * (width - len(row)))] for row in table.rows]


def header(column: Column) -> str:
    """A CSV column's name: its key, else the title with the unit.

    >>> header(Column("exposed communication", "s"))
    'exposed_communication_s'
    """
    if column.key:
        return column.key
    name = "_".join(column.title.lower().split())
    unit = _UNIT_NAMES.get(column.quantity, "")
    return f"{name}_{unit}" if unit else name


def _safe(value: Cell) -> Cell:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
