"""Bands that hold: weights, shifts and slopes of `beliefs/bands.py` and conformal factors, learnt on held-out errors.

The spread s of equation (1) there makes a Student-t likely for the errors e of families that the beliefs did not see,

    sum w [ln s + (f + 1)/2 ln(1 + (e/s)^2 / f)] + sum d^2 / (2 shift^2) + sum b^2 / (2 slope^2),              (1)

Users are strangers: the errors are those of sources left out whole, with the labels that the sources state, and every source
weighs the same, so that a band covers sources and not only points. The factor is the 90 % quantile of |e| / s with s learnt
without the source of e (cross-conformal prediction, Vovk 2015, Ann. Math. Artif. Intell. 74, 9), so that the freedom of (1)
does not make it too small. What is learnt without a fold is kept for it and scores it: its errors are neither in (1) nor in
the quantile, though the spreads of the others' errors may have seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.bands import LEVELS, NEVER_NARROWING, SCALED, SLOPES
from perfmodel.beliefs.features import level_value
from perfmodel.beliefs.population import Beliefs, workload_class
from perfmodel.beliefs.weighted import weighted_quantile
from perfmodel.calibrate.observations import Observations
from perfmodel.validate.protocol import score_mode
from perfmodel.validate.scores import by_source

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FREEDOM = 3.0  # of the Student-t: errors have heavy tails
# Of what nobody measured in a band without measurements. The folds hardly have such jobs, so this is an assumption:
# a kind of workload that no one ran gets a band of about x/2.5, not that of its measured cousins.
LEAST_OPEN_WEIGHT = 0.3
# Spread of the shifts between values of a level.
SHIFT = {"datasheet": 0.3, "one_node": 0.15, "two_point": 0.15}
SLOPE = 1.4  # spread of the slopes
LEAST_LOG, MOST_LOG = -9.0, 3.0  # of a weight
BORROWED = 4.0  # sources of other kinds that count in the factor of one kind
LEVEL = 0.90
Known = Callable[[int], Beliefs]


@dataclass(frozen=True)
class Records:
    """Held-out errors of one mode with what the width of their bands may depend on."""

    mode: str
    family: Index
    error: Array
    weight: Array  # every source weighs one
    squares: Array  # of the signs, (n_signs, records)
    at: Array  # (n_slopes, records)
    codes: Index  # position of each level's value among the shifts, (n_levels, records)
    values: tuple[tuple[str, str], ...]  # (level, value) of every shift

    def only(self, chosen: Mask) -> Records:
        """Some of the records; the shifts keep their positions."""
        last = {
            name: getattr(self, name)[..., chosen]
            for name in ("family", "error", "weight", "squares", "at", "codes")
        }
        return replace(self, **last)

    def spread(self, found: Array) -> Array:
        """Equation (1) of `beliefs/bands.py` at every record under parameters as `likeliest` gives them."""
        return np.asarray(np.sqrt(self.variances(found).sum(axis=0)))

    def variances(self, found: Array) -> Array:
        """What each sign adds to the square of the spread, (n_signs, records)."""
        weights, slopes, shifts = self.parts(found)
        made = np.exp(2.0 * weights)[:, None] * self.squares
        made[: SCALED.get(self.mode)] *= np.exp(2.0 * (slopes @ self.at + shifts[self.codes].sum(axis=0)))
        return made

    def parts(self, found: Array) -> tuple[Array, Array, Array]:
        """Log weights, slopes and shifts."""
        signs, slopes = len(self.squares), len(self.at)
        return found[:signs], found[signs : signs + slopes], found[signs + slopes :]


def collect(
    data: Observations, mode: str, ids: Sequence[int], known: Known, source: NDArray[np.str_]
) -> Records:
    """Errors of `mode`; `known` gives beliefs without a family's source, `source` the source of each family."""
    scored = score_mode(data, mode, ids, known)
    family = data.family[scored.rows]
    codes, values = _codes([data.features[int(f)] for f in family], LEVELS[mode])
    return Records(
        mode=mode,
        family=family,
        error=scored.error(data),
        weight=by_source(family, source),
        squares=np.square(scored.signs),
        at=scored.at,
        codes=codes,
        values=values,
    )


def _codes(
    features: Sequence[Mapping[str, str]], levels: Sequence[str]
) -> tuple[Index, tuple[tuple[str, str], ...]]:
    """Positions of every record's level values in one list of all of them."""
    codes = np.empty((len(levels), len(features)), dtype=np.intp)
    values: list[tuple[str, str]] = []
    for row, level in enumerate(levels):
        names, position = np.unique([level_value(one, level) for one in features], return_inverse=True)
        codes[row] = position + len(values)
        values += [(level, str(name)) for name in names]
    return codes, tuple(values)


