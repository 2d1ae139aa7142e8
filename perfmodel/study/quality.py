"""The quality gate: a K whose model drifts from the baseline's quality is out of every ranking."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.study.statistics import Points

# 0.871 - 0.866 is 0.005000000000000004: a drift equal to the tolerance is within it.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Gate:
    """`passed` is aligned with K. Without a quality column every K passes and `held` is None: unknown."""

    passed: NDArray[np.bool_]
    held: bool | None
    max_drift: float
    tolerance: float
    baseline: float
    excluded_k: tuple[int, ...]
    reasons: dict[int, str]

    def kept(self, points: Points) -> Points:
        """The points that pass: what laws, bends and knees are found on."""
        if self.passed.all():
            return points

        def of(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: of(inner) for name, inner in value.items()}
            return value[self.passed] if isinstance(value, np.ndarray) else value

        return replace(points, **{field.name: of(getattr(points, field.name)) for field in fields(points)})

    def spread(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the points that pass, aligned with all K: NaN where quality was not held."""
        found = np.full(self.passed.shape, np.nan)
        found[self.passed] = values
        return found

    def as_json(self) -> dict[str, object]:
        """The mapping of the result."""
        return {
            "held": self.held,
            "max_drift": self.max_drift,
            "tolerance": self.tolerance,
            "baseline": self.baseline,
            "excluded_k": list(self.excluded_k),
            "reasons": self.reasons,
        }


def quality_gate(points: Points, tolerance: float) -> Gate:
    """Exclude each K whose mean quality is further than `tolerance` from the baseline's, or unknown."""
    quality = points.columns.get("quality")
    if quality is None or not np.isfinite(quality[0]):
        return Gate(np.ones(points.k.size, dtype=np.bool_), None, np.nan, tolerance, np.nan, (), {})
    drift = np.abs(quality - quality[0])
    passed = drift <= tolerance + _ROUNDING * max(1.0, abs(float(quality[0])))
    reasons = {
        int(k): f"quality {q:g} drifts {d:.4g} from the baseline's {quality[0]:g}, more than {tolerance:g}"
        if np.isfinite(q)
        else "quality was not measured"
        for k, q, d, ok in zip(points.k, quality, drift, passed, strict=True)
        if not ok
    }
    return Gate(
        passed,
        bool(passed.all()),
        float(np.nanmax(drift)),
        tolerance,
        float(quality[0]),
        tuple(reasons),
        reasons,
    )
