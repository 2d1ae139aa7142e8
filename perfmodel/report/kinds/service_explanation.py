"""One service at one load, part by part."""

from __future__ import annotations

from perfmodel.report.kinds import common, serving
from perfmodel.report.model import Cell, Column, Envelope, Table, as_cell, mapping, mappings, result_of


def title(envelope: Envelope) -> str:
    """Model, cluster, precision, layout and engine."""
    return serving.title(envelope)


def tables(envelope: Envelope) -> list[Table]:
    """Terms of the step, memory, what moves it, the coefficients behind it, and what they rest on."""
    result = result_of(envelope)
    terms: list[list[Cell]] = [
        [
            str(row.get("name")).replace("_", " "),
            as_cell(row.get("time_s")),
            as_cell(row.get("share")),
            str(row.get("inputs") or ""),
            str(row.get("formula") or ""),
        ]
        for row in mappings(result.get("terms"))
    ]
    memory: list[list[Cell]] = [
        [
            name.removesuffix("_bytes").replace("_", " "),
            as_cell(value) if name.endswith("_bytes") else None,
            None if name.endswith("_bytes") else as_cell(value),
        ]
        for name, value in mapping(result.get("memory")).items()
    ]
    moves: list[list[Cell]] = [
        [
            as_cell(row.get(key))
            for key in ("input", "change", "tpot_low", "tpot_high", "ttft_low", "ttft_high")
        ]
        for row in mappings(result.get("sensitivity"))
    ]
    behind: list[list[Cell]] = [
        [
            as_cell(row.get(key))
            for key in (
                "meaning",
                "value",
                "unit",
                "log_spread",
                "measured",
                "tpot_log_change",
                "ttft_log_change",
            )
        ]
        for row in mappings(result.get("coefficients"))
    ]
    return [
        Table("The mean step between two tokens", [Column("part", "", 0), Column("time", "s", 0), Column("share", "%", 0),
                                                 Column("inputs", "", 0), Column("formula", "", 3)], terms, role="curve"),
        Table("Memory of an accelerator, sequences of a replica", [Column("what", "", 0), Column("memory", "B", 0), Column("count", "", 0)], memory, role="breakdown"),
        Table("What moves it", [Column("input", "", 0), Column("change", "%", 0), Column("TPOT, less", "%", 0), Column("TPOT, more", "%", 0),
                               Column("TTFT, less", "%", 0), Column("TTFT, more", "%", 0)], moves, role="sensitivity"),
        Table("Coefficients behind it", [Column("coefficient", "", 0), Column("value", "", 0), Column("unit"), Column("log spread", "", 0),
                                        Column("measured", "", 0), Column("TPOT, log change", "", 1), Column("TTFT, log change", "", 1)], behind, role="detail"),
        *common.assumptions(result),
    ]  # fmt: skip
