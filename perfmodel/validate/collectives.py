"""Measured collective sweeps against the fitted form: a sweep left out, a fabric left out, and after two points.

Errors are |predicted / measured - 1| over messages of 8 KiB and more, every point weighing the same. On the shipped
corpus every point is predicted by coefficients that did not see its sweep (its accelerator and fabric); they were fitted
by `validation/fit_collectives.py` and are shipped as folds. On another folder the shipped coefficients are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.collective_form import Points, points
from perfmodel.calibrate.collectives import (
    INDEPENDENT,
    Fit,
    Name,
    coefficients_of,
    design,
    fit,
    log_time,
    shipped,
    through_two_points,
)
from perfmodel.calibrate.sweep_fit import LEAST_BYTES
from perfmodel.physics.constants import KNEE
from perfmodel.specs.catalog import Catalog

Array = NDArray[np.float64]
Row = Mapping[str, str]

SCHEMES: Final = ("sweep", "fabric")
KNEES: Final = tuple(float(p) for p in np.linspace(0.4, 1.1, 36))
POOLED: Final = 2.0  # weight of all other sweeps, in sweeps, when choosing p for a kind of link and operation


@dataclass(frozen=True)
class Sweeps:
    """Rows of 8 KiB and more, with the keys by which they are left out."""

    at: Points
    measured_log: Array
    keys: Mapping[str, NDArray[np.str_]]  # scheme -> key of every point


def read(rows: Sequence[Row], catalog: Catalog) -> Sweeps:
    """Parse and resolve rows; smaller messages and non-positive times are left aside."""
    kept = [r for r in rows if float(r["bytes"]) >= LEAST_BYTES and float(r["time_s"]) > 0]
    return Sweeps(
        points(kept, catalog),
        np.log(np.array([float(r["time_s"]) for r in kept])),
        {
            "sweep": np.array([r["sweep"] for r in kept], dtype=np.str_),
            "fabric": np.array([_fabric(r) for r in kept], dtype=np.str_),
        },
    )


def _fabric(row: Row) -> str:
    return " ".join(row.get(name) or "unknown" for name in ("accelerator", "scale_up", "scale_out"))


def fit_all(data: Sweeps) -> Fit:
    """Coefficients from every point."""
    return _fit(data, coefficients_of(data.at), np.arange(data.measured_log.size))


def fit_without(data: Sweeps, full: Fit, scheme: str, key: str) -> Array:
    """Coefficients fitted without the points of a key, in the order of `full.names`."""
    return _fit(data, full.names, np.flatnonzero(data.keys[scheme] != key)).values


def _fit(data: Sweeps, names: tuple[Name, ...], rows: NDArray[np.intp]) -> Fit:
    return fit(
        data.at.take(rows),
        data.measured_log[rows],
        design(data.at, names).take(rows),
        np.full(rows.size, INDEPENDENT),
        sweeps=data.keys["sweep"][rows],
    )


def fit_folds(data: Sweeps, full: Fit) -> dict[str, dict[str, list[float]]]:
    """For each scheme and key, coefficients fitted without the points of that key."""
    return {
        scheme: {
            key: [round(float(v), 3) for v in fit_without(data, full, scheme, key)]
            for key in sorted(set(data.keys[scheme].tolist()))
        }
        for scheme in SCHEMES
    }


@lru_cache(maxsize=1)
def shipped_folds() -> dict[str, dict[str, list[float]]]:
    """Coefficients of every fold, in the order of the shipped names."""
    text = resources.files("perfmodel").joinpath("priors/collective_folds.yaml").read_text(encoding="utf-8")
    return dict(json.loads(text)["folds"])


def held_out_log_errors(data: Sweeps, scheme: str, full: Fit, folds: Mapping[str, Sequence[float]]) -> Array:
    """ln(predicted / measured) of every point by the fold that did not see it, or by `full` where none exists."""
    how = design(data.at, full.names)
    found = np.empty_like(data.measured_log)
    for key in set(data.keys[scheme].tolist()):
        rows = np.flatnonzero(data.keys[scheme] == key)
        used = replace(full, values=np.array(folds[key], float)) if key in folds else full
        found[rows] = log_time(data.at.take(rows), how.take(rows), used.values)
    return found - data.measured_log


def two_point_log_errors(data: Sweeps) -> Array:
    """ln(predicted / measured) between the smallest and the largest size of each sweep, from these two points.

    The order p of the curve is the one that served the other sweeps of that kind of link, operation, tier and style best.
    """
    curves = _two_point_curves(data)
    losses = {key: np.abs(errors).mean(axis=1) for key, (_, errors) in curves.items()}
    total = np.sum(list(losses.values()), axis=0) if losses else np.zeros(len(KNEES))
    kept: list[Array] = []
    for key, (kind, errors) in curves.items():
        loss = (total - losses[key]) / len(losses) * POOLED
        for other, (other_kind, _) in curves.items():
            if other != key and other_kind == kind:
                loss = loss + losses[other]
        best = int(np.argmin(loss)) if len(losses) > 1 else int(np.argmin(np.abs(np.array(KNEES) - KNEE)))
        kept.append(errors[best])
    return np.concatenate(kept) if kept else np.zeros(0)


def _two_point_curves(data: Sweeps) -> dict[tuple[str, float], tuple[str, Array]]:
    """Errors of every order p on the inner points of each sweep and group size, and the sweep's kind."""
    size = data.at.message_bytes
    found: dict[tuple[str, float], tuple[str, Array]] = {}
    for key in sorted(set(zip(data.keys["sweep"].tolist(), data.at.ranks.tolist(), strict=True))):
        rows = np.flatnonzero((data.keys["sweep"] == key[0]) & (data.at.ranks == key[1]))
        rows = rows[np.argsort(size[rows], kind="stable")]
        first, last = rows[0], rows[-1]
        inner = rows[(size[rows] > size[first]) & (size[rows] < size[last])]
        if not inner.size:
            continue
        ends = (float(size[first]), float(size[last]))
        times = (float(np.exp(data.measured_log[first])), float(np.exp(data.measured_log[last])))
        errors = []
        for p in KNEES:
            alpha, slope = through_two_points(ends, times, p)
            predicted = np.log(alpha**p + (slope * size[inner]) ** p) / p
            errors.append(predicted - data.measured_log[inner])
        kind = "+".join(str(data.at.keys[name][first]) for name in ("up_kind", "op", "tier", "style"))
        found[key] = (kind, np.array(errors))
    return found


