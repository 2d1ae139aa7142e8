"""A study of measured timings: verdict, the curve with intervals, ladder, fits, straggler, checklist."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.kinds.generic import records
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Mark,
    Series,
    Table,
    as_cell,
    inputs_of,
    listed,
    mapping,
    mappings,
    result_of,
)

RUN_COST = "run cost"
EXACT = 1e-9  # of a fitted value: an error below it is rounding


def title(envelope: Envelope) -> str:
    """File, regime and number of runs."""
    result, inputs = result_of(envelope), inputs_of(envelope)
    words = [f"Study of {inputs.get('file') or 'timings'}"]
    if result.get("regime_in_doubt"):
        words.append(f"regime uncertain (read as {result['regime']}, looks weak; pass --regime)")
    elif result.get("regime"):
        is_assumed = inputs.get("regime", result["regime"]) is None
        words.append(f"{result['regime']} scaling{' (assumed; pass --regime)' if is_assumed else ''}")
    if inputs.get("rows"):
        words.append(f"{inputs['rows']:,d} run{'s' if inputs['rows'] != 1 else ''}")
    return ", ".join(words)


def answer(envelope: Envelope) -> str:
    """The verdict."""
    return str(result_of(envelope).get("verdict") or "")


def tables(envelope: Envelope) -> list[Table]:
    """Everything that the study found, the decision first."""
    result = result_of(envelope)
    return [
        *_decision(result),
        _curve(result),
        *_parts(result),
        *common.ladder(result),
        *_regimes(result),
        *_gap(result),
        *_fits(result),
        *_straggler(result),
        *_workers(result),
        *_serving(result),
        *_checklist(result),
        *_laws(result),
        *_honesty(result),
        *_read(result),
    ]


def figures(envelope: Envelope) -> list[str]:
    """The plots that this study has data for."""
    result = result_of(envelope)
    names = ["weak"] if result.get("regime") == "weak" else []
    names += common.curves(result)
    if result.get("workers"):  # of one K alone there is nothing else to draw
        names.insert(0 if len(result.get("k") or ()) == 1 else len(names), "workers")
    if result.get("parts_s"):
        names += ["parts", "shares"]
    if result.get("cost_usd"):
        names.append("cost")
    return names


def notes(envelope: Envelope) -> list[str]:
    """The bend's evidence and remedy, what to measure next, set-up time, and what to be careful about."""
    result = result_of(envelope)
    bend = mapping(result.get("bend"))
    found = [f"evidence: {item}." for item in bend.get("evidence") or ()]
    if bend.get("remedy"):
        found.append(f"remedy for {bend.get('leading_loss')}: {bend['remedy']}.")
    further = mapping(result.get("fits")).get("further_measurement")
    if further:
        found.append(f"to separate the causes: {further}.")
    setup = [s for s in result.get("setup_s") or () if s is not None]
    if setup:
        found.append(
            f"set-up time is apart from the times above: {text.quantity(min(setup), 's', max(setup))} to "
            f"{text.quantity(max(setup), 's')} a run."
        )
    for item in mappings(result.get("honesty")):
        grave = "warning: " if item.get("severity") == "warning" else ""
        found.append(f"{grave}{item.get('message')}; {item.get('advice')}.")
    return [*found, *(str(note) for note in result.get("notes") or ())]


def _workers(result: Mapping[str, object]) -> list[Table]:
    """Who is the slowest, and how much the others idle for it."""
    rows = [row for row in mappings(result.get("workers")) if not row.get("same_times")]
    columns = [
        Column("run", "", 0, "file"),
        Column("workers", "", 0, "k"),
        Column("step", "s", 1, "step_s"),
        Column("idle", "%", 0, "idle_share"),
        Column("slowest rank", "", 0, "slowest_rank"),
        Column("over the mean", "x", 0, "slowest_over_mean"),
        Column("of the steps", "%", 1, "slowest_share"),
    ]
    cells = [[row.get(column.key) for column in columns] for row in rows]
    note = "A worker idles from the end of its own work until the slowest is done."
    return [Table("Workers", columns, cells, note=note, role="breakdown")] if rows else []


def _read(result: Mapping[str, object]) -> list[Table]:
    """What became of the files' lines, each rejected line, and the draws behind the energy."""
    titles = {"power": "Power while at work", "readings": "Lines of each file", "rejected": "Rejected lines"}
    return [
        records(name, rows, "detail") for key, name in titles.items() if (rows := mappings(result.get(key)))
    ]


