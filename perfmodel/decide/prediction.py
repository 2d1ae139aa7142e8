"""The whole answer for a job: curve, bands, ledger, knees with causes and remedies, p*, cost, energy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.decide.basis import not_modelled, rests_on, sensitivity
from perfmodel.decide.cost import Choice, Decision, bill, decide
from perfmodel.decide.energy import energy_band, measured_power, power_of, range_share, step_energy
from perfmodel.decide.facts import foreign, unmeasured
from perfmodel.decide.knee import DEFAULT_THRESHOLD
from perfmodel.decide.knee_causes import knee_odds, knees, ledger, ratio_band
from perfmodel.decide.metrics import baseline_index, efficiency, ladder_rows, marginal_ladder, rates, speedup
from perfmodel.decide.narrow import narrow
from perfmodel.decide.pricing import Tariff
from perfmodel.decide.remedies import padding_saves
from perfmodel.decide.tariffs import tariff_of
from perfmodel.decide.wholerun import whole_run
from perfmodel.results.envelope import Result
from perfmodel.specs.jobs import Job
from perfmodel.specs.layout import Layout
from perfmodel.training.curve import Curve, curve, smallest_that_fits
from perfmodel.training.rules import PRECEDENCE, Refusal
from perfmodel.training.search import Search
from perfmodel.training.setup import Setup, setup_of

Array = NDArray[np.float64]

DRAWS = 200
NOTED_SAVING = 0.02  # of a step, from which a note says that a vocabulary should be padded
NOTED_LOSS = 0.02  # of a run, from which a note says that interruptions are not in its energy


@dataclass(frozen=True, repr=False)
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
    refuse_empty(job, setup, beliefs)
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


def refuse_empty(job: Job, setup: Setup, beliefs: Beliefs) -> None:
    """Raise a SpecError where a workload states no work at all and no measurement stands in for it."""
    if setup.states_work or beliefs.calibration is not None:
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
    if refusal in (Refusal.BATCH, Refusal.MICRO_BATCHES):
        return "micro_batch" if layout.micro_batch else "accumulation" if layout.accumulation else None
    return _KEYS.get(refusal)


def inputs_of(job: Job, beliefs: Beliefs) -> dict[str, object]:
    """What reproduces the answer."""
    data = job.model_dump(mode="json", exclude_none=True)
    data["beliefs"] = "calibrated" if beliefs.calibration is not None else "shipped"
    return data | files_read(beliefs)


def files_read(beliefs: Beliefs | None, **others: object) -> dict[str, object]:
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


def answer(job: Job, found: Curve, beliefs: Beliefs, threshold: float) -> dict[str, object]:
    """The documented `result` of a prediction."""
    if not found.feasible.any():
        return _nothing_fits(job, found, beliefs)
    k, time = found.k, found.time_s
    base = baseline_index(k, time)
    ups = speedup(k, time, regime=job.regime, baseline=base)
    eff = efficiency(k, time, regime=job.regime, baseline=base)
    below, above = ratio_band(found, beliefs)
    lost = ledger(k, found.parts, job.regime, base)
    steps = float(job.steps or 1)
    work = k / k[base] if job.regime == "weak" else np.ones_like(k)
    tariff, is_priced = priced(job)

    def usd_of(seconds: Array) -> Array:
        return bill(k, seconds * steps, tariff).total_usd / work

    cost = decide(k, time * steps, tariff, work=work, draws_s=found.draws_s * steps)
    # A bill grows with its hours alone, so the ends of the time's band are those of the cost's.
    ends = (("", time), ("_low", found.low_s), ("_high", found.high_s))
    costs = {
        f"cost_usd{end}": usd_of(seconds) if is_priced else np.full(k.shape, np.nan) for end, seconds in ends
    }
    run = _run(job, found, tariff_of(job.price, job.cluster, job.reliability))
    if run is not None and job.steps is not None:  # interruptions widen the band of a whole run
        costs |= {f"cost_usd{end}": run[f"cost_usd{end}"] / work for end in ("_low", "_high")}
    return {
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
        **rates(job, found.setup.operations, k, time, found.setup.global_batch),
        "parts_s": found.parts,
        "hidden_s": found.hidden_s,
        "ledger_accelerator_s": lost,
        **_memory(found),
        "feasible": found.feasible,
        "reason": list(found.reasons),
        "layout": [name if ok else None for name, ok in zip(found.names, found.feasible, strict=True)],
        **costs,
        "cost_basis": _cost_basis(job),
        "marginal": ladder_rows(marginal_ladder(k, ups, costs["cost_usd"])),
        "work_per_usd": _samples_per_usd(found, steps / work, costs["cost_usd"]),
        "run": run,
        **_energy(job, found, beliefs, steps, work),
        "baseline_k": int(k[base]),
        "knee": knees(
            found,
            lost,
            regime=job.regime,
            baseline=base,
            threshold=threshold,
            doubt=-np.log(below),
            odds=knee_odds(beliefs),
            usd_of=usd_of,
        ),
        "p_star": _choice(found, cost.p_star, costs),
        "fastest": _choice(found, cost.fastest, costs),
        "exchange": {"times_the_cost": cost.times_the_cost, "times_faster": cost.times_faster},
        "boundaries": _boundaries(job, k),
        "rests_on": rests_on(job, found, beliefs),
        "sensitivity": sensitivity(found),
        "narrow": narrow(found, beliefs),
        "not_modelled": not_modelled(),
        "nearest": None,
        "notes": [
            *foreign(job, beliefs),
            *unmeasured(job, beliefs),
            *job.notes,
            *([cost.sentence] if found.feasible.sum() > 1 else []),  # one K is no choice
            *_lost_energy(cost),
            *_above_one(found, eff, base),
            *_odd_vocabulary(found),
        ],
    }


def _samples_per_usd(found: Curve, runs: Array, cost_usd: Array) -> Array:
    """Samples that a dollar trains at each K; NaN without a price."""
    usd = np.where(cost_usd > 0.0, cost_usd, np.nan)
    return np.asarray(found.setup.global_batch * runs / usd)


def _run(job: Job, found: Curve, tariff: Tariff) -> dict[str, Array | NDArray[np.int64]] | None:
    """The whole run at each K; None where its length is not stated."""
    if job.run_samples is None and job.steps is None:
        return None
    steps = (
        float(job.steps)
        if job.steps is not None
        else np.ceil(float(job.run_samples or 0) / found.setup.global_batch)
    )
    made = whole_run(
        found.k, found.time_s, found.high_s, steps, tariff, deadline_s=job.deadline, budget_usd=job.budget
    )
    return made.as_dict(steps)


def _energy(job: Job, found: Curve, beliefs: Beliefs, steps: float, work: Array) -> dict[str, Array]:
    """Joules and grams of the run at each K, per unit of work, with their bands."""
    measured = measured_power(beliefs)
    power = power_of(job, measured)
    energy = step_energy(found.k, found.parts, power)
    grams = np.full(found.k.shape, np.nan) if energy.carbon_g is None else energy.carbon_g
    less, more = energy_band(
        (found.low_s, found.time_s, found.high_s), range_share(found.k, found.parts, power), measured
    )
    return {
        f"{name}{end}": amount * steps / work * factor
        for name, amount in (("energy_j", energy.energy_j), ("carbon_g", grams))
        for end, factor in (("", 1.0), ("_low", less), ("_high", more))
    }


def _lost_energy(cost: Decision) -> list[str]:
    """A note where interruptions lengthen the run: they are in its cost and not in its energy."""
    with np.errstate(invalid="ignore"):
        lost = float(np.nanmax(cost.bill.wall_s / cost.bill.time_s, initial=1.0)) - 1.0
    told = "energy and carbon are of useful steps: what runs between an interruption and its repair is not in them"
    return [told] if lost > NOTED_LOSS else []


def _memory(found: Curve) -> dict[str, object]:
    """Bytes a device needs at each K, by part as well, and those it has: known where nothing fits too."""
    shape = found.k.shape
    return {
        "memory_bytes": np.broadcast_to(found.memory.total, shape),
        "memory_bytes_low": np.broadcast_to(found.memory.low, shape),
        "memory_bytes_high": np.broadcast_to(found.memory.high, shape),
        "memory_parts_bytes": {name: np.broadcast_to(v, shape) for name, v in found.memory.parts.items()},
        "memory_limit_bytes": float(found.setup.machine.memory_bytes),
    }


def _cost_basis(job: Job) -> str:
    if job.steps:
        return f"{job.steps} steps"
    return "one step per unit of work" if job.regime == "weak" else "one step"


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
        if before.get(key) != after.get(key)
    ]
    words = ", ".join(f"{key} {before.get(key)} -> {after.get(key)}" for key in keys)
    why = (
        f"K = {int(found.k[base])} is short of memory; K = {int(found.k[best])} runs another layout ({words})"
    )
    return [f"efficiency above 1: {why if keys else 'a smaller batch per accelerator runs better here'}"]


def _odd_vocabulary(found: Curve) -> list[str]:
    """A note where padding the vocabulary would make its logits faster on tensor cores."""
    saved = np.where(found.feasible, padding_saves(found), 0.0)
    most = int(np.argmax(saved))
    if saved[most] < NOTED_SAVING:
        return []
    words, ranks = int(found.setup.operations.logit_width), int(found.names[most]["tp"])
    told = f"{words // ranks:,} of {words:,} words on a rank" if ranks > 1 else f"{words:,} words"
    return [
        f"{told} are no multiple of 8, and {found.setup.stack} does not pad them: rounded up, a step at "
        f"K = {int(found.k[most])} would take {saved[most]:.0%} less"
    ]


def _nothing_fits(job: Job, found: Curve, beliefs: Beliefs) -> dict[str, object]:
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
        "work_per_usd",
        *(f"{name}{end}" for name in ("cost_usd", "energy_j", "carbon_g") for end in ("", "_low", "_high")),
    )
    return {
        "k": k.astype(int),
        "regime": job.regime,
        **dict.fromkeys(names, blank),
        **rates(job, found.setup.operations, k, blank, found.setup.global_batch),
        "run": None,
        "parts_s": dict.fromkeys(found.parts, blank),
        "ledger_accelerator_s": dict.fromkeys(found.parts, blank),
        **_memory(found),
        "feasible": found.feasible,
        "reason": list(found.reasons),
        "layout": [None] * k.size,
        "cost_basis": _cost_basis(job),
        "marginal": [],
        "baseline_k": None,
        "knee": dict.fromkeys(("threshold", "curvature", "marginal"), missing),
        "p_star": dict.fromkeys(_CHOICE),
        "fastest": dict.fromkeys(_CHOICE),
        "exchange": {"times_the_cost": None, "times_faster": None},
        "boundaries": _boundaries(job, k),
        "rests_on": rests_on(job, found, beliefs),
        "narrow": [],
        "sensitivity": [],
        "not_modelled": not_modelled(),
        "notes": [*foreign(job, beliefs), *unmeasured(job, beliefs), *job.notes],
        "nearest": _nearest(found, beliefs),
    }


def _nearest(found: Curve, beliefs: Beliefs) -> dict[str, object] | None:
    """The next larger K at which something fits, with its fastest layout; None where none does."""
    k = smallest_that_fits(found.setup)
    if k is None:
        return None
    setup = found.setup
    batch = setup.global_batch[-1:] * (k / setup.k[-1:] if setup.batch_grows else 1.0)
    there = replace(setup, k=np.array([float(k)]), global_batch=batch, layout=None)
    near = curve(there, beliefs, draws=0)
    if not bool(near.feasible[0]):
        return None
    return {
        "k": k,
        "layout": near.names[0],
        "time_s": float(near.time_s[0]),
        "memory_bytes": float(near.memory.total[0]),
    }


_CHOICE = ("k", "cost_usd", "cost_usd_low", "cost_usd_high", "time_s", "run_s", "k_low", "k_high")


def _choice(found: Curve, choice: Choice, costs: dict[str, Array]) -> dict[str, object]:
    """A chosen K; `time_s` is that of a step, `run_s` of what the cost is for, interruptions included."""
    at = int(np.flatnonzero(found.k == choice.k)[0])
    spent = [float(values[at]) if np.isfinite(values[at]) else None for values in costs.values()]
    values = (choice.k, *spent, float(found.time_s[at]), choice.time_s, choice.k_low, choice.k_high)
    return dict(zip(_CHOICE, values, strict=True))


def _boundaries(job: Job, k: Array) -> list[dict[str, object]]:
    """Where a node, a scale-up domain and a leaf are full, inside the range."""
    node = job.cluster.node
    marks = [("node", float(node.accelerators_per_node))]
    if node.scale_up_domain and node.scale_up_domain != node.accelerators_per_node:
        marks.append(("scale-up domain", float(node.scale_up_domain)))
    fabric = job.cluster.topology
    if fabric is not None and fabric.leaf_nodes:
        marks.append(("leaf", float(fabric.leaf_nodes * node.accelerators_per_node)))
    return [{"name": name, "k": int(value)} for name, value in marks if k.min() < value < k.max()]
