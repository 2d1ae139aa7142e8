"""Any result: single values in one table, arrays that are aligned with each other in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfmodel.report.model import Column, Envelope, Table, as_cell, kind_of, result_of

_SUFFIXES = (
    ("_usd_per_h", "USD/h"),
    ("_usd", "USD"),
    ("_bytes_per_s", "B/s"),
    ("_flop_per_s", "FLOP/s"),
    ("_bytes", "B"),
    ("_flop", "FLOP"),
    ("_s", "s"),
    ("_w", "W"),
    ("_j", "J"),
    ("_g", "g"),
    ("_ape", "%"),
    ("_frac", "%"),
)


def title(envelope: Envelope) -> str:
    """The kind's name."""
    return kind_of(envelope).replace("_", " ").capitalize() or "Result"


def answer(envelope: Envelope) -> str:
    """A result that states its own answer is believed; else there is none."""
    result = result_of(envelope)
    for key in ("answer", "verdict", "summary"):
        if isinstance(result.get(key), str):
            return str(result[key])
    return ""


def tables(envelope: Envelope) -> list[Table]:
    """Single values, then lists of rows, then aligned arrays."""
    result = result_of(envelope)
    found: list[Table] = []
    single = [(name, value) for name, value in flatten(result) if not isinstance(value, list)]
    if single:
        found.append(
            Table("Values", ("name", "value"), [(n, as_cell(v)) for n, v in single], role="decision")
        )
    arrays: dict[int, list[tuple[str, list[object]]]] = {}
    for name, value in flatten(result):
        if not isinstance(value, list) or not value:
            continue
        if all(isinstance(item, Mapping) for item in value):
            found.append(records(name, value))
        else:
            arrays.setdefault(len(value), []).append((name, value))
    for columns in arrays.values():
        rows = [tuple(as_cell(values[i]) for _, values in columns) for i in range(len(columns[0][1]))]
        heads = [column_for(name, priority=i) for i, (name, _) in enumerate(columns)]
        found.append(Table("Arrays", heads, rows, role="curve"))
    return found


def notes(envelope: Envelope) -> list[str]:
    """The result's own notes and warnings."""
    result = result_of(envelope)
    return [str(item) for key in ("notes", "warnings") for item in result.get(key) or ()]


def records(name: str, rows: Sequence[Mapping[str, object]], role: str = "curve") -> Table:
    """A list of mappings as a table, a column for each key in order of first appearance."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return Table(
        name.replace("_", " ").capitalize(),
        [column_for(key, priority=i) for i, key in enumerate(keys)],
        [tuple(as_cell(row.get(key)) for key in keys) for row in rows],
        role="curve" if role == "curve" else "detail",
    )


def flatten(mapping: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Nested mappings as dotted names.

    >>> flatten({"a": {"b": 1}, "c": [2]})
    [('a.b', 1), ('c', [2])]
    """
    pairs: list[tuple[str, object]] = []
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            pairs.extend(flatten(value, f"{prefix}{key}."))
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs


def column_for(name: str, priority: int = 1) -> Column:
    """A column whose unit is read from the name's ending.

    >>> column_for("time_s").title, column_for("time_s").quantity
    ('time', 's')
    """
    for suffix, unit in _SUFFIXES:
        if name.endswith(suffix):
            return Column(name[: -len(suffix)].replace("_", " "), unit, priority, name)
    return Column(name.replace("_", " "), "", priority, name)
