"""From a finished search to `plan.result`: ranking with bands, front, runner-up, regimes, goals and the sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.beliefs.population import Beliefs
from perfmodel.decide import cost, goodput
from perfmodel.decide.energy import energy_band, measured_power, range_share
from perfmodel.decide.facts import foreign, unmeasured
from perfmodel.decide.metrics import rates
from perfmodel.decide.pareto import front
from perfmodel.decide.plan.candidates import Candidate
from perfmodel.decide.plan.constraints import Nearest, constraints_of, nearest
from perfmodel.decide.plan.near import near_batches, near_in_words
from perfmodel.decide.plan.planner import Found
from perfmodel.decide.plan.targets import candidate_setup
from perfmodel.decide.plan.tornado import tornado
from perfmodel.decide.pricing import HOUR_S
from perfmodel.decide.recommend import recommend
from perfmodel.decide.tariffs import regimes_of, reliability_of
from perfmodel.decide.wholerun import WholeRun, whole_run
from perfmodel.results.envelope import Result
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.layout import layout_words
from perfmodel.training.curve import Curve, curve
from perfmodel.units import band_in_words, chance_in_words, in_words


@dataclass(frozen=True)
class Plan:
    """A plan's result and whether the constraints could be met."""

    result: Result
    met: bool
    interrupted: bool


def _layout(candidate: Candidate) -> str:
    return layout_words(candidate.layout(), spelled_out=True, micro_batch_of_one=True)


def make_plan(found: Found, beliefs: Beliefs, catalog: Catalog, inputs: dict[str, object]) -> Plan:
    """Everything that the `result` of a plan holds, and more."""
    best = found.partial.best
    missed = None if best else nearest(found)
    shown: Sequence[Candidate] = best
    if missed is not None and missed.candidate is not None:
        shown = (missed.candidate,)
    curves = [_banded(found, beliefs, candidate) for candidate in shown]
    entries = [
        {"rank": i + 1, **_entry(found, c), **_bands(found, c, curves[i], beliefs)}
        for i, c in enumerate(shown)
    ]
    notes = _notes(found, beliefs)
    result: dict[str, object] = {
        "answer": _sentence(found, shown, curves, missed),
        "objective": found.request.objective,
        "met": missed is None,
        "evaluated": found.partial.evaluated,
        "pruned": found.partial.pruned,
        "feasible": found.partial.feasible,
        "seconds": found.seconds,
        "candidates": entries if missed is None else [],
        "pareto": _pareto(found),
        "refused": dict(found.partial.refused),
        "by_k": [_entry(found, candidate) for candidate in found.partial.fastest],
        "baselines": [
            {"cluster": target.name, "k": base.k, "layout": base.layout(), "time_s": base.time_s}
            for target, base in zip(found.targets, found.baselines, strict=True)
            if base is not None
        ],
        "bounds": found.request.bounds.as_dict(),
        "cost_basis": _cost_basis(found),
        "notes": notes,
    }
    if len(found.targets) > 1:
        result["by_cluster"], even = _by_cluster(found, beliefs)
        notes[:0] = even
    if best:
        notes += _untried(found, best[0])
        near = near_batches(found, best[0])
        if near:
            result["near_batches"] = near
            notes.append(near_in_words(near[0], best[0].cost_usd, found.wall_s(best[0])))
    if found.interrupted:
        result["interrupted"] = True
    if missed is not None:
        result["nearest"] = entries[0] if entries else None
        result["reason"] = missed.reason
        result["relax"] = list(missed.relax)
    if len(shown) > 1:
        result["told_apart"] = told_apart(curves[0], curves[1])
        result["runner_up"] = runner_up(found, shown, curves)
    if shown:
        result |= _economics(found, shown[0], catalog)
        result["sensitivity"] = tornado(candidate_setup(found.jobs[shown[0].target], shown[0]), beliefs)
    return Plan(Result("plan", inputs, result, found.request.seed), missed is None, found.interrupted)


def _banded(found: Found, beliefs: Beliefs, candidate: Candidate) -> Curve:
    setup = candidate_setup(found.jobs[candidate.target], candidate)
    band = curve(setup, beliefs, draws=found.request.draws, seed=found.request.seed)
    # The search prices layouts other than the curve's own by the step model: keep the width, around the time ranked.
    around = candidate.time_s / band.time_s
    return replace(band, time_s=band.time_s * around, low_s=band.low_s * around, high_s=band.high_s * around)


