r"""The fit of the serving coefficients: robust, with priors, on all rows at once.

What is sought are the logarithm of every coefficient and its shifts by level (`serving_coefficients`), and the maximum of

.. math:: -\sum_p \frac{(\theta_p - \mu_p)^2}{2 \tau_p^2}
          - \sum_r w_r \frac{c^2}{2} \ln\Big(1 + \frac{e_r^2}{c^2 s_r^2}\Big)                               (1)

with e_r the logarithmic error of a measured throughput, time per token or first token. Rows of a publisher weigh as at
most `CAP` rows together, so that nobody's page rules. The scale of an error has three parts,

.. math:: s_r^2 = \sigma_{q,source}^2 + (g_r - 1)^2 \gamma^2 + (h_r \kappa)^2                              (2)

the scatter of its source, and what a replica near its saturation makes of a small error of its rate (slope g of the
answer in `pace`) or of the room for keys and values (slope h): there an answer says little about any coefficient.

Gauss-Newton steps with weights of Student's kind solve it; a step is one evaluation of the model for each coefficient.
How well a coefficient is known has two parts as well: the curvature of (1), and how much it moves when a publisher is left
out (the jackknife), for a publisher is one sample of how people measure, however long its table.

References: Huber and Ronchetti, Robust Statistics (2009), ch. 7; Efron and Stein, Annals of Statistics 9 (1981) 586.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import level_value
from perfmodel.physics.serving import ServingAnswer, serving_answer
from perfmodel.physics.serving_coefficients import (
    KNOWN,
    LEVELS,
    MEDIANS,
    NAMES,
    SHIFT_SPREADS,
    SPREADS,
    from_logs,
)
from perfmodel.serving.beliefs import ServingBeliefs
from perfmodel.validate.serving_rows import ServingRuns

Array = NDArray[np.float64]
Key = tuple[str, str, str]

#: What is fitted, in the order of the arrays here; percentiles follow from the queue.
FITTED: Final = ("throughput", "tpot", "ttft")
CAP: Final = 100.0
MOST_ROWS: Final = 600  # of a source that are looked at: neighbours in a table say the same
PRIOR_SHARE: Final = 0.5  # of the textbook's spread: whole sources left out are predicted better with it
#: What each publisher has of its own, by coefficient, as a standard deviation of the logarithm (assumed): how it builds,
#: starts and measures its servers. Nobody else is predicted by it.
OWN: Final = "publisher"
OWN_SPREADS: Final = {"pace": 0.2, "layer_s": 0.4, "eager": 0.4, "sequence_s": 0.5, "first_s": 0.3}
_LEAST_SCALE: Final = np.array([0.10, 0.10, 0.20])
_MOST_SCALE: Final = np.array([0.60, 0.60, 0.80])
_FIRST_SCALE: Final = np.array([0.15, 0.15, 0.35])
_BURST: Final = (
    2.5  # scale of a burst over a network against the others: its client decides how fast it comes
)
_RATE_ERROR: Final = 0.15  # gamma of (2)
_ROOM_ERROR: Final = 0.08  # kappa
_TAIL: Final = 2.0  # c of (1)
_STEP: Final = 0.02  # of a logarithm, in which slopes are taken
_LONGEST: Final = 0.7  # step of a logarithm
_ENOUGH: Final = 0.01
_FEWEST: Final = 8  # errors that tell a scatter
#: Share of the jackknife's variance that counts: coefficients move together, and answers less than they.
_MOVED: Final = 0.15
_PACE, _ROOM = NAMES.index("pace"), NAMES.index("cache_room")


def log_answers(runs: ServingRuns, logs: Array) -> tuple[Array, ServingAnswer]:
    """Logarithms of the fitted answers, one a row of the first axis, by those of the coefficients."""
    found = serving_answer(runs.shape, runs.machine, runs.deployment, runs.load, from_logs(logs))
    with np.errstate(divide="ignore", invalid="ignore"):
        answers = np.log(np.stack([found.throughput_out_tokens_per_s, found.tpot_s, found.ttft_s]))
    return np.asarray(answers), found


def slopes(runs: ServingRuns, logs: Array, answers: Array) -> Array:
    """Derivatives of the answers in the logarithm of each coefficient, on the first axis."""
    found = np.empty((len(NAMES), *answers.shape))
    for index in range(len(NAMES)):
        moved = logs.copy()
        moved[index] += _STEP
        found[index] = (log_answers(runs, moved)[0] - answers) / _STEP
    return np.asarray(np.nan_to_num(np.clip(found, -5.0, 5.0)))


@dataclass(frozen=True)
class Design:
    """Which parameters make the coefficients of which rows."""

    keys: tuple[Key, ...]
    mean: Array
    spread: Array
    coefficient: NDArray[np.intp]
    member: NDArray[np.bool_]  # parameter by row

    def logs(self, theta: Array) -> Array:
        """Logarithms of the coefficients of every row."""
        found = np.zeros((len(NAMES), self.member.shape[1]))
        for index, value in enumerate(theta):
            found[self.coefficient[index]] += value * self.member[index]
        return found


def design(runs: ServingRuns) -> Design:
    """The base of each coefficient, and a shift for each value of its levels that the rows have or that is known."""
    count = len(runs)
    keys: list[Key] = []
    members: list[NDArray[np.bool_]] = []
    features = [{name: str(values[i]) for name, values in runs.features.items()} for i in range(count)]
    for name in NAMES:
        keys.append((name, "all", ""))
        members.append(np.ones(count, dtype=bool))
        for level in LEVELS[name]:
            values = np.array([level_value(one, level) for one in features])
            known = {key[2] for key in KNOWN if key[:2] == (name, level)}
            for value in sorted(set(values.tolist()) | known):
                keys.append((name, level, value))
                members.append(values == value)
    for name in OWN_SPREADS:
        for publisher in np.unique(runs.features["publisher"]).tolist():
            keys.append((name, OWN, publisher))
            members.append(runs.features["publisher"] == publisher)
    base = {name: float(np.log(median)) for name, median in MEDIANS.items()}
    return Design(
        keys=tuple(keys),
        mean=np.array([base[key[0]] if key[1] == "all" else KNOWN.get(key, 0.0) for key in keys]),
        spread=np.array([_prior_spread(key) for key in keys]),
        coefficient=np.array([NAMES.index(key[0]) for key in keys]),
        member=np.array(members),
    )


def _prior_spread(key: Key) -> float:
    if key[1] == OWN:
        return OWN_SPREADS[key[0]]
    if key[1] != "all":
        return SHIFT_SPREADS[key[:2]]
    # The time outside the steps depends on who measures: nobody's textbook has it.
    return SPREADS[key[0]] * (1.0 if key[0] == "first_s" else PRIOR_SHARE)


def thinned(runs: ServingRuns, most: int = MOST_ROWS) -> ServingRuns:
    """At most so many rows of each source, evenly along its table."""
    source = runs.features["source"]
    keep = np.zeros(len(runs), dtype=bool)
    for name in np.unique(source):
        rows = np.flatnonzero(source == name)
        keep[rows[np.unique(np.linspace(0, rows.size - 1, min(most, rows.size)).round().astype(int))]] = True
    return runs.take(keep)


@dataclass(frozen=True)
class Fit:
    """The maximum of (1)."""

    design: Design
    theta: Array
    variance: Array  # of each parameter, by the curvature
    rounds: int

    @property
    def values(self) -> dict[Key, float]:
        """Parameters by name."""
        return dict(zip(self.design.keys, self.theta.tolist(), strict=True))


def measured_logs(runs: ServingRuns) -> Array:
    """Logarithms of what was measured, in the order of `FITTED`; nan where nobody did."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.stack([runs.measured[name] for name in FITTED]))


