"""A predicted service: its knee with the cause, the curve over load, the parts of a step, the fleet."""

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
    Mark,
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
from perfmodel.units import counted

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
LOADS = {"rate": "requests/s", "concurrency": "requests in flight", "offline": "requests"}
_LOAD_KEYS = {"rate": "rate_per_s", "concurrency": "concurrency", "offline": "requests"}
_ROWS = 4  # loads whose parts are shown; all of them are in the JSON
_LEAST = 1e-3  # of a step: a smaller part has no column


def title(envelope: Envelope) -> str:
    """Model, cluster, precision, layout and engine."""
    result = result_of(envelope)
    words = [common.subject(envelope) or "A service"]
    words.append(str(result.get("precision") or ""))
    words.append(layout_text(mapping(result.get("layout"))))
    engine = str(result.get("engine") or "")
    words.append(engine if engine != "unknown" else "")
    return ", ".join(word for word in words if word)


def layout_text(layout: dict[str, object]) -> str:
    """A layout in a few characters.

    >>> layout_text({"tp": 8, "pp": 1, "ep": 1, "dp": 1, "replicas": 2})
    'tp8, 2 replicas'
    >>> layout_text({"tp": 8, "prefill": {"tp": 4}, "prefill_replicas": 2, "decode_replicas": 1})
    '2 x tp4 prefill + 1 x tp8 decode'
    """
    shown = [f"{key}{layout[key]}" for key in ("tp", "pp", "dp", "ep") if layout.get(key, 1) != 1]
    words, what = " ".join(shown or ["tp1"]), "replicas"
    if layout.get("prefill"):
        prefill = layout_text(mapping(layout["prefill"]))
        words = (
            f"{layout['prefill_replicas']} x {prefill} prefill + {layout['decode_replicas']} x {words} decode"
        )
        what = "groups"
    replicas = layout.get("replicas", 1)
    return words + (f", {replicas} {what}" if replicas != 1 else "")


def answer(envelope: Envelope) -> str:
    """Up to which load the objectives hold and why no further, the price there, and the fleet for a demand."""
    result = result_of(envelope)
    kind = str(result.get("load_kind"))
    if not any(result.get("stable") or [True]):
        reasons = sorted({str(reason) for reason in result.get("reason") or () if reason})
        return f"Nothing is steady: {'; '.join(reasons)}."
    words = []
    if kind == "offline":
        out, low, high = (
            _first(result, f"throughput_out_tokens_per_s{end}") for end in ("", "_low", "_high")
        )
        words.append(f"Makes {_count(out)} output tokens/s ({_count(low)} to {_count(high)}).")
    knee = mapping(mapping(result.get("knee")).get("slo"))
    fleet = mapping(result.get("fleet"))
    if result.get("slo"):
        words.append(_knee(knee, kind, _one(result) if fleet else ""))
    elif kind == "rate":
        full = mapping(result.get("saturation"))
        words.append(
            f"Saturates at {_count(full.get('requests_per_s'))} requests/s"
            f" ({_count(full.get('low'))} to {_count(full.get('high'))})."
        )
    elif kind == "concurrency":
        loads = result.get("load") or [None]
        words.append(
            f"{_count(_last(result, 'throughput_out_tokens_per_s'))} output tokens/s at {_count(loads[-1])} in flight."
        )
    words.extend(_fleet(result, fleet))
    cost = _last(result, "usd_per_million_tokens")
    if not fleet and cost is not None:
        words.append(f"{text.quantity(cost, 'USD')} per million output tokens at the largest steady load.")
    told = " ".join(words)
    return told.replace("output tokens", "answers") if result.get("is_one_pass") else told


def _knee(knee: dict[str, object], kind: str, one: str) -> str:
    unit = LOADS[kind] + (f" a {one}" if one else "")
    if knee.get("load") is None:
        cause = str(knee.get("cause") or "")
        return (
            f"{cause[:1].upper()}{cause[1:]}."
            if cause.startswith("every")
            else f"Keeps the slo at no load: {cause}."
        )
    low, high = knee.get("low"), knee.get("high")
    band = f" (90 % band {_count(low) if low is not None else 'none'} to {_count(high) if high is not None else 'more'})"
    words = f"Keeps the slo up to {_count(knee['load'])} {unit}{band}; then {knee.get('cause')}."
    if knee.get("remedy"):
        after = knee.get("load_after_remedy")
        gain = f"{_count(after)} {unit}" if after is not None else "still none"
        words += f" With {knee['remedy']}: {gain}." if after is not None else ""
    return words


