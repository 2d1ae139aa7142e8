"""A mixed-effects fit of the step model's coefficients, in logarithms.

Log step times of family i follow

    y = f(x; c_i) + H u_i + e,    ln c_i = population(features of i) + d_i                        (1)

with f the log of the step model, d_i ~ N(0, T) the scatter of coefficients between families, H u_i the
discrepancy that no coefficient explains (u ~ N(0, U)) and e Student-t noise. The population is a sum of shifts,
one per level of a feature ("matmul | generation | hopper"), each with a normal prior. Everything is found by
damped Gauss-Newton steps (Marquardt 1963): the model is linearised at each family's population (the first-order
method, Beal & Sheiner 1982), families enter the normal equations through their marginal covariance, noise is reweighted
(Lange, Little & Taylor 1989), and the variances follow MacKay's fixed point (Neural Computation 4 (1992) 415), those of
scatter with a weak inverse-gamma prior; those of the shifts of a level may be given instead.

The same equations condition one family on its own measurements: that is calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import level_value
from perfmodel.physics.coefficients import NAMES, log_slopes, nudged

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Log coefficients (n_coefficients, ..., n_rows) and rows -> log step times (..., n_rows)
Model = Callable[[Array, Index], Array]

DEGREES_OF_FREEDOM = 4.0  # of the Student-t noise
BLOCK = 400  # rows whose differences are made at once: more of them fall out of the processor's cache
LARGEST_STEP = 0.7  # of a Gauss-Newton iteration, in log units
MOST_TRIES = 6  # at a step that lowers the loss, each with four times the damping of the one before
START_DAMPING, LEAST_DAMPING = 1e-2, 1e-4  # of the diagonal of the normal equations
GOOD, FAIR = 0.75, 0.1  # shares of the expected gain at which the damping falls, and at which a step is taken
LARGEST_SCATTER = 6.0  # times the prior variance: beyond it a family's deviation is not a coefficient's
PRIOR_WEIGHT = 3.0  # shifts' worth by which the spread of a level holds on to its last value
MOST_ROWS = 12.0  # of one family count as independent: the rest repeat what these say
VARIANCE_WEIGHT = 8.0  # families' worth of prior on each variance
LIMIT = 3.0  # prior standard deviations that a coefficient may move
LEAST_NOISE, MOST_NOISE = 0.008, 0.1  # log scale: timers and rounding; a tenth is no repeat of the same run
LEAST_SPREAD = 0.01  # of a level: log units below which shifts are alike
SETTLED = 2  # iterations before variances are learnt: the first residuals are those of the start
ENOUGH = 0.5  # expected gain of a step, in log likelihood, below which a fit with known variances is over


def linearise(model: Model, rows: Index, logs: Array) -> tuple[Array, Array]:
    """Value and Jacobian of `model` at `rows` and their `logs`: shapes (n,) and (n_coefficients, n).

    All differences are one call, block by block: what depends on no coefficient is computed once for all of them.
    """
    value, jacobian = np.empty(rows.size), np.empty_like(logs)
    for start in range(0, rows.size, BLOCK):
        part = slice(start, start + BLOCK)
        found = model(nudged(logs[:, part]), rows[part])
        value[part], jacobian[:, part] = found[-1], log_slopes(found)
    return value, jacobian


@dataclass(frozen=True)
class Shifts:
    """Which shifts make up each family's population coefficients."""

    names: tuple[tuple[str, str, str], ...]  # (coefficient, level, value)
    coefficient: NDArray[np.intp]  # index of the coefficient of each shift
    group: NDArray[np.intp]  # shifts of one (coefficient, level) share a variance
    group_names: tuple[tuple[str, str], ...]
    members: tuple[NDArray[np.intp], ...]  # shifts of each family

    def logs(self, values: Array) -> Array:
        """Population log coefficients, shape (n_coefficients, n_families)."""
        table = np.zeros((len(NAMES), len(self.members)))
        for family, index in enumerate(self.members):
            np.add.at(table[:, family], self.coefficient[index], values[index])
        return table


