"""Where the lost time went: by the measured parts when the table has them, else by the shape of T(K).

Lost seconds at K are `T(K) - T_ideal(K)`, with the ideal drawn from the baseline (T(K0) K0/K strong, T(K0) weak).
Each cause's seconds add up to the loss of the curve they were taken from: the measured means for parts, the
fitted law for shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.physics.fits import SUBSTANTIAL_SUPPORT, Choice, LawFit
from perfmodel.physics.laws import Array
from perfmodel.study.statistics import Points

COMMUNICATION, SERIAL, STRAGGLER = "communication", "serial", "straggler"
IMBALANCE, INPUT, OTHER = "load imbalance", "input", "other"
WAITING = "straggler or load imbalance"  # idle workers, and no repeats that would say which

_CAUSE_OF_TERM = {
    "serial": SERIAL,
    "linear": COMMUNICATION,
    "log2": COMMUNICATION,
    "imbalance": IMBALANCE,
}
_PARTS_ROUNDING = 1e-6  # parts that miss the time by less than this, relatively, are complete
_NEGLIGIBLE_WEIGHT = 0.01  # a law with less of the evidence than this has no say in the split


@dataclass(frozen=True, slots=True)
class Split:
    """Lost seconds by cause at each K, where they come from, and how far laws that fit alike disagree.

    `low` and `high` are the shares of each cause at one K over all laws that fit the data alike;
    `agreed` is whether these laws blame the same cause, `separable` whether a single law is left.
    """

    source: Literal["parts", "shape"]
    lost_s: dict[str, Array]
    low: dict[str, float]
    high: dict[str, float]
    agreed: bool
    separable: bool

    def shares(self, index: int) -> dict[str, float]:
        """Share of each cause in the loss at one K, largest first; empty where nothing is lost."""
        return _shares(self.lost_s, index)


def _shares(lost_s: dict[str, Array], index: int) -> dict[str, float]:
    lost = {cause: max(float(seconds[index]), 0.0) for cause, seconds in lost_s.items()}
    total = sum(lost.values())
    if total <= 0.0:
        return {}
    return dict(sorted(((cause, value / total) for cause, value in lost.items()), key=lambda item: -item[1]))


def by_parts(points: Points, idle_cause: str, at: int) -> Split | None:
    """The split from measured parts at position `at`; None without parts. Idle time goes to `idle_cause`."""
    if not points.parts_s:
        return None
    # In the weak regime the share of a worker is fixed: compute that grows is not serial work but a larger share.
    compute = SERIAL if points.regime == "strong" else IMBALANCE
    cause_of = {"compute": compute, "communication": COMMUNICATION, "idle": idle_cause, "io": INPUT}
    lost: dict[str, Array] = {}
    for part, seconds in points.parts_s.items():
        cause = cause_of[part]
        lost[cause] = lost.get(cause, np.zeros_like(seconds)) + seconds - points.ideal_part_s(seconds)
    rest = points.mean_s - np.sum(list(points.parts_s.values()), axis=0)
    if np.any(np.abs(rest) > _PARTS_ROUNDING * points.mean_s):
        lost[OTHER] = rest - points.ideal_part_s(rest)
    shares = _shares(lost, at)
    return Split("parts", lost, shares, shares, agreed=True, separable=True)


def by_shape(points: Points, choice: Choice, at: int) -> Split | None:
    """The split from fitted laws, averaged by their weights, at position `at`; None with fewer than three K."""
    weighted = _weights(choice, points.k.size)
    if not weighted or points.k.size < 3:
        return None
    lost: dict[str, Array] = {}
    for fit, weight in weighted:
        for cause, seconds in lost_by_law(fit, points).items():
            lost[cause] = lost.get(cause, np.zeros_like(points.k)) + weight * seconds
    best = weighted[0][0]
    alike = [
        _shares(lost_by_law(fit, points), at)
        for fit, _ in weighted
        if fit is best or choice.untested or fit.delta < SUBSTANTIAL_SUPPORT
    ]
    causes = sorted({cause for shares in alike for cause in shares})
    low = {cause: min(shares.get(cause, 0.0) for shares in alike) for cause in causes}
    high = {cause: max(shares.get(cause, 0.0) for shares in alike) for cause in causes}
    leading = {next(iter(shares)) for shares in alike if shares}
    agreed = len(leading) == 1 and not choice.untested
    return Split("shape", lost, low, high, agreed=agreed, separable=choice.chosen is not None)


def lost_by_law(fit: LawFit, points: Points) -> dict[str, Array]:
    """Lost seconds of each cause under one law."""
    terms = fit.terms_s(points.k, points.baseline_k)
    lost: dict[str, Array] = {}
    for term, seconds in terms.items():
        cause = _CAUSE_OF_TERM.get(term)
        if cause is not None:
            lost[cause] = lost.get(cause, np.zeros_like(seconds)) + seconds - points.ideal_part_s(seconds)
    return lost


def _weights(choice: Choice, points: int) -> list[tuple[LawFit, float]]:
    """Laws with their weights, best first. With too few points for AICc, Schwarz's criterion stands in."""
    weighted = [(fit, fit.weight) for fit in choice.fits]
    if choice.untested and choice.fits:
        score = np.array(
            [2 * points * np.log(fit.rms_relative) + len(fit.terms) * np.log(points) for fit in choice.fits]
        )
        likelihood = np.exp(-0.5 * (score - score.min()))
        order = np.argsort(score, kind="stable")
        weighted = [(choice.fits[i], float(likelihood[i] / likelihood.sum())) for i in order]
    kept = [(fit, weight) for fit, weight in weighted if weight >= _NEGLIGIBLE_WEIGHT]
    total = sum(weight for _, weight in kept)
    return [(fit, weight / total) for fit, weight in kept]


