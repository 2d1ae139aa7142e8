"""The laws against the reference tables, to the printed digit, and at their edges."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from perfmodel.physics import laws

REFERENCE = Path(__file__).parents[1] / "reference"


def rows(name: str) -> list[dict[str, str]]:
    with (REFERENCE / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", rows("amdahl_f005.csv"), ids=lambda row: f"k={row['k']}")
def test_amdahl_table(row):
    k = int(row["k"])
    assert f"{laws.amdahl_time(k, 0.05):.4f}" == row["time"]
    assert f"{laws.amdahl_speedup(k, 0.05):.4f}" == row["speedup"]
    assert f"{laws.amdahl_efficiency(k, 0.05):.4f}" == row["efficiency"]


@pytest.mark.parametrize("row", rows("gustafson_s005.csv"), ids=lambda row: f"k={row['k']}")
def test_gustafson_table(row):
    assert f"{laws.gustafson_speedup(int(row['k']), 0.05):.2f}" == row["scaled_speedup"]


def test_amdahl_sweep():
    expected = json.loads((REFERENCE / "amdahl_sweep.expected.json").read_text())
    keeps = expected.pop("serial_fraction_that_keeps_efficiency_080")
    for serial, found in expected.items():
        assert round(float(laws.amdahl_ceiling(float(serial))), 6) == found["ceiling"]
        below = int(laws.smallest_integer_above(laws.amdahl_k_at_efficiency(0.5, float(serial))))
        assert below == found["smallest_k_with_efficiency_below_050"]
    for k, serial in keeps.items():
        assert round(float(laws.amdahl_serial_for_efficiency(int(k), 0.8)), 6) == serial


def test_strong_and_weak_regimes():
    expected = json.loads((REFERENCE / "strong_weak.expected.json").read_text())
    k = np.array(expected["k"])
    model = {"serial_s": 0.04, "parallel_s": 0.96, "alpha_s": 0.010}
    strong = laws.communicating_time(k, "log2p1", **model)
    weak = laws.communicating_time(k, "log2p1", regime="weak", **model)
    assert [f"{t:.4f}" for t in strong] == [f"{t:.4f}" for t in expected["strong_time_s"]]
    assert [f"{t:.4f}" for t in weak] == [f"{t:.4f}" for t in expected["weak_time_s"]]
    assert laws.strong_efficiency(k, strong, 1, strong[0]).round(3).tolist() == expected["strong_efficiency"]
    assert laws.weak_efficiency(weak, weak[0]).round(3).tolist() == expected["weak_efficiency"]


@pytest.mark.parametrize("serial", [0.01, 0.05, 0.2, 0.0376])
def test_smallest_k_is_the_smallest(serial):
    below = int(laws.smallest_integer_above(laws.amdahl_k_at_efficiency(0.5, serial)))
    assert laws.amdahl_efficiency(below, serial) < 0.5
    assert laws.amdahl_efficiency(below - 1, serial) >= 0.5 - 1e-12


def test_without_serial_work_nothing_is_lost():
    k = np.array([1, 7, 1000])
    assert np.array_equal(laws.amdahl_speedup(k, 0.0), k)
    assert laws.amdahl_ceiling(0.0) == np.inf
    assert laws.amdahl_k_at_efficiency(0.5, 0.0) == np.inf
    assert laws.smallest_integer_above(laws.amdahl_k_at_efficiency(0.5, 0.0)) == np.inf
    assert laws.amdahl_k_at_efficiency(1.0, 0.0) == 1.0


def test_impossible_k_is_nan_and_leaves_its_neighbours_alone():
    found = laws.amdahl_speedup([0, 1, -3, 4], 0.1)
    assert np.isnan(found[[0, 2]]).all()
    assert found[[1, 3]].tolist() == [1.0, float(laws.amdahl_speedup(4, 0.1))]


def test_usl_without_coherency_is_amdahl_and_with_it_turns_back():
    k = np.arange(1, 200)
    assert laws.usl_speedup(k, 0.05, 0.0) == pytest.approx(laws.amdahl_speedup(k, 0.05), rel=1e-12)
    peak = float(laws.usl_peak_k(0.02, 0.0005))
    curve = laws.usl_speedup(k, 0.02, 0.0005)
    assert abs(k[np.argmax(curve)] - peak) <= 1
    assert laws.usl_peak_k(0.02, 0.0) == np.inf


def test_usl_inverses():
    for sigma, kappa in ((0.0, 0.001), (0.03, 0.0002), (0.1, 0.0)):
        k = float(laws.usl_k_at_efficiency(0.6, sigma, kappa))
        assert laws.usl_efficiency(k, sigma, kappa) == pytest.approx(0.6, rel=1e-12)
    sigma = float(laws.usl_sigma_for_efficiency(16, 0.6, 0.001))
    assert laws.usl_efficiency(16, sigma, 0.001) == pytest.approx(0.6, rel=1e-12)
    assert np.isnan(laws.usl_sigma_for_efficiency(1000, 0.9, 0.01))


def test_gustafson_inverses():
    k = float(laws.gustafson_k_at_efficiency(0.7, 0.4))
    assert laws.gustafson_efficiency(k, 0.4) == pytest.approx(0.7, rel=1e-12)
    assert laws.gustafson_k_at_efficiency(0.5, 0.4) == np.inf  # E never falls below 0.6
    s = float(laws.gustafson_serial_for_efficiency(8, 0.9))
    assert laws.gustafson_efficiency(8, s) == pytest.approx(0.9, rel=1e-12)


def test_ring_is_hockney_s_closed_form():
    k, alpha, size, bandwidth = 8, 1e-6, 1e9, 1e11
    expected = 2 * (k - 1) * alpha + 2 * (k - 1) / k * size / bandwidth
    found = laws.communication_time(
        k, "ring", alpha_s=alpha, message_bytes=size, bandwidth_bytes_per_s=bandwidth
    )
    assert float(found) == pytest.approx(expected, rel=1e-12)
    assert laws.communication_time(1, "ring", alpha_s=alpha) == 0.0


def test_linear_term_at_two_workers_is_one_message():
    found = laws.communication_time(
        [1, 2, 3], "linear", alpha_s=1.0, message_bytes=10.0, bandwidth_bytes_per_s=5.0
    )
    assert found.tolist() == [0.0, 3.0, 6.0]


def test_unknown_term_is_named():
    with pytest.raises(ValueError, match="butterfly"):
        laws.communication_rounds(4, "butterfly")
