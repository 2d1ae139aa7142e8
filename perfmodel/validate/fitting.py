"""Fit the shipped beliefs: population, folds, scatter between jobs, conformal factors. `validation/fit_priors.py`
writes what this finds; `perfmodel validate --refit` uses it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.bands import CELL
from perfmodel.beliefs.extrapolation import LawTrust
from perfmodel.beliefs.features import level_value
from perfmodel.beliefs.population import Beliefs
from perfmodel.calibrate.mixed import linearise
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import fit_population, population_logs, to_beliefs
from perfmodel.calibrate.scatter import Bench, Task, tuned
from perfmodel.validate.bands import Learnt, collect, factors, learn
from perfmodel.validate.fold_fits import SETTLING, fit_folds
from perfmodel.validate.folds import KEYS, SCHEMES, Folds, assign, pack
from perfmodel.validate.knees import Bend, bends, choose_odds
from perfmodel.validate.protocol import MODES, Split, accelerator_time, laws_of, score_mode, split
from perfmodel.validate.resolve import Resolved
from perfmodel.validate.scores import by_source
from perfmodel.validate.strangers import mfu_table

Array = NDArray[np.float64]
# Iterations that learn variances; then the shifts settle. Spreads of levels take longer to be found than to be kept.
LEARNING, LEARNING_SPREADS = 10, 24
NESTED_PARTS = 4  # of the sources, for tuning that is scored where it was not done
UNSEEN = "source"  # what is left out where bands, scatter and knees are found: users are strangers
Say = Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """What a fit of everything found."""

    beliefs: Beliefs
    folds: Folds


def fit_everything(
    resolved: Resolved,
    stated: Resolved,
    *,
    spreads: Mapping[tuple[str, str], float] | None,
    schemes: Sequence[str] = tuple(SCHEMES),
    meta: Mapping[str, object] | None = None,
    workers: int = 1,
    say: Say = lambda text: None,
) -> Fitted:
    """Population and folds, then what is tuned on held-out predictions. Deterministic.

    The population is fitted to `resolved`, where labels are what the runs' scripts say; what is tuned for users, whose
    scripts nobody reads, is found on `stated`, the same runs with the labels of their sources. `spreads` of the levels are kept, or learnt where there are none: their fixed point has several ends, and a few rows
    more or less choose between them.
    """
    data = resolved.observations
    ids = measured_families(data)
    say(f"population: {len(ids)} families, {data.target.size} points")
    learning = LEARNING_SPREADS if spreads is None else LEARNING
    full = fit_population(data, ids, spreads=spreads, learning=learning, settling=SETTLING)
    keys: dict[str, dict[str, int]] = {}
    kept: dict[str, list[list[int]]] = {}
    for scheme in schemes:
        names = [row.text[KEYS[scheme]] for row in resolved.families]
        assigned = assign(names, SCHEMES[scheme])
        keys[scheme] = {name: int(fold) for name, fold in zip(names, assigned, strict=True)}
        kept[scheme] = [[i for i in ids if assigned[i] != fold] for fold in range(int(assigned.max()) + 1)]
    jobs = [families for folds in kept.values() for families in folds]
    say(f"folds: {', '.join(f'{len(folds)} by {scheme}' for scheme, folds in kept.items())}")
    found = iter(
        fit_folds(
            data, full, jobs, workers=workers, done=lambda count: say(f"{count} of {len(jobs)} folds fitted")
        )
    )
    fits = {scheme: list(islice(found, len(folds))) for scheme, folds in kept.items()}
    population = to_beliefs(full, data, ids, meta=meta)
    return Fitted(*finish(stated, pack(full, keys, fits), population, say))


def finish(
    resolved: Resolved, folds: Folds, beliefs: Beliefs, say: Say = lambda text: None
) -> tuple[Beliefs, Folds]:
    """What is chosen last, on errors of sources left out whole: scatter between jobs, bands, the odds of a knee.

    `resolved` has the labels that the sources state. The folds come back with the bands that were learnt without each.
    """
    say("scatter between jobs, by held-out prediction")
    counts = measured_groups(resolved, np.ones(len(resolved.families), dtype=bool))
    spread = replace(spread_between_jobs(resolved, folds, beliefs, say), groups=counts)
    say("bands")
    banded, folds = with_bands(resolved, folds, spread)
    ratio = ratio_factors(resolved, folds, banded)
    conformed = replace(banded, conformal={**banded.conformal, "ratio": ratio})
    say("knees")
    odds = knee_odds(resolved, folds, conformed)
    utilisations = mfu_table(resolved, measured_families(resolved.observations))
    return replace(conformed, meta={**conformed.meta, "knee": odds, "constant_mfu": utilisations}), folds


def spread_between_jobs(
    resolved: Resolved, folds: Folds, beliefs: Beliefs, say: Say = lambda text: None
) -> Beliefs:
    """Scatter, noise and trust in laws by held-out prediction; what tuning on the scored families gains is kept as well.

    `meta.tuning` has median, mean and 90th percentile of the error by mode, with everything tuned on all groups
    (`same`, as shipped) and on the other parts alone (`nested`): the difference is what the reported figures owe to it.
    """
    bench = Bench(held_out_tasks(resolved, folds, beliefs))
    point = bench.tune()
    found = tuned(point)
    say("the same, tuned without each part")
    part_of = dict(enumerate((fold_of_families(resolved, folds, UNSEEN) % NESTED_PARTS).tolist()))
    tuning = {
        "same": bench.figures(bench.errors(point)),
        "nested": bench.figures(bench.nested(part_of)),
    }
    laws = {name: round(value, 4) for name, value in asdict(found.trust).items()}
    meta = {**beliefs.meta, "laws": laws, "tuning": tuning}
    return replace(beliefs, scatter=found.scatter, noise=found.noise, meta=meta)


def held_out(resolved: Resolved, folds: Folds, beliefs: Beliefs, scheme: str) -> Callable[[int], Beliefs]:
    """Beliefs fitted without the fold that a family's key fell into."""
    fold_of = fold_of_families(resolved, folds, scheme)
    fitted = np.array([row.text[KEYS[scheme]] in folds.keys[scheme] for row in resolved.families])
    table = [
        replace(
            folds.beliefs(beliefs, scheme, fold), groups=measured_groups(resolved, fitted & (fold_of != fold))
        )
        for fold in range(len(folds.values[scheme]))
    ]
    return lambda family: table[int(fold_of[family])]


