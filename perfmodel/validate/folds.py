"""Beliefs that did not see a family: population fits with whole groups, sources or accelerators left out."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.calibrate.mixed import Fit

# Folds at most, by what is left out whole: each source on its own, groups and accelerators some at a time.
SCHEMES: dict[str, int] = {"group": 20, "source": 64, "accelerator": 16}
# A source is a publisher with its code base: what one of its tables teaches is known of all of them.
KEYS: dict[str, str] = {"group": "group", "source": "publisher", "accelerator": "accelerator"}
# The protocol by which the tool is judged: a whole source left out, with the labels that the source itself states.
STRANGER = "stranger"


def scheme_of(protocol: str) -> str:
    """The scheme whose folds a protocol is scored with.

    >>> scheme_of("stranger"), scheme_of("group")
    ('source', 'group')
    """
    return "source" if protocol == STRANGER else protocol


def assign(keys: Sequence[str], count: int) -> NDArray[np.int64]:
    """A fold for every key, the same for equal keys, by a seeded shuffle of the distinct ones.

    A key has a fold of its own where there are no more keys than `count`.

    >>> assign(["a", "b", "a"], 2)[0] == assign(["a", "b", "a"], 2)[2]
    np.True_
    """
    distinct = sorted(set(keys))
    order = np.random.default_rng(20261116).permutation(len(distinct))
    fold = {distinct[int(i)]: position % count for position, i in enumerate(order)}
    return np.array([fold[key] for key in keys], dtype=np.int64)


@dataclass(frozen=True)
class Folds:
    """For each scheme, the fold of every key and the shifts fitted without that fold."""

    names: tuple[tuple[str, str, str], ...]
    keys: Mapping[str, Mapping[str, int]]  # scheme -> key -> fold
    values: Mapping[str, NDArray[np.float64]]  # scheme -> (folds, shifts), NaN where a shift was not seen
    # scheme -> for each fold `bands`, `scales` and `conformal` learnt without it; older files have none
    bands: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def fold_of(self, scheme: str, key: str) -> int:
        """The fold of a key. One that is newer than the folds was in no fit: its name spreads it over all of them."""
        known = self.keys[scheme].get(key)
        return zlib.crc32(key.encode("utf-8")) % len(self.values[scheme]) if known is None else known

    def beliefs(self, shipped: Beliefs, scheme: str, fold: int) -> Beliefs:
        """The shipped beliefs with the shifts of one fold, and bands that were learnt without it."""
        row = self.values[scheme][fold]
        # What is newer than the folds was in no fit: it is what the shipped beliefs have of it.
        shifts = {name: value for name, value in shipped.values.items() if shipped.counts.get(name) == 0}
        shifts |= {
            name: float(value) for name, value in zip(self.names, row, strict=True) if np.isfinite(value)
        }
        if scheme not in self.bands:
            return replace(shipped, values=shifts)
        own = self.bands[scheme][fold]
        factors = {**shipped.conformal, **own["conformal"]}
        return replace(shipped, values=shifts, bands=own["bands"], scales=own["scales"], conformal=factors)


def pack(full: Fit, keys: Mapping[str, Mapping[str, int]], fits: Mapping[str, Sequence[Fit]]) -> Folds:
    """The folds of a fit; shifts are rounded as the file keeps them."""
    position = {name: i for i, name in enumerate(full.shifts.names)}
    values: dict[str, NDArray[np.float64]] = {}
    for scheme, found in fits.items():
        values[scheme] = np.full((len(found), len(position)), np.nan)
        for row, one in zip(values[scheme], found, strict=True):
            for name, value in zip(one.shifts.names, one.values, strict=True):
                if name in position:
                    row[position[name]] = round(float(value), 3)
    return Folds(tuple(full.shifts.names), keys, values)


def to_mapping(folds: Folds) -> dict[str, object]:
    """Plain data for the folds file."""
    return {
        "schema": "perfmodel/folds/1",
        "names": ["|".join(name) for name in folds.names],
        "keys": {scheme: dict(sorted(table.items())) for scheme, table in folds.keys.items()},
        "values": {
            scheme: [[None if np.isnan(v) else float(v) for v in row] for row in rows]
            for scheme, rows in folds.values.items()
        },
        "bands": {scheme: [dict(one) for one in found] for scheme, found in folds.bands.items()},
    }


def unpack(data: Mapping[str, Any]) -> Folds:
    """The inverse of `to_mapping`."""
    names = []
    for name in data["names"]:
        coefficient, level, value = name.split("|")
        names.append((coefficient, level, value))
    values = {
        scheme: np.array([[np.nan if v is None else v for v in row] for row in rows], dtype=float)
        for scheme, rows in data["values"].items()
    }
    return Folds(tuple(names), data["keys"], values, data.get("bands", {}))


@lru_cache(maxsize=1)
def shipped_folds() -> Folds:
    """The folds fitted on the shipped corpus."""
    text = resources.files("perfmodel").joinpath("priors/folds.yaml").read_text(encoding="utf-8")
    return unpack(json.loads(text))
