"""The catalogue: a listing, or one entry with its sources and derived figures."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.report.model import Cell, Column, Envelope, Table, as_cell, mappings, result_of

_TITLES: dict[str, tuple[str, str, int]] = {
    # key: title, quantity, priority
    "name": ("name", "", 0),
    "memory_bytes": ("memory", "B", 0),
    "memory_bytes_per_s": ("bandwidth", "B/s", 0),
    "peak_16bit_flop_per_s": ("16-bit peak", "FLOP/s", 0),
    "tdp_w": ("TDP", "W", 2),
    "ridge_flop_per_byte": ("ridge FLOP/B", "", 1),
    "usd_per_h": ("on demand", "USD/h", 1),
    "flop_per_byte_per_usd": ("FLOP/B per USD/h", "", 3),
    "latency_s": ("latency", "s", 0),
    "bandwidth_bytes_per_s": ("bandwidth", "B/s", 0),
    "collective_step_s": ("step", "s", 2),
    "collective_efficiency": ("collective eff.", "", 2),
    "network_bytes_per_s": ("network", "B/s", 1),
    "accelerators_per_node": ("per node", "", 0),
    "scale_up_domain": ("domain", "", 2),
    "nics_per_node": ("NICs", "", 2),
    "on_demand_usd_per_h": ("on demand", "USD/h", 0),
    "spot_usd_per_h": ("spot", "USD/h", 1),
    "reserved_usd_per_h": ("reserved", "USD/h", 1),
    "purchase_usd": ("purchase", "USD", 1),
    "carbon_g_per_kwh": ("g CO2/kWh", "", 0),
    "stale": ("age", "", 0),
    "confidence": ("rests on", "", 3),
    "generation": ("generation", "", 3),
    "year": ("year", "", 2),
}


def title(envelope: Envelope) -> str:
    result = result_of(envelope)
    if "entries" in result:
        return "Catalogue" if result["kind"] == "kinds" else f"Catalogue: {result['kind']}"
    shown = f" ({result['title']})" if result.get("title") else ""
    return f"{result['kind'].removesuffix('s').capitalize()} {result['name']}{shown}"


def answer(envelope: Envelope) -> str:
    result = result_of(envelope)
    if "entries" not in result:
        return f"Defined in {result['file']}." if result.get("file") else ""
    if result["kind"] == "kinds":
        return f"{sum(entry['entries'] for entry in result['entries'])} entries."
    said = f"{len(result['entries'])} {result['kind']}."
    return f"{said} {result['stale']} prices are stale." if result.get("stale") else said


def tables(envelope: Envelope) -> list[Table]:
    result = result_of(envelope)
    if "entries" in result:
        return [_listing(result)]
    sources = list(dict.fromkeys(item["source"] for item in result["values"] if item.get("source")))
    numbers = {source: f"[{index}]" for index, source in enumerate(sources, start=1)}
    values = [
        (
            item["key"],
            item["text"],
            item.get("confidence"),
            numbers.get(item.get("source") or ""),
            item.get("date"),
            item.get("note"),
        )
        for item in result["values"]
    ]
    heads = (Column("value", priority=0), Column("is", priority=0), Column("rests on", priority=0))
    columns = (*heads, Column("source", priority=0), Column("date", priority=2), Column("note", priority=3))
    found = [Table("Values", columns, values, role="decision")]
    if result["derived"]:
        rows = [(item["key"], item["text"], item["formula"]) for item in result["derived"]]
        found.append(Table("Derived", ("figure", "is", "from"), rows, role="breakdown"))
    if result.get("beliefs"):
        titles = ("belief", "is", "runs of", Column("families"), Column("meaning", priority=1))
        keys = ("name", "basis", "from", "families", "meaning")
        known = [tuple(item[key] for key in keys) for item in result["beliefs"]]
        note = "Families: series of measured runs there. Assumed: what all jobs show, with a wide spread."
        found.append(Table("Beliefs beside these values", titles, known, note, "breakdown"))
    if sources:
        numbered = [(numbers[source], source) for source in sources]
        found.append(Table("Sources", ("", "source"), numbered, role="breakdown"))
    return found


def _listing(result: Mapping[str, object]) -> Table:
    entries = mappings(result.get("entries"))
    keys = list(entries[0]) if entries else []
    columns = []
    for key in keys:
        name, quantity, priority = _TITLES.get(key, (key.replace("_", " "), "", 1))
        columns.append(Column(name, quantity, priority, key))
    note = "stale: the price is older than 180 days" if result.get("stale") else ""
    rows = [[_cell(key, entry[key]) for key in keys] for entry in entries]
    return Table("", columns, rows, note, "decision")


def _cell(key: str, value: object) -> Cell:
    return ("stale" if value else "") if key == "stale" else as_cell(value)


def notes(envelope: Envelope) -> list[str]:
    result = result_of(envelope)
    also = [f"also a {kind.removesuffix('s')}: --kind {kind}" for kind in result.get("also", [])]
    return [*result.get("notes", []), *also]
