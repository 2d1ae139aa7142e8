"""The verdict: one sentence that a report can quote."""

from __future__ import annotations

import numpy as np

from perfmodel.study.bend import Bend
from perfmodel.study.money import Money
from perfmodel.study.options import StudyOptions
from perfmodel.study.quality import Gate
from perfmodel.study.split import COMMUNICATION, IMBALANCE, INPUT, OTHER, SERIAL, STRAGGLER, WAITING
from perfmodel.study.statistics import Points
from perfmodel.study.textbook import beyond_one

_NAMED = {
    COMMUNICATION: "communication",
    SERIAL: "serial work",
    STRAGGLER: "a straggler",
    IMBALANCE: "load imbalance",
    WAITING: "waiting for a straggler or an uneven share",
    INPUT: "the input pipeline",
    OTHER: "time outside the measured parts",
}


def clearing_k(points: Points, gate: Gate, threshold: float) -> int | None:
    """The largest K that clears both the quality gate and the efficiency threshold; none at which E is above 1.

    Where E is above 1 the baseline is not honest, and nothing measured against it is recommended.
    """
    clears = gate.passed & (points.efficiency >= threshold - 1e-12) & ~beyond_one(points)
    found = np.flatnonzero(clears)
    return int(points.k[found[-1]]) if found.size else None


def sentence(
    points: Points,
    gate: Gate,
    money: Money,
    bend: Bend,
    options: StudyOptions,
    recommended_k: int | None,
    further: str | None,
) -> str:
    """The verdict on this workload."""
    if recommended_k is None:
        return _refusal(points, gate, bend, options, further)
    index = int(np.flatnonzero(points.k == recommended_k)[0])
    workers = f"{recommended_k} worker{'s' if recommended_k != 1 else ''}"
    facts = [f"at efficiency {points.efficiency[index]:.2f}", _quality(points, gate, index)]
    text = f"On this workload the system scales to {workers} {facts[0]} {facts[1]} and {_cost(money, options, index)}"
    energy = points.columns.get("energy_j")
    if energy is not None and np.isfinite(energy[index]):
        text += f" and energy per unit of work {energy[index] / money.work[index]:.4g} J"
    text += ", and "
    if bend.k is None:
        text += (
            f"up to K = {int(points.k[-1])}, the largest measured, no point falls below {options.threshold:g}"
        )
        if bend.leading is not None:
            text += f" (the largest loss so far is {_NAMED[bend.leading]})"
    elif bend.leading is not None:
        text += f"beyond it {_NAMED[bend.leading]}{_doubt(bend)} makes further scaling uneconomic"
    text += "."
    if gate.excluded_k:
        listed = ", ".join(str(k) for k in gate.excluded_k)
        text += f" K = {listed} is out of every ranking: quality not held."
    return text


def doubted(verdict: str) -> str:
    """A verdict on what was read as strong scaling and does not look like it."""
    return f"If this is strong scaling, which it does not look like: {verdict[0].lower()}{verdict[1:]}"


def _quality(points: Points, gate: Gate, index: int) -> str:
    quality = points.columns.get("quality")
    if gate.held is None or quality is None:
        return "with quality not measured"
    return f"with quality held at {quality[index]:.4g}"


def _cost(money: Money, options: StudyOptions, index: int) -> str:
    if money.basis is None:
        return "cost per unit of work unknown (no price)"
    unit = ""
    if options.work is None:
        unit = " (one run)" if options.settled_regime == "strong" else " (one run at the smallest K)"
    return f"cost per unit of work {money.cost_per_work[index]:.4g} USD{unit}"


def _doubt(bend: Bend) -> str:
    if bend.confidence == "weak":
        return " (the likeliest cause: these timings do not rule out the others)"
    return f", with {_NAMED[bend.second]} close behind," if bend.second is not None else ""


def _refusal(points: Points, gate: Gate, bend: Bend, options: StudyOptions, further: str | None) -> str:
    clears = clearing_k(points, gate, options.threshold)
    if points.k.size == 1:
        return (
            f"No K is recommended: one K only (K = {points.baseline_k}) shows no scaling; time at least three "
            "different K."
        )
    text = "No K is recommended: these timings name no cause for the loss"
    if bend.k is not None:
        text += f" that bends the curve at K = {bend.k}"
    if clears is not None:
        text += f" (K = {clears} is the largest that clears the quality gate and efficiency {options.threshold:g})"
    return text + (f"; {further}." if further else ".")
