"""One predicted step as a timeline: what each pipeline stage does when, stream by stream, and which workers wait.

The step model adds up parts; a timeline lays the same seconds out. The order of micro-batches is the schedule's own
(`physics.pipeline`), and what a stage waits in it is stretched so that it adds up to the predicted bubble and imbalance.
So the spans of a stage sum to the step, and the mean over stages of each part's spans is that part of the prediction.
What the model does not order (optimizer, stragglers, input) stands after the last backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.special import ndtri

from perfmodel.physics.compute import micro_batch
from perfmodel.physics.pipeline import Operation, source_of, stage_order
from perfmodel.training.curve import Curve, coefficients
from perfmodel.training.step import interleaved

STREAMS: Final[dict[str, tuple[str, ...]]] = {
    "compute": ("compute", "host", "optimizer", "contention"),
    "tensor, context, experts": ("tensor_parallel", "context_parallel", "expert_parallel"),
    "data": ("sharded_weights", "data_parallel"),
    "pipeline messages": ("pipeline_messages",),
    "waiting": ("imbalance", "bubble", "synchronisation", "straggler", "input_stall", "serial"),
}
HIDDEN_STREAM: Final = "data, under compute"
HIDDEN: Final = "hidden_exchange"
LAST: Final = (
    "data_parallel",
    "optimizer",
    "contention",
    "synchronisation",
    "straggler",
    "input_stall",
    "serial",
)
MOST_WORKERS: Final = 16
MOST_PASSES: Final = 20_000  # of micro-batches through stages, in a file
SHOWN_PASSES: Final = 320  # in a result and a picture


@dataclass(frozen=True)
class Lane:
    """One row: a stream of a stage, or a worker."""

    group: str
    stream: str


@dataclass(frozen=True)
class Span:
    """Something that a lane does for a while; `hidden` runs under compute and is no part of the step."""

    lane: int
    start_s: float
    time_s: float
    part: str
    pass_: str | None = None  # forward or backward
    micro_batch: int | None = None
    chunk: int | None = None

    @property
    def hidden(self) -> bool:
        """Whether it runs under compute."""
        return self.part == HIDDEN


@dataclass
class Timeline:
    """The lanes and spans of one step."""

    time_s: float
    lanes: list[Lane] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    stages: int = 1
    micro_batches: int = 1
    drawn: int = 1  # micro-batches that are drawn: fewer where there are too many
    notes: list[str] = field(default_factory=list)

    def mapping(self) -> dict[str, object]:
        """As it stands in a result."""
        return {
            "time_s": self.time_s,
            "stages": self.stages,
            "micro_batches": self.micro_batches,
            "micro_batches_drawn": self.drawn,
            "lanes": [{"group": lane.group, "stream": lane.stream} for lane in self.lanes],
            "spans": [
                [s.lane, s.start_s, s.time_s, s.part, s.pass_, s.micro_batch, s.chunk] for s in self.spans
            ],
            "notes": list(self.notes),
        }


def timeline(found: Curve, index: int = 0, most: int = MOST_PASSES) -> Timeline:
    """The step at one K of a curve, of which at most so many passes of micro-batches are drawn."""
    parts = {name: float(values[index]) for name, values in found.parts.items()}
    layout = found.names[index]
    stages, steps = int(layout["pp"]), max(int(layout["accumulation"]), 1)
    virtual = max(int(layout.get("vpp") or 1), 1) if stages > 1 else 1
    schedule = found.setup.schedule or ("interleaved" if virtual > 1 else "1f1b")
    drawn, virtual = _drawn(stages, steps, virtual, most)
    made = Timeline(float(found.time_s[index]), stages=stages, micro_batches=steps, drawn=drawn)
    if drawn != steps:
        made.notes.append(f"{drawn} micro-batches are drawn for {steps}: each stands for {steps / drawn:.3g}")
    passes = _Passes(found, index, parts, stages, drawn, virtual)
    orders = [
        stage_order("gpipe" if schedule == "gpipe" else "interleaved" if virtual > 1 else "1f1b", s, stages, drawn, virtual)
        for s in range(stages)
    ]  # fmt: skip
    starts, ends = _run(orders, passes, stages, virtual)
    for stage in range(stages):
        _stage(made, stage, orders[stage], starts[stage], ends, passes)
    _workers(made, parts, int(found.k[index]))
    return made


def _drawn(stages: int, steps: int, virtual: int, most: int) -> tuple[int, int]:
    """Micro-batches and virtual stages that are drawn: whole rounds where stages interleave."""
    if virtual > 1 and 2 * stages * stages * virtual > most:
        virtual = 1
    drawn = max(min(steps, most // (2 * stages * virtual)), min(steps, stages))
    if virtual > 1 and drawn % stages:
        drawn = max(drawn // stages, 1) * stages
    return drawn, virtual


class _Passes:
    """Seconds of each part in a pass of one micro-batch through one chunk of a stage, and of what a stage waits."""

    def __init__(
        self, found: Curve, index: int, parts: Mapping[str, float], stages: int, drawn: int, virtual: int
    ) -> None:
        setup = found.setup
        c = coefficients(setup, found.logs[:, None], found.k)
        at = interleaved(setup.operations, found.at, c)
        mb = micro_batch(setup.operations, setup.machine, at, c)
        again = float(np.broadcast_to(np.nan_to_num(mb.repeated), found.k.shape)[index])
        scale = float(found.time_s[index] / np.broadcast_to(found.step.time_s, found.k.shape)[index])
        logits = 0.0
        if stages > 1:
            slowest = float(np.broadcast_to(np.asarray(c.last_stage), found.k.shape)[index])
            last = float(np.broadcast_to(mb.last, found.k.shape)[index])
            logits = scale * slowest * last * float(np.broadcast_to(at.accumulation, found.k.shape)[index])
            # No more than the parts hold: what the others wait for it, and what is on the stages' mean.
            logits = min(logits, stages * parts["compute"], parts["imbalance"] / (1.0 - 1.0 / stages))
        self.parts, self.stages, self.count = parts, stages, drawn * virtual
        self.logits = logits
        self.hidden_s = float(found.hidden_s[index])
        sharded = parts["sharded_weights"] if stages == 1 else 0.0
        self.once = parts["sharded_weights"] - sharded
        forward = {
            "compute": 1.0 / (3.0 + again), "host": 1.0 / (3.0 + again), "tensor_parallel": 1.0 / (2.0 + again),
            "context_parallel": 1.0 / (3.0 + again), "expert_parallel": 1.0 / (2.0 + again),
            "pipeline_messages": 0.5, "sharded_weights": 1.0 / 3.0,
        }  # fmt: skip
        each = {name: parts[name] for name in forward} | {"sharded_weights": sharded}
        self._forward = {name: each[name] * share / self.count for name, share in forward.items()}
        self._backward = {name: each[name] * (1.0 - share) / self.count for name, share in forward.items()}
        self._compute_forward = forward["compute"]

    def of(self, stage: int, backward: bool) -> dict[str, float]:
        """Seconds by part."""
        found = dict(self._backward if backward else self._forward)
        share = (1.0 - self._compute_forward) if backward else self._compute_forward
        extra = self.logits if stage == self.stages - 1 else 0.0
        found["compute"] += (extra - self.logits / self.stages) * share / self.count
        return {name: seconds for name, seconds in found.items() if seconds > 0.0}

    def waits(self, stage: int) -> dict[str, float]:
        """What a stage waits between its passes."""
        others = self.logits if stage < self.stages - 1 else 0.0
        mean = self.logits * (1.0 - 1.0 / self.stages)
        return {"imbalance": self.parts["imbalance"] - mean + others, "bubble": self.parts["bubble"]}


Times = list[dict[Operation, float]]


def _run(orders: list[list[Operation]], passes: _Passes, stages: int, virtual: int) -> tuple[Times, float]:
    """When each pass starts by the order and the dependencies alone, and when the last one ends."""
    length = {(s, b): sum(passes.of(s, b).values()) for s in range(stages) for b in (False, True)}
    starts: Times = [{} for _ in range(stages)]
    finish: dict[tuple[int, Operation], float] = {}
    clock, position = [0.0] * stages, [0] * stages
    moved = True
    while moved:
        moved = False
        for s in range(stages):
            while position[s] < len(orders[s]):
                operation = orders[s][position[s]]
                source = source_of(operation, s, stages, virtual)
                if source is not None and source not in finish:
                    break
                begin = max(clock[s], finish[source] if source is not None else 0.0)
                starts[s][operation] = begin
                clock[s] = finish[s, operation] = begin + length[s, operation.backward]
                position[s] += 1
                moved = True
    return starts, max(clock)


def _stage(
    made: Timeline,
    stage: int,
    order: list[Operation],
    starts: dict[Operation, float],
    end: float,
    passes: _Passes,
) -> None:
    """The spans of one stage, its waiting stretched to what is predicted."""
    group = f"stage {stage}" if passes.stages > 1 else "every accelerator"
    lanes = {name: _lane(made, group, name) for name in STREAMS}
    lane_of = {part: lanes[name] for name, inside in STREAMS.items() for part in inside}
    hidden_lane = _lane(made, group, HIDDEN_STREAM) if passes.hidden_s > 0.0 else -1
    busy = {b: passes.of(stage, b) for b in (False, True)}
    length = {b: sum(busy[b].values()) for b in (False, True)}
    waits = passes.waits(stage)
    gaps = max(end - sum(length[operation.backward] for operation in order), 0.0)
    whole = sum(waits.values())
    stretch = whole / gaps if gaps > 1e-9 * end else 0.0
    now, ideal = 0.0, 0.0
    if passes.once > 0.0:
        made.spans.append(Span(lane_of["sharded_weights"], now, passes.once, "sharded_weights"))
        now += passes.once

    def wait(seconds: float) -> None:
        nonlocal now
        for name, total in waits.items():
            part = seconds * total / whole if whole > 0.0 else 0.0
            if part > 0.0:
                made.spans.append(Span(lane_of[name], now, part, name))
                now += part

    covered = hidden_now = 0.0
    per_pass = passes.hidden_s / max(len(order), 1) if passes.parts["sharded_weights"] > 0.0 else 0.0
    for operation in order:
        gap = starts[operation] - ideal
        if gap > 0.0:
            wait(gap * stretch)
        ideal = starts[operation] + length[operation.backward]
        word = "backward" if operation.backward else "forward"
        if per_pass > 0.0:
            hidden_now = max(hidden_now, now)
            made.spans.append(Span(hidden_lane, hidden_now, per_pass, HIDDEN, word, operation.micro_batch))
            hidden_now += per_pass
            covered += per_pass
        for part, seconds in busy[operation.backward].items():
            made.spans.append(
                Span(lane_of[part], now, seconds, part, word, operation.micro_batch, operation.chunk)
            )
            now += seconds
    wait(max(end - ideal, 0.0) * stretch if stretch else whole)
    if passes.hidden_s > covered:
        left = passes.hidden_s - covered
        made.spans.append(Span(hidden_lane, max(now - left, 0.0), left, HIDDEN, "backward"))
    for part in LAST:
        seconds = passes.parts[part]
        if seconds > 0.0:
            made.spans.append(Span(lane_of[part], now, seconds, part))
            now += seconds


def _lane(made: Timeline, group: str, stream: str) -> int:
    made.lanes.append(Lane(group, stream))
    return len(made.lanes) - 1


def _workers(made: Timeline, parts: Mapping[str, float], k: int) -> None:
    """Workers from the quickest to the slowest, at their expected places; what they idle is the straggler part.

    Expected order statistics are those of normal scores (Blom 1958), scaled so that the mean over all K is the part.
    """
    straggler = parts["straggler"]
    if k < 2 or straggler <= 0.0:
        return
    rank = np.arange(1, k + 1)
    score = ndtri((rank - 0.375) / (k + 0.25))
    behind = score[-1] - score
    idle = straggler * behind / behind.mean()
    shown = np.unique(np.linspace(0, k - 1, min(k, MOST_WORKERS)).round().astype(int))
    if shown.size < k:
        made.notes.append(f"{shown.size} of {k} workers are drawn, from the quickest to the slowest")
    for at in shown:
        lane = _lane(made, "workers", f"{int(rank[at])}. of {k}")
        busy = max(made.time_s - float(idle[at]), 0.0)
        made.spans.append(Span(lane, 0.0, busy, "busy"))
        if idle[at] > 0.0:
            made.spans.append(Span(lane, busy, made.time_s - busy, "straggler"))


__all__ = ["HIDDEN", "MOST_PASSES", "SHOWN_PASSES", "STREAMS", "Lane", "Span", "Timeline", "timeline"]
