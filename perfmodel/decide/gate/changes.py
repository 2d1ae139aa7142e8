"""What changed since the baseline, and what each change does on its own: one input at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.decide.gate.evaluate import Value, measure, unit_of
from perfmodel.decide.gate.grammar import Policy
from perfmodel.errors import SpecError
from perfmodel.results.prediction import PredictionAnswer
from perfmodel.specs.catalog import VARIED
from perfmodel.units import format_quantity

MAX_CAUSES = 12  # beyond, changes are told by group: a reader and a time budget have their limits
FEW = (
    4  # a record with a new name and no more differences than these (the name is one) is the old one, edited
)
SAME = 1e-3  # a metric that moved by less did not move
Inputs = Mapping[str, object]
Predict = Callable[[Inputs], PredictionAnswer]
MODEL = "perfmodel itself"
TOGETHER = "all changes together"


@dataclass(frozen=True)
class Difference:
    """One input that differs: where it stands, before and after (None where there was nothing)."""

    path: tuple[str, ...]
    before: object
    after: object

    def __str__(self) -> str:
        """`price.per_accelerator: 3.92 USD/h -> 2.1 USD/h`."""
        return f"{'.'.join(self.path)}: {_shown(self.path, self.before)} -> {_shown(self.path, self.after)}"


# Units of inputs by their key; a lock holds SI numbers, a reader wants the words of the spec.
_UNITS = {
    "per_accelerator": "USD/s", "fixed": "USD/s", "value_of_time": "USD/s", "hosting": "USD/s", "purchase": "USD",
    "bandwidth": "B/s", "memory_bandwidth": "B/s", "scale_up_bandwidth": "B/s", "library_bandwidth": "B/s",
    "latency": "s", "collective_step": "s", "launch_overhead": "s", "serial_time": "s", "memory": "B", "l2": "B",
    "tdp": "W", "idle_power": "W", "host_power": "W", "max_power": "W", "carbon": "g/J", "electricity": "USD/J",
    "flop_per_sample": "FLOP", "flop_per_sample_forward": "FLOP", "bytes_per_sample": "B",
    "mtbf_per_accelerator": "s", "mtbf_per_node": "s", "checkpoint": "s", "restart": "s", "interval": "s",
}  # fmt: skip


def _shown(path: tuple[str, ...], value: object) -> str:
    unit = "FLOP/s" if path[-2:-1] == ("peak",) else _UNITS.get(path[-1])
    if isinstance(value, Mapping):
        inner = (f"{key}={_shown((*path, key), item)}" for key, item in value.items())
        return str(value.get("name") or ", ".join(inner) or "{}")
    if isinstance(value, (list, tuple)):
        return ",".join(_shown(path, item) for item in value)
    if isinstance(value, (int, float)) and unit:
        return format_quantity(float(value), unit)
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def differences(before: Inputs, after: Inputs, path: tuple[str, ...] = ()) -> list[Difference]:
    """Leaves that differ; a record that goes by another name and differs in much is one change.

    >>> [str(d) for d in differences({"cluster": {"name": "a", "nics": 4, "x": 1, "y": 1, "z": 1}, "batch": 8},
    ...                              {"cluster": {"name": "b", "nics": 8, "x": 2, "y": 2, "z": 2}, "batch": 16})]
    ['batch: 8 -> 16', 'cluster: a -> b']
    >>> [str(d) for d in differences({"cluster": {"name": "a", "nics": 4}}, {"cluster": {"name": "a", "nics": 8}})]
    ['cluster.nics: 4 -> 8']
    """
    found = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        here = (*path, key)
        if old == new:
            continue
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            found.append(Difference(here, old, new))
            continue
        another = _kin(old) != _kin(new) and _leaves(old, new) > FEW
        found += [Difference(here, old, new)] if another else differences(old, new, here)
    return found


def _kin(record: Mapping[str, object]) -> object:
    """The name of a record, that of its model where it is a variant without one of its own."""
    name = record.get("name")
    return name.removesuffix(VARIED) if isinstance(name, str) else name


def _leaves(old: object, new: object) -> int:
    """How many values differ, at any depth."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return sum(_leaves(old.get(key), new.get(key)) for key in {*old, *new})
    return int(old != new)


