"""A search's answer: the chosen layout, the ranking, the Pareto front and what was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Role,
    Series,
    Table,
    amount,
    as_cell,
    inputs_of,
    mapping,
    mappings,
    result_of,
)

TOP = 10
FIRST_SCREEN = (
    40,
    (
        "What if",
        "Jobs",
        "Nearest feasible answer",
        "Best of each cluster",
        "Candidates",
        "Ways to pay, on the answer's cluster",
    ),
)


def title(envelope: Envelope) -> str:
    """What was planned and for which objective."""
    objective = common.setting(envelope, "objective")
    planned = subject(envelope)
    return f"Plan{': ' + planned if planned else ''}{f', least {objective}' if objective else ''}"


def subject(envelope: Envelope) -> str:
    """The workload and the clusters that were searched, all of them where they are few."""
    inputs = inputs_of(envelope)
    clusters = inputs.get("clusters")
    if not isinstance(clusters, list) or len(clusters) < 2:
        return common.subject(envelope)
    few = ", ".join(str(c) for c in clusters) if len(clusters) <= 3 else f"one of {len(clusters)} clusters"
    return f"{common.name_of(inputs.get('workload')) or 'the job'} on {few}"


def answer(envelope: Envelope) -> str:
    """The chosen candidate in one sentence, and whether the second differs from it by more than their bands."""
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


def data(envelope: Envelope) -> Table | None:
    """Every candidate, best first."""
    rows = candidates(result_of(envelope))
    return _ranking("All candidates", rows, "detail", "") if rows else None


def tables(envelope: Envelope) -> list[Table]:
    """Ranking, goals, Pareto front, regimes, the swept value, refusals and the search's own figures."""
    result = result_of(envelope)
    found = []
    rows = candidates(result)
    nearest = result.get("nearest")
    if result.get("fleet") and rows:
        found.append(_ranking("Jobs", rows, "decision", _fleet_note(result), first=("job", "job")))
    elif rows:
        more = len(rows) - TOP
        note = f"{more} more in the JSON. " if more > 0 else ""
        found.append(_ranking("Candidates", rows[:TOP], "decision", note + _from(result), marked=(0,)))
        found.append(_ranking("All candidates", rows, "detail", "", marked=(0,)))
    elif isinstance(nearest, Mapping):
        found.append(_ranking("Nearest feasible answer", [nearest], "decision", _from(result)))
    clusters = mappings(result.get("by_cluster"))
    if any(row.get("k") is not None for row in clusters):
        more = len(clusters) - TOP
        note = f"{more} more in the JSON." if more > 0 else ""
        found.append(_ranking("Best of each cluster", clusters[:TOP], "decision", note))
    found += _goals(result) + _sweep(result)
    front = mappings(result.get("pareto"))
    if front:
        found.append(_front(front, _limits_aside(envelope)))
    found += _regimes(result, _limits_aside(envelope)) + _goodput(result)
    by_k = mappings(result.get("by_k"))
    if by_k:
        found.append(_ranking("Best layout at each K", by_k, "detail", ""))
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
    """The swept value, cost against time, the tornado: what the result has."""
    result = result_of(envelope)
    names = ["sweep"] if result.get("sweep") else []
    names += ["pareto"] if result.get("pareto") or candidates(result) else []
    return [*names, *(["tornado"] if result.get("sensitivity") else [])]


def notes(envelope: Envelope) -> list[str]:
    """What to relax, why the runner-up lost, what moved p*, and the size of the search."""
    result = result_of(envelope)
    found = common.notes_of(result)
    ways = [str(way) for way in result.get("relax") or ()]
    if len(ways) > 1:
        found.append(f"Ways out: {'; or '.join(ways)}.")
    if isinstance(result.get("runner_up"), str):
        found.append(f"Runner-up: {result['runner_up']}.")
    found += [str(row["sentence"]) for row in mappings(result.get("regimes"))[:1] if row.get("sentence")]
    if result.get("interrupted"):
        found.append("Interrupted: this is what was finished.")
    if result.get("evaluated") is not None:
        pruned = f", {result['pruned']:,} pruned" if isinstance(result.get("pruned"), int) else ""
        took = f" in {text.quantity(result['seconds'], 's')}" if result.get("seconds") is not None else ""
        found.append(f"{result['evaluated']:,} layouts evaluated{pruned}{took}.")
    return found


