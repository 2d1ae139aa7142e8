"""Fit of the measured form of collectives: one set of coefficients for all hardware, shared by levels.

The logarithm of every quantity of `collective_form.QUANTITIES` is a sum of normal effects,

.. math:: \\ln q = \\mu_q + \\sum_{\\text{level}} u_{q,\\text{level}(i)}, \\qquad u \\sim N(0, \\sigma_{q,level}^2)  (1)

over levels such as link kind, link, generation, accelerator and operation, so that hardware which nobody measured
inherits what its generation and link kind show, with a wider band. Times have Student-t errors (`DEGREES` degrees of
freedom) in the logarithm: a warm-up spike does not move the fit. The maximum a posteriori is found by damped
Gauss-Newton steps on reweighted residuals; the Laplace covariance gives spreads.

Reference: Lange, Little, Taylor, JASA 84 (1989) 881 (robust t regression by reweighting).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.collective_form import QUANTITIES, Array, Points, seconds
from perfmodel.calibrate.sweep_fit import SweepFit, SweepPrior, fit_sweep, through_two_points

__all__ = [
    "Fit",
    "SweepFit",
    "SweepPrior",
    "coefficients_of",
    "design",
    "fit",
    "fit_sweep",
    "log_time",
    "pack",
    "predict",
    "shipped",
    "sweep_shares",
    "through_two_points",
    "unpack",
]

SCHEMA: Final = "perfmodel/collectives/1"
DEGREES: Final = 3.0
SCALE: Final = (
    0.1  # least residual scale in logarithms: about what two authors with the same hardware differ by
)
INDEPENDENT: Final = 2.0  # points that a sweep counts as
STEP: Final = 1e-4  # of a logarithm, for slopes
KNOTS: Final = (13.0, 16.0, 19.0, 22.0, 25.0, 28.0, 31.0)  # log2 of bytes

#: Levels of each quantity and the prior spread of their effects, in logarithms.
LEVELS: Final[dict[str, dict[tuple[str, ...], float]]] = {
    "base_s": {("op",): 0.3, ("generation",): 0.2, ("up_kind",): 0.3, ("tier",): 0.4, ("size", "op"): 0.2,
               ("accelerator", "size"): 0.1},
    "up_step_s": {("op",): 0.3, ("up_kind",): 0.3, ("up",): 0.2, ("reduction",): 0.3, ("up_kind", "size"): 0.4,
                  ("accelerator",): 0.2},
    "out_step_s": {("op",): 0.3, ("out_kind",): 0.4, ("out",): 0.3},
    "up_efficiency": {("op",): 0.1, ("up_kind",): 0.15, ("up",): 0.1, ("accelerator",): 0.1,
                      ("up_kind", "size"): 0.1, ("up_kind", "op"): 0.07},
    "out_efficiency": {("op",): 0.1, ("out_kind",): 0.15, ("out",): 0.2},
    "in_switch": {("up",): 0.15, ("tier",): 0.2},
    "copy": {("up_kind",): 0.4, ("op",): 0.4},
    "shared_bus": {("accelerator",): 0.8, ("accelerator", "op"): 0.2},
    "knee": {("tier",): 0.15, ("up_kind",): 0.15},
    "step_ratio": {("tier",): 0.3, ("up_kind",): 0.3},
    "wire_ratio": {("tier",): 0.3, ("up_kind",): 0.3},
}  # fmt: skip
#: What the form leaves over, as a curve over the size of the message.
CURVES: Final[dict[tuple[str, ...], float]] = {("tier",): 0.1, ("up_kind", "op"): 0.05, ("size",): 0.07}

Name = tuple[str, str, str]  # quantity, level, value; the level is "" for what everything shares


@dataclass(frozen=True)
class Design:
    """Which coefficients act on which point: logs = start + matrix of the quantity @ coefficients."""

    names: tuple[Name, ...]
    spread: Array
    start: Mapping[str, float]
    matrix: Mapping[str, Array]  # quantity -> (points, coefficients)
    curve: Array  # (points, coefficients)

    def take(self, rows: NDArray[Any]) -> Design:
        """The design of some points."""
        chosen = {name: matrix[rows] for name, matrix in self.matrix.items()}
        return Design(self.names, self.spread, self.start, chosen, self.curve[rows])


def coefficients_of(at: Points) -> tuple[Name, ...]:
    """Every coefficient that acts on these points, in a fixed order."""
    names: list[Name] = []
    for quantity, levels in LEVELS.items():
        names.append((quantity, "", ""))
        for level in levels:
            names += [(quantity, "+".join(level), value) for value in sorted(set(_values(at, level)))]
    for level in CURVES:
        for value in sorted(set(_values(at, level))):
            names += [(f"curve{i}", "+".join(level), value) for i in range(len(KNOTS))]
    return tuple(names)


def _values(at: Points, level: tuple[str, ...]) -> list[str]:
    return ["+".join(parts) for parts in zip(*(at.keys[key].tolist() for key in level), strict=True)]


def design(at: Points, names: tuple[Name, ...]) -> Design:
    """Place `names` on `at`; a value that no name covers gets no effect, that is its level's mean."""
    column = {name: i for i, name in enumerate(names)}
    count = at.ranks.size
    every = np.arange(count)
    spread = np.zeros(len(names))
    matrix: dict[str, Array] = {}
    for quantity, levels in LEVELS.items():
        own = np.zeros((count, len(names)))
        own[:, column[quantity, "", ""]] = 1.0
        spread[column[quantity, "", ""]] = QUANTITIES[quantity][1]
        for level, sd in levels.items():
            found = np.array(
                [column.get((quantity, "+".join(level), v), -1) for v in _values(at, level)], dtype=int
            )
            own[every[found >= 0], found[found >= 0]] = 1.0
            spread[found[found >= 0]] = sd
        matrix[quantity] = own
    hats = _hats(at.message_bytes)
    curve = np.zeros((count, len(names)))
    for level, sd in CURVES.items():
        values = _values(at, level)
        for i in range(len(KNOTS)):
            found = np.array([column.get((f"curve{i}", "+".join(level), v), -1) for v in values], dtype=int)
            curve[every[found >= 0], found[found >= 0]] = hats[found >= 0, i]
            spread[found[found >= 0]] = sd
    start = {quantity: float(np.log(median)) for quantity, (median, _) in QUANTITIES.items()}
    return Design(names, np.where(spread > 0, spread, 1.0), start, matrix, curve)