def charts(envelope: Envelope) -> list[Chart]:
    """Speedup with ideal, interval and bend; efficiency; parts; cost; weak scaling against a flat 1."""
    result = result_of(envelope)
    k = [float(x) for x in result.get("k") or ()]
    n = len(k)
    if not n:
        return []
    marks = _marks(result)
    curve = Series(
        "measured",
        k,
        common.array(result, "speedup", n),
        common.array(result, "speedup_low", n),
        common.array(result, "speedup_high", n),
    )
    injected = mapping(result.get("straggler"))
    ghosts = [Series("with a straggler", k, common.array(injected, "speedup", n), style="ghost")]
    extra = ghosts if injected else []
    found = [
        Chart(
            "Speedup", "K", "speedup", [curve, Series("ideal", k, k, style="dashed"), *extra],
            alt=f"Measured speedup against K. {answer(envelope)}", y_log=True, y_quantity="x", marks=marks,
        ),
        Chart(
            "Efficiency", "K", "efficiency", [Series("measured", k, common.array(result, "efficiency", n))],
            alt="Measured efficiency against K, with the threshold.", y_quantity="%",
            marks=[Mark(m.label, m.x) for m in marks], floor=mapping(result.get("threshold")).get("value"),
        ),
    ]  # fmt: skip
    if result.get("regime") == "weak":  # the scaled speedup and E would tell the same once more
        e, half = (common.array(result, key, n) for key in ("efficiency", "efficiency_ci95"))
        low, high = (
            [None if a is None or b is None else a + sign * b for a, b in zip(e, half, strict=True)]
            for sign in (-1.0, 1.0)
        )
        slowed = [Series("with a straggler", k, common.array(injected, "efficiency", n), style="ghost")]
        ratio = Series("measured", k, e, low, high)
        alt = f"Measured T(K0)/T(K) against a flat one. {answer(envelope)}"
        at_e = [Mark(m.label, m.x, common.at(result, "efficiency", int(m.x)), m.style) for m in marks]
        limit = mapping(result.get("threshold")).get("value")
        found = [common.weak_chart([ratio, *(slowed if injected else [])], k, alt, at_e, limit)]
    parts = mapping(result.get("parts_s"))
    if parts:
        layers = [Series(str(name), k, common.array(parts, name, n)) for name in parts]
        alt = "Parts of the run's time at each K; the table of parts has the numbers."
        found.append(Chart("Time by part", "K", "time", layers, alt=alt, kind="stack", y_quantity="s"))
    if result.get("cost_usd"):
        cost = Series("measured", k, common.array(result, "cost_usd", n))
        found.append(
            Chart("Cost of a run", "K", RUN_COST, [cost], alt="Cost of a run against K.", y_quantity="USD")
        )
    return found


def _marks(result: Mapping[str, object]) -> list[Mark]:
    bend = mapping(result.get("bend"))
    wanted = (("bend", bend.get("k")), ("recommended", result.get("recommended_k")))
    return [
        Mark(label, float(k), common.at(result, "speedup", k), "point")
        for label, k in wanted
        if isinstance(k, (int, float))
    ]


def _bend_why(bend: Mapping[str, object]) -> str:
    cause = str(bend.get("cause") or "")
    return cause if bend.get("k") is None else f"first K below the threshold: {cause}"


def _decision(result: Mapping[str, object]) -> list[Table]:
    bend = mapping(result.get("bend"))
    serving = mapping(result.get("serving"))
    choices: list[tuple[str, object, str]] = [
        ("recommended", result.get("recommended_k"), "largest K that clears quality and efficiency"),
        ("bend", bend.get("k"), _bend_why(bend)),
        ("cheapest", result.get("cost_optimal_k"), "least cost per unit of work"),
        ("fastest", result.get("fastest_k"), _exchange(result)),
    ]
    energy = mapping(result.get("energy"))
    if energy:
        choices.append(("least energy", energy.get("optimal_k"), "least energy per unit of work"))
    for key, label in (("largest_throughput", "most throughput"), ("smallest_latency", "least p99 latency")):
        choice = mapping(serving.get(key))
        if choice:
            choices.append((label, choice.get("k"), f"under the other: {choice.get('constraint')}"))
    for rule, label in common.KNEE_RULES.items():
        knee = mapping(mapping(result.get("knee")).get(rule))
        if knee:
            choices.append((label, knee.get("k"), str(knee.get("cause") or "")))
    rows: list[list[Cell]] = [
        [
            label,
            as_cell(k),
            *(common.at(result, key, k) for key in ("mean_s", "speedup", "efficiency", "cost_usd")),
            why,
        ]
        for label, k, why in choices
    ]
    columns = [
        Column("choice", "", 0), Column("K", "", 0), Column("time", "s"), Column("S", "x", 3), Column("E", "%"),
        Column(RUN_COST, "USD", 2), Column("why", "", 0),
    ]  # fmt: skip
    return [Table("Decision", columns, rows, role="decision")]


