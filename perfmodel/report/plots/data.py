"""What several plots read from an envelope: one form for predictions and studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.report.kinds import common
from perfmodel.report.model import Envelope, kind_of, mapping, mappings, result_of

Values = list[float | None]


@dataclass(frozen=True)
class Scaling:
    """A scaling curve: aligned lists, None where there is no value."""

    subject: str
    regime: str
    k: list[float]
    time: Values
    time_low: Values
    time_high: Values
    speedup: Values
    speedup_low: Values
    speedup_high: Values
    efficiency: Values
    cost: Values
    parts: dict[str, Values]
    hidden: dict[str, Values]
    baseline: float
    threshold: float
    measured: tuple[tuple[float, float], ...]
    is_study: bool
    excluded: frozenset[float] = frozenset()  # K whose quality was not held

    def at(self, values: Values, k: float | None) -> float | None:
        """The entry that belongs to one K."""
        return values[self.k.index(k)] if k in self.k else None


def scaling(envelope: Envelope) -> Scaling:
    """Read a prediction or a study."""
    result = result_of(envelope)
    is_study = kind_of(envelope) == "study"
    k = [float(x) for x in result.get("k") or ()]
    n = len(k)
    time = numbers(result, "mean_s" if is_study else "time_s", n)
    if is_study:
        spread = numbers(result, "ci95_s", n)
        low: Values = [
            None if t is None or s is None else max(t - s, t * 1e-3)
            for t, s in zip(time, spread, strict=True)
        ]
        high: Values = [None if t is None or s is None else t + s for t, s in zip(time, spread, strict=True)]
    else:
        low, high = numbers(result, "time_s_low", n), numbers(result, "time_s_high", n)
    speedup = numbers(result, "speedup", n)
    if result.get("speedup_low") and result.get("speedup_high"):
        speedup_low, speedup_high = numbers(result, "speedup_low", n), numbers(result, "speedup_high", n)
    else:
        speedup_low, speedup_high = _carry(speedup, time, high), _carry(speedup, time, low)
    parts = result.get("parts_s")
    hidden = result.get("hidden_s")
    if isinstance(hidden, list):
        hidden = {"communication": hidden}
    points = [p for p in mappings(result.get("measured")) if p.get("time_s") and p.get("k")]
    return Scaling(
        subject=common.subject(envelope),
        regime=str(common.setting(envelope, "regime") or "strong"),
        k=k,
        time=time,
        time_low=low,
        time_high=high,
        speedup=speedup,
        speedup_low=speedup_low,
        speedup_high=speedup_high,
        efficiency=numbers(result, "efficiency", n),
        cost=numbers(result, "cost_usd", n),
        parts={str(p): numbers(parts, p, n) for p in parts} if isinstance(parts, Mapping) else {},
        hidden={str(p): numbers(hidden, p, n) for p in hidden} if isinstance(hidden, Mapping) else {},
        baseline=float(result.get("baseline_k") or (k[0] if k else 1)),
        threshold=threshold(result),
        measured=tuple((float(p["k"]), float(p["time_s"])) for p in points),
        is_study=is_study,
        excluded=frozenset(float(k) for k in mapping(result.get("quality")).get("excluded_k") or ()),
    )


def threshold(result: Mapping[str, object]) -> float:
    """The efficiency threshold that the result used, 0.70 when it does not say."""
    found = result.get("threshold")
    if not isinstance(found, Mapping):
        knee = result.get("knee")
        found = knee.get("threshold") if isinstance(knee, Mapping) else None
    value = found.get("value") if isinstance(found, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else 0.70


def numbers(result: Mapping[str, object], key: str, n: int) -> Values:
    """An aligned array of numbers."""
    return [float(v) if isinstance(v, (int, float)) else None for v in common.array(result, key, n)]


def points(x: list[float], y: Values) -> tuple[list[float], list[float]]:
    """The pairs where there is a value."""
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _carry(speedup: Values, time: Values, edge: Values) -> Values:
    """The time band as a speedup band around the same curve."""
    return [s * t / e if s and t and e else None for s, t, e in zip(speedup, time, edge, strict=True)]
