"""Price lists of others as price records of the catalogue: SkyPilot's `vms.csv`, and tables with such columns.

A row is a machine in a region. Rows of one machine become one record: the median over regions, and the cheapest. What a
list calls an accelerator is matched to an entry by the shipped record of the same machine, else by name; a name that fits
several entries is refused, and `names` settles it.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from perfmodel.errors import Problem, SpecError, gathered
from perfmodel.files import read_bytes, write_whole
from perfmodel.specs.catalog import Catalog

MOST_BYTES = 64_000_000
MOST_FIELD = 2_000
LEAST_USD_H, MOST_USD_H = 0.01, 100_000.0
IMPORTED = "imported from "

# What columns are called, without case, blanks, dashes and underscores.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "machine": ("instancetype", "apiname", "machinetype", "vmsize", "skuname", "instance", "item", "plan", "name"),
    "accelerator": ("acceleratorname", "accelerator", "gpumodel", "gpuname", "gputype", "gpu"),
    "count": ("acceleratorcount", "gpucount", "numgpus", "gpus", "count"),
    "on_demand": (
        "price", "ondemand", "ondemandprice", "priceperhour", "hourlyprice", "usdperhour", "pricehour", "linuxondemandcost",
        "ondemandusdhmedian", "ondemandusdh", "priceusd",
    ),
    "spot": ("spotprice", "spot", "spotusdhmedian", "spotusdh", "preemptibleprice", "linuxspotminimumcost"),
    "reserved_1y": ("reserved1y", "reserved1yusdh", "reserved1yr", "1yearreserved", "price1yearcommit"),
    "reserved_3y": ("reserved3y", "reserved3yusdh", "reserved3yr", "3yearreserved", "price3yearcommit"),
    "region": ("region", "regioncode", "location", "availabilityzone"),
    "provider": ("provider", "cloud", "vendor"),
    "date": ("date", "catalogfiledate", "effectivedate", "updated", "updatedat"),
    "currency": ("currency", "currencycode"),
}  # fmt: skip
_PRICES = ("on_demand", "spot", "reserved_1y", "reserved_3y")


@dataclass(frozen=True)
class Refused:
    """A machine that cannot be a record, and why."""

    name: str
    reason: str


@dataclass
class Offered:
    """The rows of one machine."""

    provider: str
    machine: str
    accelerator: str
    count: float
    line: int
    dates: list[str] = field(default_factory=list)
    prices: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """What an import wrote, kept as it was because it is the user's own or newer, and refused."""

    written: tuple[str, ...]
    kept: tuple[Refused, ...]
    refused: tuple[Refused, ...]
    undated: bool


def import_prices(
    files: Sequence[Path], folder: Path, *, provider: str | None = None, dated: str | None = None,
    names: Mapping[str, str] | None = None, catalog: Catalog | None = None,
) -> Imported:  # fmt: skip
    """Write the records of price lists into `folder`/prices, a folder that `--specs` reads."""
    known = catalog or Catalog.default((folder,) if folder.is_dir() else ())
    _check_names(names or {}, known)
    written: list[str] = []
    kept: list[Refused] = []
    refused: list[Refused] = []
    undated = False
    machines = _machines(known)
    nodes = {known.get("nodes", name).price_key: name for name in reversed(known.names("nodes"))}
    for path, offers in zip(
        files, gathered([partial(read_list, path, provider) for path in files]), strict=True
    ):
        for offer in offers:
            accelerator = _entry_of(offer, machines, names or {}, known)
            if isinstance(accelerator, Refused):
                refused.append(accelerator)
                continue
            when = max(offer.dates, default=None) or dated
            undated |= when is None
            target = folder / "prices" / _safe(offer.provider) / f"{_safe(offer.machine)}.yaml"
            why = _own(target, when)
            if why is not None:
                kept.append(Refused(offer.machine, why))
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            node = nodes.get(offer.machine)
            write_whole(target, _text(offer, accelerator, node, when, path).encode())
            written.append(f"{offer.provider}/{offer.machine}")
    return Imported(tuple(written), tuple(kept), tuple(refused), undated)