def grouped(found: Sequence[Difference], before: Inputs, after: Inputs) -> list[Difference]:
    """The same changes by their first key, where there are too many to tell one by one."""
    if len(found) <= MAX_CAUSES:
        return list(found)
    keys = sorted({difference.path[0] for difference in found})
    return [Difference((key,), before.get(key), after.get(key)) for key in keys]


def apply(inputs: Inputs, difference: Difference) -> dict[str, object]:
    """The inputs with one difference put in.

    >>> apply({"a": {"b": 1, "c": 2}}, Difference(("a", "b"), 1, None))
    {'a': {'c': 2}}
    """
    head, *rest = difference.path
    changed = dict(inputs)
    if rest:
        inner = changed.get(head)
        deeper = Difference(tuple(rest), difference.before, difference.after)
        changed[head] = apply(inner if isinstance(inner, Mapping) else {}, deeper)
    elif difference.after is None:
        changed.pop(head, None)
    else:
        changed[head] = difference.after
    return changed


@dataclass(frozen=True)
class Effect:
    """A metric before, and with only this cause put in (or with all of them)."""

    policy: Policy
    before: Value
    after: Value
    cause: str
    path: tuple[str, ...] = ()  # of the one input that is the cause

    def mapping(self, job: str) -> dict[str, object]:
        """The documented JSON form, with the job and the unit beside it."""
        return {
            "job": job,
            "metric": self.policy.subject,
            "unit": _plain_unit(self.policy),
            "before": self.before.value,
            "after": self.after.value,
            "cause": self.cause,
        }


def _plain_unit(policy: Policy) -> str:
    return policy.metric.dimension if policy.change else unit_of(policy)


def _moved(before: Value, after: Value) -> bool:
    if before.value is None or after.value is None:
        return before.value is not after.value
    return abs(after.value - before.value) > SAME * abs(before.value)


def effects(
    policies: Sequence[Policy],
    locked: PredictionAnswer,
    before: Inputs,
    after: Inputs,
    now: PredictionAnswer,
    predict: Predict,
    device_memory_bytes: Callable[[Inputs], float | None],
) -> list[Effect]:
    """What each changed input does to each metric that a policy names, alone; then all of them together.

    `locked` is the prediction in the lock, `now` the one of today. The old inputs are predicted again: what moves
    then is the work of the model, not of the inputs.
    """
    found = differences(before, after)
    chosen = grouped(found, before, after)
    variants: list[tuple[str, tuple[str, ...], PredictionAnswer, Inputs]] = []
    again = _try(predict, before)
    base = again if again is not None else locked
    if again is not None:
        variants.append((MODEL, (), again, before))
    for difference in chosen:
        one = apply(before, difference)
        result = _try(predict, one)
        if result is not None:
            variants.append((str(difference), difference.path, result, one))
    told: list[Effect] = []
    for policy in _distinct(policies):
        old = measure(policy, locked, device_memory_bytes(before))
        start = measure(policy, base, device_memory_bytes(before))
        alone = []
        for cause, path, result, inputs in variants:
            value = measure(policy, result, device_memory_bytes(inputs))
            reference = old if cause == MODEL else start
            if _moved(reference, value):
                alone.append(Effect(policy, reference, value, cause, path))
        total = measure(policy, now, device_memory_bytes(after))
        if _moved(old, total) and (len(alone) != 1 or _moved(alone[0].after, total)):
            causes = TOGETHER if found else MODEL
            alone.append(Effect(policy, old, total, causes))
        told += alone
    return told


def _try(predict: Predict, inputs: Inputs) -> PredictionAnswer | None:
    """A prediction, or None where one change alone makes no valid job (a wider model without its heads)."""
    try:
        return predict(inputs)
    except (SpecError, ValueError):
        return None


def _distinct(policies: Sequence[Policy]) -> list[Policy]:
    """One policy a metric; the band and the limit do not matter here."""
    kept: dict[tuple[str, str], Policy] = {}
    for policy in policies:
        kept.setdefault((policy.subject, _plain_unit(policy)), policy)
    return list(kept.values())
