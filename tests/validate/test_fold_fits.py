"""Folds are the same fits in one process and in several; spreads that are given stay."""

import os

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.population import fit_population
from perfmodel.validate.fitting import measured_families
from perfmodel.validate.fold_fits import fit_folds
from perfmodel.validate.resolve import Resolved


def test_folds_in_processes_are_those_fitted_here(resolved: Resolved) -> None:
    data = resolved.observations
    few = measured_families(data)[:24]
    full = fit_population(data, few, learning=3)
    kept = [few[:16], few[8:]]
    heard: list[int] = []
    before = dict(os.environ)
    apart = fit_folds(data, full, kept, workers=2, done=heard.append)
    assert dict(os.environ) == before
    assert heard == [1, 2]
    for one, other in zip(fit_folds(data, full, kept, workers=1), apart, strict=True):
        assert one.shifts.names == other.shifts.names
        assert other.values == pytest.approx(one.values, abs=1e-6)
        assert not np.array_equal(one.values, full.values[: one.values.size])


def test_given_spreads_of_levels_stay_and_others_are_learnt(resolved: Resolved) -> None:
    data = resolved.observations
    few, given = measured_families(data)[:24], shipped_beliefs().level_spreads
    kept, learnt = (fit_population(data, few, spreads=spreads, learning=4) for spreads in (given, None))
    for (name, level, _), spread in zip(kept.shifts.names, kept.prior_sd, strict=True):
        assert level == "all" or spread == given[(name, level)]
    assert kept.shifts.names == learnt.shifts.names
    assert not np.allclose(kept.prior_sd, learnt.prior_sd)
