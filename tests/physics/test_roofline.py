"""The roofline: both roofs, a rounded ridge, and products from their shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.physics.roofline import (
    LEAST_FILL,
    lost_waves,
    product_time,
    ridge_flop_per_byte,
    roofline_time,
)

PEAK, MEMORY = 312e12, 2.0e12
amounts = st.floats(1e3, 1e18)
factors = st.floats(1.0, 100.0)


@given(amounts, amounts)
def test_between_the_larger_roof_and_a_fifth_more(flop: float, traffic: float) -> None:
    time = float(roofline_time(flop, traffic, flop_per_s=PEAK, bytes_per_s=MEMORY))
    hard = max(flop / PEAK, traffic / MEMORY)
    assert hard * (1 - 1e-12) <= time <= hard * 2**0.25 * (1 + 1e-12)


def test_far_from_the_ridge_one_roof_counts_and_on_it_both() -> None:
    ridge = float(ridge_flop_per_byte(PEAK, MEMORY))
    assert ridge == pytest.approx(156.0)
    for intensity, share in ((100.0 * ridge, 1.0), (ridge, 2**-0.25), (0.01 * ridge, 0.01)):
        time = float(roofline_time(1e15, 1e15 / intensity, flop_per_s=PEAK, bytes_per_s=MEMORY))
        assert 1e15 / time / PEAK == pytest.approx(share, rel=1e-6)


@given(amounts, amounts, factors)
def test_more_of_anything_fast_never_slower_and_more_work_never_faster(
    flop: float, traffic: float, factor: float
) -> None:
    time = float(roofline_time(flop, traffic, flop_per_s=PEAK, bytes_per_s=MEMORY))
    assert float(roofline_time(flop, traffic, flop_per_s=PEAK * factor, bytes_per_s=MEMORY)) <= time
    assert float(roofline_time(flop, traffic, flop_per_s=PEAK, bytes_per_s=MEMORY * factor)) <= time
    assert float(roofline_time(flop * factor, traffic, flop_per_s=PEAK, bytes_per_s=MEMORY)) >= time


def test_a_product_counts_its_operands() -> None:
    """Slow memory: the time is that of weights, input and output, in 16 bit or what is asked for."""
    r, i, o = 128.0, 1024.0, 4096.0
    for width in (1.0, 2.0, 4.0):
        time = product_time(
            r, i, o, flop_per_s=1e30, bytes_per_s=1e9, weight_bytes=width, activation_bytes=width
        )
        assert float(time) == pytest.approx(width * (i * o + r * i + r * o) / 1e9)
    # Experts: one matrix each is read, the rows are only dealt out.
    many = product_time(r, i, o, weights=8, flop_per_s=1e30, bytes_per_s=1e9)
    assert float(many) == pytest.approx(2.0 * (8 * i * o + r * i + r * o) / 1e9)


def test_fewer_rows_waste_the_machine() -> None:
    """Cutting a batch K ways does not cut its time K ways: weights are read all the same."""
    rows = 2.0 ** np.arange(0, 15)
    time = product_time(rows, 4096, 4096, flop_per_s=PEAK, bytes_per_s=MEMORY)
    rate = 2.0 * rows * 4096 * 4096 / time / PEAK
    assert (np.diff(time) > 0).all()
    assert (np.diff(rate) > 0).all()
    assert rate[0] < 0.01
    assert 0.95 < rate[-1] < 1.0
    assert time[0] == pytest.approx(2.0 * (4096**2 + 2 * 4096) / MEMORY, rel=1e-3)


@given(st.lists(st.floats(1.0, 1e5), min_size=2, max_size=6))
def test_batch_axis_is_elementwise(rows: list[float]) -> None:
    together = product_time(np.array(rows), 512, 512, flop_per_s=PEAK, bytes_per_s=MEMORY)
    for row, time in zip(rows, together, strict=True):
        assert float(product_time(row, 512, 512, flop_per_s=PEAK, bytes_per_s=MEMORY)) == time


@given(st.floats(1.0, 1e9), st.floats(1.0, 1e7), st.floats(1.0, 4.0))
def test_a_larger_product_loses_a_smaller_part(outputs: float, wave: float, larger: float) -> None:
    small, large = lost_waves(outputs, wave), lost_waves(larger * outputs, wave)
    assert large <= small <= 1.0 / LEAST_FILL
    # Never so much less that the larger product would be done sooner.
    assert outputs * (1.0 + small) <= larger * outputs * (1.0 + large) * (1.0 + 1e-12)


def test_without_compute_units_nothing_is_lost() -> None:
    assert lost_waves([0.0, 1.0, 1e9], 0.0).tolist() == [0.0, 0.0, 0.0]


# Square products in 16 bit on an A100 SXM (cuBLASLt, random data): Azure AI benchmarking guide, FLOP/s.
A100_SQUARES = {1024: 119.4e12, 2048: 221.8e12, 4096: 228.0e12, 8192: 253.7e12, 16384: 256.5e12}


def test_part_full_waves_explain_measured_squares() -> None:
    """A launch and a share of a wave beside the roofline; the same two numbers for all sizes."""
    side = np.array(list(A100_SQUARES), float)
    measured = 2.0 * side**3 / np.array(list(A100_SQUARES.values()))
    rate = 0.83 * 312e12
    roof = product_time(side, side, side, flop_per_s=rate, bytes_per_s=0.85 * 1.555e12)
    wave = 108 * 128.0 * 256.0
    told = roof + 5e-6 + 0.25 * lost_waves(side**2, wave) * 2.0 * side**3 / rate
    assert np.abs(told / measured - 1.0).max() < 0.1
    assert (roof / measured - 1.0).min() < -0.5


DEEPBENCH = Path(__file__).parents[1] / "reference" / "deepbench_v100_fp16.csv"


def test_a_lost_wave_explains_products_better_than_the_best_fixed_time() -> None:
    """160 shapes, 16 to 48,000 wide; rate, launch and share of a wave are the same for all of them."""
    m, n, k, time_us = np.loadtxt(DEEPBENCH, delimiter=",", skiprows=2, unpack=True)
    wave = 80 * 128.0 * 256.0

    def mean_error(fraction: float, launch_s: float, tail: float) -> float:
        rate = fraction * 125e12
        roof = product_time(n, k, m, flop_per_s=rate, bytes_per_s=0.8 * 0.9e12)
        told = roof + launch_s + tail * lost_waves(m * n, wave) * 2.0 * m * n * k / rate
        return float(np.abs(np.log(told / (time_us * 1e-6))).mean())

    with_wave = mean_error(0.82, 7e-6, 0.18)
    fixed = min(
        mean_error(f, us * 1e-6, 0.0) for f in np.arange(0.7, 0.92, 0.02) for us in np.arange(4.0, 20.0)
    )
    assert with_wave < 0.12
    assert fixed > 1.1 * with_wave