def further_measurement(points: Points, choice: Choice, split: Split | None) -> str | None:
    """What to measure next to separate the laws that fit alike; None when they already are."""
    if split is not None and split.source == "parts":
        return None
    if points.k.size < 3 or not choice.fits:
        return f"time at least three different K: {points.k.size} cannot show a shape"
    if choice.chosen is not None:
        return None
    direct = "or record communication_s beside time_s, which settles it directly"
    if choice.untested:
        return (
            "time more K (six, or four with repeats): laws with a serial and a growing term need more points than "
            f"these; {direct}"
        )
    best, rival = choice.fits[0], choice[choice.rivals[0]]
    noise = max(best.rms_relative, rival.rms_relative)
    runs = int(max(points.repeats.min(), 3))
    for factor in (2, 4, 8, 16):
        k = int(points.k[-1]) * factor
        one, other = (float(fit.time_s(k, points.baseline_k)) for fit in (best, rival))
        apart = abs(one - other) / min(one, other)
        # 2.8 standard errors: 95 % confidence with 80 % power.
        needed = int(np.ceil((2.8 * noise / apart) ** 2)) if apart > 0 else 10**9
        if needed <= max(runs, 10):
            return (
                f"time K = {k} with {max(needed, 3)} repeats: there {best.law} and {rival.law} differ by "
                f"{100 * apart:.0f} %; {direct}"
            )
    return (
        f"no larger K within reach separates {best.law} from {rival.law}; {direct}, or time one K at two message "
        "sizes: serial work does not follow the message"
    )


def as_json(choice: Choice, baseline_k: int) -> dict[str, object]:
    """The choice between laws for the result."""
    return {
        "chosen": choice.chosen,
        "rivals": list(choice.rivals),
        "untested": list(choice.untested),
        "effective_points": choice.effective_points,
        "candidates": [
            {
                "law": fit.law,
                "seconds": fit.seconds,
                "stderr_s": fit.stderr_s,
                "rms_relative": fit.rms_relative,
                "aicc": fit.aicc,
                "delta": fit.delta,
                "weight": fit.weight,
            }
            for fit in choice.fits
        ],
        "baseline_k": baseline_k,
    }
