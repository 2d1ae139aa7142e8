"""Beliefs about the coefficients of serving: a median and a log-spread for a deployment, and the scale of its bands.

`perfmodel/priors/serving.yaml` holds them, in this form (JSON, which is YAML too):

    schema: perfmodel/serving-beliefs/1
    meta: {date: ..., rows: ..., sources: ...}
    shifts:                                   # all logarithms
      layer_s:
        all: {"": [median, spread, rows]}     # of every deployment
        engine: {vllm-v1: [shift, spread, rows], ...}
    level_spreads: {"layer_s|engine": 0.4}    # between values of a level, for one that nobody measured
    bands:                                    # of an answer: log half-width = factor sqrt(noise^2 + spread^2)
      tpot: {noise: 0.15, factor: 1.9}        # throughput, tpot, ttft, ttft_p99, tpot_p99
    tails: {ttft: 1.0, tpot: 1.0}             # measured over computed excess of the 99th percentile over the mean

The belief of a coefficient is the sum of the shifts of its levels. A value of a level that nobody measured adds what is
known of it beforehand (`serving_coefficients.KNOWN`) and the level's whole spread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import HALF, level_value
from perfmodel.physics.serving_coefficients import (
    KNOWN,
    LEVELS,
    MEDIANS,
    NAMES,
    SHIFT_SPREADS,
    SPREADS,
    ServingCoefficients,
    from_logs,
)
from perfmodel.specs.hardware import Accelerator, Link

Array = NDArray[np.float64]

SCHEMA: Final = "perfmodel/serving-beliefs/1"
#: Answers that have a band of their own.
QUANTITIES: Final = ("throughput", "tpot", "ttft", "tpot_p99", "ttft_p99")
NINETY: Final = 1.645  # standard deviations of a normal 90 % interval
#: Doubt of an answer beside that of its coefficients, before anything is fitted (assumed).
TEXTBOOK_NOISE: Final = {"throughput": 0.20, "tpot": 0.20, "ttft": 0.40, "tpot_p99": 0.30, "ttft_p99": 0.55}
_FILE: Final = "priors/serving.yaml"


def serving_features(
    device: Accelerator, precision: str, era: str, scale_up: Link | None, front: str = "http"
) -> dict[str, str]:
    """Values of the levels for one deployment: engine, generation, width of the arithmetic, vendor, kind of link.

    `front` is "http" where clients ask a server, "api" where a program calls the engine itself.

    >>> h100 = Accelerator(name="x", memory=8e10, memory_bandwidth=3e12, peak={"bf16": 1e15}, vendor="NVIDIA", generation="hopper")
    >>> serving_features(h100, "bf16", "vllm-v1", None)["width"]
    '16bit'
    """
    return {
        "engine": era,
        "generation": device.generation or "unknown",
        "width": "16bit" if precision in HALF else precision,
        "vendor": device.vendor or "unknown",
        "link": "pcie" if scale_up is None else scale_up.kind or "unknown",
        "front": front,
    }


@dataclass(frozen=True)
class ServingBelief:
    """Of one deployment, or of many along the last axis."""

    median: Array  # logarithms, a coefficient each on the first axis
    spread: Array
    measured: dict[str, bool]  # whether a coefficient's every level was measured here

    @property
    def coefficients(self) -> ServingCoefficients:
        """The medians."""
        return from_logs(self.median)


@dataclass(frozen=True)
class ServingBeliefs:
    """Population beliefs of serving."""

    values: Mapping[tuple[str, str, str], float]  # (coefficient, level, value) -> logarithm, or shift of it
    spreads: Mapping[tuple[str, str, str], float]
    counts: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    level_spreads: Mapping[tuple[str, str], float] = field(default_factory=dict)
    bands: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tails: Mapping[str, float] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_fitted(self) -> bool:
        """Whether measurements shaped them: else they are the textbook's."""
        return bool(self.meta.get("rows"))

    def belief(self, features: Mapping[str, str]) -> ServingBelief:
        """The belief about every coefficient for a deployment with these features."""
        median, variance = np.empty(len(NAMES)), np.empty(len(NAMES))
        measured: dict[str, bool] = {}
        for index, name in enumerate(NAMES):
            key = (name, "all", "")
            total, square = self.values[key], self.spreads[key] ** 2
            measured[name] = self.counts.get(key, 0) > 0
            for level in LEVELS[name]:
                key = (name, level, level_value(features, level))
                if key in self.values:
                    total += self.values[key]
                    square += self.spreads[key] ** 2
                else:
                    total += KNOWN.get(key, 0.0)
                    square += self.level_spreads.get((name, level), SHIFT_SPREADS[name, level]) ** 2
                    measured[name] = False
            median[index], variance[index] = total, square
        return ServingBelief(median, np.sqrt(variance), measured)

    def beliefs(self, features: Sequence[Mapping[str, str]]) -> ServingBelief:
        """Those of many deployments, one a column."""
        found = [self.belief(one) for one in features]
        return ServingBelief(
            np.stack([one.median for one in found], axis=-1),
            np.stack([one.spread for one in found], axis=-1),
            {name: all(one.measured[name] for one in found) for name in NAMES},
        )

    def half_width(self, quantity: str, spread: Array) -> Array:
        """Log half-width of the 90 % band of an answer whose coefficients make it vary by `spread`."""
        given = self.bands.get(quantity, {})
        noise = given.get("noise", TEXTBOOK_NOISE[quantity])
        return np.asarray(given.get("factor", NINETY) * np.sqrt(noise**2 + spread**2))


