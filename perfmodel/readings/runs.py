"""Timings out of whatever runs left behind: a table, training logs, per-rank times, Slurm accounting, traces, or folders.

In a folder every log is a run, and so is every subfolder; traces that lie side by side belong to one run when they tell the
same K.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perfmodel.errors import Problem, SpecError
from perfmodel.readings.chrome_trace import read_chrome_trace
from perfmodel.readings.detect import detect
from perfmodel.readings.metrics.mlflow import is_run, read_mlflow
from perfmodel.readings.metrics.tensorboard import read_tensorboard
from perfmodel.readings.metrics.wandb import read_wandb
from perfmodel.readings.nsys_sqlite import read_nsys_sqlite
from perfmodel.readings.rank_times import read_rank_times
from perfmodel.readings.sacct import read_sacct
from perfmodel.readings.source import DAMAGED, Reading, damaged, open_bytes
from perfmodel.readings.steps import TraceSummary, combine
from perfmodel.readings.timings import (
    Row,
    rank_rows,
    sacct_rows,
    table_text,
    trace_rows,
    train_log_rows,
)
from perfmodel.readings.train_log import TrainLog, k_of_name, read_train_log

TRACES: dict[str, Callable[[Path], TraceSummary]] = {
    "chrome-trace": read_chrome_trace,
    "nsys-sqlite": read_nsys_sqlite,
}
_METRICS: dict[str, Callable[[Path], TrainLog]] = {
    "wandb": read_wandb,
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
}
LOGS_OF_STEPS = ("train-log", *_METRICS)
_LOGS = (*LOGS_OF_STEPS, "sacct", "rank-times", *TRACES)


def read_steps(path: Path, *, preset: str | None = None, pattern: str | None = None) -> TrainLog:
    """The steps of one run, from its log or from what a tracker kept of it."""
    kind = "train-log" if preset or pattern else detect(path)
    if kind in _METRICS:
        return _METRICS[kind](path)
    return read_train_log(path, preset=preset, pattern=pattern)


def timings(
    path: Path | str,
    preset: str | None = None,
    *,
    pattern: str | None = None,
    job_name: str | None = None,
    readings: list[Reading] | None = None,
) -> bytes:
    """A timings table in the study's CSV form. `readings` collects what became of each file's lines.

    `job_name` takes the jobs of that name from accounting output, `*` for any text in it.

    A table comes back as it is: the study's parser then names its mistakes by their own line.
    """
    where, kept = Path(path), [] if readings is None else readings
    if where.is_dir() and not is_run(where):
        rows = _folder(where, preset, pattern, job_name, kept, set())
        if not rows:
            raise SpecError(Problem(str(where), code="R002", message="no logs in this folder"))
        return table_text(rows)
    if is_table(where, preset, pattern):
        with open_bytes(where) as raw:
            try:
                return raw.read()
            except DAMAGED:
                raise damaged(where) from None
    return table_text(_rows([where], preset, pattern, job_name, kept))


def is_table(path: Path, preset: str | None, pattern: str | None) -> bool:
    """Whether a file is a timings table already, to be read as it is."""
    if preset is not None or pattern is not None or path.is_dir():
        return False
    kind = None if path.suffix.lower() == ".csv" and not is_log(path) else detect(path)
    return kind in (None, "timings")


def is_log(path: Path) -> bool:
    """Whether a CSV is no table by K but a log: what a tracker of runs exports, or the times of ranks."""
    try:
        return detect(path) in ("wandb", "rank-times")
    except SpecError:
        return False


def _folder(
    folder: Path,
    preset: str | None,
    pattern: str | None,
    job_name: str | None,
    readings: list[Reading],
    seen: set[Path],
) -> list[Row]:
    """Rows of a folder and those below it. A link to a folder that was read already gives no rows again."""
    if folder.resolve() in seen:
        return []
    seen.add(folder.resolve())
    entries = sorted(item for item in folder.iterdir() if not item.name.startswith("."))
    if not entries:
        raise SpecError(Problem(str(folder), code="R002", message="no logs in this folder"))
    rows = _rows([item for item in entries if item.is_file()], preset, pattern, job_name, readings)
    for item in entries:
        if is_run(item):
            rows += _rows([item], preset, pattern, job_name, readings)
        elif item.is_dir():
            rows += _folder(item, preset, pattern, job_name, readings, seen)
    return rows


def _rows(
    files: list[Path], preset: str | None, pattern: str | None, job_name: str | None, readings: list[Reading]
) -> list[Row]:
    """Rows of the logs in their order, then those of the traces, run by run."""
    rows: list[Row] = []
    traces: dict[int | None, list[TraceSummary]] = {}
    for file in files:
        kind = "train-log" if preset or pattern else detect(file)
        if kind not in _LOGS:
            raise SpecError(
                Problem(
                    str(file), code="R005", message=f"a {kind} file holds no timings of runs at different K"
                )
            )
        if kind in TRACES:
            trace = TRACES[kind](file)
            readings.append(trace)
            traces.setdefault(_named_k(file) or trace.world, []).append(trace)
        elif kind == "sacct":
            table = read_sacct(file, name=job_name)
            readings.append(table)
            rows += sacct_rows(table)
        elif kind == "rank-times":
            times = read_rank_times(file)
            readings.append(times)
            rows += rank_rows(times, _named_k(file))
        else:
            log = read_steps(file, preset=preset, pattern=pattern)
            readings.append(log)
            rows += train_log_rows(log)
    for k, run in traces.items():
        rows += trace_rows(combine(run), k)
    return rows


def _named_k(file: Path) -> int | None:
    """K as the file's name, or its folder's, tells it."""
    return k_of_name(file.stem) or k_of_name(file.absolute().parent.name)
