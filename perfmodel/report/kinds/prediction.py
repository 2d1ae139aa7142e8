"""A predicted scaling curve: knee, p*, fastest, the curve by K, where the step time goes, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Mark,
    Role,
    Series,
    Table,
    amount,
    as_cell,
    inputs_of,
    listed,
    mapping,
    mappings,
    result_of,
)

FIRST_SCREEN = (45, ("Curve",))
LEAST_PART = 1e-6  # of the largest: a smaller one has no column
HELPS = 0.01  # of the step: a remedy that saves less is none
FEWER_LAYOUTS = "Layouts: the fastest of the usual ones; `perfmodel plan` searches more."


def title(envelope: Envelope) -> str:
    """Workload, cluster, regime and batch."""
    words = [common.subject(envelope) or "Prediction"]
    regime = common.setting(envelope, "regime")
    if regime:
        words.append(f"{regime} scaling")
    for key, label in (("global_batch", "global batch"), ("batch_per_accelerator", "batch per accelerator")):
        value = common.setting(envelope, key)
        if value is not None and (key == "global_batch") == (regime != "weak"):
            words.append(f"{label} {value}")
    return ", ".join(words)


def answer(envelope: Envelope) -> str:
    """Knee with its cause, the cheapest and the fastest K and what one costs against the other."""
    result = result_of(envelope)
    if isinstance(result.get("answer"), str):
        return str(result["answer"])
    knee = knees(result).get("threshold") or {}
    p_star, fastest = mapping(result.get("p_star")), mapping(result.get("fastest"))
    if not any(result.get("feasible") or [True]):
        reasons = [str(r) for r in result.get("reason") or () if r]
        near = mapping(result.get("nearest"))
        # Of the largest K: the others need more.
        reason = f"Nothing fits: {reasons[-1]}" if reasons else "Nothing fits."
        if near.get("k") is None:
            return reason
        step = text.quantity(near.get("time_s"), "s")
        return (
            f"{reason}. Nearest: K = {near['k']} with {common.layout_text(near.get('layout'))}, {step} a step"
        )
    words = []
    if knee.get("k") is not None:
        efficiency = common.at(result, "efficiency", knee["k"])
        band = _span(knee)
        words.append(
            f"Scales to K = {knee['k']}{band}"
            + (f" at {text.quantity(efficiency, '%')} efficiency" if efficiency is not None else "")
            + (f"; beyond it, {knee['cause']}" if knee.get("cause") else "")
            + "."
        )
    elif knee.get("cause") and len(_timed(result)) > 1:
        words.append(f"Knee: {knee['cause']}.")
    if p_star.get("k") is not None and fastest.get("k") is not None:
        words.append(_ends(result, p_star, fastest))
    return " ".join(words)


def tables(envelope: Envelope) -> list[Table]:
    """Decision, curve, parts, ledger, assumptions, sensitivity and limits."""
    result = result_of(envelope)
    return [
        *_decision(result),
        _curve(envelope),
        *common.ladder(result),
        *_parts(result),
        *_ledger(result),
        *common.assumptions(result),
        *common.sensitivity(result, _largest_timed(result)),
        *common.limits(result),
    ]


def figures(envelope: Envelope) -> list[str]:
    """The plots that this prediction has data for."""
    result = result_of(envelope)
    names = ["weak"] if common.setting(envelope, "regime") == "weak" else []
    names += common.curves(result)
    if result.get("parts_s"):
        names += ["parts", "shares"]
    if result.get("ledger_accelerator_s"):
        names.append("ledger")
    if any(c is not None for c in result.get("cost_usd") or ()):
        names.append("cost")
    if result.get("sensitivity"):
        names.append("tornado")
    return names


def notes(envelope: Envelope) -> list[str]:
    """Baseline, cost basis, remedies, and what is infeasible."""
    result = result_of(envelope)
    found = [*_narrower(result), *common.notes_of(result)]
    baseline = result.get("baseline_k")
    if baseline not in (None, 1):
        smaller = any(k < baseline for k in result.get("k") or ())
        why = f"No K below {baseline} is feasible" if smaller else f"K = {baseline} is the smallest asked for"
        found.append(f"{why}: speedup counts from K = {baseline} as {baseline}.")
    if result.get("cost_basis") and _timed(result):
        found.append(f"Cost, energy and carbon are for {_basis(result['cost_basis'])}.")
    knee = knees(result).get("threshold") or {}
    if knee.get("remedy") and knee.get("k") is not None:
        found.append(_remedy(knee))
    if knee.get("at_risk_from_k") is not None:
        found.append(
            f"Within the 90 % band the efficiency may fall below the threshold from K = {knee['at_risk_from_k']}."
        )
    reasons: dict[str, list[str]] = {}
    for k, reason in zip(result.get("k") or (), result.get("reason") or (), strict=False):
        if reason:
            reasons.setdefault(str(reason), []).append(str(k))
    if _timed(result) or len(reasons) > 1:  # else the answer has said it
        found += [f"K = {', '.join(ks)}: {reason}" for reason, ks in reasons.items()]
    return found


def _narrower(result: Mapping[str, object]) -> list[str]:
    """The one fact or measurement that would narrow the band most."""
    rows = mappings(result.get("narrow"))
    if not rows:
        return []
    best = rows[0]
    width, after = (text.quantity(best.get(key), "%") for key in ("half_width", "half_width_after"))
    return [
        f"the {best.get('fact')} would narrow the band at K = {_largest_timed(result)} from +-{width} to +-{after}: "
        f"{best.get('how')}"
    ]


def _timed(result: Mapping[str, object]) -> list[object]:
    """The K that have a time."""
    pairs = zip(listed(result.get("k")), listed(result.get("time_s")), strict=True)  # or it was edited
    return [k for k, time in pairs if time is not None]


def _remedy(knee: Mapping[str, object]) -> str:
    """What the remedy for the cause would bring, or that it brings nothing."""
    after, saves, k = (amount(knee, key) for key in ("k_after_remedy", "remedy_saves", "k"))
    if saves is not None and saves < HELPS and (after is None or k is None or after <= k):
        least = text.quantity(HELPS, "%")
        return (
            f"No remedy is known: {knee['remedy']} would save less than {least} of the step beyond the knee."
        )
    brings = (
        [] if saves is None else [f"beyond the knee it would save {text.quantity(saves, '%')} of the step"]
    )
    if after is not None:
        moved = "would stay" if after == k else "would then be"
        brings.append(f"the knee {moved} at K = {after}")
    return f"Remedy: {'; '.join([str(knee['remedy']), *brings])}."


def facts(envelope: Envelope) -> list[tuple[str, str, str]]:
    """The numbers that people look for first: label, value, and what stands beside it."""
    result = result_of(envelope)
    knee, p_star = knees(result).get("threshold") or {}, mapping(result.get("p_star"))
    fastest = mapping(result.get("fastest"))
    found = []
    if knee:
        efficiency = common.at(result, "efficiency", knee.get("k"))
        value = f"K = {knee['k']}" if knee.get("k") is not None else "not reached"
        more = f"{text.quantity(efficiency, '%')} efficiency" if efficiency is not None else ""
        found.append(("Knee", value, more + _span(knee)))
    for label, point in (("Cheapest, p*", p_star), ("Fastest", fastest)):
        if point.get("k") is not None:
            step = text.quantity(common.at(result, "time_s", point["k"]), "s")
            more = f"{step} a step, {_cost(point)}"
            found.append((label, f"K = {point['k']}", more))
    return found


def charts(envelope: Envelope) -> list[Chart]:
    """Speedup with ideal and band, efficiency, stacked parts, cost."""
    result = result_of(envelope)
    k = [float(x) for x in result.get("k") or ()]
    if not k:
        return []
    n = len(k)
    marks = [*_marks(result), *common.boundaries(result)]
    speedup = common.array(result, "speedup", n)
    low, high = _speedup_band(result, n)
    series = [Series("predicted", k, speedup, low, high), Series("ideal", k, k, style="dashed")]
    measured = _measured(result)
    if measured:
        series.append(measured)
    subject = common.subject(envelope) or "this job"
    found = [
        Chart(
            "Speedup", "K", "speedup", series, alt=f"Speedup of {subject} against K. {answer(envelope)}",
            y_log=True, y_quantity="x", marks=marks,
        ),
        Chart(
            "Efficiency", "K", "efficiency", [Series("predicted", k, common.array(result, "efficiency", n))],
            alt=f"Efficiency of {subject} against K.", y_quantity="%", marks=marks, floor=_threshold(result),
        ),
    ]  # fmt: skip
    if common.setting(envelope, "regime") == "weak":
        e, least, most = (common.array(result, f"efficiency{end}", n) for end in ("", "_low", "_high"))
        at_e = [Mark(m.label, m.x, common.at(result, "efficiency", int(m.x)), m.style) for m in marks]
        alt = f"T(K0)/T(K) of {subject} against a flat one. {answer(envelope)}"
        ratios = [Series("predicted", k, e, least, most)]
        if measured:
            y = [None if s is None else s / x for x, s in zip(measured.x, measured.y, strict=True)]
            ratios.append(Series("measured", measured.x, y, style="dots"))
        found = [common.weak_chart(ratios, k, alt, at_e, _threshold(result))]
    parts = mapping(result.get("parts_s"))
    layers = [Series(name, k, values) for name, values in common.largest(parts, n).items()]
    if layers:
        found.append(
            Chart(
                "Step time by part", "K", "step time", layers, kind="stack", y_quantity="s",
                alt="Share of each part of the step time at each K; the table of parts has the numbers.",
            )
        )  # fmt: skip
    cost, least, most = (common.array(result, f"cost_usd{end}", n) for end in ("", "_low", "_high"))
    if any(c is not None for c in cost):
        drawn = Series("predicted", k, cost)
        if any(c is not None for c in least):
            drawn = Series("predicted", k, cost, least, most)
        found.append(
            Chart(
                "Cost", "K", "cost", [drawn], alt=f"Cost of {subject} against K.",
                y_quantity="USD", marks=[m for m in marks if m.style != "boundary"],
                note=_basis(result.get("cost_basis")),
            )
        )  # fmt: skip
    return found


def knees(result: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """The knees by rule."""
    return {str(rule): mapping(item) for rule, item in mapping(result.get("knee")).items()}


def _decision(result: Mapping[str, object]) -> list[Table]:
    rows: list[tuple[Cell, ...]] = []

    def add(label: str, k: object, why: str) -> None:
        rows.append(
            (
                label,
                as_cell(k),
                common.at(result, "time_s", k),
                common.at(result, "speedup", k),
                common.at(result, "efficiency", k),
                common.at(result, "cost_usd", k),
                why,
            )
        )

    timed = _timed(result)
    if not timed:
        return []
    cause = ""
    for rule, knee in knees(result).items() if len(timed) > 1 else ():  # one K has no knee
        same = knee.get("cause") == cause and knee.get("k") is not None
        cause = str(knee.get("cause") or "")
        why = _span(knee, "band K ") + ("same cause" if same and cause else cause)
        add(common.KNEE_RULES.get(rule, f"knee by {rule}"), knee.get("k"), why)
    for key, label, why in (
        ("p_star", "p*, the cheapest", "least cost"),
        ("fastest", "fastest", "least time"),
    ):
        point = mapping(result.get(key))
        if point:
            add(label, point.get("k"), str(point.get("cause") or point.get("why") or why))
    if not rows:
        return []
    columns = [
        Column("choice", "", 0),
        Column("K", "", 0),
        Column("time", "s"),
        Column("S", "x", 3),
        Column("E", "%"),
        Column("cost", "USD"),
        Column("why", "", 0),
    ]
    return [Table("Decision", columns, rows, role="decision")]


# Both ends of what is spent besides money, after everything else.
_BANDS = tuple(
    (f"{key}_{end}", Column(f"{name} {end}", unit, 9, f"{key}_{end}", key))
    for key, name, unit in (
        ("energy_j", "energy", "J"),
        ("carbon_g", "CO2", "g"),
    )
    for end in ("low", "high")
)


def _curve(envelope: Envelope) -> Table:
    result = result_of(envelope)
    is_auto = inputs_of(envelope).get("layout") == "auto"
    run = mapping(result.get("run"))
    sample = common.sample_of(envelope)
    ks = listed(result.get("k"))
    n = len(ks)
    # Of a run whose length is known the run has the band that is shown first, else the step.
    step_band = 6 if run else 3
    specs = [
        ("time_s", Column("step", "s", 0, "time_s")),
        ("time_s_low", Column("step low", "s", step_band, "time_s_low", "time_s")),
        ("time_s_high", Column("step high", "s", step_band, "time_s_high", "time_s")),
        ("speedup", Column("S", "x", 5, "speedup")),
        ("efficiency", Column("E", "%", 0, "efficiency")),
        ("mfu", Column("MFU", "%", 1, "mfu")),
        ("run.time_s", Column("run", "s", 1, "run_time_s")),
        ("run.time_s_low", Column("low", "s", 3, "run_time_s_low", "run_time_s")),
        ("run.time_s_high", Column("high", "s", 3, "run_time_s_high", "run_time_s")),
        ("cost_usd", Column("cost", "USD", 1, "cost_usd")),
        ("cost_usd_low", Column("low", "USD", 3, "cost_usd_low", "cost_usd")),
        ("cost_usd_high", Column("high", "USD", 3, "cost_usd_high", "cost_usd")),
        ("run.deadline_probability", Column("in time", "%", 2, "deadline_probability")),
        ("run.budget_probability", Column("in budget", "%", 2, "budget_probability")),
        ("memory_bytes", Column("memory", "B", 5, "memory_bytes")),
        ("memory_bytes_low", Column("memory low", "B", 8, "memory_bytes_low", "memory_bytes")),
        ("memory_bytes_high", Column("memory high", "B", 8, "memory_bytes_high", "memory_bytes")),
        ("tokens_per_s_per_accelerator", Column("tokens/s each", "", 6, "tokens_per_s_per_accelerator")),
        (
            "samples_per_s_per_accelerator",
            Column(f"{sample}s/s each", "", 7, "samples_per_s_per_accelerator"),
        ),
        ("tflop_per_s_per_accelerator", Column("TFLOP/s each", "", 7, "tflop_per_s_per_accelerator")),
        ("throughput", Column(f"{sample}s/s", "", 7, "throughput")),
        ("run.cost_usd", Column("run cost", "USD", 8, "run_cost_usd")),
        ("run.cost_usd_low", Column("run cost low", "USD", 8, "run_cost_usd_low", "run_cost_usd")),
        ("run.cost_usd_high", Column("run cost high", "USD", 8, "run_cost_usd_high", "run_cost_usd")),
        ("work_per_usd", Column(f"{sample}s per USD", "", 7, "work_per_usd")),
        ("energy_j", Column("energy", "J", 7, "energy_j")),
        ("carbon_g", Column("CO2", "g", 8, "carbon_g")),
    ]
    flat = {**result, **{f"run.{key}": values for key, values in run.items()}}
    always = {
        "time_s",
        "time_s_low",
        "time_s_high",
        "speedup",
        "efficiency",
        "throughput",
        "memory_bytes",
        "cost_usd",
    }
    always |= {"energy_j", "carbon_g", "mfu"}
    specs = [
        (key, column)
        for key, column in specs
        if key in always or any(v is not None for v in common.array(flat, key, n))
    ]
    arrays = [common.array(flat, key, n) for key, _ in specs]
    layouts = [common.layout_text(item) for item in common.array(result, "layout", n)]
    reasons = common.array(result, "reason", n)
    columns = [Column("K", "", 0, "k"), *(c for _, c in specs)]
    rows: list[list[Cell]] = [[ks[i], *(values[i] for values in arrays)] for i in range(n)]
    if any(layouts):
        columns.append(Column("layout", "", 4, "layout"))
        rows = [[*row, layout or None] for row, layout in zip(rows, layouts, strict=True)]
    if any(reasons):
        columns.append(Column("reason", "", 9, "reason"))
        rows = [[*row, reason] for row, reason in zip(rows, reasons, strict=True)]
    for key, column in _BANDS:
        ends = common.array(result, key, n)
        if any(value is not None for value in ends):
            columns.append(column)
            rows = [[*row, value] for row, value in zip(rows, ends, strict=True)]
    chosen = {mapping(result.get("p_star")).get("k"), (knees(result).get("threshold") or {}).get("k")}
    marked = tuple(i for i, k in enumerate(ks) if k in chosen)
    note = "Bands are 90 %. Each: of one accelerator." if "mfu" in flat else "Bands are 90 %."
    if (base := result.get("baseline_k")) is not None:
        at = common.layout_text(common.at(result, "layout", base))
        note += f" S and E count from K = {base}{f' as {at}' if at else ''}."
    note += f" {FEWER_LAYOUTS}" if is_auto and any(layouts) else ""
    return Table("Curve", columns, rows, note=note, role="curve", marked=marked)


def _parts(result: Mapping[str, object]) -> list[Table]:
    return _by_k(result, "parts_s", "Step time by part", "The parts add up to the step time.", "breakdown")


def _ledger(result: Mapping[str, object]) -> list[Table]:
    note = "Accelerator-seconds a step that each part costs beyond the baseline; they add up to the loss."
    return _by_k(result, "ledger_accelerator_s", "Lost accelerator time", note, "detail")


def _by_k(result: Mapping[str, object], key: str, heading: str, note: str, role: Role) -> list[Table]:
    parts = mapping(result.get(key))
    ks = listed(result.get("k"))

    def weight(name: str) -> float:
        return max((abs(float(v)) for v in common.array(parts, name, len(ks)) if v is not None), default=0.0)

    # A rounded maximum leaves a trace of every part, where nothing is spent too.
    least = LEAST_PART * max(map(weight, parts), default=0.0)
    names = [name for name in parts if weight(name) > least]
    if not names:
        return []
    order = sorted(names, key=weight, reverse=True)
    columns = [Column("K", "", 0, "k")]
    columns += [Column(name.replace("_", " "), "s", order.index(name), f"{name}_s") for name in names]
    rows = [[ks[i], *(common.array(parts, name, len(ks))[i] for name in names)] for i in range(len(ks))]
    return [Table(heading, columns, rows, note=note, role=role)]


def _largest_timed(result: Mapping[str, object]) -> object:
    """The K at which the sensitivities are taken: the largest that can run."""
    ks = listed(result.get("k"))
    times = common.array(result, "time_s", len(ks))
    return max((k for k, time_s in zip(ks, times, strict=True) if time_s is not None), default=None)


def _marks(result: Mapping[str, object]) -> list[Mark]:
    marks = []
    knee = knees(result).get("threshold") or {}
    if knee.get("k") is not None:
        marks.append(Mark("knee", float(knee["k"]), common.at(result, "speedup", knee["k"]), "point"))
    for key, label in (("p_star", "p*"), ("fastest", "fastest")):
        k = mapping(result.get(key)).get("k")
        if k is not None:
            marks.append(Mark(label, float(k), common.at(result, "speedup", k), "point"))
    return marks


def _measured(result: Mapping[str, object]) -> Series | None:
    points = [p for p in mappings(result.get("measured")) if p.get("time_s")]
    base = result.get("baseline_k") or 1
    start = common.at(result, "time_s", base)
    if not points or not start:
        return None
    k = [float(p["k"]) for p in points]
    weak = result.get("regime") == "weak"
    y = [(n if weak else base) * start / float(p["time_s"]) for n, p in zip(k, points, strict=True)]
    return Series("measured", k, y, style="dots")


def _speedup_band(result: Mapping[str, object], n: int) -> tuple[list[float | None], list[float | None]]:
    """The band of S: the one given, else the time band carried over at the speedup drawn."""
    if result.get("speedup_low") and result.get("speedup_high"):
        return common.array(result, "speedup_low", n), common.array(result, "speedup_high", n)
    speedup, time = common.array(result, "speedup", n), common.array(result, "time_s", n)

    def turn(key: str) -> list[float | None]:
        edges = common.array(result, key, n)
        return [s * t / e if s and t and e else None for s, t, e in zip(speedup, time, edges, strict=True)]

    return turn("time_s_high"), turn("time_s_low")


def _threshold(result: Mapping[str, object]) -> float:
    knee = knees(result).get("threshold") or {}
    value = knee.get("value", knee.get("threshold", 0.7))
    return float(value) if isinstance(value, (int, float)) else 0.7


def _span(knee: Mapping[str, object], before: str = "") -> str:
    low, high = knee.get("k_low"), knee.get("k_high")
    if low is None or high is None or low == high:
        return ""
    return f"{before}{low}-{high}; " if before else f" (band {low}-{high})"


def _ends(result: Mapping[str, object], p_star: Mapping[str, object], fastest: Mapping[str, object]) -> str:
    of = " a step" if result.get("cost_basis") == "one step" else ""
    cost = _cost(p_star, of) if p_star.get("cost_usd") is not None else "price unknown"
    t0, t1 = (common.at(result, "time_s", point["k"]) for point in (p_star, fastest))
    if len(_timed(result)) == 1:
        ends = (common.at(result, f"time_s_{end}", fastest["k"]) for end in ("low", "high"))
        low, high = (text.quantity(end, "s", t1) for end in ends)
        only = "Only " if len(listed(result.get("k"))) > 1 else ""
        fits = "fits: " if only else "takes "
        spent = f" and costs {cost}" if p_star.get("cost_usd") is not None else f", {cost}"
        return f"{only}K = {fastest['k']} {fits}{text.quantity(t1, 's')} a step ({low} to {high}){spent}."
    if p_star["k"] == fastest["k"]:
        times = [time for time in listed(result.get("time_s")) if time]
        quicker = result.get("regime") != "weak" and t1 is not None and any(time < t1 for time in times)
        step = text.quantity(t1, "s") + (" a step, with all interruptions" if quicker else " a step")
        return f"K = {p_star['k']} is both the cheapest ({cost}) and the fastest ({step})."
    sentence = f"Cheapest is K = {p_star['k']} ({cost}), fastest is K = {fastest['k']}"
    c0, c1 = amount(p_star, "cost_usd"), amount(fastest, "cost_usd")
    r0, r1 = (common.at(result, "throughput", point["k"]) for point in (p_star, fastest))
    speed = mapping(result.get("exchange")).get("times_faster")  # of the run, interruptions included
    if speed is None:
        speed = r1 / r0 if r0 and r1 else t0 / t1 if t0 and t1 else None
    if c0 and c1 and speed:
        sentence += f": {text.quantity(c1 / c0, 'x')} the cost for {text.quantity(speed, 'x')} the speed"
    return sentence + "."


def _cost(point: Mapping[str, object], of: str = "") -> str:
    """What a choice costs, with its band where the result has one."""
    cost, least, most = (
        text.quantity(amount(point, f"cost_usd{end}"), "USD") for end in ("", "_low", "_high")
    )
    if point.get("cost_usd_low") is None or least == most:
        return f"{cost}{of}"
    return f"{cost}{of}, band {least.removesuffix(' USD')} to {most.removesuffix(' USD')}"


def _basis(value: object) -> str:
    """What the cost is for, with the thousands of its steps apart."""
    words = str(value).replace("_", " ").split() if value else []
    return " ".join(f"{int(word):,}" if word.isdecimal() else word for word in words)
