"""Reading helpers that several kinds share. They tolerate what an envelope leaves out; they compute no result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.report.model import (
    Cell,
    Chart,
    Column,
    Envelope,
    Mark,
    Series,
    Table,
    amount,
    inputs_of,
    listed,
    mappings,
    result_of,
)
from perfmodel.specs.layout import layout_words

WEAK_SCALING = "Weak scaling"  # the chart that stands in the place of the speedup
KNEE_RULES = {
    "threshold": "knee by efficiency",
    "curvature": "knee by curvature",
    "marginal": "knee by marginal cost",
}


def name_of(value: object) -> str:
    """The name that an input goes by: itself when it is text, else its `name`, or that of its `file` without folders."""
    if isinstance(value, Mapping):
        for key in ("name", "title", "file", "path", "vendor"):
            found = value.get(key)
            if isinstance(found, str):
                return found.replace("\\", "/").rpartition("/")[2] if key in ("file", "path") else found
        return ""
    return value if isinstance(value, str) else ""


def subject(envelope: Envelope) -> str:
    """ "workload on cluster" from the inputs, at top level or inside `job`."""
    inputs = inputs_of(envelope)
    job = inputs.get("job")
    places = [inputs, job] if isinstance(job, Mapping) else [inputs]
    found = {}
    for key in ("workload", "cluster"):
        found[key] = next((n for place in places if (n := name_of(place.get(key)))), "")
    text = " on ".join(part for part in (found["workload"], found["cluster"]) if part)
    return text or name_of(job) or name_of(inputs)


STRAIGHT = 0.5  # of the ideal: where nothing is below it a speedup on log axes looks like the ideal line


def curves(result: Mapping[str, Any]) -> list[str]:
    """The speedup and the efficiency, first the one that shows more."""
    known = [e for e in result.get("efficiency") or () if isinstance(e, (int, float))]
    names = ["speedup", "efficiency"]
    return names[::-1] if known and min(known) >= STRAIGHT else names


def setting(envelope: Envelope, key: str) -> object:
    """A setting from the result, the inputs or the job, whichever has it."""
    inputs = inputs_of(envelope)
    job = inputs.get("job")
    for place in (result_of(envelope), inputs, job if isinstance(job, Mapping) else {}):
        if place.get(key) is not None:
            return place[key]
    return None


def sample_of(envelope: Envelope) -> str:
    """What the batch counts, by the workload's word: a sequence, an image."""
    inputs = inputs_of(envelope)
    job = inputs.get("job")
    for place in (inputs, job if isinstance(job, Mapping) else {}):
        workload = place.get("workload")
        if isinstance(workload, Mapping) and isinstance(workload.get("sample"), str):
            return str(workload["sample"])
    return "sample"


def array(result: Mapping[str, object], key: str, length: int) -> list[Any]:
    """An aligned array, filled with None where the result has none."""
    value = result.get(key)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [*value[:length], *([None] * (length - len(value)))]
    return [None] * length


def weak_chart(
    curves: Sequence[Series],
    k: Sequence[float],
    alt: str,
    marks: Sequence[Mark] = (),
    floor: float | None = None,
    ratio: str = "T(K0) / T(K)",
) -> Chart:
    """Weak scaling as it is drawn everywhere: curves of T(K0)/T(K) against a flat one."""
    flat = Series("ideal: flat", k, [1.0] * len(k), style="dashed")
    return Chart(WEAK_SCALING, "K", ratio, [*curves, flat], alt=alt, marks=marks, floor=floor)


def at(result: Mapping[str, object], key: str, k: object) -> Any:
    """The entry of an array that belongs to one K."""
    ks = listed(result.get("k"))
    if k not in ks:
        return None
    return array(result, key, len(ks))[ks.index(k)]


def layout_text(layout: object) -> str:
    """A layout in a few characters; what an older file holds in its place as it stands."""
    return layout_words(layout) if isinstance(layout, Mapping) else str(layout or "")


def assumptions(result: Mapping[str, object]) -> list[Table]:
    """What the result rests on: value, confidence, source and date of each input."""
    rests = result.get("rests_on")
    if not isinstance(rests, Mapping) or not rests:
        return []
    rows: list[tuple[Cell, ...]] = []
    for name, item in rests.items():
        if isinstance(item, Mapping):
            value = item.get("value")
            shown = value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
            rows.append(
                (
                    str(name),
                    shown,
                    str(item.get("confidence") or ""),
                    str(item.get("source") or ""),
                    str(item.get("date") or ""),
                )
            )
        elif isinstance(item, (list, tuple)):
            rows.append((", ".join(str(x) for x in item), None, str(name), "", ""))
        else:
            rows.append((str(name), None, str(item), "", ""))
    columns = [
        Column("input", "", 0),
        Column("value"),
        Column("confidence", "", 0),
        Column("source"),
        Column("date"),
    ]
    while len(columns) > 3 and not any(row[len(columns) - 1] for row in rows):  # nothing to say there
        columns.pop()
    return [Table("Assumptions and what they rest on", columns, rows, role="assumptions")]


