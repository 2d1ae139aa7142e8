"""Checks that a reader of a scaling chart would make, and the six-row reporting checklist.

Each check is one function of the study that returns findings with a stable code. A finding never changes a
number: it says what the numbers may hide and how to find out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from perfmodel.study.bend import Bend
from perfmodel.study.money import Money
from perfmodel.study.options import StudyOptions
from perfmodel.study.quality import Gate
from perfmodel.study.statistics import Points
from perfmodel.study.table import Timings
from perfmodel.study.textbook import beyond_one, honest_baseline, price_reads_as

ENOUGH_REPEATS = 3
_SAME_BATCH = 0.01
_PARTS_GAP = 0.02
# Off the median of its K, and by so many median deviations of the others.
_OUTLYING, _OUTLYING_SPREADS = 0.15, 6.0
LOOKS_WEAK = "looks_weak"
_FLAT, _FLAT_OVER = 0.9, 4.0  # share of T(K0) that stays over this range of K: no speedup to speak of


@dataclass(frozen=True, slots=True)
class Finding:
    """What was noticed, at which K, and what to do about it."""

    code: str
    severity: Literal["warning", "note"]
    message: str
    advice: str
    k: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the checks may look at."""

    timings: Timings
    points: Points
    options: StudyOptions
    gate: Gate
    money: Money
    bend: Bend


def _listed(ks: Iterable[float]) -> str:
    limit = 8
    names = [str(int(k)) for k in ks]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def superlinear(e: Evidence) -> list[Finding]:
    """E above 1 beyond its interval: the baseline is slower than it should be, or the problem changed."""
    p = e.points
    beyond = beyond_one(p)
    if not beyond.any():
        return []
    ks = p.k[beyond]
    honest = honest_baseline(p)
    again = (
        f"; --baseline-k {honest} measures against the smallest K from which nothing is superlinear"
        if honest is not None and honest != p.baseline_k
        else ""
    )
    return [
        Finding(
            "superlinear",
            "warning",
            f"superlinear: E = {p.efficiency[beyond].max():.3f} at most, at K = {_listed(ks)}; none of these is recommended",
            f"the likeliest cause is a working set that outgrew memory or cache at the baseline K = {p.baseline_k} and fits when it "
            f"is split: confirm it by one run at K = {p.baseline_k} with the share of one worker at K = {int(ks[0])} as its whole "
            f"problem, which must be as fast as that worker; then audit swapping, cold caches, debug settings{again}",
            tuple(int(k) for k in ks),
        )
    ]


def too_straight(e: Evidence) -> list[Finding]:
    """A curve without any loss over a wide range, or with the very same loss everywhere."""
    p = e.points
    if p.k.size < 4 or p.relative[-1] < 8:
        return []
    tight = 0.02 if p.regime == "strong" else 0.002
    rest = p.efficiency[1:]
    ideal = bool(np.all(np.abs(rest - 1.0) <= tight))
    constant = bool(rest.max() - rest.min() <= 0.002 * rest.max())
    if not (ideal or constant):
        return []
    what = (
        f"E stays within {100 * tight:g} % of 1" if ideal else f"E is the same at every K ({rest.mean():.3f})"
    )
    return [
        Finding(
            "too_straight",
            "warning",
            f"suspiciously straight: {what} up to K = {int(p.k[-1])}",
            "two mistakes look like this: a weak baseline (one worker that ran slower than it could) and a problem that changed "
            f"with K; time K = {p.baseline_k} once more with the settings and the whole problem of K = {int(p.k[-1])}, and show the raw "
            "times: points may also be extrapolated or rescaled",
        )
    ]


def batch(e: Evidence) -> list[Finding]:
    """The batch must be fixed in a strong study and grow with K in a weak one."""
    size = e.points.columns.get("global_batch")
    if size is None or not np.isfinite(size).all() or e.points.k.size < 2:
        return []
    k = e.points.k
    whole = size / size[0]
    per_worker = whole / e.points.relative
    steady = np.abs(whole - 1.0) <= _SAME_BATCH
    scaled = np.abs(per_worker - 1.0) <= _SAME_BATCH
    if e.points.regime == "strong" and not steady.all():
        moved = k[~steady]
        looks = " in proportion: this is a weak study" if scaled.all() else ""
        return [
            Finding(
                "batch_grows",
                "warning",
                f"strong scaling, but the global batch changes with K (K = {_listed(moved)}){looks}",
                "fix the global batch, or state --regime weak and judge T(K0)/T(K)",
                tuple(int(x) for x in moved),
            )
        ]
    if e.points.regime == "weak" and not scaled.all():
        moved = k[~scaled]
        return [
            Finding(
                "batch_per_worker",
                "warning",
                f"weak scaling, but the batch per worker is not constant (K = {_listed(moved)})",
                "fix the batch per worker, or state --regime strong with a fixed global batch",
                tuple(int(x) for x in moved),
            )
        ]
    return []


