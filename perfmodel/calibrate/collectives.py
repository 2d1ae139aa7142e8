"""Fit of the measured form of collectives: one set of coefficients for all hardware, shared by levels.

The logarithm of every quantity of `collective_form.QUANTITIES` is a sum of normal effects,

.. math:: \\ln q = \\mu_q + \\sum_{\\text{level}} u_{q,\\text{level}(i)}, \\qquad u \\sim N(0, \\sigma_{q,level}^2)  (1)

over levels such as link kind, link, generation, accelerator and operation, so that hardware which nobody measured
inherits what its generation and link kind show, with a wider band. Every sweep has two effects of its own besides, one
on its latencies and one on its rates, with Student-t priors: an odd machine or a careless author explains itself and
does not drag its relatives along. They are nuisance and not kept. Their scales are near those of greatest likelihood:
latencies of the same hardware differ by 0.2 in the logarithm between authors, by 0.4 across a network, in long warmed-up
loops by less than 0.05, and rates by 0.02.

Times have Student-t errors (`DEGREES` degrees of freedom) in the logarithm: a warm-up spike does not move the fit.
Neighbouring sizes of a sweep miss together, so a point counts as `INDEPENDENT` of an independent one. Both t priors are
scale mixtures of normals and are solved by expectation-maximisation: weights from the last residuals and from mean and
variance of the sweeps' effects, then a damped Gauss-Newton step, sweeps eliminated by their Schur complement. With the
variance in the weights few points of a sweep cannot make it an exception, and which of two sweeps that disagree is the
odd one is left open: there is one maximum where joint modes have several. The Laplace covariance gives spreads.

References: Lange, Little, Taylor, JASA 84 (1989) 881 (robust t regression by reweighting); Pinheiro, Liu, Wu, JCGS 10
(2001) 249 (t-distributed random effects by EM); Pinheiro, Bates, Mixed-Effects Models in S and S-PLUS (2000), ch. 7.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.collective_form import QUANTITIES, UNKNOWN, Array, Points, seconds
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
    "through_two_points",
    "unpack",
]

SCHEMA: Final = "perfmodel/collectives/1"
DEGREES: Final = 3.0
SCALE: Final = 0.05  # of residuals within a sweep, in logarithms
WIDENED: Final = (4.0, 2.0, 1.0)  # `SCALE` is wide at first, so that no early misfit is taken for an outlier
#: Residuals of neighbouring sizes correlate by 0.55, so the 17 sizes of a usual sweep carry as much as 5.6.
INDEPENDENT: Final = 1 / 3
TOLERANCE: Final = 1e-4  # mean move of a logarithm, where a fit stops
STEP: Final = 1e-5  # of a logarithm, for slopes


@dataclass(frozen=True)
class SweepEffect:
    """What an effect of a sweep acts on, and its Student-t prior: degrees of freedom, and scale by style and tier."""

    quantities: tuple[str, ...]
    degrees: float
    warmed: float
    inside: float
    network: float


SWEEP_EFFECTS: Final = (
    SweepEffect(("base_s", "up_step_s", "out_step_s"), 3.0, warmed=0.05, inside=0.2, network=0.4),
    SweepEffect(
        ("up_efficiency", "out_efficiency", "in_switch"), 1.0, warmed=0.02, inside=0.02, network=0.02
    ),
)

#: Levels of each quantity and the prior spread of their effects, in logarithms: chosen, then moved in steps of 1.4 to
#: where the marginal likelihood of all sweeps (Laplace's method) grew, a move by a factor f costing ln(f)^2 / (2 0.7^2), and rounded. So were the
#: scales of the sweeps' latencies (inside, network) above. The search was made once, on the form before peers overlapped.
LEVELS: Final[dict[str, dict[tuple[str, ...], float]]] = {
    "base_s": {("generation",): 0.3, ("accelerator",): 0.2, ("tier",): 0.1, ("op",): 0.08, ("style",): 0.4},
    "up_step_s": {("up_kind",): 0.3, ("up",): 0.3},
    "out_step_s": {("out_kind",): 0.3, ("out",): 0.2},
    "up_efficiency": {("up_kind",): 0.1, ("up",): 0.07, ("accelerator",): 0.025, ("op",): 0.05},
    "out_efficiency": {("out_kind",): 0.1, ("out",): 0.3},
    "in_switch": {("generation",): 0.1},
    "copy": {("generation",): 0.6, ("op",): 0.15, ("op", "generation"): 0.3},
    "crowding": {("accelerator",): 1.0},
    "peer_s": {("style",): 3.0},
    "extra_wire": {("up_kind",): 0.3, ("tier",): 0.7, ("op",): 0.35},
    "extra_steps": {("up_kind",): 0.2, ("op",): 0.6},
    "extra_out_steps": {("op",): 0.6},
}

Name = tuple[str, str, str]  # quantity, level, value; the level is "" for what everything shares


@dataclass(frozen=True)
class Design:
    """Which coefficients act on which point: the log of a quantity is its start plus the sum of its own columns."""

    names: tuple[Name, ...]
    spread: Array
    matrix: Array  # (points, coefficients)
    owner: NDArray[np.intp]  # quantity of every coefficient, in the order of `QUANTITIES`

    @cached_property
    def blocks(self) -> tuple[tuple[NDArray[np.bool_], Array], ...]:
        """Which coefficients each quantity owns, and their columns."""
        chosen = [self.owner == i for i in range(len(QUANTITIES))]
        return tuple((own, self.matrix[:, own]) for own in chosen)

    def take(self, rows: NDArray[np.bool_ | np.intp]) -> Design:
        """The design of some points."""
        return Design(self.names, self.spread, self.matrix[rows], self.owner)


def coefficients_of(at: Points) -> tuple[Name, ...]:
    """Every coefficient that acts on these points, in a fixed order; what is unknown has the mean of its level."""
    names: list[Name] = []
    for quantity, levels in LEVELS.items():
        names.append((quantity, "", ""))
        for level in levels:
            known = [v for v in sorted(set(_values(at, level))) if UNKNOWN not in v.split("+")]
            names += [(quantity, "+".join(level), value) for value in known]
    return tuple(names)


def _values(at: Points, level: tuple[str, ...]) -> list[str]:
    return ["+".join(parts) for parts in zip(*(at.keys[key].tolist() for key in level), strict=True)]


def design(at: Points, names: tuple[Name, ...]) -> Design:
    """Place `names` on `at`; a value that no name covers gets no effect, that is its level's mean."""
    column = {name: i for i, name in enumerate(names)}
    every = np.arange(at.ranks.size)
    order = list(QUANTITIES)
    matrix = np.zeros((at.ranks.size, len(names)))
    for quantity, levels in LEVELS.items():
        matrix[:, column[quantity, "", ""]] = 1.0
        for level in levels:
            label = "+".join(level)
            found = np.array([column.get((quantity, label, v), -1) for v in _values(at, level)], dtype=int)
            matrix[every[found >= 0], found[found >= 0]] = 1.0
    spread = [
        LEVELS[quantity][tuple(level.split("+"))] if level else QUANTITIES[quantity][1]
        for quantity, level, _ in names
    ]
    return Design(names, np.array(spread), matrix, np.array([order.index(q) for q, _, _ in names]))


