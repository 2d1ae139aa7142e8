"""The rules of an honest chart: what a series of points shows by itself, without any model."""

from __future__ import annotations

import math
from itertools import pairwise

from perfmodel.decide.audit.findings import Finding
from perfmodel.decide.audit.normalise import Point, Series, distinct_batches
from perfmodel.decide.audit.subject import Subject

# Thresholds were set on the measured corpus (docs/audit-power.md): efficiency passes 1.05 in 1.6 % of the public
# families, and none of 737 honest series of three or more K is straighter than 0.2 %.
SUPERLINEAR = 1.05
STRAIGHT = 0.0015
STRAIGHT_POINTS = 3
STRAIGHT_SPAN = 4.0  # largest over smallest K
SAME_BATCH = 0.02  # batches that differ by less are the same, rounded to fit K
DISAGREE = 0.05  # two numbers of one point that differ by more contradict each other
DISAGREE_COUNTED = 0.30  # the same where a FLOP count stands between them: conventions differ
QUALITY_DRIFT = 0.005


def superlinear(series: Series) -> list[Finding]:
    """E(K) above 1 by more than noise: the baseline is weak, or something else changed with K."""
    found = []
    for point in series.all:
        efficiency = series.efficiency(point)
        noise = max(SUPERLINEAR, 1.0 + 3.0 * (point.spread or 0.0))
        start = series.reference
        # Two numbers at one K are no scaling, whatever lies between them.
        if efficiency is None or efficiency <= noise or (start is not None and start.k == point.k):
            continue
        base = f"K = {start.k}" if start else "one accelerator"
        found.append(
            Finding(
                code="superlinear",
                severity="suspicious",
                claim=f"E = {efficiency:.4g} at K = {point.k}",
                bound=f"E <= {noise:.4g}",
                evidence=f"Each of {point.k} accelerators works {efficiency:.4g} times as fast as each at {base}; "
                "work that is cut finer does not get easier, unless caches or memory explain it.",
                weight=efficiency / noise,
                k=point.k,
            )
        )
    return found


def too_straight(series: Series) -> list[Finding]:
    """Efficiency that does not move over a wide range of K: drawn, not measured."""
    known = [(point.k, series.efficiency(point)) for point in series.points]
    curve = sorted({k: value for k, value in known if value}.items())
    if len(curve) < STRAIGHT_POINTS or curve[-1][0] < STRAIGHT_SPAN * curve[0][0]:
        return []
    logs = [math.log(value) for _, value in curve]
    spread = max(logs) - min(logs)
    if spread > STRAIGHT:
        return []
    return [
        Finding(
            code="too-straight",
            severity="suspicious",
            claim=f"E = {curve[-1][1]:.4g} from K = {curve[0][0]} to {curve[-1][0]}",
            bound=f"efficiencies differ by more than {STRAIGHT:.2%}",
            evidence=f"{len(curve)} points lie on one line to {spread:.2%}; the closest public series of measured runs moves by 0.2 %.",
            weight=STRAIGHT / max(spread, 1e-4),
            k=curve[-1][0],
        )
    ]


def batches(series: Series, regime: str | None) -> list[Finding]:
    """The batch against the regime that is stated or implied."""
    pairs = distinct_batches(series.points)
    if len(pairs) < 2:
        return []
    (first_k, first), (last_k, last) = pairs[0], pairs[-1]
    per_device = [batch / k for k, batch in pairs]
    fixed = max(b for _, b in pairs) <= (1 + SAME_BATCH) * min(b for _, b in pairs)
    weak = max(per_device) <= (1 + SAME_BATCH) * min(per_device)
    grows = all(b >= a * (1 - SAME_BATCH) for (_, a), (_, b) in pairwise(pairs)) and last > first * (
        1 + SAME_BATCH
    )
    shown = ", ".join(f"{batch:g} at K = {k}" for k, batch in pairs)
    if regime == "strong" and not fixed:
        code, bound = (
            ("batch-grows-with-k" if grows else "regimes-mixed"),
            "one global batch in a strong-scaling chart",
        )
        tail = f"it grows {last / first:.3g} times while K grows {last_k / first_k:.3g} times: part of the speedup is larger batches"
        evidence = (
            f"Global batch: {shown}; {tail if grows else 'points of different experiments are on one chart'}."
        )
    elif (regime == "weak" and not weak) or (regime is None and not weak and not fixed):
        code, bound = "regimes-mixed", "one batch per accelerator (weak) or one global batch (strong)"
        evidence = f"Global batch: {shown}; per accelerator {min(per_device):.3g} to {max(per_device):.3g}. Points of two regimes are on one chart."
    else:
        return []
    return [
        Finding(
            code=code,
            severity="suspicious",
            claim=f"{regime or 'one'} scaling from K = {first_k} to {last_k}",
            bound=bound,
            evidence=evidence,
            weight=last / first if code == "batch-grows-with-k" else max(per_device) / min(per_device),
            k=last_k,
        )
    ]


def changed(series: Series) -> list[Finding]:
    """Precision or recompute that differs between points."""
    found = []
    for code, name in (("precision-changed", "precision"), ("recompute-changed", "recompute")):
        values = [(point.k, getattr(point, name)) for point in series.points if getattr(point, name)]
        if len({value for _, value in values}) > 1:
            shown = ", ".join(f"{value} at K = {k}" for k, value in values)
            found.append(
                Finding(
                    code=code,
                    severity="suspicious",
                    claim=f"one series from K = {values[0][0]} to {values[-1][0]}",
                    bound=f"one {name} at all points",
                    evidence=f"{name.capitalize()}: {shown}. A ratio between points measures the change as well as the scaling.",
                    k=values[-1][0],
                )
            )
    return found


