"""The whole answer for a job: curve, bands, ledger, knees with causes and remedies, p*, cost, energy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.attribution import cause_at, in_words, ledger
from perfmodel.decide.cost import Choice, Decision, bill, decide
from perfmodel.decide.energy import step_energy
from perfmodel.decide.facts import foreign, unmeasured
from perfmodel.decide.knee import (
    DEFAULT_THRESHOLD,
    RISK,
    Knee,
    cautious,
    curvature_knee,
    first_below,
    marginal_knee,
    threshold_knee,
)
from perfmodel.decide.metrics import baseline_index, efficiency, speedup
from perfmodel.decide.power import energy_band, measured_power, power_basis, power_of, range_share
from perfmodel.decide.pricing import Tariff
from perfmodel.decide.ratio import efficiency_band, is_timed
from perfmodel.decide.remedies import after_remedy, job_at, remedy
from perfmodel.decide.tariffs import tariff_of
from perfmodel.predict.beliefs import Beliefs, shipped_beliefs
from perfmodel.predict.coefficients import MEANINGS, NAMES
from perfmodel.predict.curve import Curve, curve
from perfmodel.predict.search import Search
from perfmodel.predict.setup import Setup, setup_of
from perfmodel.predict.space import PRECEDENCE, Refusal
from perfmodel.results import Result
from perfmodel.specs.jobs import Job
from perfmodel.specs.layout import Layout
from perfmodel.units import format_quantity

Array = NDArray[np.float64]

DRAWS = 200
SMALLEST_EFFECT = 1e-5  # of the step, that is told of an input
NOTED_LOSS = 0.02  # of a run, from which interruptions are told beside its energy

NOT_MODELLED: tuple[tuple[str, str], ...] = (
    ("other jobs on the same network", "optimistic"),
    ("checkpoint writes and evaluation that nobody declared", "optimistic"),
    ("power capping and thermal throttling of long runs", "optimistic"),
    ("kernels tuned for this one model", "pessimistic"),
    ("faulty links and slow devices that nobody declared", "optimistic"),
)


@dataclass(frozen=True)
class Prediction(Result):
    """The result, with the curve it was made from."""

    curve: Curve | None = None


def predict(
    job: Job,
    beliefs: Beliefs | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    threshold: float = DEFAULT_THRESHOLD,
    found: Curve | None = None,
) -> Prediction:
    """Predict a job at all its K and read everything off the curve.

    `found` is the curve of a job that differs in nothing but money, steps and the grid, where one was made before.
    """
    known = beliefs or shipped_beliefs()
    if found is None:
        found = curve_of(job, known, draws=draws, seed=seed)
    return Prediction(
        "prediction", inputs_of(job, known), answer(job, found, known, threshold), seed, curve=found
    )


def curve_of(
    job: Job, beliefs: Beliefs, *, draws: int = DRAWS, seed: int = 0, among: Search | None = None
) -> Curve:
    """The curve of a job that can run at some K; a SpecError says why it cannot. `among`: see `curve`."""
    setup = setup_of(job)
    _refuse_empty(job, setup, beliefs)
    found = curve(setup, beliefs, draws=draws, seed=seed, among=among)
    _refuse_impossible(job, found)
    return found


# The key of a layout that a refusal is about.
_KEYS = {
    Refusal.HEADS: "tp",
    Refusal.LAYERS: "pp",
    Refusal.EXPERTS: "ep",
    Refusal.SEQUENCE: "cp",
    Refusal.DIVISION: "tp",
    Refusal.REPLICAS: "dp",
}


def _refuse_empty(job: Job, setup: Setup, beliefs: Beliefs) -> None:
    """Raise a SpecError where a workload states no work at all and no measurement stands in for it."""
    ops = setup.operations
    if float(ops.training_flop()) > 0 or float(ops.other_traffic) > 0 or beliefs.calibration is not None:
        return
    raise job.error_at(
        "workload",
        "S004",
        f"{job.workload.name} states neither FLOP nor bytes of a sample: there is nothing to predict from",
        "--set workload.flop_per_sample=... states them; perfmodel calibrate takes timings instead",
    )


def _refuse_impossible(job: Job, found: Curve) -> None:
    """Raise a SpecError at the layout's line when the given layout can run at no K, whatever the memory."""
    layout = job.layout
    if layout == "auto" or np.isin(found.refusals, (Refusal.NONE, Refusal.MEMORY, Refusal.NODES)).any():
        return
    index = int(np.argmin(PRECEDENCE[found.refusals]))
    refusal = Refusal(int(found.refusals[index]))
    key = key_refused(layout, refusal)
    if key is not None:
        raise job.error_at(
            f"layout.{key}", "S010", f"the layout is impossible at every K: {found.reasons[index]}"
        )


