"""What would narrow the band most: one fact that the job leaves out, or one measurement, and the width after it.

A fact that is stated has no doubt left; a measured rate has that of a benchmark against a step. What is left of the signs
that make the band (`beliefs/bands.py`) gives its width by the same equation and factor. A run on one node is a Gaussian
observation of the step there, and its band that of `one_node`. Nothing is drawn and nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.bands import computing_share
from perfmodel.beliefs.extrapolation import SIGNS, population_signs
from perfmodel.beliefs.features import discrepancy
from perfmodel.beliefs.population import DISCREPANCIES, Beliefs
from perfmodel.physics.coefficients import NAMES
from perfmodel.training.curve import Curve, declares
from perfmodel.training.declared import LINK_SPREAD, MATMUL_SPREAD
from perfmodel.training.setup import Setup

Array = NDArray[np.float64]

WORTH: Final = 0.02  # part of its width that a band must lose for a fact to be named
MOST: Final = 5  # facts that are named
SHOWN: Final = 4  # significant digits


@dataclass(frozen=True)
class Fact:
    """Something that nobody stated: the beliefs that stand in for it, and the doubt that is left once it is known."""

    name: str
    coefficients: tuple[str, ...]
    is_open: Callable[[Setup, Curve, int], bool]
    how: str
    left: float = 0.0  # log-spread


FACTS: Final[tuple[Fact, ...]] = (
    Fact(
        "attention kernel",
        ("unfused",),
        lambda setup, found, at: bool(setup.operations.is_transformer) and setup.facts.attention is None,
        "state stack.attention, for example flash2, cudnn or unfused",
    ),
    Fact(
        "virtual pipeline stages",
        ("interleave",),
        lambda setup, found, at: bool(np.isnan(_at(found.at.vpp, at))),
        "state layout.vpp",
    ),
    Fact(
        "recomputation",
        ("recompute",),
        lambda setup, found, at: bool(np.isnan(_at(found.at.recompute, at))),
        "state layout.recompute: none, selective, full or a share",
    ),
    Fact(
        "spread of step times",
        ("jitter",),
        lambda setup, found, at: setup.jitter is None,
        "state jitter, from the step times of a run that you have",
    ),
    Fact(
        "rate of a large matrix product",
        ("matmul",),
        lambda setup, found, at: not any(one.coefficient == "matmul" for one in setup.measured),
        "perfmodel measure matmul on one such accelerator, then matmul_fraction in its spec",
        MATMUL_SPREAD,
    ),
    Fact(
        "rates of the links",
        ("up_efficiency", "up_step_s", "out_efficiency", "out_step_s", "base_s", "bus_bytes_per_s"),
        lambda setup, found, at: bool(_at(found.k, at) > 1.0),
        "run nccl-tests on two nodes, then perfmodel calibrate --nccl",
        LINK_SPREAD,
    ),
)
ONE_NODE: Final = "step time on one node"
ONE_NODE_HOW: Final = "rent one node for ten minutes, then perfmodel calibrate --timings"


def narrow(found: Curve, beliefs: Beliefs) -> list[dict[str, object]]:
    """Facts and measurements at the largest feasible K, the one that leaves the narrowest band first.

    `half_width` is the present half-width of the 90 % band as a fraction of the step time, `half_width_after` what it would
    be. Nothing is offered once the job has step times of its own.
    """
    known = beliefs.calibration
    if not found.feasible.any() or (known is not None and known.k.size):
        return []
    setup, at = found.setup, int(np.flatnonzero(found.feasible)[-1])
    factor = beliefs.factor("datasheet", setup.workload.kind)
    present = float(np.sinh(factor * found.spread[at]))
    known_facts = declares(setup)[:, None]
    effects = np.concatenate(
        [np.where(known_facts, 0.0, found.jacobian), discrepancy(setup.operations, found.at)]
    )
    spread = np.concatenate([found.belief.spread, np.zeros(len(DISCREPANCIES))])
    rows = []
    for fact in FACTS:
        if fact.is_open(setup, found, at):
            index = [NAMES.index(name) for name in fact.coefficients]
            after = _stated(found, beliefs, effects[:, [at]], spread, index, fact.left)
            rows.append((fact.name, float(np.sinh(factor * after)), fact.how))
    measured = _on_one_node(found, beliefs, effects, np.square(spread) + beliefs.scatter, at)
    if measured is not None:
        rows.append((ONE_NODE, float(np.sinh(measured)), ONE_NODE_HOW))
    rows = sorted((row for row in rows if row[1] < (1.0 - WORTH) * present), key=lambda row: (row[1], row[0]))
    return [
        {"fact": name, "half_width": _digits(present), "half_width_after": _digits(after), "how": how}
        for name, after, how in rows[:MOST]
    ]


def _stated(
    found: Curve, beliefs: Beliefs, effects: Array, spread: Array, index: list[int], left: float
) -> float:
    """Log spread at one K where the doubt of some coefficients is no more than `left`."""
    setup = found.setup
    open_, scatter = np.square(spread), beliefs.scatter.copy()
    share = np.minimum(left**2 / np.maximum(open_[index] + scatter[index], 1e-300), 1.0)
    open_[index], scatter[index] = share * open_[index], share * scatter[index]
    at = int(np.flatnonzero(found.feasible)[-1])
    k = found.k[[at]]
    signs, computing = population_signs(effects, scatter, open_), computing_share(effects)
    before = population_signs(effects, beliefs.scatter, np.square(spread))
    features = setup.features()
    narrowed, wide = (
        beliefs.band_spread("datasheet", features, one, computing, k) for one in (signs, before)
    )
    return float(found.spread[at] * narrowed[0] / wide[0])


def _on_one_node(found: Curve, beliefs: Beliefs, effects: Array, variance: Array, at: int) -> float | None:
    """Log half-width after a timing at the largest feasible K of one node; None where that is not on the curve."""
    setup = found.setup
    inside = np.flatnonzero(found.feasible & (found.k <= setup.machine.node))
    if not inside.size or at in inside:
        return None
    seen = int(inside[-1])
    here, there = effects[:, seen], effects[:, at]
    gain = float(here @ (variance * here)) + beliefs.noise**2
    left = float(there @ (variance * there)) - float(there @ (variance * here)) ** 2 / gain
    signs = np.zeros((len(SIGNS), 1))
    signs[SIGNS.index("floor")] = 1.0
    signs[SIGNS.index("spread")] = np.sqrt(max(left, 0.0) + beliefs.noise**2)
    signs[SIGNS.index("reach")] = np.sqrt(np.log2(found.k[at] / found.k[seen]))
    signs[SIGNS.index("crossing")] = 1.0
    spread = beliefs.band_spread(
        "one_node", setup.features(), signs, computing_share(effects[:, [at]]), found.k[[at]]
    )
    return float(beliefs.factor("one_node", setup.workload.kind) * spread[0])


def _at(values: Array, index: int) -> float:
    array = np.asarray(values)
    return float(array[index] if array.ndim else array)


def _digits(value: float) -> float:
    return float(f"{value:.{SHOWN}g}")
