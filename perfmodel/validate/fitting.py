"""Fit the shipped beliefs: population, folds, scatter between jobs, conformal factors. `validation/fit_priors.py`
writes what this finds; `perfmodel validate --refit` uses it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.mixed import Fit, linearise
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import fit_population, population_logs, to_beliefs
from perfmodel.calibrate.scatter import Bench, Task, tuned
from perfmodel.predict.beliefs import Beliefs, workload_class
from perfmodel.predict.extrapolation import SIGNS, LawTrust, band_spread, laws_at
from perfmodel.validate.corpus import Resolved
from perfmodel.validate.folds import SCHEMES, Folds, assign, pack, unpack
from perfmodel.validate.knees import Bend, bends, choose_odds
from perfmodel.validate.protocol import MODES, Split, accelerator_time, score_mode, split
from perfmodel.validate.scores import conformal_factor, family_weights

Array = NDArray[np.float64]
FULL_ITERATIONS = 12
FOLD_ITERATIONS = 2
BAND_FREEDOM = 3.0  # of the Student-t that scales the bands: errors have heavy tails
# Of what nobody measured in a band without measurements. The folds hardly have such jobs, so this is an assumption:
# a kind of workload that no one ran gets a band of about x/2.5, not that of its measured cousins.
LEAST_OPEN_WEIGHT = 0.3
STRANGERS = 4  # one in so many users of an unmeasured prediction
LEAST_FAMILIES = 25  # for a class or a kind to have a conformal factor of its own
LEVEL = 0.90
Say = Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """What a fit of everything found."""

    beliefs: Beliefs
    folds: Folds
    packed: dict[str, Any]


def fit_everything(
    resolved: Resolved,
    *,
    schemes: Sequence[str] = tuple(SCHEMES),
    meta: Mapping[str, Any] | None = None,
    say: Say = lambda text: None,
) -> Fitted:
    """Population and folds, then what is tuned on held-out predictions. Deterministic."""
    data = resolved.observations
    ids = [i for i in range(len(data.names)) if data.rows[i].size]
    say(f"population: {len(ids)} families, {data.target.size} points")
    full = fit_population(data, ids, iterations=FULL_ITERATIONS)
    keys: dict[str, dict[str, int]] = {}
    fits: dict[str, list[Fit]] = {}
    for scheme in schemes:
        names = [row.text[scheme] for row in resolved.families]
        assigned = assign(names, SCHEMES[scheme])
        keys[scheme] = {name: int(fold) for name, fold in zip(names, assigned, strict=True)}
        fits[scheme] = []
        for fold in range(SCHEMES[scheme]):
            say(f"without {scheme} fold {fold + 1} of {SCHEMES[scheme]}")
            kept = [i for i in ids if assigned[i] != fold]
            fits[scheme].append(fit_population(data, kept, previous=full, iterations=FOLD_ITERATIONS))
    packed = pack(full, keys, fits)
    folds = unpack(packed)
    population = to_beliefs(full, data, ids, meta=meta)
    return Fitted(finish(resolved, folds, population, say), folds, packed)


def finish(resolved: Resolved, folds: Folds, beliefs: Beliefs, say: Say = lambda text: None) -> Beliefs:
    """What is chosen last, on held-out errors: the scatter between jobs, bands, the odds at which a knee is declared."""
    say("scatter between jobs, by held-out prediction")
    spread = spread_between_jobs(resolved, folds, beliefs, say)
    say("bands")
    banded = replace(spread, bands=band_weights(resolved, folds, spread))
    conformed = replace(banded, conformal=conformal(resolved, folds, banded))
    say("knees")
    odds = knee_odds(resolved, folds, conformed)
    return replace(conformed, meta={**conformed.meta, "knee": odds})


def spread_between_jobs(
    resolved: Resolved, folds: Folds, beliefs: Beliefs, say: Say = lambda text: None
) -> Beliefs:
    """Scatter, noise and trust in laws by held-out prediction; what tuning on the scored families gains is kept as well.

    `meta.tuning` has median, mean and 90th percentile of the error by mode, with everything tuned on all groups
    (`same`, as shipped) and on the other folds alone (`nested`): the difference is what the reported figures owe to it.
    """
    bench = Bench(held_out_tasks(resolved, folds, beliefs))
    point = bench.tune()
    found = tuned(point)
    say("the same, tuned without each fold")
    names = [row.text["group"] for row in resolved.families]
    fold_of = {family: folds.keys["group"][name] for family, name in enumerate(names)}
    tuning = {
        "same": bench.figures(bench.errors(point)),
        "nested": bench.figures(bench.nested(fold_of)),
    }
    laws = {name: round(value, 4) for name, value in asdict(found.trust).items()}
    meta = {**beliefs.meta, "laws": laws, "tuning": tuning}
    return replace(beliefs, scatter=found.scatter, noise=found.noise, meta=meta)


def held_out(resolved: Resolved, folds: Folds, beliefs: Beliefs, scheme: str) -> Callable[[int], Beliefs]:
    """Beliefs fitted without the fold that a family's key fell into."""
    table = [folds.beliefs(beliefs, scheme, fold) for fold in range(SCHEMES[scheme])]
    names = [row.text[scheme] for row in resolved.families]
    return lambda family: table[folds.keys[scheme][names[family]]]