def read_list(path: Path, provider: str | None = None) -> list[Offered]:
    """The machines of one list in the order of its rows."""
    rows = _rows(path)
    head = next(rows, None)
    columns = _columns(head[1]) if head is not None else {}
    missing = [name for name in ("machine", "on_demand") if name not in columns]
    if "spot" in columns and "on_demand" in missing:
        missing.remove("on_demand")
    if head is None or missing:
        raise SpecError(
            Problem(
                str(path), 1, code="F031", message=f"this is no price list: no column for {' and '.join(missing) or 'anything'}",
                help="SkyPilot's vms.csv is read, and CSV with columns such as instance_type, accelerator, accelerator_count, "
                "price, spot_price, region, date",
            )
        )  # fmt: skip
    # catalogs/v8/lambda/vms.csv: the folder says whose prices they are.
    folder = path.absolute().parent.name if path.name == "vms.csv" else None
    if provider is None and "provider" not in columns and folder is None:
        raise SpecError(
            Problem(
                str(path),
                1,
                code="F032",
                message="nothing says whose prices these are",
                help="add --provider NAME",
            )
        )
    found: dict[tuple[str, str], Offered] = {}
    alone: dict[
        tuple[str, float], list[float]
    ] = {}  # accelerators that are billed beside their machine (Google)
    seen: set[tuple[str, ...]] = set()
    problems: list[Problem] = []
    for line, cells in rows:
        row = {name: cells[at].strip() if at < len(cells) else "" for name, at in columns.items()}
        prices = {name: _usd(row.get(name, "")) for name in _PRICES}
        count = _number(row.get("count", "1") or "0")
        if (row.get("currency") or "USD").upper() != "USD":
            problems.append(
                Problem(
                    str(path), line, code="F033", message=f"prices in {row['currency'][:20]}: USD is read"
                )
            )
            continue
        if not count or not row.get("accelerator", "?") or not any(prices.values()):
            continue  # a machine without accelerators, or one that nobody sells
        name = row.get("accelerator", "")
        if not row["machine"] or row["machine"].casefold() == "tpu-vm":
            if prices["on_demand"]:
                alone.setdefault((name, count), []).append(prices["on_demand"])
            continue
        whose = (row.get("provider") or provider or folder or "").casefold()
        one = found.setdefault((whose, row["machine"]), Offered(whose, row["machine"], name, count, line))
        place = (whose, row["machine"], row.get("region", ""), *(str(prices[key]) for key in _PRICES))
        if place in seen:  # a region's zones have its price
            continue
        seen.add(place)
        if re.fullmatch(r"\d{4}-\d\d(-\d\d)?([T ].*)?", row.get("date", "")):
            one.dates.append(row["date"][:10])
        for key, price in prices.items():
            if price is not None:
                one.prices.setdefault(key, []).append(price)
    if problems:
        raise SpecError(problems[:20])
    for one in found.values():
        beside = alone.get((one.accelerator, one.count))
        if beside and "on_demand" in one.prices:
            extra = statistics.median(beside)
            one.prices = {"on_demand": [price + extra for price in one.prices["on_demand"]]}
    return list(found.values())


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        data = read_bytes(path, MOST_BYTES + 1)
    except OSError as error:
        raise SpecError(
            Problem(str(path), code="F001", message=f"cannot read the file: {error.strerror or error}")
        ) from None
    if len(data) > MOST_BYTES:
        raise SpecError(
            Problem(str(path), code="F001", message=f"the list is larger than {MOST_BYTES // 1_000_000} MB")
        )
    text = data.decode("utf-8-sig", "replace").replace("\0", " ")
    reader = csv.reader(text.splitlines())
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise SpecError(
                Problem(str(path), reader.line_num, code="F002", message=f"not CSV: {error}")
            ) from None
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield reader.line_num, [cell[:MOST_FIELD] for cell in cells]


def _columns(head: Iterable[str]) -> dict[str, int]:
    """Where each known column stands; of several names for one the first of its list wins.

    >>> _columns(["InstanceType", "AcceleratorName", "Price", "SpotPrice"])
    {'machine': 0, 'accelerator': 1, 'on_demand': 2, 'spot': 3}
    """
    plain = [re.sub(r"[^a-z0-9]", "", cell.casefold()) for cell in head]
    found = {}
    for name, words in _COLUMNS.items():
        at = next((plain.index(word) for word in words if word in plain), None)
        if at is not None:
            found[name] = at
    return found


