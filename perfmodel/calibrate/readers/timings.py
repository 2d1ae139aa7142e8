"""Timings for `calibrate` and `study`: whatever a run left behind, as the one table that both understand.

Logs become CSV text in the study's form. The parser of that form belongs to the study, a layer above this one, so a
caller that sees both hands it in: there is one reader of timings tables, whatever the file was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.readers.sacct import SacctTable, read_sacct
from perfmodel.calibrate.readers.source import Reading
from perfmodel.calibrate.readers.train_log import TrainLog, read_train_log
from perfmodel.errors import Problem, SpecError

HEADER = "k,time_s,repeat,global_batch,quality,energy_j"


class Table(Protocol):
    """What a parsed timings table offers: one entry a row."""

    @property
    def k(self) -> NDArray[np.float64]: ...
    @property
    def time_s(self) -> NDArray[np.float64]: ...
    @property
    def columns(self) -> Mapping[str, NDArray[np.float64]]: ...


Parser = Callable[[bytes, str], Table]


@dataclass(frozen=True)
class Timings:
    """One entry per K, ascending: mean and sample deviation of the step time [s], repeats, and the batch (NaN unknown)."""

    k: NDArray[np.int64]
    time_s: NDArray[np.float64]
    std_s: NDArray[np.float64]  # NaN for a single run
    repeats: NDArray[np.int64]
    global_batch: NDArray[np.float64]


def group_by_k(table: Table) -> Timings:
    """Repeats of each K together."""
    k, index = np.unique(table.k.astype(np.int64), return_inverse=True)
    groups = [table.time_s[index == i] for i in range(k.size)]
    batch = table.columns.get("global_batch", np.full(table.k.size, np.nan))
    batches = [batch[index == i] for i in range(k.size)]
    return Timings(
        k,
        np.array([group.mean() for group in groups]),
        np.array([group.std(ddof=1) if group.size > 1 else np.nan for group in groups]),
        np.array([group.size for group in groups], np.int64),
        # Runs of one K with different batches have no one batch.
        np.array([item[0] if np.all(item == item[0]) else np.nan for item in batches]),
    )


def train_log_rows(log: TrainLog) -> list[str]:
    """One row per batch mean; SpecError when the log holds no steps or does not say its K."""
    if log.time_s.size == 0:
        raise SpecError(nothing_found(log, "no step times"))
    if log.k is None:
        raise SpecError(
            Problem(
                log.path,
                code="R003",
                message="the log does not say how many workers ran",
                help="name the file so that it does, such as train_k8.log or run_8gpus.log",
            )
        )
    batch = "" if log.global_batch is None else f"{log.global_batch:.15g}"
    quality = "" if log.quality is None else f"{log.quality:.15g}"
    return [f"{log.k},{time:.15g},{i},{batch},{quality}," for i, time in enumerate(log.batch_means())]


def sacct_rows(table: SacctTable) -> list[str]:
    """One row per completed job."""
    if table.k.size == 0:
        raise SpecError(nothing_found(table, "no completed jobs"))
    joules = ["" if np.isnan(value) else f"{value:.15g}" for value in table.energy_j]
    return [
        f"{k},{t:.15g},{i},,,{j}"
        for i, (k, t, j) in enumerate(zip(table.k, table.time_s, joules, strict=True))
    ]


def log_rows(path: Path, kind: str, preset: str | None = None) -> list[str]:
    """Rows of one log of the given kind (`sacct` or `train-log`)."""
    return (
        sacct_rows(read_sacct(path))
        if kind == "sacct"
        else train_log_rows(read_train_log(path, preset=preset))
    )


def nothing_found(reading: Reading, what: str) -> Problem:
    """A file with no data in it, and the first line that was refused."""
    if not reading.rejected:
        return Problem(reading.path, code="R002", message=f"{what} in it")
    first = reading.rejected[0]
    return Problem(
        reading.path,
        first.line or None,
        None,
        "R002",
        f"{what} in it; {reading.rejected_count} of {reading.lines} lines rejected: {first.reason}",
        first.text if first.line else None,
    )
