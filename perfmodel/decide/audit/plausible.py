"""A claim against the beliefs: what the step model, with all that it does not know, can still imagine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.audit.findings import Finding
from perfmodel.decide.audit.normalise import Point, Series
from perfmodel.decide.audit.subject import Subject
from perfmodel.decide.knee import DEFAULT_THRESHOLD
from perfmodel.decide.ratio import efficiency_band, log_half_width
from perfmodel.predict.beliefs import Beliefs
from perfmodel.predict.curve import Curve, Setup, curve
from perfmodel.units import format_quantity

Array = NDArray[np.float64]
# Bands of a prediction hold 90 %; the audit asks for 95 % (two-sided normal quantiles).
WIDEN = 1.959964 / 1.644854
DRAWS = 400


@dataclass(frozen=True)
class Expected:
    """The prediction for one point of the claim, at its own batch and layout; `half` is the 95 % band in the log."""

    point: Point
    time_s: float
    half: float
    draws_s: Array

    @property
    def low_s(self) -> float:
        return self.time_s * math.exp(-self.half)

    @property
    def high_s(self) -> float:
        return self.time_s * math.exp(self.half)


@dataclass(frozen=True)
class Rung:
    """Predicted efficiency at one K of a ladder, with its 95 % band."""

    k: int
    efficiency: float
    low: float
    high: float


def expect(groups: Sequence[tuple[Sequence[Point], Setup]], beliefs: Beliefs, seed: int) -> list[Expected]:
    """Predict every point; a point that the model finds infeasible is left out. Points come back in order of K."""
    found = []
    for points, setup in groups:
        one = curve(setup, beliefs, draws=DRAWS, seed=seed)
        for at, point in enumerate(points):
            if bool(one.feasible[at]):
                half = float(np.log(one.high_s[at] / one.time_s[at])) * WIDEN
                found.append(Expected(point, float(one.time_s[at]), half, one.draws_s[:, at]))
    return sorted(found, key=lambda item: item.point.k)


def rates_above_band(expected: Sequence[Expected], subject: Subject) -> list[Finding]:
    """A step faster than the fastest that the 95 % band holds."""
    found = []
    for item in expected:
        claimed = item.point.time_s
        if claimed is None or claimed >= item.low_s:
            continue
        shown = f"a step in {format_quantity(claimed, 's')} at K = {item.point.k}"
        bound = f"95 % band {format_quantity(item.low_s, 's')} to {format_quantity(item.high_s, 's')}"
        evidence = f"Public runs of this kind on this hardware put the step at {format_quantity(item.time_s, 's')}; the claim is {item.time_s / claimed:.2f} times as fast."
        rate = item.point.rate_per_accelerator
        if subject.load is not None and rate:
            mfu = rate * subject.load.model_flop / subject.machine.peak(item.point.precision)[0]
            evidence += f" It is MFU {mfu:.2f} against {mfu * claimed / item.time_s:.2f} expected."
        found.append(
            Finding(
                "mfu-above-band",
                "suspicious",
                shown,
                bound,
                evidence,
                weight=item.low_s / claimed,
                k=item.point.k,
            )
        )
    return found


def efficiency_above_band(
    series: Series, expected: Sequence[Expected], beliefs: Beliefs, factor: float
) -> list[Finding]:
    """E(K) above what the band of the ratio T(K0)/T(K) allows."""
    start = series.reference
    base = next((item for item in expected if start is not None and item.point.k == start.k), None)
    if base is None or base.point.global_batch is None:
        return []
    found = []
    for item in expected:
        claimed = series.efficiency(item.point)
        if claimed is None or item.point.k <= base.point.k or item.point.global_batch is None:
            continue
        per_sample = item.time_s / item.point.global_batch * item.point.k
        middle = base.time_s / base.point.global_batch * base.point.k / per_sample
        half = float(
            log_half_width(item.draws_s[:, None], base.draws_s[:, None], beliefs.noise, factor * WIDEN)[0]
        )
        if math.log(claimed / middle) <= half:
            continue
        high = middle * math.exp(half)
        found.append(
            Finding(
                code="efficiency-above-band",
                severity="suspicious",
                claim=f"E = {claimed:.3g} at K = {item.point.k}",
                bound=f"95 % band {middle * math.exp(-half):.3g} to {high:.3g}",
                evidence=f"From K = {base.point.k} to {item.point.k} the model expects E = {middle:.3g}; each accelerator is claimed to keep {claimed / middle:.2f} times as much of its speed.",
                weight=claimed / high,
                k=item.point.k,
            )
        )
    return found


def weak_baseline(series: Series, expected: Sequence[Expected]) -> list[Finding]:
    """A baseline slower than the band, while the large runs are not: the speedup is borrowed from it."""
    start = series.reference
    base = next((item for item in expected if start is not None and item.point.k == start.k), None)
    others = [
        item for item in expected if base is not None and item.point.k > base.point.k and item.point.time_s
    ]
    if base is None or base.point.time_s is None or not others:
        return []
    slow = base.point.time_s / base.time_s
    last = max(others, key=lambda item: item.point.k)
    last_slow = (last.point.time_s or last.time_s) / last.time_s
    borrowed = slow / last_slow
    if base.point.time_s <= base.high_s or borrowed <= 1.0:
        return []
    speedup = series.speedup(last.point)
    shown = f"{speedup:.3g} of S" if speedup else "the speedup"
    return [
        Finding(
            code="weak-baseline",
            severity="suspicious",
            claim=f"T({base.point.k}) = {format_quantity(base.point.time_s, 's')}",
            bound=f"95 % band {format_quantity(base.low_s, 's')} to {format_quantity(base.high_s, 's')}",
            evidence=(
                f"The baseline is {slow:.2f} times slower than expected, the run at K = {last.point.k} {last_slow:.2f} times: "
                f"{borrowed:.2f} times of {shown} at K = {last.point.k} is borrowed"
                + (f"; with the expected baseline it is {speedup / borrowed:.3g}." if speedup else ".")
            ),
            weight=base.point.time_s / base.high_s,
            k=base.point.k,
        )
    ]


def ladder(found: Curve, beliefs: Beliefs) -> list[Rung]:
    """E(K) with its 95 % band along a curve; K0 is the smallest feasible K."""
    band = efficiency_band(found, beliefs, WIDEN)
    if band is None:
        return []
    return [
        Rung(int(found.k[at]), float(band.middle[at]), float(band.low[at]), float(band.high[at]))
        for at in np.flatnonzero(found.feasible).tolist()
    ]


def knee_before_range(
    series: Series, rungs: Sequence[Rung], threshold: float = DEFAULT_THRESHOLD
) -> list[Finding]:
    """Even the upper band falls below the threshold at half of the largest claimed K."""
    points = series.all
    if not points or not rungs:
        return []
    last = points[-1]
    hopeful = [rung.k for rung in rungs if rung.high >= threshold]
    knee = max(hopeful, default=rungs[0].k)
    beyond = [rung for rung in rungs if rung.k <= last.k and rung.k >= 2 * knee]
    if not beyond or beyond[-1].high >= threshold:
        return []
    claimed = series.efficiency(last)
    kept = "not stated" if claimed is None else f"{claimed:.2f}"
    # A claim that shows its own low efficiency hides nothing: the knee is then advice, not suspicion.
    open_about_it = claimed is not None and claimed < threshold
    return [
        Finding(
            code="knee-before-range",
            severity="note" if open_about_it else "suspicious",
            claim=f"K = {last.k} with E {kept}",
            bound=f"knee (E >= {threshold:g}) at K <= {knee}",
            evidence=f"At K = {beyond[-1].k} the 95 % band of E is {beyond[-1].low:.2f} to {beyond[-1].high:.2f}.",
            weight=last.k / knee,
            k=last.k,
        )
    ]
