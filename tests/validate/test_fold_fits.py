"""Folds are the same fits in one process and in several."""

import os

import numpy as np
import pytest

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
