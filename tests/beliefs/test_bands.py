"""Widths of bands by what is known of jobs like this one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.bands import CELL, LEVELS, SLOPES, held_back, scale, thinness
from perfmodel.beliefs.extrapolation import band_spread
from perfmodel.beliefs.features import level_value
from perfmodel.beliefs.population import Beliefs, from_mapping, shipped_beliefs, to_mapping
from perfmodel.calibrate.job import Direct, calibrate
from perfmodel.specs.catalog import Catalog
from perfmodel.training.curve import curve
from perfmodel.training.setup import Setup

CATALOG = Catalog.default()
NONE = np.zeros((0, 2))


def setup() -> Setup:
    k = np.array([8.0, 16.0, 32.0])
    return Setup(
        CATALOG.get("workloads", "llama3-8b"),
        CATALOG.cluster("dgx-h100"),
        "bf16",
        k,
        k * 16.0,
        framework="megatron_core",
    )


def halves(beliefs: Beliefs) -> np.ndarray:
    found = curve(setup(), beliefs, draws=0)
    return np.log(found.high_s / found.time_s)


def test_shifts_of_a_jobs_own_values_multiply() -> None:
    shape = {"levels": {"kind": {"convnet": 0.2, "gnn": 9.0}, "kind*framework": {"convnet*xla": 0.3}}}
    features = {"kind": "convnet", "framework": "xla"}
    assert scale(shape, features, (), NONE) == pytest.approx(np.exp([0.5, 0.5]))


def test_a_value_that_nobody_measured_shifts_nothing_and_an_older_file_has_no_shape() -> None:
    shape = {"levels": {"kind": {"convnet": 0.2}}}
    assert scale(shape, {"kind": "gnn"}, (), NONE).tolist() == [1.0, 1.0]
    assert scale({}, {"kind": "gnn"}, SLOPES["datasheet"], np.ones((3, 2))).tolist() == [1.0, 1.0]


def test_every_level_can_be_read_off_a_job() -> None:
    features = setup().features()
    for levels in LEVELS.values():
        assert all("unknown" not in level_value(features, level) for level in levels)


def test_a_cell_that_more_groups_measured_is_narrower() -> None:
    shape = {"slopes": {"thin": 1.0}}
    cell = level_value(setup().features(), CELL)
    few, many = (
        replace(shipped_beliefs(), scales={"datasheet": shape}, groups={cell: count}) for count in (0, 99)
    )
    expected = np.exp(thinness(99) - thinness(0))
    # The stack is known: nothing is left open, which would not be scaled.
    assert halves(many) == pytest.approx(halves(few) * expected, rel=0.02)


def test_the_curves_band_is_scaled_for_the_job() -> None:
    plain = replace(shipped_beliefs(), scales={})
    wide = replace(plain, scales={"datasheet": {"levels": {"framework": {"megatron_core": np.log(2.0)}}}})
    other = replace(plain, scales={"datasheet": {"levels": {"framework": {"mxnet": np.log(2.0)}}}})
    assert halves(wide) == pytest.approx(2.0 * halves(plain))
    assert halves(other) == pytest.approx(halves(plain))


def test_timings_are_scaled_by_the_shape_of_their_own_mode() -> None:
    time_s = curve(setup(), shipped_beliefs(), draws=0).time_s[:1] * 1.1
    one = replace(setup(), k=setup().k[:1], global_batch=setup().global_batch[:1])
    plain, _ = calibrate(one, time_s, replace(shipped_beliefs(), scales={}))
    shape = {"levels": {"tuning": {"stock": np.log(3.0)}}}
    wide = replace(plain, scales={"one_node": shape, "datasheet": {}})
    assert plain.calibration is not None
    assert plain.calibration.mode == "one_node"
    assert halves(wide) == pytest.approx(3.0 * halves(plain))


def test_a_sweep_narrows_the_band_that_nothing_measured_had() -> None:
    beliefs = shipped_beliefs()
    median = float(np.exp(beliefs.belief(setup().features()).median[0]))
    swept, _ = calibrate(setup(), np.zeros(0), beliefs, [Direct("matmul", median, 0.01, "a kernel")])
    assert (halves(swept) < halves(beliefs)).all()


def test_files_keep_scales_and_groups_and_read_without_them() -> None:
    made = replace(
        shipped_beliefs(), scales={"one_node": {"levels": {"tuning": {"tuned": 0.5}}}}, groups={"a": 3}
    )
    data = to_mapping(made)
    again = from_mapping(data)
    assert (again.scales, again.groups) == (made.scales, made.groups)
    older = from_mapping({key: value for key, value in data.items() if key not in ("scales", "groups")})
    signs = np.arange(1.0, 9.0)[:, None]
    narrow, wide = (
        one.band_spread("one_node", {"tuning": "tuned"}, signs, np.ones(1), np.ones(1))
        for one in (older, made)
    )
    assert narrow == pytest.approx(band_spread(signs, older.band_weights("one_node")))
    assert wide == pytest.approx(np.exp(0.5) * narrow)


def test_what_nobody_measured_is_not_scaled() -> None:
    beliefs = replace(
        shipped_beliefs(),
        bands={"datasheet": [0.1, 0.0, 0.5]},
        scales={"datasheet": {"levels": {"kind": {"gnn": np.log(2.0)}}}},
    )
    signs = np.array([[1.0], [3.0], [0.6]])
    found = beliefs.band_spread("datasheet", {"kind": "gnn"}, signs, np.ones(1), np.ones(1))
    assert found == pytest.approx(np.hypot(2.0 * 0.1, 0.5 * 0.6))


def test_timings_widen_a_band_only_where_they_moved_the_prediction_out_of_it() -> None:
    half, before, shift = np.array([0.1, 4.0, 4.0, 0.6]), np.full(4, 0.5), np.array([0.0, 0.2, -0.9, -0.9])
    assert held_back(half, before, shift).tolist() == [0.1, 0.5, 0.9, 0.6]