def likeliest(records: Records, start: Array | None = None) -> Array:
    """Log weights of the signs, slopes and shifts that minimise equation (1), from the gradient."""
    from scipy.optimize import minimize

    signs, slopes, shifts = len(records.squares), len(records.at), len(records.values)
    stiffness = np.concatenate(
        [np.zeros(signs), np.full(slopes, SLOPE**-2), np.full(shifts, SHIFT[records.mode] ** -2)]
    )
    square, where = np.square(records.error), records.codes.ravel()

    def loss(at: Array) -> tuple[float, Array]:
        made = records.variances(at)
        total = made.sum(axis=0)
        ratio = square / total / FREEDOM
        value = records.weight @ (0.5 * np.log(total) + 0.5 * (FREEDOM + 1.0) * np.log1p(ratio))
        # Along ln s, then along the logarithm of each sign's part in it.
        slope = records.weight * (1.0 - (FREEDOM + 1.0) * ratio / (1.0 + ratio))
        along = made * (slope / total)
        scaled = along[: SCALED.get(records.mode)].sum(axis=0)
        gradient = np.concatenate(
            [
                along.sum(axis=1),
                records.at @ scaled,
                np.bincount(where, np.tile(scaled, len(records.codes)), minlength=shifts),
            ]
        )
        return float(value + 0.5 * stiffness @ np.square(at)), gradient + stiffness * at

    least = np.full(signs, LEAST_LOG)
    if records.mode == "datasheet":
        least[-1] = np.log(LEAST_OPEN_WEIGHT)
    bounds: list[tuple[float | None, float | None]] = [(low, MOST_LOG) for low in least]
    bounds += [(0.0 if name in NEVER_NARROWING else None, None) for name in SLOPES[records.mode]]
    bounds += [(None, None)] * shifts
    first = np.concatenate([np.full(signs, np.log(0.3)), np.zeros(slopes + shifts)])
    found = minimize(
        loss,
        first if start is None else start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 1000, "maxfun": 3000},
    )
    return np.asarray(found.x)


def factors(kinds: Sequence[str], family: Index, score: Array, weight: Array) -> dict[str, float]:
    """90 % quantile of |e| / s of all records, of every class of workload and of every kind.

    Records of other kinds count in that of one kind as `BORROWED` sources do, so that a kind of few is near all.
    """
    table = {"all": weighted_quantile(score, weight, LEVEL)}
    kind = np.array([kinds[int(f)] for f in family])
    for labels in (np.array([workload_class(str(name)) for name in kind]), kind):
        for name in sorted(set(labels.tolist())):
            mixed = np.where(labels == name, weight, weight * min(BORROWED / weight.sum(), 1.0))
            table[name] = weighted_quantile(score, mixed, LEVEL)
    return {name: round(value, 3) for name, value in table.items()}


@dataclass(frozen=True)
class Learnt:
    """What makes the bands of one mode, as files keep it."""

    weights: list[float]
    shape: dict[str, object]
    conformal: dict[str, float]


def learn(
    data: Observations, records: Records, folds: Mapping[str, NDArray[np.int64]], unseen: str
) -> tuple[Learnt, dict[str, list[Learnt]]]:
    """From all records, and for every fold of every scheme without its families; `folds` has each family's fold.

    `unseen` is the scheme whose folds the errors did without.
    """
    full = likeliest(records)
    without = {
        scheme: [
            likeliest(records.only(fold_of[records.family] != fold), full)
            for fold in range(int(fold_of.max()) + 1)
        ]
        for scheme, fold_of in folds.items()
    }
    # Rounded as kept, so that the factors belong to what is used.
    kept = _plain(records, full)
    kept_without = {scheme: [_plain(records, one) for one in found] for scheme, found in without.items()}
    score = np.full(records.error.size, np.nan)
    fold = folds[unseen][records.family]
    for index, (weights, shape) in enumerate(kept_without[unseen]):
        mine = fold == index
        score[mine] = np.abs(records.error[mine]) / _spread(records.only(mine), weights, shape)

    def conformal(chosen: Mask) -> dict[str, float]:
        return factors(data.kinds, records.family[chosen], score[chosen], records.weight[chosen])

    everything = np.ones(score.size, dtype=bool)
    return Learnt(*kept, conformal(everything)), {
        scheme: [
            Learnt(*one, conformal(folds[scheme][records.family] != fold)) for fold, one in enumerate(found)
        ]
        for scheme, found in kept_without.items()
    }


def _plain(records: Records, found: Array) -> tuple[list[float], dict[str, object]]:
    """Weights, and slopes and shifts by name."""
    weights, slopes, shifts = records.parts(found)
    levels: dict[str, dict[str, float]] = {}
    for (level, value), shift in zip(records.values, shifts, strict=True):
        if round(float(shift), 3):
            levels.setdefault(level, {})[value] = round(float(shift), 3)
    named = {name: round(float(value), 3) for name, value in zip(SLOPES[records.mode], slopes, strict=True)}
    return [round(float(v), 5) for v in np.exp(weights)], {"slopes": named, "levels": levels}


def _spread(records: Records, weights: Sequence[float], shape: Mapping[str, Any]) -> Array:
    """The spread of records under rounded parameters."""
    shifts = np.array([shape["levels"].get(level, {}).get(value, 0.0) for level, value in records.values])
    slopes = np.array([shape["slopes"][name] for name in SLOPES[records.mode]])
    with np.errstate(divide="ignore"):  # a weight may be rounded to nothing
        return records.spread(np.concatenate([np.log(weights), slopes, shifts]))
