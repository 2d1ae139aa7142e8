"""The likely reason of a miss is the belief that was wrong, where one was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import population_logs
from perfmodel.physics.coefficients import MEANINGS, NAMES
from perfmodel.validate.misses import likely_reason, worst
from perfmodel.validate.protocol import score_mode
from perfmodel.validate.resolve import Resolved


@pytest.fixture(scope="module")
def data(resolved: Resolved) -> Observations:
    return resolved.observations


@pytest.mark.parametrize(
    ("family", "wrong", "factor"),
    [
        ("lambda-bert-large-fp16-rtx-3090-b16", "bus_bytes_per_s", 0.2),
        ("dle-pytorch-jasper-v100-32gb-dgx-2-fp32-b32", "other", 0.6),
        ("dle-tensorflow2-sim-on-v100-32gb-dgx-2-amp-fp32-samples-s", "sync_s", 4.0),
        ("lambda-resnet50-fp16-v100-sxm2-16gb-b256", "other_traffic", 0.25),
    ],
)
def test_a_belief_that_was_wrong_is_named(data: Observations, family: str, wrong: str, factor: float) -> None:
    beliefs = shipped_beliefs()
    index = data.names.index(family)
    rows = data.rows[index]
    logs = np.repeat(population_logs(beliefs, data, [index]), rows.size, axis=1)
    moved = logs.copy()
    moved[NAMES.index(wrong)] += np.log(factor)
    missing = data.model(moved, rows) - data.model(logs, rows)
    assert np.abs(missing).max() > 0.05
    reason = likely_reason(data, index, rows, missing, None, beliefs)
    assert reason.startswith(MEANINGS[wrong])
    assert ("x0." in reason or "less" in reason) == (factor < 1)


def test_what_the_calibration_has_seen_explains_nothing(data: Observations) -> None:
    """An error that is the same at every K is a reason without timings; with some it cannot be one."""
    beliefs = shipped_beliefs()
    index = data.names.index("dle-pytorch-jasper-v100-32gb-dgx-2-fp32-b32")
    seen, rows = data.rows[index][:1], data.rows[index][1:]
    alike = np.full(rows.size, 0.5)
    assert "no single belief" not in likely_reason(data, index, rows, alike, None, beliefs)
    assert "all K alike" not in likely_reason(data, index, rows, alike, seen, beliefs)


def test_the_worst_come_first_and_no_more_than_asked_for(data: Observations) -> None:
    beliefs = shipped_beliefs()
    ids = [i for i in range(len(data.names)) if data.rows[i].size][:40]
    known = score_mode(data, "datasheet", ids, lambda family: beliefs)
    chosen = int(data.family[known.rows[-1]])
    some = replace(data, target=data.target.copy())
    some.target[data.rows[chosen]] -= 2.0
    found = worst(some, score_mode(some, "datasheet", ids, lambda family: beliefs), lambda family: beliefs, 5)
    assert len(found) == 5
    assert found[0]["family"] == data.names[chosen]
    assert [row["mean_ape"] for row in found] == sorted((row["mean_ape"] for row in found), reverse=True)
    assert all(len(row["k"]) == len(row["error"]) for row in found)