def quality_drops(series: Series) -> list[Finding]:
    """Quality that moves as K grows: a worse result pays for part of the speedup (a score falls, a loss rises)."""
    values = [(point.k, point.quality) for point in series.points if point.quality is not None]
    if len(values) < 2:
        return []
    (k0, first), (k, last) = values[0], max(values[1:], key=lambda item: abs(item[1] - values[0][1]))
    drift = abs(last - first) / abs(first) if first else abs(last)
    if drift <= QUALITY_DRIFT:
        return []
    return [
        Finding(
            code="quality-drops",
            severity="suspicious",
            claim=f"quality {last:g} at K = {k}",
            bound=f"{first:g} at K = {k0}, to {QUALITY_DRIFT:.1%}",
            evidence=f"The run at K = {k} ends {drift:.2%} away: time to the same quality is not what is shown.",
            weight=1 + drift / QUALITY_DRIFT,
            k=k,
        )
    ]


def _implied(point: Point, series: Series, subject: Subject) -> dict[str, float]:
    """The rate per accelerator by each stated measure, in samples per second."""
    load, stated = subject.load_at(point.seq_len), point.stated
    rates: dict[str, float] = {}
    if "throughput" in stated:
        rates["throughput"] = stated["throughput"] / point.k
    if "tokens_per_s" in stated and point.seq_len:
        rates["tokens_per_s"] = stated["tokens_per_s"] / point.seq_len / point.k
    if "time_s" in stated and point.global_batch:
        rates["time_s"] = point.global_batch / stated["time_s"] / point.k
    if load is not None:
        if "tflop_per_s_per_accelerator" in stated:
            rates["tflop_per_s_per_accelerator"] = (
                stated["tflop_per_s_per_accelerator"] * 1e12 / load.model_flop
            )
        if "mfu" in stated:
            rates["mfu"] = stated["mfu"] * subject.machine.peak(point.precision)[0] / load.model_flop
    start = series.reference
    if start is not None and start.rate_per_accelerator and start.k != point.k:
        from_k = 1 if series.one_based else start.k
        if "speedup" in stated:
            rates["speedup"] = stated["speedup"] * from_k / point.k * start.rate_per_accelerator
        if "efficiency" in stated:
            rates["efficiency"] = stated["efficiency"] * start.rate_per_accelerator
    return rates


_COUNTED = frozenset({"mfu", "tflop_per_s_per_accelerator"})


def numbers_disagree(series: Series, subject: Subject) -> list[Finding]:
    """Numbers of one point, or headline and table, that cannot all be true."""
    found = []
    headline = series.headline
    for point in (*series.points, *((headline,) if headline else ())):
        rates = _implied(point, series, subject)
        if headline is not None and point.k == headline.k and point is not headline:
            rates |= {
                f"headline {name}": value for name, value in _implied(headline, series, subject).items()
            }
        direct = {name: rate for name, rate in rates.items() if name.split()[-1] not in _COUNTED}
        for group, allowed in ((direct, DISAGREE), (rates, DISAGREE_COUNTED)):
            if len(group) < 2:
                continue
            low, high = min(group, key=lambda name: group[name]), max(group, key=lambda name: group[name])
            ratio = group[high] / group[low]
            if ratio > 1 + allowed:
                found.append(
                    Finding(
                        code="numbers-disagree",
                        severity="suspicious",
                        claim=f"{high} and {low} at K = {point.k}",
                        bound=f"the same rate to {allowed:.0%}",
                        evidence=f"{high} says {group[high]:.4g} samples/s per accelerator, {low} says {group[low]:.4g}: {ratio:.2f} times apart.",
                        weight=ratio,
                        k=point.k,
                    )
                )
                break
    if headline is not None and "efficiency" in headline.stated and "speedup" in headline.stated:
        found += _ratio_of_ratios(headline, series)
    return found


def _ratio_of_ratios(point: Point, series: Series) -> list[Finding]:
    """A headline's own speedup against its own efficiency, where no rate is known."""
    start = series.baseline
    from_k = 1 if series.one_based or start is None else start.k
    implied = point.stated["speedup"] * from_k / point.k
    ratio = max(implied / point.stated["efficiency"], point.stated["efficiency"] / implied)
    if ratio <= 1 + DISAGREE or point.rate is not None:
        return []
    return [
        Finding(
            code="numbers-disagree",
            severity="suspicious",
            claim=f"speedup {point.stated['speedup']:g} and efficiency {point.stated['efficiency']:g} at K = {point.k}",
            bound="E = S / K",
            evidence=f"A speedup of {point.stated['speedup']:g} on {point.k} is E = {implied:.3g}.",
            weight=ratio,
            k=point.k,
        )
    ]


def findings(series: Series, subject: Subject | None, regime: str | None) -> list[Finding]:
    """Every rule."""
    return [
        *superlinear(series),
        *too_straight(series),
        *batches(series, regime),
        *changed(series),
        *quality_drops(series),
        *(numbers_disagree(series, subject) if subject is not None else ()),
    ]