def charts(envelope: Envelope) -> list[Chart]:
    """Knee and p* over the swept value; cost over the run time of the front and the best of each K."""
    result = result_of(envelope)
    return [*_sweep_chart(result), *_front_chart(envelope)]


def _sweep_chart(result: Mapping[str, object]) -> list[Chart]:
    sweep = result.get("sweep")
    if not isinstance(sweep, Mapping):
        return []
    x = list(sweep.get("value") or ())
    named = (("knee", "knee_k"), ("p*", "p_star_k"), ("fastest", "fastest_k"))
    series = [Series(name, x, list(sweep.get(key) or ())) for name, key in named]
    unit = f" [{sweep['unit']}]" if sweep.get("unit") else ""
    alt = f"Knee, p* and fastest K over {sweep.get('path')}."
    title = f"What if {sweep.get('path')} were different"
    return [Chart(title, f"{sweep.get('path')}{unit}", "K", series, alt=alt, y_log=True)]


def _front_chart(envelope: Envelope) -> list[Chart]:
    result = result_of(envelope)
    rows = mappings(result.get("by_k")) or candidates(result)
    points = [(_run(r), float(r["cost_usd"])) for r in rows if _run(r) and r.get("cost_usd")]
    if not points:
        return []
    front = sorted(
        (_run(r), float(r["cost_usd"])) for r in mappings(result.get("pareto")) if r.get("cost_usd")
    )
    factor, unit = text.scale([t for t, _ in points], "s")
    series = [Series("best of each K", [t / factor for t, _ in points], [c for _, c in points], style="dots")]
    if front:
        series.insert(0, Series("Pareto front", [t / factor for t, _ in front], [c for _, c in front]))
    alt = f"Cost against time of {len(points)} layouts. {answer(envelope)}"
    return [Chart("Cost against time", f"run time [{unit}]", "cost", series, alt=alt, y_quantity="USD")]


def _run(row: Mapping[str, object]) -> float:
    """Seconds of the whole run, or of a step where no run is given."""
    return amount(row, "wall_s") or amount(row, "time_s") or 0.0


def candidates(result: Mapping[str, object]) -> list[dict[str, Any]]:
    """The ranked candidates, best first."""
    return mappings(result.get("candidates"))


def _ranking(
    heading: str,
    rows: Sequence[Mapping[str, object]],
    role: Role,
    note: str,
    marked: tuple[int, ...] = (),
    first: tuple[str, str] = ("#", "rank"),
) -> Table:
    several = len({row.get("cluster") for row in rows}) > 1
    banded = any(row.get("wall_s_low") is not None for row in rows)  # the run's band, and the step's after it
    of = "step " if banded else ""
    columns = [
        Column(first[0], "", 0, first[1]),
        Column("cluster", "", 0 if several else 4, "cluster"),
        Column("K", "", 0, "k"),
        Column("layout", "", 1, "layout"),
        Column("step", "s", 0, "time_s"),
        Column(f"{of}low", "s", 6 if banded else 3, "time_s_low", "time_s"),
        Column(f"{of}high", "s", 6 if banded else 3, "time_s_high", "time_s"),
        Column("run", "s", 1, "wall_s"),
        Column("run low", "s", 3, "wall_s_low", "wall_s"),
        Column("run high", "s", 3, "wall_s_high", "wall_s"),
        Column("in time", "%", 2, "deadline_probability"),
        Column("in budget", "%", 2, "budget_probability"),
        Column("E", "%", 5, "efficiency"),
        Column("MFU", "%", 2, "mfu"),
        Column("cost", "USD", 0, "cost_usd"),
        Column("energy", "J", 7, "energy_j"),
        Column("carbon", "g", 8, "carbon_g"),
        Column("memory", "B", 6, "memory_bytes"),
        Column("tokens/s each", "", 6, "tokens_per_s_per_accelerator"),
        Column("samples/s each", "", 7, "samples_per_s_per_accelerator"),
        Column("TFLOP/s each", "", 7, "tflop_per_s_per_accelerator"),
        *(
            Column(f"{name} {end}", unit, 9, f"{key}_{end}", key)
            for key, name, unit in (
                ("cost_usd", "cost", "USD"),
                ("energy_j", "energy", "J"),
                ("carbon_g", "carbon", "g"),
            )
            for end in ("low", "high")
        ),
    ]
    cells: list[list[Cell]] = []
    for i, row in enumerate(rows):
        values: list[Cell] = [
            common.layout_text(row.get("layout")) or as_cell(row.get("reason"))
            if column.key == "layout"
            else as_cell(row.get(column.key))
            for column in columns
        ]
        values[0] = values[0] if values[0] is not None else i + 1
        cells.append(values)
    keep = [n for n in range(len(columns)) if n < 5 or any(row[n] is not None for row in cells)]
    return Table(
        heading,
        [columns[n] for n in keep],
        [[row[n] for n in keep] for row in cells],
        note=note,
        role=role,
        marked=marked,
    )


