"""The catalogue as tables: listings with filters, and one entry with its sources and derived figures."""

from __future__ import annotations

import datetime
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from perfmodel.errors import Problem, UsageError, did_you_mean
from perfmodel.results import Result
from perfmodel.specs.catalog import KINDS, Catalog, display
from perfmodel.specs.economy import Offer
from perfmodel.specs.fields import Quantity, Record
from perfmodel.specs.hardware import Accelerator, Link, Node
from perfmodel.units import UnitError, format_quantity, parse, unit_scale

STALE_DAYS = 180
_COMPARE = re.compile(r"\s*([a-z][\w.]*)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*")
Row = dict[str, Any]


def age_days(date: str | None, today: datetime.date) -> int | None:
    """Days since a date given as a day, month or year; the end of the month or year counts.

    >>> age_days("2026-01-01", datetime.date(2026, 1, 31)), age_days("2025", datetime.date(2026, 1, 31))
    (30, 31)
    """
    if not date:
        return None
    parts = [int(part) for part in date.split("-")]
    try:
        if len(parts) == 3:
            day = datetime.date(*parts)
        else:
            year, month = (parts[0], parts[1]) if len(parts) == 2 else (parts[0], 12)
            following = datetime.date(year + month // 12, month % 12 + 1, 1)
            day = following - datetime.timedelta(days=1)
    except ValueError:
        return None
    return max(0, (today - day).days)


def is_stale(date: str | None, today: datetime.date) -> bool:
    """Whether a price of that date is too old to be relied on."""
    age = age_days(date, today)
    return age is not None and age > STALE_DAYS


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
            row["usd_per_h"] = prices.get(row["name"])
            row["flop_per_byte_per_usd"] = _over(row["ridge_flop_per_byte"], row["usd_per_h"])
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
        return _offer_row(entry, today)
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
            "carbon_g_per_kwh": grid.carbon * 3.6e6,
            "date": grid.date,
        }
    shown = ("name", "kind", "sample", "params", "layers", "hidden", "seq_len", "experts", "confidence")
    return {key: values.get(key) for key in shown}


def _offer_row(offer: Offer, today: datetime.date) -> Row:
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


def _parts(annotation: Any) -> Iterable[Any]:
    """Everything inside an annotation, metadata included."""
    for part in get_args(annotation):
        yield part
        yield from _parts(part)


def _values(catalog: Catalog, kind: str, rows: Sequence[Row], key: str, flag: str) -> list[Any]:
    """A column of the rows, or an attribute of the entries."""
    if rows and key in rows[0]:
        return [row[key] for row in rows]
    entries = [catalog.get(kind, row["name"]) for row in rows]
    if rows and key not in type(entries[0]).model_fields and not key.startswith("peak."):
        known = [*rows[0], *type(entries[0]).model_fields]
        hint = f"columns: {', '.join(rows[0])}"
        raise UsageError(f'{flag}: {kind} have no "{key}"{did_you_mean(key, known)}', code="U015", help=hint)
    if key.startswith("peak."):
        precision = key.removeprefix("peak.")
        return [dict[str, float](getattr(entry, "peak", {})).get(precision) for entry in entries]
    return [_shown(getattr(entry, key)) for entry in entries]


def _shown(value: Any) -> Any:
    return value.name if isinstance(value, Record) else value


def _sorted(rows: Sequence[Row], values: Sequence[Any], reverse: bool) -> list[Row]:
    known = [(value, row) for value, row in zip(values, rows, strict=True) if value is not None]
    unknown = [row for value, row in zip(values, rows, strict=True) if value is None]
    numbers = all(isinstance(value, (int, float)) for value, _ in known)
    order: Callable[[tuple[Any, Row]], Any] = (
        (lambda pair: pair[0]) if numbers else (lambda pair: str(pair[0]).casefold())
    )
    # Entries that do not state the value come last, whichever way the others run.
    return [row for _, row in sorted(known, key=order, reverse=reverse)] + unknown


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
        return [value is not None and _compare(float(value), sign, limit) for value in values]
    if sign not in ("=", "!="):
        raise UsageError(f"--filter: {key} is text: use = or !=", code="U015")
    return [(str(value).casefold() == wanted.casefold()) == (sign == "=") for value in values]


def _limit(catalog: Catalog, kind: str, rows: Sequence[Row], key: str, wanted: str) -> float:
    model = type(catalog.get(kind, rows[0]["name"]))
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


def details(catalog: Catalog, name: str, kind: str | None = None, *, today: datetime.date) -> Result:
    """One entry: every value with its origin, and figures derived from them."""
    kinds = [kind] if kind is not None else [item for item in KINDS if name in catalog.names(item)]
    if not kinds:
        everything = [known for item in KINDS for known in catalog.names(item)]
        hint = "perfmodel catalog list shows the kinds"
        raise UsageError(
            Problem(code="S008", message=f'nothing named "{name}"{did_you_mean(name, everything)}', help=hint)
        )
    entry = catalog.get(kinds[0], name)
    path = catalog.path(kinds[0], name)
    result = {
        "kind": kinds[0],
        "name": entry.name,
        "title": entry.title,
        "file": display(path) if path is not None else None,
        "values": list(_described(entry)),
        "derived": list(_derived(catalog, entry, today)),
        "also": kinds[1:],
        "notes": [entry.notes] if entry.notes else [],
    }
    return Result("catalog", {"name": name, "kind": kinds[0], "today": today.isoformat()}, result)


