"""The fit of serving finds coefficients that made the runs, leans on nobody's long table, and tells what it has not seen."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfmodel.physics.serving_coefficients import NAMES
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.serving_fit import CAP, FITTED, OWN, beliefs_of, design, fit, log_answers, thinned
from perfmodel.validate.serving_rows import ServingRuns, resolve_runs
from perfmodel.validate.serving_table import read_runs
from perfmodel.validate.validation import shipped_corpus


@pytest.fixture(scope="module")
def some() -> ServingRuns:
    rows = read_runs(shipped_corpus() / "serving" / "runs.csv").rows
    return resolve_runs(rows[::40], Catalog.default())


def made(runs: ServingRuns, changes: dict[str, float], scatter: float) -> ServingRuns:
    """The same runs with what known coefficients answer, and scatter."""
    plan = design(runs)
    theta = plan.mean.copy()
    for name, change in changes.items():
        theta[plan.keys.index((name, "all", ""))] += change
    answers, _ = log_answers(runs, plan.logs(theta))
    noise = np.random.default_rng(5).normal(0.0, scatter, answers.shape)
    told = {name: np.exp(answers[q] + noise[q]) for q, name in enumerate(FITTED)}
    return replace(runs, measured={**runs.measured, **told})


def test_coefficients_that_made_the_runs_are_found(some: ServingRuns) -> None:
    changes = {"compute": -0.25, "cache_read": 0.3, "wave": 0.35}
    found = fit(made(some, changes, 0.02)).values
    plan = design(some)
    for name, change in changes.items():
        begun = plan.mean[plan.keys.index((name, "all", ""))]
        assert found[name, "all", ""] - begun == pytest.approx(change, abs=0.15)


def test_a_few_wild_rows_move_nothing(some: ServingRuns) -> None:
    runs = made(some, {}, 0.02)
    usual = fit(runs)
    wild = np.zeros(len(runs), dtype=bool)
    wild[::25] = True
    told = {name: np.where(wild, 30.0 * values, values) for name, values in runs.measured.items()}
    moved = fit(replace(runs, measured=told))
    pace = usual.design.keys.index(("pace", "all", ""))
    assert moved.theta[pace] == pytest.approx(usual.theta[pace], abs=0.04)


def test_rows_that_are_not_used_change_nothing(some: ServingRuns) -> None:
    plan = design(some)
    use = some.features["publisher"] != "argonne"
    told = {name: np.where(use, values, 7.0 * values) for name, values in some.measured.items()}
    one, other = (
        fit(some, use, given=plan, rounds=3),
        fit(replace(some, measured=told), use, given=plan, rounds=3),
    )
    assert np.array_equal(one.theta, other.theta)
    believed = beliefs_of(one, some, use)
    # llama.cpp is measured by nobody else: its shift is what was known before, and no run stands behind it.
    assert believed.counts["layer_s", "engine", "llama.cpp"] == 0
    assert ("pace", "engine", "llama.cpp") not in believed.values


def test_the_jackknife_widens(some: ServingRuns) -> None:
    found = fit(some, rounds=2)
    every = np.ones(len(some), dtype=bool)
    alone = beliefs_of(found, some, every)
    moved = beliefs_of(found, some, every, [found.theta, found.theta + 0.3])
    assert all(moved.spreads[key] > spread for key, spread in alone.spreads.items())


def test_sources_are_thinned_evenly(some: ServingRuns) -> None:
    few = thinned(some, 20)
    _, counts = np.unique(few.features["source"], return_counts=True)
    assert counts.max() == 20
    assert len(np.unique(few.features["source"])) == len(np.unique(some.features["source"]))
    assert CAP > 20


def test_a_run_twice_gives_the_same(some: ServingRuns) -> None:
    assert np.array_equal(fit(some, rounds=2).theta, fit(some, rounds=2).theta)
    assert len(design(some).keys) < 169
    assert design(some).logs(design(some).mean).shape == (len(NAMES), len(some))


def test_the_shipped_corpus_has_a_file_of_beliefs() -> None:
    assert (Path(__file__).parents[2] / "perfmodel" / "priors" / "serving.yaml").is_file()


def test_what_a_publisher_has_of_its_own_is_told_to_nobody(some: ServingRuns) -> None:
    """A slow publisher moves its own effect, hardly the base, and no belief bears its name."""
    runs = made(some, {}, 0.02)
    slow = runs.features["publisher"] == "gpustack"
    told = {**runs.measured, "throughput": np.where(slow, 1 / 1.35, 1.0) * runs.measured["throughput"]}
    usual, found = fit(runs), fit(replace(runs, measured=told))
    own = found.values["pace", OWN, "gpustack"] - usual.values["pace", OWN, "gpustack"]
    base = found.values["pace", "all", ""] - usual.values["pace", "all", ""]
    assert own > 0.08
    assert abs(base) < 0.5 * own
    assert all(level != OWN for _, level, _ in beliefs_of(found, runs, np.ones(len(runs), dtype=bool)).values)
