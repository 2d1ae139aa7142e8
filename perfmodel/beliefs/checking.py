"""What may stand in a beliefs file. People edit such files and keep them over versions, so all faults are named at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np

from perfmodel.beliefs.bands import LEVELS as BAND_LEVELS
from perfmodel.beliefs.bands import SLOPES
from perfmodel.beliefs.extrapolation import SIGNS, LawTrust
from perfmodel.beliefs.population import EFFECTS
from perfmodel.physics.coefficients import LEVELS, NAMES

SCHEMA: Final = "perfmodel/beliefs/1"
TIMED: Final = ("one_node", "two_point")  # modes of a calibration that holds step times
UNTIMED: Final = "datasheet"
FACTOR_MODES: Final = (UNTIMED, *TIMED, "ratio")
#: Of logarithms of coefficients: exp(50) is beyond every rate, exp(-50) below every time.
LARGEST_LOG: Final = 50.0
WIDEST: Final = 20.0  # log-spreads
LARGEST_SHIFT: Final = 5.0  # of the logarithm of a band's width: a hundred times as wide
#: How many weights a mode may have; the others one for each of SIGNS, or for the first five or seven.
_BAND_WEIGHTS: Final = {UNTIMED: (3,)}
_AT_MOST: Final = 8  # faults shown of one file


def faults(data: object) -> list[str]:
    """Everything wrong with the mapping that `beliefs.from_mapping` is to read; empty for a good one.

    >>> faults({"schema": "perfmodel/prediction/1"})
    ['it is a perfmodel/prediction/1, not a perfmodel/beliefs/1']
    """
    if not isinstance(data, Mapping):
        return ["a mapping is expected"]
    if data.get("schema", SCHEMA) != SCHEMA:
        return [f"it is a {data['schema']}, not a {SCHEMA}"]
    shifts, scatter = data.get("shifts"), data.get("scatter")
    if not isinstance(shifts, Mapping) or not isinstance(scatter, Mapping):
        return ["shifts and scatter are not there"]
    other_version = _names(shifts, NAMES) or _names(scatter, EFFECTS)
    if other_version:  # everything else would be a consequence
        return [other_version]
    found = [*_shifts(shifts), *_widths(data), *_tables(data), *_calibration(data.get("calibration", {}))]
    return found if len(found) <= _AT_MOST else [*found[:_AT_MOST], f"and {len(found) - _AT_MOST} more"]


def _names(given: Mapping[str, object], known: tuple[str, ...]) -> str | None:
    missing = [name for name in known if name not in given]
    unknown = [str(name) for name in given if name not in known]
    if not missing and not unknown:
        return None
    has = f"it has {', '.join(unknown)}" if unknown else ""
    lacks = f"it lacks {', '.join(missing)}" if missing else ""
    return "of another version, or edited: " + " and ".join(part for part in (has, lacks) if part)


def _number(place: str, value: object, low: float, high: float) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -math.inf < value < math.inf:
        yield f"{place} is not a finite number"
    elif abs(value) > 1e300:  # a whole number of JSON may be beyond every float, and cannot be printed as one
        yield f"{place} is absurd, expected {low:g} to {high:g}"
    elif not low <= value <= high:
        yield f"{place} is {value:g}, expected {low:g} to {high:g}"


def _shifts(shifts: Mapping[str, object]) -> Iterator[str]:
    for name, levels in shifts.items():
        if not isinstance(levels, Mapping) or "" not in (levels.get("all") or ()):
            yield f"no belief about {name}"
            continue
        for level, entries in levels.items():
            place = f"shifts.{name}.{level}"
            if level != "all" and level not in LEVELS[name]:
                yield f"{place}: {name} has no such level"
            elif not isinstance(entries, Mapping):
                yield f"{place} is not a mapping"
            else:
                for value, entry in entries.items():
                    yield from _shift(f"{place}.{value}".rstrip("."), entry)


def _shift(place: str, entry: object) -> Iterator[str]:
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        yield f"{place} is not [shift, spread, count]"
        return
    yield from _number(f"{place}: the shift", entry[0], -LARGEST_LOG, LARGEST_LOG)
    yield from _number(f"{place}: the spread", entry[1], 0.0, WIDEST)
    yield from _number(f"{place}: the count", entry[2], 0, 1e9)


def _widths(data: Mapping[str, Any]) -> Iterator[str]:
    yield from _number("noise", data.get("noise"), 0.0, WIDEST)
    for name, value in data["scatter"].items():
        yield from _number(f"scatter.{name}", value, 0.0, WIDEST)
    spreads = data.get("level_spreads")
    if not isinstance(spreads, Mapping):
        yield "level_spreads is not a mapping"
        return
    for key, value in spreads.items():
        name, _, level = key.partition("|")
        if level not in LEVELS.get(name, ()):
            yield f"level_spreads: {key} is no level of a coefficient"
        yield from _number(f"level_spreads.{key}", value, 0.0, WIDEST)


def _tables(data: Mapping[str, object]) -> Iterator[str]:
    """The factors, weights, scales and odds of each mode."""
    conformal, bands, scales, meta = (data.get(key, {}) for key in ("conformal", "bands", "scales", "meta"))
    if not isinstance(meta, Mapping):
        yield "meta is not a mapping"
    yield from _known("conformal", conformal, FACTOR_MODES)
    yield from _known("bands", bands, BAND_LEVELS)
    yield from _known("scales", scales, BAND_LEVELS)
    yield from _numbers("groups", data.get("groups", {}), 0.0, 1e9)
    for mode, shape in scales.items() if isinstance(scales, Mapping) else ():
        yield from _shape(mode, shape)
    for mode, factors in conformal.items() if isinstance(conformal, Mapping) else ():
        yield from _numbers(f"conformal.{mode}", factors, 0.0, WIDEST)
    for mode, weights in bands.items() if isinstance(bands, Mapping) else ():
        counts = _BAND_WEIGHTS.get(mode, (5, 7, len(SIGNS)))
        if not isinstance(weights, (list, tuple)) or len(weights) not in counts:
            yield f"bands.{mode} is not a list of {' or '.join(map(str, counts))} weights"
        else:
            yield from _numbers(f"bands.{mode}", dict(enumerate(weights)), 0.0, WIDEST)
    if isinstance(meta, Mapping):
        yield from _numbers("meta.knee", meta.get("knee", {}), 0.0, 1.0)
        laws = meta.get("laws", {})
        yield from _numbers("meta.laws", laws, -WIDEST, WIDEST)
        if isinstance(laws, Mapping):
            spreads = {name: laws[name] for name in ("crossing", "familiar", "doubt") if name in laws}
            yield from (
                f"meta.laws.{name} is negative, and a spread is not"
                for name, value in spreads.items()
                if isinstance(value, (int, float)) and value < 0
            )
            yield from _known("meta.laws", laws, [field.name for field in fields(LawTrust)])


def _shape(mode: str, shape: object) -> Iterator[str]:
    """Slopes and shifts of the logarithm of a band's width."""
    place = f"scales.{mode}"
    yield from _known(place, shape, ("slopes", "levels"))
    if not isinstance(shape, Mapping) or mode not in BAND_LEVELS:
        return
    slopes, levels = shape.get("slopes", {}), shape.get("levels", {})
    yield from _known(f"{place}.slopes", slopes, SLOPES[mode])
    yield from _known(f"{place}.levels", levels, BAND_LEVELS[mode])
    if isinstance(slopes, Mapping):
        yield from _numbers(f"{place}.slopes", slopes, -LARGEST_SHIFT, LARGEST_SHIFT)
    for level, shifts in levels.items() if isinstance(levels, Mapping) else ():
        yield from _numbers(f"{place}.levels.{level}", shifts, -LARGEST_SHIFT, LARGEST_SHIFT)


