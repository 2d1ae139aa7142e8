"""What a serving prediction has to beat: the roofs of the datasheet, and constant shares of them.

The roofs take every byte at the memory bandwidth and every product at the peak, with no latency anywhere. The constants
are two for each kind of load, the shares of the peak and of the bandwidth that describe the other folds best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.weighted import weighted_quantile
from perfmodel.physics.serving_coefficients import NAMES, ideal
from perfmodel.validate.serving_fit import FITTED, log_answers, measured_logs
from perfmodel.validate.serving_rows import ServingRuns

Array = NDArray[np.float64]

SHARES: Final = (0.1, 0.16, 0.25, 0.35, 0.5, 0.7, 0.9)
_PAIRS: Final = tuple((compute, memory) for compute in SHARES for memory in SHARES)
#: Constants by kind of load, as [share of the peak, share of the bandwidth].
Constants = Mapping[str, tuple[float, float]]


def _logs(runs: ServingRuns, compute: float, memory: float) -> Array:
    values = {name: float(getattr(ideal(), name)) for name in NAMES}
    values |= {"compute": compute, "attention": compute, "weight_read": memory, "cache_read": memory}
    with np.errstate(divide="ignore"):
        column = np.log(np.array([values[name] for name in NAMES]))
    # A coefficient of zero stays zero; of its logarithm any very small number will do.
    return np.repeat(np.maximum(column, -60.0)[:, None], len(runs), axis=1)


def roofs(runs: ServingRuns) -> dict[str, Array]:
    """Logarithms of the answers at the datasheet's rates."""
    return dict(zip(FITTED, log_answers(runs, _logs(runs, 1.0, 1.0))[0], strict=True))


def grid(runs: ServingRuns) -> Array:
    """Logarithms of the answers for every pair of constants, on the first axis."""
    return np.stack([log_answers(runs, _logs(runs, *pair))[0] for pair in _PAIRS])


def best(runs: ServingRuns, table: Array, use: NDArray[np.bool_]) -> Constants:
    """The pair for each kind of load whose mean error on the rows `use` is least; sources weigh the same."""
    error = np.minimum(np.abs(table - measured_logs(runs)), 3.0)
    found: dict[str, tuple[float, float]] = {}
    for kind in np.unique(runs.features["kind"][use]):
        total = np.zeros(len(_PAIRS))
        rows = use & (runs.features["kind"] == kind)
        for source in np.unique(runs.features["source"][rows]):
            some = error[:, :, rows & (runs.features["source"] == source)]
            with np.errstate(invalid="ignore"):
                told = np.isfinite(some)
                total += np.where(told, some, 0.0).sum(axis=(1, 2)) / np.maximum(told.sum(axis=(1, 2)), 1)
        found[str(kind)] = _PAIRS[int(total.argmin())]
    return found


def constants_left_out(runs: ServingRuns, folds: NDArray[np.str_]) -> dict[str, Array]:
    """Logarithms of the answers by the constants of the other folds."""
    table = grid(runs)
    found = np.full(table.shape[1:], np.nan)
    for fold in np.unique(folds):
        chosen = best(runs, table, folds != fold)
        for kind, pair in chosen.items():
            at = (folds == fold) & (runs.features["kind"] == kind)
            found[:, at] = table[_PAIRS.index(pair)][:, at]
    return dict(zip(FITTED, found, strict=True))


def constants(runs: ServingRuns, given: Mapping[str, Any]) -> dict[str, Array]:
    """Logarithms of the answers by constants that other runs gave."""
    found = np.full((len(FITTED), len(runs)), np.nan)
    for kind, pair in given.items():
        at = runs.features["kind"] == kind
        if at.any():
            found[:, at] = log_answers(runs.take(at), _logs(runs.take(at), *pair))[0]
    return dict(zip(FITTED, found, strict=True))


def figures(runs: ServingRuns, answers: Mapping[str, Mapping[str, Array]]) -> dict[str, dict[str, object]]:
    """Errors by target and baseline, on the rows that each can answer."""
    told: dict[str, dict[str, object]] = {}
    measured = dict(zip(FITTED, measured_logs(runs), strict=True))
    for target in FITTED:
        told[target] = {}
        for name, logs in answers.items():
            error = logs[target] - measured[target]
            relative = np.abs(np.expm1(error[np.isfinite(error)]))
            if relative.size:
                even = np.ones(relative.size)
                told[target][name] = {
                    "rows": int(relative.size),
                    "median_ape": weighted_quantile(relative, even, 0.5),
                    "mean_ape": float(relative.mean()),
                    "p90_ape": weighted_quantile(relative, even, 0.9),
                }
    return told
