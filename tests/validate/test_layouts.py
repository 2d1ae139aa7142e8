"""The model orders measured layouts as the measurement does, and a search beside a run prices the run alike."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from studies.layouts import ordering, search_beside

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.validate.fitting import held_out
from perfmodel.validate.folds import shipped_folds
from perfmodel.validate.protocol import Scored, score_mode
from perfmodel.validate.resolve import Resolved


@pytest.fixture(scope="module")
def scored(resolved: Resolved) -> Scored:
    data = resolved.observations
    ids = [i for i in range(len(data.names)) if data.rows[i].size]
    return score_mode(data, "datasheet", ids, held_out(resolved, shipped_folds(), shipped_beliefs(), "group"))


def test_pairs_are_ordered_as_measured(resolved: Resolved, scored: Scored) -> None:
    found = ordering(resolved, scored)
    assert found["pairs"] > 5000
    assert found["share"] >= 0.85
    assert found["share_by_model"] >= 0.85
    assert found["pairs"] == sum(row["pairs"] for row in found["by_source"].values())


def test_a_perfect_model_orders_every_pair_and_its_mirror_none(resolved: Resolved, scored: Scored) -> None:
    data = resolved.observations
    truth = data.target[scored.rows]
    for predicted, share in ((truth, 1.0), (-truth, 0.0)):
        copy = dataclasses.replace(scored, predicted=predicted)
        assert ordering(resolved, copy)["share"] == share


def test_the_search_never_does_worse_than_a_layout_inside_its_bounds(resolved: Resolved) -> None:
    data = resolved.observations
    rows = [
        row
        for row, point in enumerate(resolved.points)
        if resolved.families[int(data.family[row])].text["source"] == "korthikanti-2022"
        and point.number["global_batch"] is not None
    ][:3]
    assert rows
    for run in search_beside(resolved, lambda family: shipped_beliefs(), rows):
        assert run["found_s"] <= run["theirs_s"] * (1 + 1e-9)
        assert run["theirs_s"] == pytest.approx(run["measured_s"], rel=0.5)
        assert np.prod([run["found"][name] for name in ("dp", "tp", "pp", "cp")]) == run["k"]
