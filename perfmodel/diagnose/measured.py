"""The step of one run by its logs and traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import Problem, SpecError, UsageError
from perfmodel.readings import format_of, read_ranks, read_trace
from perfmodel.readings.rank_times import RankTimes
from perfmodel.readings.runs import LOGS_OF_STEPS, read_steps
from perfmodel.readings.source import Reading
from perfmodel.readings.steps import TraceSummary
from perfmodel.readings.timings import nothing_found
from perfmodel.readings.train_log import TrainLog

Array = NDArray[np.float64]

LEAST_STEPS = 9  # from which thirds of a log are compared
LATE = 1.5  # times the median: a step that stood still for something


@dataclass(frozen=True)
class Pace:
    """Seconds of the steps of a log, after warm-up."""

    step_s: float  # median
    mean_s: float
    error: float  # standard error of the median over it
    steps: int
    late: float  # share of steps beyond `LATE` medians
    drift: float | None  # last third over the first, less one

    @classmethod
    def of(cls, time_s: Array) -> Pace:
        """The steps of one run in their order."""
        median = float(np.median(time_s))
        # Of a median: 1.2533 times that of a mean for normal noise; the spread from quartiles, which late steps leave alone.
        low, high = np.quantile(time_s, (0.25, 0.75))
        error = 1.2533 * float(high - low) / 1.349 / np.sqrt(time_s.size)
        third = time_s.size // 3
        drift = None
        if time_s.size >= LEAST_STEPS:
            drift = float(np.median(time_s[-third:]) / np.median(time_s[:third]) - 1.0)
        late = float(np.mean(time_s > LATE * median))
        return cls(median, float(time_s.mean()), error / median, int(time_s.size), late, drift)


@dataclass(frozen=True)
class Measured:
    """One run: its pace, and the parts of its step where a trace shows them."""

    pace: Pace
    source: str
    k: int | None = None
    global_batch: float | None = None
    trace: TraceSummary | None = None
    slowest: float | None = None  # slowest rank's own time over the mean rank's, mean over steps
    slowest_rank: int | None = None
    slowest_share: float | None = None  # of the steps in which that rank is the slowest
    readings: list[Reading] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def measured_of(
    log: Path | None,
    traces: Sequence[Path],
    ranks: Path | None,
    *,
    preset: str | None = None,
    pattern: str | None = None,
) -> Measured:
    """Read the log of a run, traces of it and the step times of its ranks; one of log and trace is needed."""
    readings: list[Reading] = []
    notes: list[str] = []
    trace = read_trace(list(traces), readings=readings) if traces else None
    by_rank = None
    if ranks is not None:
        by_rank = read_ranks(ranks)
        readings.append(by_rank)
    k: int | None = None
    batch: float | None = None
    if log is not None:
        found = _steps(log, preset, pattern, readings)
        if isinstance(found, RankTimes):
            by_rank = by_rank or found
            times, k = np.nanmax(found.time_s, axis=1), int(found.ranks.size)
        else:
            times, k, batch = found.time_s, found.k, found.global_batch
        source = str(log)
    elif trace is not None:
        times, source = trace.step_s(), trace.path
    else:
        raise UsageError(
            "nothing measured to diagnose", code="U016", help="give --log, --trace or both, of one run"
        )
    if trace is not None:
        if k is not None and trace.workers is not None and k != trace.workers and len(trace.ranks) > 1:
            notes.append(f"the log says {k} ranks, the trace {trace.workers}: the log's number is taken")
        k = k or trace.workers
    pace = Pace.of(np.asarray(times, float))
    if trace is not None and log is not None:
        traced = float(np.median(trace.step_s()))
        if traced > 1.1 * pace.step_s:
            notes.append(
                f"a step lasts {traced / pace.step_s:.2f} times as long in the trace as in the log: the profiler itself "
                "takes time, mostly the host's"
            )
    late = _late(trace, by_rank, notes)
    return Measured(pace, source, k, batch, trace, *late, readings=readings, notes=notes)


def _steps(
    log: Path, preset: str | None, pattern: str | None, readings: list[Reading]
) -> TrainLog | RankTimes:
    """The steps of one run, whatever wrote them down."""
    kind = "train-log" if preset or pattern else format_of(log)
    if kind == "rank-times":
        found: TrainLog | RankTimes = read_ranks(log)
        readings.append(found)
        return found
    if kind not in LOGS_OF_STEPS:
        raise SpecError(
            Problem(
                str(log),
                code="R005",
                message=f"a {kind} file is no log of one run's steps",
                help="give a training log, or metrics of W&B, TensorBoard or MLflow; traces go with --trace",
            )
        )
    found = read_steps(log, preset=preset, pattern=pattern)
    readings.append(found)
    if found.time_s.size == 0:
        raise SpecError(nothing_found(found, "no step times"))
    return found


def _late(
    trace: TraceSummary | None, by_rank: RankTimes | None, notes: list[str]
) -> tuple[float | None, int | None, float | None]:
    """The slowest rank over the mean, which it is, and in what share of the steps; times that hide it say nothing."""
    if by_rank is not None and by_rank.ranks.size > 1:
        times = by_rank.time_s[np.isfinite(by_rank.time_s).all(axis=1)]
        if times.shape[0]:
            over = float(np.mean(times.max(axis=1) / times.mean(axis=1)))
            if over > 1.0 + 1e-3:
                slowest = int(np.argmax(times.mean(axis=0)))
                share = float(np.mean(np.argmax(times, axis=1) == slowest))
                return over, int(by_rank.ranks[slowest]), share
            notes.append(
                "all ranks report the same times: these include waiting for each other, so the slowest rank is unknown"
            )
    imbalance = trace.imbalance() if trace is not None else None
    if imbalance is not None:
        return 1.0 + imbalance.spread, imbalance.slowest_rank, imbalance.slowest_share
    return None, None, None