def fold_of_families(resolved: Resolved, folds: Folds, scheme: str) -> NDArray[np.int64]:
    """The fold of every family."""
    return np.array(
        [folds.fold_of(scheme, row.text[KEYS[scheme]]) for row in resolved.families], dtype=np.int64
    )


def measured_families(data: Observations) -> list[int]:
    """Families that have points."""
    return [i for i in range(len(data.names)) if data.rows[i].size]


def measured_groups(resolved: Resolved, kept: NDArray[np.bool_]) -> dict[str, int]:
    """Independent groups among the kept families, by cell of jobs (`bands.CELL`)."""
    data = resolved.observations
    cells: dict[str, set[str]] = {}
    for i in measured_families(data):
        if kept[i]:
            cells.setdefault(level_value(data.features[i], CELL), set()).add(
                resolved.families[i].text["group"]
            )
    return {cell: len(groups) for cell, groups in sorted(cells.items())}


@dataclass(frozen=True)
class Linear:
    """All points linearised at beliefs that have not seen their source."""

    effects: Array  # (n_effects, points)
    residual: Array  # measured minus the population's centre, log
    left_open: dict[int, Array]  # family -> variance of the coefficients that the population leaves open


def linear(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> Linear:
    """Slopes and residuals of every point under its held-out population."""
    data = resolved.observations
    known = held_out(resolved, folds, beliefs, UNSEEN)
    ids = measured_families(data)
    logs = np.concatenate([population_logs(known(i), data, [i]) for i in ids], axis=1)
    rows = np.concatenate([data.rows[i] for i in ids])
    owner = np.repeat(np.arange(len(ids)), [data.rows[i].size for i in ids])
    value, jacobian = linearise(data.model, rows, logs[:, owner])
    effects = np.empty((jacobian.shape[0] + data.slopes.shape[0], data.target.size))
    residual = np.empty(data.target.size)
    effects[:, rows] = np.vstack([jacobian, data.slopes[:, rows]])
    residual[rows] = data.target[rows] - value
    left_open = {i: np.square(known(i).belief(data.features[i]).spread) for i in ids}
    return Linear(effects, residual, left_open)


def held_out_tasks(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> list[Task]:
    """Every family in both calibrated modes, linearised at beliefs that have not seen its source."""
    data = resolved.observations
    families = publisher_sizes(resolved)
    at = linear(resolved, folds, beliefs)
    tasks = []
    for mode in ("one_node", "two_point"):
        for i, left_open in at.left_open.items():
            found = split(data, i, mode)
            if isinstance(found, Split):
                tasks.append(_task(data, mode, found, at, left_open, families[i] ** -0.5))
    return tasks


def _task(data: Observations, mode: str, item: Split, at: Linear, left_open: Array, weight: float) -> Task:
    effects, residual = at.effects, at.residual
    seen, target = item.calibration, item.target
    laws = laws_of(data, seen, target, LawTrust())
    truth = accelerator_time(data, target, data.target[target])
    return Task(
        family=item.family,
        mode=mode,
        seen=effects[:, seen],
        seen_residual=residual[seen],
        target=effects[:, target],
        target_residual=residual[target],
        open_variance=left_open,
        ratio_only=bool(data.ratio_only[item.family]),
        law_error=laws.log_tau - np.log(truth),
        grounds=laws.grounds,
        weight=weight,
    )


def publisher_sizes(resolved: Resolved) -> Array:
    """For each family, how many families its publisher has."""
    names = [row.text["publisher"] for row in resolved.families]
    _, position, count = np.unique(names, return_inverse=True, return_counts=True)
    return np.asarray(count[position], dtype=np.float64)


class BandFields(TypedDict):
    """The fields of `Beliefs` that make bands, by mode."""

    bands: dict[str, list[float]]
    scales: dict[str, dict[str, object]]
    conformal: dict[str, dict[str, float]]


def with_bands(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> tuple[Beliefs, Folds]:
    """Bands of every mode, from the errors of sources left out whole and, for the folds, without the errors of each."""
    data = resolved.observations
    ids = measured_families(data)
    known = held_out(resolved, folds, beliefs, UNSEEN)
    fold_of = {scheme: fold_of_families(resolved, folds, scheme) for scheme in folds.values}
    source = np.array([row.text["publisher"] for row in resolved.families])
    found = {mode: learn(data, collect(data, mode, ids, known, source), fold_of, UNSEEN) for mode in MODES}
    without = {
        scheme: [
            _band_fields({mode: nested[scheme][fold] for mode, (_, nested) in found.items()})
            for fold in range(len(folds.values[scheme]))
        ]
        for scheme in folds.values
    }
    banded = _band_fields({mode: one for mode, (one, _) in found.items()})
    return replace(beliefs, **banded), replace(folds, bands=without)


def _band_fields(learnt: Mapping[str, Learnt]) -> BandFields:
    """The fields of `Beliefs` that make bands."""
    return {
        "bands": {mode: one.weights for mode, one in learnt.items()},
        "scales": {mode: one.shape for mode, one in learnt.items()},
        "conformal": {mode: one.conformal for mode, one in learnt.items()},
    }


@dataclass(frozen=True)
class Ratio:
    """T(K) / T(K0) of one family with nothing calibrated, K0 the smallest measured K."""

    family: int
    base: int  # row of K0
    rows: NDArray[np.intp]
    error: Array  # ln(predicted / measured)
    spread: Array


def ratios(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> list[Ratio]:
    """Held-out ratios of every family."""
    data = resolved.observations
    at = linear(resolved, folds, beliefs)
    found = []
    for i, left_open in at.left_open.items():
        rows = data.rows[i]
        base = int(rows[np.argmin(data.at.k[rows])])
        others = rows[data.at.k[rows] > data.at.k[base]]
        variance = beliefs.scatter.copy()
        variance[: left_open.size] += left_open
        slopes = at.effects[:, others] - at.effects[:, [base]]
        spread = np.sqrt((np.square(slopes) * variance[:, None]).sum(axis=0) + 2.0 * beliefs.noise**2)
        found.append(Ratio(i, base, others, at.residual[base] - at.residual[others], spread))
    return found


def ratio_factors(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> dict[str, float]:
    """The same for T(K) / T(K0) with nothing calibrated: what efficiency and speedup bands rest on."""
    found = ratios(resolved, folds, beliefs)
    families = np.concatenate([np.full(one.rows.size, one.family, dtype=np.intp) for one in found])
    error, spread = (np.concatenate(part) for part in zip(*((r.error, r.spread) for r in found), strict=True))
    weights = source_weights(resolved, families)
    return factors(resolved.observations.kinds, families, np.abs(error) / spread, weights)


def source_weights(resolved: Resolved, family: NDArray[np.intp]) -> Array:
    """Weight of each point: sources weigh the same, their families alike, and the points of a family."""
    names = np.array([row.text["publisher"] for row in resolved.families])
    return by_source(family, names)


def knee_odds(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> dict[str, float]:
    """Odds at which a knee is declared, by what is measured of a job (`ratio`: nothing), chosen on held-out families."""
    data = resolved.observations
    known = held_out(resolved, folds, beliefs, UNSEEN)
    ids = measured_families(data)
    found = {mode: choose_odds(bends(data, score_mode(data, mode, ids, known))) for mode in MODES[1:]}
    unmeasured = unmeasured_bends(resolved, folds, beliefs)
    return found | {"ratio": choose_odds(unmeasured)}


def unmeasured_bends(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> list[Bend]:
    """Every family's efficiency against its smallest K with nothing calibrated, by beliefs that have not seen its source."""
    data, found = resolved.observations, []
    for one in ratios(resolved, folds, beliefs):
        if not one.rows.size:
            continue
        tau = accelerator_time(data, one.rows, data.target[one.rows])
        base = accelerator_time(data, np.array([one.base]), data.target[[one.base]])[0]
        half = beliefs.factor("ratio", data.kinds[one.family]) * one.spread
        efficiency = base / tau
        found.append(Bend(one.family, data.at.k[one.rows], efficiency, efficiency * np.exp(-one.error), half))
    return found
