"""What a profiler's trace says of each step: compute, communication shown and hidden, copies, input stall, idle.

The parts of a step add up to its time: compute is when any compute kernel runs, exposed communication when only
communication runs, exposed copies when only copies (and neither of the former) run, input stall when the device is
empty while the data loader works, idle the rest. Hidden communication is the part under compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.readings.intervals import Union, merged
from perfmodel.readings.source import Reading, warmup_steps

PARTS = ("compute", "exposed_communication", "exposed_copy", "input_stall", "idle")
RENUMBERED = "rank numbers repeat: the traces were numbered in the order given"
STRAGGLER = 1.05  # a rank whose compute time exceeds the median rank's by this factor


@dataclass(frozen=True)
class Activity:
    """When one rank did what [s], and its steps' windows (`number`, `start`, `end`, aligned)."""

    rank: int
    compute: Union
    communication: Union
    copy: Union
    loading: Union
    number: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]


@dataclass(frozen=True)
class RankSteps:
    """One rank's steps after warm-up [s]; arrays are aligned with `number`."""

    rank: int
    number: NDArray[np.int64]
    step_s: NDArray[np.float64]
    parts_s: dict[str, NDArray[np.float64]]
    hidden_communication_s: NDArray[np.float64]
    warmup: tuple[int, ...]


@dataclass(frozen=True)
class Collective:
    """All operations of one kind: how many, their time [s] and, where the trace says it, their bytes."""

    kind: str
    count: int
    time_s: float
    bytes: float | None
    ranks: int | None