def _exchange(result: Mapping[str, object]) -> str:
    rate = mapping(result.get("exchange"))
    if rate.get("times_the_cost") is None or result.get("fastest_k") == result.get("cost_optimal_k"):
        return "least time"
    cost, faster = (text.quantity(rate.get(key), "x") for key in ("times_the_cost", "times_faster"))
    return f"{cost} the cost per unit of work of the cheapest for {faster} the speed"


def _curve(result: Mapping[str, object]) -> Table:
    ks = listed(result.get("k"))
    n = len(ks)
    specs = [
        ("repeats", Column("runs", "", 4, "repeats")),
        ("mean_s", Column("mean", "s", 0, "mean_s")),
        ("std_s", Column("std", "s", 3, "std_s")),
        ("ci95_s", Column("±95 %", "s", 2, "ci95_s")),
        ("speedup", Column("S", "x", 0, "speedup")),
        ("speedup_ci95", Column("±S", "x", 4, "speedup_ci95")),
        ("efficiency", Column("E", "%", 0, "efficiency")),
        ("efficiency_ci95", Column("±E", "%", 3, "efficiency_ci95")),
        ("cost_usd", Column(RUN_COST, "USD", 1, "cost_usd")),
        ("cost_per_work", Column("cost per unit of work", "USD", 4, "cost_per_work")),
        ("work_per_usd", Column("units of work per USD", "", 5, "work_per_usd")),
        ("energy_j", Column("energy", "J", 5, "energy_j")),
        ("quality_by_k", Column("quality", "", 0, "quality")),
        ("carbon_g", Column("CO2", "g", 5, "carbon_g")),
        ("speedup_fitted", Column("Amdahl S", "x", 3, "speedup_fitted")),
        ("throughput", Column("per s", "", 5, "throughput")),
        ("latency_p99_s", Column("p99", "s", 5, "latency_p99_s")),
        ("setup_s", Column("set-up, apart", "s", 5, "setup_s")),
    ]
    gap = mapping(result.get("gap"))
    result = {**result, "speedup_fitted": gap.get("amdahl")}
    # A half-width is zero at the baseline by definition: alone it is no column.
    given = [(key, column) for key, column in specs if any(listed(result.get(key)))]
    arrays = [common.array(result, key, n) for key, _ in given]
    rows: list[list[Cell]] = [[ks[i], *(values[i] for values in arrays)] for i in range(n)]
    columns = [Column("K", "", 0, "k"), *(column for _, column in given)]
    excluded = mapping(mapping(result.get("quality")).get("reasons"))
    if excluded:
        columns.append(Column("excluded", "", 1, "excluded"))
        rows = [[*row, excluded.get(str(k))] for row, k in zip(rows, ks, strict=True)]
    recommended = result.get("recommended_k")
    marked = tuple(i for i, k in enumerate(ks) if k == recommended)
    note = (
        "Intervals are 95 % of the mean."
        if any(listed(result.get("ci95_s")))
        else "Single runs: no intervals."
    ) + _unit_of_work(result)
    return Table("Curve", columns, rows, note=note, role="curve", marked=marked)


def _unit_of_work(result: Mapping[str, object]) -> str:
    """What the costs of the curve are for."""
    ks, work = listed(result.get("k")), listed(result.get("work"))
    if not result.get("cost_per_work") or not work:
        return ""
    where = f" at K = {ks[0]}" if result.get("regime") == "weak" else ""
    has = "is the unit of work" if work[0] == 1.0 else f"has {text.number(work[0])} units of work"
    return f" A run{where} {has}."


def _parts(result: Mapping[str, object]) -> list[Table]:
    parts, percent = mapping(result.get("parts_s")), mapping(result.get("parts_percent"))
    ks = listed(result.get("k"))
    if not parts:
        return []
    columns = [Column("K", "", 0, "k")]
    columns += [Column(str(name), "s", 0, f"{name}_s", _finest(parts)) for name in parts]
    columns += [Column(f"{name} share", "", 1, f"{name}_percent") for name in percent]
    lists = [common.array(parts, name, len(ks)) for name in parts]
    shares = [[_percent(v) for v in common.array(percent, name, len(ks))] for name in percent]
    dollars = mapping(result.get("parts_usd"))
    if dollars.get("idle") is not None:
        columns.append(Column("paid for idle", "USD", 1, "idle_usd"))
        lists.append(common.array(dollars, "idle", len(ks)))
    bills = lists[len(parts) :]
    rows: list[list[Cell]] = [
        [k, *(v[i] for v in (*lists[: len(parts)], *shares, *bills))] for i, k in enumerate(ks)
    ]
    return [Table("Time by part", columns, rows, role="breakdown")]


