"""Two jobs side by side, and which changed input caused what.

With A's inputs as the start and B's as the end, a change is put in first (into A) and last (taken out of B); its
effect is the mean of the two on the log scale, so that the order of the changes does not matter. What the effects do
not add up to is named interaction:

.. math:: \\ln\\frac{t_B}{t_A} = \\sum_i \\tfrac12 \\Bigl[\\ln\\frac{t_{A+i}}{t_A} + \\ln\\frac{t_B}{t_{B-i}}\\Bigr] + r   (1)

With two changes (1) is the Shapley value and r is zero. Every effect and r together are the whole difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.bands import NINETY
from perfmodel.beliefs.features import discrepancy
from perfmodel.beliefs.population import EFFECTS, Beliefs, shipped_beliefs
from perfmodel.decide.differing import Change, changes
from perfmodel.decide.gate.inputs import dump, restore, with_k
from perfmodel.decide.metrics import conformal_factor
from perfmodel.decide.prediction import DRAWS, Prediction, predict
from perfmodel.errors import SpecError
from perfmodel.physics.coefficients import NAMES
from perfmodel.results.envelope import Result
from perfmodel.specs.jobs import Job
from perfmodel.training.curve import Curve, coefficients, effect_covariance
from perfmodel.training.step import step

Array = NDArray[np.float64]

MOST_CHANGES = 16  # more are told by group: each costs two predictions and a reader's patience
MOST_CAUSES = 4  # in the sentence, beside the interaction and all else
WORTH_A_WORD = 0.005  # of the speed
ROUNDING = 1e-9  # an effect below this is arithmetic's own
INTERACTION = "interaction"


@dataclass(frozen=True)
class _Side:
    """What the attribution reads off one prediction."""

    per_sample_s: Array  # step time over samples, at each K
    per_sample_usd: Array
    per_sample_j: Array
    per_sample_g: Array
    cheapest_usd: float  # per sample, at p*
    knee: int | None

    @staticmethod
    def of(found: Prediction) -> _Side:
        result = found.result
        curve = found.curve
        if curve is None:
            raise ValueError("a prediction without its curve cannot be compared")
        batch, base = curve.setup.global_batch, result["baseline_k"]
        # In the weak regime the cost is already that of one unit of work: the batch of the baseline.
        units = batch[curve.k == base] if result["regime"] == "weak" and base is not None else batch
        samples = units * float(found.inputs.get("steps") or 1)
        cost, joules, grams = (
            np.asarray(result[key], dtype=float) / samples for key in ("cost_usd", "energy_j", "carbon_g")
        )
        good = np.isfinite(cost)
        cheapest = float(cost[good].min()) if good.any() else np.nan
        return _Side(curve.time_s / batch, cost, joules, grams, cheapest, result["knee"]["threshold"]["k"])

    def per_sample(self, curve: Curve) -> dict[str, Array]:
        """What one sample takes, costs, draws and emits at each K, whatever the batch of a step is."""
        batch = curve.setup.global_batch
        return {
            "time_s": self.per_sample_s,
            "time_s_low": curve.low_s / batch,
            "time_s_high": curve.high_s / batch,
            "cost_usd": self.per_sample_usd,
            "energy_j": self.per_sample_j,
            "carbon_g": self.per_sample_g,
        }


class ChangeRow(TypedDict):
    """One changed input and what it alone does, as fractions."""

    input: str
    before: str
    after: str
    effect: float
    cost_effect: float
    knee_alone: int | None


@dataclass(frozen=True)
class _Effect:
    """Log effects of one change: on the time at each K and on the cheapest cost; and the knee with it alone."""

    change: Change
    time: Array
    cost: float
    knee: int | None


def compare(
    a: Job,
    b: Job,
    beliefs: Beliefs | None = None,
    *,
    names: tuple[str, str] | None = None,
    at: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Result:
    """Compare two jobs on the union of their K; `at` is the K whose difference is attributed in words."""
    known = beliefs or shipped_beliefs()
    ladder = (*a.k, *b.k, *((at,) if at is not None else ()))
    left, right = with_k(a, ladder), with_k(b, ladder)
    first = predict(left, known, draws=draws, seed=seed)
    second = predict(right, known, draws=draws, seed=seed)
    found = _attribute(dump(left), dump(right), _Side.of(first), _Side.of(second), known)
    titles = names or _names(a, b)
    result = _result(first, second, found, known, titles, at, draws, seed)
    inputs = {"a": first.inputs, "b": second.inputs, "at": at}
    return Result("comparison", inputs, result, seed)


def _names(a: Job, b: Job) -> tuple[str, str]:
    """The jobs' names; where they are one, what tells the jobs apart."""
    for pair in ((a.name, b.name), (a.cluster.name, b.cluster.name), (a.workload.name, b.workload.name)):
        if pair[0] != pair[1]:
            return pair
    return "before", "after"


