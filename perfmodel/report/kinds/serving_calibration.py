"""A server's measured loads and what they did to the beliefs."""

from __future__ import annotations

from perfmodel.report.kinds import common
from perfmodel.report.model import Cell, Column, Envelope, Table, as_cell, mappings, result_of

_QUANTITIES = (
    ("throughput_out_tokens_per_s", "out tokens/s", ""),
    ("tpot_s", "TPOT", "s"),
    ("ttft_s", "TTFT", "s"),
)


def title(envelope: Envelope) -> str:
    """What was calibrated."""
    subject = common.subject(envelope)
    return "Calibration of a server" + (f": {subject}" if subject else "")


def tables(envelope: Envelope) -> list[Table]:
    """Measured beside the model before and after, and the coefficients that moved."""
    result = result_of(envelope)
    points = mappings(result.get("points"))
    columns = [Column("load", "", 0), Column("kind", "", 1, "load_kind")]
    values: list[list[object]] = [
        [row.get("load") for row in points],
        [row.get("load_kind") for row in points],
    ]
    for key, name, unit in _QUANTITIES:
        for place, word in enumerate(("measured", "before", "after")):
            found = [row.get(f"{key}_{word}") for row in points]
            if any(row.get(f"{key}_measured") is not None for row in points):
                columns.append(
                    Column(
                        f"{name} {word}" if place == 0 else word,
                        unit,
                        0,
                        f"{key}_{word}",
                        unit_of=f"{key}_measured" if place else "",
                    )
                )
                values.append(found)
    rows: list[list[Cell]] = [[as_cell(column[i]) for column in values] for i in range(len(points))]
    moved: list[list[Cell]] = [
        [as_cell(row.get(key)) for key in ("meaning", "prior", "value", "log_spread_before", "log_spread")]
        for row in mappings(result.get("coefficients"))
    ]
    heads = [
        Column("coefficient", "", 0),
        Column("before", "", 0),
        Column("after", "", 0),
        Column("spread before", "", 1),
        Column("spread", "", 1),
    ]
    note = "spread: standard deviation of the logarithm; loads tell sums of terms, so that a time may be known better than its coefficients"
    return [
        Table("Measured loads", columns, rows, role="curve"),
        Table("Coefficients", heads, moved, role="breakdown", note=note),
    ]
