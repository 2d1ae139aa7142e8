"""Prefill and decode of a service on the roofline."""

from __future__ import annotations

from perfmodel.report.kinds import serving
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Mark,
    Series,
    Table,
    as_cell,
    mappings,
    result_of,
)


def title(envelope: Envelope) -> str:
    """Model, cluster, precision and layout."""
    return f"Roofline of {serving.title(envelope)}"


def tables(envelope: Envelope) -> list[Table]:
    """A row a phase."""
    columns = [
        Column("step", "", 0, "name"), Column("tokens", "", 1), Column("work", "FLOP", 1, "flop"), Column("traffic", "B", 1, "bytes"),
        Column("FLOP/B", "", 0, "intensity_flop_per_byte"), Column("roof", "FLOP/s", 0, "attainable_flop_per_s"),
        Column("time", "s", 0, "time_s"), Column("of the roof", "%", 0, "share_of_roof"), Column("bound", "", 0),
    ]  # fmt: skip
    keys = (
        "name",
        "tokens",
        "flop",
        "bytes",
        "intensity_flop_per_byte",
        "attainable_flop_per_s",
        "time_s",
        "share_of_roof",
        "bound",
    )
    rows: list[list[Cell]] = [
        [as_cell(row.get(key)) for key in keys] for row in mappings(result_of(envelope).get("phases"))
    ]
    return [Table("Steps under the roof of one accelerator", columns, rows, role="curve")]


def charts(envelope: Envelope) -> list[Chart]:
    """The roof, and each phase under it."""
    result = result_of(envelope)
    peak, bandwidth = result.get("peak_flop_per_s"), result.get("memory_bandwidth_bytes_per_s")
    phases = mappings(result.get("phases"))
    if not peak or not bandwidth or not phases:
        return []
    x = sorted({float(row["intensity_flop_per_byte"]) for row in phases} | {peak / bandwidth})
    marks = [
        Mark(
            str(row["name"]),
            float(row["intensity_flop_per_byte"]),
            float(row["flop"]) / float(row["time_s"]),
            style="point",
        )
        for row in phases
    ]
    return [
        Chart("Roofline", "FLOP per byte", "FLOP/s", [Series("roof", x, [min(peak, value * bandwidth) for value in x])],
              "The steps of prefill and decode under the roof of one accelerator", y_log=True, y_quantity="FLOP/s", marks=marks)
    ]  # fmt: skip