def key_refused(layout: Layout, refusal: Refusal) -> str | None:
    """The key of a layout that a refusal is about; None where it is about no key that the layout gives."""
    if refusal == Refusal.BATCH:
        return "micro_batch" if layout.micro_batch else "accumulation" if layout.accumulation else None
    return _KEYS.get(refusal)


def inputs_of(job: Job, beliefs: Beliefs) -> dict[str, Any]:
    """What reproduces the answer."""
    data = job.model_dump(mode="json", exclude_none=True)
    data["beliefs"] = "calibrated" if beliefs.calibration is not None else "shipped"
    return data | files_read(beliefs)


def files_read(beliefs: Beliefs | None, **others: Any) -> dict[str, Any]:
    """The `files` of `inputs`: fingerprints by the option that named them; nothing where no file was read."""
    files = {
        **({"beliefs": dict(beliefs.origin)} if beliefs is not None and beliefs.origin else {}),
        **others,
    }
    return {"files": files} if files else {}


# Stands for a price that nobody knows: with nothing else on the bill it moves neither p* nor the ladder.
UNIT_PRICE_USD_PER_S = 1.0


def priced(job: Job) -> tuple[Tariff, bool]:
    """The job's tariff, and whether its price is known; an unknown one counts accelerator-seconds."""
    tariff = tariff_of(job.price, job.cluster, job.reliability)
    if np.isfinite(tariff.usd_per_accelerator_s):
        return tariff, True
    return Tariff(
        tariff.name, UNIT_PRICE_USD_PER_S, interruptions=tariff.interruptions, note=tariff.note
    ), False


def answer(job: Job, found: Curve, beliefs: Beliefs, threshold: float) -> dict[str, Any]:
    """The documented `result` of a prediction."""
    k, time = found.k, found.time_s
    steps = float(job.steps or 1)
    if not found.feasible.any():
        return _nothing_fits(job, found, beliefs)
    base = baseline_index(k, time)

    def speedup_of(seconds: Array) -> Array:
        return speedup(k, seconds, regime=job.regime, baseline=base)

    def efficiency_of(seconds: Array) -> Array:
        return efficiency(k, seconds, regime=job.regime, baseline=base)

    ups, eff = speedup_of(time), efficiency_of(time)
    draws_eff = efficiency_of(found.draws_s) if found.draws_s.size else eff[None]
    draws_up = speedup_of(found.draws_s) if found.draws_s.size else ups[None]
    below, above = _ratio_band(found, beliefs)
    doubt = -np.log(below)
    odds = knee_odds(beliefs)
    caution = cautious(np.ones_like(k), doubt, odds)
    lost = ledger(k, found.parts, job.regime, base)
    work = k / k[base] if job.regime == "weak" else np.ones_like(k)
    tariff, is_priced = priced(job)
    run = time * steps
    cost = decide(k, run, tariff, work=work, draws_s=found.draws_s * steps)
    # A bill grows with its hours alone, so the ends of the time's band are those of the cost's.
    ends = (("", time), ("_low", found.low_s), ("_high", found.high_s))
    costs = {
        f"cost_usd{end}": bill(k, seconds * steps, tariff).total_usd / work
        if is_priced
        else np.full(k.shape, np.nan)
        for end, seconds in ends
    }
    measured = measured_power(beliefs)
    power = power_of(job, measured)
    energy = step_energy(k, found.parts, power)
    joules = energy.energy_j * steps / work
    grams = np.full(k.shape, np.nan) if energy.carbon_g is None else energy.carbon_g * steps / work
    less, more = energy_band((found.low_s, time, found.high_s), range_share(k, found.parts, power), measured)
    rules: dict[str, KneeOf] = {
        "threshold": lambda seconds: threshold_knee(k, efficiency_of(seconds) * caution, threshold=threshold),
        "curvature": lambda seconds: curvature_knee(k, speedup_of(seconds)),
        "marginal": lambda seconds: marginal_knee(
            k, speedup_of(seconds), bill(k, seconds * steps, tariff).total_usd / work
        ),
    }
    drawn = {
        "threshold": threshold_knee(k, draws_eff, threshold=threshold),
        "curvature": curvature_knee(k, draws_up),
        "marginal": marginal_knee(k, draws_up, np.broadcast_to(cost.bill.total_usd / work, draws_up.shape)),
    }
    risky = first_below(k, cautious(eff, doubt, RISK), threshold=threshold)
    at_risk = int(risky) if np.isfinite(risky) else None
    result: dict[str, Any] = {
        "k": k.astype(int),
        "regime": job.regime,
        "time_s": time,
        "time_s_low": found.low_s,
        "time_s_high": found.high_s,
        "speedup": ups,
        "speedup_low": ups * below,
        "speedup_high": ups * above,
        "efficiency": eff,
        "efficiency_low": eff * below,
        "efficiency_high": eff * above,
        "throughput": found.setup.global_batch / time,
        "parts_s": found.parts,
        "hidden_s": found.hidden_s,
        "ledger_accelerator_s": lost,
        **_memory(found),
        "feasible": found.feasible,
        "reason": list(found.reasons),
        "layout": [name if ok else None for name, ok in zip(found.names, found.feasible, strict=True)],
        **costs,
        "cost_basis": _cost_basis(job),
        "energy_j": joules,
        "energy_j_low": joules * less,
        "energy_j_high": joules * more,
        "carbon_g": grams,
        "carbon_g_low": grams * less,
        "carbon_g_high": grams * more,
        "baseline_k": int(k[base]),
        "knee": {
            rule: _knee(found, lost, rule, knee_of, drawn[rule])
            | {"at_risk_from_k": at_risk, "how": how_chosen(rule, threshold, odds)}
            for rule, knee_of in rules.items()
        },
        "p_star": _choice(found, cost.p_star, costs),
        "fastest": _choice(found, cost.fastest, costs),
        "exchange": {"times_the_cost": cost.times_the_cost, "times_faster": cost.times_faster},
        "boundaries": _boundaries(job, k),
        "rests_on": rests_on(job, found, beliefs),
        "sensitivity": sensitivity(found),
        "not_modelled": _not_modelled(),
        "notes": [
            *foreign(job, beliefs),
            *unmeasured(job, beliefs),
            *job.notes,
            *([cost.sentence] if found.feasible.sum() > 1 else []),  # one K is no choice
            *_lost_energy(cost),
            *_above_one(found, eff, base),
        ],
    }
    return result


