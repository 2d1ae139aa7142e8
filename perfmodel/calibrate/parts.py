"""Seconds of a step's parts, as a trace shows them, become beliefs through the step model.

A trace tells what the device did, the model why the step lasts: one measured number covers several parts. While only
communication kernels run, for instance, a rank may be sending, or waiting for a slower one. Each number is an
observation of the logarithm of a sum of parts, with a spread for what profiling disturbs and the cover leaves open;
beliefs are conditioned on all of them together. Residuals have heavy tails, so that a number which the model cannot
explain does not bend the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import discrepancy
from perfmodel.beliefs.population import Beliefs, Calibration
from perfmodel.calibrate.mixed import DEGREES_OF_FREEDOM, student_weights
from perfmodel.calibrate.posterior import WIDEST, square_root
from perfmodel.physics.coefficients import NAMES, log_slopes, nudged
from perfmodel.physics.layouts import Layouts
from perfmodel.physics.parts import DEVICE, HOST, INPUT_STALL, SERIAL, TRAFFIC, WAITING
from perfmodel.training.curve import ShownLayout, centre, choose, coefficients, describe
from perfmodel.training.setup import Setup
from perfmodel.training.step import Step, step

Array = NDArray[np.float64]

NEGLIGIBLE = 0.01  # of a step: a smaller part is known to be small, not how small
UPPER_LIMIT_SPREAD = 0.7  # of a part of which only that is known
ITERATIONS = 20
MOST_DISTANT = 16.0  # squared standard deviations, of one number
SHORTEST = 1e-3  # share of a Gauss-Newton step that is still tried
CONFLICT = 3.0  # spreads between measured and fitted, beyond which the report says so
HIDDEN = "hidden"  # communication under compute: no part of the step's time


@dataclass(frozen=True)
class Cover:
    """Parts of the step model that one measured number covers, and the log-spread of that reading."""

    parts: tuple[str, ...]
    spread: float
    meaning: str


COVERS: dict[str, Cover] = {
    "compute": Cover(DEVICE, 0.03, "compute kernels run"),
    "exposed_communication": Cover((*TRAFFIC, *WAITING), 0.15, "only communication runs, waiting included"),
    "hidden_communication": Cover((HIDDEN,), 0.25, "communication under compute"),
    "communication": Cover(
        (*TRAFFIC, *WAITING, HIDDEN), 0.2, "communication runs, shown or hidden, waiting included"
    ),
    "idle": Cover((HOST.name, SERIAL.name), 0.4, "the device waits for the host; profiling adds to it"),
    "input_stall": Cover((INPUT_STALL.name,), 0.3, "the device waits for the data loader"),
    "execution": Cover((*DEVICE, *TRAFFIC, *WAITING, HOST.name), 0.15, "a worker's task runs"),
}


@dataclass(frozen=True)
class Traced:
    """Mean seconds per step of what was measured on `k` workers; `relative_error` of each mean over the steps."""

    k: int
    global_batch: float
    step_s: float
    seconds: dict[str, float]  # keys of COVERS
    relative_error: dict[str, float]
    source: str
    # seconds that inform nothing here, and why
    beside: dict[str, tuple[float, str]] = field(default_factory=dict)

    def place(self, setup: Setup) -> Setup:
        """The set-up at the K and batch of the trace."""
        return replace(setup, k=np.array([float(self.k)]), global_batch=np.array([self.global_batch]))


class SeenPart(TypedDict):
    """A number of a trace, what the prediction had before and after it, and whether it was used."""

    quantity: str
    meaning: str
    measured_s: float
    before_s: float | None
    after_s: float | None
    spread: float | None
    use: str


@dataclass(frozen=True)
class Conditioned:
    """Effects given the parts, and a row of the report for each of them."""

    mean: Array
    covariance: Array
    rows: list[SeenPart]
    layout: ShownLayout


def condition_on_parts(
    setup: Setup, beliefs: Beliefs, traced: Traced, mean: Array, covariance: Array
) -> Conditioned:
    """Condition effects with prior N(mean, covariance) on the seconds of a trace.

    `setup` is the job at the trace's K. The layout is the set-up's, or the one that the model would choose.
    """
    n = len(NAMES)
    nothing = Calibration(np.zeros_like(mean), covariance, "datasheet", 0, np.zeros(0), np.zeros(0))
    _, logs = centre(setup, beliefs.calibrated(nothing))
    at, _ = choose(setup, logs + mean[:n])
    slopes = discrepancy(setup.operations, at)[:, 0]
    names = list(traced.seconds)
    before = _seconds(setup, at, (logs + mean[:n])[:, None], names)[:, 0] * np.exp(mean[n:] @ slopes)
    floor = NEGLIGIBLE * traced.step_s
    target, spread, used = np.zeros(len(names)), np.zeros(len(names)), np.zeros(len(names), dtype=bool)
    why = []
    for i, name in enumerate(names):
        value, cover = traced.seconds[name], COVERS[name]
        if before[i] <= 0.0:
            why.append("not used: this layout has no such part at this K")
        elif value >= floor:
            used[i], target[i] = True, np.log(value)
            spread[i] = float(np.hypot(cover.spread, traced.relative_error.get(name, 0.0)))
            why.append("used")
        elif before[i] > floor:
            used[i], target[i], spread[i] = True, np.log(floor), UPPER_LIMIT_SPREAD
            why.append("used as an upper limit: below 1 % of the step")
        else:
            why.append("not used: below 1 % of the step, as the model has it")
    after, found, wide = before, mean, covariance
    if used.any():
        chosen = [name for name, keep in zip(names, used, strict=True) if keep]
        noise = np.square(spread[used]) + beliefs.noise**2
        found, wide = _update(setup, at, logs, slopes, chosen, target[used], noise, mean, covariance)
        after = _seconds(setup, at, (logs + found[:n])[:, None], names)[:, 0] * np.exp(found[n:] @ slopes)
    rows: list[SeenPart] = []
    for i, name in enumerate(names):
        words = why[i]
        if used[i] and abs(np.log(after[i]) - target[i]) > CONFLICT * spread[i] and "limit" not in words:
            words = "used, but the model cannot follow it"
        rows.append(
            {
                "quantity": name,
                "meaning": COVERS[name].meaning,
                "measured_s": traced.seconds[name],
                "before_s": float(before[i]),
                "after_s": float(after[i]),
                "spread": float(spread[i]) if used[i] else None,
                "use": words,
            }
        )
    rows += [
        {
            "quantity": name,
            "meaning": COVERS[name].meaning if name in COVERS else "",
            "measured_s": value,
            "before_s": None,
            "after_s": None,
            "spread": None,
            "use": words,
        }
        for name, (value, words) in traced.beside.items()
    ]
    return Conditioned(found, wide, rows, describe(at, 0))


def _seconds(setup: Setup, at: Layouts, logs: Array, names: Sequence[str]) -> Array:
    """Seconds of what each name covers, shape (names, draws), under logs of shape (n_coefficients, draws)."""
    made: Step = step(setup.operations, setup.machine, at, coefficients(setup, logs[:, :, None], setup.k))
    shape = (logs.shape[1], 1)
    rows = []
    for name in names:
        parts = [made.hidden_s if part == HIDDEN else made.parts[part] for part in COVERS[name].parts]
        rows.append(np.broadcast_to(sum(parts, np.zeros(())), shape)[:, 0])
    return np.array(rows).reshape(len(names), shape[0])


def _update(
    setup: Setup,
    at: Layouts,
    logs: Array,
    slopes: Array,
    names: Sequence[str],
    target: Array,
    noise: Array,
    mean: Array,
    covariance: Array,
) -> tuple[Array, Array]:
    """Mode and Laplace covariance under Student-t noise of variance `noise`, by damped Gauss-Newton steps.

    In the prior's own axes u (effects = mean + root u) the cost is |u|^2 / 2 plus that of the residuals.
    """
    n = len(NAMES)
    root = square_root(covariance)

    def at_point(u: Array) -> tuple[Array, Array]:
        """Residuals, and slopes of the logs of seconds in u."""
        now = mean + root @ u
        values = np.log(np.maximum(_seconds(setup, at, nudged(logs + now[:n]), names), 1e-12))
        jacobian = np.hstack([log_slopes(values.T).T, np.tile(slopes, (len(names), 1))])
        return target - values[:, n] - now[n:] @ slopes, jacobian @ root

    def cost(u: Array, residual: Array) -> float:
        heavy = np.log1p(np.square(residual) / (noise * DEGREES_OF_FREEDOM))
        return float(0.5 * u @ u + 0.5 * (DEGREES_OF_FREEDOM + 1.0) * heavy.sum())

    u = np.zeros(mean.size)
    residual, jacobian = at_point(u)
    # The scatter between jobs has heavy tails: a job far from the population gets a wider prior, but a single number
    # that nothing explains widens it little.
    explained = np.square(jacobian).sum(axis=1) + noise
    distance = float(np.minimum(np.square(residual) / explained, MOST_DISTANT).sum())
    widening = np.clip((DEGREES_OF_FREEDOM + distance) / (DEGREES_OF_FREEDOM + target.size), 1.0, WIDEST)
    root = root * np.sqrt(widening)
    residual, jacobian = at_point(u)
    for _ in range(ITERATIONS):
        weight = student_weights(residual / np.sqrt(noise), 1.0) / noise
        curvature = np.eye(mean.size) + jacobian.T @ (weight[:, None] * jacobian)
        move = np.linalg.solve(curvature, jacobian.T @ (weight * residual) - u)
        before, length = cost(u, residual), 1.0
        while length > SHORTEST:
            trial = u + length * move
            found, steeper = at_point(trial)
            if cost(trial, found) < before:
                u, residual, jacobian = trial, found, steeper
                break
            length *= 0.5
        else:
            break
    weight = student_weights(residual / np.sqrt(noise), 1.0) / noise
    curvature = np.eye(mean.size) + jacobian.T @ (weight[:, None] * jacobian)
    after = root @ np.linalg.solve(curvature, root.T)
    return mean + root @ u, np.asarray(0.5 * (after + after.T))