def repeats(e: Evidence) -> list[Finding]:
    """Single runs have no variance; repeats that agree to the last digit are copies."""
    p = e.points
    found = []
    single = p.k[p.repeats < 2]
    if single.size == p.k.size:
        message = "no repeats: every point is a single run, so no interval and no variance can be given"
        found.append(Finding("no_repeats", "warning", message, f"run each K at least {ENOUGH_REPEATS} times"))
    else:
        if p.repeats[0] < 2:
            message = f"the baseline at K = {p.baseline_k} is a single run: every S and E inherits its luck"
            found.append(
                Finding("single_baseline", "warning", message, "repeat the baseline first", (p.baseline_k,))
            )
        others = single[single != p.k[0]]
        if others.size:
            ks = tuple(int(k) for k in others)
            message = f"single runs at K = {_listed(others)}"
            found.append(Finding("single_runs", "note", message, "repeat them: no variance, no interval", ks))
    copies = p.k[(p.repeats > 1) & (p.std_s == 0.0)]
    if copies.size:
        message = f"repeats at K = {_listed(copies)} agree to the last digit"
        advice = "timings of real runs differ: check that these are not copies of one run"
        found.append(Finding("identical_repeats", "warning", message, advice, tuple(int(k) for k in copies)))
    return found


def outlying(e: Evidence) -> list[Finding]:
    """One run apart from others that agree: the mean goes with it, and the interval."""
    found = []
    for k in e.points.k[e.points.repeats >= ENOUGH_REPEATS]:
        times = e.timings.time_s[e.timings.k == k]
        middle = float(np.median(times))
        off = np.abs(times - middle)
        apart = times[off > np.maximum(_OUTLYING * middle, _OUTLYING_SPREADS * np.median(off))]
        if apart.size == 1:
            message = f"one run at K = {int(k)} took {apart[0]:.4g} s, the median of its {times.size} is {middle:.4g} s"
            advice = "find out why and time it again: mean, E and interval at this K rest on it"
            found.append(Finding("outlying_run", "warning", message, advice, (int(k),)))
    return found


def coarse(e: Evidence) -> list[Finding]:
    """K that were left out where the bend is: the recommended one may be too small by as much."""
    last = e.points.k[e.points.k < (e.bend.k or 0)]
    if e.bend.k is None or not last.size or e.bend.k <= 2 * last[-1]:
        return []
    low, high = int(last[-1]), e.bend.k
    message = f"nothing was timed between K = {low} and the bend at K = {high}"
    advice = f"time K = {round(2 ** round(np.log2(low * high) / 2))} to place it"
    return [Finding("coarse_bend", "note", message, advice, (low, high))]


def baseline(e: Evidence) -> list[Finding]:
    """K0 above 1 hides whatever was lost before it; a single K is no study."""
    p = e.points
    found = []
    if p.k.size == 1:
        message = f"one K only (K = {p.baseline_k}): there is no curve"
        found.append(Finding("one_k", "warning", message, "time at least three different K"))
    if p.baseline_k != 1:
        message = f"no K = 1: the baseline is K = {p.baseline_k}, taken as S = {p.baseline_k}"
        advice = "losses below the baseline are hidden; time K = 1, or say why it cannot run"
        found.append(Finding("baseline_above_one", "note", message, advice, (p.baseline_k,)))
    return found


def regime(e: Evidence) -> list[Finding]:
    """A study that does not say what stays fixed; its batches may tell, and without them its times."""
    if e.options.regime is not None:
        return []
    message = "the regime is not stated: read as strong scaling (the whole problem fixed)"
    found = [Finding("missing_regime", "warning", message, "pass --regime strong or --regime weak")]
    p, size = e.points, e.points.columns.get("global_batch")
    # Where the batches are known the study has read the regime from them.
    if size is None and p.relative[-1] >= _FLAT_OVER and p.mean_s.min() >= _FLAT * p.mean_s[0]:
        message = f"the time hardly falls up to K = {int(p.k[-1])}, as in weak scaling"
        found.append(Finding(LOOKS_WEAK, "warning", message, "pass --regime weak if the work grows with K"))
    return found


def table(e: Evidence) -> list[Finding]:
    """Parts that do not add up to the time, and columns that were not understood."""
    found = []
    p = e.points
    if p.parts_s and not e.timings.time_from_parts:
        gap = np.abs(np.sum(list(p.parts_s.values()), axis=0) / p.mean_s - 1.0)
        off = p.k[gap > _PARTS_GAP]
        if off.size:
            message = (
                f"the parts miss time_s by more than {100 * _PARTS_GAP:g} % at K = {_listed(off)} "
                f"(at most {100 * gap.max():.0f} %)"
            )
            advice = "the rest is counted as other; time the missing part"
            found.append(Finding("parts_gap", "note", message, advice, tuple(int(k) for k in off)))
    if e.timings.ignored:
        message = f"columns not used: {', '.join(e.timings.ignored)}"
        found.append(Finding("ignored_columns", "note", message, "see perfmodel study --help for the names"))
    if e.options.price_usd_per_s is not None and "price_usd_per_h" in e.timings.columns:
        message = "--price replaces the table's price_usd_per_h"
        found.append(Finding("price_replaced", "note", message, "leave --price out to use the table's"))
    if e.options.price_per is None and e.options.price_usd_per_s is None:
        found += _price_of_what(price_reads_as(e.timings))
    return found


