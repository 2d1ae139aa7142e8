"""`perfmodel law stragglers`: the expected slowest of K workers, by distribution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import Problem, UsageError, did_you_mean
from perfmodel.physics.stragglers import FAMILIES
from perfmodel.physics.variation import Variation, expected_factor, spread_of
from perfmodel.results.envelope import Result
from perfmodel.specs.jitter import read_samples

_GRID = np.unique(np.round(np.geomspace(1.0, 1e7, 2001)))


@dataclass(frozen=True, slots=True)
class StragglerOptions:
    """What to tabulate; no families means all. `efficiency` is the level 1/E[max] whose K is sought."""

    k: tuple[int, ...]
    spread: tuple[float, ...] = (0.05,)
    families: tuple[str, ...] = ()
    tail: float = 3.0
    shift: float = 0.0
    efficiency: float = 0.5
    samples: Path | None = None

    def __post_init__(self) -> None:
        problems = [
            Problem(code="U022", message=f"{flag} must be {text}")
            for flag, ok, text in (
                ("--spread", all(0.0 <= s <= 5.0 for s in self.spread), "between 0 and 5"),
                ("--tail", 2.0 < self.tail <= 1000.0, "above 2"),
                ("--shift", 0.0 <= self.shift < 1.0, "zero or above, and below 1"),
                ("--efficiency", 0.0 < self.efficiency <= 1.0, "above 0 and at most 1"),
            )
            if not ok
        ]
        problems += [
            Problem(
                code="U022",
                message=f'--distribution: no "{name}"{did_you_mean(name, FAMILIES)}',
                help=f"one of all, {', '.join(FAMILIES)}",
            )
            for name in self.families
            if name not in FAMILIES
        ]
        if problems:
            raise UsageError(problems)


def tabulate(options: StragglerOptions, *, seed: int = 0) -> Result:
    """E[max of K] over the mean, and the efficiency 1/E[max] that waiting leaves, for each distribution.

    >>> found = tabulate(StragglerOptions((1, 4), spread=(1.0,), families=("exponential",))).result
    >>> [round(float(x), 4) for x in found["expected_max"]["exponential"]]    # H_4 = 25/12
    [1.0, 2.0833]
    """
    made: dict[str, Variation] = {}
    for spread in options.spread:
        for family in options.families or FAMILIES:
            name = family if len(options.spread) == 1 else f"{family}, spread {spread:g}"
            made[name] = Variation(family, spread, tail=options.tail, constant=options.shift)
    if options.samples is not None:
        measured = Variation("empirical", samples=tuple(read_samples(options.samples)))
        made["samples"] = measured
    k = np.array(options.k, float)
    factor = {name: expected_factor(k, v) for name, v in made.items()}
    rows = {name: _falls(v, options.efficiency) for name, v in made.items()}
    result: dict[str, object] = {
        "k": list(options.k),
        "expected_max": factor,
        "efficiency": {name: 1.0 / f for name, f in factor.items()},
        "efficiency_level": options.efficiency,
        "smallest_k_below": rows,
        "distributions": {name: v.in_words() for name, v in made.items()},
        "spread": {name: spread_of(v) for name, v in made.items()},
    }
    result["answer"] = _sentence(options.k[-1], factor)
    inputs = {
        "k": list(options.k), "spread": list(options.spread), "families": list(options.families or FAMILIES),
        "tail": options.tail, "shift": options.shift, "efficiency": options.efficiency,
        "samples": len(made["samples"].samples) if "samples" in made else None,
    }  # fmt: skip
    return Result("straggler", inputs, result, seed)


def _falls(variation: Variation, level: float) -> float:
    """The smallest K (of a dense grid to ten million) at which waiting alone leaves less than `level`; infinite if none."""
    below = np.flatnonzero(1.0 / expected_factor(_GRID, variation) < level)
    return float(_GRID[below[0]]) if below.size else np.inf


def _sentence(last: int, factor: Mapping[str, NDArray[np.float64]]) -> str:
    ends = {name: float(values[-1]) for name, values in factor.items()}
    least, most = min(ends, key=lambda name: ends[name]), max(ends, key=lambda name: ends[name])
    if least == most:
        return f"At K = {last} the slowest takes {ends[most]:.4g} times the mean: waiting alone leaves an efficiency of {1 / ends[most]:.1%}."
    return (
        f"At K = {last} the slowest takes {ends[least]:.4g} ({least}) to {ends[most]:.4g} ({most}) times the mean: waiting alone "
        f"leaves an efficiency of {1 / ends[most]:.1%} to {1 / ends[least]:.1%}."
    )
