"""The mixed-effects fit: conditioning, robustness, and recovery of what made the data."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.calibrate.mixed import (
    BLOCK,
    Family,
    Local,
    condition,
    fit,
    linearise,
    make_shifts,
    student_weights,
)
from perfmodel.physics.coefficients import LEVELS, NAMES


@pytest.mark.parametrize("rows", [1, BLOCK, BLOCK + 3])
def test_linearise_is_exact_for_a_linear_model_whatever_the_blocks(rows: int) -> None:
    slope, scale = np.arange(1.0, len(NAMES) + 1.0), np.linspace(1.0, 2.0, rows)

    def model(logs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.tensordot(slope, logs, axes=1) * scale[rows]

    value, jacobian = linearise(model, np.arange(rows), np.ones((len(NAMES), rows)))
    assert value == pytest.approx(slope.sum() * scale)
    assert jacobian == pytest.approx(slope[:, None] * scale, rel=1e-6)


def test_conditioning_is_the_gaussian_posterior() -> None:
    rng = np.random.default_rng(1)
    effects, variances, noise = rng.normal(size=(4, 6)), np.array([0.5, 0.1, 2.0, 0.0]), np.full(6, 0.04)
    residual = rng.normal(size=6)
    found = condition(effects, residual, variances, noise)
    used = variances > 0
    precision = effects[used] @ np.diag(1 / noise) @ effects[used].T + np.diag(1 / variances[used])
    expected = np.linalg.solve(precision, effects[used] @ (residual / noise))
    assert found.mean[used] == pytest.approx(expected)
    assert found.mean[~used] == pytest.approx(0.0)
    assert np.diag(found.covariance)[used] == pytest.approx(np.diag(np.linalg.inv(precision)))


def bowl(power: int) -> Local:
    """One row whose residual is (4 v) to a power: the loss grows with its size."""
    alone = condition(np.zeros((1, 1)), np.ones(1), np.ones(1), np.ones(1))
    starts, weights = np.array([0, 1]), np.ones(1)
    return Local(lambda at: (4.0 * at) ** power, [alone], starts, weights, np.zeros(1), np.full(1, 1e6))


def test_a_step_that_keeps_its_promise_is_taken_whole_and_damped_less() -> None:
    """Residual 4 v, normal equations 16 v: from 0.1 the minimum is at 0, and the loss is nearly quadratic."""
    start, normal, right = np.array([0.1]), np.full((1, 1), 16.0), np.array([-1.6])
    found = bowl(1).step(start, normal, right, 1e-4)
    assert found.change == pytest.approx(-0.1, rel=1e-3)
    assert found.expected == pytest.approx(0.08, rel=1e-3)
    again = bowl(1).step(start, normal, right, 1.0)
    assert again.change == pytest.approx(-0.05)
    assert again.damping < 1.0


def test_a_step_that_overshoots_is_damped_and_one_uphill_is_not_taken() -> None:
    """From 0.3 the whole step ends at -0.4, where the loss is larger."""
    start, normal = np.array([0.3]), np.full((1, 1), 2.0)
    found = bowl(3).step(start, normal, np.array([-1.4]), 0.01)
    assert -0.6 < float(found.change[0]) < 0.0
    assert found.damping > 0.01
    uphill = bowl(3).step(start, normal, np.array([1.4]), 0.01)
    assert uphill.change == 0.0
    assert uphill.expected == 0.0


def test_one_bad_row_gets_little_weight() -> None:
    weights = student_weights(np.array([0.0, 0.01, 1.0]), 0.02)
    assert weights[0] > 1.0 > 0.01 > weights[2]


BLANK = {part: "x" for levels in LEVELS.values() for level in levels for part in level.split("*")}


def fitted(
    features: list[dict[str, str]], target: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, float]:
    """Log matmul rate of every family of three rows, and the noise, where log time is the rate with its sign turned."""
    shifts = make_shifts(features, LEVELS)
    families = [Family(np.arange(3 * i, 3 * i + 3), float(weight)) for i, weight in enumerate(weights)]

    def model(logs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return -logs[NAMES.index("matmul")]

    size = len(shifts.names)
    found = fit(
        model, target, np.zeros((1, target.size)), families, shifts,
        start=np.zeros(size), prior=np.zeros(size), prior_sd=np.full(size, 0.5), largest_sd=np.full(size, 1.5),
        scatter=np.full(len(NAMES) + 1, 1e-4), scatter_prior=np.full(len(NAMES) + 1, 1e-4), noise=0.02, learning=5,
    )  # fmt: skip
    return shifts.logs(found.values)[NAMES.index("matmul")], found.noise


def test_a_fit_recovers_a_shift_between_generations() -> None:
    """Two generations that differ by a known factor."""
    rng = np.random.default_rng(0)
    features = [BLANK | {"generation": "a" if i % 2 else "b"} for i in range(40)]
    truth = np.repeat([0.3 if i % 2 else -0.2 for i in range(40)], 3)
    logs, noise = fitted(features, -truth + rng.normal(0, 0.01, truth.size), np.ones(40))
    assert logs[1] - logs[0] == pytest.approx(0.5, abs=0.03)
    assert 0.005 < noise < 0.03


def test_families_that_repeat_each_other_pull_as_one() -> None:
    """Four of the same timings against two others: by count they lead, counted as one they do not."""
    truth = np.repeat([0.04, 0.04, 0.04, 0.04, 0.0, 0.0], 3)
    alike, _ = fitted([BLANK] * 6, -truth, np.ones(6))
    counted, _ = fitted([BLANK] * 6, -truth, np.array([0.25, 0.25, 0.25, 0.25, 1.0, 1.0]))
    assert counted[0] < 0.02 < alike[0]