def figures(log_error: Array) -> dict[str, object]:
    """Points, and median, mean and 90th percentile of the absolute error.

    >>> round(figures(np.log(np.array([1.1, 0.9, 1.0])))["median_ape"], 3)
    0.1
    """
    if not log_error.size:
        return {"points": 0, "median_ape": None, "mean_ape": None, "p90_ape": None}
    ape = np.abs(np.expm1(log_error))
    return {
        "points": int(ape.size),
        "median_ape": np.median(ape).item(),
        "mean_ape": float(ape.mean()),
        "p90_ape": np.quantile(ape, 0.9).item(),
    }


def validate_collectives(rows: Sequence[Row], catalog: Catalog, *, is_shipped: bool) -> dict[str, object]:
    """Figures of a collectives table, overall (a sweep left out) and by scheme."""
    data = read(rows, catalog)
    if not data.measured_log.size:
        return {**figures(np.zeros(0)), "schemes": {}}
    folds: Mapping[str, Mapping[str, Sequence[float]]] = shipped_folds() if is_shipped else {}
    schemes: dict[str, dict[str, object]] = {}
    for scheme in SCHEMES:
        if is_shipped or scheme == SCHEMES[0]:
            errors = held_out_log_errors(data, scheme, shipped(), folds.get(scheme, {}))
            schemes[scheme if is_shipped else "shipped"] = figures(errors)
    overall = next(iter(schemes.values()))
    schemes["two_points"] = figures(two_point_log_errors(data))
    return {**overall, "schemes": schemes}