def sensitivity(result: Mapping[str, object], at_k: object = None) -> list[Table]:
    """How the step time, at one K of a curve, answers to each input, largest first."""
    rows = mappings(result.get("sensitivity"))
    if not rows:
        return []

    def size(row: Mapping[str, object]) -> float:
        return max((abs(amount(row, key) or 0.0) for key in ("low", "high")), default=0.0)

    rows.sort(key=size, reverse=True)
    columns = [
        Column("input", "", 0),
        Column("change of input", "%"),
        Column("time, low", "%", unit_of="time, low"),
        Column("time, high", "%", unit_of="time, low"),
    ]
    cells = [
        (str(row.get("meaning") or row.get("input")), row.get("change"), row.get("low"), row.get("high"))
        for row in rows
    ]
    where = "" if at_k is None else f" at K = {at_k}"
    usual = f"Change of the step time{where} when one input moves down and up."
    note = str(result.get("sensitivity_note") or usual)
    return [Table("Sensitivity", columns, cells, note=note, role="sensitivity")]


def ladder(result: Mapping[str, object]) -> list[Table]:
    """What each step to the next K brings and costs for the same work; none without a price."""
    steps = [s for s in mappings(result.get("marginal")) if s.get("cost_usd") is not None]
    if not steps:
        return []
    columns = [
        Column("step", "", 0), Column("more S", "x", 0), Column("more cost, same work", "USD", 0), Column("S per USD", "", 0),
        Column("note", "", 2),
    ]  # fmt: skip
    keys = ("step", "speedup", "cost_usd", "speedup_per_usd", "note")
    rows: list[list[Cell]] = [[step.get(key) for key in keys] for step in steps]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return [Table("Marginal ladder", columns, rows, role="breakdown")]


def limits(result: Mapping[str, object]) -> list[Table]:
    """What is not modelled, and which way leaving it out biases the answer."""
    rows = mappings(result.get("not_modelled"))
    if not rows:
        return []
    cells = [(str(row.get("effect") or row.get("name") or ""), str(row.get("bias") or "")) for row in rows]
    return [
        Table(
            "Not modelled",
            (Column("effect", "", 0), Column("bias of the answer", "", 0)),
            cells,
            role="limits",
        )
    ]


def largest(parts: Mapping[str, object], n: int, most: int = 7) -> dict[str, list[float | None]]:
    """The parts that matter at some K, in their order; what is beyond `most` becomes `other`.

    >>> largest({"a": [8, 8], "b": [1, 0], "c": [0, 1], "d": [0, 0]}, 2, most=1)
    {'a': [8, 8], 'other': [1.0, 1.0]}
    """
    found: dict[str, list[float | None]] = {str(name): array(parts, name, n) for name in parts}
    found = {name: values for name, values in found.items() if any(values)}
    if len(found) <= most + 1:
        return found
    totals = [sum(values[i] or 0.0 for values in found.values()) or 1.0 for i in range(n)]

    def reach(name: str) -> float:
        return max((value or 0.0) / total for value, total in zip(found[name], totals, strict=True))

    kept = sorted(found, key=reach, reverse=True)[:most]
    rest = [values for name, values in found.items() if name not in kept]
    shown = {name: values for name, values in found.items() if name in kept}
    return shown | {"other": [sum(values[i] or 0.0 for values in rest) for i in range(n)]}


def boundaries(result: Mapping[str, object]) -> list[Mark]:
    """Where a node, a leaf or a rack is full."""
    marks = []
    for item in listed(result.get("boundaries")):
        if isinstance(item, Mapping) and isinstance(item.get("k"), (int, float)):
            label = str(item.get("name") or item.get("label") or "boundary")
            marks.append(Mark(label, float(item["k"]), style="boundary"))
    return marks


def answer(envelope: Envelope) -> str:
    """The result's own sentence."""
    return str(result_of(envelope).get("answer") or "")


def notes(envelope: Envelope) -> list[str]:
    """The notes and warnings of the result."""
    return notes_of(result_of(envelope))


def notes_of(result: Mapping[str, object]) -> list[str]:
    """The result's own notes and warnings."""
    found = []
    for key in ("notes", "warnings"):
        value = result.get(key)
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, Sequence):
            found.extend(str(item) for item in value)
    return found
