"""Levels of a job by which beliefs vary."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.features import discrepancy, features, level_value
from perfmodel.beliefs.population import DISCREPANCIES, shipped_beliefs
from perfmodel.physics.coefficients import LEVELS, NAMES
from perfmodel.physics.examples import transformer
from perfmodel.physics.layouts import layouts
from perfmodel.specs.catalog import Catalog

UNFUSED = NAMES.index("unfused")


@pytest.fixture(scope="module")
def job() -> dict[str, str]:
    catalog = Catalog.default()
    return features(
        catalog.get("workloads", "bert-large"),
        catalog.get("accelerators", "a100-sxm4-80gb"),
        "fp16",
        framework="pytorch_eager",
        scale_up="nvswitch-2",
        scale_out=None,
    )


def test_every_level_of_a_coefficient_is_made_of_features(job: dict[str, str]) -> None:
    parts = {part for levels in LEVELS.values() for level in levels for part in level.split("*")}
    assert parts <= set(job)


def test_a_crossed_level_is_that_of_the_features_as_they_are_now(job: dict[str, str]) -> None:
    tuned = {**job, "tuning": "tuned"}
    assert level_value(job, "framework*tuning") == "pytorch_eager*stock"
    assert level_value(tuned, "framework*tuning") == "pytorch_eager*tuned"
    # Racers wrote fused attention of their own: a belief about the framework as they tune it.
    known = shipped_beliefs()
    assert known.belief(tuned).median[UNFUSED] < known.belief(job).median[UNFUSED] - 1.0


def test_what_was_measured_in_one_16_bit_format_is_known_of_the_other() -> None:
    catalog = Catalog.default()
    workload, device = catalog.get("workloads", "resnet50"), catalog.get("accelerators", "a100-sxm4-80gb")
    of = {
        precision: shipped_beliefs().belief(
            features(workload, device, precision, framework="pytorch_eager", scale_up=None, scale_out=None)
        )
        for precision in ("fp16", "bf16", "fp32")
    }
    assert of["fp16"].median.tolist() == of["bf16"].median.tolist() != of["fp32"].median.tolist()


def test_what_nobody_says_is_a_value_of_its_own(job: dict[str, str]) -> None:
    assert job["scale_out"] == "unknown"
    assert level_value(job, "kind*colour") == "encoder-transformer*unknown"


def test_what_no_coefficient_explains_follows_from_the_layout() -> None:
    at = layouts(
        64, global_batch=256, accelerators_per_node=8, tp=2, pp=4, cp=2, micro_batch=2, recompute=0.5
    )
    found = discrepancy(transformer(), at)
    assert len(found) == len(DISCREPANCIES)
    expected = [
        1.0,
        6.0,
        1.0,
        3.0,
        np.log(4.0),
        np.log(2.0),
        np.log(4.0),
        np.log(2.0),
        0.0,
        0.5,
        np.log(2.0),
        np.log(1024.0),
    ]
    assert found.ravel().tolist() == pytest.approx(expected)
