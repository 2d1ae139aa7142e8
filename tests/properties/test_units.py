"""Units round trip: what is printed is read back as the same float, and prefixes are exactly 1000 apart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.units import DIMENSIONS, UnitError, format_quantity, parse

floats = st.floats(min_value=1e-20, max_value=1e25, allow_nan=False) | st.just(0.0)


@given(value=floats, sign=st.sampled_from([1.0, -1.0]), dimension=st.sampled_from(DIMENSIONS))
def test_exact_text_reads_back(value: float, sign: float, dimension: str) -> None:
    assert parse(format_quantity(sign * value, dimension, digits=None), dimension) == sign * value


@given(value=floats, dimension=st.sampled_from(DIMENSIONS), digits=st.integers(2, 12))
def test_short_text_is_close(value: float, dimension: str, digits: int) -> None:
    back = parse(format_quantity(value, dimension, digits=digits), dimension)
    assert back == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))


@given(
    number=st.integers(1, 10**6), small=st.sampled_from("kMGT"), unit=st.sampled_from(["B", "FLOP", "W", "J"])
)
def test_adjacent_prefixes_differ_by_a_thousand(number: int, small: str, unit: str) -> None:
    large = {"k": "M", "M": "G", "G": "T", "T": "P"}[small]
    dimension = unit
    assert parse(f"{number * 1000} {small}{unit}", dimension) == parse(f"{number} {large}{unit}", dimension)


@given(text=st.text(max_size=30), dimension=st.sampled_from(DIMENSIONS))
def test_any_text_is_read_or_refused(text: str, dimension: str) -> None:
    try:
        value = parse(text, dimension)
    except UnitError:
        return
    assert math.isfinite(value)
