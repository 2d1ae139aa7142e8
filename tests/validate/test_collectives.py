"""Held-out errors of the shipped collective sweeps, and the way they are scored."""

from __future__ import annotations

import csv
from functools import cache
from typing import Any

import numpy as np
import pytest

from perfmodel.calibrate.collectives import shipped
from perfmodel.specs.catalog import Catalog
from perfmodel.validate import collectives
from perfmodel.validate.validation import shipped_corpus

CATALOG = Catalog.default()


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with (shipped_corpus() / "collectives.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream))


@cache
def _figures() -> dict[str, Any]:
    return collectives.validate_collectives(_rows(), CATALOG, is_shipped=True)


def test_every_point_of_eight_kib_and_more_is_scored() -> None:
    expected = sum(float(row["bytes"]) >= 8192 for row in _rows())
    assert _figures()["points"] == expected
    assert set(_figures()["schemes"]) == {"sweep", "fabric", "two_points"}


@pytest.mark.parametrize(
    ("scheme", "median", "mean", "p90"),
    [("sweep", 0.062, 0.116, 0.305), ("fabric", 0.11, 0.17, 0.40), ("two_points", 0.06, 0.091, 0.23)],
)
def test_error_without_the_sweep_itself(scheme: str, median: float, mean: float, p90: float) -> None:
    found = _figures()["schemes"][scheme]
    assert found["median_ape"] <= median
    assert found["mean_ape"] <= mean
    assert found["p90_ape"] <= p90


def test_a_fold_exists_for_every_sweep_and_fabric_and_differs_from_the_full_fit() -> None:
    data = collectives.read(_rows(), CATALOG)
    folds = collectives.shipped_folds()
    for scheme in collectives.SCHEMES:
        assert set(folds[scheme]) == set(data.keys[scheme].tolist())
        assert all(len(values) == len(shipped().names) for values in folds[scheme].values())
    full = np.round(shipped().values, 3)
    assert all((np.array(values) != full).any() for values in folds["fabric"].values())


def test_one_fold_fitted_again_gives_the_shipped_prediction() -> None:
    data = collectives.read(_rows(), CATALOG)
    key = "aic-b300-sxm-all-to-all-4"
    only = collectives.fit_without(data, shipped(), "sweep", key)
    again = collectives.held_out_log_errors(data, "sweep", shipped(), {key: only.tolist()})
    committed = collectives.held_out_log_errors(
        data, "sweep", shipped(), collectives.shipped_folds()["sweep"]
    )
    rows = data.keys["sweep"] == key
    assert np.allclose(again[rows], committed[rows], atol=0.03)


def test_another_folder_uses_the_shipped_coefficients() -> None:
    some = [row for row in _rows() if row["sweep"] == "nccl-s011"]
    found = collectives.validate_collectives(some, CATALOG, is_shipped=False)
    assert set(found["schemes"]) == {"shipped", "two_points"}
    assert found["points"] == len(some)


def test_no_point_is_no_figure() -> None:
    small = [row for row in _rows() if float(row["bytes"]) < 8192][:3]
    assert collectives.validate_collectives(small, CATALOG, is_shipped=False)["median_ape"] is None
