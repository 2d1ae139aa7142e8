"""What each worker of a run did in its steps: its own work, then waiting for the slowest.

In a synchronous step all ranks end together, so that a rank idles for as long as the slowest one works longer:

.. math:: \\mathrm{idle}_r = \\max_q t_q - t_r

with t the time of a rank's own work. Logs of ranks give it where they time the work alone; a trace gives it as the step
without the communication that shows, in which ranks wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.readings.rank_times import RankTimes
from perfmodel.readings.source import Reading
from perfmodel.readings.steps import TraceSummary

Array = NDArray[np.float64]

MOST_STEPS = 6  # that are shown, from the middle of the run
MOST_RANKS = 32  # that are shown, the slowest and the quickest among them
LEAST_IDLE = 1e-3  # share of the step: ranks that wait less than that reported the same times


def workers_of(readings: Iterable[Reading]) -> list[dict[str, object]]:
    """A row for each run of which the times of several ranks are known."""
    rows = []
    traces: list[TraceSummary] = []
    for reading in readings:
        if isinstance(reading, RankTimes):
            complete = np.isfinite(reading.time_s).all(axis=1)
            if reading.ranks.size > 1 and complete.any():
                rows.append(
                    _row(reading.path, reading.ranks, reading.steps[complete], reading.time_s[complete])
                )
        elif isinstance(reading, TraceSummary):
            traces.append(reading)
    rows += [row for trace in traces if (row := _of_trace(trace)) is not None]
    if len(traces) > 1 and all(len(trace.ranks) == 1 for trace in traces):
        from perfmodel.readings.steps import combine

        row = _of_trace(combine(traces))
        rows += [row] if row is not None else []
    return rows


def _of_trace(trace: TraceSummary) -> dict[str, object] | None:
    """The ranks of one trace, over the steps that all of them have."""
    if len(trace.ranks) < 2:
        return None
    numbers = sorted(set.intersection(*({int(n) for n in rank.number} for rank in trace.ranks)))
    if not numbers:
        return None
    own = np.array(
        [
            (rank.step_s - rank.parts_s["exposed_communication"])[np.searchsorted(rank.number, numbers)]
            for rank in trace.ranks
        ]
    ).T
    return _row(trace.path, np.array([rank.rank for rank in trace.ranks]), np.array(numbers), own)


def _row(path: str, ranks: NDArray[np.int64], steps: NDArray[np.int64], own: Array) -> dict[str, object]:
    """`own` is seconds by step and rank."""
    slowest = own.max(axis=1)
    idle = slowest[:, None] - own
    mean = own.mean(axis=0)
    last = int(np.argmax(mean))
    order = np.argsort(mean, kind="stable")
    if order.size > MOST_RANKS:
        order = order[np.linspace(0, order.size - 1, MOST_RANKS).round().astype(int)]
    shown = np.sort(order)
    first = max((steps.size - MOST_STEPS) // 2, 0)
    window = slice(first, first + MOST_STEPS)
    return {
        "file": Path(path).name,
        "k": int(ranks.size),
        "step_s": float(slowest.mean()),
        "idle_share": float(idle.sum() / (slowest.sum() * ranks.size)),
        "slowest_rank": int(ranks[last]),
        "slowest_over_mean": float(mean[last] / mean.mean()),
        "slowest_share": float(np.mean(own.argmax(axis=1) == last)),
        "same_times": bool(idle.mean() < LEAST_IDLE * slowest.mean()),
        "steps": [int(step) for step in steps[window]],
        "ranks": [int(ranks[i]) for i in shown],
        "busy_s": own[window][:, shown].T.tolist(),
        "idle_s": idle[window][:, shown].T.tolist(),
    }
