"""Quantities with units: "989 TFLOP/s" to and from SI floats.

The list of units is closed: B, bit, FLOP, s, min, h, day, W, J, Wh, USD, g and plain counts, with decimal
and binary prefixes, and quotients of two of them. Arithmetic is exact (fractions), rounded once to a float.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NoReturn

from perfmodel.errors import COMMA_HELP, closest

DECIMAL = {symbol: Fraction(10) ** (3 * (n + 1)) for n, symbol in enumerate("kMGTPEZ")}
BINARY = {f"{symbol}i": Fraction(2) ** (10 * (n + 1)) for n, symbol in enumerate("KMGTPE")}
SMALL = {symbol: Fraction(1, 10 ** (3 * (n + 1))) for n, symbol in enumerate("munp")}


def plain_number(text: str) -> float:
    """The number of a cell. float() also takes groups of digits, and digits of any script: both are slips in a table.

    >>> plain_number("1.5e3")
    1500.0
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"not a number: {text!r}")
    return float(text)


@dataclass(frozen=True)
class _Unit:
    dimension: str
    scale: Fraction
    prefixes: dict[str, Fraction]


_UNITS: dict[str, _Unit] = {
    "B": _Unit("B", Fraction(1), DECIMAL | BINARY),
    "bit": _Unit("B", Fraction(1, 8), DECIMAL | BINARY),
    "FLOP": _Unit("FLOP", Fraction(1), DECIMAL),
    "s": _Unit("s", Fraction(1), SMALL),
    "min": _Unit("s", Fraction(60), {}),
    "h": _Unit("s", Fraction(3600), {}),
    "day": _Unit("s", Fraction(86400), {}),
    "W": _Unit("W", Fraction(1), SMALL | DECIMAL),
    "J": _Unit("J", Fraction(1), SMALL | DECIMAL),
    "Wh": _Unit("J", Fraction(3600), DECIMAL),
    "USD": _Unit("USD", Fraction(1), {key: DECIMAL[key] for key in "kM"}),
    "g": _Unit("g", Fraction(1), SMALL | {key: DECIMAL[key] for key in "kMG"}),
}
# Counts: a bare number, a percentage, or one of the decimal prefixes standing alone ("8 G" parameters).
_COUNTS = {"": Fraction(1), "%": Fraction(1, 100)} | {key: DECIMAL[key] for key in "kMGT"}

# What format_quantity may print, largest first, and what a message suggests for a bare number.
_SHOWN: dict[str, tuple[str, ...]] = {
    "B": ("EB", "PB", "TB", "GB", "MB", "kB", "B"),
    "B/s": ("PB/s", "TB/s", "GB/s", "MB/s", "kB/s", "B/s"),
    "FLOP": ("ZFLOP", "EFLOP", "PFLOP", "TFLOP", "GFLOP", "MFLOP", "kFLOP", "FLOP"),
    "FLOP/s": ("ZFLOP/s", "EFLOP/s", "PFLOP/s", "TFLOP/s", "GFLOP/s", "MFLOP/s", "kFLOP/s", "FLOP/s"),
    "s": ("day", "h", "min", "s", "ms", "us", "ns", "ps"),
    "W": ("GW", "MW", "kW", "W", "mW"),
    "J": ("TWh", "GWh", "MWh", "kWh", "kJ", "J", "mJ"),  # as electricity is sold
    "USD": ("USD",),
    "USD/s": ("USD/h",),
    "USD/J": ("USD/kWh",),
    "g": ("Mg", "kg", "g"),
    "g/J": ("g/kWh",),
    "1": ("",),
}
# What a message may suggest besides.
_ALSO_KNOWN = {
    "B": ("KiB", "MiB", "GiB", "TiB"),
    "B/s": ("Mbit/s", "Gbit/s", "Tbit/s"),
    "J": ("Wh", "kWh", "MWh"),
}
EXAMPLES: dict[str, str] = {
    "B": "80 GB",
    "B/s": "400 Gbit/s",
    "FLOP": "8.2 GFLOP",
    "FLOP/s": "989 TFLOP/s",
    "s": "1.3 us",
    "W": "700 W",
    "J": "3.6 MJ",
    "USD": "250000 USD",
    "USD/s": "2.49 USD/h",
    "USD/J": "0.11 USD/kWh",
    "g": "12 kg",
    "g/J": "379 g/kWh",
    "1": "0.95",
}
# A bare number is most often meant in this unit.
_LIKELY: dict[str, str] = {
    "B": "GB",
    "B/s": "GB/s",
    "FLOP": "FLOP",
    "FLOP/s": "TFLOP/s",
    "s": "s",
    "W": "W",
    "J": "J",
    "USD": "USD",
    "USD/s": "USD/h",
    "USD/J": "USD/kWh",
    "g": "g",
    "g/J": "g/kWh",
}
DIMENSIONS = tuple(_SHOWN)