def _fleet(result: Mapping[str, object], fleet: Mapping[str, object]) -> list[str]:
    if not fleet:
        return []
    if result.get("replicas") is None:
        return [str(fleet.get("reason") or "")[:1].upper() + str(fleet.get("reason") or "")[1:] + "."]
    low, high = result.get("replicas_low"), result.get("replicas_high")
    band = f" ({low if low is not None else 'fewer'} to {high if high is not None else 'no number'})"
    spare = result.get("spare") or 0
    beside = f" and {spare} to spare" if spare else ""
    one = _one(result)
    words = (
        f"{_count(fleet.get('demand_per_s'))} requests/s need {counted(int(amount(result, 'replicas') or 0), one, f'{one}s')}{band}{beside}: "
        f"{result.get('accelerators')} accelerators"
    )
    cost = amount(fleet, "usd_per_h")
    if cost is not None:
        words += f", {text.quantity(cost, 'USD')} an hour, {text.quantity(amount(fleet, 'usd_per_million_tokens'), 'USD')} per million output tokens"
    balancer = fleet.get("balancer")
    if balancer not in (None, "random"):
        words += f". Dealt {'to the least loaded' if balancer == 'least loaded' else balancer}, a {one} keeps the slo up to {_count(fleet.get('knee_per_replica_per_s'))} requests/s"
    return [words + ".", *_by_day(mapping(fleet.get("day")), one)]


def _by_day(day: dict[str, Any], one: str) -> list[str]:
    """What the fleet costs where it follows its demand."""
    if not day or day.get("usd_per_day") is None:
        return []
    base, peak = int(day["base_replicas"]), int(max(day["replicas"]))
    words = f"Over the day {counted(base, one, f'{one}s')} {'is' if base == 1 else 'are'} always there"
    words += f" and up to {peak - base} rented" if peak > base else ""
    words += f": {text.quantity(day['usd_per_day'], 'USD')} a day, {text.quantity(day['usd_per_million_tokens'], 'USD')} per million output tokens"
    return [f"{words}; the peak's fleet all day: {text.quantity(day['usd_per_day_all_base'], 'USD')}."]


def _one(result: Mapping[str, object]) -> str:
    """What answers a request: a replica, or a group of two pools."""
    return "group" if result.get("pools") else "replica"


def _count(value: object) -> str:
    return text.number(float(value)) if isinstance(value, (int, float)) else text.MISSING


def _first(result: Mapping[str, object], key: str) -> Cell:
    return as_cell(next(iter(listed(result.get(key))), None))


def _last(result: Mapping[str, object], key: str) -> Cell:
    known = [value for value in listed(result.get(key)) if value is not None]
    return as_cell(known[-1]) if known else None


def tables(envelope: Envelope) -> list[Table]:
    """The curve, the parts of a step, the fleet, and what it rests on."""
    result = result_of(envelope)
    return [
        *_knees(result),
        curve(result),
        *_parts(result),
        *_pools(result),
        *_fleet_table(result),
        *common.assumptions(result),
        *_narrow(result),
    ]


def _bounded(
    result: Mapping[str, object], quantity: str, statistic: str, end: str = ""
) -> list[float | None]:
    n = len(listed(result.get("load")))
    return common.array(mapping(result.get(f"{quantity}_s")), f"{statistic}{end}", n)


def data(envelope: Envelope) -> Table:
    """A row a load with everything, for programs."""
    return curve(result_of(envelope), whole=True)


