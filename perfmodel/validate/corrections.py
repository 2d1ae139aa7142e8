"""Labels of published runs that the publisher's own scripts contradict: `corrections.csv` beside this file.

A line names a source by its address and a workload, the column of `families.csv`, the cell as it is labelled and what
the scripts say instead, with the place. Only what a run was is corrected, never a measured time.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.validate.tables import Row


@dataclass(frozen=True)
class Correction:
    """One line of `corrections.csv`."""

    address: str
    workload: str
    column: str
    labelled: str
    found: str
    reason: str


@cache
def known() -> tuple[Correction, ...]:
    """All corrections."""
    with (Path(__file__).parent / "corrections.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(Correction(**line) for line in csv.DictReader(stream))


def corrected(
    families: Mapping[str, Row], addresses: Mapping[str, str]
) -> tuple[dict[str, Row], dict[str, str]]:
    """Families with their labels corrected, and the reason for each that was; `addresses` of sources by their id."""
    rows, reasons = dict(families), {}
    for name, row in families.items():
        mine = [
            one
            for one in known()
            if addresses.get(row.text["source"]) == one.address
            and row.text["workload"] == one.workload
            and row.text[one.column] == one.labelled
        ]
        if mine:
            rows[name] = replace(row, text={**row.text, **{one.column: one.found for one in mine}})
            reasons[name] = "; ".join(one.reason for one in mine)
    return rows, reasons