# Not \d: other scripts have digits too.
_NUMBER = r"[+-]?(?:[0-9]+(?:_[0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*(.*?)\s*")
# "Gb", "Mb/s", "gbps": a lone b is a bit to some readers and a byte to others.
_AMBIGUOUS = re.compile(r"([kKmMgGtTPE]?i?)b(ps|/\w+)?")
# Spellings that people use and that no edit distance finds.
_SPELLED = {
    "hour": "h",
    "hours": "h",
    "hr": "h",
    "hrs": "h",
    "d": "day",
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "minute": "min",
    "minutes": "min",
    "byte": "B",
    "bytes": "B",
    "bits": "bit",
    "watt": "W",
    "watts": "W",
    "joule": "J",
    "joules": "J",
    "$": "USD",
    "usd": "USD",
    "dollars": "USD",
    "gram": "g",
}


class UnitError(ValueError):
    """A quantity that cannot be read; `hint` is how to write it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@lru_cache(maxsize=512)
def _lookup(symbol: str) -> tuple[str, Fraction] | None:
    """Dimension and scale of one prefixed unit such as `GiB`, `us` or `kWh`."""
    symbol = symbol.replace("µ", "u").replace("μ", "u")
    unit = _UNITS.get(symbol)
    if unit is not None:
        return unit.dimension, unit.scale
    for name, unit in _UNITS.items():
        prefix = symbol.removesuffix(name)
        if prefix != symbol and prefix in unit.prefixes:
            return unit.dimension, unit.scale * unit.prefixes[prefix]
    return None


@lru_cache(maxsize=512)
def unit_scale(unit: str, wanted: str = "1") -> tuple[str, Fraction]:
    """Dimension (as a base-unit string) and exact scale of a unit or a quotient of two.

    An unknown unit is refused with one of the `wanted` dimension that may be meant.

    >>> unit_scale("USD/h")
    ('USD/s', Fraction(1, 3600))
    """
    if unit in _COUNTS:
        return "1", _COUNTS[unit]
    numerator, slash, denominator = (part.strip() for part in unit.partition("/"))
    above = _lookup(numerator)
    below = _lookup(denominator) if slash else ("", Fraction(1))
    if above is None or below is None:
        _refuse(unit, wanted)
    if not slash:
        return above
    return f"{above[0]}/{below[0]}", above[1] / below[1]


def _refuse(unit: str, dimension: str) -> NoReturn:
    """Say that a unit is unknown, and which of those with the dimension asked for may be meant."""
    ambiguous = _AMBIGUOUS.fullmatch(unit)
    if ambiguous and dimension in ("B", "B/s"):
        prefix, rate = ambiguous.groups()
        prefix = "k" if prefix in ("k", "K") else prefix[:1].upper() + prefix[1:]
        tail = "/s" if rate == "ps" else rate or ""
        bits, octets = f"{prefix}bit{tail}", f"{prefix}B{tail}"
        raise UnitError(f'"{unit}" may be bits or bytes: write {bits} or {octets}', f"1 {octets} is 8 {bits}")
    spelled = "/".join(_SPELLED.get(word.strip(), word.strip()) for word in unit.split("/"))
    known = (*_SHOWN[dimension], *_ALSO_KNOWN.get(dimension, ()))
    best = spelled if spelled in known else closest(unit, known, 0.5)
    hint = f'did you mean "{best}"?' if best else f'write it like "{EXAMPLES[dimension]}"'
    raise UnitError(f'unknown unit "{unit}"', hint)


@lru_cache(maxsize=4096, typed=True)  # typed: 1, 1.0 and True are equal, and not the same
def parse(text: str | float | int, dimension: str) -> float:
    """Read a quantity and return it in the SI base of `dimension` ("B/s", "s", "USD/s", "g/J", "1", ...).

    >>> parse("400 Gbit/s", "B/s"), parse("80 GiB", "B"), parse("10 us", "s")
    (50000000000.0, 85899345920.0, 1e-05)
    >>> parse("2.49 USD/h", "USD/s") * 3600
    2.49
    """
    if isinstance(text, bool):
        raise UnitError(f"expected a quantity such as {EXAMPLES[dimension]!r}, got {str(text).lower()}")
    if isinstance(text, (int, float)):
        try:
            value = _finite(float(text), text)
        except OverflowError:  # an integer has as many digits as were written
            raise UnitError("the number is too large to be real") from None
        if dimension == "1":
            return value
        raise UnitError(
            f"a number without a unit: {value:g}",
            f'write "{value:g} {_LIKELY[dimension]}" if that is meant; the unit is part of the value',
        )
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f'cannot read "{text}" as a quantity', f'write it like "{EXAMPLES[dimension]}"')
    number, unit = match.groups()
    if re.match(r",\d", unit):
        raise UnitError(f'a comma in the number: "{text}"', COMMA_HELP)
    try:
        # As `in_words` and the tables write it.
        found, scale = unit_scale("day" if unit in ("days", "d") else unit, dimension)
    except UnitError:
        if dimension == "1":
            raise UnitError(f'"{text}" has a unit, expected a plain number', f"write {number}") from None
        raise
    if found == "1" and dimension != "1" and unit == "":
        raise UnitError(
            f"a number without a unit: {number}",
            f'write "{number} {_LIKELY[dimension]}" if that is meant; the unit is part of the value',
        )
    if found != dimension:
        raise UnitError(
            f'"{text}" is {_describe(found)}, expected {_describe(dimension)}',
            f'write it like "{EXAMPLES[dimension]}"',
        )
    try:
        return _finite(float(Fraction(Decimal(number)) * scale), text)
    except OverflowError:
        raise UnitError(f'"{text}" is too large to be real') from None


def _finite(value: float, text: object) -> float:
    if not math.isfinite(value):
        raise UnitError(f"not a finite number: {text}")
    return value


_WORDS = {
    "B": "an amount of data",
    "B/s": "a data rate",
    "FLOP": "an amount of arithmetic",
    "FLOP/s": "a rate of arithmetic",
    "s": "a time",
    "W": "a power",
    "J": "an energy",
    "USD": "an amount of money",
    "USD/s": "a price per time",
    "USD/J": "a price per energy",
    "g": "a mass",
    "g/J": "a mass per energy",
    "1": "a plain number",
}


def _describe(dimension: str) -> str:
    return _WORDS.get(dimension, f"in {dimension}")


@lru_cache(maxsize=4096)
def format_quantity(value: float, dimension: str, digits: int | None = 4, like: float | None = None) -> str:
    """Text with a readable prefix; `digits=None` gives the shortest text that parses back to the same float.

    `like` is the value whose unit is taken, where several stand together.

    >>> format_quantity(3.35e12, "B/s"), format_quantity(1.3e-6, "s"), format_quantity(2.49 / 3600, "USD/s")
    ('3.35 TB/s', '1.3 us', '2.49 USD/h')
    >>> format_quantity(90.0, "s"), format_quantity(0.0, "B")
    ('1.5 min', '0 B')
    >>> format_quantity(66.0, "s", like=24.0)
    '66 s'
    """
    if not math.isfinite(value):
        return str(value)
    exact = Fraction(value)
    units = _SHOWN[dimension]
    size = abs(exact if like is None or not math.isfinite(like) else Fraction(like))
    if size:
        unit = next((unit for unit in units if size >= unit_scale(unit)[1]), units[-1])
    else:
        unit = dimension if dimension in units else units[-1]
    scale = unit_scale(unit)[1]
    if digits is not None:
        number = _plain(exact / scale, digits)
    else:
        number = next(
            text
            for n in range(1, 18)
            if parse(f"{(text := _plain(exact / scale, n))} {unit}".strip(), dimension) == value
        )
    return f"{number} {unit}".strip()


def counted(count: int, one: str, many: str) -> str:
    """A number of things.

    >>> counted(1, "family", "families"), counted(0, "point", "points")
    ('1 family', '0 points')
    """
    return f"{count} {one if count == 1 else many}"


def in_words(value: float, dimension: str, digits: int = 4, like: float | None = None) -> str:
    """A quantity for a sentence: whole dollars with thousands apart, days in the plural; `like` gives the unit.

    >>> in_words(23339.6, "USD"), in_words(2 * 86400.0, "s"), in_words(86400.0, "s"), in_words(90.0, "s")
    ('23,340 USD', '2 days', '1 day', '1.5 min')
    >>> parse("2 days", "s") == parse("2 day", "s") == parse("2 d", "s")
    True
    """
    if dimension == "USD" and abs(value) >= 1000 and math.isfinite(value):
        return f"{value:,.0f} USD"
    text = format_quantity(value, dimension, digits, like)
    return f"{text}s" if text.endswith(" day") and text != "1 day" else text


def band_in_words(low: float, high: float, dimension: str, digits: int = 4, like: float | None = None) -> str:
    """Two ends in one unit: that of `like`, which stands beside them, else of their geometric middle.

    >>> band_in_words(24.0, 66.0, "s"), band_in_words(24.0, 66.0, "s", like=61.0), band_in_words(0.9, 1.2, "s", 3)
    ('24 s to 66 s', '0.4 min to 1.1 min', '0.9 s to 1.2 s')
    """
    middle = math.sqrt(abs(low * high)) if like is None else like
    return " to ".join(in_words(end, dimension, digits, middle) for end in (low, high))


def clock(seconds: float) -> str:
    """A time limit as schedulers read it, rounded up to whole minutes: days-hours:minutes:seconds.

    >>> clock(59), clock(3661), clock(100_000)
    ('00:01:00', '01:02:00', '1-03:47:00')
    """
    minutes = max(-(-int(-(-seconds // 1)) // 60), 1)
    days, rest = divmod(minutes, 24 * 60)
    hours, left = divmod(rest, 60)
    return f"{f'{days}-' if days else ''}{hours:02d}:{left:02d}:00"


def percent(share: float, digits: int = 3) -> str:
    """A share for a sentence.

    >>> percent(0.975), percent(0.7)
    ('97.5 %', '70 %')
    """
    return f"{100.0 * share:.{digits}g} %"


def chance_in_words(chance: float) -> str:
    """A probability for a sentence: nothing that a model predicts is certain.

    >>> chance_in_words(0.953), chance_in_words(1.0), chance_in_words(0.0004)
    ('95 %', 'above 99 %', 'below 1 %')
    """
    if not math.isfinite(chance):
        return "not known"
    return "below 1 %" if chance < 0.01 else "above 99 %" if chance > 0.99 else f"{100.0 * chance:.0f} %"


def _plain(value: Fraction, digits: int) -> str:
    """Decimal text with at most `digits` significant digits, without trailing zeros."""
    if not value:
        return "0"
    sign = "-" if value < 0 else ""
    value = abs(value)
    exponent = math.floor(math.log10(value.numerator) - math.log10(value.denominator))
    # log10 may be one off at powers of ten; the exact comparison settles it.
    while Fraction(10) ** (exponent + 1) <= value:
        exponent += 1
    while Fraction(10) ** exponent > value:
        exponent -= 1
    mantissa = round(value / Fraction(10) ** (exponent - digits + 1))
    power = exponent - digits + 1
    if -8 < exponent < 15:
        text = format(Decimal(mantissa).scaleb(power), "f")
        return sign + (text.rstrip("0").rstrip(".") if "." in text else text)
    head = format(Decimal(mantissa).scaleb(-(len(str(mantissa)) - 1)), "f")
    head = head.rstrip("0").rstrip(".") if "." in head else head
    return f"{sign}{head}e{power + len(str(mantissa)) - 1}"


def pattern(dimension: str) -> str:
    """A regular expression for editors: a number and a unit of this dimension."""
    number = r"[+-]?\d+(_\d{3})*(\.\d*)?([eE][+-]?\d+)?"
    if dimension == "1":
        return rf"^{number}( ?(%|[kMGT]))?$"
    parts = [_unit_pattern(base) for base in dimension.split("/")]
    return rf"^{number} ?{'/'.join(parts)}$"


def _unit_pattern(base: str) -> str:
    options = []
    for name, unit in _UNITS.items():
        if unit.dimension == base:
            prefixes = "|".join(unit.prefixes)
            options.append(f"({prefixes})?{name}" if prefixes else name)
    return f"({'|'.join(options)})"