def log_time(at: Points, how: Design, values: Array) -> Array:
    """Logarithm of the predicted seconds."""
    return np.asarray(np.log(seconds(at, _logs(how, values))))


def _logs(how: Design, values: Array) -> dict[str, Array]:
    found = {}
    for (quantity, (median, _)), (own, columns) in zip(QUANTITIES.items(), how.blocks, strict=True):
        found[quantity] = np.log(median) + columns @ values[own]
    return found


@dataclass(frozen=True)
class Fit:
    """Effects with their posterior spreads, the residual scale, and how many points each effect saw."""

    names: tuple[Name, ...]
    values: Array
    spread: Array
    counts: NDArray[np.int64]
    scale: float


@dataclass(frozen=True)
class _State:
    """Coefficients, the two effects of every sweep (2, sweeps), and their variance."""

    values: Array
    own: Array
    variance: Array


@dataclass(frozen=True)
class _Problem:
    """The posterior over coefficients and the two effects of every sweep."""

    at: Points
    measured_log: Array
    how: Design
    share: Array
    member: Array  # (sweeps, points), 1 where the point is of the sweep
    scale: float
    sweep_scale: Array  # (2, sweeps)

    def logs(self, values: Array, own: Array) -> dict[str, Array]:
        found = _logs(self.how, values)
        for effect, amount in zip(SWEEP_EFFECTS, own, strict=True):
            shift = self.member.T @ amount
            for quantity in effect.quantities:
                found[quantity] = found[quantity] + shift
        return found

    def residual(self, values: Array, own: Array) -> Array:
        return np.asarray(self.measured_log - np.log(seconds(self.at, self.logs(values, own))))

    def weights(self, state: _State) -> tuple[Array, Array]:
        """Precision of every point and of every sweep's effects: the expectation step."""
        residual = self.residual(state.values, state.own) / self.scale
        point = self.share * (DEGREES + 1) / (DEGREES + np.square(residual)) / self.scale**2
        degrees = np.array([[effect.degrees] for effect in SWEEP_EFFECTS])
        spread = (np.square(state.own) + state.variance) / np.square(self.sweep_scale)
        return point, (degrees + 1) / (degrees + spread) / np.square(self.sweep_scale)

    def loss(self, values: Array, own: Array, weights: tuple[Array, Array]) -> float:
        """What the maximisation step lowers."""
        data = (weights[0] * np.square(self.residual(values, own))).sum()
        return float(data + np.square(values / self.how.spread).sum() + (weights[1] * np.square(own)).sum())

    def normal(self, values: Array, own: Array, weights: tuple[Array, Array]) -> _Normal:
        """Weighted normal equations at a point."""
        logs = self.logs(values, own)
        centre = np.log(seconds(self.at, logs))
        slopes = np.empty((centre.size, len(QUANTITIES)))
        for i, quantity in enumerate(QUANTITIES):
            moved = dict(logs)
            moved[quantity] = logs[quantity] + STEP
            slopes[:, i] = (np.log(seconds(self.at, moved)) - centre) / STEP
        order = list(QUANTITIES)
        columns = [[order.index(q) for q in effect.quantities] for effect in SWEEP_EFFECTS]
        effects = np.stack([slopes[:, acted].sum(axis=1) for acted in columns])
        jacobian = self.how.matrix * slopes[:, self.how.owner]
        residual = self.measured_log - centre
        point, sweep = weights
        weighted = jacobian * point[:, None]
        precision = 1.0 / np.square(self.how.spread)
        return _Normal(
            shared=jacobian.T @ weighted + np.diag(precision),
            shared_pull=weighted.T @ residual - precision * values,
            cross=np.stack([self.member @ (weighted * slope[:, None]) for slope in effects]),
            own=np.stack([self.member @ (point * slope**2) for slope in effects]) + sweep,
            own_cross=self.member @ (point * effects[0] * effects[1]),
            own_pull=np.stack([self.member @ (point * slope * residual) for slope in effects]) - sweep * own,
        )