def _from(result: Mapping[str, object]) -> str:
    """Where efficiency counts from."""
    bases = mappings(result.get("baselines"))
    if len(bases) > 1:
        return "E counts from each cluster's smallest K that fits, at the fastest layout found there."
    return "".join(
        f"E counts from K = {base.get('k')} as {common.layout_text(base.get('layout'))}, the fastest layout found there."
        for base in bases
    )


def _limits_aside(envelope: Envelope) -> str:
    """A note on tables that hold what a limit of the request keeps out of the answer."""
    limits = (("deadline_s", "deadline"), ("budget_usd", "budget"), ("min_efficiency", "efficiency"))
    given = [word for key, word in limits if inputs_of(envelope).get(key) is not None]
    return f"Limits aside: some may miss the {' or the '.join(given)}." if given else ""


def _front(rows: Sequence[Mapping[str, object]], note: str) -> Table:
    """The front with bars: the longer, the slower or the dearer."""
    table = _ranking("Pareto front: no layout is both faster and cheaper", rows, "curve", "")
    slow = max(map(_run, rows), default=0.0) or 1.0
    dear = max((amount(row, "cost_usd") or 0.0 for row in rows), default=0.0) or 1.0
    bars = [(_bar(_run(row) / slow), _bar((amount(row, "cost_usd") or 0.0) / dear)) for row in rows]
    columns = [*table.heads, Column("time", "", 4, "time_bar"), Column("cost", "", 4, "cost_bar")]
    cells = [[*row, *bar] for row, bar in zip(table.rows, bars, strict=True)]
    return Table(table.title, columns, cells, note=note, role="curve")


def _bar(share: float) -> str:
    return "#" * max(1, round(10 * share))


def _goals(result: Mapping[str, object]) -> list[Table]:
    rows = mappings(result.get("recommendations"))
    if not rows:
        return []
    columns = [Column("goal", "", 0), Column("K", "", 0), Column("in words", "", 0)]
    cells = [(str(row.get("goal")), row.get("k"), str(row.get("sentence") or "")) for row in rows]
    return [Table("Goals", columns, cells, role="decision")]


