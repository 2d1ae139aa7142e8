"""A coefficient that is newer than the fit: every verb goes on, with its textbook value."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.population import EFFECTS, Beliefs, from_mapping, shipped_beliefs, to_mapping
from perfmodel.physics.coefficients import MEDIANS, NAMES, SPREADS
from perfmodel.specs.catalog import Catalog
from perfmodel.training.curve import curve
from perfmodel.training.setup import Setup
from perfmodel.validate.folds import Folds, shipped_folds

NEWER = "sync_s"


def without() -> dict[str, object]:
    data = to_mapping(shipped_beliefs())
    del data["shifts"][NEWER], data["scatter"][NEWER]
    data["level_spreads"] = {k: v for k, v in data["level_spreads"].items() if not k.startswith(f"{NEWER}|")}
    return data


def features() -> dict[str, str]:
    return setup().features()


def setup() -> Setup:
    catalog = Catalog.default()
    k = np.array([8.0, 64.0])
    return Setup(
        catalog.get("workloads", "bert-large"), catalog.cluster("dgx-a100"), "bf16", k, np.full(2, 512.0)
    )


def check(beliefs: Beliefs) -> None:
    index = NAMES.index(NEWER)
    belief = beliefs.belief(features())
    assert belief.median[index] == pytest.approx(
        np.log(MEDIANS[NEWER]), abs=1.0
    )  # and what is known of its levels
    assert belief.spread[index] == pytest.approx(SPREADS[NEWER])
    assert belief.basis[NEWER] == "assumed"
    assert np.isfinite(curve(setup(), beliefs, draws=4).time_s).all()


def test_a_coefficient_without_a_fitted_value_has_that_of_the_textbook() -> None:
    check(from_mapping(without()))
    known = from_mapping(without())
    others = [i for i, name in enumerate(EFFECTS) if name != NEWER]
    assert known.scatter[others] == pytest.approx(shipped_beliefs().scatter[others], rel=1e-3)


def test_so_has_one_that_is_newer_than_the_folds() -> None:
    folds = shipped_folds()
    kept = [i for i, name in enumerate(folds.names) if name[0] != NEWER]
    older = Folds(
        tuple(folds.names[i] for i in kept),
        folds.keys,
        {s: v[:, kept] for s, v in folds.values.items()},
        folds.bands,
    )
    check(older.beliefs(from_mapping(without()), "group", 0))


def test_a_calibration_that_lacks_one_is_of_another_version() -> None:
    with pytest.raises(ValueError, match=f"no belief about {NEWER}"):
        from_mapping({**without(), "calibration": {}})
