"""One kernel under the roofline."""

from __future__ import annotations

from perfmodel.report.model import Cell, Column, Envelope, Table, result_of


def title(envelope: Envelope) -> str:
    """The kernel and the device."""
    result = result_of(envelope)
    shape = result.get("shape")
    what = (
        f"Product {shape[0]} x {shape[1]} x {shape[2]}"
        if isinstance(shape, list) and len(shape) == 3
        else "A kernel"
    )
    return f"{what} on {result.get('accelerator')}, {result.get('precision')}"


def tables(envelope: Envelope) -> list[Table]:
    """The figures of the kernel in one row."""
    result = result_of(envelope)
    columns = [
        Column("FLOP", "FLOP", 1, "flop"),
        Column("bytes", "B", 1, "traffic_bytes"),
        Column("FLOP per byte", "", 0, "intensity_flop_per_byte"),
        Column("ridge", "", 0, "ridge_flop_per_byte"),
        Column("FLOP / peak", "s", 0, "compute_s"),
        Column("bytes / bandwidth", "s", 0, "memory_s"),
        Column("rounded", "s", 2, "time_s"),
        Column("bound by", "", 0, "bound"),
    ]
    row: list[Cell] = [result.get(column.key) for column in columns]
    note = "Rounded: the 4-norm of both times, as the step model has it."
    return [Table("Under the roofline", columns, [row], note=note, role="curve")]


def figures(envelope: Envelope) -> list[str]:
    """The roofline with one dot."""
    return ["roofline"]