def _attribute(
    start: Mapping[str, object], end: Mapping[str, object], a: _Side, b: _Side, beliefs: Beliefs
) -> list[_Effect]:
    """Equation (1) for every change; a job that one change alone makes impossible is left out of the mean."""
    found = []
    for change in changes(start, end, most=MOST_CHANGES):
        one = _try(change.onto(start), beliefs)
        rest = _try(change.undone().onto(end), beliefs)
        time = _mean(
            [np.log(one.per_sample_s / a.per_sample_s)] if one else [],
            [np.log(b.per_sample_s / rest.per_sample_s)] if rest else [],
            a.per_sample_s.shape,
        )
        cost = _mean(
            [_log_ratio(one.cheapest_usd, a.cheapest_usd)] if one else [],
            [_log_ratio(b.cheapest_usd, rest.cheapest_usd)] if rest else [],
            (1,),
        )
        found.append(_Effect(change, time, float(cost[0]), one.knee if one else None))
    return found


def _log_ratio(after: float, before: float) -> Array:
    """ln(after/before) of two costs, NaN where either is unknown or nothing."""
    known = np.isfinite(after) and np.isfinite(before) and after > 0 and before > 0
    return np.array([np.log(after / before) if known else np.nan])


def _try(inputs: Mapping[str, object], beliefs: Beliefs) -> _Side | None:
    try:
        return _Side.of(predict(restore(inputs), beliefs, draws=0))
    except (SpecError, ValueError):
        return None