def curve(result: Mapping[str, object], *, whole: bool = False) -> Table:
    """A row a load: what the objectives name with its bands, or the `whole` of it."""
    loads = listed(result.get("load"))
    kind = str(result.get("load_kind"))
    columns: list[Column] = [Column(LOADS.get(kind, "load"), "", 0, _LOAD_KEYS.get(kind, "load"))]
    values: list[Sequence[object]] = [loads]

    def add(column: Column, found: Sequence[object]) -> None:
        if any(value is not None for value in found):
            columns.append(column)
            values.append(found)

    n, one_pass = len(loads), bool(result.get("is_one_pass"))
    add(
        Column("answers/s" if one_pass else "out tokens/s", "", 0, "throughput_out_tokens_per_s"),
        common.array(result, "throughput_out_tokens_per_s", n),
    )
    if kind != "rate":
        for end in ("low", "high"):
            key = f"throughput_out_tokens_per_s_{end}"
            add(Column(end, "", 2, key), common.array(result, key, n))
    shown = {(q, s) for q, s in (("ttft", "mean"), ("ttft", "p99"), ("tpot", "mean"), ("tpot", "p99"))}
    if one_pass:
        shown = {("e2e", "mean"), ("e2e", "p99")}
    asked = {(str(i.get("quantity")), str(i.get("statistic"))) for i in mappings(result.get("slo"))}
    for quantity, name in NAMES.items():
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            at_once = (quantity, statistic) in (asked or shown)
            if not (at_once or whole):
                continue
            priority = 0
            key = f"{quantity}_{statistic}"
            add(
                Column(f"{name} {statistic}", "s", priority, f"{key}_s"),
                _bounded(result, quantity, statistic),
            )
            for end in ("low", "high"):
                band = Column(end, "s", 1, f"{key}_s_{end}", unit_of=f"{key}_s")
                add(band, _bounded(result, quantity, statistic, f"_{end}"))
    add(
        Column("tokens/s a user", "", 3, "tokens_per_s_per_user"),
        common.array(result, "tokens_per_s_per_user", n),
    )
    add(Column("batch", "", 2, "batch"), common.array(result, "batch", n))
    if not one_pass or whole:
        add(Column("KV memory", "%", 2, "kv_share"), common.array(result, "kv_share", n))
    add(
        Column("USD/M" if one_pass else "USD/Mtok", "", 0, "usd_per_million_tokens"),
        common.array(result, "usd_per_million_tokens", n),
    )
    add(Column("MJ/M" if one_pass else "MJ/Mtok", "", 3, "mj_per_million_tokens"), [
        None if value is None else value / 1e6 for value in common.array(result, "j_per_million_tokens", n)
    ])  # fmt: skip
    if any(value is not None for value in listed(result.get("within_slo"))):
        add(Column("slo", "", 0, "within_slo"), common.array(result, "within_slo", n))
    rows: list[list[Cell]] = [[as_cell(value[i]) for value in values] for i in range(n)]
    kept = [i for i, one in enumerate(listed(result.get("within_slo"))) if one]
    return Table("The service over load", columns, rows, role="curve", marked=tuple(kept[-1:]))


def _knees(result: dict[str, object]) -> list[Table]:
    rows: list[list[Cell]] = []
    for rule, item in mapping(result.get("knee")).items():
        knee = mapping(item)
        rows.append([rule, as_cell(knee.get("load")), as_cell(knee.get("low")), as_cell(knee.get("high")), str(knee.get("cause") or ""),
                     str(knee.get("remedy") or ""), as_cell(knee.get("load_after_remedy"))])  # fmt: skip
    columns = [Column("knee", "", 0), Column("load", "", 0), Column("low"), Column("high"), Column("cause", "", 0), Column("remedy", "", 2),
               Column("load then", "", 2)]  # fmt: skip
    return [Table("Knees", columns, rows, role="detail")] if rows else []


def _parts(result: Mapping[str, object]) -> list[Table]:
    loads = listed(result.get("load"))
    parts = {
        name: common.array(mapping(result.get("parts_s")), name, len(loads))
        for name in mapping(result.get("parts_s"))
    }
    steps = common.array(result, "step_s", len(loads))
    shown = {
        name: values
        for name, values in parts.items()
        if any(v is not None and step and v > _LEAST * step for v, step in zip(values, steps, strict=True))
    }
    if not shown:
        return []
    kind = str(result.get("load_kind"))
    columns = [Column(LOADS.get(kind, "load"), "", 0), Column("step", "s", 0, "step_s")]
    one_pass = bool(result.get("is_one_pass"))
    columns += [Column(part_name(name, one_pass), "s", 1, f"{name}_s", unit_of="step_s") for name in shown]
    known = [i for i in range(len(loads)) if steps[i] is not None]
    some = (
        [known[round(place * (len(known) - 1) / (_ROWS - 1))] for place in range(_ROWS)]
        if len(known) > _ROWS
        else known
    )
    rows: list[list[Cell]] = [
        [as_cell(loads[i]), as_cell(steps[i]), *(as_cell(values[i]) for values in shown.values())]
        for i in some
    ]
    title = "The mean batch, by part" if one_pass else "The mean step between two tokens, by part"
    return [Table(title, columns, rows, role="breakdown")]


def part_name(name: str, one_pass: bool) -> str:
    """A part of a step in words."""
    return "attention and activations" if one_pass and name == "prompt_attention" else name.replace("_", " ")