@dataclass(frozen=True)
class Linear:
    """All points linearised at beliefs that have not seen their group."""

    effects: Array  # (n_effects, points)
    residual: Array  # measured minus the population's centre, log
    left_open: dict[int, Array]  # family -> variance of the coefficients that the population leaves open


def linear(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> Linear:
    """Slopes and residuals of every point under its held-out population."""
    data = resolved.observations
    known = held_out(resolved, folds, beliefs, "group")
    ids = [i for i in range(len(data.names)) if data.rows[i].size]
    logs = np.concatenate([population_logs(known(i), data, [i]) for i in ids], axis=1)
    rows = np.concatenate([data.rows[i] for i in ids])
    owner = np.repeat(np.arange(len(ids)), [data.rows[i].size for i in ids])
    value, jacobian = linearise(lambda at: data.model(at, rows), logs[:, owner])
    effects = np.empty((jacobian.shape[0] + data.slopes.shape[0], data.target.size))
    residual = np.empty(data.target.size)
    effects[:, rows] = np.vstack([jacobian, data.slopes[:, rows]])
    residual[rows] = data.target[rows] - value
    left_open = {i: np.square(known(i).belief(data.features[i]).spread) for i in ids}
    return Linear(effects, residual, left_open)


def held_out_tasks(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> list[Task]:
    """Every family in both calibrated modes, linearised at beliefs that have not seen its group."""
    data = resolved.observations
    at = linear(resolved, folds, beliefs)
    tasks = []
    for mode in ("one_node", "two_point"):
        for i, left_open in at.left_open.items():
            found = split(data, i, mode)
            if isinstance(found, Split):
                tasks.append(_task(data, mode, found, at.effects, at.residual, left_open))
    return tasks


def _task(
    data: Observations, mode: str, item: Split, effects: Array, residual: Array, left_open: Array
) -> Task:
    seen, target = item.calibration, item.target
    tau = accelerator_time(data, seen, data.target[seen])
    laws = laws_at(data.at.k[seen], tau, data.machine.node[target], data.at.k[target], LawTrust())
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
    )


def band_weights(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> dict[str, list[float]]:
    """Weights of the signs by mode, on held-out errors.

    Without measurements they make the likeliest Student-t spread; with some, the best mean logarithm of the interval
    score, half-width + excess / 0.1 (Gneiting & Raftery 2007, JASA 102, 359): a narrow band where errors are small is
    worth as much as a wide one where they are large.
    """
    from scipy.optimize import minimize

    data = resolved.observations
    known = held_out(resolved, folds, beliefs, "group")
    ids = [i for i in range(len(data.names)) if data.rows[i].size]
    found: dict[str, list[float]] = {}
    for mode in MODES:
        scored = score_mode(data, mode, ids, known)
        error, weights = scored.error(data), family_weights(data.family[scored.rows])
        chosen = list(range(3)) if mode == "datasheet" else list(range(1, len(SIGNS)))

        def loss(
            logs: Array,
            mode: str = mode,
            signs: Array = scored.signs[chosen],
            error: Array = error,
            weights: Array = weights,
        ) -> float:
            sd = band_spread(signs, np.exp(logs))
            if mode == "datasheet":
                each = np.log(sd) + 0.5 * (BAND_FREEDOM + 1.0) * np.log1p(
                    np.square(error / sd) / BAND_FREEDOM
                )
            else:
                each = np.log(sd + np.maximum(np.abs(error) - sd, 0.0) / (1.0 - LEVEL))
            return float(weights @ each / weights.sum())

        start = np.log(np.array([0.05, 0.3, 0.3]) if mode == "datasheet" else np.full(len(chosen), 0.3))
        best = minimize(
            loss,
            start,
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-3, "fatol": 1e-6, "adaptive": True},
        )
        values = np.zeros(3 if mode == "datasheet" else len(SIGNS))
        values[chosen] = np.exp(np.clip(best.x, -12.0, 3.0))
        found[mode] = [round(float(v), 5) for v in values]
        if mode == "datasheet":
            found[mode][-1] = max(found[mode][-1], LEAST_OPEN_WEIGHT)
    return found


def conformal(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> dict[str, dict[str, float]]:
    """Factor on the spread at which 90 % of held-out points lie inside the band, by mode and class of workload.

    Without measurements one user in four is taken to be a stranger (a source that the fit has not seen), the others
    neighbours (another run of a known stack): both kinds of held-out error count, where the folds have both.
    """
    data = resolved.observations
    ids = [i for i in range(len(data.names)) if data.rows[i].size]
    found: dict[str, dict[str, float]] = {}
    for mode in MODES:
        mixed = mode == "datasheet" and "source" in folds.values
        times = {"group": STRANGERS - 1, "source": 1} if mixed else {"group": 1}
        scores = [
            scored
            for scheme, count in times.items()
            for scored in [score_mode(data, mode, ids, held_out(resolved, folds, beliefs, scheme))] * count
        ]
        error = np.concatenate([scored.error(data) for scored in scores])
        spread = np.concatenate([scored.spread for scored in scores])
        family = np.concatenate([data.family[scored.rows] for scored in scores])
        found[mode] = _factors(data, error, spread, family)
    return found | {"ratio": ratio_factors(resolved, folds, beliefs)}


def _factors(data: Observations, error: Array, spread: Array, family: NDArray[np.intp]) -> dict[str, float]:
    """Conformal factors of all points, of every class of workload and of every kind with enough families."""
    table = {"all": round(conformal_factor(error, spread, family), 3)}
    kinds = np.array([data.kinds[int(f)] for f in family])
    classes = np.array([workload_class(str(kind)) for kind in kinds])
    for labels in (classes, kinds):
        for name in sorted(set(labels.tolist())):
            inside = labels == name
            if np.unique(family[inside]).size >= LEAST_FAMILIES:
                table[name] = round(conformal_factor(error[inside], spread[inside], family[inside]), 3)
    return table


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
    return _factors(resolved.observations, error, spread, families)


def knee_odds(resolved: Resolved, folds: Folds, beliefs: Beliefs) -> dict[str, float]:
    """Odds at which a knee is declared, by what is measured of a job (`ratio`: nothing), chosen on held-out families."""
    data = resolved.observations
    known = held_out(resolved, folds, beliefs, "group")
    ids = [i for i in range(len(data.names)) if data.rows[i].size]
    found = {mode: choose_odds(bends(data, score_mode(data, mode, ids, known))) for mode in MODES[1:]}
    unmeasured = []
    for one in ratios(resolved, folds, beliefs):
        if not one.rows.size:
            continue
        tau = accelerator_time(data, one.rows, data.target[one.rows])
        base = accelerator_time(data, np.array([one.base]), data.target[[one.base]])[0]
        half = beliefs.factor("ratio", data.kinds[one.family]) * one.spread
        efficiency = base / tau
        unmeasured.append(
            Bend(one.family, data.at.k[one.rows], efficiency, efficiency * np.exp(-one.error), half)
        )
    return found | {"ratio": choose_odds(unmeasured)}
