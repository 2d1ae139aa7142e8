"""How well each cause explains what was measured: the odds between them, and what a trace would tell apart.

With y the logarithms of what was measured (the step; with a trace what each kind of kernel takes; with times of ranks the
slowest over the mean), a cause with severity s predicts f(s), and y - f(s) is Student-t with the covariance S of the
prediction: that of draws of the coefficients, on its diagonal enlarged by what else is open. A cause is as likely as

.. math:: p \\propto \\overline{t_\\nu(y;\\; f(s),\\, S)}                                                        (1)

its mean over severities: one that must be tuned to fit pays for it. No cause is preferred before, "nothing is wrong"
included. Reference: MacKay, Information Theory, Inference, and Learning Algorithms (2003), ch. 28 (Occam factor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.calibrate.mixed import DEGREES_OF_FREEDOM
from perfmodel.calibrate.parts import COVERS, HIDDEN, Traced
from perfmodel.diagnose.causes import Cause, Model
from perfmodel.physics.coefficients import NAMES, from_logs
from perfmodel.physics.parts import STRAGGLER
from perfmodel.training.curve import Curve, effect_covariance
from perfmodel.training.step import Step, step

Array = NDArray[np.float64]

STEP: Final = "step"
SLOWEST: Final = "slowest_rank"
SLOWEST_SPREAD = 0.03  # of the slowest rank over the mean, as logs of ranks have it (assumed)
DRAWS = 400
FLOOR = 0.01  # of a step: what a part is counted from, so that seconds near zero weigh little


@dataclass(frozen=True)
class Seen:
    """What was measured, aligned: names, seconds (or a ratio), and what each is predicted to be at the centre."""

    names: tuple[str, ...]
    value: Array
    expected: Array
    low: Array
    high: Array
    spread: Array  # log standard deviation of the reading against the prediction
    covariance: Array
    floor: Array


@dataclass(frozen=True)
class Weighed:
    """A cause at its best severity: log weight, seconds of the step, and what it predicts of everything seen."""

    cause: Cause
    severity: float | None
    log_weight: float
    time_s: float
    predicted: Array  # by what is measured
    covers: Array  # of every kind of kernel, measured or not


ALL_COVERS: Final = ("compute", "exposed_communication", "hidden_communication", "idle", "input_stall")


def quantities(made: Step, names: Sequence[str], scale: float) -> Array:
    """What each name means of a step, last axis names."""
    total = made.time_s
    columns = []
    for name in names:
        if name == STEP:
            columns.append(total * scale)
        elif name == SLOWEST:
            late = made.parts[STRAGGLER.name]
            rest = total - late - made.parts["input_stall"] - made.parts["serial"]
            columns.append(1.0 + late / np.maximum(rest, 1e-12))
        else:
            shown = [made.hidden_s if part == HIDDEN else made.parts[part] for part in COVERS[name].parts]
            columns.append(np.sum(np.broadcast_arrays(total * 0.0, *shown), axis=0) * scale)
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def seen_of(
    curve: Curve, model: Model, beliefs: Beliefs, step_s: float, error: float, traced: Traced | None,
    slowest: float | None, *, seed: int,
) -> Seen:  # fmt: skip
    """What was measured beside the prediction, with the covariance of their difference."""
    value = {STEP: step_s}
    apart = {STEP: error}
    if traced is not None:
        # A trace lasts longer than the run it shows: its parts are taken as shares of the step of the log.
        stretch = step_s / traced.step_s
        for name, seconds in traced.seconds.items():
            if name in COVERS and name != "execution":
                value[name] = seconds * stretch
                apart[name] = float(np.hypot(COVERS[name].spread, traced.relative_error.get(name, 0.0)))
    if slowest is not None:
        value[SLOWEST], apart[SLOWEST] = slowest, SLOWEST_SPREAD
    names = tuple(value)
    centre = quantities(model.step(), names, model.scale).reshape(-1, len(names))[0]
    drawn = _draws(curve, model, beliefs, names, seed)
    ratio = np.array([0.0 if name == SLOWEST else FLOOR * model.time_s for name in names])
    logs = np.log(drawn + ratio)
    between = np.atleast_2d(np.cov(logs, rowvar=False))
    own = np.array([apart[name] for name in names])
    extra = np.square(own) + beliefs.noise**2
    # The step as a whole is open by as much as its band says.
    at_step = names.index(STEP)
    extra[at_step] += max(float(curve.spread[0]) ** 2 - between[at_step, at_step], 0.0)
    covariance = between + np.diag(extra)
    half = 1.6449 * np.sqrt(np.diag(covariance) - np.square(own))
    low, high = (np.maximum((centre + ratio) * np.exp(sign * half) - ratio, 0.0) for sign in (-1.0, 1.0))
    moved = model.time_s / float(curve.time_s[0])  # by what the stack states
    low[at_step], high[at_step] = moved * float(curve.low_s[0]), moved * float(curve.high_s[0])
    spread = np.sqrt(np.diag(covariance))
    return Seen(names, np.array(list(value.values())), centre, low, high, spread, covariance, ratio)


def _draws(curve: Curve, model: Model, beliefs: Beliefs, names: Sequence[str], seed: int) -> Array:
    """The quantities under draws of the coefficients, (draws, names)."""
    n = len(NAMES)
    covariance = effect_covariance(beliefs, curve.belief)[:n, :n]
    rng = np.random.default_rng(seed)
    sample = rng.multivariate_normal(np.zeros(n), covariance, size=DRAWS, method="cholesky")
    c = from_logs((curve.logs[:, None] + sample.T)[:, :, None])
    return quantities(step(model.ops, model.machine, model.at, c), names, model.scale).reshape(
        DRAWS, len(names)
    )


def weigh(model: Model, causes: Sequence[Cause], seen: Seen) -> tuple[list[Weighed], float]:
    """Every cause that applies, at its best severity, and the log weight of nothing being wrong."""
    target = np.log(seen.value + seen.floor)
    inverse = np.linalg.inv(seen.covariance)

    def log_density(predicted: Array) -> Array:
        away = target - np.log(predicted + seen.floor)
        squared = np.einsum("...i,ij,...j->...", away, inverse, away)
        return np.asarray(-0.5 * (DEGREES_OF_FREEDOM + target.size) * np.log1p(squared / DEGREES_OF_FREEDOM))

    found = []
    for cause in causes:
        if not cause.applies(model):
            continue
        severities = cause.severities
        made = cause.change(model, severities).step()
        rows = (severities.shape[0], 1)
        predicted = np.broadcast_to(quantities(made, seen.names, model.scale), (*rows, len(seen.names)))[:, 0]
        density = log_density(predicted)
        best = int(np.argmax(density))
        weight = float(np.logaddexp.reduce(density) - np.log(density.size))
        covers = np.broadcast_to(quantities(made, ALL_COVERS, model.scale), (*rows, len(ALL_COVERS)))[best, 0]
        severity = None if cause.severity is None else float(severities[best, 0])
        time = float(np.broadcast_to(made.time_s, rows)[best, 0]) * model.scale
        found.append(Weighed(cause, severity, weight, time, predicted[best], covers))
    found.sort(key=lambda item: (-item.log_weight, item.cause.name))
    return found, float(log_density(seen.expected))


def evidence(item: Weighed, seen: Seen) -> list[dict[str, object]]:
    """What was measured, by how much it speaks for the cause against nothing being wrong; the telling ones first."""
    logs = np.log(seen.value + seen.floor)
    without, under = (
        np.square((logs - np.log(predicted + seen.floor)) / seen.spread)
        for predicted in (seen.expected, item.predicted)
    )
    gained = 0.5 * (without - under)
    return [
        {
            "quantity": seen.names[i],
            "measured": float(seen.value[i]),
            "expected": float(seen.expected[i]),
            "under_cause": float(item.predicted[i]),
            "speaks_for": float(gained[i]),
        }
        for i in np.argsort(-np.abs(gained), kind="stable")
        if abs(gained[i]) > 0.05
    ]


def tells_apart(first: Weighed, second: Weighed, seen: Seen, time_s: float) -> dict[str, object] | None:
    """The kind of kernel by which two causes differ most that no trace has shown yet; None where none does."""
    open_ = [i for i, name in enumerate(ALL_COVERS) if name not in seen.names]
    if not open_:
        return None
    floor = FLOOR * time_s
    apart = np.abs(np.log((first.covers + floor) / (second.covers + floor)))
    best = max(open_, key=lambda i: float(apart[i]))
    if apart[best] < np.log(1.2):
        return None
    return {
        "quantity": ALL_COVERS[best],
        "meaning": COVERS[ALL_COVERS[best]].meaning,
        first.cause.name: float(first.covers[best]),
        second.cause.name: float(second.covers[best]),
    }