@dataclass(frozen=True)
class _Normal:
    """Normal equations in blocks: coefficients, and a 2 x 2 block for every sweep."""

    shared: Array  # (coefficients, coefficients)
    shared_pull: Array  # (coefficients,)
    cross: Array  # (2, sweeps, coefficients)
    own: Array  # (2, sweeps), diagonal
    own_cross: Array  # (sweeps,)
    own_pull: Array  # (2, sweeps)

    def reduced(self, damping: float) -> tuple[Array, Array, Array]:
        """Schur complement of the sweeps, its right side, and the sweeps' inverse blocks (11, 12, 22)."""
        first, second = self.own * (1.0 + damping)
        inverse = np.stack([second, -self.own_cross, first]) / (first * second - self.own_cross**2)
        solved = self._blocks(inverse, self.cross)
        matrix = self.shared + damping * np.diag(np.diag(self.shared))
        matrix = matrix - self.cross[0].T @ solved[0] - self.cross[1].T @ solved[1]
        pull = self.shared_pull - solved[0].T @ self.own_pull[0] - solved[1].T @ self.own_pull[1]
        return np.asarray(matrix), np.asarray(pull), inverse

    def step(self, damping: float) -> tuple[Array, Array]:
        """Move of the coefficients and of the sweeps' effects."""
        matrix, pull, inverse = self.reduced(damping)
        step = np.asarray(np.linalg.solve(matrix, pull), dtype=np.float64)
        return step, self._blocks(inverse, self.own_pull - self.cross @ step)

    @staticmethod
    def _blocks(inverse: Array, right: Array) -> Array:
        a, b, c = inverse.reshape(inverse.shape + (1,) * (right.ndim - 2))
        return np.stack([a * right[0] + b * right[1], b * right[0] + c * right[1]])


