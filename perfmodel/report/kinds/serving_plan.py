"""A searched service: the cheapest configurations, and what a user sees against what an accelerator makes."""

from __future__ import annotations

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.kinds.serving import layout_text
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Series,
    Table,
    as_cell,
    mapping,
    mappings,
    result_of,
)
from perfmodel.units import counted


def title(envelope: Envelope) -> str:
    """What was searched for."""
    result = result_of(envelope)
    demand = result.get("demand_per_s")
    subject = common.subject(envelope).partition(" on ")[0]
    return f"Plan of a service: {subject}" + (f", {text.number(float(demand))} requests/s" if demand else "")


def answer(envelope: Envelope) -> str:
    """The cheapest that keeps what is asked, and the next on other hardware."""
    result = result_of(envelope)
    found = mappings(result.get("candidates"))
    if not found:
        reasons = ", ".join(f"{count:,} for {why}" for why, count in mapping(result.get("refused")).items())
        return f"No configuration of {result.get('evaluated', 0):,} keeps what is asked" + (
            f" ({reasons})." if reasons else "."
        )
    best = found[0]
    words = f"Cheapest: {_named(best)}: {counted(int(best['replicas']), 'replica', 'replicas')}"
    if best.get("spare"):
        words += f" and {best['spare']} to spare"
    words += f", {counted(int(best['accelerators']), 'accelerator', 'accelerators')} for {text.number(best['requests_per_s'])} requests/s"
    if best.get("usd_per_h") is not None:
        words += f", {text.quantity(best['usd_per_h'], 'USD')} an hour, {text.quantity(best['usd_per_million_tokens'], 'USD')} per million output tokens"
    other = next((one for one in found if one["cluster"] != best["cluster"]), None)
    words += "."
    if other is not None and other.get("usd_per_million_tokens") is not None:
        words += (
            f" Next hardware: {_named(other)} at {text.quantity(other['usd_per_million_tokens'], 'USD')}."
        )
    return f"{words} {result.get('evaluated', 0):,} configurations were tried."


def _named(item: dict[str, object]) -> str:
    return f"{item['cluster']}, {item['precision']}, keys and values in {item['kv_precision']}, {layout_text(mapping(item['layout']))}"


def tables(envelope: Envelope) -> list[Table]:
    """The candidates and the front."""
    result = result_of(envelope)
    return [_candidates(result), _front(result)]


def _candidates(result: dict[str, object]) -> Table:
    columns = [
        Column("rank", "", 0), Column("cluster", "", 0), Column("precision", "", 0), Column("KV", "", 1, "kv_precision"),
        Column("layout", "", 0), Column("batch", "", 2, "max_batch"), Column("step tokens", "", 3, "max_batched_tokens"),
        Column("knee", "", 1, "knee_requests_per_s"), Column("replicas", "", 0), Column("accelerators", "", 0),
        Column("TTFT p99", "s", 2, "ttft_p99_s"), Column("TPOT p99", "s", 1, "tpot_p99_s"), Column("USD/h", "", 1, "usd_per_h"),
        Column("USD/Mtok", "", 0, "usd_per_million_tokens"),
    ]  # fmt: skip
    keys = ("rank", "cluster", "precision", "kv_precision", "layout", "max_batch", "max_batched_tokens", "knee_requests_per_s",
            "replicas", "accelerators", "ttft_p99_s", "tpot_p99_s", "usd_per_h", "usd_per_million_tokens")  # fmt: skip
    rows: list[list[Cell]] = [
        [layout_text(mapping(item["layout"])) if key == "layout" else as_cell(item.get(key)) for key in keys]
        for item in mappings(result.get("candidates"))
    ]
    return Table(
        "Candidates, the cheapest token first", columns, rows, role="curve", marked=(0,) if rows else ()
    )


def _front(result: dict[str, object]) -> Table:
    columns = [Column("tokens/s a user", "", 0), Column("tokens/s an accelerator", "", 0), Column("in flight", "", 0),
               Column("cluster", "", 0), Column("precision", "", 0), Column("layout", "", 0)]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            as_cell(item.get("tokens_per_s_per_user")),
            as_cell(item.get("tokens_per_s_per_accelerator")),
            as_cell(item.get("concurrency")),
            as_cell(item.get("cluster")),
            as_cell(item.get("precision")),
            layout_text(mapping(item.get("layout"))),
        ]
        for item in mappings(result.get("pareto"))
    ]
    return Table("Speed of a user against tokens of an accelerator", columns, rows, role="detail")


def charts(envelope: Envelope) -> list[Chart]:
    """The front, for the page."""
    points = mappings(result_of(envelope).get("pareto"))
    x = [float(item["tokens_per_s_per_user"]) for item in reversed(points)]
    y = [float(item["tokens_per_s_per_accelerator"]) for item in reversed(points)]
    if len(x) < 2:
        return []
    return [
        Chart("What a user sees against what an accelerator makes", "output tokens/s of a user", "output tokens/s of an accelerator",
              [Series("not beaten in both", x, y)], "Configurations that no other beats in both", x_log=False)
    ]  # fmt: skip


def figures(envelope: Envelope) -> list[str]:
    """The front."""
    return ["serving_front"] if len(mappings(result_of(envelope).get("pareto"))) > 1 else []