def _pools(result: Mapping[str, object]) -> list[Table]:
    """Both pools and the link between them: what they hold, and how busy they are at the largest steady load."""
    pools = mapping(result.get("pools"))
    if not pools:
        return []
    link = mapping(pools.get("link"))
    rows: list[list[Cell]] = []
    for name in ("prefill", "decode", "link"):
        pool = mapping(pools.get(name))
        busy = [one for one in pool.get("busy") or () if one is not None]
        rows.append([name, as_cell(pool.get("replicas")), as_cell(pool.get("accelerators")),
                     as_cell(pool.get("most_requests_per_s")), as_cell(busy[-1] if busy else None)])  # fmt: skip
    note = (
        f"keys and values of a mean prompt: {text.quantity(link.get('bytes_per_request'), 'B')}, {text.quantity(link.get('seconds'), 's')}"
        f" over {'scale-up links' if link.get('is_scale_up') else 'the network'}"
    )
    columns = [Column("a group's", "", 0), Column("replicas", "", 0), Column("accelerators", "", 0), Column("most requests/s", "", 0),
               Column("busy at most", "%", 0)]  # fmt: skip
    return [Table("The two pools", columns, rows, role="decision", note=note)]


def _fleet_table(result: dict[str, object]) -> list[Table]:
    fleet = mapping(result.get("fleet"))
    if not fleet or result.get("replicas") is None:
        return []
    rows: list[list[Cell]] = [
        [f"requests/s of a {_one(result)}", as_cell(fleet.get("rate_per_replica_per_s"))],
        ["share of its saturation", text.quantity(fleet.get("load_of_saturation"), "%")],
        ["headroom to the knee", text.quantity(fleet.get("headroom"), "%")],
        ["headroom with spares", text.quantity(fleet.get("with_spares_headroom"), "%")],
    ]
    failing = mapping(fleet.get("failures"))
    if failing:
        below = text.number(float(failing["hours_below_a_year"]))
        rows.append(
            [
                "time with enough replicas",
                f"{100.0 * float(failing['availability']):.6g} % (too few for {below} h a year)",
            ]
        )
    for item in mappings(result.get("slo")):
        q, s = str(item.get("quantity")), str(item.get("statistic"))
        value = mapping(fleet.get(f"{q}_s")).get(s)
        rows.append(
            [f"{NAMES[q]} {s}, limit {text.quantity(item.get('limit_s'), 's')}", text.quantity(value, "s")]
        )
    return [
        Table("The fleet", [Column("what", "", 0), Column("value", "", 0)], rows, role="decision"),
        *_widths(fleet),
        *_day(mapping(fleet.get("day"))),
    ]


def _widths(fleet: dict[str, object]) -> list[Table]:
    """Wider replicas against more of them."""
    keys = ("tp", "knee_requests_per_s", "replicas", "accelerators", "usd_per_h")
    rows: list[list[Cell]] = [
        [as_cell(item.get(key)) for key in keys] for item in mappings(fleet.get("widths"))
    ]
    columns = [Column("tp", "", 0), Column("knee of one [requests/s]", "", 0), Column("replicas", "", 0),
               Column("accelerators, spares too", "", 0), Column("USD/h", "", 0)]  # fmt: skip
    return (
        [Table("Scale up or scale out: wider replicas or more of them", columns, rows, role="detail")]
        if rows
        else []
    )


def _day(day: dict[str, Any]) -> list[Table]:
    """The fleet over a day: every time at which its size changes."""
    if not day:
        return []
    hours, rates, needed, rented = (
        list(day[key]) for key in ("hour", "rate_per_s", "replicas", "rented_replicas")
    )
    changes = [i for i in range(len(hours)) if i == 0 or needed[i] != needed[i - 1]]
    ends = [*changes[1:], len(hours)]
    rows: list[list[Cell]] = [
        [f"{_clock(hours[first])} to {_clock(hours[last] if last < len(hours) else 24.0)}", as_cell(max(rates[first:last])),
         as_cell(needed[first]), as_cell(rented[first])]
        for first, last in zip(changes, ends, strict=True)
    ]  # fmt: skip
    columns = [
        Column("time", "", 0),
        Column("requests/s", "", 0),
        Column("replicas", "", 0),
        Column("of them rented", "", 0),
    ]
    return [Table("The fleet over a day, spares included", columns, rows, role="detail")]


def _clock(hour: float) -> str:
    minutes = round(hour * 60.0)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _narrow(result: dict[str, object]) -> list[Table]:
    rows: list[list[Cell]] = [
        [str(item.get("fact")), as_cell(item.get("half_width")), as_cell(item.get("half_width_after"))]
        for item in mappings(result.get("narrow"))
    ]
    columns = [Column("what is not known", "", 0), Column("band now", "%", 0), Column("without it", "%", 0)]
    how = next((str(item.get("how")) for item in mappings(result.get("narrow"))), "")
    return [Table("What would narrow the bands", columns, rows, role="detail", note=how)] if rows else []


