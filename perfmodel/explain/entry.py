"""One entry of the catalogue: every value with its origin, and figures derived from them."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Iterable

from pydantic import BaseModel

from perfmodel.errors import Problem, UsageError, did_you_mean
from perfmodel.explain.browse import Row, dimension_of, offer_row, shown, sixteen_bit
from perfmodel.results.envelope import Result
from perfmodel.specs.ages import STALE_DAYS, age_days
from perfmodel.specs.catalog import KINDS, Catalog, display
from perfmodel.specs.economy import Offer
from perfmodel.specs.fields import Record
from perfmodel.specs.hardware import Accelerator, Link, Node
from perfmodel.units import format_quantity, unit_scale

LONG = 100_000  # counts from here on are written in groups of three digits


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
            yield _line(entry, key, shown(value), dimension_of(type(entry), key))


def _line(entry: Record, key: str, value: object, dimension: str | None) -> Row:
    origin = entry.origin(key)
    if isinstance(value, BaseModel):
        value = ", ".join(f"{name} {item}" for name, item in value.model_dump(exclude_none=True).items())
    text = _text(value, dimension)
    return {"key": key, "value": value, "text": text, **origin.model_dump()}


def _text(value: object, dimension: str | None) -> str:
    if dimension is not None and isinstance(value, (int, float)):
        if dimension == "B" and value % 2**20 == 0 and value % 10**6:
            binary = next(unit for unit in ("TiB", "GiB", "MiB") if value >= unit_scale(unit)[1])
            return f"{value / float(unit_scale(binary)[1]):.6g} {binary}"
        return format_quantity(value, dimension, 6)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and value >= LONG:
        return f"{value:,}"
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
        for key, rate in offer_row(entry, today).items():
            if key.endswith("_usd_per_h") and isinstance(rate, float):
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
