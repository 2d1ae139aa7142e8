"""`perfmodel check`: every policy on every job it names, against the bands and the committed baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.decide.gate import baseline, changes, inputs
from perfmodel.decide.gate import serving as services
from perfmodel.decide.gate.evaluate import (
    FAIL,
    PASS,
    UNDECIDED,
    Outcome,
    Value,
    change,
    measure,
    outcome,
    overall,
    unit_of,
)
from perfmodel.decide.gate.grammar import Policy, PolicyError, parse
from perfmodel.errors import Problem, SpecError
from perfmodel.results.envelope import Result, __version__
from perfmodel.results.prediction import PredictionAnswer
from perfmodel.specs.job import Job
from perfmodel.specs.policies import Gate, Rule
from perfmodel.specs.serving import ServingJob

Predict = Callable[[Job], PredictionAnswer]
NO_BASELINE = "no baseline yet: perfmodel check --update-baseline writes one"


@dataclass(frozen=True)
class Checked:
    """The result for people and machines, and the lock that would make it the new baseline."""

    result: Result
    lock: baseline.Lock

    @property
    def blocked(self) -> bool:
        """Whether any policy fails, undecided ones counted as the user chose."""
        return any(policy["blocking"] for policy in self.result.result["policies"])


def read_rules(gate: Gate) -> list[tuple[Rule, Policy]]:
    """Parse every policy; all that cannot be read are reported together, each at its character."""
    problems: list[Problem] = []
    found = []
    for rule in gate.rules:
        try:
            found.append((rule, parse(rule.expression)))
        except PolicyError as error:
            problems.append(rule.problem("P001", error.message, error.offset, error.help))
    if problems:
        raise SpecError(problems)
    return found


def check(
    gate: Gate,
    predict: Predict,
    *,
    lock: baseline.Lock | None = None,
    undecided: str = PASS,
    seed: int = 0,
    accept: bool = False,
) -> Checked:
    """Predict every job once, decide every policy, and name the causes of what changed.

    With `accept` the new predictions become the baseline: policies on changes are measured from them.
    """
    rules = read_rules(gate)
    services.refuse_foreign(rules, gate.jobs)
    policies: list[dict[str, object]] = []
    moved: list[dict[str, object]] = []
    switched: list[dict[str, object]] = []
    entries: dict[str, baseline.Entry] = {}
    for name, job in gate.jobs.items():
        own = [
            (rule, policy)
            for rule, policy in rules
            if (rule.policy.jobs is None or name in rule.policy.jobs)
            and policy.is_serving == isinstance(job, ServingJob)
        ]
        if isinstance(job, ServingJob):
            service = services.Asked(job)
            policies += [
                _row(name, rule, outcome(policy, service.measure(policy)), undecided) for rule, policy in own
            ]
            continue
        wanted = [policy for _, policy in own]
        extended = inputs.with_k(job, (policy.k for policy in wanted if policy.k is not None))
        result = predict(extended)
        entry = baseline.Entry(inputs.dump(extended), baseline.summary(result))
        entries[name] = entry
        old = lock.jobs.get(name) if lock is not None else None
        reference = entry if accept else old
        for rule, policy in own:
            policies.append(_row(name, rule, decide_one(policy, result, reference, extended), undecided))
        if old is not None:
            moved += _located(_causes(wanted, old, entry, predict), name, job)
            switched += _switched(name, wanted, old, entry)
    verdicts = [str(policy["verdict"]) for policy in policies]
    made = baseline.Lock(__version__, seed, dict(sorted(entries.items())))
    return Checked(
        Result(
            kind="check",
            inputs={
                "file": str(gate.path),
                "jobs": {name: job.name for name, job in gate.jobs.items()},
                "undecided": undecided,
            },
            result={
                "verdict": overall(verdicts),
                "policies": policies,
                "changes": moved,
                "layouts": switched,
                "notes": _notes(gate, made if accept else lock, entries),
            },
            seed=seed,
        ),
        made,
    )


def decide_one(policy: Policy, result: PredictionAnswer, old: baseline.Entry | None, job: Job) -> Outcome:
    """One policy on one prediction; a change needs the baseline's prediction too."""
    memory = job.cluster.accelerator.memory
    if not policy.change:
        return outcome(policy, measure(policy, result, memory))
    if old is None:
        return Outcome(policy, Value(None, None, None, NO_BASELINE, policy.k), UNDECIDED, unit_of(policy))
    before = measure(policy, old.result, _memory(old.inputs))
    now = measure(policy, baseline.summary(result), memory)  # rounded like the lock
    if before.value is None and now.value is not None:
        reason = f"the baseline has no {policy.subject}: {before.reason or 'nothing was locked'}"
        return Outcome(policy, Value(None, None, None, reason, policy.k), UNDECIDED, unit_of(policy))
    return outcome(policy, change(policy, before, now, result["k"]))