def _regimes(result: Mapping[str, object], note: str) -> list[Table]:
    """Each way to pay: p*, the fastest K and the exchange rate between them."""
    rows = mappings(result.get("regimes"))
    if not rows:
        return []
    columns = [
        Column("regime", "", 0, "regime"),
        Column("USD/h each", "", 1, "usd_per_accelerator_h"),
        Column("p*", "", 0, "p_star_k"),
        Column("cost at p*", "USD", 0, "p_star_usd"),
        Column("run at p*", "s", 2, "p_star_s"),
        Column("fastest", "", 1, "fastest_k"),
        Column("times the cost", "x", 2, "times_the_cost"),
        Column("times faster", "x", 2, "times_faster"),
        Column("owning pays above", "%", 4, "break_even_utilisation"),
    ]
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        best, fast = row.get("p_star") or {}, row.get("fastest") or {}
        rate = row.get("exchange") or {}
        cells.append(
            (
                str(row.get("regime")),
                row.get("usd_per_accelerator_h"),
                best.get("k"),
                best.get("cost_usd"),
                best.get("time_s"),
                fast.get("k"),
                rate.get("times_the_cost"),
                rate.get("times_faster"),
                row.get("break_even_utilisation"),
            )
        )
    return [Table("Ways to pay, on the answer's cluster", columns, cells, note=note, role="curve")]


def _goodput(result: Mapping[str, object]) -> list[Table]:
    """The whole run under failures and preemptions, at each K of the answer's cluster."""
    table = result.get("goodput")
    if not isinstance(table, Mapping):
        return []
    columns = [
        Column("K", "", 0, "k"),
        Column("run", "s", 0, "wall_s"),
        Column("low", "s", 1, "wall_s_low", "wall_s"),
        Column("high", "s", 1, "wall_s_high", "wall_s"),
        Column("goodput", "%", 0, "goodput"),
        Column("interruptions", "", 2, "failures"),
        Column("between them", "s", 3, "mtbf_s"),
        Column("checkpoint every", "s", 2, "interval_s"),
    ]
    lists = [list(table.get(column.key) or ()) for column in columns]
    lists[0] = [None if k is None else int(k) for k in lists[0]]
    cells: list[tuple[Cell, ...]] = list(zip(*lists, strict=False))
    note = "90 % of runs take between low and high, the step time being as predicted."
    return [Table("Whole run, interruptions included", columns, cells, note=note, role="curve")]


def _sweep(result: Mapping[str, object]) -> list[Table]:
    sweep = result.get("sweep")
    if not isinstance(sweep, Mapping):
        return []
    unit = f" [{sweep['unit']}]" if sweep.get("unit") else ""
    columns = [
        Column(f"{sweep.get('path')}{unit}", "", 0, "value"),
        Column("knee", "", 0, "knee_k"),
        Column("p*", "", 0, "p_star_k"),
        Column("cost at p*", "USD", 1, "p_star_usd"),
        Column("fastest K", "", 0, "fastest_k"),
        Column("its run", "s", 1, "fastest_s"),
    ]
    lists = [list(sweep.get(column.key) or ()) for column in columns]
    cells: list[tuple[Cell, ...]] = list(zip(*lists, strict=False))
    how = sweep.get("how") or f"the largest K with an efficiency of at least {sweep.get('threshold')}"
    note = f"Knee: {how}; - where not reached."
    return [Table("What if", columns, cells, note=note, role="decision")]


def _fleet_note(result: Mapping[str, object]) -> str:
    fleet = mapping(result.get("fleet"))
    done, cost = text.quantity(fleet.get("makespan_s"), "s"), text.quantity(fleet.get("cost_usd"), "USD")
    return f"{fleet.get('used')} of {fleet.get('accelerators')} accelerators; all done in {done} for {cost}."


def _refused(result: Mapping[str, object]) -> list[tuple[str, int]]:
    refused = result.get("refused")
    pairs = [(str(k), int(v)) for k, v in refused.items() if v] if isinstance(refused, Mapping) else []
    return sorted(pairs, key=lambda pair: -pair[1])


def _overlap(a: Mapping[str, object], b: Mapping[str, object]) -> bool:
    if any(row.get("time_s") is None for row in (a, b)):
        return False
    (low, high), (other_low, other_high) = (
        (amount(row, "time_s_low"), amount(row, "time_s_high")) for row in (a, b)
    )
    if low is None or high is None or other_low is None or other_high is None:
        return False
    return low <= other_high and other_low <= high