def _cost_basis(found: Found) -> str:
    job = found.jobs[0] if found.jobs else None
    if job is not None and job.steps:
        return f"{job.steps} steps"
    return f"{job.run_samples} samples" if job is not None and job.run_samples else "one step"


def _entry(found: Found, candidate: Candidate) -> dict[str, object]:
    target = found.targets[candidate.target]
    grams = target.power.grams_per_j
    energy = found.energy_j(candidate)
    job, batch = found.jobs[candidate.target], target.global_batch[candidate.k]
    got = rates(job, target.ops, [candidate.k], [candidate.time_s], [batch])
    return {
        "cluster": target.name,
        "k": candidate.k,
        "layout": candidate.layout(),
        "time_s": candidate.time_s,
        "wall_s": found.wall_s(candidate),
        "efficiency": found.efficiency(candidate),
        "cost_usd": candidate.cost_usd,
        "energy_j": energy,
        "carbon_g": None if grams is None else energy * grams,
        "memory_bytes": candidate.memory_bytes,
        **{name: float(value[0]) for name, value in got.items()},
    }


def _whole(found: Found, candidate: Candidate, band: Curve) -> WholeRun:
    """The run of a candidate, with its band and its chances."""
    target, request = found.targets[candidate.target], found.request
    return whole_run(
        [candidate.k],
        [candidate.time_s],
        band.high_s,
        target.steps / candidate.work,
        target.tariff,
        deadline_s=request.deadline_s,
        budget_usd=request.budget_usd,
        seed=request.seed,
    )


def _bands(found: Found, candidate: Candidate, band: Curve, beliefs: Beliefs) -> dict[str, object]:
    """Both ends of a candidate's time, run, bill and energy, and the chances to keep the limits."""
    target = found.targets[candidate.target]
    run = _whole(found, candidate, band)
    times = np.array([band.low_s[0], candidate.time_s, band.high_s[0]])
    drawn = range_share(band.k, band.parts, target.power)
    shares = energy_band((times[:1], times[1:2], times[2:]), drawn, measured_power(beliefs))
    energy, grams = found.energy_j(candidate), target.power.grams_per_j
    ends: dict[str, object] = {
        "wall_s_low": float(run.time_s_low[0]),
        "wall_s_high": float(run.time_s_high[0]),
        "deadline_probability": None
        if run.deadline_probability is None
        else float(run.deadline_probability[0]),
        "budget_probability": None if run.budget_probability is None else float(run.budget_probability[0]),
    }
    for end, i, share in zip(("low", "high"), (0, 2), shares, strict=True):
        ends |= {
            f"time_s_{end}": float(times[i]),
            f"cost_usd_{end}": float(getattr(run, f"cost_usd_{end}")[0]),
            f"energy_j_{end}": energy * float(share[0]),
            f"carbon_g_{end}": None if grams is None else energy * grams * float(share[0]),
        }
    return ends


def _pareto(found: Found) -> list[dict[str, object]]:
    """No other layout is both faster and cheaper: the fastest of each K, filtered."""
    options = found.partial.fastest
    if not options:
        return []
    mask = front([[found.wall_s(c) for c in options], [c.cost_usd for c in options]])
    kept = [candidate for candidate, on in zip(options, mask, strict=True) if on]
    return [_entry(found, c) for c in sorted(kept, key=lambda c: (found.wall_s(c), c.key))]


