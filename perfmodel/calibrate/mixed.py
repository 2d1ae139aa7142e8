"""A mixed-effects fit of the step model's coefficients, in logarithms.

Log step times of family i follow

    y = f(x; c_i) + H u_i + e,    ln c_i = population(features of i) + d_i                        (1)

with f the log of the step model, d_i ~ N(0, T) the scatter of coefficients between families, H u_i the
discrepancy that no coefficient explains (u ~ N(0, U)) and e Student-t noise. The population is a sum of shifts,
one per level of a feature ("matmul | generation | hopper"), each with a normal prior. Everything is found by
Gauss-Newton with step halving: the model is linearised at each family's population (the first-order method, Beal &
Sheiner 1982), families enter the normal equations through their marginal covariance, noise is reweighted (Lange, Little
& Taylor 1989), and the variances follow MacKay's fixed point (Neural Computation 4 (1992) 415) with a weak inverse-gamma
prior.

The same equations condition one family on its own measurements: that is calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.predict.coefficients import NAMES, log_slopes, nudged
from perfmodel.predict.features import level_value

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Log coefficients (n_coefficients, ..., n_rows) and rows -> log step times (..., n_rows)
Model = Callable[[Array, Index], Array]

DEGREES_OF_FREEDOM = 4.0  # of the Student-t noise
BLOCK = 400  # rows whose differences are made at once: more of them fall out of the processor's cache
LARGEST_STEP = 0.7  # of a Gauss-Newton iteration, in log units
MOST_HALVINGS = 6  # of a step that does not lower the loss
LARGEST_SCATTER = 6.0  # times the prior variance: beyond it a family's deviation is not a coefficient's
PRIOR_WEIGHT = 3.0  # shifts' worth of prior on the spread of each level
MOST_ROWS = 12.0  # of one family count as independent: the rest repeat what these say
VARIANCE_WEIGHT = 8.0  # families' worth of prior on each variance
LIMIT = 3.0  # prior standard deviations that a coefficient may move
LEAST_NOISE, MOST_NOISE = 0.008, 0.1  # log scale: timers and rounding; a tenth is no repeat of the same run
LEAST_SPREAD = 0.01  # of a level: log units below which shifts are alike
SETTLED = 2  # iterations before variances are learnt: the first residuals are those of the start


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
    prior: Array
    prior_sd: Array

    def loss(self, values: Array) -> float:
        """Up to a constant; families are multivariate Student-t."""
        left = self.residual(values)
        total = 0.5 * float(np.square((values - self.prior) / self.prior_sd).sum())
        for index, found in enumerate(self.conditionals):
            part = left[self.starts[index] : self.starts[index + 1]]
            distance = float(np.square(found.whitener @ part).sum())
            total += 0.5 * (DEGREES_OF_FREEDOM + part.size) * np.log1p(distance / DEGREES_OF_FREEDOM)
        return total

    def share(self, values: Array, change: Array) -> float:
        """How much of `change` to take: the first of 1, 1/2, 1/4 ... that lowers the loss, 0 where none does.

        A whole Gauss-Newton step overshoots where the model bends, and without this the fit never settles.
        """
        now, share = self.loss(values), 1.0
        for _ in range(MOST_HALVINGS):
            if self.loss(values + share * change) < now:
                return share
            share *= 0.5
        return 0.0


def student_weights(residual: Array, scale: float) -> Array:
    """Weight of each row under Student-t noise: 1 in the core, falling as the inverse square far out."""
    return np.asarray((DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + np.square(residual / scale)))


@dataclass(frozen=True)
class Fit:
    """Everything that a fit found."""

    shifts: Shifts
    values: Array  # of the shifts
    deviations: Array  # posterior standard deviation of the shifts
    prior_sd: Array
    scatter: Array  # variance of the random effects: coefficients, then discrepancies
    noise: float  # scale of the Student-t


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
    largest_sd: Array,
    scatter: Array,
    scatter_prior: Array,
    noise: float,
    iterations: int = 12,
    learn_variances: bool = True,
    offset_boost: Array | None = None,
) -> Fit:
    """Fit shifts, variances and noise to all `families`.

    `model(logs, rows)` evaluates log step times of the given rows; `discrepancy` has shape (n_u, n_points);
    `largest_sd` (n_shifts) bounds what the spread of a shift may grow to; spreads, scatter and noise stay as given
    unless `learn_variances`;
    `offset_boost` (n_families) multiplies the variance of the first discrepancy (an offset) where only ratios
    within a family mean something.
    """
    n_c, n_u = len(NAMES), discrepancy.shape[0]
    values, prior_sd, scatter = start.copy(), prior_sd.copy(), scatter.copy()
    rows = np.concatenate([family.rows for family in families])
    owner = np.repeat(np.arange(len(families)), [family.rows.size for family in families])
    starts = np.cumsum([0] + [family.rows.size for family in families])
    boost = np.ones(len(families)) if offset_boost is None else offset_boost
    weights = np.ones(rows.size)
    deviations = prior_sd.copy()
    y, extra = target[rows], discrepancy[:, rows]
    for iteration in range(iterations):
        population = shifts.logs(values)
        predicted, jacobian = linearise(model, rows, population[:, owner])
        stacked = np.vstack([jacobian, extra])
        residual = y - predicted
        normal = np.diag(1.0 / np.square(prior_sd))
        right = -(values - prior) / np.square(prior_sd)
        used = np.zeros(n_c + n_u)
        squares = np.zeros(n_c + n_u)
        trusts = np.ones(len(families))
        conditionals: list[tuple[Conditional, Array]] = []
        for index in range(len(families)):
            part = slice(starts[index], starts[index + 1])
            variance = scatter.copy()
            variance[n_c] *= boost[index]
            count = float(part.stop - part.start)
            row_noise = np.square(noise) / weights[part] * max(1.0, count / MOST_ROWS)
            found = condition(stacked[:, part], residual[part], variance, row_noise)
            member = shifts.members[index]
            column = shifts.coefficient[member]
            # Multivariate Student-t: a family far from the population pulls less.
            trust = (DEGREES_OF_FREEDOM + count) / (DEGREES_OF_FREEDOM + found.distance)
            normal[np.ix_(member, member)] += trust * found.information[np.ix_(column, column)]
            right[member] += trust * found.score[column]
            trusts[index] = trust
            conditionals.append((found, variance))
        if learn_variances:
            covariance = np.asarray(np.linalg.inv(normal), dtype=np.float64)
            step = covariance @ right
            deviations = np.sqrt(np.diag(covariance)).astype(np.float64)
        else:
            step = np.asarray(np.linalg.solve(normal, right), dtype=np.float64)
        change = np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        here = Local(
            residual=lambda at: y - model(shifts.logs(at)[:, owner], rows),
            conditionals=[found for found, _ in conditionals],
            starts=starts,
            prior=prior,
            prior_sd=prior_sd,
        )
        change = change * here.share(values, change)
        values = values + change
        moved = np.zeros((n_c, len(families)))
        for index, member in enumerate(shifts.members):
            np.add.at(moved[:, index], shifts.coefficient[member], change[member])
        noise_left, freedom = np.empty(rows.size), np.empty(rows.size)
        for index, (found, variance) in enumerate(conditionals):
            part = slice(starts[index], starts[index + 1])
            score = found.score - found.information[:, :n_c] @ moved[:, index]
            mean = variance * score
            limit = np.full(n_c + n_u, np.inf)
            limit[:n_c] = LIMIT * np.sqrt(variance[:n_c])
            effects = np.clip(mean, -limit, limit)
            shift = stacked[:n_c, part].T @ moved[:, index]
            noise_left[part] = residual[part] - shift - stacked[:, part].T @ effects
            freedom[part] = found.freedom
            gamma = variance * np.diag(found.information)
            if boost[index] == 1.0:
                used += gamma
                squares += min(trusts[index], 1.0) * np.square(effects)
        weights = student_weights(noise_left, noise)
        if learn_variances and iteration >= SETTLED:
            scatter = (VARIANCE_WEIGHT * scatter_prior + squares) / (VARIANCE_WEIGHT + used)
            scatter = np.minimum(scatter, LARGEST_SCATTER * scatter_prior)
            share = 1.0 / np.array([family.rows.size for family in families])[owner]
            variance_left = (share * weights * np.square(noise_left)).sum() / (share * freedom).sum()
            noise = float(np.clip(np.sqrt(variance_left), LEAST_NOISE, MOST_NOISE))
            determined = 1.0 - np.square(deviations / prior_sd)
            for group in range(len(shifts.group_names)):
                inside = np.flatnonzero(shifts.group == group)
                if shifts.group_names[group][1] == "all" or inside.size < 2:
                    continue
                squared = (
                    PRIOR_WEIGHT * prior_sd[inside[0]] ** 2 + np.square(values[inside] - prior[inside]).sum()
                )
                variance_now = squared / (PRIOR_WEIGHT + max(float(determined[inside].sum()), 0.0))
                prior_sd[inside] = np.clip(np.sqrt(variance_now), LEAST_SPREAD, largest_sd[inside[0]])
    return Fit(shifts, values, deviations, prior_sd, scatter, noise)
