"""Prices under which a study seeks p*: by the hour, per cent of another, over the share of time in which they work."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from perfmodel.errors import Problem, SpecError, UsageError
from perfmodel.files import csv_faults, read_bytes
from perfmodel.units import UnitError, parse

HOUR_S: Final = 3600.0
_REGIME = re.compile(r"(?P<name>[A-Za-z][\w .-]*?)\s*=\s*(?P<price>[^@]+?)(?:\s*@\s*(?P<used>[^@]+))?")
_HELP = (
    "write --regimes on-demand=3.20,spot=30%,owned=60%@0.5, or a CSV with regime,price_usd_per_h,utilisation"
)


@dataclass(frozen=True)
class PriceRegime:
    """What an hour of one worker costs [USD/h] while it works: the list price over the share of time in which it does."""

    name: str
    list_usd_per_h: float
    utilisation: float = 1.0

    @property
    def usd_per_h(self) -> float:
        """Of an hour of work."""
        return self.list_usd_per_h / self.utilisation


def parse_regimes(text: str) -> tuple[PriceRegime, ...]:
    """`on-demand=3.20,spot=30%,owned=60%@0.5`, or the name of a CSV; per cent are of the first regime's price.

    >>> [(r.name, r.list_usd_per_h, r.usd_per_h) for r in parse_regimes("on-demand=3.20,spot=30%,owned=60%@0.5")]
    [('on-demand', 3.2, 3.2), ('spot', 0.96, 0.96), ('owned', 1.92, 3.84)]
    """
    if text.lower().endswith(".csv"):
        return _from_file(Path(text))
    found: list[PriceRegime] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _REGIME.fullmatch(part)
        if match is None:
            raise UsageError(f'--regimes: cannot read "{part}"', code="U020", help=_HELP)
        found.append(_regime(match["name"].strip(), match["price"], match["used"], found))
    if not found:
        raise UsageError("--regimes: nothing given", code="U020", help=_HELP)
    return tuple(found)


def _regime(name: str, price: str, used: str | None, before: list[PriceRegime]) -> PriceRegime:
    if any(name == other.name for other in before):
        raise UsageError(f"--regimes: {name} is given twice", code="U020", help=_HELP)
    price = price.strip()
    if price.endswith("%"):
        if not before:
            raise UsageError("--regimes: the first price is not per cent of another", code="U020", help=_HELP)
        value = before[0].list_usd_per_h * _number(name, price[:-1]) / 100.0
    elif " " in price or "/" in price:
        try:
            value = parse(price, "USD/s") * HOUR_S
        except UnitError as error:
            raise UsageError(f"--regimes {name}: {error.message}", code="U020", help=_HELP) from None
    else:
        value = _number(name, price)
    share = 1.0 if used is None else _number(name, used.strip().removesuffix("%"))
    share = share / 100.0 if used is not None and used.strip().endswith("%") else share
    if not 0.0 <= value < 1e9:
        raise UsageError(f"--regimes {name}: a price is zero or above, got {price}", code="U020", help=_HELP)
    if not 0.0 < share <= 1.0:
        raise UsageError(
            f"--regimes {name}: utilisation is above 0 and at most 1, got {used}", code="U020", help=_HELP
        )
    return PriceRegime(name, round(value, 12), share)


def _number(name: str, text: str) -> float:
    try:
        value = float(text.strip().encode("ascii"))
    except (ValueError, UnicodeEncodeError):
        raise UsageError(
            f'--regimes {name}: not a number: "{text.strip()}"', code="U020", help=_HELP
        ) from None
    if not np.isfinite(value):
        raise UsageError(f"--regimes {name}: not a finite number: {text}", code="U020", help=_HELP)
    return value


def _from_file(path: Path) -> tuple[PriceRegime, ...]:
    """Regimes of a CSV with the columns regime, price_usd_per_h and optionally utilisation."""
    try:
        rows = csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8-sig"), newline=""))
    except OSError as error:
        raise UsageError(f"--regimes: cannot read {path}: {error.strerror}", code="U020") from None
    except UnicodeDecodeError:
        raise UsageError(f"--regimes: {path} is not UTF-8 text", code="U020") from None
    with csv_faults(str(path), "T001"):
        return _regimes(rows, path)


def _regimes(rows: csv.DictReader[str], path: Path) -> tuple[PriceRegime, ...]:
    if not {"regime", "price_usd_per_h"} <= set(rows.fieldnames or ()):
        raise SpecError(
            Problem(str(path), 1, 1, "T002", "missing column regime or price_usd_per_h", help=_HELP)
        )
    found: list[PriceRegime] = []
    for row in rows:
        try:
            found.append(
                _regime(
                    (row["regime"] or "").strip(),
                    row["price_usd_per_h"] or "",
                    row.get("utilisation") or None,
                    found,
                )
            )
        except UsageError as error:
            raise SpecError(
                [
                    replace(
                        p, file=str(path), line=rows.line_num, message=p.message.removeprefix("--regimes ")
                    )
                    for p in error.problems
                ]
            ) from None
    if not found:
        raise SpecError(Problem(str(path), 1, 1, "T001", "no price under the header", help=_HELP))
    return tuple(found)
