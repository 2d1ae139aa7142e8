"""Two jobs side by side: both curves, the difference, and the changed inputs that caused it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report.kinds import common
from perfmodel.report.kinds.generic import as_cell
from perfmodel.report.model import Cell, Chart, Column, Envelope, Series, Table, inputs_of, result_of


def title(envelope: Envelope) -> str:
    """Both names."""
    a, b = names(envelope)
    return f"{a} against {b}"


def answer(envelope: Envelope) -> str:
    """The result's own sentence."""
    result = result_of(envelope)
    return str(result.get("answer") or result.get("summary") or "")


def tables(envelope: Envelope) -> list[Table]:
    """Decisions of both, the causes, both curves."""
    result = result_of(envelope)
    a, b = sides(result)
    first, second = names(envelope)
    found = []
    rows: list[list[Cell]] = []
    for label, read in _FACTS:
        left, right = read(a), read(b)
        if label.startswith("knee") and (a.get("knee") or b.get("knee")):
            rows.append(
                [label, *("not reached" if side is None else as_cell(side) for side in (left, right))]
            )
        elif left is not None or right is not None:
            rows.append([label, left, right])
    if rows:
        found.append(
            Table(
                "Decision",
                (Column("", "", 0), Column(first, "", 0), Column(second, "", 0)),
                rows,
                role="decision",
            )
        )
    found += [*_causes(result), *_equal_speed(result, first, second)]
    found.append(_curves(a, b, first, second))
    return [*found, *common.assumptions(result), *common.limits(result)]


def data(envelope: Envelope) -> Table:
    """Both curves and their ratio, a row per K."""
    result = result_of(envelope)
    a, b = sides(result)
    ratios = ("time_ratio", "time_ratio_low", "time_ratio_high")
    rows: list[list[Cell]] = [
        [
            k,
            *(common.at(side, key, k) for key in ("time_s", "cost_usd") for side in (a, b)),
            *(common.at(result, key, k) for key in ratios),
        ]
        for k in sorted({*(a.get("k") or ()), *(b.get("k") or ())})
    ]
    keys = ("k", "time_s_a", "time_s_b", "cost_usd_a", "cost_usd_b", *ratios)
    return Table("Curves", [Column(key, key=key) for key in keys], rows)


# Columns of the causes: key, title, quantity and priority.
_CAUSES = (
    ("input", "changed input", "", 0),
    ("before", "before", "", 1),
    ("after", "after", "", 1),
    ("effect", "time", "%", 0),
    ("cost_effect", "cost", "%", 0),
    ("knee_alone", "knee with it alone, K", "", 2),
)


def _causes(result: Mapping[str, Any]) -> list[Table]:
    changes = [row for row in result.get("changes") or () if isinstance(row, Mapping)]
    if not changes:
        return []
    shown = [item for item in _CAUSES if any(row.get(item[0]) is not None for row in changes)]
    columns = [Column(title, quantity, priority, key) for key, title, quantity, priority in shown]
    cells = [[as_cell(row.get(key)) for key, *_ in shown] for row in changes]
    at = result.get("at_k")
    where = f" at K = {at}" if at is not None else ""
    note = (
        f"Time per sample{where} and least cost per sample: mean of putting the change in first and last. Effects "
        "multiply; what they leave over is the interaction."
    )
    return [Table("Causes: one changed input at a time", columns, cells, note=note, role="curve")]


def _equal_speed(result: Mapping[str, Any], first: str, second: str) -> list[Table]:
    rows = [row for row in result.get("equal_speed") or () if isinstance(row, Mapping)]
    if not rows:
        return []
    keys = ("k_a", "time_a_s", "cost_a_usd", "k_b", "time_b_s", "cost_b_usd")
    columns = [
        Column(f"K of {first}", "", 0, "k_a"),
        Column("time per sample", "s", 1, "time_a_s"),
        Column("cost", "USD", 0, "cost_a_usd"),
        Column(f"K of {second} as fast", "", 0, "k_b"),
        Column("time per sample", "s", 1, "time_b_s", "time_a_s"),
        Column("cost", "USD", 0, "cost_b_usd"),
    ]
    cells = [[as_cell(row.get(key)) for key in keys] for row in rows]
    note = "The fewest accelerators on the ladder that are at least as fast; none where no K is."
    return [Table("Equal speed", columns, cells, note=note, role="breakdown")]


def figures(envelope: Envelope) -> list[str]:
    """Both speedups."""
    return ["comparison"]


def notes(envelope: Envelope) -> list[str]:
    """The comparison's own notes."""
    return common.notes_of(result_of(envelope))


def charts(envelope: Envelope) -> list[Chart]:
    """Step time of both over K."""
    a, b = sides(result_of(envelope))
    first, second = names(envelope)
    series = []
    for name, side, style in ((first, a, "line"), (second, b, "dashed")):
        k = [float(x) for x in side.get("k") or ()]
        n = len(k)
        times = common.array(side, "time_s", n)
        low, high = common.array(side, "time_s_low", n), common.array(side, "time_s_high", n)
        series.append(Series(name, k, times, low, high, "line" if style == "line" else "dashed"))
    if not any(s.x for s in series):
        return []
    alt = f"Step time of {first} and {second} against K. {answer(envelope)}"
    return [Chart("Step time", "K", "step time", series, alt=alt, y_log=True, y_quantity="s")]


def names(envelope: Envelope) -> tuple[str, str]:
    """What the two sides are called."""
    given = result_of(envelope).get("names")
    if isinstance(given, (list, tuple)) and len(given) == 2:
        return str(given[0]), str(given[1])
    inputs = inputs_of(envelope)
    return common.name_of(inputs.get("a")) or "A", common.name_of(inputs.get("b")) or "B"


def sides(result: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two predictions' results."""
    found = []
    for key in ("a", "b"):
        side = result.get(key)
        side = side.get("result", side) if isinstance(side, Mapping) else {}
        found.append(dict(side))
    return found[0], found[1]


def _curves(a: Mapping[str, Any], b: Mapping[str, Any], first: str, second: str) -> Table:
    ks = sorted({*(a.get("k") or ()), *(b.get("k") or ())})
    rows: list[list[Cell]] = []
    for k in ks:
        left, right = common.at(a, "time_s", k), common.at(b, "time_s", k)
        change = right / left - 1 if left and right else None
        costs = [common.at(side, "cost_usd", k) for side in (a, b)]
        rows.append([k, left, right, change, *costs])
    columns = [
        Column("K", "", 0),
        Column(f"time, {first}", "s", 0),
        Column(f"time, {second}", "s", 0, unit_of=f"time, {first}"),
    ]
    columns += [
        Column("change", "%", 0),
        Column(f"cost, {first}", "USD", 2, unit_of=f"cost, {first}"),
        Column(f"cost, {second}", "USD", 2, unit_of=f"cost, {first}"),
    ]
    return Table("Curves", columns, rows, role="breakdown")


def _inner(*path: str) -> Any:
    def read(side: Mapping[str, Any]) -> Any:
        value: Any = side
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    return read


_FACTS = (
    ("knee by efficiency, K", _inner("knee", "threshold", "k")),
    ("cheapest, K", _inner("p_star", "k")),
    ("cost there [USD]", _inner("p_star", "cost_usd")),
    ("step time there [s]", _inner("p_star", "time_s")),
    ("fastest, K", _inner("fastest", "k")),
    ("step time there [s]", _inner("fastest", "time_s")),
    ("cost there [USD]", _inner("fastest", "cost_usd")),
)