def fit(
    runs: ServingRuns,
    use: NDArray[np.bool_] | None = None,
    start: Array | None = None,
    *,
    given: Design | None = None,
    rounds: int = 12,
) -> Fit:
    """Maximise (1) over the rows `use`; others stand by, so that parameters keep their places."""
    made = given or design(runs)
    use = np.ones(len(runs), dtype=bool) if use is None else use
    target = measured_logs(runs)
    weight = _row_weights(runs, target, use)
    _, source = np.unique(runs.features["source"], return_inverse=True)
    burst = np.where((runs.features["kind"] == "offline") & (runs.features["front"] == "http"), _BURST, 1.0)
    theta = made.mean.copy() if start is None else start.copy()
    scale = np.repeat(_FIRST_SCALE[:, None], len(runs), axis=1)
    inside = runs.take(use)
    for done in range(1, rounds + 1):
        logs = made.logs(theta)
        error, slope = np.full(target.shape, np.nan), np.zeros((len(NAMES), *target.shape))
        answers, _ = log_answers(inside, logs[:, use])
        error[:, use] = target[:, use] - answers
        slope[:, :, use] = slopes(inside, logs[:, use], answers)
        known = np.isfinite(error) & (weight > 0.0)
        error = np.where(known, error, 0.0)
        if done > 1:
            scale = _scales(error, known, source)
        near = np.maximum(np.abs(slope[_PACE]) - 1.0, 0.0) * _RATE_ERROR
        variance = (scale * burst) ** 2 + near**2 + (slope[_ROOM] * _ROOM_ERROR) ** 2
        pull = weight * known / variance / (1.0 + error**2 / (_TAIL**2 * variance))
        curvature, gradient = np.diag(1.0 / made.spread**2), (made.mean - theta) / made.spread**2
        for q in range(len(FITTED)):
            rows = np.flatnonzero(pull[q] > 0.0)
            columns = slope[made.coefficient, q][:, rows] * made.member[:, rows]
            pulled = columns * pull[q, rows]
            curvature += pulled @ columns.T
            gradient += pulled @ error[q, rows]
        step = np.clip(np.linalg.solve(curvature, gradient), -_LONGEST, _LONGEST)
        theta = theta + step
        if np.abs(step).max() < _ENOUGH:
            break
    return Fit(made, theta, np.diag(np.linalg.inv(curvature)), done)


