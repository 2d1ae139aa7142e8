"""Slurm accounting: `sacct` output, pipe-separated (`--parsable2`) or in columns, as one timing per job.

A job's elapsed time holds everything it did (start-up, checkpoints): it is a coarse timing and the notes say so. K is the
number of GPUs in AllocTRES (or ReqTRES), else NTasks, else NNodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.readings.source import Reading, Tally, numbered_lines

_ELAPSED = re.compile(r"^(?:(\d{1,4})-)?(?:(\d{1,3}):)?(\d{1,3}):(\d\d)(?:\.(\d{1,6}))?$")
_GPUS = re.compile(r"gres/gpu(?::\w+)?=(\d{1,7})")
_SUBSTEP = re.compile(r"\.(?:batch|extern|\d+)$")
_GOOD = ("COMPLETED",)
COARSE = "Slurm's elapsed time is of whole jobs, start-up included: use step times where you have them"


@dataclass(frozen=True, kw_only=True)
class SacctTable(Reading):
    """Completed jobs: workers, elapsed time [s], name, and energy [J] where Slurm counts it (else NaN)."""

    k: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    time_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    energy_j: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    name: tuple[str, ...] = ()


def read_sacct(path: Path | str, *, name: str | None = None) -> SacctTable:
    """Read accounting output; `name` keeps only jobs of that name, `*` standing for any text in it."""
    where = Path(path)
    tally = Tally(where)
    columns: dict[str, int] | None = None
    widths: list[tuple[int, int]] | None = None
    rows: list[tuple[int, float, float, str]] = []
    for line, text in numbered_lines(where, tally):
        if not text.strip():
            continue
        if columns is None:
            if "Elapsed" in text:
                cells = text.split("|") if "|" in text else text.split()
                columns = {cell.strip().lower(): i for i, cell in enumerate(cells) if cell.strip()}
                widths = None if "|" in text else []
            else:
                tally.reject(line, text, "before the header of sacct")
            continue
        if widths == [] and re.fullmatch(r"[- ]+", text):  # the rule under a column header shows the widths
            widths = [match.span() for match in re.finditer(r"-+", text)]
            continue
        cells = [text[a:b].strip() for a, b in widths] if widths else [c.strip() for c in text.split("|")]
        reason = _take(cells, columns, name, rows)
        if reason is None:
            tally.used += 1
        elif reason:
            tally.reject(line, text, reason)
    if rows:
        tally.note(COARSE)
    return tally.finish(
        SacctTable,
        k=np.array([row[0] for row in rows], np.int64),
        time_s=np.array([row[1] for row in rows], np.float64),
        energy_j=np.array([row[2] for row in rows], np.float64),
        name=tuple(row[3] for row in rows),
    )


def families(names: Sequence[str]) -> dict[str, str]:
    """Each name with its family: what is left when the numbers in it, mostly of workers or nodes, are any.

    >>> families(["train-8", "train-16", "eval"])
    {'train-8': 'train-*', 'train-16': 'train-*', 'eval': 'eval'}
    """
    return {name: re.sub(r"\d+", "*", name) for name in names}


def _take(
    cells: list[str], columns: dict[str, int], name: str | None, rows: list[tuple[int, float, float, str]]
) -> str | None:
    """None when the row was kept, the reason when it was not, an empty one for rows that are no jobs."""

    def cell(*names: str) -> str:
        return next(
            (
                cells[columns[n]]
                for n in names
                if n in columns and columns[n] < len(cells) and cells[columns[n]]
            ),
            "",
        )

    if _SUBSTEP.search(cell("jobid", "jobidraw")):
        return ""
    job = cell("jobname")
    if name is not None and not fnmatchcase(job, name):
        return ""
    state = cell("state")
    if state and state.split()[0].rstrip("+") not in _GOOD:
        return f"the job did not complete: {state}"
    match = _ELAPSED.match(cell("elapsed"))
    if match is None:
        return "the elapsed time cannot be read"
    days, hours, minutes, seconds, fraction = match.groups()
    time = (
        ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60
        + int(seconds)
        + float(f"0.{fraction or 0}")
    )
    gpus = (
        _GPUS.search(cell("alloctres"))
        or _GPUS.search(cell("reqtres"))
        or _GPUS.search(cell("tresusageintot"))
    )
    counted = gpus.group(1) if gpus else cell("ntasks", "nnodes", "allocnodes")
    if not re.fullmatch(r"\d{1,7}", counted) or int(counted) == 0:
        return "neither GPUs nor tasks nor nodes are counted"
    if time <= 0.0:
        return "the job took no time"
    rows.append((int(counted), time, _joules(cell("consumedenergyraw", "consumedenergy")), job))
    return None


def _joules(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", text)
    scale = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
    value = float(match.group(1)) * scale[match.group(2)] if match else 0.0
    return value if value > 0.0 else float("nan")