def fit(
    at: Points,
    measured_log: Array,
    how: Design,
    share: Array,
    *,
    sweeps: NDArray[np.str_] | None = None,
    iterations: int = 60,
) -> Fit:
    """Maximum a posteriori of equation (1) under Student-t errors, from the prior.

    `share` weighs points. `sweeps` names the sweep of every point; without it no sweep has effects of its own.
    """
    kinds = np.where(at.keys["style"] == "warmed", "warmed", at.keys["tier"]).tolist()
    kind = {} if sweeps is None else dict(zip(sweeps.tolist(), kinds, strict=True))
    member = np.array([sweeps == name for name in sorted(kind)], float).reshape(len(kind), at.ranks.size)
    own_scale = np.array([[getattr(effect, kind[name]) for name in sorted(kind)] for effect in SWEEP_EFFECTS])
    none = np.zeros((len(SWEEP_EFFECTS), len(kind)))
    state = _State(np.zeros(len(how.names)), none, none)
    for wide in WIDENED:
        problem = _Problem(at, measured_log, how, share, member, SCALE * wide, own_scale)
        state = _solve(problem, state, iterations)
    matrix, _, _ = problem.normal(state.values, state.own, problem.weights(state)).reduced(0.0)
    left = measured_log - log_time(at, how, state.values)
    return Fit(
        how.names,
        state.values,
        np.sqrt(np.diag(np.linalg.inv(matrix))),
        np.asarray((how.matrix != 0).sum(axis=0), dtype=np.int64),
        max(1.4826 * float(np.median(np.abs(left))), SCALE),
    )


def _solve(problem: _Problem, state: _State, iterations: int) -> _State:
    damping = 1e-3
    for _ in range(iterations):
        weights = problem.weights(state)
        normal = problem.normal(state.values, state.own, weights)
        loss = problem.loss(state.values, state.own, weights)
        for _ in range(12):
            step, own_step = normal.step(damping)
            values, own = state.values + step, state.own + own_step
            if problem.loss(values, own, weights) < loss:
                break
            damping *= 4
        else:
            break
        damping = max(damping / 5, 1e-6)
        _, _, inverse = normal.reduced(0.0)
        moved = problem.residual(values, own) - problem.residual(state.values, state.own)
        state = _State(values, own, inverse[[0, 2]])
        if np.abs(moved).mean() < TOLERANCE:
            break
    return state


def pack(found: Fit) -> dict[str, object]:
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