def _by_cluster(found: Found, beliefs: Beliefs) -> tuple[list[dict[str, object]], list[str]]:
    """The best answer of each cluster within the limits, the best first; without one, why. And notes on break-even prices.

    At one K the fastest layout is the cheapest too, so that it stands for all of that K.
    """
    rules, objective = constraints_of(found), found.request.objective
    ranked: list[Candidate] = []
    without: list[dict[str, object]] = []
    for index, target in enumerate(found.targets):
        fits = [c for c in found.partial.fastest if c.target == index]
        kept = [c for c in fits if all(rule.kept(c) for rule in rules)]
        if kept:
            ranked.append(min(kept, key=lambda c: (c.objective(objective), c.key)))
        else:
            why = f"no K keeps the {' and '.join(rule.name for rule in rules)}" if fits else "no layout fits"
            without.append({"cluster": target.name, "k": None, "reason": why})
    # What has no price costs nobody knows what: it stands below what has one.
    ranked.sort(key=lambda c: (math.isnan(c.objective(objective)), c.objective(objective), c.key))
    rows, notes = [], []
    for place, candidate in enumerate(ranked):
        row = _entry(found, candidate)
        price = _break_even_usd_per_h(found, candidate, ranked)
        if price is not None:
            row["break_even_usd_per_accelerator_h"] = price
            notes.append(
                f"{row['cluster']} has no price: below {price:.2f} USD/h per accelerator its run is cheaper than that of any "
                "priced cluster"
            )
        if place < found.request.keep:
            row |= _bands(found, candidate, _banded(found, beliefs, candidate), beliefs)
        rows.append(row)
    return [*rows, *without], notes


def _break_even_usd_per_h(found: Found, one: Candidate, others: Sequence[Candidate]) -> float | None:
    """Of a cluster without a price, the one at which its run costs as much as the cheapest of the others."""
    priced = [other.cost_usd for other in others if math.isfinite(other.cost_usd)]
    if not priced or math.isfinite(one.cost_usd):
        return None
    return min(priced) / (one.k * found.wall_s(one)) * HOUR_S


def _untried(found: Found, best: Candidate) -> list[str]:
    """The K between one that misses the deadline and the answer, which a ladder of doublings leaves out."""
    deadline, node = found.request.deadline_s, found.jobs[best.target].cluster.node.accelerators_per_node
    below = [c for c in found.partial.fastest if c.target == best.target and c.k < best.k]
    late = [c.k for c in below if deadline is not None and found.wall_s(c) > deadline]
    if not late or best.k - max(late) <= node:
        return []
    return [
        f"K = {max(late)} misses the deadline and K = {best.k} keeps it; what lies between was not tried: "
        f"-k {max(late)}..{best.k}:{node}"
    ]


def told_apart(first: Curve, second: Curve) -> dict[str, object]:
    """Whether the bands of the first two are apart, and how often the first wins draw by draw."""
    overlap = bool(first.high_s[0] >= second.low_s[0] and second.high_s[0] >= first.low_s[0])
    wins = float(np.mean(first.draws_s[:, 0] <= second.draws_s[:, 0])) if first.draws_s.size else None
    return {"bands_overlap": overlap, "first_faster_in_draws": wins}


def runner_up(found: Found, shown: Sequence[Candidate], curves: Sequence[Curve]) -> str:
    """Why the second lost: by how much, and which parts of the step make the difference."""
    first, second = shown[0], shown[1]
    objective = found.request.objective
    more = second.objective(objective) / first.objective(objective) - 1.0
    word = {"time": "slower", "cost": "dearer", "energy": "worse in energy"}[objective]
    gaps = {name: float(curves[1].parts[name][0] - curves[0].parts[name][0]) for name in curves[0].parts}
    largest = sorted(gaps, key=lambda name: (-abs(gaps[name]), name))[:2]
    reasons = ", ".join(
        f"{name.replace('_', ' ')} {'+' if gaps[name] >= 0 else '-'}{in_words(abs(gaps[name]), 's', 3)}"
        for name in largest
        if abs(gaps[name]) > 1e-6 * first.time_s
    )
    where = f"K = {second.k}, {_layout(second)}"
    if len(found.targets) > 1:
        where = f"{found.targets[second.target].name}, {where}"
    lost = f"{more:.1%} {word}" if more > 5e-4 else "as good, but less simple"
    return f"{where} is {lost}{f' ({reasons} a step)' if reasons else ''}"


