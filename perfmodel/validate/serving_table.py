"""`runs.csv`: measured serving runs, one configuration at one load a line, read with every fault at its line and column.

What is not a number, not finite, negative or beyond any machine is refused with the file; what contradicts itself is
listed and not scored (`serving_rows`). Zero in a column of times or rates says that nobody measured it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from perfmodel.errors import Problem, SpecError, told_once
from perfmodel.units import plain_number
from perfmodel.validate.tables import Row, read_table

REQUIRED: Final = ("source", "model", "accelerator", "engine", "scenario", "isl", "osl")
SCENARIOS: Final = {
    "closed-loop": "concurrency is held",
    "server": "requests arrive at a rate",
    "offline": "all the machine can do",
    "offline-burst": "all requests at once",
    "offline-static-batch": "one batch, all at once",
    "real-time": "one request at a time",
    "single-stream": "one request at a time",
    "prefill-only": "the first token of a batch",
}
# The most that any run can be; the least is zero, and nothing below.
_MOST: Final = {
    **dict.fromkeys(("n_accel", "tp", "pp", "ep", "dp"), 1e6),
    **dict.fromkeys(("concurrency", "batch", "n_requests"), 1e9),
    **dict.fromkeys(("isl", "osl"), 1e8),
    **dict.fromkeys(("request_rate", "requests_s"), 1e9),
    **dict.fromkeys(("throughput_out_tok_s", "throughput_total_tok_s"), 1e12),
    **dict.fromkeys(
        (
            "ttft_mean_s",
            "ttft_p50_s",
            "ttft_p99_s",
            "tpot_mean_s",
            "tpot_p50_s",
            "tpot_p99_s",
            "itl_mean_s",
            "e2e_s",
            "e2e_p99_s",
        ),
        1e7,
    ),
    "power_w": 1e9,
}
_BOUNDLESS: Final = frozenset({"request_rate"})  # "inf" is how load tools write: all requests at once
_TOKENS: Final = ("isl", "osl")
_NOT: Final = frozenset({"", "no", "false", "0", "none", "off", "-", "n/a", "na"})


def is_said(cell: str) -> bool:
    """Whether a cell of `disagg` or `spec_decoding` says that it is so, or how.

    >>> is_said("True"), is_said("mtp"), is_said("none"), is_said("")
    (True, True, False, False)
    """
    return cell.strip().lower() not in _NOT


@dataclass(frozen=True)
class Runs:
    """The lines of a file, each with its numbers; zeros and blanks are absent."""

    path: Path
    rows: tuple[Row, ...]


def read_runs(path: Path) -> Runs:
    """Read a file of runs; everything that is wrong with it is told at once.

    >>> read_runs(Path("nowhere") / "runs.csv")
    Traceback (most recent call last):
    ...
    FileNotFoundError: nowhere/runs.csv
    """
    if not path.is_file():
        raise FileNotFoundError(str(path))
    problems: list[Problem] = []
    table = read_table(path, REQUIRED, problems)
    rows = tuple(replace(row, number=_numbers(row, problems)) for row in table.rows)
    for row in rows:
        if not row.text["source"]:
            problems.append(row.problem("D006", "source is blank", "name where it comes from", at="source"))
    if problems:
        raise SpecError(told_once(problems))
    return Runs(path, rows)


def _numbers(row: Row, problems: list[Problem]) -> Mapping[str, float | None]:
    found: dict[str, float | None] = {}
    for column, most in _MOST.items():
        cell = row.text.get(column, "")
        if not cell:
            found[column] = None
            continue
        if column in _BOUNDLESS and cell.lower() in ("inf", "infinity"):
            found[column] = np.inf
            continue
        try:
            value = plain_number(cell)
        except ValueError:
            value = np.nan
        if not 0.0 <= value <= most:
            wrong = f"more than {most:g}" if value > most else "not a number of zero or more"
            problems.append(row.not_a_number(column, wrong))
            value = 0.0
        elif column in _TOKENS and 0.0 < value < 1.0:
            problems.append(row.not_a_number(column, "less than one token"))
        found[column] = value or None
    return found
