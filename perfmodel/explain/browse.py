"""The catalogue as tables: listings with filters, ages and stale prices."""

from __future__ import annotations

import datetime
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import get_args

from pydantic import BaseModel

from perfmodel.errors import UsageError, did_you_mean
from perfmodel.physics.energy import KWH_J
from perfmodel.results.envelope import Result
from perfmodel.specs.ages import is_stale
from perfmodel.specs.catalog import KINDS, Catalog, display
from perfmodel.specs.economy import Offer
from perfmodel.specs.fields import Quantity, Record
from perfmodel.specs.hardware import Accelerator, Link, Node
from perfmodel.units import UnitError, parse

_COMPARE = re.compile(r"\s*([a-z][\w.]*)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*")
Row = dict[str, object]


def rented(catalog: Catalog) -> dict[str, float]:
    """Median on-demand price of each accelerator [USD/h]."""
    rates: dict[str, list[float]] = {}
    for name in catalog.names("prices"):
        offer = catalog.get("prices", name)
        if offer.accelerator is not None and offer.on_demand is not None:
            rates.setdefault(offer.accelerator, []).append(offer.on_demand * 3600 / offer.accelerators)
    return {name: statistics.median(values) for name, values in rates.items()}


def listing(
    catalog: Catalog,
    kind: str,
    *,
    sort: str | None = None,
    reverse: bool = False,
    filters: Sequence[str] = (),
    match: str | None = None,
    today: datetime.date,
) -> Result:
    """Entries of a kind as rows of SI numbers; `filters` are texts such as `memory >= 80 GB`."""
    rows = [_row(catalog, kind, catalog.get(kind, name), today) for name in catalog.names(kind)]
    if kind == "accelerators":
        prices = rented(catalog)
        for row in rows:
            ridge, price = row["ridge_flop_per_byte"], prices.get(str(row["name"]))
            row["usd_per_h"] = price
            row["flop_per_byte_per_usd"] = ridge / price if isinstance(ridge, float) and price else None
    if match:
        rows = [
            row
            for row in rows
            if match.casefold() in " ".join(str(value) for value in row.values()).casefold()
        ]
    for text in filters:
        rows = [row for row, keep in zip(rows, _kept(catalog, kind, rows, text), strict=True) if keep]
    if sort is not None:
        rows = _sorted(rows, _values(catalog, kind, rows, sort, "--sort"), reverse)
    elif reverse:
        rows.reverse()
    stale = sum(bool(row.get("stale")) for row in rows)
    inputs = {
        "kind": kind,
        "sort": sort,
        "reverse": reverse,
        "filters": list(filters),
        "match": match,
        "today": today.isoformat(),
    }
    return Result("catalog", inputs, {"kind": kind, "entries": rows, "stale": stale})


def overview(catalog: Catalog) -> Result:
    """How many entries of each kind there are."""
    entries = [{"name": kind, "entries": len(catalog.names(kind))} for kind in KINDS]
    return Result(
        "catalog",
        {"folders": [display(folder) for folder in catalog.folders]},
        {"kind": "kinds", "entries": entries, "stale": 0},
    )


def _row(catalog: Catalog, kind: str, entry: Record, today: datetime.date) -> Row:
    values = entry.model_dump()
    if isinstance(entry, Accelerator):
        best = sixteen_bit(entry)
        row: Row = {key: values[key] for key in ("name", "vendor", "generation", "year")}
        row |= {
            "memory_bytes": entry.memory,
            "memory_bytes_per_s": entry.memory_bandwidth,
            "peak_16bit_flop_per_s": best,
        }
        row |= {
            "tdp_w": entry.tdp,
            "ridge_flop_per_byte": _over(best, entry.memory_bandwidth),
            "confidence": entry.confidence,
        }
        return row
    if isinstance(entry, Link):
        keys = (
            "name",
            "kind",
            "latency",
            "bandwidth",
            "efficiency",
            "collective_step",
            "collective_efficiency",
            "confidence",
        )
        names = {
            "latency": "latency_s",
            "bandwidth": "bandwidth_bytes_per_s",
            "collective_step": "collective_step_s",
        }
        return {names.get(key, key): values[key] for key in keys}
    if isinstance(entry, Node):
        out = entry.scale_out
        rate = out.bandwidth * (entry.nics_per_node or 0) if out is not None else None
        row = {"name": entry.name, "provider": entry.provider, "accelerator": entry.accelerator.name}
        row |= {
            "accelerators_per_node": entry.accelerators_per_node,
            "scale_up_domain": entry.scale_up_domain,
        }
        row |= {
            "scale_up": entry.scale_up.name if entry.scale_up else None,
            "scale_out": out.name if out else None,
        }
        return row | {
            "nics_per_node": entry.nics_per_node,
            "network_bytes_per_s": rate,
            "confidence": entry.confidence,
        }
    if isinstance(entry, Offer):
        return offer_row(entry, today)
    if kind == "clusters":
        cluster = catalog.cluster(entry.name)
        row = {"name": cluster.name, "node": cluster.node.name, "accelerator": cluster.accelerator.name}
        row |= {
            "accelerators_per_node": cluster.node.accelerators_per_node,
            "nics_per_node": cluster.nics_per_node,
        }
        row |= {"scale_out": cluster.scale_out.name if cluster.scale_out else None}
        return row | {
            "topology": cluster.topology.kind if cluster.topology else None,
            "max_nodes": cluster.max_nodes,
        }
    if kind == "grids":
        grid = catalog.get("grids", entry.name)
        return {
            "name": grid.name,
            "title": grid.title,
            "kind": grid.kind,
            "carbon_g_per_kwh": grid.carbon * KWH_J,
            "date": grid.date,
        }
    keys_shown = ("name", "kind", "sample", "params", "layers", "hidden", "seq_len", "experts", "confidence")
    return {key: values.get(key) for key in keys_shown}


