"""Policies on a service: the value that a policy speaks of, with its 90 % band."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from perfmodel.decide.gate.evaluate import Value
from perfmodel.decide.gate.grammar import SERVING, Policy
from perfmodel.decide.serving.choose import choose
from perfmodel.decide.serving.curve import LoadCurve, knee_grid, load_curve, reported_loads
from perfmodel.decide.serving.fleet import replicas_for
from perfmodel.decide.serving.knee import knees
from perfmodel.decide.serving.money import MILLION, bill
from perfmodel.errors import Problem, SpecError
from perfmodel.serving.beliefs import shipped_beliefs
from perfmodel.serving.setup import service_of
from perfmodel.specs.job import Job
from perfmodel.specs.policies import Rule
from perfmodel.specs.serving import ServingJob


def refuse_foreign(rules: Sequence[tuple[Rule, Policy]], jobs: Mapping[str, Job | ServingJob]) -> None:
    """Refuse a policy whose every job, or a job that it names, is of the other kind."""
    problems: list[Problem] = []
    for rule, policy in rules:
        named = rule.policy.jobs
        apart = [name for name in named or jobs if isinstance(jobs[name], ServingJob) != policy.is_serving]
        if not apart or (named is None and len(apart) < len(jobs)):
            continue
        kind = "a service" if policy.is_serving else "training jobs"
        message = f"{policy.metric.name} is measured of {kind}, and {', '.join(apart)} {'is' if len(apart) == 1 else 'are'} not"
        hint = f"of a service: {', '.join(sorted(SERVING))}"
        problems.append(rule.problem("P001", message, 0, None if policy.is_serving else hint))
    if problems:
        raise SpecError(problems)


class Asked:
    """A serving job, predicted once for all policies on it."""

    def __init__(self, job: ServingJob) -> None:
        self.job = job
        self.service = service_of(job, shipped_beliefs())
        self.chosen = choose(self.service)
        self.replicas = float(job.replicas)

    def at(self, kind: str, load: float) -> LoadCurve:
        """The curve at one load of the whole deployment."""
        return load_curve(self.service, self.chosen.layout, kind, np.array([load / self.replicas]))

    @cached_property
    def whole(self) -> LoadCurve:
        """The curve over the job's own loads and those between which a knee is looked for."""
        kind, asked = reported_loads(self.service, self.chosen.layout)
        grid = asked if kind == "offline" else knee_grid(self.service, self.chosen.layout, kind, asked)
        return load_curve(self.service, self.chosen.layout, kind, np.unique(np.concatenate([asked, grid])))

    @cached_property
    def open(self) -> LoadCurve:
        """The same in an open loop, in which replicas for a rate are counted."""
        if self.whole.kind == "rate":
            return self.whole
        grid = knee_grid(self.service, self.chosen.layout, "rate", np.array([1.0]))
        return load_curve(self.service, self.chosen.layout, "rate", grid)

    def knee(self, curve: LoadCurve) -> Value:
        """The largest load of one replica within the slo."""
        if self.job.serving.slo is None:
            return Value(None, None, None, "the job states no slo")
        found = knees(curve, self.job.serving.slo.limits)["slo"]
        if found["load"] is None and str(found["cause"]).startswith("every"):
            most = float(curve.load[-1])
            return Value(most, found["low"] or most, math.inf, found["cause"], at_least=True)
        if found["load"] is None:
            return Value(None, None, None, found["cause"])
        low = 0.0 if found["low"] is None else found["low"]
        high = math.inf if found["high"] is None else found["high"]
        return Value(found["load"], low, high, found["cause"])

    def measure(self, policy: Policy) -> Value:
        """The number that a policy speaks of."""
        name = policy.metric.name
        if not policy.is_serving:
            return Value(None, None, None, f"{name} is of training jobs, and this job serves")
        if name == "replicas":
            return self._fleet(float(policy.rate_per_s or 0.0))
        if name == "max_load":
            found = self.knee(self.whole)
            return _scaled(found, self.replicas)
        if name == "cost_per_mtok" and policy.rate_per_s is None and policy.concurrency is None:
            return self._cost_at_knee()
        if policy.rate_per_s is not None:
            curve = self.at("rate", policy.rate_per_s)
        elif policy.concurrency is not None:
            curve = self.at("concurrency", float(policy.concurrency))
        elif self.whole.kind == "offline":
            curve = self.whole
        else:
            return Value(None, None, None, f"at which load? write {name}(rate=8/s) or {name}(concurrency=64)")
        if not bool(np.all(curve.answer.fits)):
            return Value(None, None, None, "the model and one request do not fit the memory")
        if name in ("tokens_per_s", "cost_per_mtok"):
            return self._throughput(curve, name)
        quantity, _, statistic = name.partition("_")
        value = float(curve.times[quantity][statistic][0])
        low, high = (float(end[0]) for end in curve.bounded(quantity, statistic))
        if math.isnan(value):
            if curve.kind == "offline":
                return Value(None, None, None, "an offline load has no latency")
            return Value(
                None,
                None,
                None,
                f"{policy.rate_per_s:g} /s is more than the {curve.saturation_per_s * self.replicas:.3g} /s that are answered",
            )
        slow = (
            "" if math.isfinite(high) else "the slow end of the band is overrun at this rate, and has no end"
        )
        return Value(value, low, high, slow)

    def _throughput(self, curve: LoadCurve, name: str) -> Value:
        value = float(np.ravel(curve.answer.throughput_out_tokens_per_s)[0]) * self.replicas
        low, high = (float(end[0]) * self.replicas for end in curve.throughput_ends)
        if not bool(np.ravel(curve.answer.stable)[0]):
            return Value(None, None, None, "more is asked than answered: nothing is steady")
        if name == "tokens_per_s":
            return Value(value, low, high)
        paid = bill(self.job, curve.layout.accelerators * self.replicas).usd_per_s
        if math.isnan(paid):
            return Value(None, None, None, "no price is known")
        cost = paid / value * MILLION
        return Value(cost, cost * value / high, cost * value / low)

    def _cost_at_knee(self) -> Value:
        curve = self.whole
        if curve.kind == "offline":
            return self._throughput(curve, "cost_per_mtok")
        found = self.knee(self.open)
        if found.value is None:
            return found
        paid = bill(self.job, self.chosen.layout.accelerators).usd_per_s
        if math.isnan(paid):
            return Value(None, None, None, "no price is known")
        out = self.job.serving.output_tokens.mean
        costs = [
            math.inf if not load else paid / (load * out) * MILLION
            for load in (found.value, found.high, found.low)
        ]
        return Value(costs[0], costs[1], costs[2], "at the largest load within the slo")

    def _fleet(self, rate: float) -> Value:
        found = self.knee(self.open)
        if found.value is None:
            return found
        each = [
            math.inf if not load else float(replicas_for(rate, load))
            for load in (found.value, found.high, found.low)
        ]
        return Value(each[0], each[1], each[2], found.reason)


def _scaled(value: Value, factor: float) -> Value:
    if value.value is None:
        return value
    return Value(
        value.value * factor,
        (value.low or 0.0) * factor,
        (value.high or 0.0) * factor,
        value.reason,
        at_least=value.at_least,
    )