def _hats(message_bytes: Array) -> Array:
    x = np.log2(np.maximum(message_bytes, 1.0))
    return np.stack([np.interp(x, KNOTS, row) for row in np.eye(len(KNOTS))], axis=-1)


def log_time(at: Points, how: Design, values: Array) -> Array:
    """Logarithm of the predicted seconds."""
    return np.asarray(np.log(seconds(at, _logs(how, values))) + how.curve @ values)


def _logs(how: Design, values: Array) -> dict[str, Array]:
    return {quantity: how.start[quantity] + matrix @ values for quantity, matrix in how.matrix.items()}


def _slopes(at: Points, how: Design, values: Array) -> tuple[Array, Array]:
    logs = _logs(how, values)
    centre = np.log(seconds(at, logs))
    jacobian = how.curve.copy()
    for quantity, matrix in how.matrix.items():
        moved = dict(logs)
        moved[quantity] = logs[quantity] + STEP
        jacobian += ((np.log(seconds(at, moved)) - centre) / STEP)[:, None] * matrix
    return centre + how.curve @ values, jacobian


@dataclass(frozen=True)
class Fit:
    """Effects with their posterior spreads, the residual scale, and how many points each effect saw."""

    names: tuple[Name, ...]
    values: Array
    spread: Array
    counts: NDArray[np.int64]
    scale: float