def _lost_energy(cost: Decision) -> list[str]:
    """Said where interruptions lengthen the run: they are in its cost and not in its energy."""
    with np.errstate(invalid="ignore"):
        lost = float(np.nanmax(cost.bill.wall_s / cost.bill.time_s, initial=1.0)) - 1.0
    told = "energy and carbon are of useful steps: what runs between an interruption and its repair is not in them"
    return [told] if lost > NOTED_LOSS else []


def _memory(found: Curve) -> dict[str, Any]:
    """Bytes a device needs at each K, by part as well, and those it has: known where nothing fits too."""
    shape = found.k.shape
    return {
        "memory_bytes": np.broadcast_to(found.memory.total, shape),
        "memory_parts_bytes": {name: np.broadcast_to(v, shape) for name, v in found.memory.parts.items()},
        "memory_limit_bytes": float(found.setup.machine.memory_bytes),
    }


def _cost_basis(job: Job) -> str:
    if job.steps:
        return f"{job.steps} steps"
    return "one step per unit of work" if job.regime == "weak" else "one step"


def _not_modelled() -> list[dict[str, str]]:
    return [{"effect": effect, "bias": bias} for effect, bias in NOT_MODELLED]


WELL_ABOVE_ONE = 1.05


def _above_one(found: Curve, efficiency: Array, base: int) -> list[str]:
    """Why efficiency exceeds 1: the baseline is short of memory and runs a slower layout."""
    known = np.where(np.isfinite(efficiency), efficiency, 0.0)
    best = int(np.argmax(known))
    if known[best] < WELL_ABOVE_ONE:
        return []
    before, after = found.names[base], found.names[best]
    keys = [
        key
        for key in ("tp", "pp", "cp", "ep", "sharding", "recompute", "micro_batch")
        if before[key] != after[key]
    ]
    words = ", ".join(f"{key} {before[key]} -> {after[key]}" for key in keys)
    why = (
        f"K = {int(found.k[base])} is short of memory; K = {int(found.k[best])} runs another layout ({words})"
    )
    return [f"efficiency above 1: {why if keys else 'a smaller batch per accelerator runs better here'}"]


def _ratio_band(found: Curve, beliefs: Beliefs) -> tuple[Array, Array]:
    """Factors from E(K) to the ends of its 90 % band; NaN where there are too few draws to tell."""
    told = is_timed(beliefs) or found.draws_s.shape[0] > 1
    band = efficiency_band(found, beliefs) if told else None
    if band is None:
        return np.full(found.k.shape, np.nan), np.full(found.k.shape, np.nan)
    return band.low / band.middle, band.high / band.middle