def _known(place: str, table: object, names: Collection[str]) -> Iterator[str]:
    """A name that nothing reads would be ignored in silence."""
    if not isinstance(table, Mapping):
        yield f"{place} is not a mapping"
        return
    unknown = [str(name) for name in table if name not in names]
    if unknown:
        expected = f"is not one of {', '.join(names)}" if names else "has no meaning there"
        yield f"{place}: {', '.join(unknown)} {expected}"


def _numbers(place: str, table: object, low: float, high: float) -> Iterator[str]:
    if not isinstance(table, Mapping):
        yield f"{place} is not a mapping"
        return
    for name, value in table.items():
        yield from _number(f"{place}.{name}", value, low, high)


def _calibration(data: object) -> Iterator[str]:
    if data == {}:
        return
    if not isinstance(data, Mapping):
        yield "calibration is not a mapping"
        return
    modes, held = (TIMED, "with") if data.get("k") else ((UNTIMED,), "without")
    if data.get("mode") not in modes:
        yield f"calibration.mode is {data.get('mode')}, expected {' or '.join(modes)} {held} step times"
    yield from _number("calibration.points", data.get("points"), 0, 1e9)
    yield from _number("calibration.need", data.get("need", 1.0), 0.0, 1.0)
    mean = data.get("mean")
    wrong = _names(mean, EFFECTS) if isinstance(mean, Mapping) else "it is not a mapping"
    if wrong:
        yield f"calibration.mean: {wrong}"
    else:
        yield from _numbers("calibration.mean", mean, -LARGEST_LOG, LARGEST_LOG)
    anchor = data.get("anchor", {})
    yield from _numbers("calibration.anchor", anchor, -LARGEST_LOG, LARGEST_LOG)
    if isinstance(anchor, Mapping) and not set(anchor) <= set(NAMES):
        yield "calibration.anchor names what is no coefficient"
    if not isinstance(data.get("notes", []), (list, tuple)):
        yield "calibration.notes is not a list"
    yield from _measured(data)
    yield from _covariance(data.get("covariance"))
    yield from _power(data.get("power"))


