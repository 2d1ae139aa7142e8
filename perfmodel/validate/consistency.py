"""Points that cannot be taken as they stand beside the others of their family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfmodel.validate.tables import Row

BATCHLESS = "{} (no batch)"


def batchless_apart(
    families: Mapping[str, Row], points: Sequence[Row]
) -> tuple[dict[str, Row], list[Row], list[str]]:
    """Families and points in which all points of a family state a batch or none does, and what was parted, in words.

    Without a batch `step_s` counts seconds per sample and accelerator, with one seconds per step: no offset fits both.
    """
    stating = {point.text["family"] for point in points if _states_batch(point)}
    lacking: dict[str, list[Row]] = {}
    for point in points:
        if not _states_batch(point) and point.text["family"] in stating:
            lacking.setdefault(point.text["family"], []).append(point)
    parted = dict(families)
    for name in lacking:
        parted[BATCHLESS.format(name)] = _renamed(families[name])
    moved = [
        point if _states_batch(point) or point.text["family"] not in lacking else _renamed(point)
        for point in points
    ]
    return parted, moved, [_told(name, rows) for name, rows in lacking.items()]


def _states_batch(point: Row) -> bool:
    return point.number["global_batch"] is not None


def _renamed(row: Row) -> Row:
    return replace(row, text={**row.text, "family": BATCHLESS.format(row.text["family"])})


def _told(family: str, rows: Sequence[Row]) -> str:
    several = len(rows) > 1
    return (
        f'{rows[0].place}: {len(rows)} {"points" if several else "point"} of family "{family}" '
        f"without the global_batch that others state: ratios only, as "
        f'"{BATCHLESS.format(family)}"'
    )
