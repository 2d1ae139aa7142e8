"""Condition beliefs on a job's own measurements: many jobs at once, or one.

The step model is linearised in its log coefficients at the population's centre and stays so: a job's deviations are
found, and carried to other K, along the same slopes. On held-out runs this extrapolates better than following the
curved model, which amplifies the noise of two points. Noise and the prior have heavy tails (Student-t, by
reweighting), so one bad row cannot take the rest with it, and a job far from the population may move further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import EFFECTS, Beliefs
from perfmodel.calibrate.mixed import DEGREES_OF_FREEDOM, LIMIT, condition, linearise, student_weights
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import FREE_OFFSET
from perfmodel.physics.coefficients import NAMES

Array = NDArray[np.float64]
Index = NDArray[np.intp]

PASSES = 6  # of reweighting: after three, one bad row still made its neighbours doubted
WIDEST = 9.0  # times the prior variance


@dataclass(frozen=True)
class Posterior:
    """Effects of each job given its measurements."""

    mean: Array  # (jobs, n_effects)
    covariance: Array  # (jobs, n_effects, n_effects)
    residual: Array  # of each calibration row, log
    weight: Array  # Student-t weight of each row, near 1 where it was believed
    rows: Index
    owner: Index
    slopes: Array  # (n_effects, calibration rows): log time by effect


def prior_variances(beliefs: Beliefs, data: Observations, ids: Sequence[int]) -> Array:
    """Variance of every effect of each job before its own measurements: scatter plus what the population leaves open."""
    table = np.tile(beliefs.scatter, (len(ids), 1))
    for position, i in enumerate(ids):
        table[position, : len(NAMES)] += np.square(beliefs.belief(data.features[i]).spread)
        if data.ratio_only[i]:
            table[position, len(NAMES)] *= FREE_OFFSET
    return table


def condition_jobs(
    beliefs: Beliefs,
    data: Observations,
    ids: Sequence[int],
    rows: Sequence[Index],
    logs: Array,
    covariances: Array | None = None,
) -> Posterior:
    """Posterior effects of the jobs `ids` given the calibration `rows` of each; `logs` are their population centres.

    `covariances` (jobs, n_effects, n_effects) replaces the prior ones where something else was measured already.
    """
    n = len(NAMES)
    if covariances is None:
        variances, roots = prior_variances(beliefs, data, ids), None
    else:
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        roots = [square_root(matrix) for matrix in covariances]
    flat = np.concatenate(list(rows))
    owner = np.repeat(np.arange(len(ids)), [len(part) for part in rows])
    edges = np.cumsum([0] + [len(part) for part in rows])
    mean = np.zeros((len(ids), len(EFFECTS)))
    covariance = np.zeros((len(ids), len(EFFECTS), len(EFFECTS)))
    weight, residual = np.ones(flat.size), np.zeros(flat.size)
    predicted, jacobian = linearise(data.model, flat, logs[:, owner])
    stacked = np.vstack([jacobian, data.slopes[:, flat]])
    left = data.target[flat] - predicted
    widening = np.ones(len(ids))
    for last in (False,) * (PASSES - 1) + (True,):
        for job in range(len(ids)):
            part = slice(edges[job], edges[job + 1])
            prior = variances[job] * widening[job]
            noise = beliefs.noise**2 / weight[part]
            if roots is None:
                found = condition(stacked[:, part], left[part], prior, noise)
                centre, wide = found.mean, found.covariance
            else:  # in the axes of the prior, where effects are independent
                axes = roots[job]
                found = condition(
                    axes.T @ stacked[:, part], left[part], np.full(len(EFFECTS), widening[job]), noise
                )
                centre, wide = axes @ found.mean, axes @ found.covariance @ axes.T
            limit = np.full(len(EFFECTS), np.inf)
            limit[:n] = LIMIT * np.sqrt(prior[:n])
            mean[job] = np.clip(centre, -limit, limit)
            covariance[job] = wide
            residual[part] = left[part] - stacked[:, part].T @ mean[job]
            if not last:
                # The scatter between jobs has heavy tails: a job far from the population gets a wider prior.
                count = float(part.stop - part.start)
                ratio = (DEGREES_OF_FREEDOM + found.distance * widening[job]) / (DEGREES_OF_FREEDOM + count)
                widening[job] = np.clip(ratio, 1.0, WIDEST)
        if not last:
            weight = student_weights(residual, beliefs.noise)
    return Posterior(mean, covariance, residual, weight, flat, owner, stacked)


def square_root(matrix: Array) -> Array:
    """A square root of a covariance that may be singular: certain effects have no variance."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def predict_rows(
    beliefs: Beliefs,
    data: Observations,
    posterior: Posterior | None,
    logs: Array,
    rows: Index,
    owner: Index,
    prior: Array,
) -> tuple[Array, Array, Array]:
    """Log time, its standard deviation and the slopes (rows, n_effects) at `rows`; `owner` positions them among the jobs.

    Without a posterior the population predicts, with `prior` variances.
    """
    value, jacobian = linearise(data.model, rows, logs[:, owner])
    effects = np.vstack([jacobian, data.slopes[:, rows]]).T
    if posterior is None:
        variance = (np.square(effects) * prior[owner]).sum(axis=1)
    else:
        value = value + (effects * posterior.mean[owner]).sum(axis=1)
        variance = np.einsum("re,ref,rf->r", effects, posterior.covariance[owner], effects)
    return value, np.sqrt(np.maximum(variance, 0.0) + beliefs.noise**2), effects
