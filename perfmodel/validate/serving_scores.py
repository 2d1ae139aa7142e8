"""Figures of merit of serving: errors, coverage and width of the bands, curves that one or two points calibrate, knees.

Rows weigh the same in the figures of a target; under `by_source_weight` every source does, however long its table.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.weighted import weighted_quantile
from perfmodel.physics.serving import CLOSED, OPEN, STATIC
from perfmodel.serving.beliefs import ServingBeliefs
from perfmodel.validate.serving_predicted import Predicted
from perfmodel.validate.serving_rows import TARGETS, ServingRuns

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

COVER: Final = 0.90
_NOISES: Final = np.geomspace(0.02, 0.6, 18)
_LEAST_LOADS: Final = 4  # of a curve that is calibrated
_BY: Final = ("source", "engine", "accelerator", "kind")
_FACTOR: Final = 1.5
_LEAST_ROWS: Final = 10  # of a source that is a sample
_LEAST_EXCESS: Final = 0.05
_TAIL_RANGE: Final = (0.25, 4.0)
_ALIKE: Final = (
    "precision",
    "kv_precision",
    "engine_version",
    "ep",
    "dp",
    "pp",
    "tp",
    "n_accel",
    "isl",
    "osl",
    "date",
    "note",
)


def log_errors(runs: ServingRuns, found: Predicted, target: str) -> Array:
    """ln(predicted / measured); nan where either is missing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(found.log[target] - np.log(runs.measured[target]))


def source_weights(source: NDArray[np.str_]) -> Array:
    """Weights with which every source weighs the same.

    >>> source_weights(np.array(["a", "a", "b"])).tolist()
    [0.5, 0.5, 1.0]
    """
    _, index, counts = np.unique(source, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[index])


def learnt_tails(runs: ServingRuns, found: Predicted) -> dict[str, float]:
    """By how much the measured excess of the 99th percentile over the mean is larger than the computed one.

    In logarithms, the median over the runs below saturation; every source weighs the same.
    """
    tails = {}
    for name in ("ttft", "tpot"):
        with np.errstate(divide="ignore", invalid="ignore"):
            measured = np.log(runs.measured[f"{name}_p99"] / runs.measured[name])
            computed = found.log[f"{name}_p99"] - found.log[name]
            ratio = measured / computed
        told = np.isfinite(ratio) & (computed > _LEAST_EXCESS) & ~found.saturated
        if told.sum() >= _LEAST_ROWS:
            weight = learning_weights(runs.features["source"][told])
            middle = weighted_quantile(ratio[told], weight, 0.5)
            tails[name] = round(float(np.clip(middle, *_TAIL_RANGE)), 4)
    return tails


def learning_weights(source: NDArray[np.str_]) -> Array:
    """Weights with which every source weighs the same, but one of few rows by their number: it is no sample yet."""
    _, index, counts = np.unique(source, return_inverse=True, return_counts=True)
    return np.asarray((np.minimum(counts / _LEAST_ROWS, 1.0) / counts)[index])


def learnt_bands(runs: ServingRuns, found: Predicted) -> dict[str, dict[str, float]]:
    """Noise and factor of each target's band, from errors of whole sources left out, which weigh the same.

    Of the widths ``f sqrt(n^2 + spread^2)`` that hold 90 % of them, the one that is narrowest on average, in logarithms.
    """
    shapes: dict[str, dict[str, float]] = {}
    for target in TARGETS:
        error, spread = log_errors(runs, found, target), found.spread[target]
        told = np.isfinite(error) & np.isfinite(spread)
        if told.sum() < _LEAST_LOADS:
            continue
        weight = learning_weights(runs.features["source"][told])
        best = np.inf
        for noise in _NOISES:
            scale = np.sqrt(noise**2 + spread[told] ** 2)
            factor = weighted_quantile(np.abs(error[told]) / scale, weight, COVER)
            width = float(weight @ np.log(factor * scale) / weight.sum())
            if width < best - 1e-9:
                best, shapes[target] = width, {"noise": round(float(noise), 4), "factor": round(factor, 4)}
    return shapes


def half_widths(beliefs: ServingBeliefs, found: Predicted, target: str) -> Array:
    """Log half-widths of the 90 % bands of every run."""
    return beliefs.half_width(target, found.spread[target])


def summary(
    error: Array, half: Array, source: NDArray[np.str_], weight: Array | None = None
) -> dict[str, float]:
    """Errors and bands of some rows, which weigh the same unless told otherwise."""
    weight = np.ones(error.size) if weight is None else weight
    relative, inside = np.abs(np.expm1(error)), (np.abs(error) <= half).astype(float)
    return {
        "rows": int(error.size),
        "sources": int(np.unique(source).size),
        "median_ape": weighted_quantile(relative, weight, 0.5),
        "mean_ape": float(weight @ relative / weight.sum()),
        "p90_ape": weighted_quantile(relative, weight, 0.9),
        "bias": float(np.expm1(weighted_quantile(error, weight, 0.5))),
        "coverage_90": float(weight @ inside / weight.sum()),
        "band_width_median": weighted_quantile(np.sinh(half), weight, 0.5),
    }


