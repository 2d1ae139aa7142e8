"""Points that cannot be taken as they stand: by themselves, or beside the others of their family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfmodel.validate.tables import Row

BATCHLESS = "{} (no batch)"
TIMING = ("step_s", "spread_s", "repeats")
ROUNDED = 0.01  # of a batch: means of uneven micro-batches are stated in few digits


def contradiction(point: Row, family: Row) -> str | None:
    """How the numbers of a point contradict each other or its family's nodes, in words; None where none does."""
    k, nodes, per_node = (
        point.get("k", np.nan),
        point.get("nodes", np.inf),
        family.get("accelerators_per_node", np.inf),
    )
    if k > nodes * per_node:
        return f"k is {k:g}, more than nodes times accelerators_per_node, {nodes * per_node:g}"
    dp, tp, pp = (point.number[name] for name in ("dp", "tp", "pp"))
    replica = (tp or 1.0) * (pp or 1.0) * point.get("cp", 1.0)
    is_cut = tp is not None or pp is not None
    if dp is not None and (dp * replica > k or (is_cut and dp * replica != k)):
        return f"dp times tp times pp times cp is {dp * replica:g}, k is {k:g}"
    if k % replica != 0.0:
        return f"k is {k:g}, no multiple of tp times pp times cp, {replica:g}"
    if dp is not None and k % (dp * replica) != 0.0:
        return f"k is {k:g}, no multiple of dp times cp, {dp * replica:g}"
    group, sharing = family.number["shard_group"], k / ((tp or 1.0) * (pp or 1.0))
    if group is not None and sharing % group != 0.0 and group % sharing != 0.0:
        return f"shard_group is {group:g}, no part of k over tp times pp, {sharing:g}"
    spread, step = point.get("spread_s", 0.0), point.get("step_s", np.inf)
    if spread > step:
        return f"spread_s is {spread:g}, more than step_s, {step:g}"
    replicas = k / replica if dp is None and is_cut else dp
    micro = point.number["micro_batch"]
    column = "global_batch" if _states_batch(point) else "run_batch"
    batch = point.number.get(column)
    if replicas is None or micro is None or batch is None:
        return None
    return _uneven(replicas, micro, point.number["accumulation"], batch, column)


def repeated(points: Sequence[Row]) -> list[tuple[Row, str]]:
    """Points that stand in an earlier line cell by cell, and where: another measurement would differ in something."""
    first: dict[tuple[str, ...], Row] = {}
    found = []
    for point in points:
        before = first.setdefault(tuple(point.text.values()), point)
        if before is not point:
            found.append((point, f"the same in every cell as line {before.line}"))
    return found


def measured_again(points: Sequence[Row]) -> list[str]:
    """Points that differ from an earlier line in their timing alone, in words: `variant` numbers those that are meant."""
    first: dict[tuple[tuple[str, str], ...], Row] = {}
    again = []
    for point in points:
        configuration = tuple(item for item in point.text.items() if item[0] not in TIMING)
        if first.setdefault(configuration, point) is not point:
            again.append(point)
    if not again:
        return []
    times = "a point" if len(again) == 1 else f"the first of {len(again)} points"
    told = f"{again[0].place}: {times} that differs from an earlier line in its timing alone"
    return [f"{told}: scored as another measurement; number such lines in `variant`"]


def _uneven(
    dp: float, micro: float, steps: float | None, batch: float, column: str = "global_batch"
) -> str | None:
    """How a batch departs from what replicas, micro-batches and their number make of it; a last one may be partial.

    >>> _uneven(8, 4, 2, 64), _uneven(8, 4, 2, 60), _uneven(8, 4, None, 60)
    (None, None, None)
    >>> _uneven(8, 4, 2, 128)
    'dp times micro_batch times accumulation is 64, global_batch is 128'
    >>> _uneven(8, 4, 1, 63)
    'dp times micro_batch times accumulation is 32, global_batch is 63'
    >>> _uneven(8, 4, 3, 64)
    'dp times micro_batch times accumulation is 96, global_batch is 64'
    >>> _uneven(8, 4, None, 16)
    'dp times micro_batch is 32, more than global_batch 16'
    >>> _uneven(8, 4, None, 16, "run_batch")
    'dp times micro_batch is 32, more than run_batch 16'
    """
    made = dp * micro
    if made > batch * (1.0 + ROUNDED):
        return f"dp times micro_batch is {made:g}, more than {column} {batch:g}"
    needed = batch / made
    with_partial = needed + 1.0 if needed > 1.0 + ROUNDED else needed
    least, beyond = needed * (1.0 - ROUNDED), max(needed * (1.0 + ROUNDED), with_partial)
    if steps is None or least <= steps < beyond:
        return None
    return f"dp times micro_batch times accumulation is {made * steps:g}, {column} is {batch:g}"


def batchless_apart(
    families: Mapping[str, Row], points: Sequence[Row]
) -> tuple[dict[str, Row], list[Row], dict[str, str]]:
    """Families and points in which all points of a family state a batch or none does, and the new families in words.

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
    return parted, moved, {BATCHLESS.format(name): _told(name, rows) for name, rows in lacking.items()}


def _states_batch(point: Row) -> bool:
    return point.number["global_batch"] is not None


def _renamed(row: Row) -> Row:
    return replace(row, text={**row.text, "family": BATCHLESS.format(row.text["family"])})


def _told(family: str, rows: Sequence[Row]) -> str:
    points = f"{len(rows)} {'points' if len(rows) > 1 else 'point'}"
    return f'{rows[0].place}: {points} of family "{family}" without the global_batch that others state'
