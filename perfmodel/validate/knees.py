"""Does the predicted curve bend where the measured one does?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.observations import Observations
from perfmodel.validate.protocol import Scored, accelerator_time

Array = NDArray[np.float64]

THRESHOLD = 0.70


@dataclass(frozen=True)
class KneeScore:
    """Counts over families."""

    bending: int  # families whose measured knee lies beyond the calibration points
    found: int  # of these, predicted within a factor of two
    at_risk: int  # of these, flagged by the lower bound of the efficiency at or before the knee
    straight: int  # families that do not bend within the measured range
    false_alarms: int  # of these, predicted to bend

    def as_dict(self) -> dict[str, float | int | None]:
        """For the result."""
        return {
            "families": self.bending,
            "within_factor_2": self.found / self.bending if self.bending else None,
            "at_risk_flagged": self.at_risk / self.bending if self.bending else None,
            "straight": self.straight,
            "false_alarms": self.false_alarms / self.straight if self.straight else None,
        }


def _first_below(k: Array, efficiency: Array) -> float:
    """First K under the threshold, infinite when there is none."""
    below = np.sort(k[efficiency < THRESHOLD])
    return float(below[0]) if below.size else np.inf


def score_knees(data: Observations, scored: Scored) -> KneeScore:
    """Compare first K below the threshold, measured and predicted, family by family."""
    bending = found = at_risk = straight = alarms = 0
    owner = data.family[scored.rows]
    for family, calibration in scored.calibration.items():
        inside = owner == family
        rows = scored.rows[inside]
        k = data.at.k[rows]
        before = accelerator_time(data, calibration, data.target[calibration])
        base = before[data.at.k[calibration] == data.at.k[calibration].min()].mean()
        if (base / before < THRESHOLD).any():
            continue  # the bend is among the calibration points already
        measured = _first_below(k, base / accelerator_time(data, rows, data.target[rows]))
        centre = base / accelerator_time(data, rows, scored.predicted[inside])
        predicted = _first_below(k, centre)
        if np.isfinite(measured):
            bending += 1
            found += bool(np.isfinite(predicted) and 0.5 <= predicted / measured <= 2.0)
            at_risk += bool(_first_below(k, centre * np.exp(-scored.half[inside])) <= measured)
        else:
            straight += 1
            alarms += bool(np.isfinite(predicted))
    return KneeScore(bending, found, at_risk, straight, alarms)