def _sentence(
    found: Found, shown: Sequence[Candidate], curves: Sequence[Curve], missed: Nearest | None
) -> str:
    if not shown:
        reason = missed.reason if missed is not None else "nothing was searched"
        ways = "; or ".join(missed.relax) if missed is not None else ""
        return f"No answer: {reason}. To get one, {ways}."
    best = shown[0]
    target = found.targets[best.target]
    wall = found.wall_s(best)
    run = f", {in_words(wall, 's', 3)} for {target.steps:,.0f} steps" if target.steps > 1 else ""
    price = f", {in_words(best.cost_usd, 'USD', 4)}" if math.isfinite(best.cost_usd) else ""
    what = (
        f"K = {best.k} of {target.name} as {_layout(best)}: {in_words(best.time_s, 's', 3)} a step "
        f"({band_in_words(float(curves[0].low_s[0]), float(curves[0].high_s[0]), 's', 3, best.time_s)}){run}{price}"
    )
    if missed is not None:
        return (
            f"The constraints cannot be met: {missed.reason}. Nearest: {what}. To get it, {missed.relax[0]}."
        )
    goal = {"time": "Fastest", "cost": "Cheapest", "energy": "Least energy"}[found.request.objective]
    tail = ""
    if len(curves) > 1 and told_apart(curves[0], curves[1])["bands_overlap"]:
        tail = " The first two cannot be told apart: their bands overlap."
    tail = f"{_chances(_whole(found, best, curves[0]))}{tail}"
    stopped = " (interrupted: of what was searched)" if found.interrupted else ""
    return f"{goal}{stopped}: {what}.{tail}"


def _chances(run: WholeRun) -> str:
    """The chance to keep each limit that was given, in a sentence.

    >>> from perfmodel.decide.pricing import Tariff
    >>> _chances(whole_run([8], [1.0], [1.2], 10, Tariff("x", 1.0), deadline_s=12.0))
    ' The chance to keep the deadline is 95 %.'
    """
    limits = (("deadline", run.deadline_probability), ("budget", run.budget_probability))
    said = [
        f"the {name} is {chance_in_words(float(values[0]))}" for name, values in limits if values is not None
    ]
    return f" The chance to keep {', and '.join(said)}." if said else ""


def _economics(found: Found, best: Candidate, catalog: Catalog) -> dict[str, object]:
    """Regimes side by side, goals, and the whole run under failures, on the answer's cluster."""
    job, target = found.jobs[best.target], found.targets[best.target]
    mine = [c for c in found.partial.fastest if c.target == best.target]
    k = np.array([c.k for c in mine], dtype=float)
    useful = np.array([c.time_s for c in mine]) * target.steps
    work = np.array([c.work for c in mine])
    efficiency = np.array([found.efficiency(c) for c in mine])
    out: dict[str, object] = {"k": [c.k for c in mine]}
    if math.isfinite(target.tariff.usd_per_accelerator_s):
        rows = regimes_of(job.price, job.cluster, catalog, job.reliability)
        table = []
        for row in rows:
            decision = cost.decide(k, useful, row.tariff, work=work)
            entry = decision.as_dict()
            entry["break_even_utilisation"] = row.break_even_utilisation
            entry["utilisation"] = row.utilisation
            table.append(entry)
        out["regimes"] = table
        own = cost.decide(k, useful, target.tariff, work=work)
        goals = recommend(
            k,
            own.bill.wall_s / work,
            own.bill.total_usd / work,
            efficiency,
            deadline_s=found.request.deadline_s,
            budget_usd=found.request.budget_usd,
            threshold=found.request.min_efficiency or 0.70,
        )
        out["recommendations"] = [goal.as_dict() for goal in goals]
    reliability = reliability_of(job.cluster, job.reliability, job.price)
    if reliability is not None:
        out["goodput"] = goodput.run(k, useful, reliability).as_dict()
    return out


def _notes(found: Found, beliefs: Beliefs) -> list[str]:
    told = [(*foreign(job, beliefs), *unmeasured(job, beliefs), *job.notes) for job in found.jobs]
    notes = list(dict.fromkeys(note for of_job in told for note in of_job))
    if found.jobs and found.jobs[0].steps is None and found.jobs[0].run_samples is None:
        notes.append("no steps, tokens or epochs given: cost, energy, deadline and budget are for one step")
    unpriced = [t.name for t in found.targets if not math.isfinite(t.tariff.usd_per_accelerator_s)]
    if unpriced:
        sought = (
            "" if len(unpriced) < len(found.targets) else f": the least {found.request.objective} is sought"
        )
        notes.append(f"no price is known for {', '.join(unpriced)}{sought}")
    if found.jobs and found.jobs[0].layout != "auto":
        notes.append("the job's own layout is left aside: plan searches all of them")
    return notes
