"""A policy against a prediction: the value with its band, and pass, fail or undecided."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.decide.gate.grammar import Policy
from perfmodel.results.prediction import Optimum, PredictionAnswer

PASS, FAIL, UNDECIDED = "pass", "fail", "undecided"
# Metrics that are read from a list aligned with `k`: their name in prediction.result.
ARRAYS = {
    "time": "time_s",
    "efficiency": "efficiency",
    "speedup": "speedup",
    "throughput": "throughput",
    "cost": "cost_usd",
    "energy": "energy_j",
    "carbon": "carbon_g",
    "memory": "memory_bytes",
    "mfu": "mfu",
    "tflop_per_s_per_accelerator": "tflop_per_s_per_accelerator",
    "tokens_per_s_per_accelerator": "tokens_per_s_per_accelerator",
    "samples_per_s_per_accelerator": "samples_per_s_per_accelerator",
    "run_time": "run.time_s",
    "run_cost": "run.cost_usd",
    "deadline_probability": "run.deadline_probability",
    "budget_probability": "run.budget_probability",
}
# How a metric moves with the time of a step: with it, against it, or not at all. Used where no band is given.
_WITH_TIME = frozenset({"time_s", "cost_usd", "energy_j", "carbon_g", "run.time_s", "run.cost_usd"})
_AGAINST_TIME = frozenset(
    {
        "efficiency",
        "speedup",
        "throughput",
        "mfu",
        "tflop_per_s_per_accelerator",
        "tokens_per_s_per_accelerator",
        "samples_per_s_per_accelerator",
    }
)
# Why a number of the whole run may be missing from a job that runs.
_NEEDS = {
    "run.deadline_probability": "the job states no deadline, or not how long it runs",
    "run.budget_probability": "the job states no budget, or not how long it runs",
    "run.time_s": "the job states neither steps nor tokens nor epochs",
    "run.cost_usd": "the job states neither steps nor tokens nor epochs, or no price is known",
}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}


@dataclass(frozen=True)
class Value:
    """A number with its 90 % band; `reason` says why there is none, or what is special about it."""

    value: float | None
    low: float | None
    high: float | None
    reason: str = ""
    k: int | None = None
    at_least: bool = False  # the range ends before the number does


@dataclass(frozen=True)
class Outcome:
    """One policy decided on one job."""

    policy: Policy
    value: Value
    verdict: str
    unit: str  # how to print the value: a base unit, "K", "%", "step" or "share"


def decide(comparator: str, limit: float, value: Value) -> str:
    """pass where the whole band keeps the limit, fail where none of it does, else undecided.

    >>> decide("<=", 1.2, Value(1.0, 0.9, 1.1)), decide("<=", 1.2, Value(1.15, 1.05, 1.3)), decide(">=", 64, Value(32, 16, 32))
    ('pass', 'undecided', 'fail')
    """
    if value.value is None or value.low is None or value.high is None:
        return FAIL
    holds = _COMPARE[comparator]
    both = (holds(value.low, limit), holds(value.high, limit))
    return PASS if all(both) else UNDECIDED if any(both) else FAIL


def _index(result: PredictionAnswer, k: int) -> int | None:
    ladder = list(result["k"])
    return ladder.index(k) if k in ladder else None


def array_of(result: Mapping[str, object], name: str) -> Sequence[float | None] | None:
    """An array of the prediction, or of one of its mappings: `run.time_s`.

    >>> array_of({"run": {"time_s": [1.0]}}, "run.time_s"), array_of({"run": None}, "run.time_s")
    ([1.0], None)
    """
    found = result.get(name)
    if name not in result:
        group, _, key = name.partition(".")
        inner = result.get(group)
        found = inner.get(key) if key and isinstance(inner, Mapping) else None
    return found if isinstance(found, Sequence) else None


def _at(result: PredictionAnswer, name: str, index: int) -> Value:
    """Entry `index` of an array of the prediction, with its band."""
    k = int(result["k"][index])
    values = array_of(result, name)
    value = values[index] if values else None
    if value is None:
        reasons = result.get("reason") or []
        why = (
            reasons[index]
            if index < len(reasons) and reasons[index]
            else _NEEDS.get(name, f"the prediction has no {name} here")
        )
        return Value(None, None, None, f"K = {k}: {why}", k)
    low_ends, high_ends = (array_of(result, f"{name}_{end}") for end in ("low", "high"))
    if low_ends is not None and high_ends is not None and low_ends[index] is not None:
        return Value(value, low_ends[index], high_ends[index], k=k)
    time_s, low, high = (
        times[index] for times in (result["time_s"], result["time_s_low"], result["time_s_high"])
    )
    if time_s is not None and low is not None and high is not None:
        if name in _WITH_TIME:
            return Value(value, value * low / time_s, value * high / time_s, k=k)
        if name in _AGAINST_TIME:
            return Value(value, value * time_s / high, value * time_s / low, k=k)
    return Value(value, value, value, k=k)


def _knee(result: PredictionAnswer, rule: str) -> Value:
    knee = result["knee"][rule]
    timed = [k for k, time_s in zip(result["k"], result["time_s"], strict=True) if time_s is not None]
    if not timed:
        return Value(None, None, None, "no K is feasible")
    largest = max(timed)
    # Beyond the largest K that runs there is a larger one that does not, or the range simply ends.
    beyond = float(largest) if largest < max(result["k"]) else math.inf
    k = knee["k"]
    if k is None:
        least = min(knee.get("k_low") or largest, largest)
        why = f"not reached up to K = {largest}" + (
            "" if beyond == math.inf else ", the largest that is feasible"
        )
        return Value(float(largest), float(least), beyond, why, largest, at_least=beyond == math.inf)
    low, high = knee.get("k_low"), knee.get("k_high")
    ends = float(k if low is None else low), float(beyond if high is None else high)
    return Value(float(k), *ends, str(knee.get("cause") or ""), int(k))


def _optimum(best: Optimum | None, name: str) -> Value:
    k = best.get("k") if best else None
    if best is None or k is None:
        return Value(None, None, None, f"no K is feasible, so there is no {name}")
    low, high = best.get("k_low") or k, best.get("k_high") or k
    return Value(float(k), float(low), float(high), k=int(k))


def measure(policy: Policy, result: PredictionAnswer, device_memory_bytes: float | None) -> Value:
    """The number that a policy bounds, read from prediction.result (never a change)."""
    name = policy.metric.name
    if policy.is_serving:
        return Value(None, None, None, f"{name} is of a service, and this job trains")
    if name == "knee":
        return _knee(result, policy.rule)
    if name in ("p_star", "fastest"):
        return _optimum(result["p_star"] if name == "p_star" else result["fastest"], name)
    if policy.k is not None:
        index = _index(result, policy.k)
        if index is None:
            return Value(None, None, None, f"K = {policy.k} is not a K of the job", policy.k)
        return (
            _share(policy, result, index)
            if name == "share"
            else _scaled(policy, _at(result, ARRAYS[name], index), device_memory_bytes)
        )
    if name == "memory":
        held = [
            (bytes_, at)
            for at, bytes_ in enumerate(result["memory_bytes"])
            if bytes_ is not None and result["time_s"][at] is not None
        ]
        if not held:
            return Value(None, None, None, "no K is feasible")
        return _scaled(policy, _at(result, ARRAYS[name], max(held)[1]), device_memory_bytes)
    best = _optimum(result["p_star"], "p_star")
    if best.k is None:
        return best
    index = _index(result, best.k)
    if index is None:
        return Value(None, None, None, f"p* = {best.k} is not a K of the job")
    return _at(result, ARRAYS[name], index)


def _scaled(policy: Policy, value: Value, device_memory_bytes: float | None) -> Value:
    """Bytes as a share of the device where the limit is a percentage."""
    if policy.metric.name != "memory" or policy.limit.unit != "%" or policy.change or value.value is None:
        return value
    if not device_memory_bytes:
        return Value(None, None, None, "the device's memory is not known", value.k)
    low, high = value.low or 0.0, value.high or 0.0
    return Value(
        value.value / device_memory_bytes,
        low / device_memory_bytes,
        high / device_memory_bytes,
        value.reason,
        value.k,
    )


def _share(policy: Policy, result: PredictionAnswer, index: int) -> Value:
    parts = result["parts_s"]
    if policy.part is None or policy.part not in parts:
        return Value(
            None, None, None, f"no part {policy.part!r}; parts: {', '.join(sorted(parts))}", policy.k
        )
    total, own = result["time_s"][index], parts[policy.part][index]
    if total is None or own is None:
        return _at(result, "time_s", index)
    return Value(own / total, own / total, own / total, k=policy.k)


def position(ladder: Sequence[int], k: float) -> float:
    """Where K stands on the ladder of the job, in steps; between rungs by the logarithm.

    >>> position([1, 2, 4, 8], 4), position([1, 2, 4, 8], 3), position([8, 16], 64)
    (2.0, 1.584962500721156, 3.0)
    """
    rungs = sorted(ladder)
    at = bisect_left(rungs, k)
    if at < len(rungs) and rungs[at] == k:
        return float(at)
    if len(rungs) < 2:
        return math.log2(k / rungs[0])
    left = min(max(at - 1, 0), len(rungs) - 2)
    return left + math.log(k / rungs[left]) / math.log(rungs[left + 1] / rungs[left])


def change(policy: Policy, before: Value, after: Value, ladder: Sequence[int]) -> Value:
    """after against before: relative, or in steps of the ladder. The band is that of the difference.

    Both numbers come from one model with one seed: what is uncertain about the machine is uncertain in both alike
    and cancels, so the change is given as a number without a band.
    """
    if after.value is None:
        return after
    if before.value is None:
        return Value(None, None, None, "the baseline has no value here", after.k)
    if policy.limit.unit == "step":
        moved = round(position(ladder, after.value) - position(ladder, before.value), 6)
    elif before.value == 0:
        return Value(None, None, None, "the baseline is zero", after.k)
    else:
        moved = after.value / before.value - 1.0
    return Value(moved, moved, moved, k=after.k)


def unit_of(policy: Policy) -> str:
    """How the value of a policy is printed."""
    if policy.change:
        return policy.limit.unit
    if policy.metric.name == "share" or (policy.metric.name == "memory" and policy.limit.unit == "%"):
        return "share"
    return policy.metric.dimension


def outcome(policy: Policy, value: Value) -> Outcome:
    """Decide one policy."""
    return Outcome(policy, value, decide(policy.comparator, policy.limit.value, value), unit_of(policy))


def overall(verdicts: Sequence[str]) -> str:
    """fail beats undecided beats pass.

    >>> overall(["pass", "undecided"]), overall([])
    ('undecided', 'pass')
    """
    return FAIL if FAIL in verdicts else UNDECIDED if UNDECIDED in verdicts else PASS
