"""Many jobs that share a number of accelerators: which job gets how many.

All jobs run at the same time. Each takes one of its K, with the best layout there; the sum of K stays within the
shared accelerators and, when a budget is given, the sum of costs within it. The choice is exact: a dynamic
programme over jobs that keeps, for each number of accelerators used, the sets that no other set dominates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.decide.plan.candidates import Candidate
from perfmodel.decide.plan.planner import Found
from perfmodel.results.envelope import Result
from perfmodel.units import in_words


@dataclass(frozen=True)
class Option:
    """One way to run one job."""

    k: int
    wall_s: float
    cost_usd: float
    energy_j: float
    index: int  # of the candidate in the job's list


@dataclass(frozen=True)
class Share:
    """A choice of one option for each job so far."""

    used: int
    makespan_s: float
    total_s: float
    cost_usd: float
    energy_j: float
    picks: tuple[int, ...]

    def value(self, objective: str) -> tuple[float, ...]:
        """What is minimised, in order: the end of the last job, cost or energy, then the rest."""
        order = {
            "time": (self.makespan_s, self.total_s, self.cost_usd),
            "cost": (self.cost_usd, self.makespan_s, self.total_s),
            "energy": (self.energy_j, self.makespan_s, self.total_s),
        }[objective]
        return (*order, float(self.used))

    def add(self, option: Option) -> Share:
        """This choice and one more job's option."""
        return Share(
            self.used + option.k,
            max(self.makespan_s, option.wall_s),
            self.total_s + option.wall_s,
            self.cost_usd + option.cost_usd,
            self.energy_j + option.energy_j,
            (*self.picks, option.index),
        )


def allocate(
    options: Sequence[Sequence[Option]], accelerators: int, objective: str, budget_usd: float = math.inf
) -> Share | None:
    """The best choice of one option per job within the shared limits; None when there is none.

    >>> slow, fast = Option(1, 10.0, 10.0, 1.0, 0), Option(4, 4.0, 16.0, 1.0, 1)
    >>> allocate([[slow, fast], [slow, fast]], 8, "time").picks
    (1, 1)
    >>> allocate([[slow, fast], [slow, fast]], 5, "time").picks
    (0, 1)
    """
    shares = [Share(0, 0.0, 0.0, 0.0, 0.0, ())]
    for choices in options:
        grown = [
            made
            for share in shares
            for option in choices
            if (made := share.add(option)).used <= accelerators and not made.cost_usd > budget_usd
        ]
        shares = _undominated(grown, objective)
    return min(shares, key=lambda share: (share.value(objective), share.picks), default=None)


def _undominated(shares: Sequence[Share], objective: str) -> list[Share]:
    """Drop shares that another one beats or equals in accelerators used, objective and cost."""
    kept: list[Share] = []
    for share in sorted(shares, key=lambda s: (s.value(objective), s.used, s.picks)):
        beaten = any(
            other.used <= share.used
            and other.cost_usd <= share.cost_usd
            and other.total_s <= share.total_s
            and other.makespan_s <= share.makespan_s
            and other.value(objective)[0] <= share.value(objective)[0]
            for other in kept
        )
        if not beaten:
            kept.append(share)
    return kept


def options_of(found: Found, deadline_s: float | None) -> tuple[list[Option], list[Candidate]]:
    """The options of one job: the fastest layout of each K that keeps the deadline."""
    candidates = list(found.partial.fastest)
    options = []
    for index, candidate in enumerate(candidates):
        wall = found.wall_s(candidate)
        if deadline_s is None or wall <= deadline_s:
            options.append(Option(candidate.k, wall, candidate.cost_usd, found.energy_j(candidate), index))
    return options, candidates


def _entry(found: Found, candidate: Candidate) -> dict[str, object]:
    return {
        "cluster": found.targets[candidate.target].name,
        "k": candidate.k,
        "layout": candidate.layout(),
        "time_s": candidate.time_s,
        "wall_s": found.wall_s(candidate),
        "cost_usd": candidate.cost_usd,
        "energy_j": found.energy_j(candidate),
        "memory_bytes": candidate.memory_bytes,
    }


def fleet_result(
    names: Sequence[str], founds: Sequence[Found], accelerators: int | None, inputs: dict[str, object]
) -> tuple[Result, bool]:
    """`plan.result` of a fleet, and whether every job has its place."""
    request = founds[0].request
    listed = [options_of(found, request.deadline_s) for found in founds]
    shared = accelerators if accelerators is not None else sum(max(f.jobs[0].k) for f in founds if f.jobs)
    budget = math.inf if request.budget_usd is None else request.budget_usd
    share = allocate([options for options, _ in listed], shared, request.objective, budget)
    rows = []
    if share is not None:
        chosen = [candidates[pick] for (_, candidates), pick in zip(listed, share.picks, strict=True)]
        rows = [
            {"rank": rank, "job": name, **_entry(found, candidate)}
            for rank, (name, found, candidate) in enumerate(zip(names, founds, chosen, strict=True), 1)
        ]
    refused: dict[str, int] = {}
    for found in founds:
        for reason, count in found.partial.refused.items():
            refused[reason] = refused.get(reason, 0) + count
    result: dict[str, object] = {
        "objective": request.objective,
        "met": share is not None,
        "evaluated": sum(found.partial.evaluated for found in founds),
        "pruned": sum(found.partial.pruned for found in founds),
        "feasible": sum(found.partial.feasible for found in founds),
        "seconds": sum(found.seconds for found in founds),
        "candidates": rows,
        "pareto": [],
        "refused": refused,
        "fleet": {
            "accelerators": shared,
            "used": share.used if share else None,
            "makespan_s": share.makespan_s if share else None,
            "cost_usd": share.cost_usd if share else None,
            "energy_j": share.energy_j if share else None,
        },
    }
    if any(found.interrupted for found in founds):
        result["interrupted"] = True
    if share is None:
        reason, relax = _why_not(names, [options for options, _ in listed], shared, budget)
        result["reason"], result["relax"] = reason, relax
        result["answer"] = f"The jobs do not fit: {reason}. To fit them, {relax[0]}."
    else:
        unused = shared - share.used
        result["answer"] = (
            f"{len(rows)} jobs on {share.used} of {shared} accelerators ({unused} left): all done in "
            f"{in_words(share.makespan_s, 's', 3)}"
            + (f" for {in_words(share.cost_usd, 'USD', 4)}." if math.isfinite(share.cost_usd) else ".")
        )
    return Result("plan", inputs, result, request.seed), share is not None


def _why_not(
    names: Sequence[str], options: Sequence[Sequence[Option]], accelerators: int, budget: float
) -> tuple[str, list[str]]:
    stuck = [name for name, choices in zip(names, options, strict=True) if not choices]
    if stuck:
        reason = f"no K of {', '.join(stuck)} has a feasible layout within the deadline"
        return reason, ["relax the deadline, or allow more K for these jobs"]
    least = sum(min(choice.k for choice in choices) for choices in options)
    if least > accelerators:
        return (
            f"the jobs need at least {least} accelerators together, {accelerators} are shared",
            [f"share at least {least} accelerators"],
        )
    unlimited = allocate(options, accelerators, "cost")
    need = unlimited.cost_usd if unlimited is not None else math.nan
    return (
        f"the cheapest choice costs {in_words(need, 'USD')}",
        [f"raise the budget from {in_words(budget, 'USD')} to {in_words(need, 'USD')}"],
    )
