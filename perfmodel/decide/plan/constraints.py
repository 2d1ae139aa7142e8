"""When nothing meets the constraints: the nearest feasible answer and what to relax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfmodel.decide.plan.candidates import Candidate
from perfmodel.decide.plan.planner import Found
from perfmodel.decide.plan.targets import setup_at
from perfmodel.training.curve import smallest_that_fits
from perfmodel.training.rules import ORDER, REASONS
from perfmodel.units import in_words, percent


@dataclass(frozen=True)
class Constraint:
    """One limit of the request: whether a candidate keeps it, and by which factor it would have to give."""

    name: str
    value: Callable[[Candidate], float]
    limit: float
    smallest: bool  # the value must not exceed the limit; False: must reach it
    unit: str

    def kept(self, candidate: Candidate) -> bool:
        """Whether the candidate is within the limit (an unknown value is not)."""
        value = self.value(candidate)
        return value <= self.limit if self.smallest else value >= self.limit * (1.0 - 1e-9)

    def gap(self, candidate: Candidate) -> float:
        """How far beyond the limit the candidate is, as a factor; 1 on it."""
        value = self.value(candidate)
        ratio = value / self.limit if self.smallest else self.limit / value
        return ratio if math.isfinite(ratio) else math.inf

    def relaxed(self, candidate: Candidate) -> str:
        """What the limit would have to be for this candidate."""
        return f"{self.name} from {self.in_words(self.limit)} to {self.in_words(self.value(candidate))}"

    def in_words(self, value: float) -> str:
        """A value of this limit's kind."""
        return percent(value) if self.unit == "%" else in_words(value, self.unit)


@dataclass(frozen=True)
class Nearest:
    """The nearest feasible answer: None when no layout fits at all. `relax` lists the ways out."""

    candidate: Candidate | None
    reason: str
    relax: tuple[str, ...]


def constraints_of(found: Found) -> list[Constraint]:
    """The limits of a request."""
    request = found.request
    rules = []
    if request.deadline_s is not None:
        rules.append(Constraint("deadline", found.wall_s, request.deadline_s, True, "s"))
    if request.budget_usd is not None:
        rules.append(Constraint("budget", lambda c: c.cost_usd, request.budget_usd, True, "USD"))
    if request.min_efficiency is not None:
        rules.append(Constraint("efficiency", found.efficiency, request.min_efficiency, False, "%"))
    return rules


def nearest(found: Found) -> Nearest:
    """Why nothing was found, the nearest feasible layout, and what to relax to get it.

    At one K every limit is a longest step, so the fastest layout of each K stands for all of that K. Each
    constraint in turn is given up while the others hold; the one that has to give least names the answer.
    When giving up one is not enough, the answer is the K that misses all limits by the smallest factor.
    """
    options = found.partial.fastest
    if not options:
        return _does_not_fit(found)
    rules = constraints_of(found)
    broken = [rule for rule in rules if not any(rule.kept(c) for c in options)]
    ways: list[tuple[float, Constraint, Candidate]] = []
    for rule in rules:
        others = [c for c in options if all(other.kept(c) for other in rules if other is not rule)]
        if others:
            best = min(others, key=lambda c: (rule.gap(c), c.key))
            ways.append((rule.gap(best), rule, best))
    if ways:
        ways.sort(key=lambda way: (way[0], way[1].name))
        chosen = ways[0][2]
        relax = tuple(f"relax the {rule.relaxed(candidate)}" for _, rule, candidate in ways)
    else:
        chosen = min(options, key=lambda c: (max(rule.gap(c) for rule in rules), c.key))
        together = " and the ".join(rule.relaxed(chosen) for rule in rules if not rule.kept(chosen))
        relax = (f"relax the {together}",)
    return Nearest(chosen, _reason(found, rules, broken), relax)


def _reason(found: Found, rules: list[Constraint], broken: list[Constraint]) -> str:
    options = found.partial.fastest
    if not broken:
        names = " and ".join(rule.name for rule in rules)
        return f"no K keeps {names} at once, though each can be kept alone"
    parts = []
    for rule in broken:
        best = min(options, key=lambda c: (rule.gap(c), c.key))
        word = {"deadline": "the fastest possible run takes", "budget": "the cheapest possible run costs"}
        reached = rule.value(best)
        if not math.isfinite(reached):
            parts.append(f"the {rule.name} cannot be judged: no price is known")
        else:
            parts.append(f"{word.get(rule.name, 'the best efficiency is')} {rule.in_words(reached)}")
    return "; ".join(parts)


def _does_not_fit(found: Found) -> Nearest:
    refused = found.partial.refused
    if not found.partial.smallest:
        if not found.targets:
            most = found.request.max_k
            return Nearest(None, f"no K is at most {most}", ("raise --max-k, or ask for smaller K",))
        top = _least_broken(refused)
        relax = "choose other K or another global batch: degrees of parallelism must divide them"
        return Nearest(None, f"no layout exists: {top}", (relax,))
    least = min(found.partial.smallest, key=lambda c: c.memory_bytes)
    target = found.targets[least.target]
    whole = float(target.machine.memory_bytes)
    kept = f" ({target.headroom:.0%} of them stays free)" if least.memory_bytes < whole else ""
    reason = (
        f"no layout fits in memory: the smallest (K = {least.k} on {target.name}) needs "
        f"{in_words(least.memory_bytes, 'B')} of {in_words(whole, 'B')} per accelerator{kept}"
    )
    job = found.jobs[least.target]
    enough = smallest_that_fits(setup_at(job, [least.k]))
    more = f"use K = {enough} on {target.name}, which fits" if enough else "use more accelerators"
    need = f"{more}, or a device with at least {in_words(least.memory_bytes, 'B')} of memory"
    return Nearest(None, reason, (need,))


def _least_broken(refused: Mapping[str, int]) -> str:
    """The reason nearest to a layout that runs: all others could be mended by another choice of degrees."""
    known = [REASONS[code] for code in ORDER]
    return min(
        refused, key=lambda reason: known.index(reason) if reason in known else -1, default="no K was given"
    )
