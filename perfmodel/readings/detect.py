"""Which format a file has, from its first bytes and lines."""

from __future__ import annotations

import re
from pathlib import Path

from perfmodel.errors import Problem, SpecError
from perfmodel.readings.metrics.mlflow import LINE as MLFLOW_LINE
from perfmodel.readings.metrics.mlflow import is_run
from perfmodel.readings.metrics.tensorboard import looks_like_events
from perfmodel.readings.metrics.wandb import HEADER as WANDB_HEADER
from perfmodel.readings.metrics.wandb import is_chart
from perfmodel.readings.source import (
    DAMAGE,
    DAMAGED,
    Tally,
    csv_cells,
    damaged,
    numbered_lines,
    open_bytes,
    without_launcher,
)
from perfmodel.readings.train_log import detect_preset

FORMATS = (
    "nccl-tests", "osu", "comm-table", "chrome-trace", "nsys-sqlite", "rank-times", "power", "sacct", "train-log", "timings",
    "wandb", "tensorboard", "mlflow",
)  # fmt: skip
LOOK_AT = 400  # lines
_SIGNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("nccl-tests", re.compile(r"^#\s*(?:nThreads?:? \d|Collective test starting|size\s+count\s+type)")),
    ("osu", re.compile(r"^#?\s*OSU\s+\S+.*(?:Test|Benchmark)")),
    (
        "comm-table",
        re.compile(
            r"(?i)^-{2,}\s*Performance of \S+ on \d+ devices|size\s*\(MB\)\s+avgbw|^\|\s*payload\s*\||COMMS-RES"
        ),
    ),
    ("sacct", re.compile(r"^\s*JobID.*\bElapsed\b")),
    ("power", re.compile(r"(?i)power\.draw|DCGM_FI_DEV_POWER_USAGE|^#\s*Entity.*POWER")),
    ("power", re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+, .*\d W\b")),
    ("rank-times", re.compile(r'^\{.*"rank"\s*:')),
    (
        "rank-times",
        re.compile(r"(?i)\brank[ =:#]*\d+\b.*\b(?:step|iter)\w*[ =:#]*\d+\b.*\b(?:time|took|elapsed)"),
    ),
)


def detect(path: Path | str) -> str:
    """One of `FORMATS`; SpecError when the file looks like none of them."""
    where = Path(path)
    if is_run(where):
        return "mlflow"
    with open_bytes(where) as raw:
        try:
            head = raw.peek(4096)
        except DAMAGED:
            raise damaged(where) from None
    if head.startswith(b"SQLite format 3\0"):
        return "nsys-sqlite"
    if head.startswith(WANDB_HEADER):
        return "wandb"
    if looks_like_events(head):
        return "tensorboard"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"{", b"[")) and b'"_step"' in head and b'"traceEvents"' not in head:
        return "wandb"
    if (
        b'"traceEvents"' in head
        or re.match(rb'\[\s*\{\s*"', text)
        or re.match(rb'\{\s*"(?:schemaVersion|deviceProperties)"', text)
    ):
        return "chrome-trace"
    tally = Tally(where)
    for seen, (_, line) in enumerate(numbered_lines(where, tally)):
        if seen >= LOOK_AT:
            break
        found = _of_line(without_launcher(line).strip())
        if found is not None:
            return found
    if detect_preset(where) is not None:
        return "train-log"
    if any(item.reason == DAMAGE for item in tally.rejected):
        raise damaged(where)
    raise SpecError(
        Problem(
            str(where),
            code="R004",
            message="its format is not recognised",
            help=f"known: {', '.join(FORMATS)}",
        )
    )


def _of_line(line: str) -> str | None:
    for name, sign in _SIGNS:
        if sign.search(line):
            return name
    if MLFLOW_LINE.match(line):
        return "mlflow"
    if line.startswith("#") or "," not in line:
        return None
    if is_chart(csv_cells(line)):
        return "wandb"
    cells = {cell.lower() for cell in csv_cells(line)}
    if "k" in cells and cells & {"time_s", "compute_s"}:
        return "timings"
    timed = any(re.fullmatch(r"(?:\w+_)?(?:time|elapsed|duration)(?:_\w+)?", cell) for cell in cells)
    if ("rank" in cells and timed) or ({"step", "iteration"} & cells and "rank0" in cells):
        return "rank-times"
    return None