def _row_weights(runs: ServingRuns, target: Array, use: NDArray[np.bool_]) -> Array:
    publisher = runs.features["publisher"]
    weight = np.zeros_like(target)
    for name in np.unique(publisher):
        for q in range(len(FITTED)):
            rows = use & (publisher == name) & np.isfinite(target[q])
            weight[q, rows] = min(1.0, CAP / max(rows.sum(), 1))
    return weight


def _scales(error: Array, known: NDArray[np.bool_], source: NDArray[np.intp]) -> Array:
    """Scatter of each source's errors about zero, within bounds: of few rows the least."""
    found = np.repeat(_LEAST_SCALE[:, None], error.shape[1], axis=1)
    for q in range(len(FITTED)):
        for index in range(int(source.max(initial=-1)) + 1):
            rows = known[q] & (source == index)
            if rows.sum() >= _FEWEST:
                scatter = 1.4826 * np.median(np.abs(error[q, rows]))
                found[q, source == index] = np.clip(scatter, _LEAST_SCALE[q], _MOST_SCALE[q])
    return found


def beliefs_of(
    found: Fit, runs: ServingRuns, use: NDArray[np.bool_], left_out: Sequence[Array] = ()
) -> ServingBeliefs:
    """What a fit of the rows `use` believes; `left_out` are the parameters without each publisher, for the jackknife."""
    made = found.design
    variance = found.variance.copy()
    if left_out:
        moved = np.stack(left_out)
        count = len(left_out)
        variance += _MOVED * (count - 1) / count * ((moved - moved.mean(axis=0)) ** 2).sum(axis=0)
    told = np.isfinite(measured_logs(runs)).any(axis=0) & use
    counts = (made.member & told).sum(axis=1)
    # A shift that no row has is what was known before; a base has all rows, for each row has every coefficient.
    kept = [i for i, key in enumerate(made.keys) if key[1] != OWN and (counts[i] or key in KNOWN)]
    return ServingBeliefs(
        values={made.keys[i]: float(found.theta[i]) for i in kept},
        spreads={made.keys[i]: float(np.sqrt(variance[i])) for i in kept},
        counts={made.keys[i]: int(counts[i]) for i in kept},
        level_spreads=_level_spreads(found, counts),
        meta={"rows": int(told.sum()), "sources": len(np.unique(runs.features["source"][use]))},
    )


def _level_spreads(found: Fit, counts: NDArray[np.intp]) -> dict[tuple[str, str], float]:
    """What a value that nobody measured may shift: as the measured ones do, or as was believed."""
    spreads: dict[tuple[str, str], float] = {}
    for pair, believed in SHIFT_SPREADS.items():
        at = [i for i, key in enumerate(found.design.keys) if key[:2] == pair and counts[i]]
        moved = found.theta[at] - found.design.mean[at]
        seen = float(np.sqrt(np.mean(moved**2))) if at else 0.0
        spreads[pair] = max(believed, seen)
    return spreads
