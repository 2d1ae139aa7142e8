"""A claim against the beliefs: what the step model allows within its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.decide.audit.findings import Finding
from perfmodel.decide.audit.normalise import Point, Series
from perfmodel.decide.audit.subject import PADDED, Subject
from perfmodel.decide.knee import DEFAULT_THRESHOLD
from perfmodel.decide.metrics import efficiency_band, log_half_width
from perfmodel.physics.operations import TRANSFORMER_KINDS
from perfmodel.specs.layout import Recompute
from perfmodel.training.curve import Curve, curve
from perfmodel.training.search import search
from perfmodel.training.setup import Setup
from perfmodel.units import band_in_words, in_words

Array = NDArray[np.float64]
# Bands of a prediction hold 90 %; the audit asks for 95 % (two-sided normal quantiles).
WIDEN = 1.959964 / 1.644854
DRAWS = 400
BORROWED = 1.1  # a baseline outside its band is held against the claim only if it buys at least this much


# A slide does not name the software. Its band holds those of the stacks that it may have used, each as it comes and
# as people tune it who race.
STACKS: dict[bool, tuple[str, ...]] = {
    True: ("megatron_core", "pytorch_eager"),
    False: ("pytorch_eager", "mxnet"),
}
TUNINGS = ("stock", "tuned")
# An encoder may skip the padding of its sequences: about half of the tokens in public sets.
UNPADDED = 0.5


@dataclass(frozen=True)
class StackSetup(Setup):
    """A set-up whose software is tuned, or not."""

    tuning: str = "stock"

    def features(self) -> dict[str, str]:
        """Level values for the beliefs."""
        return {**super().features(), "tuning": self.tuning}


@dataclass(frozen=True)
class Group:
    """Points of a claim that one set-up describes."""

    points: Sequence[Point]
    setup: Setup
    recompute: Recompute | None = None  # as stated beside a layout, or without one


@dataclass(frozen=True)
class Expected:
    """The prediction for one point of the claim, at its own batch and layout, over the stacks it may have used.

    `time_s` is the geometric mean over the stacks, [low_s, high_s] the 95 % band that holds all of theirs; `times_s`
    and `draws_s` (stacks, draws) are those of each stack.
    """

    point: Point
    time_s: float
    low_s: float
    high_s: float
    times_s: Array
    draws_s: Array


@dataclass(frozen=True)
class Rung:
    """Predicted efficiency at one K of a ladder, with its 95 % band."""

    k: int
    efficiency: float
    low: float
    high: float


def stacks(setup: Setup) -> list[StackSetup]:
    """The same job on each stack that a slide may stand for; the one that a job would use by default comes first."""
    names = STACKS[setup.workload.kind in TRANSFORMER_KINDS]
    given = {field.name: getattr(setup, field.name) for field in fields(Setup)}
    return [
        StackSetup(**{**given, "framework": name, "tuning": tuning}) for tuning in TUNINGS for name in names
    ]


def curves_of(setup: Setup, recompute: Recompute | None, beliefs: Beliefs, seed: int) -> list[Curve]:
    """The curve of each stack; where no layout is given, the best of those that recompute what is stated.

    What a given layout leaves unsaid is read in the claim's favour: nothing is recomputed, and norms are cut as well.
    """
    among = None
    if setup.layout is not None:
        said = setup.layout
        cut = said.sequence_parallel if said.tp == 1 or said.sequence_parallel is not None else True
        kind = {"recompute": said.recompute or recompute or "none", "sequence_parallel": cut}
        setup = replace(setup, layout=said.model_copy(update=kind))
    if setup.layout is None and recompute is not None:
        among = search(setup, recompute=(recompute,))
    return [curve(each, beliefs, draws=DRAWS, seed=seed, among=among) for each in stacks(setup)]


def expect(groups: Sequence[Group], beliefs: Beliefs, seed: int) -> list[Expected]:
    """Predict every point; a point that the model finds infeasible is left out. Points come back in order of K."""
    found = []
    for group in groups:
        curves = curves_of(group.setup, group.recompute, beliefs, seed)
        skipped = UNPADDED if group.setup.workload.kind in PADDED else 1.0
        for at, point in enumerate(group.points):
            if not all(bool(one.feasible[at]) for one in curves):
                continue
            middle, lows, highs = (
                np.array([getattr(one, name)[at] for one in curves]) for name in ("time_s", "low_s", "high_s")
            )
            found.append(
                Expected(
                    point,
                    float(np.exp(np.log(middle).mean())),
                    skipped * float(np.min(middle * (lows / middle) ** WIDEN)),
                    float(np.max(middle * (highs / middle) ** WIDEN)),
                    middle,
                    np.stack([one.draws_s[:, at] for one in curves]),
                )
            )
    return sorted(found, key=lambda item: item.point.k)


def rates_above_band(expected: Sequence[Expected], subject: Subject) -> list[Finding]:
    """A step faster than the fastest that the 95 % band holds."""
    found = []
    for item in expected:
        claimed = item.point.time_s
        if claimed is None or claimed >= item.low_s:
            continue
        shown = f"a step in {in_words(claimed, 's')} at K = {item.point.k}"
        bound = f"95 % band {band_in_words(item.low_s, item.high_s, 's')}"
        evidence = f"Public runs of this kind on this hardware put the step at {in_words(item.time_s, 's')}; the claim is {item.time_s / claimed:.2f} times as fast."
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


def ratio_band(item: Expected, base: Expected, noise: float, factor: float) -> tuple[float, float, float]:
    """T(K0)/T(K) with the 95 % band that holds those of all stacks: (middle, low, high).

    What is uncertain at K0 and at K alike cancels in the draws.
    """
    ratios = base.times_s / item.times_s
    halves = log_half_width(item.draws_s.T, base.draws_s.T, noise, factor * WIDEN)
    middle = float(np.exp(np.log(ratios).mean()))
    return middle, float(np.min(ratios * np.exp(-halves))), float(np.max(ratios * np.exp(halves)))


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
        work = (item.point.global_batch / item.point.k) / (base.point.global_batch / base.point.k)
        middle, low, high = (work * value for value in ratio_band(item, base, beliefs.noise, factor))
        if claimed <= high:
            continue
        found.append(
            Finding(
                code="efficiency-above-band",
                severity="suspicious",
                claim=f"E = {claimed:.3g} at K = {item.point.k}",
                bound=f"95 % band {low:.3g} to {high:.3g}",
                evidence=f"From K = {base.point.k} to {item.point.k} the model expects E = {middle:.3g}; each accelerator is claimed to keep {claimed / middle:.2f} times as much of its speed.",
                weight=claimed / high,
                k=item.point.k,
            )
        )
    return found


def weak_baseline(
    series: Series, expected: Sequence[Expected], beliefs: Beliefs, factor: float
) -> list[Finding]:
    """A baseline that is slow while the other runs are not: the speedup is borrowed from it.

    Slow is outside the 95 % band, or, with two other points or more, further from their common residual than the
    95 % band of a ratio allows.
    """
    start = series.reference
    base = next((item for item in expected if start is not None and item.point.k == start.k), None)
    others = [
        item for item in expected if base is not None and item.point.k > base.point.k and item.point.time_s
    ]
    if base is None or base.point.time_s is None or not others:
        return []
    slow = base.point.time_s / base.time_s
    residuals = [(item.point.time_s or item.time_s) / item.time_s for item in others]
    borrowed = slow / median(residuals)
    last = others[-1]
    middle, _, high = ratio_band(last, base, beliefs.noise, factor)
    half = math.log(high / middle)
    outside = base.point.time_s > base.high_s and borrowed > BORROWED
    alone = len(others) >= 2 and math.log(borrowed) > half
    if not outside and not alone:
        return []
    speedup = series.speedup(last.point)
    shown = f" of S = {speedup:.3g}" if speedup else ""
    left = f"; without it S is {speedup / borrowed:.3g}" if speedup else ""
    return [
        Finding(
            code="weak-baseline",
            severity="suspicious",
            claim=f"T({base.point.k}) = {in_words(base.point.time_s, 's')}",
            bound=f"95 % band {band_in_words(base.low_s, base.high_s, 's')}, and within {math.expm1(half):.0%} of the other runs",
            evidence=(
                f"Against the model the baseline takes {slow:.2f} times as long, the runs beyond it {median(residuals):.2f} times: "
                f"a factor {borrowed:.2f}{shown} at K = {last.point.k} is borrowed from the baseline{left}."
            ),
            weight=borrowed,
            k=base.point.k,
        )
    ]


def ladder(setup: Setup, beliefs: Beliefs, seed: int, *, recompute: Recompute | None = None) -> list[Rung]:
    """E(K) over the K of a set-up with the 95 % band that holds those of all stacks; K0 is the smallest feasible K."""
    curves = curves_of(setup, recompute, beliefs, seed)
    bands = [band for band in (efficiency_band(one, beliefs, WIDEN) for one in curves) if band is not None]
    if len(bands) < len(curves) or not bands:
        return []
    middle, low, high = (
        np.stack([getattr(band, name) for band in bands]) for name in ("middle", "low", "high")
    )
    usable = np.logical_and.reduce([one.feasible for one in curves])
    return [
        Rung(
            int(setup.k[at]),
            float(np.exp(np.log(middle[:, at]).mean())),
            float(low[:, at].min()),
            float(high[:, at].max()),
        )
        for at in np.flatnonzero(usable).tolist()
    ]


def knee_before_range(series: Series, rungs: Sequence[Rung]) -> list[Finding]:
    """Even the upper band falls below the threshold at half of the largest claimed K."""
    points = series.all
    if not points or not rungs:
        return []
    last = points[-1]
    hopeful = [rung.k for rung in rungs if rung.high >= DEFAULT_THRESHOLD]
    knee = max(hopeful, default=rungs[0].k)
    beyond = [rung for rung in rungs if rung.k <= last.k and rung.k >= 2 * knee]
    if not beyond or beyond[-1].high >= DEFAULT_THRESHOLD:
        return []
    claimed = series.efficiency(last)
    kept = "not stated" if claimed is None else f"{claimed:.2f}"
    # A claim that shows its own low efficiency hides nothing: the knee is then advice, not suspicion.
    open_about_it = claimed is not None and claimed < DEFAULT_THRESHOLD
    return [
        Finding(
            code="knee-before-range",
            severity="note" if open_about_it else "suspicious",
            claim=f"K = {last.k} with E {kept}",
            bound=f"knee (E >= {DEFAULT_THRESHOLD:g}) at K <= {knee}",
            evidence=f"At K = {beyond[-1].k} the 95 % band of E is {beyond[-1].low:.2f} to {beyond[-1].high:.2f}.",
            weight=last.k / knee,
            k=last.k,
        )
    ]