def knee_odds(beliefs: Beliefs) -> float:
    """The odds above which a knee is declared, for what is measured of the job."""
    known = beliefs.calibration
    return beliefs.knee_odds(known.mode if known is not None and is_timed(beliefs) else "ratio")


def knee_caution(found: Curve, beliefs: Beliefs) -> Array:
    """Factor from E(K) to the efficiency that a threshold knee judges."""
    below, _ = _ratio_band(found, beliefs)
    return cautious(np.ones_like(found.k), -np.log(below), knee_odds(beliefs))


def knee_in_words(threshold: float, odds: float) -> str:
    """What a threshold knee is."""
    return f"the last K before efficiency is below {threshold:.0%} with a probability above {odds:.0%}"


def how_chosen(rule: str, threshold: float, odds: float) -> str:
    """The rule of a knee in words."""
    if rule == "curvature":
        return "the K at which the speedup is furthest above its chord"
    if rule == "marginal":
        return "the last K at which one more dollar still buys speedup"
    risky = f"at risk from the K where that probability is above {RISK:.0%}"
    return f"{knee_in_words(threshold, odds)}; {risky}"


def _nothing_fits(job: Job, found: Curve, beliefs: Beliefs) -> dict[str, Any]:
    """The same keys when no K is feasible: nulls and reasons."""
    k = found.k
    blank = np.full(k.shape, np.nan)
    missing = {
        "k": None,
        "k_low": None,
        "k_high": None,
        "cause": "no K is feasible",
        "cause_part": None,
        "remedy": None,
        "k_after_remedy": None,
        "remedy_saves": None,
        "at_risk_from_k": None,
        "how": None,
    }
    names = (
        "time_s",
        "time_s_low",
        "time_s_high",
        "speedup",
        "speedup_low",
        "speedup_high",
        "efficiency",
        "efficiency_low",
        "efficiency_high",
        "throughput",
        "hidden_s",
        *(f"{name}{end}" for name in ("cost_usd", "energy_j", "carbon_g") for end in ("", "_low", "_high")),
    )
    return {
        "k": k.astype(int),
        "regime": job.regime,
        **dict.fromkeys(names, blank),
        "parts_s": dict.fromkeys(found.parts, blank),
        "ledger_accelerator_s": dict.fromkeys(found.parts, blank),
        **_memory(found),
        "feasible": found.feasible,
        "reason": list(found.reasons),
        "layout": [None] * k.size,
        "cost_basis": _cost_basis(job),
        "baseline_k": None,
        "knee": dict.fromkeys(("threshold", "curvature", "marginal"), missing),
        "p_star": dict.fromkeys(_CHOICE),
        "fastest": dict.fromkeys(_CHOICE),
        "exchange": {"times_the_cost": None, "times_faster": None},
        "boundaries": _boundaries(job, k),
        "rests_on": rests_on(job, found, beliefs),
        "sensitivity": [],
        "not_modelled": _not_modelled(),
        "notes": [*foreign(job, beliefs), *unmeasured(job, beliefs), *job.notes],
    }


KneeOf: TypeAlias = Callable[[Array], Knee]  # the knee that a rule finds on the step times of each K


def _knee(found: Curve, lost: dict[str, Array], rule: str, knee_of: KneeOf, drawn: Knee) -> dict[str, Any]:
    """One knee with its interval, cause, remedy and the knee by the same rule after it."""
    centre = knee_of(found.time_s)
    low, high = drawn.interval()
    if (
        rule == "threshold"
    ):  # the draws are centred on the curve itself: the cautious knee may lie before them all
        here = float(centre.k) if bool(centre.reached) else np.inf
        low, high = min(low, here), max(high, here)
    entry: dict[str, Any] = {
        "k": int(centre.k) if np.isfinite(centre.k) else None,
        "k_low": int(low) if np.isfinite(low) else None,
        "k_high": int(high) if np.isfinite(high) else None,
    }
    last = int(np.flatnonzero(found.feasible)[-1])
    beyond = np.flatnonzero(found.feasible & (found.k > (entry["k"] or np.inf)))
    index = int(beyond[0]) if beyond.size else last
    part = cause_at(lost, index)
    if entry["k"] is None and not bool(centre.reached):
        entry["cause"] = f"not reached up to K={int(found.k[last])}"
    elif part is None:
        entry["cause"] = "nothing is lost"
    else:
        entry["cause"] = in_words(found, part, index, lost)
    if part is None:
        return entry | dict.fromkeys(("cause_part", "remedy", "k_after_remedy", "remedy_saves"))
    mended = after_remedy(found, part)
    return entry | {
        "cause_part": part,
        "remedy": remedy(job_at(found, index), part),
        "k_after_remedy": _k_after(knee_of(mended), int(found.k[last])) if centre.reached else None,
        "remedy_saves": float(
            1.0 - mended[index] / found.time_s[index]
        ),  # of the step where the cause is told
    }


