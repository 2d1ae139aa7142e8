"""The families that are missed most, and which belief, moved as little as may be, would have explained each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.calibrate.mixed import condition, linearise
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.population import population_logs
from perfmodel.calibrate.posterior import prior_variances
from perfmodel.physics.coefficients import MEANINGS, NAMES
from perfmodel.validate.protocol import Scored

Array = NDArray[np.float64]

SHOWN = 15  # families of each mode
LEAST_SHARE = 0.25  # of the errors that a reason must explain to be named
LARGEST_FACTOR = 20.0  # beyond it, a term was as good as missing


def worst(
    data: Observations, scored: Scored, beliefs_for: Callable[[int], Beliefs], count: int = SHOWN
) -> list[dict[str, object]]:
    """The `count` families with the largest mean absolute error, in falling order, with the likely reason."""
    error = scored.error(data)
    owner = data.family[scored.rows]
    families = np.unique(owner)
    means = np.array([np.abs(np.expm1(error[owner == family])).mean() for family in families])
    found = []
    for index in np.argsort(-means, kind="stable")[:count]:
        family = int(families[index])
        mine = owner == family
        seen = None if scored.mode == "datasheet" else scored.calibration[family]
        found.append(
            {
                "family": data.names[family],
                "mean_ape": round(float(means[index]), 4),
                "k": [int(k) for k in data.at.k[scored.rows[mine]]],
                "error": [round(float(e), 4) for e in np.expm1(error[mine])],
                "reason": likely_reason(
                    data, family, scored.rows[mine], -error[mine], seen, beliefs_for(family)
                ),
            }
        )
    return found


def likely_reason(
    data: Observations,
    family: int,
    rows: NDArray[np.intp],
    missing: Array,
    seen: NDArray[np.intp] | None,
    beliefs: Beliefs,
) -> str:
    """What explains most of `missing`, ln(measured / predicted) at `rows`, at its most probable values.

    All coefficients of the job and an offset are conditioned on the errors together; the one that then makes up the
    largest part of them, by projection, is named. With calibration rows `seen`, what is the same there and at `rows` is
    known already and explains nothing.
    """
    logs = population_logs(beliefs, data, [family])
    effects = _slopes(data, logs, rows)
    if seen is not None:
        effects = effects - _slopes(data, logs, seen).mean(axis=1, keepdims=True)
    variances = prior_variances(beliefs, data, [family])[0][: len(effects)]
    noise = np.full(rows.size, beliefs.noise**2)
    moved = condition(effects, missing, variances, noise).mean
    shares = moved * (effects @ missing) / max(float(missing @ missing), 1e-300)
    best = int(np.argmax(shares))
    if shares[best] < LEAST_SHARE:
        return "no single belief"
    if best == len(NAMES):
        return f"all K alike: the stack, or its label ({shares[best]:.0%})"
    factor = float(np.exp(moved[best]))
    if factor > LARGEST_FACTOR:
        size = f"more than {LARGEST_FACTOR:g} times"
    else:
        size = f"less than 1/{LARGEST_FACTOR:g}" if factor < 1 / LARGEST_FACTOR else f"x{factor:.2g}"
    return f"{MEANINGS[NAMES[best]]} {size} ({shares[best]:.0%})"


def _slopes(data: Observations, logs: Array, rows: NDArray[np.intp]) -> Array:
    """d ln T / d ln c at some rows of one family, and the slope of an offset: (n_coefficients + 1, rows)."""
    _, jacobian = linearise(data.model, rows, np.repeat(logs, rows.size, axis=1))
    return np.vstack([jacobian, np.ones(rows.size)])
