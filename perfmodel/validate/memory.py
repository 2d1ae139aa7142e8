"""Predicted against published peaks of memory, and layouts that their authors ran or called out of memory.

`memory.csv` has one run a row; `job` holds the keys of a job file beside workload, cluster and K, a dotted one reaching
inside. `read` says what was read: the tensors that an allocator held at their peak (`allocated`), what it had reserved for
them (`reserved`), or nothing (`out of memory`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfmodel.errors import Problem, SpecError
from perfmodel.physics.memory import FRAGMENTED, memory
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.specs.loader import parse_value
from perfmodel.training.given import as_run
from perfmodel.training.setup import setup_of
from perfmodel.validate.tables import Row, read_table

COLUMNS = (
    "run",
    "source",
    "workload",
    "accelerator",
    "accelerators_per_node",
    "k",
    "precision",
    "job",
    "read",
)
PEAKS = "memory.csv"
CELLS = {"allocated": "allocated_gib", "reserved": "reserved_gib"}
OUT = "out of memory"
GIB = 2.0**30
# Of eight runs that state both, what the allocator reserved over what the tensors took: 1.028 to 1.069.
RESERVED_OVER_ALLOCATED = 1.046


@dataclass(frozen=True)
class Peak:
    """A run, the peak that was read [B] (None: out of memory), what is predicted of it, and what the device has."""

    run: str
    source: str
    read: str
    measured: float | None
    predicted: float
    low: float
    high: float
    device: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one; NaN where nothing was read."""
        return np.nan if self.measured is None else self.predicted / self.measured - 1.0

    def mapping(self) -> dict[str, object]:
        """As the result has it."""
        return {
            "run": self.run,
            "source": self.source,
            "read": self.read,
            "measured_bytes": self.measured,
            "predicted_bytes": self.predicted,
            "low_bytes": self.low,
            "high_bytes": self.high,
            "device_bytes": self.device,
        }


def read_peaks(path: Path, catalog: Catalog) -> list[Peak]:
    """Runs of a memory.csv with their predictions."""
    problems: list[Problem] = []
    table = read_table(path, COLUMNS, problems, (*CELLS.values(), "note"))
    peaks = []
    for row in table.rows:
        try:
            peaks.append(_peak(row, _job(row, catalog)))
        except SpecError as error:
            # What is wrong inside a job has no place of its own.
            problems += [
                one
                if one.file == row.file
                else row.problem(one.code, f"run {row.text['run']}: {one.message}", one.help, at="job")
                for one in error.problems
            ]
    if problems:
        raise SpecError(problems)
    return peaks


def _job(row: Row, catalog: Catalog) -> Job:
    """The job of a row."""
    said = parse_value(row.text["job"], row.place)
    if not isinstance(said, Mapping):
        raise SpecError(row.problem("D004", "job is no mapping", "such as {layout: {tp: 2}}", at="job"))
    count = int(row.get("accelerators_per_node", 1.0))
    node = {
        "name": f"{row.text['accelerator']} x {count}",
        "accelerator": row.text["accelerator"],
        "accelerators_per_node": count,
    }
    words: dict[str, object] = {
        "workload": row.text["workload"],
        "cluster": {"node": node},
        "k": int(row.get("k", 1.0)),
        "precision": row.text["precision"],
    }
    return load_job(words, overrides=dict(_flat(said)), catalog=catalog)


def _flat(said: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    """Keys of a job, those of its workload with their dots: they change a named one."""
    for key, value in said.items():
        if key == "workload" and isinstance(value, Mapping):
            yield from ((f"workload.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def _peak(row: Row, job: Job) -> Peak:
    """What is predicted of a run, in terms of what was read."""
    read = row.text["read"]
    if read not in (*CELLS, OUT):
        words = ", ".join((*CELLS, OUT))
        raise SpecError(row.problem("D004", f'read is "{read}"', f"one of {words}", at="read"))
    peak = row.number.get(CELLS.get(read, ""))
    if (read == OUT) == (peak is not None):
        raise SpecError(row.problem("D004", f"{read} and a peak of {peak or 'no'} GiB", at="read"))
    setup = setup_of(job)
    at, _ = as_run(setup)
    held = memory(setup.operations, setup.machine, at, schedule=setup.schedule)
    parts = {name: float(np.ravel(part)[0]) for name, part in held.parts.items()}
    allocated = sum(parts.values()) - parts["reserved"]
    low = float(np.ravel(held.low)[0])
    if read == "allocated":
        centre, least, most = allocated, low - parts["reserved"], allocated * FRAGMENTED
    elif read == "reserved":
        centre, least, most = (
            allocated * RESERVED_OVER_ALLOCATED,
            low - parts["reserved"],
            allocated * FRAGMENTED,
        )
    else:
        centre, least, most = sum(parts.values()), low, float(np.ravel(held.high)[0])
    return Peak(
        run=row.text["run"],
        source=row.text["source"],
        read=read,
        measured=None if peak is None else peak * GIB,
        predicted=centre,
        low=least,
        high=most,
        device=float(setup.machine.memory_bytes),
    )


def memory_figures(peaks: Sequence[Peak]) -> dict[str, object]:
    """Errors of all peaks and of each source's, and how many runs were rightly said to fit or not to fit."""
    if not peaks:
        return {"runs": 0, "median_ape": None, "mean_ape": None, "worst_ape": None}
    fitting = [one for one in peaks if one.measured is not None]
    beyond = [one for one in peaks if one.measured is None]
    return {
        **_errors(fitting),
        "fit_rightly": sum(one.predicted <= one.device for one in fitting),
        "out_of_memory": len(beyond),
        "out_rightly": sum(one.predicted > one.device for one in beyond),
        "by_source": {
            source: _errors([one for one in fitting if one.source == source])
            for source in sorted({one.source for one in fitting})
        },
        "peaks": [one.mapping() for one in peaks],
    }


def _errors(peaks: Sequence[Peak]) -> dict[str, object]:
    error = np.array([one.error for one in peaks])
    inside = [one.low <= (one.measured or 0.0) <= one.high for one in peaks]
    size = np.abs(error)
    return {
        "runs": len(peaks),
        "median_ape": float(np.median(size)),
        "mean_ape": float(size.mean()),
        "worst_ape": float(size.max()),
        "bias": float(np.median(error)),
        "inside_band": float(np.mean(inside)),
    }
