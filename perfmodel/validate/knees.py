"""Does the predicted curve bend where the measured one does?

A knee is declared at the first measured K where the predicted chance that the efficiency is below the threshold exceeds
some odds (`decide.knee.cautious`, as in `predict`). The odds are chosen on held-out families: as many knees within a
factor of two as can be had while at most `ALARMS` of the straight families are alarmed. Measured and predicted knees are
both read at the measured K, nothing is interpolated: a knee predicted just beyond the last measured K counts as missed.

A knee that is stated with a band, from the two ends of the efficiency's band, holds where the measured one lies between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.observations import Observations
from perfmodel.decide.knee import DEFAULT_THRESHOLD, RISK, cautious, first_below
from perfmodel.validate.protocol import Scored, accelerator_time

Array = NDArray[np.float64]

EVEN = 0.5
GRID = tuple(round(0.50 - 0.01 * step, 2) for step in range(41))  # odds that are tried: even to one in ten
ALARMS = 0.05  # of the straight families


@dataclass(frozen=True)
class Bend:
    """One family whose knee, if it has one, lies beyond the calibration points."""

    family: int
    k: Array
    measured: Array  # efficiency against the smallest calibration K
    predicted: Array
    half: Array  # log half-width of the 90 % band of the prediction

    @cached_property
    def knee(self) -> float:
        """First measured K below the threshold, infinite for a straight family."""
        return first_below(self.k, self.measured)

    def declared(self, odds: float) -> float:
        """First K that the prediction declares to be below the threshold."""
        return first_below(self.k, cautious(self.predicted, self.half, odds))

    @property
    def band(self) -> tuple[float, float]:
        """First K below the threshold at the two ends of the prediction's band."""
        return self.declared(RISK), self.declared(1.0 - RISK)

    @cached_property
    def on_grid(self) -> dict[float, float]:
        """What is declared at each of the odds that are tried: every fold's choice looks it up."""
        return {odds: self.declared(odds) for odds in GRID}

    def found(self, declared: float) -> bool:
        """Whether a knee that is declared there is within a factor of two."""
        return bool(np.isfinite(declared) and 0.5 <= declared / self.knee <= 2.0)


@dataclass(frozen=True)
class KneeScore:
    """Counts over families."""

    bending: int  # families whose measured knee lies beyond the calibration points
    found: int  # of these, predicted within a factor of two
    at_risk: int  # of these, flagged by the lower bound of the efficiency at or before the knee
    straight: int  # families that do not bend within the measured range
    false_alarms: int  # of these, predicted to bend
    odds: tuple[float, float]  # smallest and largest that were used

    def as_dict(self) -> dict[str, float | int | list[float] | None]:
        """For the result."""
        return {
            "families": self.bending,
            "within_factor_2": self.found / self.bending if self.bending else None,
            "at_risk_flagged": self.at_risk / self.bending if self.bending else None,
            "straight": self.straight,
            "false_alarms": self.false_alarms / self.straight if self.straight else None,
            "odds": list(self.odds),
        }


def bends(data: Observations, scored: Scored) -> list[Bend]:
    """Every scored family that has not bent among its calibration points already."""
    found = []
    owner = data.family[scored.rows]
    for family, calibration in scored.calibration.items():
        inside = owner == family
        rows = scored.rows[inside]
        before = accelerator_time(data, calibration, data.target[calibration])
        base = before[data.at.k[calibration] == data.at.k[calibration].min()].mean()
        if (base / before < DEFAULT_THRESHOLD).any():
            continue
        measured = base / accelerator_time(data, rows, data.target[rows])
        predicted = base / accelerator_time(data, rows, scored.predicted[inside])
        found.append(Bend(family, data.at.k[rows], measured, predicted, scored.half[inside]))
    return found


def choose_odds(families: Sequence[Bend]) -> float:
    """The odds with the most knees found at no more than `ALARMS` false alarms; the least cautious of equals."""
    best, most = EVEN, -1
    bent = [one for one in families if np.isfinite(one.knee)]
    straight = [one for one in families if not np.isfinite(one.knee)]
    for odds in GRID:
        if sum(np.isfinite(one.on_grid[odds]) for one in straight) > ALARMS * len(straight):
            break
        hits = sum(one.found(one.on_grid[odds]) for one in bent)
        if hits > most:
            best, most = odds, hits
    return best


def crossfit_odds(families: Sequence[Bend], fold_of: Mapping[int, int]) -> dict[int, float]:
    """Odds for every family, chosen on the families of the other folds."""
    chosen = {
        fold: choose_odds([one for one in families if fold_of[one.family] != fold])
        for fold in sorted({fold_of[one.family] for one in families})
    }
    return {one.family: chosen[fold_of[one.family]] for one in families}


def score_knees(families: Sequence[Bend], odds: Mapping[int, float]) -> KneeScore:
    """Compare the first K below the threshold, measured and declared, family by family."""
    bent = [one for one in families if np.isfinite(one.knee)]
    straight = [one for one in families if not np.isfinite(one.knee)]
    used = [odds[one.family] for one in families] or [EVEN]
    return KneeScore(
        bending=len(bent),
        found=sum(one.found(one.declared(odds[one.family])) for one in bent),
        at_risk=sum(one.declared(RISK) <= one.knee for one in bent),
        straight=len(straight),
        false_alarms=sum(bool(np.isfinite(one.declared(odds[one.family]))) for one in straight),
        odds=(min(used), max(used)),
    )


def knees_in_bands(families: Sequence[Bend], weights: Array) -> dict[str, float | int | None]:
    """How often the measured knee lies inside the stated band, and how often that band is closed, by weight of the families.

    `bending` is about the families whose knee was measured: that of the others lies beyond the last K, as does the end of
    every band that says so.
    """
    if not families:
        return {"families": 0, "bending": 0}
    knee = np.array([one.knee for one in families])
    low, high = np.array([one.band for one in families]).T
    inside, bent = (low <= knee) & (knee <= high), np.isfinite(knee)

    def share(what: NDArray[np.bool_], among: NDArray[np.bool_]) -> float | None:
        return float(np.average(what[among], weights=weights[among])) if among.any() else None

    return {
        "families": len(families),
        "bending": int(bent.sum()),
        "inside": share(inside, np.ones_like(bent)),
        "inside_bending": share(inside, bent),
        "closed_bending": share(np.isfinite(high), bent),
    }
