"""Measured serving runs predicted, with bands: by the shipped beliefs, or by beliefs that have not seen them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.serving import CLOSED, OPEN
from perfmodel.physics.serving_tail import serving_latency
from perfmodel.serving.beliefs import ServingBelief, ServingBeliefs
from perfmodel.validate.serving_fit import (
    FITTED,
    Design,
    Fit,
    Key,
    beliefs_of,
    design,
    fit,
    log_answers,
    slopes,
    thinned,
)
from perfmodel.validate.serving_rows import TARGETS, ServingRuns

Array = NDArray[np.float64]

FOLD_SCHEMA: Final = "perfmodel/serving-folds/1"
#: Folds of a scheme; publishers are folds of their own.
FOLDS: Final = {"group": 8, "accelerator": 8}
SCHEMES: Final = ("group", "source", "accelerator")
_ROUNDS: Final = 4  # of a fit that starts where that of all rows ended
_STEEPEST: Final = 4.0  # of a slope: nearer to saturation nothing is linear
_LEVELS: Final = ("engine", "generation", "width", "vendor", "link", "front")


@dataclass(frozen=True)
class Predicted:
    """Logarithms by target, one entry a run; nan where nothing steady is predicted."""

    log: Mapping[str, Array]
    spread: Mapping[str, Array]  # that the doubt of the coefficients causes
    saturated: NDArray[np.bool_]
    fits: NDArray[np.bool_]

    @staticmethod
    def blank(count: int) -> Predicted:
        """Of so many runs, to be filled."""
        return Predicted(
            {name: np.full(count, np.nan) for name in TARGETS},
            {name: np.full(count, np.nan) for name in TARGETS},
            np.zeros(count, dtype=bool),
            np.zeros(count, dtype=bool),
        )

    def put(self, at: NDArray[np.bool_], found: Predicted) -> None:
        """Fill in some of the runs."""
        for name in TARGETS:
            self.log[name][at] = found.log[name]
            self.spread[name][at] = found.spread[name]
        self.saturated[at] = found.saturated
        self.fits[at] = found.fits


def features_of(runs: ServingRuns) -> list[dict[str, str]]:
    """Values of the levels of every run."""
    return [{name: str(runs.features[name][i]) for name in _LEVELS} for i in range(len(runs))]


def predict(runs: ServingRuns, beliefs: ServingBeliefs) -> Predicted:
    """All answers of all runs, with what the doubt of the coefficients makes of each."""
    if not len(runs):
        return Predicted.blank(0)
    belief = _alike(runs, beliefs)
    answers, found = log_answers(runs, belief.median)
    slope = np.clip(slopes(runs, belief.median, answers), -_STEEPEST, _STEEPEST)
    spread = np.sqrt(((slope * belief.spread[:, None, :]) ** 2).sum(axis=0))
    log = dict(zip(FITTED, answers, strict=True))
    wide = dict(zip(FITTED, spread, strict=True))
    kind = np.asarray(runs.load.kind)
    tails = np.isfinite(runs.measured["ttft_p99"]) | np.isfinite(runs.measured["tpot_p99"])
    rows = np.flatnonzero(((kind == OPEN) | (tails & (kind == CLOSED))) & found.fits)
    for name in ("ttft_p99", "tpot_p99"):
        log[name], wide[name] = np.full(len(runs), np.nan), wide[name.removesuffix("_p99")]
    if rows.size:
        some = runs.take(rows)
        coefficients = type(belief.coefficients)(
            **{f.name: getattr(belief.coefficients, f.name)[rows] for f in fields(type(belief.coefficients))}
        )
        queue = serving_latency(some.shape, some.machine, some.deployment, some.load, coefficients)
        is_open = np.asarray(some.load.kind) == OPEN
        with np.errstate(divide="ignore", invalid="ignore"):
            for name, times in (("ttft", queue.ttft_s), ("tpot", queue.tpot_s)):
                excess = np.log(times["p99"] / times["mean"]) * beliefs.tails.get(name, 1.0)
                mean = np.log(times["mean"])
                log[f"{name}_p99"][rows] = mean + excess
                steady = is_open & np.isfinite(mean)
                log[name][rows[steady]] = mean[steady]
    return Predicted(log, wide, np.asarray(found.is_saturated), np.asarray(found.fits))


def _alike(runs: ServingRuns, beliefs: ServingBeliefs) -> ServingBelief:
    """The belief about every run; runs alike are asked about once."""
    features = features_of(runs)
    keys = [tuple(one.values()) for one in features]
    first = {key: i for i, key in enumerate(keys)}
    names = list(first)
    found = beliefs.beliefs([features[first[key]] for key in names])
    at = {key: i for i, key in enumerate(names)}
    index = np.array([at[key] for key in keys])
    return ServingBelief(found.median[:, index], found.spread[:, index], found.measured)


@dataclass(frozen=True)
class LeftOut:
    """Fits without each fold of a scheme, by the name of the fold."""

    folds: NDArray[np.str_]  # of every run
    beliefs: Mapping[str, ServingBeliefs]


class Fitted:
    """The fit of all runs, and those without parts of them."""

    def __init__(self, runs: ServingRuns) -> None:
        self.runs = runs
        self.thin = thinned(runs)
        self.design: Design = design(self.thin)
        self.all = fit(self.thin, given=self.design)
        self.publishers = np.unique(self.thin.features["publisher"])
        self.without = {name: self._fit(self._rows("publisher", name)) for name in self.publishers}

    def _rows(self, feature: str, name: str) -> NDArray[np.bool_]:
        return np.asarray(self.thin.features[feature] != name)

    def _fit(self, use: NDArray[np.bool_]) -> Fit:
        return fit(self.thin, use, self.all.theta, given=self.design, rounds=_ROUNDS)

    def _believed(self, found: Fit, use: NDArray[np.bool_]) -> ServingBeliefs:
        present = np.unique(self.thin.features["publisher"][use]).tolist()
        return beliefs_of(found, self.thin, use, [self.without[name].theta for name in present])

    def beliefs(self) -> ServingBeliefs:
        """Of all runs."""
        return self._believed(self.all, np.ones(len(self.thin), dtype=bool))

    def left_out(self, scheme: str) -> LeftOut:
        """Beliefs without each fold: `group` is a model on an accelerator, `source` a publisher."""
        of_run, thin = fold_names(self.runs, scheme), fold_names(self.thin, scheme)
        found = {}
        for name in np.unique(of_run).tolist():
            use = np.asarray(thin != name)
            found[name] = self._believed(self.without[name] if scheme == "source" else self._fit(use), use)
        return LeftOut(of_run, found)


def fold_names(runs: ServingRuns, scheme: str) -> NDArray[np.str_]:
    """The fold of every run; the same name is in the same fold whatever other names there are."""
    if scheme == "source":
        return runs.features["publisher"]
    name = runs.features["accelerator"]
    if scheme == "group":
        name = np.char.add(np.char.add(runs.features["model"], " on "), name)
    spread = [sum(ord(c) * (7 * i + 1) for i, c in enumerate(one)) % FOLDS[scheme] for one in name.tolist()]
    return np.array([f"{one}" for one in spread])


def predict_left_out(runs: ServingRuns, left_out: LeftOut) -> Predicted:
    """Every run by the beliefs that have not seen its fold."""
    found = Predicted.blank(len(runs))
    for fold, beliefs in left_out.beliefs.items():
        at = left_out.folds == fold
        if at.any():
            found.put(at, predict(runs.take(at), beliefs))
    return found


def packed(left_out: Mapping[str, LeftOut]) -> dict[str, object]:
    """Plain data for the file of folds: by scheme and fold, [logarithm, spread, rows] of each shift."""
    return {
        "schema": FOLD_SCHEMA,
        "schemes": {
            scheme: {
                fold: {
                    "shifts": {
                        "|".join(key): [round(value, 4), round(one.spreads[key], 4), one.counts[key]]
                        for key, value in one.values.items()
                    },
                    "level_spreads": {"|".join(k): round(v, 4) for k, v in one.level_spreads.items()},
                }
                for fold, one in found.beliefs.items()
            }
            for scheme, found in left_out.items()
        },
    }


@cache
def _shipped_folds() -> Mapping[str, Any]:
    file = resources.files("perfmodel").joinpath("priors/serving_folds.yaml")
    found: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))["schemes"]
    return found


def shipped_left_out(runs: ServingRuns, scheme: str) -> LeftOut:
    """The fits without each fold that the package ships."""
    found = {}
    for fold, one in _shipped_folds()[scheme].items():
        keys = {text: cast(Key, tuple(text.split("|"))) for text in one["shifts"]}
        pairs = {text: cast(tuple[str, str], tuple(text.split("|"))) for text in one["level_spreads"]}
        found[fold] = ServingBeliefs(
            values={keys[text]: entry[0] for text, entry in one["shifts"].items()},
            spreads={keys[text]: entry[1] for text, entry in one["shifts"].items()},
            counts={keys[text]: entry[2] for text, entry in one["shifts"].items()},
            level_spreads={pairs[text]: spread for text, spread in one["level_spreads"].items()},
        )
    return LeftOut(fold_names(runs, scheme), found)