def _k_after(after: Knee, last_k: int) -> int | None:
    """The knee after a remedy; the last K, the least that can be said, where it lies beyond the range."""
    if not after.reached:
        return last_k
    return int(after.k) if np.isfinite(after.k) else None


_CHOICE = ("k", "cost_usd", "cost_usd_low", "cost_usd_high", "time_s", "run_s", "k_low", "k_high")


def _choice(found: Curve, choice: Choice, costs: dict[str, Array]) -> dict[str, Any]:
    """A chosen K; `time_s` is that of a step, `run_s` of what the cost is for, interruptions included."""
    at = int(np.flatnonzero(found.k == choice.k)[0])
    spent = [float(values[at]) if np.isfinite(values[at]) else None for values in costs.values()]
    values = (choice.k, *spent, float(found.time_s[at]), choice.time_s, choice.k_low, choice.k_high)
    return dict(zip(_CHOICE, values, strict=True))


def _boundaries(job: Job, k: Array) -> list[dict[str, Any]]:
    """Where a node, a scale-up domain and a leaf are full, inside the range."""
    node = job.cluster.node
    marks = [("node", float(node.accelerators_per_node))]
    if node.scale_up_domain and node.scale_up_domain != node.accelerators_per_node:
        marks.append(("scale-up domain", float(node.scale_up_domain)))
    fabric = job.cluster.topology
    if fabric is not None and fabric.leaf_nodes:
        marks.append(("leaf", float(fabric.leaf_nodes * node.accelerators_per_node)))
    return [{"name": name, "k": int(value)} for name, value in marks if k.min() < value < k.max()]


def rests_on(job: Job, found: Curve, beliefs: Beliefs | None = None) -> dict[str, Any]:
    """Every input that matters, with value, confidence and source; then every belief with its basis.

    With `beliefs` the power behind joules and grams is among them.
    """
    device, node = job.cluster.node.accelerator, job.cluster.node
    out = job.cluster.scale_out or node.scale_out
    items: dict[str, Any] = {}
    for label, record in (
        ("workload", job.workload),
        ("accelerator", device),
        ("node", node),
        ("scale-up link", node.scale_up),
        ("scale-out link", out),
    ):
        if record is not None:
            items[label] = {
                "value": record.name,
                "confidence": record.confidence or "assumed",
                "source": record.source,
                "date": record.date,
            }
    items["price"] = {
        "value": "unknown"
        if job.price.per_accelerator is None
        else format_quantity(job.price.per_accelerator, "USD/s"),
        "confidence": "datasheet" if job.price.source else "assumed",
        "source": job.price.source or job.price.note,
        "date": job.price.date,
    }
    if beliefs is not None:
        items["power"] = power_basis(job, beliefs)
        if job.grid is not None:
            items["grid"] = {
                "value": f"{job.grid.name}: {format_quantity(job.grid.carbon, 'g/J')}",
                "confidence": job.grid.confidence or "assumed",
                "source": job.grid.source,
                "date": job.grid.date,
            }
    for index, name in enumerate(NAMES):
        items[f"belief: {name}"] = {
            "value": float(f"{np.exp(found.logs[index]):.4g}"),
            "confidence": found.belief.basis[name],
            "source": MEANINGS[name],
        }
    return items


def sensitivity(found: Curve) -> list[dict[str, Any]]:
    """Change of the step time at the largest feasible K when a belief moves by its own spread, largest first."""
    last = int(np.flatnonzero(found.feasible)[-1])
    slopes = found.jacobian[:, last]
    rows: list[dict[str, Any]] = []
    for index, name in enumerate(NAMES):
        reach = max(float(found.belief.spread[index]), 0.1)
        rows.append(
            {
                "input": name,
                "meaning": MEANINGS[name],
                "change": float(np.expm1(reach)),
                "low": float(np.expm1(-reach * slopes[index])),
                "high": float(np.expm1(reach * slopes[index])),
            }
        )
    rows = [row for row in rows if abs(float(row["high"])) > SMALLEST_EFFECT]
    rows.sort(key=lambda row: -abs(float(row["high"])))
    return rows[:12]