def figures(runs: ServingRuns, found: Predicted, beliefs: ServingBeliefs) -> dict[str, dict[str, object]]:
    """All figures by target; a target that nobody measured has zero rows."""
    told: dict[str, dict[str, object]] = {}
    for target in TARGETS:
        error = log_errors(runs, found, target)
        rows = np.flatnonzero(np.isfinite(error))
        if not rows.size:
            told[target] = {"rows": 0, "sources": 0}
            continue
        half = half_widths(beliefs, found, target)
        told[target] = _of_rows(runs, error, half, rows)
        if target.startswith("ttft"):
            below, above = rows[~found.saturated[rows]], rows[found.saturated[rows]]
            source = runs.features["source"]
            for name, some in (("below_saturation", below), ("above_saturation", above)):
                if some.size:
                    near = np.abs(error[some]) <= np.log(_FACTOR)
                    told[target][name] = {
                        **summary(error[some], half[some], source[some]),
                        "within_factor_1_5": float(near.mean()),
                    }
        calibrated = calibrated_figures(runs, found, target)
        if calibrated:
            told[target]["calibrated"] = calibrated
    return told


def _of_rows(runs: ServingRuns, error: Array, half: Array, rows: NDArray[np.intp]) -> dict[str, object]:
    source = runs.features["source"][rows]
    by = {}
    for name in _BY:
        keys = runs.features[name][rows]
        by[name] = {
            str(value): summary(error[rows][keys == value], half[rows][keys == value], source[keys == value])
            for value in np.unique(keys)
        }
    return {
        **summary(error[rows], half[rows], source),
        "by_source_weight": summary(error[rows], half[rows], source, source_weights(source)),
        "by": by,
    }


def curves(runs: ServingRuns) -> list[tuple[NDArray[np.intp], Array]]:
    """Runs that differ in their load alone, four loads or more, ascending, with those loads."""
    kind = np.asarray(runs.load.kind)
    load = np.where(kind == OPEN, runs.load.rate_per_s, runs.load.concurrency)
    keys: dict[tuple[str, ...], list[int]] = {}
    for i, row in enumerate(runs.rows):
        if kind[i] in (CLOSED, OPEN, STATIC) and np.isfinite(load[i]):
            alike = tuple(row.text.get(name, "") for name in _ALIKE)
            key = tuple(
                str(runs.features[n][i]) for n in ("source", "model", "accelerator", "engine", "kind")
            )
            keys.setdefault(key + _without_load(alike), []).append(i)
    found = []
    for members in keys.values():
        at = np.array(members)
        values, first = np.unique(load[at], return_index=True)
        if values.size >= _LEAST_LOADS:
            found.append((at[first], values))
    return found


def _without_load(alike: tuple[str, ...]) -> tuple[str, ...]:
    """A note may repeat the load; what stands before its first semicolon names the run."""
    return (*alike[:-1], alike[-1].split(";")[0])


def calibrated_figures(runs: ServingRuns, found: Predicted, target: str) -> dict[str, object]:
    """Errors of the other points of a curve after one in its middle, or its two ends, rescaled the prediction."""
    error = log_errors(runs, found, target)
    left: dict[str, list[Array]] = {"one_point": [], "two_points": [], "none": []}
    count = 0
    for at, load in curves(runs):
        told = np.isfinite(error[at])
        rows, at_load = at[told], np.log(load[told])
        if rows.size < _LEAST_LOADS:
            continue
        count += 1
        middle = rows.size // 2
        others = np.delete(error[rows], middle)
        left["none"].append(error[rows])
        left["one_point"].append(others - error[rows][middle])
        between = error[rows][0] + (error[rows][-1] - error[rows][0]) * (at_load - at_load[0]) / (
            at_load[-1] - at_load[0]
        )
        left["two_points"].append((error[rows] - between)[1:-1])
    if not count:
        return {}
    made: dict[str, object] = {"curves": count}
    for name, parts in left.items():
        relative = np.abs(np.expm1(np.concatenate(parts)))
        even = np.ones(relative.size)
        made[name] = {
            "rows": int(relative.size),
            "median_ape": weighted_quantile(relative, even, 0.5),
            "mean_ape": float(relative.mean()),
            "p90_ape": weighted_quantile(relative, even, 0.9),
        }
    return made


def knee_figures(runs: ServingRuns, found: Predicted) -> dict[str, object]:
    """The load at which the time per token is twice that of the lowest: predicted over measured, of the curves that reach it."""
    ratios = []
    with np.errstate(divide="ignore", invalid="ignore"):
        measured = np.log(runs.measured["tpot"])
    for at, load in curves(runs):
        if np.asarray(runs.load.kind)[at[0]] != CLOSED or not np.isfinite(measured[at]).all():
            continue
        there, here = (_doubled(np.log(load), values[at]) for values in (found.log["tpot"], measured))
        if np.isfinite(here) and np.isfinite(there):
            ratios.append(there - here)
    if not ratios:
        return {"curves": 0}
    apart = np.abs(np.array(ratios))
    return {
        "curves": len(ratios),
        "median_factor": float(np.exp(np.median(apart))),
        "within_factor_1_5": float((apart <= np.log(1.5)).mean()),
        "within_factor_2": float((apart <= np.log(2.0)).mean()),
    }


def _doubled(load: Array, log_time: Array) -> float:
    """Log load at which a curve has doubled; beyond its last load by its last slope, at most fourfold."""
    risen = np.maximum.accumulate(log_time - log_time[0])
    if risen[-1] >= np.log(2.0):
        return float(np.interp(np.log(2.0), risen, load))
    slope = (risen[-1] - risen[-2]) / (load[-1] - load[-2])
    more = (np.log(2.0) - risen[-1]) / max(slope, 1e-6)
    return float(load[-1] + min(more, np.log(4.0)))
