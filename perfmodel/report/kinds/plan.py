"""A search's answer: the chosen layout, the ranking, the Pareto front and what was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import Cell, Chart, Column, Envelope, Series, Table, result_of

TOP = 10


def title(envelope: Envelope) -> str:
    """What was planned and for which objective."""
    objective = common.setting(envelope, "objective")
    subject = common.subject(envelope)
    return f"Plan{': ' + subject if subject else ''}{f', least {objective}' if objective else ''}"


def answer(envelope: Envelope) -> str:
    """The chosen candidate in one sentence, and whether the second can be told apart from it."""
    result = result_of(envelope)
    if isinstance(result.get("answer"), str):
        return str(result["answer"])
    rows = candidates(result)
    if not rows:
        refused = _refused(result)
        most = f" Most were refused for: {refused[0][0]}." if refused else ""
        return f"No layout fits the constraints.{most}"
    best = rows[0]
    sentence = (
        f"Take K = {best.get('k')} of {best.get('cluster') or 'the cluster'} as {common.layout_text(best.get('layout'))}: "
        f"{text.quantity(best.get('time_s'), 's')} a step, {text.quantity(best.get('cost_usd'), 'USD')}."
    )
    if len(rows) > 1 and _overlap(best, rows[1]):
        sentence += " The first two overlap within their bands and cannot be told apart."
    return sentence


def tables(envelope: Envelope) -> list[Table]:
    """Ranking, Pareto front, refusals and the search's own figures."""
    result = result_of(envelope)
    found = []
    rows = candidates(result)
    if rows:
        more = len(rows) - TOP
        note = f"{more} more in the JSON." if more > 0 else ""
        found.append(_ranking("Candidates", rows[:TOP], "decision", note, marked=(0,)))
        found.append(_ranking("All candidates", rows, "detail", "", marked=(0,)))
    front = [row for row in result.get("pareto") or () if isinstance(row, Mapping)]
    if front:
        found.append(_ranking("Pareto front: no candidate is both faster and cheaper", front, "curve", ""))
    refused = _refused(result)
    if refused:
        found.append(
            Table("Refused", (Column("reason", "", 0), Column("layouts", "", 0)), refused, role="breakdown")
        )
    counts = [
        (key, result[key]) for key in ("evaluated", "pruned", "feasible") if result.get(key) is not None
    ]
    if counts:
        found.append(Table("Search", ("layouts", "number"), counts, role="detail"))
    return [*found, *common.assumptions(result), *common.sensitivity(result), *common.limits(result)]


def figures(envelope: Envelope) -> list[str]:
    """Cost against time; the tornado when sensitivities are given."""
    result = result_of(envelope)
    names = ["pareto"] if candidates(result) else []
    return [*names, *(["tornado"] if result.get("sensitivity") else [])]


def notes(envelope: Envelope) -> list[str]:
    """Size and time of the search, and why the runner-up lost."""
    result = result_of(envelope)
    found = common.notes_of(result)
    if isinstance(result.get("runner_up"), str):
        found.append(f"Runner-up: {result['runner_up']}.")
    if result.get("evaluated") is not None:
        pruned = f", {result['pruned']:,} pruned" if isinstance(result.get("pruned"), int) else ""
        took = f" in {text.quantity(result['seconds'], 's')}" if result.get("seconds") is not None else ""
        found.append(f"{result['evaluated']:,} layouts evaluated{pruned}{took}.")
    return found


def charts(envelope: Envelope) -> list[Chart]:
    """Cost over time of the candidates with the front."""
    result = result_of(envelope)
    rows = [r for r in candidates(result) if r.get("time_s") and r.get("cost_usd")]
    if not rows:
        return []
    front = sorted(
        (r for r in result.get("pareto") or () if isinstance(r, Mapping) and r.get("time_s")),
        key=lambda r: r["time_s"],
    )
    series = [Series("candidates", [r["time_s"] for r in rows], [r["cost_usd"] for r in rows], style="dots")]
    if front:
        series.insert(
            0, Series("Pareto front", [r["time_s"] for r in front], [r.get("cost_usd") for r in front])
        )
    alt = f"Cost against step time of {len(rows)} candidates. {answer(envelope)}"
    return [
        Chart("Cost against time", "step time [s]", "cost", series, alt=alt, y_quantity="USD", x_log=False)
    ]


def candidates(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ranked candidates, best first."""
    return [dict(row) for row in result.get("candidates") or () if isinstance(row, Mapping)]


def _ranking(
    heading: str, rows: Sequence[Mapping[str, Any]], role: Any, note: str, marked: tuple[int, ...] = ()
) -> Table:
    columns = [
        Column("#", "", 0, "rank"),
        Column("cluster", "", 3, "cluster"),
        Column("K", "", 0, "k"),
        Column("layout", "", 1, "layout"),
        Column("time", "s", 0, "time_s"),
        Column("low", "s", 5, "time_s_low"),
        Column("high", "s", 5, "time_s_high"),
        Column("cost", "USD", 0, "cost_usd"),
        Column("energy", "J", 6, "energy_j"),
        Column("memory", "B", 4, "memory_bytes"),
    ]
    keys = (
        "rank",
        "cluster",
        "k",
        None,
        "time_s",
        "time_s_low",
        "time_s_high",
        "cost_usd",
        "energy_j",
        "memory_bytes",
    )
    cells: list[list[Cell]] = []
    for i, row in enumerate(rows):
        values: list[Cell] = [
            common.layout_text(row.get("layout")) if key is None else row.get(key) for key in keys
        ]
        values[0] = values[0] if values[0] is not None else i + 1
        cells.append(values)
    return Table(heading, columns, cells, note=note, role=role, marked=marked)


def _refused(result: Mapping[str, Any]) -> list[tuple[str, int]]:
    refused = result.get("refused")
    pairs = [(str(k), int(v)) for k, v in refused.items()] if isinstance(refused, Mapping) else []
    return sorted(pairs, key=lambda pair: -pair[1])


def _overlap(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    if any(row.get(key) is None for row in (a, b) for key in ("time_s_low", "time_s_high")):
        return False
    return bool(a["time_s_low"] <= b["time_s_high"] and b["time_s_low"] <= a["time_s_high"])