def _memory(given: Mapping[str, object]) -> float | None:
    found: object = given
    for key in ("cluster", "node", "accelerator", "memory"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, (int, float)) else None


def _causes(
    wanted: Sequence[Policy], old: baseline.Entry, new: baseline.Entry, predict: Predict
) -> list[changes.Effect]:
    if old.inputs == new.inputs and old.result == new.result:
        return []

    def again(given: Mapping[str, object]) -> PredictionAnswer:
        # Rounded like the lock, so that what did not change is seen not to have changed.
        return baseline.summary(predict(inputs.restore(given)))

    chosen = wanted or [parse("knee >= 1"), parse("cost >= 0 USD")]
    return changes.effects(chosen, old.result, old.inputs, new.inputs, new.result, again, _memory)


def _located(effects: Sequence[changes.Effect], name: str, job: Job) -> list[dict[str, object]]:
    """The changes, each with the place of the input that it names, where a file has one."""
    rows = []
    for effect in effects:
        mark = job.error_at(".".join(effect.path), "P000", "").problems[0] if effect.path else None
        place = {
            "file": None if mark is None else mark.file,
            "line": None if mark is None else mark.line,
            "column": None if mark is None else mark.column,
        }
        rows.append(effect.mapping(name) | place)
    return rows


def _switched(
    name: str, wanted: Sequence[Policy], old: baseline.Entry, new: baseline.Entry
) -> list[dict[str, object]]:
    """Another layout than the baseline's at the K that policies name, or at the first K where none does."""
    before, after = (
        dict(zip(one.result["k"], one.result.get("layout") or (), strict=False)) for one in (old, new)
    )
    common = [k for k in after if k in before and before[k] != after[k] and before[k] and after[k]]
    named = {policy.k for policy in wanted if policy.k is not None}
    shown = [k for k in common if k in named] or common[:1]
    return [{"job": name, "k": k, "before": before[k], "after": after[k]} for k in shown]


def _row(job: str, rule: Rule, decided: Outcome, undecided: str) -> dict[str, object]:
    policy, value = decided.policy, decided.value
    # A problem at the start of the expression carries the position that every format shows.
    place = rule.problem("P000", "")
    reasons = [
        text for text in (value.reason, rule.policy.reason if decided.verdict != PASS else None) if text
    ]
    return {
        "job": job,
        "expression": policy.text,
        "metric": "change" if policy.change else policy.metric.name,
        "k": value.k,
        "value": value.value,
        "low": value.low,
        "high": value.high,
        "limit": policy.limit.value,
        "limit_text": f"{policy.comparator} {policy.limit.text}",
        "unit": decided.unit,
        "at_least": value.at_least,
        "verdict": decided.verdict,
        "blocking": decided.verdict == FAIL or (decided.verdict == UNDECIDED and undecided == FAIL),
        "reason": "; ".join(reasons),
        "file": place.file,
        "line": place.line,
        "column": place.column,
    }


def _notes(gate: Gate, lock: baseline.Lock | None, entries: Mapping[str, baseline.Entry]) -> list[str]:
    notes = [f"{name}: {note}" for name, job in gate.jobs.items() for note in job.notes]
    if gate.jobs and not entries:  # services alone, which no baseline holds
        return notes
    if lock is None:
        return [*notes, NO_BASELINE]
    unknown = sorted(set(entries) - set(lock.jobs))
    gone = sorted(set(lock.jobs) - set(entries))
    if unknown:
        notes.append(f"not in the baseline yet: {', '.join(unknown)}")
    if gone:
        notes.append(f"in the baseline but no longer a job: {', '.join(gone)}")
    return notes