def make_shifts(features: Sequence[dict[str, str]], levels: dict[str, tuple[str, ...]]) -> Shifts:
    """Enumerate every (coefficient, level, value) that the families have; level "all" comes first."""
    known: dict[tuple[str, str, str], int] = {(name, "all", ""): i for i, name in enumerate(NAMES)}
    members = []
    for feature in features:
        row = list(range(len(NAMES)))
        for name in NAMES:
            for level in levels[name]:
                row.append(known.setdefault((name, level, level_value(feature, level)), len(known)))
        members.append(np.array(row, dtype=np.intp))
    names = tuple(known)
    groups: dict[tuple[str, str], int] = {}
    group = [groups.setdefault((name, level), len(groups)) for name, level, _ in names]
    position = {name: i for i, name in enumerate(NAMES)}
    coefficient = np.array([position[name] for name, _, _ in names], dtype=np.intp)
    return Shifts(names, coefficient, np.array(group, dtype=np.intp), tuple(groups), tuple(members))


@dataclass(frozen=True)
class Family:
    """Rows of one family in the arrays of points."""

    rows: NDArray[np.intp]
    weight: float = 1.0  # 1/n for one of n that repeat the same measurements


@dataclass(frozen=True)
class Conditional:
    """Posterior of a family's random effects (coefficients, then discrepancies) given its rows."""

    mean: Array
    covariance: Array
    information: Array  # J V^-1 J^T over coefficients
    score: Array  # J V^-1 r
    noise: Array  # residual of each row after the random effects
    freedom: Array  # degrees of freedom that each row leaves for the noise
    distance: float  # squared Mahalanobis length of the residual
    whitener: Array  # inverse of the marginal covariance's Cholesky factor


def condition(effects: Array, residual: Array, variances: Array, noise_variance: Array) -> Conditional:
    """Condition random effects with prior N(0, diag(variances)) on `residual` = effects^T z + noise.

    `effects` has shape (n_effects, n_rows), `noise_variance` (n_rows,).
    """
    scaled = effects * variances[:, None]
    marginal = effects.T @ scaled + np.diag(noise_variance)
    chol = np.linalg.cholesky(marginal)
    white = np.linalg.solve(chol, np.column_stack([effects.T, residual]))
    basis, target = white[:, :-1], white[:, -1]
    score = basis.T @ target
    information = basis.T @ basis
    mean = variances * score
    covariance = np.diag(variances) - variances[:, None] * information * variances[None, :]
    inverse = np.linalg.inv(chol)
    freedom = noise_variance * np.square(inverse).sum(axis=0)
    return Conditional(
        mean,
        covariance,
        information,
        score,
        residual - effects.T @ mean,
        freedom,
        float(target @ target),
        inverse,
    )


@dataclass(frozen=True)
class Local:
    """The negative log posterior of the shifts around one iterate, with the covariances that it has there."""

    residual: Callable[[Array], Array]  # of all rows, at given shifts
    conditionals: Sequence[Conditional]  # one a family
    starts: NDArray[np.intp]  # first row of each family
    weights: Array  # of the families
    prior: Array
    prior_sd: Array

    def loss(self, values: Array) -> float:
        """Up to a constant; families are multivariate Student-t."""
        left = self.residual(values)
        total = 0.5 * float(np.square((values - self.prior) / self.prior_sd).sum())
        for index, found in enumerate(self.conditionals):
            part = left[self.starts[index] : self.starts[index + 1]]
            distance = float(np.square(found.whitener @ part).sum())
            tail = (DEGREES_OF_FREEDOM + part.size) * np.log1p(distance / DEGREES_OF_FREEDOM)
            total += 0.5 * float(self.weights[index]) * tail
        return total

    def step(self, values: Array, normal: Array, right: Array, damping: float) -> Stride:
        """A damped Gauss-Newton step that lowers the loss (none where none does), and the damping to go on with.

        Levenberg-Marquardt with Marquardt's scaling: where the model bends, only the directions that bend are held
        back. One share of the whole step for all of them would let a single kink stop the fit.
        """
        from scipy.linalg import solve

        now, diagonal = self.loss(values), np.arange(values.size)
        for _ in range(MOST_TRIES):
            damped = normal.copy()
            damped[diagonal, diagonal] *= 1.0 + damping
            whole = solve(damped, right, assume_a="pos", overwrite_a=True, check_finite=False)
            change = np.clip(np.asarray(whole, dtype=np.float64), -LARGEST_STEP, LARGEST_STEP)
            expected = float(change @ right - 0.5 * change @ normal @ change)
            gained = now - self.loss(values + change)
            if gained > GOOD * expected:
                return Stride(change, max(damping / 4.0, LEAST_DAMPING), expected)
            if gained > FAIR * expected:
                return Stride(change, damping, expected)
            damping *= 4.0
        return Stride(np.zeros_like(values), damping, 0.0)