def _price_of_what(looks: str | None) -> list[Finding]:
    """Whether a price is that of a worker or of the whole cluster, where its numbers leave that open."""
    if looks not in ("worker", "unclear"):
        return []
    message = (
        "price_usd_per_h is the same at every K: read as the price of the whole cluster, it looks like that of one worker"
        if looks == "worker"
        else "price_usd_per_h is neither the same at every K nor in proportion to K: read as the price of the whole cluster"
    )
    advice = "say which it is: --price-per worker, or --price-per cluster to keep this reading"
    return [Finding("price_of_what", "warning", message, advice)]


CHECKS = (superlinear, too_straight, batch, repeats, outlying, coarse, baseline, regime, table)


def examine(evidence: Evidence) -> list[Finding]:
    """Every finding, warnings first, each group in the order of the checks."""
    found = [finding for check in CHECKS for finding in check(evidence)]
    return sorted(found, key=lambda finding: finding.severity != "warning")


def findings_json(findings: list[Finding]) -> list[dict[str, object]]:
    """The findings for the result."""
    return [asdict(finding) for finding in findings]


def checklist(e: Evidence, findings: list[Finding]) -> list[dict[str, object]]:
    """The six rows of a textbook's reporting checklist, then three of our own: bend, quality, cost."""
    codes = {finding.code for finding in findings}
    p = e.points
    fewest = int(p.repeats.min())
    # Without a batch column the workload is what its owner says it is.
    batch_wrong = codes & {"batch_grows", "batch_per_worker"}
    has_batch = "global_batch" in p.columns
    stated = e.options.regime is not None
    setup = p.columns.get("setup_s")
    rows = [
        (
            "baseline: K = 1, repeated, not beaten superlinearly",
            p.baseline_k == 1 and int(p.repeats[0]) > 1 and "superlinear" not in codes,
            f"K = {p.baseline_k}, {_runs(int(p.repeats[0]))}"
            + ("; superlinear points question it" if "superlinear" in codes else ""),
        ),
        (
            "fixed workload: the batch follows the regime",
            (has_batch or e.options.work is not None) and not batch_wrong,
            "the batch contradicts the regime"
            if batch_wrong
            else "global_batch of each row"
            if has_batch
            else "work of a run stated"
            if e.options.work is not None
            else "no global_batch column, no --work: it cannot be checked that the work was the same",
        ),
        (
            "warm-up and set-up excluded",
            setup is not None,
            "setup_s is apart from the times"
            if setup is not None
            else "no setup_s column: start-up and warm-up may be in the times",
        ),
        (
            "repeats and variance at every K",
            fewest >= ENOUGH_REPEATS and "identical_repeats" not in codes,
            f"at least {_runs(fewest)} a point"
            + ("" if fewest >= 2 else ": no interval")
            + (", some identical" if "identical_repeats" in codes else ""),
        ),
        (
            "regime stated: strong or weak",
            stated,
            f"{e.options.settled_regime}{'' if stated else ' (assumed)'}",
        ),
        (
            "efficiency beside speedup",
            p.k.size > 1,
            f"E = {p.efficiency[-1]:.3f} beside S = {p.speedup[-1]:.4g} at K = {int(p.k[-1])}"
            if p.k.size > 1
            else "one K only",
        ),
        (
            "the bend with its cause",
            p.k.size > 1 and e.bend.named,
            f"bend at K = {e.bend.k}: {e.bend.cause}" if e.bend.k is not None else e.bend.cause,
        ),
        ("quality held at every K", e.gate.held is True, _quality_note(e.gate)),
        (
            "cost per unit of work",
            e.money.basis is not None,
            e.money.basis or "no price: pass --price or a price_usd_per_h column",
        ),
    ]
    return [{"item": item, "ok": bool(ok), "note": note} for item, ok, note in rows]


def _runs(n: int) -> str:
    return f"{n} run{'s' if n != 1 else ''}"


def _quality_note(gate: Gate) -> str:
    if gate.held is None:
        return "no quality column: speed may have been bought with it"
    if gate.held:
        return f"largest drift {gate.max_drift:.4g}, tolerance {gate.tolerance:g}"
    return f"excluded: K = {_listed(gate.excluded_k)}"
