"""Per-rank step times: who is late, how much steps jitter, and whether the tail is heavier than that of the fit.

Forms read: long CSV (`rank,step,time_s`; `time_ms` too), wide CSV (`step,rank0,rank1,...`), JSON lines with
`rank`, `step` and a time, and text such as `rank 3 step 120 time 0.412 s`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import Problem, SpecError
from perfmodel.physics.straggler_fit import LEAST_SAMPLES, JitterFit, fit_jitter
from perfmodel.readings.source import (
    WARMUP_RULE,
    Reading,
    Tally,
    csv_cells,
    number,
    numbered_lines,
    warmup_steps,
    without_launcher,
)

LEAST_SPREAD = 1e-9  # of a step time over its mean, below which it is rounding
_SCALES = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIME_NAME = re.compile(
    r"(?i)^(?:step_?|iter(?:ation)?_?|elapsed_?|duration_?)?(?:time|elapsed|duration|seconds|latency)?(?:[_ (]*(s|sec|seconds|ms|us|ns)\)?)?$"
)
_WIDE = re.compile(r"(?i)^(?:rank|gpu|worker)[_ ]?(\d{1,7})(?:[_ (]*(s|ms|us)\)?)?$")
_TEXT = re.compile(
    r"(?i)\brank[ =:#\[]*(\d{1,7})\b.*?\b(?:step|iter(?:ation)?)[ =:#]*(\d{1,12})\b.*?"
    r"\b(?:time|took|elapsed|duration)\w*[ =:(]*([\d.]+(?:e-?\d+)?)\s*(ns|us|ms|s)\b"
)
_REASON = "not a rank, a step and a time above zero"
_TWICE = "this rank and step were given before: the first time is used"
MAX_CELLS = 200_000_000  # of the step x rank table, 8 bytes each


@dataclass(frozen=True, kw_only=True)
class RankTimes(Reading):
    """Step times [s] after warm-up, `time_s[step, rank]`; NaN where a rank did not report."""

    ranks: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    steps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    time_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    warmup: tuple[int, ...] = ()

    def jitter(self) -> NDArray[np.float64]:
        """Each time over its rank's median: what is left is a step's own noise, not a slow device.

        A rank with one step is left out: it is its own median.
        """
        several = self.time_s[:, self._repeated()]
        relative = (several / np.nanmedian(several, axis=0)).ravel() if several.size else several.ravel()
        return np.asarray(relative[np.isfinite(relative)])

    def _repeated(self) -> NDArray[np.bool_]:
        """Ranks that reported more than one step."""
        return np.asarray(np.isfinite(self.time_s).sum(axis=0) > 1)

    def fit(self, *, seed: int = 0) -> JitterFit:
        """The jitter's distribution, with the check of its tail; `slowest_rank` is a rank's own number."""
        usable = self.jitter().size
        if usable < LEAST_SAMPLES:
            raise SpecError(
                Problem(
                    self.path,
                    code="R006",
                    message=f"{usable} step times after warm-up are too few for a distribution",
                    help=f"log at least {LEAST_SAMPLES}, better some hundred per rank",
                )
            )
        if float(np.nanstd(self.jitter())) < LEAST_SPREAD:
            raise SpecError(
                Problem(
                    self.path,
                    code="R006",
                    message="every step of a rank took the same time: too coarse to show how steps vary",
                    help="log times with more digits",
                )
            )
        several = self._repeated()
        found = fit_jitter(self.time_s[:, several].T, seed=seed)
        return replace(found, slowest_rank=int(self.ranks[several][found.slowest_rank]))


def read_rank_times(path: Path | str) -> RankTimes:
    """Read per-rank step times in any of the forms above."""
    where = Path(path)
    tally = Tally(where)
    cells_found: dict[tuple[int, int], float] = {}
    reported: dict[int, int] = {}
    columns: dict[str, Any] | None = None
    for line, raw in numbered_lines(where, tally):
        text = without_launcher(raw).strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("{"):
            found = _from_json(text)
        elif "," not in text:
            found = _from_text(text)
        else:
            cells = csv_cells(text)
            header = _columns(cells)
            if header is not None:
                columns = header
                continue
            found = _from_cells(cells, columns) if columns else _from_text(text)
        if not found:
            tally.reject(line, raw, _REASON)
            continue
        if any((step, rank) in cells_found for rank, step, _ in found):
            tally.reject(line, raw, _TWICE)
            continue
        tally.used += 1
        for rank, step, time in found:
            if step < 0:  # the table has no steps: each rank's rows are counted
                reported[rank] = reported.get(rank, -1) + 1
            cells_found[step if step >= 0 else reported[rank], rank] = time
    return _table(cells_found, tally)


def _columns(cells: list[str]) -> dict[str, Any] | None:
    """Where rank, step and time stand, when these cells are a header."""
    lower = [cell.lower() for cell in cells]
    if any(number(cell) is not None for cell in cells):
        return None
    step = next(
        (i for i, cell in enumerate(lower) if cell in ("step", "iteration", "iter", "global_step")), None
    )
    wide = {i: match for i, cell in enumerate(lower) if (match := _WIDE.match(cell))}
    if wide and "rank" not in lower:
        return {
            "step": step,
            "wide": {i: (int(match.group(1)), _SCALES[match.group(2) or "s"]) for i, match in wide.items()},
        }
    rank = next((i for i, cell in enumerate(lower) if cell in ("rank", "worker", "gpu", "local_rank")), None)
    timed = {
        i: match
        for i, cell in enumerate(lower)
        if i not in (rank, step) and cell and (match := _TIME_NAME.match(cell))
    }
    if rank is None or not timed:
        return None
    at, match = next(iter(timed.items()))
    return {"rank": rank, "step": step, "time": at, "scale": _SCALES[(match.group(1) or "s").lower()]}


def _from_cells(cells: list[str], columns: dict[str, Any]) -> list[tuple[int, int, float]]:
    step_at = columns["step"]
    if step_at is not None and step_at >= len(cells):
        return []
    step = _whole(cells[step_at]) if step_at is not None else -1
    if step is None:
        return []
    if "wide" in columns:
        pairs = [
            (rank, cells[i], scale)
            for i, (rank, scale) in columns["wide"].items()
            if i < len(cells) and cells[i]
        ]
    elif max(columns["rank"], columns["time"]) < len(cells):
        rank_number = _whole(cells[columns["rank"]])
        pairs = [] if rank_number is None else [(rank_number, cells[columns["time"]], columns["scale"])]
    else:
        return []
    values = [(rank, step, _positive(text, scale)) for rank, text, scale in pairs]
    return (
        []
        if any(value is None for _, _, value in values)
        else [(r, s, v) for r, s, v in values if v is not None]
    )


def _from_json(text: str) -> list[tuple[int, int, float]]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(record, dict):
        return []
    keys = {str(key).lower(): value for key, value in record.items()}
    rank, step = keys.get("rank"), keys.get("step", keys.get("iteration"))
    for name, value in keys.items():
        match = _TIME_NAME.match(name) if name not in ("rank", "step", "iteration", "") else None
        if match and isinstance(value, (int, float)) and type(rank) is int and type(step) is int:
            time = _positive(str(value), _SCALES[(match.group(1) or "s").lower()])
            return [] if time is None or not 0 <= rank < 1e7 or not 0 <= step < 1e15 else [(rank, step, time)]
    return []


def _from_text(text: str) -> list[tuple[int, int, float]]:
    match = _TEXT.search(text)
    if match is None:
        return []
    time = _positive(match.group(3), _SCALES[match.group(4).lower()])
    return [] if time is None else [(int(match.group(1)), int(match.group(2)), time)]


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 13 else None


def _positive(text: str, scale: float) -> float | None:
    value = number(text)
    return value * scale if value is not None and 1e-9 <= value * scale < 1e9 else None


def _table(found: dict[tuple[int, int], float], tally: Tally) -> RankTimes:
    ranks = sorted({rank for _, rank in found})
    steps = sorted({step for step, _ in found})
    if len(ranks) * len(steps) > MAX_CELLS:
        tally.note("ranks and steps hardly meet: the table would be mostly empty, nothing was kept")
        found, ranks, steps = {}, [], []
    table = np.full((len(steps), len(ranks)), np.nan)
    row = {step: i for i, step in enumerate(steps)}
    column = {rank: i for i, rank in enumerate(ranks)}
    for (step, rank), time in found.items():
        table[row[step], column[rank]] = time
    skip = warmup_steps(np.nanmax(table, axis=1)) if found else 0
    if skip:
        tally.note(f"{WARMUP_RULE} ({skip} of {len(steps)})")
    # A rank that reported in warm-up only has nothing left to say.
    alive = ~np.all(np.isnan(table[skip:]), axis=0) if found else np.zeros(0, bool)
    return tally.finish(
        RankTimes,
        ranks=np.array(ranks, np.int64)[alive],
        steps=np.array(steps[skip:], np.int64),
        time_s=table[skip:][:, alive],
        warmup=tuple(steps[:skip]),
    )
