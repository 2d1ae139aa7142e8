"""What published runs were, where the publisher's own scripts say more, or other, than their labels: `corrections.csv`.

A line names a source by its address, a workload (or `*`), cells that must hold besides (`where`, as `column=value`
joined by `;`), the column of `families.csv` or `points.csv`, the cell as it is labelled (nothing, where it is blank) and
what the scripts say instead, with the place. Only what a run was is corrected, never a measured time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from perfmodel.validate.tables import NUMBERS, UNSTATED, Row

ANY = "*"


@dataclass(frozen=True)
class Correction:
    """One line of `corrections.csv`."""

    address: str
    workload: str
    where: str
    column: str
    labelled: str
    found: str
    reason: str

    def fits(self, cells: Mapping[str, str]) -> bool:
        """Whether a line of the source is meant; `cells` are those of its family, and of its point if it is one."""
        return (
            (self.workload == ANY or cells["workload"] in self.workload.split("|"))
            and _same(cells.get(self.column, ""), self.labelled)
            and all(_holds(condition, cells) for condition in self.where.split(";") if condition)
        )

    def apply(self, row: Row) -> Row:
        """The line with what was found, as text and, where the column holds numbers, as a number.

        A time stands for the tokens that it was stated for: shorter sequences are more of them, in as many more passes.
        """
        text, number = {**row.text, self.column: self.found}, dict(row.number)
        if self.column in NUMBERS:
            number[self.column] = float(self.found)
        if self.column == "seq_len" and self.labelled:
            for column in ("global_batch", "accumulation"):
                value = number[column]
                if value is not None:
                    number[column] = value * float(self.labelled) / float(self.found)
                    text[column] = f"{number[column]:g}"
        return replace(row, text=text, number=number)


def _holds(condition: str, cells: Mapping[str, str]) -> bool:
    """`column=a|b`: the cell is one of these; `column~a|b`: it contains one of them.

    >>> _holds("k=8|16", {"k": "16"}), _holds("note~v1.0|v1.1", {"note": "release v1.0; H100"}), _holds("k=8", {})
    (True, True, False)
    """
    equal = "=" in condition and "~" not in condition.split("=", 1)[0]
    column, values = condition.split("=" if equal else "~", 1)
    cell = cells.get(column, "")
    return any(_same(cell, value) if equal else value in cell for value in values.split("|"))


def _same(cell: str, value: str) -> bool:
    """Equal as text, or as numbers.

    >>> _same("384.0", "384"), _same("", ""), _same("", "0"), _same("ddp", "zero1")
    (True, True, False, False)
    """
    try:
        return cell == value or float(cell) == float(value)
    except ValueError:
        return False


@cache
def known() -> tuple[Correction, ...]:
    """All corrections."""
    with (Path(__file__).parent / "corrections.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(Correction(**line) for line in csv.DictReader(stream))


def corrected(
    families: Mapping[str, Row], points: Iterable[Row], addresses: Mapping[str, str]
) -> tuple[dict[str, Row], list[Row], dict[str, str]]:
    """Families and points as they were run, and the reasons by family; `addresses` of sources by their id."""
    reasons: dict[str, list[str]] = {}

    def mend(row: Row, family: Row) -> Row:
        labelled = {**family.text, **row.text}
        for one in by_address.get(addresses.get(family.text["source"]), []):
            unstated = UNSTATED["points.csv" if "k" in row.text else "families.csv"]
            has = one.column in row.text or one.column in unstated
            if not has or not one.fits(labelled):
                continue
            row = one.apply(row)
            told = reasons.setdefault(family.text["family"], [])
            told += [one.reason] if one.reason not in told else []
        return row

    by_address: dict[str | None, list[Correction]] = {}
    for one in known():
        by_address.setdefault(one.address, []).append(one)
    read = [
        mend(row, families[row.text["family"]]) if row.text["family"] in families else row for row in points
    ]
    return (
        {name: mend(row, row) for name, row in families.items()},
        read,
        {name: "; ".join(told) for name, told in reasons.items()},
    )
