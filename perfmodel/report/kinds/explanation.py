"""Every term of the step at one K: formula, numbers, sources, share, sensitivity; and each collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.model import Cell, Column, Envelope, Table, as_cell, listed, mappings, result_of

FIRST_SCREEN = (60, ("Terms", "Collectives", "Memory of a device", "What the arithmetic is made of"))
MATTERS = 0.004  # slope from which an input is shown on a terminal
SHOWS = 1e-6  # share of the step from which a term is


def title(envelope: Envelope) -> str:
    """The job and K."""
    result = result_of(envelope)
    words = [f"{common.subject(envelope) or 'The step'} at K = {common.setting(envelope, 'k')}"]
    layout = common.layout_text(result.get("layout"))
    return ", ".join([*words, *([layout] if layout else [])])


def answer(envelope: Envelope) -> str:
    """The step time and its largest term."""
    result = result_of(envelope)
    if isinstance(result.get("answer"), str):
        return str(result["answer"])
    rows = terms(result)
    words = f"The step takes {text.quantity(result.get('time_s'), 's')}"
    shares = [row for row in rows if isinstance(row.get("share"), (int, float))]
    if shares:
        top = max(shares, key=lambda row: float(row["share"]))
        words += f"; {text.quantity(top['share'], '%')} of it is {top.get('name')}"
    return words + "."


def tables(envelope: Envelope) -> list[Table]:
    """Terms, what compute is made of, collectives, memory, formulas, inputs with sources."""
    result = result_of(envelope)
    found = [*_phases(result), *_collectives(result), *_memory(result)]
    found += [*_terms(envelope), *_inputs(terms(result))]
    return [*found, *common.assumptions(result), *common.sensitivity(result), *common.limits(result)]


def figures(envelope: Envelope) -> list[str]:
    """The step as one bar; the tornado when sensitivities are given."""
    result = result_of(envelope)
    return [*(["terms"] if terms(result) else []), *(["tornado"] if result.get("sensitivity") else [])]


def notes(envelope: Envelope) -> list[str]:
    """Inputs that fell back to a default."""
    result = result_of(envelope)
    defaults = [str(item) for item in result.get("defaults") or ()]
    found = [note for note in common.notes_of(result) if note not in defaults]
    absent = [_plain(row.get("name")) for row in terms(result) if not _shows(row)]
    if absent:
        found.append(f"Terms that do not show here: {', '.join(absent)}.")
    return [*found, *(f"Default: {item}." for item in defaults)]


def terms(result: Mapping[str, object]) -> list[dict[str, Any]]:
    """The terms, largest first."""
    rows = mappings(result.get("terms"))
    return sorted(rows, key=lambda row: -(row.get("time_s") or 0))


def _shows(row: Mapping[str, object]) -> bool:
    share = row.get("share")
    return row.get("time_s") != 0 and not (isinstance(share, (int, float)) and share < SHOWS)


def _plain(value: object) -> str:
    return str(value).replace("_", " ")


def data(envelope: Envelope) -> Table | None:
    """Terms with everything that stands in a line of its own: slopes and formula."""
    rows = [row for row in terms(result_of(envelope)) if _shows(row)]
    columns = [
        Column("term", "", 0, "term"),
        Column("time", "s", 0, "time_s"),
        Column("share", "%", 0, "share"),
        Column("answers most to", "", 1, "sensitivity"),
        Column("formula", "", 2, "formula"),
    ]
    cells: list[list[Cell]] = [
        [
            _plain(row.get("name")),
            row.get("time_s"),
            row.get("share"),
            _slopes(row.get("sensitivity")),
            as_cell(row.get("formula")),
        ]
        for row in rows
    ]
    note = "Behind an input stands its slope: per cent of the step for one per cent of the input."
    return Table("Terms", columns, cells, note=note, role="curve") if cells else None


def _terms(envelope: Envelope) -> list[Table]:
    """The terms, and their formulas apart: side by side they leave each other no room."""
    whole = data(envelope)
    if whole is None:
        return []
    columns = [whole.heads[0], whole.heads[-1]]
    cells = [[row[0], row[-1]] for row in whole.rows]
    note = "(x | y) is a rounded maximum."
    return [
        replace(whole, columns=whole.heads[:-1], rows=[row[:-1] for row in whole.rows]),
        Table("Formulas", columns, cells, note=note, role="breakdown"),
    ]


def _slopes(value: object) -> Cell:
    if not isinstance(value, Mapping):
        return as_cell(value)
    return ", ".join(f"{_plain(name)} {float(slope):+.2f}" for name, slope in value.items()) or None


def _phases(result: Mapping[str, object]) -> list[Table]:
    rows = mappings(result.get("phases"))
    columns = [Column("phase", "", 0), Column("time", "s", 0, "time_s"), Column("share", "%", 0, "share")]
    cells: list[list[Cell]] = [[str(row.get("name")), row.get("time_s"), row.get("share")] for row in rows]
    note = "The host works beside the device, and only the last stage of a pipeline has logits: neither is in every sum."
    return (
        [Table("What the arithmetic is made of", columns, cells, note=note, role="breakdown")]
        if cells
        else []
    )


def _collectives(result: Mapping[str, object]) -> list[Table]:
    rows = mappings(result.get("collectives"))
    if not rows:
        return []
    specs = [
        ("name", Column("collective", "", 0, "name")),
        ("operation", Column("operation", "", 6, "operation")),
        ("message_bytes", Column("message", "B", 2, "message_bytes")),
        ("ranks", Column("ranks", "", 2, "ranks")),
        ("nodes", Column("domains", "", 3, "nodes")),
        ("calls", Column("calls", "", 5, "calls")),
        ("time_s", Column("time", "s", 3, "time_s")),
        ("exposed_s", Column("shows", "s", 0, "exposed_s")),
        ("hidden_s", Column("hidden", "s", 1, "hidden_s")),
        ("link", Column("link", "", 4, "link")),
        ("bandwidth_bytes_per_s", Column("has", "B/s", 0, "bandwidth_bytes_per_s")),
        ("hidden_at_bytes_per_s", Column("fits from", "B/s", 0, "hidden_at_bytes_per_s")),
        ("negligible_at_bytes_per_s", Column("below 1 % from", "B/s", 0, "negligible_at_bytes_per_s")),
        ("why", Column("remark", "", 7, "why")),
    ]
    cells = [[as_cell(row.get(key)) for key, _ in specs] for row in rows]
    note = (
        "Bandwidths are datasheet figures per direction: of one accelerator for the scale-up link, of a whole node for "
        "the network; - where the accelerators' memory could not feed it. Has: today's. Fits from: the least at which it "
        "takes no longer than the arithmetic behind which it may run; what shows even then the framework does not overlap. "
        "Below 1 % from: the least at which what shows is less than 1 % of the step."
    )
    found = [Table("Collectives", [column for _, column in specs], cells, note=note, role="breakdown")]
    return found + _calls(rows)


def _calls(rows: list[dict[str, object]]) -> list[Table]:
    """One call of each collective: its algorithm and what its time is made of."""
    if not any(row.get("algorithm") for row in rows):
        return []
    columns = [
        Column("collective", "", 0, "name"),
        Column("algorithm", "", 0, "algorithm"),
        Column("message", "B", 1, "message_bytes"),
        Column("ranks", "", 1, "ranks"),
        Column("steps", "", 2, "steps"),
        Column("steps x alpha", "s", 0, "alpha_s"),
        Column("bytes x beta", "s", 0, "beta_s"),
        Column("gamma", "s", 3, "gamma_s"),
        Column("ring = tree at", "B", 1, "crossover_bytes"),
        Column("ahead beyond", "", 3, "beyond_crossover"),
    ]
    cells: list[list[Cell]] = [[as_cell(row.get(column.key)) for column in columns] for row in rows]
    note = (
        "One call: its messages one after another, its bytes over the slowest tier, and what adding them takes by memory "
        "bandwidth (the fitted bandwidth has that in it). auto: what the library takes."
    )
    return [Table("One call of each", columns, cells, note=note, role="breakdown")]


def _memory(result: Mapping[str, object]) -> list[Table]:
    parts = result.get("memory_parts_bytes")
    if not isinstance(parts, Mapping) or not parts:
        return []
    rows: list[list[Cell]] = [[_plain(name), as_cell(value)] for name, value in parts.items() if value]
    rows += [
        ["sum", as_cell(result.get("memory_bytes"))],
        ["device", as_cell(result.get("memory_limit_bytes"))],
    ]
    return [
        Table("Memory of a device", (Column("part", "", 0), Column("bytes", "B", 0)), rows, role="breakdown")
    ]


def _inputs(rows: Sequence[Mapping[str, object]]) -> list[Table]:
    """Every input once, with the terms that it stands in."""
    seen: dict[str, list[Cell]] = {}
    uses: dict[str, list[str]] = {}
    for row in rows:
        for item in listed(row.get("inputs")):
            if not isinstance(item, Mapping) or not _shows(row):
                continue
            name = str(item.get("name"))
            uses.setdefault(name, []).append(_plain(row.get("name")))
            shown = item.get("shown", item.get("value"))
            keys = ("confidence", "sensitivity", "source", "date")
            seen[name] = [as_cell(shown), *(as_cell(item.get(key)) for key in keys)]
    columns = [
        Column("input", "", 0, "input"),
        Column("value", "", 0, "value"),
        Column("basis", "", 0, "confidence"),
        Column("slope", "", 1, "sensitivity"),
        Column("source", "", 2, "source"),
        Column("date", "", 4, "date"),
        Column("terms", "", 3, "terms"),
    ]
    order = sorted(seen, key=lambda name: -_size(seen[name][2]))
    cells = [[_plain(name), *seen[name], ", ".join(uses[name])] for name in order]
    count = sum(_size(seen[name][2]) >= MATTERS for name in order)
    found = _with_sources(columns, cells[:count]) if count else []
    return [*found, Table("All inputs", columns, cells, role="detail")] if cells else []


def _with_sources(columns: list[Column], cells: list[list[Cell]]) -> list[Table]:
    """The inputs with what they mean or a number, and the places with these numbers: an address is never cut."""
    places = list(dict.fromkeys(str(row[4]) for row in cells if _is_place(row[4])))
    numbers = {place: f"[{index}]" for index, place in enumerate(places, start=1)}
    short = [[*row[:4], numbers.get(str(row[4]), row[4]), *row[5:]] for row in cells]
    found = [Table("Inputs that matter", columns, short, role="breakdown")]
    if places:
        rows: list[list[Cell]] = [[number, place] for place, number in numbers.items()]
        found.append(Table("Sources", (Column("", "", 0), Column("source", "", 0)), rows, role="breakdown"))
    return found


def _is_place(value: Cell) -> bool:
    return (
        isinstance(value, str) and "/" in value and any("." in word and "/" in word for word in value.split())
    )


def _size(value: Cell) -> float:
    return abs(float(value)) if isinstance(value, (int, float)) else 0.0
