"""Work, span and the speedup that they admit."""

from __future__ import annotations

from collections.abc import Mapping

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
    result_of,
)


def title(envelope: Envelope) -> str:
    """Of what."""
    graph = inputs_of(envelope).get("graph")
    return f"Work and depth of {graph or common.subject(envelope) or 'a step'}"


def tables(envelope: Envelope) -> list[Table]:
    """The figures, a row for each number of workers, the critical path, the pipeline."""
    result = result_of(envelope)
    figures: list[list[Cell]] = [
        ["work W", text.quantity(result.get("work_s"), "s")],
        ["span D", text.quantity(result.get("span_s"), "s")],
        ["parallelism W/D", text.number(float(result.get("parallelism") or 0.0))],
        ["operations", result.get("operations")],
        ["waits", result.get("edges")],
        ["operations on the critical path", result.get("critical_path_operations")],
    ]
    columns = [Column("figure", "", 0), Column("value", "", 0)]
    return [
        Table("Work and depth", columns, figures, role="decision"),
        _workers(result),
        *_path(result),
        *_pipeline(result),
    ]


def _workers(result: Mapping[str, object]) -> Table:
    workers = listed(result.get("workers"))
    n = len(workers)
    predicted = _predicted(result)
    keys = ("brent_low_s", "greedy_s", "brent_high_s", "speedup", "efficiency")
    lists = [common.array(result, key, n) for key in keys]
    rows: list[list[Cell]] = [
        [p, *(values[i] for values in lists), predicted.get(p)] for i, p in enumerate(workers)
    ]
    columns = [
        Column("workers P", "", 0, "workers"),
        Column("T(P) at least", "s", 1, "brent_low_s", unit_of="greedy_s"),
        Column("greedy T(P)", "s", 0, "greedy_s"),
        Column("at most", "s", 1, "brent_high_s", unit_of="greedy_s"),
        Column("speedup", "x", 0, "speedup"),
        Column("efficiency", "%", 1, "efficiency"),
        Column("predicted speedup", "x", 0, "predicted_speedup"),
    ]
    if not predicted:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    note = "Brent: max(W/P, D) <= T(P) <= (W - D)/P + D, for any schedule that leaves no worker idle beside a ready operation."
    return Table("On P workers", columns, rows, note=note, role="curve")


def _predicted(result: Mapping[str, object]) -> dict[int, float | None]:
    found = mapping(result.get("predicted"))
    return dict(zip(found.get("k") or (), found.get("speedup") or (), strict=False))


def _path(result: Mapping[str, object]) -> list[Table]:
    path = [str(node) for node in listed(result.get("critical_path"))]
    if not path:
        return []
    (count,) = listed(result.get("critical_path_operations")) or [len(path)]
    shown = path if len(path) <= 12 else [*path[:5], f"... {count - 6} more ..."]
    rows: list[list[Cell]] = [[i + 1, name] for i, name in enumerate(shown)]
    columns = [Column("", "", 0), Column("operation", "", 0)]
    return [Table("Critical path", columns, rows, role="breakdown")]


def _pipeline(result: Mapping[str, object]) -> list[Table]:
    found = mapping(result.get("pipeline"))
    if not found:
        return []
    columns = [
        Column("schedule", "", 0, "schedule"),
        Column("stages", "", 0, "stages"),
        Column("micro-batches", "", 0, "micro_batches"),
        Column("time", "s", 0, "time_s"),
        Column("idle", "%", 0, "idle_share"),
        Column("(p-1)/(m+p-1)", "%", 1, "bubble_of_equal_stages"),
        Column("in flight", "", 2, "micro_batches_in_flight"),
    ]
    rows: list[list[Cell]] = [[as_cell(found.get(column.key)) for column in columns]]
    note = "Passes followed one by one, without messages; the last stage has the logits."
    return [Table("The pipeline at the smallest K", columns, rows, note=note, role="breakdown")]


def figures(envelope: Envelope) -> list[str]:
    """What is admitted beside what is predicted."""
    return ["admitted"]


def charts(envelope: Envelope) -> list[Chart]:
    """Speedup that the graph admits, its ceiling, and the predicted one."""
    result = result_of(envelope)
    p = [float(x) for x in result.get("workers") or ()]
    if not p:
        return []
    ceiling = result.get("parallelism")
    series = [Series("greedy schedule", p, common.array(result, "speedup", len(p)))]
    found = mapping(result.get("predicted"))
    if found.get("k"):
        series.append(Series("predicted", [float(k) for k in found["k"]], list(found.get("speedup") or ())))
    series.append(Series("ceiling W/D", p, [ceiling] * len(p), style="dashed"))
    return [
        Chart(
            "Speedup that the computation admits",
            "workers",
            "speedup",
            series,
            alt=common.answer(envelope),
            y_log=True,
            y_quantity="x",
        )
    ]