def textbook_beliefs() -> ServingBeliefs:
    """Starting medians and spreads; nothing fitted.

    >>> textbook_beliefs().is_fitted
    False
    """
    values = {(name, "all", ""): float(np.log(MEDIANS[name])) for name in NAMES}
    known = {key: shift for key, shift in KNOWN.items() if key[0] in MEDIANS}
    return ServingBeliefs(
        values={**values, **known},
        spreads={(name, "all", ""): SPREADS[name] for name in NAMES}
        | {key: SHIFT_SPREADS[key[:2]] for key in known},
    )


def to_mapping(beliefs: ServingBeliefs) -> dict[str, object]:
    """Plain data for the file, in the form of this module."""
    shifts: dict[str, dict[str, dict[str, list[float]]]] = {}
    for key, shift in beliefs.values.items():
        name, level, value = key
        entry = [round(shift, 5), round(beliefs.spreads[key], 5), beliefs.counts.get(key, 0)]
        shifts.setdefault(name, {}).setdefault(level, {})[value] = entry
    return {
        "schema": SCHEMA,
        "meta": dict(beliefs.meta),
        "shifts": shifts,
        "level_spreads": {
            f"{name}|{level}": round(v, 5) for (name, level), v in beliefs.level_spreads.items()
        },
        "bands": {name: dict(shape) for name, shape in beliefs.bands.items()},
        "tails": dict(beliefs.tails),
    }


def from_mapping(data: Mapping[str, Any]) -> ServingBeliefs:
    """The inverse of `to_mapping`. Raises KeyError, ValueError or TypeError on a malformed mapping."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"it is a {data.get('schema')}, not a {SCHEMA}")
    values: dict[tuple[str, str, str], float] = {}
    spreads: dict[tuple[str, str, str], float] = {}
    counts: dict[tuple[str, str, str], int] = {}
    for name, levels in data["shifts"].items():
        for level, entries in levels.items():
            for value, (shift, spread, count) in entries.items():
                values[(name, level, value)] = float(shift)
                spreads[(name, level, value)] = float(spread)
                counts[(name, level, value)] = int(count)
    missing = [name for name in NAMES if (name, "all", "") not in values]
    if missing:
        raise ValueError(f"no belief about {', '.join(missing)}")
    widths = np.array([*spreads.values()])
    if not np.isfinite([*values.values()]).all() or not (np.isfinite(widths) & (widths >= 0.0)).all():
        raise ValueError("a belief is not a finite number")
    level_spreads: dict[tuple[str, str], float] = {}
    for pair, spread in data.get("level_spreads", {}).items():
        name, level = pair.split("|")
        level_spreads[(name, level)] = float(spread)
    return ServingBeliefs(
        values,
        spreads,
        counts,
        level_spreads,
        bands=data.get("bands", {}),
        tails=data.get("tails", {}),
        meta=data.get("meta", {}),
    )


@lru_cache(maxsize=1)
def shipped_beliefs() -> ServingBeliefs:
    """Those that the package ships: fitted ones where there is a file of them, else the textbook's."""
    file = resources.files("perfmodel").joinpath(_FILE)
    if not file.is_file():
        return textbook_beliefs()
    return from_mapping(json.loads(file.read_text(encoding="utf-8")))
