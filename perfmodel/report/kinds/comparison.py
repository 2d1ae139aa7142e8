"""Two jobs side by side: both curves, the difference, and the changed inputs that caused it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Series,
    Table,
    as_cell,
    inputs_of,
    listed,
    mapping,
    mappings,
    result_of,
)

NOISE = 5e-4  # an effect below this is none in tables


def _costs(found: Iterable[Cell]) -> str:
    """What costs are of, where there are any."""
    return " Costs are of a million samples." if any(cost is not None for cost in found) else ""


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
    first, second = names(envelope)
    return [
        *_decision(result, first, second),
        *_causes(result),
        *_equal_speed(result, first, second),
        _curves(result, first, second),
        *common.assumptions(result),
        *common.limits(result),
    ]


def data(envelope: Envelope) -> Table:
    """Both curves and their ratio, a row per K: steps as the jobs have them, and samples, which compare."""
    result = result_of(envelope)
    ratios = ("time_ratio", "time_ratio_low", "time_ratio_high")
    rows: list[list[Cell]] = [
        [
            k,
            *(common.at(side, key, k) for key in ("time_s", "cost_usd") for side in sides(result)),
            *(common.at(result, key, k) for key in ratios),
            *(common.at(side, key, k) for key in ("time_s", "cost_usd") for side in per_sample(result)),
        ]
        for k in result.get("k") or ()
    ]
    sides_of = ("time_s_a", "time_s_b", "cost_usd_a", "cost_usd_b")
    keys = ("k", *sides_of, *ratios, *(f"sample_{key}" for key in sides_of))
    return Table("Curves", [Column(key, key=key) for key in keys], rows)


# Columns of the causes: key, title, quantity and priority.
_CAUSES = (
    ("input", "changed input", "", 0),
    ("before", "before", "", 0),
    ("after", "after", "", 0),
    ("effect", "time", "%", 0),
    ("cost_effect", "cost", "%", 0),
    ("knee_alone", "knee with it alone, K", "", 2),
)


def _causes(result: Mapping[str, object]) -> list[Table]:
    rows = mappings(result.get("changes"))
    changes = [{key: _noise_is_none(value) for key, value in row.items()} for row in rows]
    changes = [row for row in changes if {row.get("effect"), row.get("cost_effect")} - {None} != {0.0}]
    if not changes:
        return []
    shown = [item for item in _CAUSES if any(row.get(item[0]) is not None for row in changes)]
    columns = [Column(title, quantity, priority, key) for key, title, quantity, priority in shown]
    cells = [[as_cell(row.get(key)) for key, *_ in shown] for row in changes]
    at = result.get("at_k")
    where = f" at K = {at}" if at is not None else ""
    note = (
        f"Time per sample{where} and least cost per sample: mean of putting the change in first and last. Effects "
        f"multiply; what they leave over is the interaction. Below {100 * NOISE:g} % is none."
    )
    return [Table("Causes: one changed input at a time", columns, cells, note=note, role="curve")]


def _noise_is_none(value: object) -> object:
    return 0.0 if isinstance(value, float) and abs(value) < NOISE else value


def _equal_speed(result: Mapping[str, object], first: str, second: str) -> list[Table]:
    rows = mappings(result.get("equal_speed"))
    if not rows:
        return []
    a, b = per_sample(result)
    columns = [
        Column(f"K of {first}", "", 0, "k_a"),
        Column("time per sample", "s", 1, "time_a_s"),
        Column("cost", "USD", 1, "cost_a_usd"),
        Column(f"K of {second} as fast", "", 0, "k_b"),
        Column("time per sample", "s", 1, "time_b_s", "time_a_s"),
        Column("cost", "USD", 1, "cost_b_usd"),
    ]
    cells = [
        [
            row.get("k_a"), row.get("time_a_s"), _of_million(a, row.get("k_a")),
            row.get("k_b"), row.get("time_b_s"), _of_million(b, row.get("k_b")),
        ]
        for row in rows
    ]  # fmt: skip
    note = "The fewest accelerators on the ladder that are at least as fast; none where no K is."
    note += _costs(row[n] for row in cells for n in (2, 5))
    return [Table("Equal speed", columns, cells, note=note, role="breakdown")]


def figures(envelope: Envelope) -> list[str]:
    """Both speedups."""
    return ["comparison"]


def charts(envelope: Envelope) -> list[Chart]:
    """Time per sample of both over K."""
    a, b = per_sample(result_of(envelope))
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
    alt = f"Time per sample of {first} and {second} against K. {answer(envelope)}"
    return [Chart("Time per sample", "K", "time per sample", series, alt=alt, y_log=True, y_quantity="s")]


def names(envelope: Envelope) -> tuple[str, str]:
    """What the two sides are called."""
    given = result_of(envelope).get("names")
    if isinstance(given, (list, tuple)) and len(given) == 2:
        return str(given[0]), str(given[1])
    inputs = inputs_of(envelope)
    return common.name_of(inputs.get("a")) or "A", common.name_of(inputs.get("b")) or "B"


def sides(result: Mapping[str, object]) -> list[dict[str, Any]]:
    """The two predictions' results."""
    found = []
    for key in ("a", "b"):
        side = result.get(key)
        side = side.get("result", side) if isinstance(side, Mapping) else {}
        found.append(dict(side))
    return found


