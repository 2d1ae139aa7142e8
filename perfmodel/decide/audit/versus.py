"""A claim that compares two machines: "4x the H100". What the hardware differs by, and what the step model expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.beliefs.population import Beliefs
from perfmodel.decide.audit import plausible
from perfmodel.decide.audit.findings import Finding
from perfmodel.decide.audit.subject import Machine
from perfmodel.decide.metrics import log_half_width
from perfmodel.training.setup import Setup

ROUNDING = 1.02  # by which a slide may round a ratio up


@dataclass(frozen=True)
class Side:
    """One of the two machines, as the claim has it."""

    machine: Machine
    setup: Setup | None  # None where nothing can be predicted of it
    k: int
    precision: str | None


@dataclass(frozen=True)
class Compared:
    """Findings, and what of the comparison is shown."""

    findings: list[Finding]
    shown: Mapping[str, object]


def compare(speedup: float, own: Side, other: Side, beliefs: Beliefs, factor: float, seed: int) -> Compared:
    """`own` is claimed to be `speedup` times as fast as `other` at the same work."""
    name = other.machine.name
    claim = f"{speedup:g}x {other.k} {name} on {own.k}" if own.k != other.k else f"{speedup:g}x {name}"
    ratios = _hardware(own, other)
    findings = []
    if own.precision is not None and other.precision is not None and own.precision != other.precision:
        same = (
            (own.k / other.k) * own.machine.peak(other.precision)[0] / other.machine.peak(other.precision)[0]
        )
        findings.append(
            Finding(
                "versus-precision",
                "suspicious",
                claim,
                "one precision",
                f"{own.precision} on one machine and {other.precision} on the other: the peaks differ by "
                f"{ratios['peak at its precision']:.3g}x as compared, and by {same:.3g}x both at {other.precision}.",
                weight=ratios["peak at its precision"] / same,
            )
        )
    most = max(ratios, key=lambda key: ratios[key])
    shown: dict[str, object] = {"claimed": speedup, "k": own.k, "other_k": other.k, "hardware": ratios}
    shown |= dict.fromkeys(("predicted", "low", "high"))
    if speedup > ratios[most] * ROUNDING:
        listed = ", ".join(f"{key} {value:.3g}x" for key, value in ratios.items())
        findings.append(
            Finding(
                "versus-above-hardware",
                "suspicious",
                claim,
                f"{ratios[most]:.3g}x by {most}",
                f"The machines differ by {listed}. What exceeds all of them is software, batch or memory, not speed.",
                weight=speedup / ratios[most],
            )
        )
    band = _band(own, other, beliefs, factor, seed)
    if band is not None:
        middle, low, high = band
        shown |= {"predicted": middle, "low": low, "high": high}
        if speedup > high * ROUNDING:
            findings.append(
                Finding(
                    "versus-above-band",
                    "suspicious",
                    claim,
                    f"95 % band {low:.3g}x to {high:.3g}x",
                    f"With the same software and batch on both, the model expects {middle:.3g}x.",
                    weight=speedup / high,
                )
            )
    return Compared(findings, shown)


def _hardware(own: Side, other: Side) -> dict[str, float]:
    """What the machines differ by in all, as many accelerators as are compared."""
    count = own.k / other.k
    (mine, _), (theirs, _) = own.machine.peak(own.precision), other.machine.peak(other.precision)
    found = {
        "peak at its precision": count * mine / theirs,
        "memory": count * own.machine.memory_bytes / other.machine.memory_bytes,
    }
    links = (
        ("memory bandwidth", "memory_bytes_per_s"),
        ("scale-up link", "up_bytes_per_s"),
        ("network of a node", "node_bytes_per_s"),
    )
    for name, field in links:
        a, b = getattr(own.machine, field), getattr(other.machine, field)
        if a and b:
            found[name] = count * a / b
    return found


def _band(
    own: Side, other: Side, beliefs: Beliefs, factor: float, seed: int
) -> tuple[float, float, float] | None:
    """Predicted T(other) / T(own), each with its best layout: (middle, low, high) over the stacks; None: does not fit."""
    if own.setup is None or other.setup is None:
        return None
    pairs = [
        plausible.curves_of(replace(side.setup, k=np.array([float(side.k)])), None, beliefs, seed)
        for side in (own, other)
        if side.setup is not None
    ]
    if not all(bool(one.feasible[0]) for curves in pairs for one in curves):
        return None
    mine, theirs = (np.array([one.time_s[0] for one in curves]) for curves in pairs)
    draws = [np.stack([one.draws_s[:, 0] for one in curves]) for curves in pairs]
    ratios = theirs / mine
    halves = log_half_width(draws[0].T, draws[1].T, beliefs.noise, factor * plausible.WIDEN)
    middle = float(np.exp(np.log(ratios).mean()))
    return middle, float(np.min(ratios * np.exp(-halves))), float(np.max(ratios * np.exp(halves)))