def _number(text: str) -> float | None:
    match = re.search(r"\d[\d,]*(\.\d+)?|\.\d+", text[:60])
    return float(match.group().replace(",", "")) if match else None


def _usd(text: str) -> float | None:
    """USD an hour; None for what is no price, or no sensible one.

    >>> _usd("$32.7726 hourly"), _usd("3.06"), _usd("unavailable"), _usd("0")
    (32.7726, 3.06, None, None)
    """
    value = _number(text)
    return value if value is not None and LEAST_USD_H <= value <= MOST_USD_H else None


def _machines(catalog: Catalog) -> dict[str, str]:
    """Accelerator of each machine that the catalogue has a price record or a node of."""
    found = {name: catalog.get("prices", name).accelerator or "" for name in catalog.names("prices")}
    return {name.casefold(): accelerator for name, accelerator in found.items() if accelerator}


def _check_names(names: Mapping[str, str], catalog: Catalog) -> None:
    known = set(catalog.names("accelerators"))
    problems = [
        Problem(code="F034", message=f'--accelerator {name}={entry}: no accelerator "{entry}" is in the catalogue',
                help="perfmodel catalog list accelerators")
        for name, entry in names.items() if entry not in known
    ]  # fmt: skip
    if problems:
        raise SpecError(problems)


def _entry_of(
    offer: Offered, machines: Mapping[str, str], names: Mapping[str, str], catalog: Catalog
) -> str | Refused:
    """The accelerator of the catalogue that a machine has."""
    said = {key.casefold(): entry for key, entry in names.items()}
    for key in (offer.machine.casefold(), offer.accelerator.casefold()):
        if key in said:
            return said[key]
    if offer.machine.casefold() in machines:
        return machines[offer.machine.casefold()]
    exact = [entry for entry in catalog.names("accelerators") if _plain(entry) == _plain(offer.accelerator)]
    if exact:
        return exact[0]
    words = [
        word
        for word in re.split(r"[^a-z0-9]+", offer.accelerator.casefold())
        if word not in ("", "nvidia", "amd", "tesla")
    ]
    fits = [
        entry for entry in catalog.names("accelerators")
        if words and words[0] == entry.split("-")[0] and all(word in entry for word in words)
    ]  # fmt: skip
    if len(fits) == 1:
        return fits[0]
    label = f"{offer.machine} ({offer.accelerator})"
    if not fits:
        return Refused(label, f"{offer.accelerator} is not in the catalogue")
    return Refused(
        label, f"{offer.accelerator} may be {' or '.join(fits)}: add --accelerator {offer.accelerator}=NAME"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold().removeprefix("nvidia").removeprefix("amd"))


def _own(target: Path, when: str | None) -> str | None:
    """Why a record that is there stays: it is the user's own, or it is newer."""
    if not target.exists():
        return None
    text = target.read_text(encoding="utf-8", errors="replace")
    if f"source: {IMPORTED}" not in text:
        return "your own price stays"
    before = re.search(r'^date: "?(\d{4}-\d\d(?:-\d\d)?)', text, re.MULTILINE)
    if before and (when is None or when < before.group(1)):
        return f"the price of {before.group(1)} that is there is newer"
    return None


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).strip(".")[:80] or "unnamed"


def _text(offer: Offered, accelerator: str, node: str | None, when: str | None, path: Path) -> str:
    """The record as a spec file."""
    lines: list[tuple[str, object]] = [("name", _safe(offer.machine)), ("provider", _safe(offer.provider))]
    if node is not None:
        lines.append(("node", node))
    count = int(offer.count) if offer.count == int(offer.count) else offer.count
    lines += [("accelerator", accelerator), ("accelerators", count)]
    for key in _PRICES:
        prices = offer.prices.get(key)
        if not prices:
            continue
        lines.append((key, f"{statistics.median(prices):.6g} USD/h"))
        if key in ("on_demand", "spot") and len(prices) > 1:
            lines.append((f"{key}_min", f"{min(prices):.6g} USD/h"))
    if when is not None:
        lines.append(("date", f'"{when}"'))
    lines.append(("source", f"{IMPORTED}{_safe(path.name)}, line {offer.line}"))
    lines.append(("confidence", "datasheet"))
    return "".join(f"{key}: {value}\n" for key, value in lines)
