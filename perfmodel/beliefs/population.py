"""Beliefs about coefficients: a median and a log-spread for this job, and what each rests on.

The population belief of a coefficient is a sum of shifts on the log scale, from the general to the particular:
all jobs, then vendor generation, accelerator, link, framework and workload kind (`Coefficients` names the levels).
A level value that nobody measured adds what is known of it beforehand (`coefficients.KNOWN`, mostly nothing) to the
median and its whole prior spread to the uncertainty, so new hardware inherits its generation's belief, wider. A
calibration adds what a job's own measurements say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.bands import CELL, NINETY, REACH, SCALED, SLOPES, scale, thinness
from perfmodel.beliefs.extrapolation import band_spread
from perfmodel.beliefs.features import level_value
from perfmodel.physics.coefficients import KNOWN, LEVELS, MEDIANS, NAMES, SPREADS

Array = NDArray[np.float64]

HARDWARE_LEVELS = ("accelerator", "generation*width", "generation", "scale_up", "scale_out")

# Discrepancies that no coefficient explains: each a slope on a feature of the layout (see `features.discrepancy`).
DISCREPANCY_MEANINGS: dict[str, str] = {
    "offset": "all K alike",
    "log2_k": "by doublings of K",
    "crossed": "beyond one node",
    "log2_nodes": "by doublings of nodes",
    "log_batch": "by the batch of an accelerator",
    "log_tp": "by tensor parallelism",
    "log_pp": "by pipeline stages",
    "log_cp": "by context parallelism",
    "log_ep": "by expert parallelism",
    "repeated": "by recomputation",
    "log_micro_batch": "by the micro-batch",
    "log_tokens": "by the length of a sample",
}
DISCREPANCIES: tuple[str, ...] = tuple(DISCREPANCY_MEANINGS)
EFFECTS: tuple[str, ...] = (*NAMES, *DISCREPANCIES)
TEXTBOOK_SCATTER = 0.35  # between jobs, of a coefficient's own spread, before anything is fitted (assumed)

# Classes of workload whose bands are checked apart.
CLASSES: dict[str, str] = {
    "decoder-transformer": "language",
    "hybrid-mamba-transformer": "language",
    "moe-transformer": "mixture-of-experts",
    "encoder-transformer": "other-transformer",
    "encoder-decoder-transformer": "other-transformer",
    "vision-transformer": "other-transformer",
}


def workload_class(kind: str) -> str:
    """The class by which bands are checked."""
    return CLASSES.get(kind, "other")


@dataclass(frozen=True)
class MeasuredPower:
    """What power logs say of one accelerator.

    `scale` multiplies its range from idle to rated power, log-spread `spread`; `idle_w` is its draw at rest [W]
    where a log shows it; `source` names the logs.
    """

    scale: float
    spread: float
    idle_w: float | None
    source: str


@dataclass(frozen=True)
class Calibration:
    """What a job's own measurements add: posterior of its effects, and how it was measured."""

    mean: Array  # (n_effects,)
    covariance: Array  # (n_effects, n_effects)
    mode: str  # which conformal factor applies: one_node or two_point
    points: int
    k: Array  # where step times were measured; empty without timings
    tau: Array  # accelerator-seconds per unit of work there, for the laws of `extrapolation.py`
    notes: tuple[str, ...] = ()
    anchor: Array = field(default_factory=lambda: np.zeros(len(NAMES)))  # see `curve.curve`
    power: MeasuredPower | None = None
    # Of one accelerator at each k; files of older versions have none.
    batch: Array = field(default_factory=lambda: np.zeros(0))
    need: float = 1.0  # of laws beside the step model: `extrapolation.need_of_laws`


@dataclass(frozen=True)
class Belief:
    """The belief about every coefficient for one job."""

    median: Array  # log, (n_coefficients,)
    spread: Array  # log standard deviation, without the scatter between jobs
    basis: dict[str, str]  # measured, inherited or assumed


