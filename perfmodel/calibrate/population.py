"""Fit the population beliefs on many families, and turn a fit into beliefs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import level_value
from perfmodel.beliefs.population import DISCREPANCIES, Beliefs
from perfmodel.calibrate.mixed import Fit, fit, make_shifts
from perfmodel.calibrate.observations import Observations
from perfmodel.physics.coefficients import KNOWN, LEVELS, MEDIANS, NAMES, SPREADS

Array = NDArray[np.float64]

# Prior spread of a shift at each level, as a share of the coefficient's own spread: the finer, the smaller.
LEVEL_SHARE: dict[str, float] = {
    "generation": 0.5,
    "generation*width": 0.4,
    "framework": 0.5,
    "framework*generation": 0.5,
    "framework*era": 0.5,
    "framework*tuning": 0.5,
    "kind": 0.5,
    "kind*width": 0.4,
    "peer": 0.5,
    "scale_up": 0.5,
    "scale_out": 0.5,
    "tuning": 0.5,
}
SCATTER_SHARE = 0.35  # of a coefficient's spread, between jobs that share every level
DISCREPANCY_SPREADS: dict[str, float] = {
    "offset": 0.10,
    "log2_k": 0.01,
    "crossed": 0.02,
    "log2_nodes": 0.01,
    "log_batch": 0.03,
    "log_tp": 0.05,
    "log_pp": 0.05,
    "log_cp": 0.05,
    "log_ep": 0.05,
    "repeated": 0.03,
    "log_micro_batch": 0.03,
    "log_tokens": 0.05,
}
# Families of which only ratios over K mean something get an offset of this many times the usual variance.
FREE_OFFSET = 400.0
START_NOISE = 0.03
# Coefficients that only tell jobs apart: what all jobs share belongs to the others.
PINNED = {"pace": 0.01}
# The spread of a level may grow to this where the data ask for it ...
LARGEST_SPREAD = 1.5
# ... but for what is a rate or a share of a device or a link, to no more than this many times its prior.
PHYSICAL = frozenset(
    {
        "matmul", "attention", "memory", "elementwise", "call_s", "tail", "out_efficiency", "out_step_s", "tp_exposed",
        "bubble", "last_stage",
    }
)  # fmt: skip
LARGEST_GROWTH = 5.0
# Links inside a node are timed on their own, in collective sweeps: what a step needs beyond that is not theirs.
TIMED = frozenset({"up_efficiency", "up_step_s", "base_s"})
TIMED_GROWTH = 1.75


def scatter_prior() -> Array:
    """Variance of every effect between jobs, before anything is fitted."""
    own = [(SCATTER_SHARE * SPREADS[name]) ** 2 for name in NAMES]
    return np.array(own + [DISCREPANCY_SPREADS[name] ** 2 for name in DISCREPANCIES])


def fit_population(
    data: Observations,
    ids: Sequence[int],
    *,
    spreads: Mapping[tuple[str, str], float] | None = None,
    previous: Fit | None = None,
    learning: int = 12,
    settling: int = 0,
) -> Fit:
    """Fit the families `ids`; with `previous`, start there, keep its variances and only settle (for folds).

    `spreads` are those of the levels, by coefficient and level; without them they are learnt.
    """
    shifts = make_shifts([data.features[i] for i in ids], LEVELS)
    prior = np.array(
        [
            np.log(MEDIANS[c]) if level == "all" else KNOWN.get((c, level, v), 0.0)
            for c, level, v in shifts.names
        ]
    )
    spread = np.array(
        [
            (PINNED.get(c, SPREADS[c]) if level == "all" else SPREADS[c] * LEVEL_SHARE[level])
            for c, level, _ in shifts.names
        ]
    )
    largest = np.array([_largest(c, s) for (c, _, _), s in zip(shifts.names, spread, strict=True)])
    if spreads is not None:
        known = [spreads.get((c, level), s) for (c, level, _), s in zip(shifts.names, spread, strict=True)]
        spread = np.minimum(known, largest)
    start = prior.copy()
    variances, scale = scatter_prior(), START_NOISE
    if previous is not None:
        values = dict(zip(previous.shifts.names, previous.values, strict=True))
        found = dict(zip(previous.shifts.names, previous.prior_sd, strict=True))
        start = np.array([values.get(name, 0.0) for name in shifts.names])
        spread = np.array([found.get(name, s) for name, s in zip(shifts.names, spread, strict=True)])
        variances, scale = previous.scatter, previous.noise
    return fit(
        data.model,
        data.target,
        data.slopes,
        data.families(ids),
        shifts,
        start=start,
        prior=prior,
        prior_sd=spread,
        largest_sd=largest if spreads is None else None,
        scatter=variances,
        scatter_prior=scatter_prior(),
        noise=scale,
        learning=learning if previous is None else 0,
        settling=settling,
        weights=None if previous is None else previous.weights,
        offset_boost=np.where(data.ratio_only[list(ids)], FREE_OFFSET, 1.0),
    )


def _largest(coefficient: str, spread: float) -> float:
    """What the spread of a level, `spread` before anything is fitted, may grow to."""
    if coefficient in TIMED:
        return TIMED_GROWTH * spread
    return LARGEST_GROWTH * spread if coefficient in PHYSICAL else LARGEST_SPREAD


def to_beliefs(
    found: Fit,
    data: Observations,
    ids: Sequence[int],
    *,
    meta: Mapping[str, object] | None = None,
) -> Beliefs:
    """Beliefs with counts of the families behind every shift."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for i in ids:
        for name in NAMES:
            counts[(name, "all", "")] += 1
            for level in LEVELS[name]:
                counts[(name, level, level_value(data.features[i], level))] += 1
    groups = {
        found.shifts.group_names[group]: float(found.prior_sd[np.flatnonzero(found.shifts.group == group)[0]])
        for group in range(len(found.shifts.group_names))
    }
    return Beliefs(
        values=dict(zip(found.shifts.names, found.values.tolist(), strict=True)),
        spreads=dict(zip(found.shifts.names, found.deviations.tolist(), strict=True)),
        level_spreads={key: value for key, value in groups.items() if key[1] != "all"},
        counts=dict(counts),
        scatter=found.scatter,
        noise=found.noise,
        meta=meta or {},
    )


def population_logs(beliefs: Beliefs, data: Observations, ids: Sequence[int]) -> Array:
    """Population log coefficients of the given families, shape (n_coefficients, families)."""
    return np.stack([beliefs.belief(data.features[i]).median for i in ids], axis=1)