@dataclass(frozen=True)
class Stride:
    """A step of the shifts, the damping that the next one starts from and what the step was expected to gain."""

    change: Array
    damping: float
    expected: float


def student_weights(residual: Array, scale: float) -> Array:
    """Weight of each row under Student-t noise: 1 in the core, falling as the inverse square far out."""
    return np.asarray((DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + np.square(residual / scale)))


@dataclass(frozen=True)
class Fit:
    """Everything that a fit found."""

    shifts: Shifts
    values: Array  # of the shifts
    deviations: Array  # posterior standard deviation of the shifts, where variances were learnt
    prior_sd: Array
    scatter: Array  # variance of the random effects: coefficients, then discrepancies
    noise: float  # scale of the Student-t
    weights: Array  # Student-t weight of every point, 1 where it was not fitted


def fit(
    model: Model,
    target: Array,
    discrepancy: Array,
    families: Sequence[Family],
    shifts: Shifts,
    *,
    start: Array,
    prior: Array,
    prior_sd: Array,
    largest_sd: Array | None,
    scatter: Array,
    scatter_prior: Array,
    noise: float,
    learning: int = 12,
    settling: int = 0,
    weights: Array | None = None,
    offset_boost: Array | None = None,
) -> Fit:
    """Fit shifts, variances and noise to all `families`.

    `model(logs, rows)` evaluates log step times of the given rows; `discrepancy` has shape (n_u, n_points);
    `largest_sd` (n_shifts) bounds what the spread of a shift may grow to, without it spreads stay; spreads, scatter and
    noise are learnt in `learning` iterations and stay in the `settling` ones, which end when a step gains nothing;
    `weights` (n_points) are those of an earlier fit, whose outliers would else be trusted in the first step;
    `offset_boost` (n_families) multiplies the variance of the first discrepancy (an offset) where only ratios
    within a family mean something.
    """
    values, normal = start.copy(), np.diag(1.0 / np.square(prior_sd))
    sizes = np.array([family.rows.size for family in families])
    rows = np.concatenate([family.rows for family in families])
    owner = np.repeat(np.arange(sizes.size), sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    boost = np.ones(sizes.size) if offset_boost is None else offset_boost
    counted = np.array([family.weight for family in families])
    weights, damping = np.ones(rows.size) if weights is None else weights[rows], START_DAMPING
    y = target[rows]
    for iteration in range(learning + settling):
        predicted, jacobian = linearise(model, rows, shifts.logs(values)[:, owner])
        effects, residual = np.vstack([jacobian, discrepancy[:, rows]]), y - predicted
        given = _given(effects, residual, starts, counted, scatter, boost, np.square(noise) / weights)
        normal, right = _normal_equations(shifts, given, values - prior, prior_sd)
        here = Local(
            residual=lambda at: y - model(shifts.logs(at)[:, owner], rows),
            conditionals=[family.found for family in given],
            starts=starts,
            weights=counted,
            prior=prior,
            prior_sd=prior_sd,
        )
        stride = here.step(values, normal, right, damping)
        values, damping = values + stride.change, stride.damping
        left = _left(given, effects, residual, shifts.logs(stride.change), boost)
        weights = student_weights(left.noise, noise)
        if SETTLED <= iteration < learning:
            scatter = (VARIANCE_WEIGHT * scatter_prior + left.squares) / (VARIANCE_WEIGHT + left.used)
            scatter = np.minimum(scatter, LARGEST_SCATTER * scatter_prior)
            share = (counted / sizes)[owner]
            variance_left = (share * weights * np.square(left.noise)).sum() / (share * left.freedom).sum()
            noise = float(np.clip(np.sqrt(variance_left), LEAST_NOISE, MOST_NOISE))
            if largest_sd is not None:
                prior_sd = _level_spreads(shifts, values - prior, _deviations(normal), prior_sd, largest_sd)
        if iteration >= learning and stride.expected < ENOUGH:
            break
    trusted = np.ones(target.size)
    trusted[rows] = weights
    deviations = _deviations(normal) if learning else prior_sd  # folds have no use for them
    return Fit(shifts, values, deviations, prior_sd, scatter, noise, trusted)


def _deviations(normal: Array) -> Array:
    """Posterior standard deviations of the shifts: roots of the diagonal of the inverse, by Cholesky."""
    from scipy.linalg.lapack import dpotrf, dtrtri

    factor, _ = dpotrf(normal, lower=1)
    inverse, _ = dtrtri(factor, lower=1, overwrite_c=1)
    return np.asarray(np.sqrt(np.square(np.tril(inverse)).sum(axis=0)), dtype=np.float64)


@dataclass(frozen=True)
class _Given:
    """One family given its rows, at one iterate."""

    part: slice  # of the rows
    variance: Array  # prior, of its random effects
    found: Conditional
    trust: float  # multivariate Student-t: a family far from the population pulls less
    weight: float  # see `Family`


def _given(
    effects: Array,
    residual: Array,
    starts: Index,
    counted: Array,
    scatter: Array,
    boost: Array,
    noise_variance: Array,
) -> list[_Given]:
    """Condition every family on its rows."""
    given = []
    for index, factor in enumerate(boost):
        part = slice(starts[index], starts[index + 1])
        count = float(part.stop - part.start)
        variance = scatter.copy()
        variance[len(NAMES)] *= factor
        row_noise = noise_variance[part] * max(1.0, count / MOST_ROWS)
        found = condition(effects[:, part], residual[part], variance, row_noise)
        trust = (DEGREES_OF_FREEDOM + count) / (DEGREES_OF_FREEDOM + found.distance)
        given.append(_Given(part, variance, found, trust, float(counted[index])))
    return given


def _normal_equations(
    shifts: Shifts, given: Sequence[_Given], from_prior: Array, prior_sd: Array
) -> tuple[Array, Array]:
    """Matrix and right-hand side of a Gauss-Newton step of the shifts, random effects integrated out."""
    normal = np.diag(1.0 / np.square(prior_sd))
    right = -from_prior / np.square(prior_sd)
    for member, family in zip(shifts.members, given, strict=True):
        column = shifts.coefficient[member]
        pull = family.weight * family.trust
        normal[np.ix_(member, member)] += pull * family.found.information[np.ix_(column, column)]
        right[member] += pull * family.found.score[column]
    return normal, right


@dataclass(frozen=True)
class _Left:
    """What a step of the shifts leaves to random effects and noise."""

    noise: Array  # residual of each row
    freedom: Array  # degrees of freedom that each row leaves for the noise
    squares: Array  # of each random effect, summed over families
    used: Array  # degrees of freedom of each random effect, likewise


def _left(given: Sequence[_Given], effects: Array, residual: Array, moved: Array, boost: Array) -> _Left:
    """Random effects and noise after the population of each family `moved`, shape (n_coefficients, n_families)."""
    n_c = len(NAMES)
    noise, freedom = np.empty(residual.size), np.empty(residual.size)
    squares, used = np.zeros(effects.shape[0]), np.zeros(effects.shape[0])
    for index, (family, factor) in enumerate(zip(given, boost, strict=True)):
        part, found = family.part, family.found
        mean = family.variance * (found.score - found.information[:, :n_c] @ moved[:, index])
        limit = np.full(mean.size, np.inf)
        limit[:n_c] = LIMIT * np.sqrt(family.variance[:n_c])
        effect = np.clip(mean, -limit, limit)
        noise[part] = residual[part] - effects[:n_c, part].T @ moved[:, index] - effects[:, part].T @ effect
        freedom[part] = found.freedom
        if factor == 1.0:
            used += family.weight * family.variance * np.diag(found.information)
            squares += family.weight * min(family.trust, 1.0) * np.square(effect)
    return _Left(noise, freedom, squares, used)


def _level_spreads(
    shifts: Shifts, from_prior: Array, deviations: Array, prior_sd: Array, largest_sd: Array
) -> Array:
    """The spread of the shifts of each level that has two or more, by MacKay's fixed point.

    PRIOR_WEIGHT holds it where the last iteration left it, not where it began: it slows the way, not the end of it.
    """
    spreads = prior_sd.copy()
    determined = 1.0 - np.square(deviations / prior_sd)
    for group, (_, level) in enumerate(shifts.group_names):
        inside = np.flatnonzero(shifts.group == group)
        if level == "all" or inside.size < 2:
            continue
        squared = PRIOR_WEIGHT * prior_sd[inside[0]] ** 2 + np.square(from_prior[inside]).sum()
        variance = squared / (PRIOR_WEIGHT + max(float(determined[inside].sum()), 0.0))
        spreads[inside] = np.clip(np.sqrt(variance), LEAST_SPREAD, largest_sd[inside[0]])
    return spreads