def _mean(first: list[Array], last: list[Array], shape: tuple[int, ...]) -> Array:
    """Mean over what is finite; NaN where neither is."""
    rows = np.array([*first, *last, np.full(shape, np.nan)])
    good = np.isfinite(rows)
    count = good.sum(axis=0)
    return np.asarray(
        np.where(count > 0, np.where(good, rows, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)
    )


def _result(
    first: Prediction,
    second: Prediction,
    effects: list[_Effect],
    beliefs: Beliefs,
    names: tuple[str, str],
    at: int | None,
    draws: int,
    seed: int,
) -> dict[str, object]:
    left, right = first.curve, second.curve
    if left is None or right is None:
        raise ValueError("a prediction without its curve cannot be compared")
    a, b = _Side.of(first), _Side.of(second)
    k = left.k.astype(int)
    ratio = b.per_sample_s / a.per_sample_s
    low, high = _ratio_band(left, right, beliefs, draws, seed)
    index = _reference(k, ratio, a.knee, at)
    known = [np.where(np.isfinite(effect.time), effect.time, 0.0) for effect in effects]
    rest = np.log(ratio) - np.sum(known, axis=0) if known else np.log(ratio)
    rows = _rows(effects, index, rest, a, b)
    ratios = {"time_ratio": ratio, "time_ratio_low": ratio * low, "time_ratio_high": ratio * high}
    result: dict[str, object] = {
        "names": list(names),
        "k": k,
        "a": first.result,
        "b": second.result,
        "per_sample": {"a": a.per_sample(left), "b": b.per_sample(right)},
        **ratios,
        "at_k": None if index is None else int(k[index]),
        "changes": rows,
        "attribution": {
            "k": k,
            "effects": [{"input": e.change.name, "effect": np.expm1(e.time)} for e in effects],
            "interaction": np.expm1(rest),
        },
        "equal_speed": _equal_speed(
            k, a, b, [np.asarray(side.result["cost_usd"], float) for side in (first, second)]
        ),
        "notes": _notes(first, second, effects, names),
    }
    result["answer"] = (
        _sentence(k, ratios, rows, (first, second), names, index, a, b)
        if effects
        else "The two jobs are the same: nothing differs that a prediction reads."
    )
    return result


def _ratio_band(left: Curve, right: Curve, beliefs: Beliefs, draws: int, seed: int) -> tuple[Array, Array]:
    """Factors from the ratio of times to the ends of its 90 % band, by drawing the coefficients of both jobs.

    What is not known of an accelerator is not known on both sides alike, so one that both have cancels; two are drawn
    apart. The step model is run at the draws themselves: a change that can only help never looks uncertain. Errors of
    two predictions are alike rather than opposed, so their ratio is no less certain than the two times are apart.
    """
    if draws < 2:
        return np.full(left.k.shape, np.nan), np.full(left.k.shape, np.nan)
    same = left.setup.cluster.node.accelerator.name == right.setup.cluster.node.accelerator.name
    widen = [conformal_factor(side, beliefs) / NINETY for side in (left, right)]
    first = np.random.default_rng(seed).standard_normal((draws, len(EFFECTS)))
    second = first if same else np.random.default_rng(seed + 1).standard_normal(first.shape)
    logs = np.log(_drawn(right, beliefs, widen[1] * second)) - np.log(_drawn(left, beliefs, widen[0] * first))
    # Drawn around the centre, which the median of the draws may miss where the step is not linear in them.
    low, high = (np.quantile(logs, q, axis=0) for q in (0.05, 0.95))
    centre = np.log(right.time_s / left.time_s)
    apart = np.hypot(*(np.log(side.high_s / side.time_s) for side in (left, right)))
    return np.exp(np.clip(low - centre, -apart, 0.0)), np.exp(np.clip(high - centre, 0.0, apart))


def _drawn(found: Curve, beliefs: Beliefs, normal: Array) -> Array:
    """T(K) at drawn coefficients, shape (draws, K); infeasible K are NaN."""
    effects = normal @ np.linalg.cholesky(effect_covariance(beliefs, found.belief)).T
    n = len(NAMES)
    c = coefficients(found.setup, found.logs[:, None, None] + effects.T[:n, :, None], found.k)
    time = step(found.setup.operations, found.setup.machine, found.at, c).time_s
    slopes = discrepancy(found.setup.operations, found.at)
    return np.asarray(time * np.exp(effects[:, n:] @ slopes) * np.where(found.feasible, 1.0, np.nan))


def _reference(k: NDArray[np.int64], ratio: Array, knee: int | None, at: int | None) -> int | None:
    """The K asked for; else A's knee; else the largest that both can run."""
    good = np.flatnonzero(np.isfinite(ratio))
    for wanted in (at, knee):
        hit = [int(i) for i in good if k[i] == wanted]
        if hit:
            return hit[0]
        if wanted is not None and wanted == at:
            return None
    return int(good[-1]) if good.size else None


def _rows(effects: list[_Effect], index: int | None, rest: Array, a: _Side, b: _Side) -> list[ChangeRow]:
    """The changes that did something, the largest first, then the interaction: together the whole difference."""
    rows: list[ChangeRow] = []
    for effect in effects:
        time = float(np.expm1(effect.time[index])) if index is not None else np.nan
        cost = float(np.expm1(effect.cost))
        rows.append(
            {
                "input": effect.change.name,
                "before": effect.change.before,
                "after": effect.change.after,
                "effect": time,
                "cost_effect": cost,
                "knee_alone": effect.knee,
            }
        )
    rows.sort(key=lambda row: -abs(np.log1p(np.nan_to_num(row["effect"]))))
    costs = np.array([effect.cost for effect in effects])
    left = float(_log_ratio(b.cheapest_usd, a.cheapest_usd)[0]) - float(costs[np.isfinite(costs)].sum())
    rows.append(
        {
            "input": INTERACTION,
            "before": "",
            "after": "",
            "effect": float(np.expm1(rest[index])) if index is not None else np.nan,
            "cost_effect": float(np.expm1(left)),
            "knee_alone": None,
        }
    )
    return [row for row in rows if _moves(row) or (row["input"] != INTERACTION and np.isnan(row["effect"]))]


def _moves(row: ChangeRow) -> bool:
    return any(abs(np.nan_to_num(size)) > ROUNDING for size in (row["effect"], row["cost_effect"]))


def _equal_speed(
    k: NDArray[np.int64], a: _Side, b: _Side, costs: Sequence[Array]
) -> list[dict[str, float | None]]:
    """For every K of A: the fewest accelerators of B that are as fast, and what both cost. Scale out against up."""
    rows: list[dict[str, float | None]] = []
    for i in np.flatnonzero(np.isfinite(a.per_sample_s)):
        with np.errstate(invalid="ignore"):
            enough = np.flatnonzero(b.per_sample_s <= a.per_sample_s[i] * (1 + 1e-9))
        j = int(enough[0]) if enough.size else None
        rows.append(
            {
                "k_a": int(k[i]),
                "time_a_s": float(a.per_sample_s[i]),
                "cost_a_usd": float(costs[0][i]),
                "k_b": None if j is None else int(k[j]),
                "time_b_s": None if j is None else float(b.per_sample_s[j]),
                "cost_b_usd": None if j is None else float(costs[1][j]),
            }
        )
    return rows


def _notes(
    first: Prediction, second: Prediction, effects: list[_Effect], names: tuple[str, str]
) -> list[str]:
    sides = (list(first.result["notes"]), list(second.result["notes"]))
    shared = [note for note in sides[0] if note in sides[1]]
    found = list(shared)
    for name, notes in zip(names, sides, strict=True):
        found += [f"{name}: {note}" for note in notes if note not in shared]
    idle = [
        effect.change.name
        for effect in effects
        if np.isfinite(effect.time).any() and np.nanmax(np.abs([*effect.time, effect.cost])) < ROUNDING
    ]
    if idle:
        found.append(f"Changed without effect on what a sample takes or costs: {', '.join(idle)}.")
    lost = [effect.change.name for effect in effects if not np.isfinite(effect.time).any()]
    if lost:
        found.append(f"Impossible by itself, so part of the interaction: {', '.join(lost)}.")
    return found


def _sentence(
    k: NDArray[np.int64],
    ratios: Mapping[str, Array],
    rows: Sequence[ChangeRow],
    made: tuple[Prediction, Prediction],
    names: tuple[str, str],
    index: int | None,
    a: _Side,
    b: _Side,
) -> str:
    if index is None:
        return f"{names[0]} and {names[1]} have no K in common that both can run{_unrunnable(made, names)}."
    speed, slow, fast = (
        float(1.0 / ratios[key][index]) for key in ("time_ratio", "time_ratio_high", "time_ratio_low")
    )
    same = abs(speed - 1.0) < ROUNDING
    pace = "as fast as" if same else f"{_times(speed)} the samples per second of"
    text = f"At K = {int(k[index])}, {names[1]} runs {pace} {names[0]}"
    if np.isfinite(slow) and slow < fast:
        text += f" (90 % band {_times(slow)} to {_times(fast)})"
        if slow < 1.0 < fast:
            text += ", no more than is uncertain"
    text += f"{_product(rows, speed)}."
    if np.isfinite(a.cheapest_usd) and np.isfinite(b.cheapest_usd) and a.cheapest_usd > 0:
        dearer = b.cheapest_usd / a.cheapest_usd
        costs = "the same" if abs(dearer - 1.0) < ROUNDING else _times(dearer)
        text += f" A sample costs {costs} at its cheapest K."
    text += _emissions(index, a, b)
    if a.knee != b.knee:
        shown = ["not reached" if knee is None else f"K = {knee}" for knee in (a.knee, b.knee)]
        text += f" The knee goes from {shown[0]} to {shown[1]}."
    return text


def _unrunnable(made: tuple[Prediction, Prediction], names: tuple[str, str]) -> str:
    """Why a side does not run at the largest K where it does not."""
    told = []
    for name, side in zip(names, made, strict=True):
        result = side.result
        why = [(k, reason) for k, reason in zip(result["k"], result["reason"], strict=True) if reason]
        told += [f"{name} at K = {k} {reason}" for k, reason in why[-1:]]
    return f": {'; '.join(told)}" if told else ""


def _emissions(index: int, a: _Side, b: _Side) -> str:
    """Carbon, where the electricity differs: time and cost do not tell of it."""
    grams = [side.per_sample_g[index] for side in (a, b)]
    clean = [side.per_sample_g[index] / side.per_sample_j[index] for side in (a, b)]
    if not np.isfinite(grams).all() or abs(clean[1] / clean[0] - 1.0) < ROUNDING:
        return ""
    return f" It emits {_times(grams[1] / grams[0])} the CO2 a sample, at the same K."


def _product(rows: Sequence[ChangeRow], speed: float) -> str:
    """The causes that are named, and the rest, as factors whose product is the speed."""
    factors = {row["input"]: 1.0 / (1.0 + np.nan_to_num(row["effect"])) for row in rows}
    large = [name for name in factors if abs(factors[name] - 1.0) >= WORTH_A_WORD]
    kept = [*[name for name in large if name != INTERACTION][:MOST_CAUSES], INTERACTION]
    told = {name: factors[name] for name in kept if name in large}
    rest = speed / float(np.prod(list(told.values())))
    if told and abs(rest - 1.0) >= WORTH_A_WORD:
        told["all else"] = rest
    words = ", times ".join(f"{name} {_times(factor)}" for name, factor in told.items())
    return f": {words}" if words else ""


def _times(ratio: float) -> str:
    """A factor in three digits, never with a positive exponent.

    >>> _times(1.2345), _times(2062.0)
    ('1.23x', '2,062x')
    """
    return f"{ratio:,.0f}x" if ratio >= 100.0 else f"{ratio:.3g}x"