@dataclass(frozen=True)
class Imbalance:
    """Compute time across ranks. `spread` is the mean over steps of max / mean - 1."""

    spread: float
    slowest_rank: int
    slowest_share: float  # of the steps in which that rank was the slowest
    stragglers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TraceSummary(Reading):
    """A trace of one or many ranks. The counts of `Reading` are of events here, not of lines.

    `world` is how many ranks ran, where the trace says it: often only some of them were traced.
    """

    ranks: tuple[RankSteps, ...] = ()
    collectives: tuple[Collective, ...] = ()
    steps_from: str = "none"
    world: int | None = None

    @property
    def workers(self) -> int | None:
        """Ranks of the run: as the trace says, else those traced; None where one rank communicates with unknown others."""
        if self.world is not None:
            return self.world
        seen = max(len(self.ranks), 1 + max((rank.rank for rank in self.ranks), default=0))
        return None if seen == 1 and self.hidden_fraction() is not None else seen

    def step_s(self) -> NDArray[np.float64]:
        """Time of each step [s]: the slowest rank's, over the steps that all ranks have."""
        return np.asarray(self._common([rank.step_s for rank in self.ranks]).max(axis=0), np.float64)

    def parts_s(self) -> dict[str, float]:
        """Mean seconds per step of each part over ranks and steps; they add up to the mean step."""
        return {
            part: float(np.mean([np.mean(rank.parts_s[part]) for rank in self.ranks if rank.number.size]))
            for part in PARTS
        }

    def hidden_fraction(self) -> float | None:
        """Share of communication time that ran under compute; None without communication."""
        hidden = sum(float(rank.hidden_communication_s.sum()) for rank in self.ranks)
        shown = sum(float(rank.parts_s["exposed_communication"].sum()) for rank in self.ranks)
        return hidden / (hidden + shown) if hidden + shown > 0.0 else None

    def imbalance(self) -> Imbalance | None:
        """Who computes longer than the others; None for one rank or no common step."""
        if len(self.ranks) < 2:
            return None
        compute = self._common([rank.parts_s["compute"] for rank in self.ranks])
        if compute.size == 0 or not np.all(compute.mean(axis=0) > 0.0):
            return None
        means = compute.mean(axis=1)
        slowest = int(np.argmax(means))
        late = [self.ranks[i].rank for i in range(len(means)) if means[i] > STRAGGLER * np.median(means)]
        return Imbalance(
            float(np.mean(compute.max(axis=0) / compute.mean(axis=0) - 1.0)),
            self.ranks[slowest].rank,
            float(np.mean(np.argmax(compute, axis=0) == slowest)),
            tuple(late),
        )

    def spread_across_ranks(self) -> float | None:
        """Log-spread of the ranks' own time in a step (all of it but communication); None for one rank or two steps.

        In a synchronous step the waiting of the quick ranks is communication: what is left is each rank's own.
        """
        if len(self.ranks) < 2:
            return None
        own = self._common([rank.step_s - rank.parts_s["exposed_communication"] for rank in self.ranks])
        if own.shape[1] < 3 or not np.all(own > 0.0):
            return None
        return float(np.sqrt(np.mean(np.var(np.log(own), axis=0, ddof=1))))

    def study_rows(self) -> list[dict[str, float]]:
        """One row a step in the columns of a timings table; what the slowest rank takes beyond the mean is idle."""
        slowest = self.step_s()
        means = {
            part: self._common([rank.parts_s[part] for rank in self.ranks]).mean(axis=0) for part in PARTS
        }
        late = slowest - self._common([rank.step_s for rank in self.ranks]).mean(axis=0)
        return [
            {
                "compute_s": float(means["compute"][i]),
                "communication_s": float(means["exposed_communication"][i]),
                "idle_s": float(means["idle"][i] + late[i]),
                "io_s": float(means["input_stall"][i] + means["exposed_copy"][i]),
            }
            for i in range(slowest.size)
        ]

    def _common(self, values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """rank x step, for the step numbers that every rank has."""
        common = sorted(set.intersection(*({int(n) for n in rank.number} for rank in self.ranks)))
        rows = [
            value[np.searchsorted(rank.number, common)]
            for rank, value in zip(self.ranks, values, strict=True)
        ]
        return np.array(rows, dtype=np.float64)


def combine(parts: Sequence[TraceSummary]) -> TraceSummary:
    """The traces of one run, each read apart; ranks that share a number are numbered anew in the order given."""
    if len(parts) == 1:
        return parts[0]
    ranks = [rank for part in parts for rank in part.ranks]
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    if len({rank.rank for rank in ranks}) < len(ranks):
        notes.append(RENUMBERED)
        ranks = [replace(rank, rank=i) for i, rank in enumerate(ranks)]
    kinds: dict[str, Collective] = {}
    for item in (item for part in parts for item in part.collectives):
        known = kinds.get(item.kind, Collective(item.kind, 0, 0.0, 0.0, None))
        size = None if known.bytes is None or item.bytes is None else known.bytes + item.bytes
        kinds[item.kind] = Collective(
            item.kind, known.count + item.count, known.time_s + item.time_s, size, item.ranks or known.ranks
        )
    worlds = [part.world for part in parts if part.world is not None]
    return TraceSummary(
        path=parts[0].path,
        lines=sum(part.lines for part in parts),
        used=sum(part.used for part in parts),
        ignored=sum(part.ignored for part in parts),
        rejected=tuple(item for part in parts for item in part.rejected),
        rejected_count=sum(part.rejected_count for part in parts),
        rejected_lines=tuple(run for part in parts for run in part.rejected_lines),
        notes=tuple(notes),
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        collectives=tuple(kinds[kind] for kind in sorted(kinds)),
        steps_from=next((part.steps_from for part in parts if part.steps_from != "none"), "none"),
        world=max(worlds) if worlds else None,
    )


def decompose(activity: Activity) -> RankSteps:
    """Split each of a rank's windows into parts; warm-up steps are left out by the rule."""
    low, high = activity.start, activity.end
    covered = Union(*(np.zeros(0) for _ in range(3)))
    parts: dict[str, NDArray[np.float64]] = {}
    reached = np.zeros_like(low)
    layers = (activity.compute, activity.communication, activity.copy, activity.loading)
    for part, layer in zip(PARTS, layers, strict=False):
        covered = merged(covered, layer)
        total = covered.length(low, high)
        parts[part] = np.maximum(total - reached, 0.0)
        reached = np.maximum(total, reached)
    step = high - low
    parts["idle"] = np.maximum(step - reached, 0.0)
    hidden = np.maximum(activity.communication.length(low, high) - parts["exposed_communication"], 0.0)
    skip = warmup_steps(step)
    return RankSteps(
        activity.rank,
        activity.number[skip:],
        step[skip:],
        {part: parts[part][skip:] for part in PARTS},
        hidden[skip:],
        tuple(int(n) for n in activity.number[:skip]),
    )
