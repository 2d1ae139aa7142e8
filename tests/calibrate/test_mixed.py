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
from perfmodel.predict.coefficients import LEVELS, NAMES


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


def test_a_step_that_overshoots_is_halved_and_one_uphill_is_not_taken() -> None:
    """Residual r = v^3, so the loss grows with |v|: from 1, a step of -4 ends at -3, half of it at -1, a quarter at 0."""
    alone = condition(np.zeros((1, 1)), np.ones(1), np.ones(1), np.ones(1))
    here = Local(lambda at: at**3, [alone], np.array([0, 1]), np.zeros(1), np.full(1, 1e6))
    assert here.share(np.ones(1), np.array([-1.0])) == 1.0
    assert here.share(np.ones(1), np.array([-4.0])) == 0.25
    assert here.share(np.ones(1), np.array([1.0])) == 0.0


def test_one_bad_row_gets_little_weight() -> None:
    weights = student_weights(np.array([0.0, 0.01, 1.0]), 0.02)
    assert weights[0] > 1.0 > 0.01 > weights[2]


def test_a_fit_recovers_a_shift_between_generations() -> None:
    """Log time = ln matmul slowdown: two generations that differ by a known factor."""
    rng = np.random.default_rng(0)
    blank = {part: "x" for levels in LEVELS.values() for level in levels for part in level.split("*")}
    features = [blank | {"generation": "a" if i % 2 else "b"} for i in range(40)]
    shifts = make_shifts(features, LEVELS)
    families = [Family(np.arange(3 * i, 3 * i + 3)) for i in range(40)]
    truth = np.repeat([0.3 if i % 2 else -0.2 for i in range(40)], 3)
    target = -truth + rng.normal(0, 0.01, truth.size)

    def model(logs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return -logs[NAMES.index("matmul")]

    size = len(shifts.names)
    found = fit(
        model, target, np.zeros((1, truth.size)), families, shifts,
        start=np.zeros(size), prior=np.zeros(size), prior_sd=np.full(size, 0.5), largest_sd=np.full(size, 1.5),
        scatter=np.full(len(NAMES) + 1, 1e-4), scatter_prior=np.full(len(NAMES) + 1, 1e-4), noise=0.02, iterations=5,
    )  # fmt: skip
    logs = shifts.logs(found.values)[NAMES.index("matmul")]
    assert logs[1] - logs[0] == pytest.approx(0.5, abs=0.03)
    assert 0.005 < found.noise < 0.03
