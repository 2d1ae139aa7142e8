"""Timings for `calibrate` and `study`: whatever a run left behind, as the one table that both understand.

Logs become CSV text in the study's form. The parser of that form belongs to the study, a layer above this one, so a
caller that sees both hands it in: there is one reader of timings tables, whatever the file was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import Problem, SpecError
from perfmodel.readings.rank_times import RankTimes
from perfmodel.readings.sacct import SacctTable, families
from perfmodel.readings.source import Reading
from perfmodel.readings.steps import TraceSummary
from perfmodel.readings.train_log import BATCHES, TrainLog

Row: TypeAlias = dict[str, float | None]  # column -> value; None is a blank cell
PARTS = ("compute_s", "communication_s", "idle_s", "io_s")
OPTIONAL = ("global_batch", "quality", "energy_j")


class Table(Protocol):
    """What a parsed timings table offers: one entry a row."""

    @property
    def k(self) -> NDArray[np.float64]: ...
    @property
    def time_s(self) -> NDArray[np.float64]: ...
    @property
    def columns(self) -> Mapping[str, NDArray[np.float64]]: ...
    def place(self, row: int) -> tuple[int, int, str] | None: ...


Parser = Callable[[bytes, str], Table]


@dataclass(frozen=True)
class Timings:
    """One entry per K, ascending: mean and sample deviation of the step time [s], repeats, and the batch (NaN unknown).

    `runs` are the rows they were made of; `written` says whether the file itself has them, or logs were read into rows.
    """

    k: NDArray[np.int64]
    time_s: NDArray[np.float64]
    std_s: NDArray[np.float64]  # NaN for a single run
    repeats: NDArray[np.int64]
    global_batch: NDArray[np.float64]
    runs: Table
    written: bool


def group_by_k(table: Table, *, written: bool) -> Timings:
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
        table,
        written,
    )


def train_log_rows(log: TrainLog) -> list[Row]:
    """One row per batch mean; SpecError when the log holds no steps or does not say its K."""
    if log.time_s.size == 0:
        raise SpecError(nothing_found(log, "no step times"))
    if log.k is None:
        raise SpecError(
            Problem(
                log.path,
                code="R003",
                message="the log does not state how many workers ran",
                help="name the file so that it does, such as train_k8.log or run_8gpus.log",
            )
        )
    same = {"k": float(log.k), "global_batch": log.global_batch, "quality": log.quality}
    return [{**same, "time_s": float(time)} for time in log.batch_means()]


def sacct_rows(table: SacctTable) -> list[Row]:
    """One row per completed job. Jobs of different names, but for numbers in them, are no one curve."""
    if table.k.size == 0:
        raise SpecError(nothing_found(table, "no completed jobs"))
    of = families(table.name)
    found = {family: sorted({int(k) for k, name in zip(table.k, table.name, strict=True) if of[name] == family})
             for family in dict.fromkeys(of.values())}  # fmt: skip
    if len(found) > 1:
        listed = "; ".join(f"{family} at K = {', '.join(map(str, ks))}" for family, ks in found.items())
        # The name with most K is most likely the one that was meant.
        likely = max(found, key=lambda family: len(found[family]))
        raise SpecError(
            Problem(
                table.path,
                code="R009",
                message=f"jobs of different names are not one curve: {listed}",
                help=f'--job-name "{likely}" takes those of one name',
            )
        )
    return [
        {"k": float(k), "time_s": float(time), "energy_j": None if np.isnan(joules) else float(joules)}
        for k, time, joules in zip(table.k, table.time_s, table.energy_j, strict=True)
    ]


def trace_rows(trace: TraceSummary, k: int | None = None) -> list[Row]:
    """One row per step after warm-up, in parts; `k` is what the file's or folder's name says."""
    if not trace.ranks:
        raise SpecError(nothing_found(trace, "no steps"))
    workers = k or trace.workers
    if workers is None:
        raise SpecError(
            Problem(
                trace.path,
                code="R003",
                message="one rank's trace that does not say with how many others it communicates",
                help="name the file or its folder so that it does, such as k8/ or trace_k8.json",
            )
        )
    return [{"k": float(workers), **row} for row in trace.study_rows()]


def rank_rows(times: RankTimes, k: int | None = None) -> list[Row]:
    """Up to `BATCHES` means of the slowest rank's step time; K is named, or the number of ranks that reported."""
    if times.time_s.size == 0:
        raise SpecError(nothing_found(times, "no step times of ranks"))
    slowest = np.nanmax(times.time_s, axis=1)
    means = [part.mean() for part in np.array_split(slowest, min(BATCHES, slowest.size))]
    return [{"k": float(k or times.ranks.size), "time_s": float(mean)} for mean in means]


def table_text(rows: Sequence[Row]) -> bytes:
    """Rows as the study's CSV. Parts stay only where every row has them: a time without parts cannot be split."""
    parts = all("time_s" not in row for row in rows)
    timed = [row if parts or "time_s" in row else _whole(row) for row in rows]
    columns = ["k", *(PARTS if parts else ("time_s",)), *OPTIONAL]
    shown = [name for name in columns if any(row.get(name) is not None for row in timed)]
    lines = [",".join([*shown, "repeat"])]
    for i, row in enumerate(timed):
        cells = ["" if (value := row.get(name)) is None else f"{value:.15g}" for name in shown]
        lines.append(",".join([*cells, str(i)]))
    return "\n".join([*lines, ""]).encode()


def _whole(row: Row) -> Row:
    return {**row, "time_s": sum(row[part] or 0.0 for part in PARTS)}


def nothing_found(reading: Reading, what: str) -> Problem:
    """A file with no data in it, and the first line that was refused for the commonest reason."""
    if not reading.rejected:
        return Problem(reading.path, code="R002", message=f"{what} in it")
    reasons = reading.reasons()
    commonest = max(reasons, key=lambda reason: reasons[reason])
    first = next(item for item in reading.rejected if item.reason == commonest)
    return Problem(
        reading.path,
        first.line or None,
        None,
        "R002",
        f"{what} in it; {reading.rejected_count} of {reading.lines} lines rejected: {first.reason}",
        first.text if first.line else None,
    )
