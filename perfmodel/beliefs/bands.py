"""How wide a band is by what is known of jobs like this one.

Held-out errors differ tenfold between stacks: a Megatron-core run on Hopper is known within some 10 %, an eager PyTorch
run on an old workstation within 50 %. So the signs of which a spread is made (`extrapolation.band_spread`) are scaled,

    s^2 = exp(2 h) sum_i (w_i sign_i)^2 + (w_o open)^2,    h = sum_levels d(value of this job) + sum_j b_j x_j   (1)

with shifts d shrunk to zero (a value that nobody measured has none) and x_j: the distance from what is measured most, a
cluster of few accelerators, as the doublings of K over ten; without measurements of the job also the share of the step in
which the accelerator computes, and how thinly jobs of this cell (kind x framework x generation) were measured,
1 / sqrt(1 + groups). What the population leaves open (`open`, of predictions without measurements only)
is not scaled. `validate/bands.py` finds w, d and b on held-out errors; a conformal factor on s makes the band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import level_value
from perfmodel.physics.coefficients import NAMES

Array = NDArray[np.float64]

NINETY = 1.6448536269514722  # standard deviations from the middle to the end of a 90 % band
CELL = "kind*framework*generation"
# Levels of the shifts by what is measured of a job; once it has timings of its own, little else matters.
LEVELS: dict[str, tuple[str, ...]] = {
    "datasheet": (
        "kind",
        "framework",
        "generation",
        "width",
    ),
    "one_node": ("generation", "tuning"),
    "two_point": ("generation", "tuning"),
}
SLOPES: dict[str, tuple[str, ...]] = {
    "datasheet": ("computing", "thin", "reach"),
    "one_node": (),
    "two_point": (),
}
NEVER_NARROWING = (
    "thin",
    "reach",
)  # slopes that are not negative: distance from what is measured narrows no band
REACH = 10.0  # doublings of K that count as one unit of distance
SCALED = {"datasheet": 2}  # the first so many signs are scaled; elsewhere all of them
_PACE = NAMES.index("pace")


def computing_share(effects: Array) -> Array:
    """Share of the step in which the accelerator computes: d ln T / d ln pace, from slopes (n_effects, points)."""
    return np.asarray(np.clip(effects[_PACE], 0.0, 1.0))


def thinness(groups: float) -> float:
    """1 / sqrt(1 + groups): one where nobody measured such jobs, towards zero where many did.

    >>> thinness(0), thinness(3)
    (1.0, 0.5)
    """
    return float(1.0 / np.sqrt(1.0 + groups))


def scale(shape: Mapping[str, Any], features: Mapping[str, str], slopes: Sequence[str], at: Array) -> Array:
    """exp(h) of equation (1) at the points `at` (len(slopes), points); one where `shape` says nothing."""
    total = np.zeros(at.shape[1])
    for level, shifts in shape.get("levels", {}).items():
        total += float(shifts.get(level_value(features, level), 0.0))
    known = shape.get("slopes", {})
    for name, value in zip(slopes, at, strict=True):
        total += float(known.get(name, 0.0)) * value
    return np.asarray(np.exp(total))


def held_back(half: Array, before: Array, shift: Array) -> Array:
    """Half-width of a band after timings, from its own and that `before` them; `shift` is what they did to the prediction.

    Signs of a bold extrapolation grow without bound, but timings of a job take doubt away: its band is no wider than before
    them, or than reaches the former prediction where they moved it out of its band.
    """
    return np.asarray(np.minimum(half, np.maximum(before, np.abs(shift))))
