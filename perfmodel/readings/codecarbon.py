"""CodeCarbon's `emissions.csv`: a run a line, with its duration, energy and emissions, as rows of timings.

Columns that are read: `duration` [s], `energy_consumed` [kWh], `emissions` [kg CO2-equivalent], and for K `gpu_count`, or
the name of the file or of the project where one says so (`run_k8`).
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Final

from perfmodel.errors import Problem, SpecError
from perfmodel.files import csv_faults
from perfmodel.readings.train_log import k_of_name
from perfmodel.units import plain_number

COLUMNS: Final = ("duration", "emissions", "energy_consumed")
KWH_J: Final = 3.6e6
GRAM_PER_KG: Final = 1e3


def is_emissions(head: bytes) -> bool:
    """Whether a file's first line is the header of an emissions.csv.

    >>> is_emissions(b"timestamp,project_name,duration,emissions,energy_consumed,gpu_count")
    True
    >>> is_emissions(b"k,time_s")
    False
    """
    names = head.split(b"\n", 1)[0].decode("utf-8", errors="replace").lstrip("\ufeff").strip().split(",")
    return set(COLUMNS) <= {name.strip().strip('"') for name in names}


def timings_csv(data: bytes, name: str) -> bytes:
    """The rows as the study's table: k, time_s, energy_j, carbon_g; every fault with its line."""
    with csv_faults(name, "T001"):
        rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig", errors="replace"), newline=""))
        return _table(rows, name)


def _table(rows: csv.DictReader[str], name: str) -> bytes:
    problems: list[Problem] = []
    lines = ["k,time_s,energy_j,carbon_g"]
    for row in rows:
        values: dict[str, float] = {}
        for column in COLUMNS:
            cell = (row.get(column) or "").strip()
            try:
                values[column] = plain_number(cell)
            except ValueError:
                values[column] = math.nan
            if not 0.0 <= values[column] < 1e15 or (column == "duration" and values[column] == 0.0):
                problems.append(
                    Problem(
                        name,
                        rows.line_num,
                        None,
                        "T004",
                        f"{column}: not a number above zero: {cell or 'nothing'}",
                    )
                )
        k = (
            k_of_name(Path(name).stem)
            or k_of_name(row.get("project_name") or "")
            or _count(row.get("gpu_count"))
        )
        if k is None:
            problems.append(
                Problem(
                    name, rows.line_num, None, "T007", "it is not stated how many workers ran",
                    help="name the file or the project so that it does, such as emissions_k8.csv",
                )
            )  # fmt: skip
            continue
        joules, grams = values["energy_consumed"] * KWH_J, values["emissions"] * GRAM_PER_KG
        lines.append(f"{k},{values['duration']!r},{joules!r},{grams!r}")
    if len(lines) == 1 and not problems:
        problems.append(Problem(name, 1, None, "T001", "no runs under the header"))
    if problems:
        raise SpecError(problems)
    return ("\n".join(lines) + "\n").encode()


def _count(text: str | None) -> int | None:
    try:
        value = plain_number((text or "").strip())
    except ValueError:
        return None
    return int(value) if value >= 1 and value == math.floor(value) else None