def fit(
    at: Points,
    measured_log: Array,
    how: Design,
    share: Array,
    *,
    start: Array | None = None,
    iterations: int = 40,
) -> Fit:
    """Maximum a posteriori of equation (1) under Student-t errors.

    `share` weighs points: those of one sweep share its author and machine and are not independent. `start` continues
    from an earlier fit.
    """
    values = np.zeros(len(how.names)) if start is None else start.copy()
    precision = 1.0 / np.square(how.spread)
    damping, scale = 1e-2, 0.3
    found, jacobian = _slopes(at, how, values)
    for _ in range(iterations):
        residual = measured_log - found
        scale = max(1.4826 * float(np.median(np.abs(residual))), SCALE)
        weight = share * (DEGREES + 1) / (DEGREES + np.square(residual / scale)) / scale**2
        normal = (jacobian * weight[:, None]).T @ jacobian
        gradient = jacobian.T @ (weight * residual) - precision * values
        before = _loss(residual, scale, share, values, precision)
        step = np.zeros_like(values)
        for _ in range(8):
            step = np.asarray(
                np.linalg.solve(normal + np.diag(precision + damping * np.diag(normal)), gradient),
                dtype=np.float64,
            )
            moved = measured_log - log_time(at, how, values + step)
            if _loss(moved, scale, share, values + step, precision) <= before:
                damping = max(damping / 5, 1e-6)
                break
            damping = max(damping * 5, 1e-4)
        else:
            break
        values = np.asarray(values + step, float)
        found, jacobian = _slopes(at, how, values)
        if float(np.abs(step).max()) < 1e-3:
            break
    residual = measured_log - found
    weight = share * (DEGREES + 1) / (DEGREES + np.square(residual / scale)) / scale**2
    covariance = np.linalg.inv((jacobian * weight[:, None]).T @ jacobian + np.diag(precision))
    seen = sum(((matrix != 0) for matrix in how.matrix.values()), how.curve != 0).astype(bool).sum(axis=0)
    return Fit(
        how.names,
        values,
        np.sqrt(np.diag(covariance)),
        np.asarray(seen, dtype=np.int64),
        float(np.median(scale)),
    )


def _loss(residual: Array, scale: float, share: Array, values: Array, precision: Array) -> float:
    data = 0.5 * (DEGREES + 1) * (share * np.log1p(np.square(residual / scale) / DEGREES)).sum()
    return float(data + 0.5 * (precision * np.square(values)).sum())


def sweep_shares(sweeps: NDArray[np.str_]) -> Array:
    """Weight of each point so that a sweep counts as at most `INDEPENDENT` points.

    >>> sweep_shares(np.array(["a"] * 8 + ["b"])).tolist()[-2:]
    [0.25, 1.0]
    """
    _, inverse, counts = np.unique(sweeps, return_inverse=True, return_counts=True)
    return np.asarray(np.minimum(1.0, INDEPENDENT / counts[inverse]))


def pack(found: Fit) -> dict[str, Any]:
    """Plain data for the priors file: medians (as multiples of the level's mean), log-spreads and counts."""
    return {
        "schema": SCHEMA,
        "scale": round(found.scale, 4),
        "start": {quantity: median for quantity, (median, _) in QUANTITIES.items()},
        "names": ["|".join(name) for name in found.names],
        "median": [round(float(v), 4) for v in np.exp(found.values)],
        "spread": [round(float(v), 4) for v in found.spread],
        "points": [int(v) for v in found.counts],
    }


def unpack(data: Mapping[str, Any]) -> Fit:
    """The inverse of `pack`."""
    names = []
    for text in data["names"]:
        quantity, level, value = str(text).split("|")
        names.append((quantity, level, value))
    return Fit(
        tuple(names),
        np.log(np.array(data["median"], float)),
        np.array(data["spread"], float),
        np.array(data["points"], dtype=np.int64),
        float(data["scale"]),
    )


@lru_cache(maxsize=1)
def shipped() -> Fit:
    """The coefficients fitted on the shipped corpus."""
    return unpack(json.loads(_priors("collectives.yaml")))


def _priors(name: str) -> str:
    return resources.files("perfmodel").joinpath("priors", name).read_text(encoding="utf-8")


def predict(at: Points, beliefs: Fit | None = None) -> Array:
    """Seconds of every point by the shipped coefficients, or by others."""
    used = beliefs or shipped()
    return np.asarray(np.exp(log_time(at, design(at, used.names), used.values)))