def _finest(parts: Mapping[str, object]) -> str:
    """The column of the part whose unit all parts take: the one that mostly takes least."""
    middle: dict[str, float] = {}
    for name, values in parts.items():
        timed = sorted(v for v in listed(values) if v)
        if timed:
            middle[str(name)] = timed[(len(timed) - 1) // 2]
    return f"{min(middle, key=lambda name: middle[name])}_s" if middle else ""


def _regimes(result: Mapping[str, object]) -> list[Table]:
    found = mappings(result.get("regimes"))
    if not found:
        return []
    columns = [
        Column("price", "", 0), Column("worker-hour at work", "USD", 1), Column("p*", "", 0), Column("bill", "USD", 0),
        Column("fastest", "", 1), Column("its bill", "USD", 1), Column("why", "", 0),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for item in found:
        best, fast = mapping(item.get("p_star")), mapping(item.get("fastest"))
        rows.append(
            [str(item.get("regime")), item.get("usd_per_working_h"), best.get("k"), best.get("cost_usd"), fast.get("k"),
             fast.get("cost_usd"), str(item.get("why"))]
        )  # fmt: skip
    note = "Bills are of one run. A price that is linear in K scales every bill alike and cannot move p*."
    return [Table("Under each price", columns, rows, note=note, role="breakdown")]


def _gap(result: Mapping[str, object]) -> list[Table]:
    gap, ks = mapping(result.get("gap")), listed(result.get("k"))
    if not gap:
        return []
    columns = [
        Column("K", "", 0, "k"), Column("ideal S", "x", 0), Column("Amdahl S", "x", 0), Column("measured S", "x", 0),
        Column("ideal - Amdahl", "x", 1), Column("Amdahl - measured", "x", 1),
    ]  # fmt: skip
    keys = ("ideal", "amdahl", "measured", "serial_gap", "rest_gap")
    lists = [common.array(gap, key, len(ks)) for key in keys]
    rows: list[list[Cell]] = [[k, *(values[i] for values in lists)] for i, k in enumerate(ks)]
    return [Table("Gap to ideal", columns, rows, note=str(gap.get("note") or ""), role="breakdown")]


def _percent(value: object) -> str | None:
    return f"{value:.1f} %" if isinstance(value, (int, float)) else None


def _fits(result: Mapping[str, object]) -> list[Table]:
    fits = mapping(result.get("fits"))
    rows: list[list[Cell]] = []
    amdahl, usl = mapping(fits.get("amdahl")), mapping(fits.get("usl"))
    if amdahl.get("serial_fraction") is not None:
        ceiling, half = (_number(amdahl.get(key)) for key in ("ceiling", "k_at_efficiency_050"))
        follows = f"ceiling {ceiling}; E = 0.5 at K = {half}" if ceiling else "no ceiling"
        rows.append(["Amdahl", f"s = {_value(amdahl, 'serial_fraction', 'stderr')}", follows])
    gustafson = mapping(fits.get("gustafson"))
    if gustafson.get("serial_fraction") is not None:
        rows.append(["Gustafson", f"s = {_value(gustafson, 'serial_fraction', 'stderr')}", ""])
    if usl.get("sigma") is not None:
        values = (
            f"sigma = {_value(usl, 'sigma', 'sigma_stderr')}, kappa = {_value(usl, 'kappa', 'kappa_stderr')}"
        )
        peak = usl.get("k_peak")
        rows.append(["USL", values, f"peak at K = {text.number(peak)}" if peak else "no peak"])
    growing = mapping(fits.get("communication"))
    if growing.get("seconds") is not None:
        values = f"{_value(growing, 'seconds', 'stderr_s')} {growing.get('growth')}"
        rows.append([f"communication ({growing.get('law')})", values, ""])
    if not rows:
        return []
    choice = mapping(fits.get("choice"))
    if choice.get("chosen"):
        note = f"By AICc the data single out {choice['chosen']}."
    elif choice.get("rivals"):
        best = mappings(choice.get("candidates"))[0].get("law")
        note = f"No law is chosen: the data do not separate {best} from {', '.join(choice['rivals'])}."
    else:
        note = "No law is chosen: too few points to test them all."
    columns = [Column("law", "", 0), Column("fitted", "", 0), Column("so that", "", 0)]
    return [Table("Fits", columns, rows, note=note, role="breakdown")]


def _number(value: object) -> str:
    return text.number(value) if isinstance(value, (int, float)) else ""


def _value(fit: Mapping[str, object], key: str, error: str) -> str:
    value, spread = fit.get(key), fit.get(error)
    if not isinstance(value, (int, float)):
        return "-"
    if not isinstance(spread, (int, float)):
        return text.number(value)
    rounding = abs(spread) <= EXACT * abs(value)
    return f"{text.number(value)} ± {'0' if rounding else text.number(spread, 2)}"


def _straggler(result: Mapping[str, object]) -> list[Table]:
    injected = mapping(result.get("straggler"))
    ks = listed(result.get("k"))
    if not injected:
        return []
    n = len(ks)
    low, high = (text.number(x) for x in injected.get("factors") or (1, 1))
    columns = [
        Column("K", "", 0), Column("mean", "s", 0), Column("S before", "x", 1), Column("S", "x", 0),
        Column("E before", "%", 1), Column("E", "%", 0), Column("band before", "%", 2), Column("band", "%", 0),
    ]  # fmt: skip
    lists = [
        common.array(injected, "mean_s", n), common.array(result, "speedup", n), common.array(injected, "speedup", n),
        common.array(result, "efficiency", n), common.array(injected, "efficiency", n),
        common.array(injected, "band_relative_without", n), common.array(injected, "band_relative", n),
    ]  # fmt: skip
    before, after, worst = (
        _or_beyond(injected.get(key)) for key in ("bend_k_without", "bend_k", "bend_k_at_worst")
    )
    note = (
        f"The bend moves from {before} to {after} on average, to {worst} at the largest factor. "
        f"Stretched: {injected.get('applies_to')}."
    )
    slowest = mapping(injected.get("slowest_of_repeats"))
    if slowest:
        note += f" With the slowest of the repeats at each K in place of their mean it is at {_or_beyond(slowest.get('bend_k'))}."
    rows = [[k, *(values[i] for values in lists)] for i, k in enumerate(ks)]
    heading = f"With one slow worker per point, factor {low} to {high}"
    return [Table(heading, columns, rows, note=note, role="breakdown")]


def _or_beyond(k: object) -> str:
    return "beyond the measured range" if k is None else f"K = {k}"


def _serving(result: Mapping[str, object]) -> list[Table]:
    serving = mapping(result.get("serving"))
    front = serving.get("pareto_k")
    if not front:
        return []
    keys = ("throughput", "latency_p99_s")
    columns = [Column("K", "", 0), Column("throughput per s", "", 0), Column("p99 latency", "s", 0)]
    rows = [[k, *(common.at(serving | {"k": result.get("k")}, key, k) for key in keys)] for k in front]
    note = "K that no other K beats in both."
    return [Table("Throughput against p99 latency", columns, rows, note=note, role="breakdown")]


def _checklist(result: Mapping[str, object]) -> list[Table]:
    columns = [Column("ok", "", 0), Column("a scaling result must state", "", 0), Column("here", "", 0)]
    rows: list[list[Cell]] = [
        [bool(r.get("ok")), str(r.get("item")), str(r.get("note"))] for r in mappings(result.get("checklist"))
    ]
    return [Table("Checklist", columns, rows, role="breakdown")] if rows else []


def _laws(result: Mapping[str, object]) -> list[Table]:
    choice = mapping(mapping(result.get("fits")).get("choice"))
    columns = [
        Column("law", "", 0), Column("seconds of each term at K0"), Column("rms error", "%"), Column("AICc"),
        Column("above the best"), Column("weight", "%"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for fit in mappings(choice.get("candidates")):
        terms = ", ".join(f"{name} {text.number(s)}" for name, s in mapping(fit.get("seconds")).items())
        rows.append(
            [fit.get("law"), terms, *(fit.get(k) for k in ("rms_relative", "aicc", "delta", "weight"))]
        )
    return [Table("Laws that were tried", columns, rows, role="detail")] if rows else []


def _honesty(result: Mapping[str, object]) -> list[Table]:
    columns = [Column("severity"), Column("code"), Column("finding"), Column("advice")]
    keys = ("severity", "code", "message", "advice")
    rows = [[str(item.get(key)) for key in keys] for item in mappings(result.get("honesty"))]
    return [Table("Honesty checks", columns, rows, role="detail")] if rows else []