def charts(envelope: Envelope) -> list[Chart]:
    """Latency against throughput, TTFT and TPOT over load, and the parts of a step."""
    result = result_of(envelope)
    loads = [float(load) for load in result.get("load") or ()]
    kind = str(result.get("load_kind"))
    if kind == "offline" or len(loads) < 2:
        return []
    unit = LOADS.get(kind, "load")
    knee = mapping(mapping(result.get("knee")).get("slo")).get("load")
    marks = [Mark("slo ends", float(knee))] if isinstance(knee, (int, float)) else []
    limits = {(str(i["quantity"]), str(i["statistic"])): i["limit_s"] for i in mappings(result.get("slo"))}
    found: list[Chart] = []
    for quantity in ("e2e",) if result.get("is_one_pass") else ("ttft", "tpot"):
        series = []
        for statistic in ("p99", "mean"):
            series.append(
                Series(statistic, loads, _bounded(result, quantity, statistic),
                       _bounded(result, quantity, statistic, "_low"), _bounded(result, quantity, statistic, "_high"))
            )  # fmt: skip
        series += [
            Series(f"limit of {s}", loads, [limit] * len(loads), style="dashed")
            for (q, s), limit in limits.items()
            if q == quantity
        ]
        found.append(
            Chart(f"{NAMES[quantity]} over load", unit, NAMES[quantity], series,
                  f"{NAMES[quantity]} with its 90 % band from the least to the largest steady load", y_log=True, y_quantity="s", marks=marks)
        )  # fmt: skip
    parts = mapping(result.get("parts_s"))
    steady = [i for i, step in enumerate(common.array(result, "step_s", len(loads))) if step is not None]
    if not steady:
        return []
    if not result.get("is_one_pass"):
        found.append(_exchange(result))
    found += _day_chart(mapping(mapping(result.get("fleet")).get("day")))
    layers = common.largest(
        {name: [common.array(parts, name, len(loads))[i] for i in steady] for name in parts}, len(steady)
    )
    found.append(
        Chart("The mean step by part", unit, "time of a step", [Series(name.replace("_", " "), [loads[i] for i in steady], values) for name, values in layers.items()],
              "Parts of a step stacked over the load", kind="stack", y_quantity="s")
    )  # fmt: skip
    return found


def _day_chart(day: dict[str, Any]) -> list[Chart]:
    """Replicas over a day, and those of them that are always there."""
    if not day:
        return []
    hours = [float(hour) for hour in day["hour"]]
    series = [
        Series("needed", hours, [float(one) for one in day["replicas"]]),
        Series("base, paid all day", hours, [float(day["base_replicas"])] * len(hours), style="dashed"),
    ]
    return [
        Chart("The fleet over a day", "hour", "replicas", series, "Replicas needed over a day beside those that are always there", x_log=False)
    ]  # fmt: skip


def _exchange(result: Mapping[str, object]) -> Chart:
    """Throughput an accelerator against the speed that one user sees."""
    per = common.array(
        mapping(result.get("per_accelerator")), "throughput_out_tokens_per_s", len(listed(result.get("load")))
    )
    users = common.array(result, "tokens_per_s_per_user", len(per))
    points = sorted((u, p) for u, p in zip(users, per, strict=True) if u is not None and p is not None)
    return Chart(
        "What a user sees against what an accelerator makes", "output tokens/s of a user", "output tokens/s of an accelerator",
        [Series("this service", [u for u, _ in points], [p for _, p in points])],
        "Throughput of an accelerator falls as each user is served quicker", x_log=False,
    )  # fmt: skip


def figures(envelope: Envelope) -> list[str]:
    """The plots that suit it."""
    result = result_of(envelope)
    if result.get("load_kind") == "offline":
        return ["serving_step"]
    found = (
        ["serving_load", "serving_step"]
        if result.get("is_one_pass")
        else ["serving", "serving_load", "serving_step"]
    )
    return [*found, "serving_day"] if mapping(mapping(result.get("fleet")).get("day")) else found


def notes(envelope: Envelope) -> list[str]:
    """What was assumed, and what is not steady."""
    result = result_of(envelope)
    found = common.notes_of(result)
    layout = mapping(result.get("layout"))
    if mapping(inputs_of(envelope).get("serving")).get("layout") is None and layout.get("how"):
        found.insert(0, f"layout {layout_text(layout)}: {layout['how']}")
    return found
