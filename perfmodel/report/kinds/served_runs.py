"""Measured serving runs against predictions: errors by answer, below and above saturation, calibrated, and by source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfmodel.report import text
from perfmodel.report.model import Cell, Column, Table, as_cell, mapping, mappings
from perfmodel.units import counted

NAMES = {
    "throughput": "throughput",
    "tpot": "time per token",
    "ttft": "first token",
    "tpot_p99": "time per token, p99",
    "ttft_p99": "first token, p99",
}
_SIDES = {"below_saturation": "below saturation", "above_saturation": "above saturation"}
_CALIBRATED = {
    "none": "nothing measured",
    "one_point": "one point measured",
    "two_points": "two points measured",
}
_LAWS = {"roofs": "roofs of the datasheet", "constant_shares": "constant shares of the roofs"}
_FIGURES = (
    Column("median", "%", 0, "median_ape"),
    Column("mean", "%", 0, "mean_ape"),
    Column("p90", "%", 0, "p90_ape"),
)
_KEYS = tuple(column.key for column in _FIGURES)
_BANDS = (
    Column("bias", "%", 1, "bias"),
    Column("cover", "%", 1, "coverage_90"),
    Column("band", "%", 2, "band_width_median"),
)
MOST_REASONS = 6


def served(result: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Answers that have rows, in order."""
    found = mapping(result.get("serving"))
    return {name: one for name in NAMES if (one := mapping(found.get(name))).get("rows")}


def answer(result: Mapping[str, object]) -> str:
    """Median errors of serving in words; nothing where none was scored."""
    found = served(result)
    if not found:
        return ""
    told = [f"{NAMES[name]} {text.quantity(as_cell(one['median_ape']), '%')}" for name, one in found.items()]
    rows = max(int(str(one["rows"])) for one in found.values())
    return f"serving: median errors {', '.join(told)} over {counted(rows, 'run', 'runs')}"


def tables(result: Mapping[str, object]) -> list[Table]:
    """Errors, what calibration makes of them, baselines, and errors by source, engine, accelerator and load."""
    found = served(result)
    if not found:
        return []
    return [_errors(found), *_calibrated(found), *_laws(found), _by(found)]


def _cells(score: object, keys: Iterable[str]) -> list[Cell]:
    return [as_cell(mapping(score).get(key)) for key in keys]


def _errors(found: Mapping[str, Mapping[str, object]]) -> Table:
    columns = [
        Column("answer", "", 0),
        Column("rows", "", 1, "rows"),
        Column("sources", "", 2, "sources"),
        *_FIGURES,
        *_BANDS,
    ]
    keys = [column.key for column in columns[1:]]
    rows: list[list[Cell]] = []
    for name, one in found.items():
        rows.append([NAMES[name], *_cells(one, keys)])
        rows.append([f"{NAMES[name]}, sources weigh the same", *_cells(one.get("by_source_weight"), keys)])
        for side, words in _SIDES.items():
            if side in one:
                rows.append([f"{NAMES[name]}, {words}", *_cells(one[side], keys)])
    note = "Absolute percentage error over rows. Cover: rows inside the 90 % band; band: its half-width."
    return Table("Serving: error by answer", columns, rows, note=note, role="decision")


def _calibrated(found: Mapping[str, Mapping[str, object]]) -> list[Table]:
    rows: list[list[Cell]] = [
        [NAMES[name], words, as_cell(made.get("curves")), *_cells(made.get(key), _KEYS)]
        for name, one in found.items()
        if (made := mapping(one.get("calibrated")))
        for key, words in _CALIBRATED.items()
    ]
    columns = [Column("answer", "", 0), Column("of the curve", "", 0), Column("curves", "", 1), *_FIGURES]
    note = "Curves of four loads or more; the points that calibrate, one in the middle or both ends, are not scored."
    return [Table("Serving: curves", columns, rows, note=note, role="curve")] if rows else []


def _laws(found: Mapping[str, Mapping[str, object]]) -> list[Table]:
    rows: list[list[Cell]] = []
    for name, one in found.items():
        laws = mapping(one.get("baselines"))
        if laws:
            rows.append([NAMES[name], "perfmodel", *_cells(one, _KEYS)])
        rows += [[NAMES[name], _LAWS.get(law, law), *_cells(score, _KEYS)] for law, score in laws.items()]
    columns = [Column("answer", "", 0), Column("predictor", "", 0), *_FIGURES]
    return [Table("Serving: beside simpler laws", columns, rows, role="curve")] if rows else []


def _by(found: Mapping[str, Mapping[str, object]]) -> Table:
    columns = [
        Column("answer", "", 0),
        Column("by", "", 1),
        Column("group", "", 0),
        Column("rows", "", 1, "rows"),
    ]
    columns += [*_FIGURES, Column("bias", "%", 2, "bias"), Column("cover", "%", 2, "coverage_90")]
    rows: list[list[Cell]] = [
        [NAMES[name], by, group, *_cells(score, [column.key for column in columns[3:]])]
        for name, one in found.items()
        for by, groups in mapping(one.get("by")).items()
        for group, score in mapping(groups).items()
    ]
    return Table("Serving: error by group", columns, rows, role="breakdown")


def notes(result: Mapping[str, object]) -> list[str]:
    """Why runs were not scored, most frequent first, and what the beliefs have never seen."""
    found = mapping(result.get("serving"))
    refused = [*mappings(found.get("unresolved")), *mappings(found.get("contradicted"))]
    told = [
        f"{one['place']}: {counted(one['rows'], 'serving run', 'serving runs')} not scored: {one['reason']}"
        for one in refused[:MOST_REASONS]
    ]
    more = sum(one["rows"] for one in refused[MOST_REASONS:])
    if more:
        every = counted(more, "serving run", "serving runs")
        told.append(f"{every} not scored for other reasons: `serving` of --format json has each")
    for one in mappings(found.get("unseen")):
        runs = counted(one["rows"], "run", "runs")
        told.append(
            f"{runs} of {one['level']} {one['value']}, of which no run was measured: its bands are wider"
        )
    return told