def per_sample(result: Mapping[str, object]) -> list[dict[str, Any]]:
    """Times and costs of one sample of the two sides, with the K they belong to: batches may differ, samples do not."""
    found = mapping(result.get("per_sample"))
    k = result.get("k") or ()
    return [{**mapping(found.get(key)), "k": k} for key in ("a", "b")]


def _of_million(side: Mapping[str, object], k: object, key: str = "cost_usd") -> float | None:
    value = common.at(side, key, k)
    return None if value is None else value * 1e6


def _decision(result: Mapping[str, object], first: str, second: str) -> list[Table]:
    a, b = sides(result)
    rows: list[list[Cell]] = []
    if a.get("knee") or b.get("knee"):
        knees = [mapping(mapping(side.get("knee")).get("threshold")).get("k") for side in (a, b)]
        rows.append(["knee by efficiency, K", *("not reached" if knee is None else knee for knee in knees)])
    for label, key in (("cheapest, K", "p_star"), ("fastest, K", "fastest")):
        ks = [mapping(side.get(key)).get("k") for side in (a, b)]
        samples = list(zip(per_sample(result), ks, strict=True))
        rows.append([label, *ks])
        rows.append(
            ["time per sample there", *(_shown(common.at(side, "time_s", k), "s") for side, k in samples)]
        )
        for word, of, unit in (
            ("cost", "cost_usd", "USD"),
            ("energy", "energy_j", "J"),
            ("CO2", "carbon_g", "g"),
        ):
            shown = (_shown(_of_million(side, k, of), unit) for side, k in samples)
            rows.append([f"{word} of a million samples", *shown])
    rows = [row for row in rows if row[1] is not None or row[2] is not None]
    columns = (Column("", "", 0), Column(first, "", 0), Column(second, "", 0))
    return [Table("Decision", columns, rows, role="decision")] if rows else []


def _shown(value: float | None, unit: str) -> str | None:
    return None if value is None else text.quantity(value, unit)


def _curves(result: Mapping[str, object], first: str, second: str) -> Table:
    a, b = per_sample(result)
    rows: list[list[Cell]] = []
    for k in listed(result.get("k")):
        ratio = common.at(result, "time_ratio", k)
        times = [common.at(side, "time_s", k) for side in (a, b)]
        costs = [_of_million(side, k) for side in (a, b)]
        rows.append([k, *times, None if ratio is None else ratio - 1.0, *costs])
    columns = [
        Column("K", "", 0),
        Column(f"time, {first}", "s", 0),
        Column(f"time, {second}", "s", 0, unit_of=f"time, {first}"),
        Column("change", "%", 0),
        Column(f"cost, {first}", "USD", 2, unit_of=f"cost, {first}"),
        Column(f"cost, {second}", "USD", 2, unit_of=f"cost, {first}"),
    ]
    note = "Times are of one sample." + _costs(cost for row in rows for cost in row[-2:])
    return Table("Curves", columns, rows, note=note, role="breakdown")
