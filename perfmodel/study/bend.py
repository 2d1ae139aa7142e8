"""The bend: the first K under the threshold, its cause with evidence, and the remedy that fits the cause.

Four kinds of evidence, strongest first: the measured parts; a spread that grows with K (a straggler);
a loss that is there at the smallest K and the same in every repeat (load imbalance); the shape of T(K).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from perfmodel.physics.fits import Choice
from perfmodel.physics.laws import Array
from perfmodel.study.split import (
    COMMUNICATION,
    IMBALANCE,
    INPUT,
    OTHER,
    SERIAL,
    STRAGGLER,
    WAITING,
    Split,
    by_parts,
    by_shape,
)
from perfmodel.study.statistics import Points, SpreadTrend, spread_trend

Confidence: TypeAlias = Literal["parts", "shape", "weak", "none"]

REMEDIES: dict[str, str] = {
    COMMUNICATION: "more bandwidth or a nearer fabric, larger buckets, compression, fewer synchronisations "
    "(larger batch or accumulation), overlap with the backward pass",
    SERIAL: "shorten or parallelise the serial stage (start-up, reduction on one worker, logging, optimizer on "
    "one rank)",
    STRAGGLER: "find the slow worker (per-rank times) and replace it, drain noisy neighbours, add backup workers "
    "or bounded staleness",
    IMBALANCE: "even out the shares: sharding by cost, sorting or packing by length, finer tasks",
    WAITING: "run repeats and log the time of each rank: if the slow one changes it is a straggler (replace it, add "
    "backup workers), if it stays the shares are uneven (shard by cost)",
    INPUT: "feed the workers: more readers, prefetching, a nearer or sharded store",
    OTHER: "break the remainder down: time compute, communication, idle and input apart",
}
_MEANING = {
    COMMUNICATION: "time that grows with K",
    SERIAL: "time that does not shrink with K",
    IMBALANCE: "a loss that is there from the first split on",
    INPUT: "time spent waiting for input",
    WAITING: "workers that wait for others",
    OTHER: "time outside the measured parts",
}
# Share of the loss that the growing spread must explain before a straggler is the cause.
_STRAGGLER_SHARE = 0.3
_STRAGGLER_NOTED = 0.05  # under this share a growing spread is not worth a word
# Losses of single runs below this share of the time may be noise.
_UNKNOWN_NOISE = 0.02
# A second cause with at least this share of the first one's loss is named beside it.
_CLOSE_BEHIND = 0.75
# Idle at the smallest K, as a share of the idle at the bend, from which it counts as "present at small K".
_EARLY_IDLE = 0.25


@dataclass(frozen=True, slots=True)
class Bend:
    """`k` is the first K below the threshold, None when no K is; `cause` says so then."""

    k: int | None
    at_k: int  # where the loss was attributed: the bend, or the largest K when there is none
    cause: str
    leading: str | None  # the largest loss, also when the bend is not reached
    evidence: tuple[str, ...]
    remedy: str | None
    confidence: Confidence
    second: str | None = None  # a cause close behind the leading one
    crossing_k: float | None = None  # real K at which E passes the threshold, between the measured points
    if_halved: dict[str, float | None] = field(default_factory=dict)  # the same with one loss halved

    @property
    def named(self) -> bool:
        """Whether a K may be recommended: its limit has a cause, or it is the end of the measured range."""
        return self.leading is not None or self.cause.startswith("not reached")


def first_below(points: Points, threshold: float) -> int:
    """Position of the first K with E < threshold, -1 when there is none."""
    below = np.flatnonzero(points.efficiency < threshold - 1e-12)
    return int(below[0]) if below.size else -1


def straggler_share(points: Points, index: int, trend: SpreadTrend) -> float:
    """Share of the loss at one K that the growth of the spread can explain.

    Workers that are slow in a fraction q of the runs, by d seconds, cost q d on average with a standard
    deviation of d sqrt(q (1 - q)): between one and three standard deviations for q from one half to nine
    tenths. Two are taken, of the part of the spread that is not already there at the baseline.
    """
    if not trend.grows or not np.isfinite(points.std_s[index]):
        return 0.0
    lost = float(points.mean_s[index] - points.ideal_s[index])
    usable = np.flatnonzero(np.isfinite(points.std_s))
    quiet = float(points.std_s[usable[0]] / points.mean_s[usable[0]] * points.mean_s[index])
    grown = np.sqrt(max(float(points.std_s[index]) ** 2 - quiet**2, 0.0))
    return min(2.0 * float(grown) / lost, 1.0) if lost > 0.0 else 0.0


def diagnose(points: Points, choice: Choice, threshold: float) -> tuple[Bend, Split | None]:
    """The bend with its cause, and the split of the loss that it rests on."""
    trend = spread_trend(points)
    below = first_below(points, threshold)
    at = below if below >= 0 else points.k.size - 1
    k_at = int(points.k[at])
    share = straggler_share(points, at, trend)
    split = by_parts(points, _idle_cause(points, at, trend, share), at) or by_shape(points, choice, at)
    # A loss within the noise of the two means has no cause to look for.
    real = points.mean_s[at] - points.ideal_s[at] > _noise(points, at)
    shares = split.shares(at) if split is not None and real else {}
    leading = next(iter(shares), None)
    confidence: Confidence = "none"
    evidence: list[str] = []
    straggles = (split is None or split.source == "shape") and share >= _STRAGGLER_SHARE
    if share >= _STRAGGLER_NOTED:
        evidence.append(
            f"the relative spread grows {trend.growth:.1f} times from K = {int(points.k[0])} to "
            f"{int(points.k[-1])} (z = {trend.z:.1f}), enough for {100 * share:.0f} % of the loss at K = {k_at}"
        )
    if straggles:
        leading, confidence = STRAGGLER, "shape"
    elif split is not None and leading is not None:
        confidence = "parts" if split.source == "parts" else "shape" if split.agreed else "weak"
        evidence.append(_share_sentence(split, leading, shares, k_at))
        evidence += _overtaken(points, split, leading, at)
        if split.source == "shape":
            evidence.append(_choice_sentence(choice))
        if np.isfinite(trend.z) and not trend.grows:
            evidence.append(
                f"the relative spread does not grow with K beyond chance (z = {trend.z:.1f}): no straggler"
            )
    if leading == IMBALANCE:
        evidence.append(_imbalance_sentence(points))
    if leading == WAITING:
        confidence = "weak"
        evidence.append("without repeats a straggler and load imbalance look alike: both leave workers idle")
    second = next((c for c, share in shares.items() if c != leading and _close(share, shares, leading)), None)
    halved = _if_halved(points, split, threshold) if split is not None and leading in split.lost_s else {}
    remedy = REMEDIES[leading] if leading is not None else None
    crossing = _crossing(points, points.mean_s, threshold)
    if crossing is not None and halved:
        evidence.append(_halved_sentence(halved, crossing, threshold))
    if below < 0:
        cause = f"not reached: efficiency stays at or above {threshold:g} up to K = {k_at}"
        cause += f"; the largest loss so far is {leading}" if leading is not None else ""
    elif leading is None:
        cause = "undetermined"
        evidence.append("too few different K, or a loss within the noise: timings alone do not name a cause")
    else:
        cause = leading
    bend_k = k_at if below >= 0 else None
    return Bend(
        bend_k, k_at, cause, leading, tuple(evidence), remedy, confidence, second, crossing, halved
    ), split


def _close(share: float, shares: dict[str, float], leading: str | None) -> bool:
    return leading in shares and share >= _CLOSE_BEHIND * shares[leading]


def _overtaken(points: Points, split: Split, leading: str, at: int) -> list[str]:
    """Where another cause takes the lead beyond the bend."""
    for index in range(at + 1, points.k.size):
        leader = next(iter(split.shares(index)), leading)
        if leader != leading:
            return [f"from K = {int(points.k[index])} on {leader} leads"]
    return []


def _halved_sentence(halved: dict[str, float | None], crossing: float, threshold: float) -> str:
    words = [
        f"{cause} -> {'beyond the measured range' if k is None else f'K = {k:.3g}'}"
        for cause, k in halved.items()
    ]
    return f"E passes {threshold:g} at K = {crossing:.3g}; with one loss alone halved it would be at {'; '.join(words)}"


def _noise(points: Points, index: int) -> float:
    """Seconds of loss at one K that chance may explain; for single runs, a small share of the time."""
    if index == 0:
        return 0.0
    if not np.isfinite(points.ci95_s[[0, index]]).all():
        return _UNKNOWN_NOISE * float(points.mean_s[index])
    base = float(points.ci95_s[0] / points.mean_s[0] * points.ideal_s[index])
    return float(np.hypot(points.ci95_s[index], base))


def _idle_cause(points: Points, at: int, trend: SpreadTrend, share: float) -> str:
    """Who makes workers wait: a slow one now and then (spread grows), or shares that are never even."""
    if share >= _STRAGGLER_NOTED:
        return STRAGGLER
    if np.isfinite(trend.z):
        return IMBALANCE
    idle = points.parts_s.get("idle")
    if idle is None or points.k.size < 2:
        return IMBALANCE
    part: Array = idle / points.mean_s
    return IMBALANCE if part[1] >= _EARLY_IDLE * part[at] else WAITING


def _share_sentence(split: Split, leading: str, shares: dict[str, float], k: int) -> str:
    listed = ", ".join(f"{cause} {100 * share:.0f} %" for cause, share in shares.items() if share >= 0.005)
    source = "measured parts" if split.source == "parts" else "shape of T(K)"
    meaning = f" ({_MEANING[leading]})" if leading in _MEANING else ""
    return f"{source}: of the time lost at K = {k}, {listed}; {leading}{meaning} leads"


def _choice_sentence(choice: Choice) -> str:
    if choice.chosen is not None:
        return f"AICc chooses the law {choice.chosen}"
    if choice.rivals:
        return f"AICc does not separate {choice.fits[0].law} from {', '.join(choice.rivals)}"
    return f"too few points to test {', '.join(choice.untested)}"


def _imbalance_sentence(points: Points) -> str:
    lost = 1.0 - points.efficiency[1] if points.k.size > 1 else 0.0
    sentence = f"{100 * lost:.0f} % is lost at K = {int(points.k[min(1, points.k.size - 1)])} already"
    half = points.efficiency_ci95[1] if points.k.size > 1 else np.nan
    if np.isfinite(half) and lost > half:
        sentence += f", {lost / half:.0f} times what repeats leave uncertain" if half > 0 else ""
    return sentence


def _if_halved(points: Points, split: Split, threshold: float) -> dict[str, float | None]:
    """Where E would pass the threshold if one cause's loss were halved: the wrong remedy leaves it in place."""
    return {
        cause: _crossing(points, points.mean_s - 0.5 * np.maximum(lost, 0.0), threshold)
        for cause, lost in split.lost_s.items()
    }


def _crossing(points: Points, time_s: Array, threshold: float) -> float | None:
    """Real K at which E first falls to the threshold, log-linear between points; None beyond the range."""
    efficiency = points.ideal_s / np.maximum(time_s, points.ideal_s * 1e-9)
    below = np.flatnonzero(efficiency < threshold - 1e-12)
    if not below.size or below[0] == 0:
        return None
    low, high = int(below[0]) - 1, int(below[0])
    x0, x1 = np.log(points.k[[low, high]])
    y0, y1 = np.log(efficiency[[low, high]])
    return float(np.exp(x0 + (x1 - x0) * (np.log(threshold) - y0) / (y1 - y0)))
