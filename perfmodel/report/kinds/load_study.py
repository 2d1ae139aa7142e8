"""A measured load curve: latencies and throughput by load, and where its objectives end."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.report.kinds import common
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Mark,
    Series,
    Table,
    as_cell,
    listed,
    mapping,
    mappings,
    result_of,
)

_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
_LOADS = {"concurrency": "requests at once", "rate": "requests/s", "offline": "requests"}


def title(envelope: Envelope) -> str:
    """What the loads count."""
    return f"Load curve by {result_of(envelope).get('load_kind')}"


def answer(envelope: Envelope) -> str:
    """The load up to which the objectives hold, and where the curve bends."""
    return str(result_of(envelope).get("verdict") or "")


def tables(envelope: Envelope) -> list[Table]:
    """A row a load; the objectives; the knees."""
    result = result_of(envelope)
    return [_curve(result), *_objectives(result), _knees(result)]


def _curve(result: Mapping[str, object]) -> Table:
    loads = listed(result.get("load"))
    columns = [Column(_LOADS.get(str(result.get("load_kind")), "load"), "", 0, "load")]
    values: list[list[object]] = [loads]

    def add(column: Column, found: list[object]) -> None:
        if any(value is not None for value in found):
            columns.append(column)
            values.append(found)

    add(
        Column("out tokens/s", "", 0, "throughput_out_tokens_per_s"),
        common.array(result, "throughput_out_tokens_per_s", len(loads)),
    )
    add(Column("requests/s", "", 1, "requests_per_s"), common.array(result, "requests_per_s", len(loads)))
    for quantity, name in _NAMES.items():
        found = mapping(result.get(f"{quantity}_s"))
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            priority = 0 if statistic in ("mean", "p99") and quantity != "e2e" else 2
            add(
                Column(f"{name} {statistic}", "s", priority, f"{quantity}_{statistic}_s"),
                common.array(found, statistic, len(loads)),
            )
    add(Column("requests", "", 2, "requests"), common.array(result, "requests", len(loads)))
    rows: list[list[Cell]] = [[as_cell(value[i]) for value in values] for i in range(len(loads))]
    kept = mapping(mapping(result.get("knee")).get("slo")).get("low")
    marked = tuple(i for i, load in enumerate(loads) if kept is not None and load == kept)
    return Table("Measured loads", columns, rows, role="curve", marked=marked)


def _objectives(result: dict[str, object]) -> list[Table]:
    rows: list[list[Cell]] = [
        [
            str(item.get("objective")),
            as_cell(item.get("limit_s")),
            as_cell(item.get("kept_to_load")),
            as_cell(item.get("crossed_at_load")),
        ]
        for item in mappings(result.get("objectives"))
    ]
    columns = [Column("objective", "", 0), Column("limit", "s", 0), Column("kept up to", "", 0), Column("crossed at", "", 0)]  # fmt: skip
    return [Table("Objectives", columns, rows, role="decision")] if rows else []


def _knees(result: dict[str, object]) -> Table:
    rows: list[list[Cell]] = [
        [rule, as_cell(mapping(knee).get("load")), str(mapping(knee).get("cause") or "")]
        for rule, knee in mapping(result.get("knee")).items()
    ]
    return Table(
        "Knees", [Column("rule", "", 0), Column("load", "", 0), Column("why", "", 0)], rows, role="decision"
    )


def charts(envelope: Envelope) -> list[Chart]:
    """Time to first token and per token against the load."""
    result = result_of(envelope)
    loads = [float(load) for load in result.get("load") or ()]
    found: list[Chart] = []
    slo = mapping(mapping(result.get("knee")).get("slo")).get("load")
    marks = [] if slo is None else [Mark("objectives end", float(slo))]
    for quantity, name in (("ttft", "Time to first token"), ("tpot", "Time per output token")):
        statistics = mapping(result.get(f"{quantity}_s"))
        series = [
            Series(key, loads, common.array(statistics, key, len(loads)))
            for key in ("mean", "p99")
            if key in statistics
        ]
        if loads and series:
            found.append(
                Chart(
                    f"{name} by load",
                    _LOADS.get(str(result.get("load_kind")), "load"),
                    name,
                    series,
                    f"{name} from the smallest to the largest measured load",
                    y_log=True,
                    y_quantity="s",
                    marks=marks,
                )
            )
    return found
