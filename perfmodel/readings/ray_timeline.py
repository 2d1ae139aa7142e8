"""Ray timelines (`ray timeline`): each worker is a rank, each call of the most frequent task is a step.

Execution counts as compute, fetching arguments (and `ray.get`, `ray.wait`) as input stall, storing outputs as
communication; a step lasts until the same worker's next call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel.readings.intervals import Union, union
from perfmodel.readings.json_stream import NO_TIMING, timing
from perfmodel.readings.source import Tally
from perfmodel.readings.steps import Activity

MICROSECOND = 1e-6
_FETCH = ("task:deserialize_arguments", "ray.get", "ray.wait", "ray::get", "ray::wait")
_STORE = ("task:store_outputs",)


@dataclass
class _Worker:
    tasks: list[tuple[str, float, float]] = field(default_factory=list)
    execute: list[tuple[float, float]] = field(default_factory=list)
    fetch: list[tuple[float, float]] = field(default_factory=list)
    store: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class RayTimeline:
    """Collects one timeline; `workers` stays empty for other traces."""

    tally: Tally
    workers: dict[str, _Worker] = field(default_factory=dict)

    def recognises(self, event: dict[str, Any]) -> bool:
        """Whether an event is one of Ray's: categories `task...` or `ray...`, processes named by node."""
        category = event["cat"]
        named = isinstance(category, str) and category.startswith(("task", "ray"))
        return named and isinstance(event.get("pid"), str)

    def add(self, event: dict[str, Any]) -> str | None:
        """Keep an event; the reason when it cannot be used."""
        timed = timing(event)
        if timed is None:
            return NO_TIMING
        start, duration = timed
        worker = self.workers.setdefault(f"{event['pid']} {event.get('tid')}", _Worker())
        span = (start * MICROSECOND, (start + duration) * MICROSECOND)
        category = event["cat"]
        if category in _FETCH:
            worker.fetch.append(span)
        elif category in _STORE:
            worker.store.append(span)
        elif category == "task:execute":
            worker.execute.append(span)
        else:
            worker.tasks.append((str(event.get("name", category)), *span))
        return None

    def activities(self) -> list[Activity]:
        """One activity per worker that ran the most frequent task, in the order of their names."""
        counts = Counter(name for worker in self.workers.values() for name, _, _ in worker.tasks)
        if not counts:
            return []
        step = max(counts, key=lambda name: (counts[name], name))
        self.tally.note(f"Ray timeline: a step is one call of {step}, a rank is one worker")
        result: list[Activity] = []
        for key in sorted(self.workers):
            worker = self.workers[key]
            calls = sorted((start, end) for name, start, end in worker.tasks if name == step)
            if not calls:
                continue
            starts = np.array([start for start, _ in calls])
            ends = np.append(starts[1:], max(end for _, end in calls))
            result.append(
                Activity(
                    rank=len(result),
                    compute=_union(worker.execute or [(start, end) for _, start, end in worker.tasks]),
                    communication=_union(worker.store),
                    copy=_union([]),
                    loading=_union(worker.fetch),
                    number=np.arange(len(calls)),
                    start=starts,
                    end=np.maximum(ends, starts),
                )
            )
        return result


def _union(spans: list[tuple[float, float]]) -> Union:
    return union([start for start, _ in spans], [end for _, end in spans])
