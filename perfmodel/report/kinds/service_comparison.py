"""Two services: what they make an accelerator, what a token costs, and which input does what."""

from __future__ import annotations

from perfmodel.report.model import Cell, Column, Envelope, Table, as_cell, listed, mappings, result_of

_COLUMNS = (
    ("requests_per_s_per_accelerator", "requests/s an accelerator", ""),
    ("usd_per_million_tokens", "USD/Mtok", ""),
    ("tpot_s", "TPOT, idle", "s"),
    ("ttft_s", "TTFT, idle", "s"),
)


def title(envelope: Envelope) -> str:
    """Both names."""
    return " against ".join(str(name) for name in listed(result_of(envelope).get("names"))) or "Two services"


def tables(envelope: Envelope) -> list[Table]:
    """Side by side, and by changed input."""
    result = result_of(envelope)
    names = listed(result.get("names"))
    sides: list[list[Cell]] = [
        [str(name), *(as_cell(found.get(key)) for key, _, _ in _COLUMNS)]
        for name, found in zip(names, mappings(result.get("measured")), strict=False)
    ]
    heads = [Column(title, unit, 0, key) for key, title, unit in _COLUMNS]
    effects: list[list[Cell]] = [
        [
            str(row.get("input")),
            str(row.get("before")),
            str(row.get("after")),
            *(as_cell(row.get(key)) for key, _, _ in _COLUMNS),
        ]
        for row in mappings(result.get("changes"))
    ]
    ratios = [Column(title, "x", 0, f"{key}_ratio") for key, title, _ in _COLUMNS]
    return [
        Table("Side by side", [Column("service", "", 0), *heads], sides, role="curve"),
        Table("By changed input, each alone", [Column("input", "", 0), Column("before", "", 0), Column("after", "", 0), *ratios],
              effects, role="decision", note="times the value before; together: what the changes do beyond one another"),
    ]  # fmt: skip