def _described(entry: Record) -> Iterable[Row]:
    for key in type(entry).model_fields:
        value = getattr(entry, key)
        if value is None or key in ("name", "title", "notes", "source", "date", "confidence"):
            continue
        if isinstance(value, dict):
            for inner, number in value.items():
                yield _line(entry, f"{key}.{inner}", number, "FLOP/s")
        else:
            yield _line(entry, key, _shown(value), dimension_of(type(entry), key))


def _line(entry: Record, key: str, value: Any, dimension: str | None) -> Row:
    origin = entry.origin(key)
    if isinstance(value, BaseModel):
        value = ", ".join(f"{name} {item}" for name, item in value.model_dump(exclude_none=True).items())
    text = _text(value, dimension)
    return {"key": key, "value": value, "text": text, **origin.model_dump()}


def _text(value: Any, dimension: str | None) -> str:
    if dimension == "B" and value % 2**20 == 0 and value % 10**6:
        binary = next(unit for unit in ("TiB", "GiB", "MiB") if value >= unit_scale(unit)[1])
        return f"{value / float(unit_scale(binary)[1]):.6g} {binary}"
    if dimension is not None:
        return format_quantity(value, dimension, 6)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _derived(catalog: Catalog, entry: Record, today: datetime.date) -> Iterable[Row]:
    if isinstance(entry, Accelerator):
        yield from _accelerator_figures(catalog, entry)
    elif isinstance(entry, Link):
        half = entry.latency * entry.bandwidth
        yield _figure("half-bandwidth message", half, format_quantity(half, "B"), "latency * bandwidth")
    elif isinstance(entry, Node):
        yield from _node_figures(entry)
    elif isinstance(entry, Offer):
        for key, rate in _offer_row(entry, today).items():
            if key.endswith("_usd_per_h") and rate is not None:
                regime = key.removesuffix("_usd_per_h").replace("_", "-")
                yield _figure(f"{regime} per accelerator", rate, f"{rate:.4g} USD/h", "price / accelerators")
        age = age_days(entry.date, today)
        if age is not None:
            yield _figure("age", age, f"{age} days{' (stale)' if age > STALE_DAYS else ''}", "today - date")


def _accelerator_figures(catalog: Catalog, entry: Accelerator) -> Iterable[Row]:
    for precision, rate in entry.peak.items():
        ridge = rate / entry.memory_bandwidth
        yield _figure(f"ridge point {precision}", ridge, f"{ridge:.4g} FLOP/B", "peak / memory_bandwidth")
    best = sixteen_bit(entry)
    offers = [offer for offer in catalog.offers(entry.name) if offer.on_demand is not None]
    if entry.tdp and best:
        yield _figure(
            "energy efficiency",
            best / entry.tdp,
            f"{format_quantity(best / entry.tdp, 'FLOP')}/J",
            "16-bit peak / tdp",
        )
    if best and offers:
        price = statistics.median((offer.on_demand or 0.0) * 3600 / offer.accelerators for offer in offers)
        ridge = best / entry.memory_bandwidth
        yield _figure("price", price, f"{price:.4g} USD/h", f"median of {len(offers)} on-demand prices")
        yield _figure(
            "arithmetic per dollar",
            best * 3600 / price,
            f"{format_quantity(best * 3600 / price, 'FLOP')}/USD",
            "16-bit peak / price",
        )
        traffic = entry.memory_bandwidth * 3600 / price
        yield _figure(
            "traffic per dollar", traffic, f"{format_quantity(traffic, 'B')}/USD", "memory_bandwidth / price"
        )
        yield _figure(
            "FLOP per byte per USD",
            ridge / price,
            f"{ridge / price:.4g} FLOP/B per USD/h",
            "ridge point / price",
        )


def _node_figures(entry: Node) -> Iterable[Row]:
    count = entry.accelerators_per_node
    memory = entry.accelerator.memory * count
    yield _figure("device memory", memory, format_quantity(memory, "B"), "accelerators * memory")
    best = sixteen_bit(entry.accelerator)
    if best:
        yield _figure(
            "16-bit peak", best * count, format_quantity(best * count, "FLOP/s"), "accelerators * peak"
        )
    if entry.scale_out is not None and entry.nics_per_node:
        each = entry.scale_out.bandwidth * entry.nics_per_node / count
        yield _figure(
            "network per accelerator", each, format_quantity(each, "B/s"), "cards * bandwidth / accelerators"
        )
        if entry.scale_up is not None:
            ratio = entry.scale_up.bandwidth / each
            yield _figure(
                "scale-up over scale-out",
                ratio,
                f"{ratio:.3g}x",
                "scale_up.bandwidth / network per accelerator",
            )


def _figure(name: str, value: float, text: str, formula: str) -> Row:
    return {"key": name, "value": value, "text": text, "formula": formula}
