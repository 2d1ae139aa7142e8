"""The search for the scatter between jobs: its shortcut agrees with the posterior, and it helps where it is not scored."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.extrapolation import GROUNDS, LawTrust
from perfmodel.beliefs.population import EFFECTS
from perfmodel.calibrate.mixed import condition
from perfmodel.calibrate.scatter import BESIDE, GROUPS, Bench, Task, tuned
from perfmodel.physics.coefficients import NAMES

PLACE = EFFECTS.index("log2_k")


def family(rng: np.random.Generator, index: int, slope: float, noise: float = 0.002) -> Task:
    """log2 K grows by one from row to row; the truth follows a slope of the family's own, laws say nothing changes."""
    k = np.arange(4.0)
    effects = np.zeros((len(EFFECTS), 4))
    effects[PLACE] = k
    residual = slope * k + noise * rng.standard_normal(4)
    return Task(
        family=index,
        mode="two_point",
        seen=effects[:, :2],
        seen_residual=residual[:2],
        target=effects[:, 2:],
        target_residual=residual[2:],
        open_variance=np.zeros(len(NAMES)),
        ratio_only=False,
        law_error=residual[1] - residual[2:],
        grounds=np.stack([np.zeros(2), np.array([1.0, 1.4]), *np.zeros((len(GROUNDS) - 2, 2))]),
    )


@pytest.fixture
def tasks() -> list[Task]:
    rng = np.random.default_rng(0)
    return [family(rng, i, 0.08 * rng.standard_normal()) for i in range(40)]


def test_every_effect_is_in_one_group() -> None:
    assert sorted(name for group in GROUPS for name in group) == sorted(EFFECTS)


def test_the_start_is_the_textbook() -> None:
    found = tuned(np.zeros(len(GROUPS) + BESIDE))
    assert found.trust == LawTrust()


def test_one_pass_of_a_bank_is_the_posterior() -> None:
    """Where noise and prior see nothing odd, reweighting does nothing and the mean is that of `condition`."""
    quiet = [family(np.random.default_rng(1), 0, 1e-4, noise=0.0)]
    point = np.zeros(len(GROUPS) + BESIDE)
    found = tuned(point)
    one = condition(quiet[0].seen, quiet[0].seen_residual, found.scatter, np.full(2, found.noise**2))
    model = quiet[0].target.T @ one.mean - quiet[0].target_residual
    error = Bench(quiet).errors(point)
    low, high = np.minimum(model, quiet[0].law_error), np.maximum(model, quiet[0].law_error)
    assert ((error >= low - 1e-6) & (error <= high + 1e-6)).all()


def test_tuning_opens_the_effect_that_varies_and_helps_families_it_has_not_seen(tasks: list[Task]) -> None:
    bench = Bench(tasks)
    start = np.zeros(len(GROUPS) + BESIDE)
    point = bench.tune(iterations=4)
    assert point[GROUPS.index(("log2_k",))] > 0.3
    nested = bench.nested({i: i % 2 for i in range(len(tasks))}, iterations=4)
    assert np.abs(nested).mean() < 0.9 * np.abs(bench.errors(start)).mean()


def test_figures_weigh_families_alike(tasks: list[Task]) -> None:
    bench = Bench(tasks)
    assert bench.figures(np.full(bench.weight.size, np.log(1.1)))["two_point"] == pytest.approx(
        [0.1] * 3, abs=1e-3
    )
