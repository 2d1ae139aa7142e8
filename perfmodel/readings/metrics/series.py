"""Of all metrics that a tracker keeps, those that say how long a step takes; else the tracker's own clock.

A metric that is the time or the rate of a step, by the names that Megatron, NeMo, torchtitan, MaxText, Composer, OLMo-core
and Hugging Face give it, comes first. Where none is there, the times at which values were logged are differenced step by
step, as those of a training log are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from perfmodel.readings.source import WARMUP_RULE, Tally, number, warmup_steps
from perfmodel.readings.train_log import TrainLog, k_of_name

MOST_TAGS = 5_000
MOST_POINTS = 2_000_000  # of all metrics together
_UNITS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6}
_TIME = re.compile(
    r"(?i)(?:^|[/ ._-])(?:train_?)?(?:step|iter(?:ation)?|batch)[ _-]?(?:time|timing|duration)"
    r"(?:[ _/]*\(?(?:in[ _])?(s|secs?|seconds|ms|us)\)?)?$"
)
_WHOLE = re.compile(r"(?i)(?:^|/)end_to_end\((s|ms)\)$")
_RATE = re.compile(
    r"(?i)(?:^|[/ ._-])(?:train_?)?(?:steps?|iter(?:ation)?s?|batches|it)[ _]?(?:per[ _]|/)(?:s|sec|second)s?$"
)
_NOT = re.compile(
    r"(?i)(?:^|[/_ ])(?:device|eval|val|valid|validation|test|samples?)(?:[/_ ]|$)| vs samples$"
)
# What the settings of a run call the number of its workers and its batch.
_K_KEYS = ("world_size", "num_gpus", "n_gpus", "num_devices", "num_processes")
_BATCH_KEYS = ("global_batch_size", "global_train_batch_size", "train_batch_size", "batch-size")
STEP_KEYS = ("trainer/global_step", "train/global_step", "global_step", "iteration", "step", "_step")


@dataclass
class Series:
    """One metric: its steps, values and, where the tracker keeps them, the times of logging [s]."""

    step: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)

    def add(self, step: int, value: float, clock: float | None) -> None:
        """One more value."""
        self.step.append(step)
        self.value.append(value)
        self.clock.append(float("nan") if clock is None else clock)


@dataclass
class Metrics:
    """The metrics of one run as they are read, within bounds."""

    series: dict[str, Series] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)
    points: int = 0

    def add(self, tag: str, step: int, value: float, clock: float | None = None) -> bool:
        """Keep a value; False where it cannot be used."""
        if not (np.isfinite(value) and 0 <= step < 10**12) or self.points >= MOST_POINTS:
            return False
        if tag not in self.series and len(self.series) >= MOST_TAGS:
            return False
        self.points += 1
        self.series.setdefault(tag, Series()).add(step, value, clock)
        return True

    def set(self, key: str, value: Any) -> None:
        """A setting of the run, where it is a number that is asked for; of a nested one the last name counts."""
        name = key.rpartition(".")[2].rpartition("/")[2].casefold()
        if name in (*_K_KEYS, *_BATCH_KEYS) and name not in self.settings:
            found = number(str(value))
            if found is not None and 1.0 <= found < 1e9:
                self.settings[name] = found

    def set_all(self, values: Mapping[str, Any], depth: int = 0) -> None:
        """The settings of a mapping, and of the mappings in it."""
        for key, value in values.items():
            inner = value.get("value") if isinstance(value, Mapping) and "value" in value else value
            if isinstance(inner, Mapping):
                if depth < 8:
                    self.set_all(inner, depth + 1)
            else:
                self.set(str(key), inner)

    def log(self, tally: Tally, tracker: str, stem: str) -> TrainLog:
        """The step times of the run."""
        step, times = self._direct(tally)
        if not times:
            step, times = self._by_clock(tally)
        skip = warmup_steps(times)
        if skip:
            tally.note(f"{WARMUP_RULE} ({skip} of {len(times)} rows)")
        k = next((int(self.settings[key]) for key in _K_KEYS if key in self.settings), None)
        batch = next((self.settings[key] for key in _BATCH_KEYS if key in self.settings), None)
        logged = self.series.get("batch-size") or self.series.get("global_batch_size")
        if batch is None and logged is not None and logged.value:
            batch = logged.value[-1]
        return tally.finish(
            TrainLog,
            preset=tracker,
            step=np.array(step[skip:], np.int64),
            time_s=np.array(times[skip:], np.float64),
            k=k or k_of_name(stem),
            global_batch=batch,
            warmup=skip,
        )

    def _direct(self, tally: Tally) -> tuple[list[int], list[float]]:
        """Metrics that are the time or the rate of a step; of several the one with most values, then the first name."""
        kinds = [(_WHOLE, False), (_TIME, False), (_RATE, True)]
        for pattern, is_rate in kinds:
            found = {
                tag: match
                for tag in sorted(self.series)
                if (match := pattern.search(tag)) is not None and not _NOT.search(tag)
            }
            if not found:
                continue
            tag = max(found, key=lambda name: len(self.series[name].step))
            unit = 1.0 if is_rate else _UNITS[(found[tag].group(1) or "s").lower()]
            pairs = sorted(
                zip(self.series[tag].step, self.series[tag].value, strict=True), key=lambda pair: pair[0]
            )
            usable = [
                (step, 1.0 / value if is_rate else value * unit) for step, value in pairs if value > 0.0
            ]
            if usable:
                tally.note(f"the time of a step is {'1 over ' if is_rate else ''}the metric {tag}")
                return [step for step, _ in usable], [time for _, time in usable]
        return [], []

    def _by_clock(self, tally: Tally) -> tuple[list[int], list[float]]:
        """Differences of the times at which the metric with most values was logged, by step."""
        training = {tag: one for tag, one in self.series.items() if not _NOT.search(tag)} or self.series
        best = max(sorted(training), key=lambda tag: len(training[tag].step), default=None)
        if best is None:
            return [], []
        one = training[best]
        firsts: dict[int, float] = {}
        for step, clock in sorted(zip(one.step, one.clock, strict=True)):
            if np.isfinite(clock):
                firsts.setdefault(step, clock)
        steps = list(firsts)
        pairs = [(b, (firsts[b] - firsts[a]) / (b - a)) for a, b in pairwise(steps)]
        usable = [(step, time) for step, time in pairs if time > 0.0]
        if usable:
            tally.note(
                f"no metric is the time of a step: the times at which {best} was logged are differenced"
            )
        return [step for step, _ in usable], [time for _, time in usable]


def step_of(row: Mapping[str, Any]) -> int | None:
    """The optimizer step of a row of metrics, by the most telling of its counters."""
    return next((whole(row[key]) for key in STEP_KEYS if row.get(key) is not None), None)


def whole(value: Any) -> int | None:
    """A step number; None for what is none.

    >>> whole("12"), whole(12.0), whole("x"), whole(True)
    (12, 12, None, None)
    """
    found = None if isinstance(value, bool) else number(str(value))
    return int(found) if found is not None and found == int(found) and 0 <= found < 1e12 else None


def numbers(row: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    """The entries of a row that are numbers."""
    for key, value in row.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield str(key), float(value)