@dataclass(frozen=True)
class Beliefs:
    """Population beliefs and, perhaps, a calibration."""

    values: Mapping[tuple[str, str, str], float]  # (coefficient, level, value) -> shift
    spreads: Mapping[tuple[str, str, str], float]
    level_spreads: Mapping[tuple[str, str], float]
    counts: Mapping[tuple[str, str, str], int]
    scatter: Array  # variance of each effect between jobs
    noise: float
    conformal: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # mode -> class -> factor
    # mode -> weights of extrapolation.SIGNS
    bands: Mapping[str, Sequence[float]] = field(default_factory=dict)
    scales: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # mode -> shape of `bands.scale`
    groups: Mapping[str, int] = field(default_factory=dict)  # cell of jobs -> independent groups measured
    meta: Mapping[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None
    # the file they were read from: results.fingerprint
    origin: Mapping[str, str] = field(default_factory=dict)

    def belief(self, features: Mapping[str, str]) -> Belief:
        """Sum the shifts that apply to a job with these features."""
        median, variance = np.empty(len(NAMES)), np.empty(len(NAMES))
        basis: dict[str, str] = {}
        of_job = {level: level_value(features, level) for level in _EVERY_LEVEL}
        for index, name in enumerate(NAMES):
            root = (name, "all", "")
            total = self.values[root]
            fitted = self.level_spreads and self.counts.get(root) != 0
            square = 0.0 if fitted else self.spreads[root] ** 2
            known: list[str] = []
            for level in LEVELS[name]:
                key = (name, level, of_job[level])
                if key in self.values:
                    total += self.values[key]
                    known.append(level)
                else:
                    total += KNOWN.get(key, 0.0)
                    square += self.level_spreads.get((name, level), SPREADS[name] * 0.5) ** 2
            # Levels that nobody measured may add up to no more than the textbook's own doubt.
            median[index], variance[index] = total, min(square, SPREADS[name] ** 2)
            basis[name] = _basis(name, known)
        return Belief(median, np.sqrt(variance), basis)

    def factor(self, mode: str, kind: str) -> float:
        """Conformal widening of a band, in units of its own standard deviation."""
        table = self.conformal.get(mode, {})
        return float(table.get(kind, table.get(workload_class(kind), table.get("all", NINETY))))

    def band_weights(self, mode: str) -> Sequence[float]:
        """Weights of what a band is made of; the spread alone where none were fitted."""
        plain = (self.noise, 1.0, 1.0) if mode == "datasheet" else (0.0, 1.0, 0.0, 0.0, 0.0)
        return self.bands.get(mode, plain)

    def band_at(self, mode: str, features: Mapping[str, str], computing: Array, k: Array) -> Array:
        """What scales the band of a job besides its levels, at every point: see `bands.SLOPES`; (n, points)."""
        if not SLOPES[mode]:
            return np.zeros((0, computing.size))
        thin = thinness(self.groups.get(level_value(features, CELL), 0))
        return np.stack([computing, np.full_like(computing, thin), np.log2(k) / REACH])

    def band_spread(
        self, mode: str, features: Mapping[str, str], signs: Array, computing: Array, k: Array
    ) -> Array:
        """Log spread of such a job's predictions from their `signs` (n_signs, points), equation (1) of `bands`.

        `computing` has the share of each step in which the accelerator computes. Older files scale nothing.
        """
        at = self.band_at(mode, features, computing, k)
        scaled = signs.copy()
        scaled[: SCALED.get(mode)] *= scale(self.scales.get(mode, {}), features, SLOPES[mode], at)
        return band_spread(scaled, self.band_weights(mode))

    def knee_odds(self, mode: str) -> float:
        """Probability of a low efficiency above which a knee is declared; even odds where none was chosen."""
        return float(self.meta.get("knee", {}).get(mode, 0.5))

    def calibrated(self, calibration: Calibration) -> Beliefs:
        """The same beliefs with a calibration."""
        return replace(self, calibration=calibration)


_EVERY_LEVEL = tuple(dict.fromkeys(level for levels in LEVELS.values() for level in levels))
_FINEST = {
    name: next((level for level in HARDWARE_LEVELS if level in levels), None)
    for name, levels in LEVELS.items()
}


def _basis(name: str, known: list[str]) -> str:
    """Whether the finest hardware level was measured, a coarser one was, or none."""
    finest = _FINEST[name]
    if finest is None:
        return "measured" if known else "assumed"
    if finest in known:
        return "measured"
    return "inherited" if known else "assumed"


def textbook_beliefs() -> Beliefs:
    """Starting medians and spreads, nothing fitted."""
    return Beliefs(
        values={(name, "all", ""): float(np.log(MEDIANS[name])) for name in NAMES},
        spreads={(name, "all", ""): SPREADS[name] for name in NAMES},
        level_spreads={},
        counts={},
        scatter=np.concatenate(
            [[(TEXTBOOK_SCATTER * SPREADS[name]) ** 2 for name in NAMES], np.zeros(len(DISCREPANCIES))]
        ),
        noise=0.03,
    )


def to_mapping(beliefs: Beliefs) -> dict[str, object]:
    """Plain data for a priors or beliefs file."""
    shifts: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (name, level, value), median in beliefs.values.items():
        entry = [
            round(median, 5),
            round(beliefs.spreads[(name, level, value)], 5),
            beliefs.counts.get((name, level, value), 0),
        ]
        shifts.setdefault(name, {}).setdefault(level, {})[value] = entry
    data: dict[str, object] = {
        "schema": "perfmodel/beliefs/1",
        "meta": dict(beliefs.meta),
        "noise": round(beliefs.noise, 6),
        "scatter": {
            name: round(float(np.sqrt(v)), 6) for name, v in zip(EFFECTS, beliefs.scatter, strict=True)
        },
        "conformal": {mode: dict(table) for mode, table in beliefs.conformal.items()},
        "bands": {mode: list(weights) for mode, weights in beliefs.bands.items()},
        "scales": {mode: dict(shape) for mode, shape in beliefs.scales.items()},
        "groups": dict(beliefs.groups),
        "level_spreads": {
            f"{name}|{level}": round(v, 5) for (name, level), v in beliefs.level_spreads.items()
        },
        "shifts": shifts,
    }
    if beliefs.calibration is not None:
        c = beliefs.calibration
        data["calibration"] = {
            "mode": c.mode,
            "points": c.points,
            "k": c.k.tolist(),
            "tau": c.tau.tolist(),
            "batch": c.batch.tolist(),
            "need": round(c.need, 6),
            "notes": list(c.notes),
            "mean": {name: round(float(v), 8) for name, v in zip(EFFECTS, c.mean, strict=True)},
            "covariance": [[round(float(v), 10) for v in row] for row in c.covariance],
            "anchor": {name: round(float(v), 8) for name, v in zip(NAMES, c.anchor, strict=True) if v != 0.0},
            "power": None if c.power is None else vars(c.power),
        }
    return data


def from_mapping(data: Mapping[str, Any]) -> Beliefs:
    """The inverse of `to_mapping`. Raises KeyError, ValueError or TypeError on a malformed mapping."""
    values: dict[tuple[str, str, str], float] = {}
    spreads: dict[tuple[str, str, str], float] = {}
    counts: dict[tuple[str, str, str], int] = {}
    for name, levels in data["shifts"].items():
        for level, entries in levels.items():
            for value, (median, spread, count) in entries.items():
                values[(name, level, value)] = float(median)
                spreads[(name, level, value)] = float(spread)
                counts[(name, level, value)] = int(count)
    # A coefficient that is newer than the fit has its textbook value; a calibration cannot leave one out.
    newer = [name for name in NAMES if (name, "all", "") not in values]
    if newer and "calibration" in data:
        raise ValueError(f"no belief about {', '.join(newer)}")
    for name in newer:
        key = (name, "all", "")
        values[key], spreads[key], counts[key] = float(np.log(MEDIANS[name])), SPREADS[name], 0
    calibration = None
    if "calibration" in data:
        c = data["calibration"]
        calibration = Calibration(
            mean=np.array([float(c["mean"][name]) for name in EFFECTS]),
            covariance=np.array(c["covariance"], dtype=float),
            mode=str(c["mode"]),
            points=int(c["points"]),
            k=np.array(c["k"], dtype=float),
            tau=np.array(c["tau"], dtype=float),
            batch=np.array(c.get("batch", []), dtype=float),
            need=float(c.get("need", 1.0)),
            notes=tuple(str(note) for note in c.get("notes", ())),
            anchor=np.array([float(c.get("anchor", {}).get(name, 0.0)) for name in NAMES]),
            power=_power(c.get("power")),
        )
        if calibration.covariance.shape != (len(EFFECTS), len(EFFECTS)):
            raise ValueError("the covariance of the calibration has the wrong shape")
    level_spreads = {}
    for key, value in data["level_spreads"].items():
        name, level = key.split("|")
        level_spreads[(name, level)] = float(value)
    widths = {name: TEXTBOOK_SCATTER * SPREADS[name] for name in newer} | dict(data["scatter"])
    scatter, noise = [float(widths[name]) for name in EFFECTS], float(data["noise"])
    calibrated = (
        []
        if calibration is None
        else [*calibration.mean, *calibration.covariance.ravel(), *calibration.anchor]
    )
    if not np.isfinite([*values.values(), *calibrated]).all():
        raise ValueError("a belief is not a finite number")
    all_widths = np.array([*spreads.values(), *level_spreads.values(), *scatter, noise])
    if not (np.isfinite(all_widths) & (all_widths >= 0)).all():
        raise ValueError("a spread is negative or not a finite number")
    return Beliefs(
        values=values,
        spreads=spreads,
        level_spreads=level_spreads,
        counts=counts,
        scatter=np.square(scatter),
        noise=noise,
        conformal=data.get("conformal", {}),
        bands=data.get("bands", {}),
        scales=data.get("scales", {}),
        groups=data.get("groups", {}),
        meta=data.get("meta", {}),
        calibration=calibration,
    )


def _power(data: Mapping[str, Any] | None) -> MeasuredPower | None:
    if data is None:
        return None
    idle = data["idle_w"]
    found = MeasuredPower(
        float(data["scale"]),
        float(data["spread"]),
        None if idle is None else float(idle),
        str(data["source"]),
    )
    if not (0.0 < found.scale < 100.0 and 0.0 <= (found.idle_w or 0.0) < 1e5):
        raise ValueError("the measured power is not that of an accelerator")
    return found


@lru_cache(maxsize=1)
def shipped_beliefs() -> Beliefs:
    """The priors fitted on the measured corpus. The file is JSON, which is YAML too, and reads a thousand times quicker."""
    text = resources.files("perfmodel").joinpath("priors/step.yaml").read_text(encoding="utf-8")
    return from_mapping(json.loads(text))