def _measured(data: Mapping[str, object]) -> Iterator[str]:
    """Accelerators, accelerator-times and, in files that have them, batches of the measured points."""
    limits = {"k": (1.0, 1e9), "tau": (1e-15, 1e15), "batch": (1e-9, 1e12)}
    columns = {name: data.get(name) for name in limits if name != "batch" or data.get(name, []) != []}
    listed = [part for part in columns.values() if isinstance(part, (list, tuple))]
    if len(listed) < len(columns) or len({len(part) for part in listed}) > 1:
        names = [f"calibration.{name}" for name in columns]
        yield f"{', '.join(names[:-1])} and {names[-1]} are not lists of the same length"
        return
    for name, part in zip(columns, listed, strict=True):
        yield from _numbers(f"calibration.{name}", dict(enumerate(part)), *limits[name])
    if any(isinstance(count, float) and count % 1.0 > 0.0 for count in listed[0]):
        yield "calibration.k is not whole everywhere"
    if data.get("points") != len(listed[0]):
        yield f"calibration.points is {data.get('points')}, but calibration.k has {len(listed[0])}"


def _covariance(rows: object) -> Iterator[str]:
    count, place = len(EFFECTS), "the covariance of the calibration"
    try:
        matrix = np.array(rows, dtype=float)
    except (TypeError, ValueError, OverflowError):
        yield f"{place} is not a table of numbers"
        return
    if matrix.shape != (count, count):
        yield f"{place} has the wrong shape: expected {count} by {count}"
    elif not np.isfinite(matrix).all() or np.abs(matrix).max() > WIDEST**2:
        yield f"{place} holds what is no finite variance of a logarithm"
    elif not np.allclose(matrix, matrix.T, atol=1e-8) or np.linalg.eigvalsh(matrix).min() < -1e-6 * (
        1 + np.abs(matrix).max()
    ):
        yield f"{place} is not one: it is lopsided or has a negative variance"


def _power(data: object) -> Iterator[str]:
    if data is None:
        return
    if not isinstance(data, Mapping):
        yield "calibration.power is not a mapping"
        return
    yield from _number("calibration.power.scale", data.get("scale"), 1e-3, 100.0)
    yield from _number("calibration.power.spread", data.get("spread"), 0.0, WIDEST)
    if data.get("idle_w") is not None:
        yield from _number("calibration.power.idle_w", data["idle_w"], 0.0, 1e5)
    if not isinstance(data.get("source"), str):
        yield "calibration.power.source is not text"
