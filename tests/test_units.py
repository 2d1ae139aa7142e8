"""Units: what is read, what is refused and in which words, what is printed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from perfmodel.units import BINARY, DECIMAL, EXAMPLES, SMALL, UnitError, format_quantity, parse, pattern


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("989 TFLOP/s", "FLOP/s", 989e12),
        ("3.35 TB/s", "B/s", 3.35e12),
        ("400 Gbit/s", "B/s", 50e9),
        ("80 GiB", "B", 80 * 2**30),
        ("80GB", "B", 80e9),
        ("1.3 us", "s", 1.3e-6),
        ("1.3 µs", "s", 1.3e-6),
        ("2 min", "s", 120.0),
        ("50000 h", "s", 1.8e8),
        ("1 day", "s", 86400.0),
        ("2.49 USD/h", "USD/s", 2.49 / 3600),
        ("379 g/kWh", "g/J", 379 / 3.6e6),
        ("0.11 USD/kWh", "USD/J", 0.11 / 3.6e6),
        ("3 kWh", "J", 1.08e7),
        ("1.5 kW", "W", 1500.0),
        ("90 %", "1", 0.9),
        ("25.6 M", "1", 25.6e6),
        ("1_000 B", "B", 1000.0),
        ("1e3 B", "B", 1000.0),
        (7, "1", 7.0),
    ],
)
def test_reads(text: str | int, dimension: str, value: float) -> None:
    assert parse(text, dimension) == value


def test_prefixes_are_computed() -> None:
    assert [DECIMAL[key] for key in "kMGTPEZ"] == [Fraction(1000) ** n for n in range(1, 8)]
    assert [BINARY[f"{key}i"] for key in "KMGTPE"] == [Fraction(1024) ** n for n in range(1, 7)]
    assert [SMALL[key] * 1000 ** (n + 1) for n, key in enumerate("munp")] == [1, 1, 1, 1]


@pytest.mark.parametrize("text", ["400 Gb/s", "400 Gbps", "400 gb/s", "1 Mb/s", "3 kb", "2 Gib/s"])
def test_a_lone_b_is_refused_with_both_readings(text: str) -> None:
    dimension = "B/s" if "s" in text else "B"
    with pytest.raises(UnitError) as caught:
        parse(text, dimension)
    assert "bit" in caught.value.message
    assert "may be bits or bytes" in caught.value.message
    assert caught.value.message.count("B") >= 1


@pytest.mark.parametrize(
    ("text", "dimension", "message", "hint"),
    [
        (450, "B/s", "without a unit", '"450 GB/s"'),
        ("450", "B/s", "without a unit", '"450 GB/s"'),
        ("3 hours", "s", 'unknown unit "hours"', '"h"'),
        ("3 TFLOPS", "FLOP/s", "unknown unit", '"TFLOP/s"'),
        ("2 dollars/hour", "USD/s", "unknown unit", '"USD/h"'),
        ("80 GB", "s", "is an amount of data, expected a time", "1.3 us"),
        ("", "s", "cannot read", "1.3 us"),
        ("nan s", "s", "cannot read", "1.3 us"),
        ("1e999 s", "s", "too large", None),
        (float("inf"), "1", "not a finite number", None),
        (True, "s", "got true", None),
        ("5 zorkmids", "s", "unknown unit", None),
        ("1000 steps", "1", "expected a plain number", "write 1000"),
        ("1,000", "1", "a comma in the number", "with a point"),
        ("2,10 USD/h", "USD/s", "a comma in the number", "with a point"),
        ("50 %", "s", "is a plain number, expected a time", None),
        ("7 foot", "B", 'unknown unit "foot"', 'write it like "80 GB"'),
        ("3 hours", "B", 'unknown unit "hours"', 'write it like "80 GB"'),
        ("3 kb", "s", 'unknown unit "kb"', 'write it like "1.3 us"'),
        ("3 GiBs", "B", "unknown unit", '"GiB"'),
        ("3 kwh", "J", "unknown unit", '"kWh"'),
        ("\u0664 s", "s", "cannot read", "1.3 us"),
        ("1\u0664 s", "s", "unknown unit", None),
    ],
)
def test_refuses(text: str | float, dimension: str, message: str, hint: str | None) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text, dimension)
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (989.4e12, "FLOP/s", "989.4 TFLOP/s"),
        (50e9, "B/s", "50 GB/s"),
        (0.0, "USD/s", "0 USD/h"),
        (0.0, "s", "0 s"),
        (1.25e-7, "s", "125 ns"),
        (7200.0, "s", "2 h"),
        (-3e9, "B", "-3 GB"),
        (1e-30, "s", "1e-18 ps"),
        (0.123456, "1", "0.1235"),
        (379 / 3.6e6, "g/J", "379 g/kWh"),
        (float("nan"), "s", "nan"),
    ],
)
def test_prints(value: float, dimension: str, text: str) -> None:
    assert format_quantity(value, dimension) == text


def test_examples_fit_their_patterns() -> None:
    import re

    for dimension, example in EXAMPLES.items():
        assert re.fullmatch(pattern(dimension), example), dimension
        assert parse(example, dimension) > 0
    assert not re.fullmatch(pattern("B/s"), "400 Gb/s")


def test_an_integer_beyond_any_float_is_refused() -> None:
    with pytest.raises(UnitError, match="too large to be real"):
        parse(10**400, "1")
    with pytest.raises(UnitError, match="too large to be real"):
        parse(10**400, "USD/s")