def offer_row(offer: Offer, today: datetime.date) -> Row:
    """Prices of one accelerator [USD/h] by regime, with date and age."""

    def each(rate: float | None) -> float | None:
        return None if rate is None else rate * 3600 / offer.accelerators

    row: Row = {
        "name": offer.name,
        "provider": offer.provider,
        "accelerator": offer.accelerator,
        "accelerators": offer.accelerators,
    }
    for regime, rate in (
        ("on_demand", offer.on_demand),
        ("spot", offer.spot),
        ("reserved", offer.hourly("reserved")),
    ):
        row[f"{regime}_usd_per_h"] = each(rate)
    row["purchase_usd"] = offer.purchase
    return row | {"date": offer.date, "stale": is_stale(offer.date, today)}


def sixteen_bit(accelerator: Accelerator) -> float | None:
    """The rate that mixed-precision training sees [FLOP/s]: bf16, else fp16, else the largest."""
    peak = accelerator.peak
    return peak.get("bf16") or peak.get("fp16") or max(peak.values(), default=None)


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def dimension_of(model: type[BaseModel], key: str) -> str | None:
    """The base unit of a field, or None for one that has no dimension."""
    field = model.model_fields.get(key)
    if field is None:
        return None
    found = [item for item in (*field.metadata, *_parts(field.annotation)) if isinstance(item, Quantity)]
    return found[0].dimension if found else None


def _parts(annotation: object) -> Iterable[object]:
    """Everything inside an annotation, metadata included."""
    for part in get_args(annotation):
        yield part
        yield from _parts(part)


def _values(catalog: Catalog, kind: str, rows: Sequence[Row], key: str, flag: str) -> list[object]:
    """A column of the rows, or an attribute of the entries."""
    if rows and key in rows[0]:
        return [row[key] for row in rows]
    entries = [catalog.get(kind, str(row["name"])) for row in rows]
    if rows and key not in type(entries[0]).model_fields and not key.startswith("peak."):
        known = [*rows[0], *type(entries[0]).model_fields]
        hint = f"columns: {', '.join(rows[0])}"
        raise UsageError(f'{flag}: {kind} have no "{key}"{did_you_mean(key, known)}', code="U015", help=hint)
    if key.startswith("peak."):
        precision = key.removeprefix("peak.")
        return [dict[str, float](getattr(entry, "peak", {})).get(precision) for entry in entries]
    return [shown(getattr(entry, key)) for entry in entries]


def shown(value: object) -> object:
    """A referenced entry by its name; anything else as it is."""
    return value.name if isinstance(value, Record) else value


def _sorted(rows: Sequence[Row], values: Sequence[object], reverse: bool) -> list[Row]:
    known = [(value, row) for value, row in zip(values, rows, strict=True) if value is not None]
    unknown = [row for value, row in zip(values, rows, strict=True) if value is None]
    numbers = [value for value, _ in known if isinstance(value, (int, float))]
    words = [str(value).casefold() for value, _ in known]
    order: Sequence[float] | Sequence[str] = numbers if len(numbers) == len(known) else words
    places = sorted(range(len(known)), key=order.__getitem__, reverse=reverse)
    # Entries that do not state the value come last, whichever way the others run.
    return [known[place][1] for place in places] + unknown


def _kept(catalog: Catalog, kind: str, rows: Sequence[Row], text: str) -> list[bool]:
    parsed = _COMPARE.fullmatch(text)
    if parsed is None:
        raise UsageError(
            f'--filter: cannot read "{text}"',
            code="U015",
            help='write it like vendor=NVIDIA or "memory >= 80 GB"',
        )
    key, sign, wanted = parsed.groups()
    if not rows:
        return []
    values = _values(catalog, kind, rows, key, "--filter")
    if any(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        limit = _limit(catalog, kind, rows, key, wanted)
        return [isinstance(value, (int, float)) and _compare(float(value), sign, limit) for value in values]
    if sign not in ("=", "!="):
        raise UsageError(f"--filter: {key} is text: use = or !=", code="U015")
    return [(str(value).casefold() == wanted.casefold()) == (sign == "=") for value in values]


def _limit(catalog: Catalog, kind: str, rows: Sequence[Row], key: str, wanted: str) -> float:
    model = type(catalog.get(kind, str(rows[0]["name"])))
    dimension = "FLOP/s" if key.startswith("peak.") else dimension_of(model, key) or "1"
    try:
        return parse(wanted, dimension)
    except UnitError as error:
        raise UsageError(f"--filter {key}: {error.message}", code="U015", help=error.hint) from None


def _compare(value: float, sign: str, limit: float) -> bool:
    return {
        "=": value == limit,
        "!=": value != limit,
        ">": value > limit,
        ">=": value >= limit,
        "<": value < limit,
        "<=": value <= limit,
    }[sign]
