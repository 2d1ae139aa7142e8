"""The K near a plan's answer that a slightly different batch opens, where the job leaves its batch some room.

A batch that the replicas do not divide leaves some of them waiting for others. Where a job says "about so many tokens", each K
near the answer may have the batch within that room that suits it; the run keeps its number of samples, so that times and
costs compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypedDict

import numpy as np

from perfmodel.decide.plan.candidates import Candidate, Limits, Task
from perfmodel.decide.plan.constraints import constraints_of
from perfmodel.decide.plan.planner import Found
from perfmodel.decide.plan.search import run_task
from perfmodel.units import in_words

RATIOS: Final = (
    0.5,
    0.625,
    0.75,
    0.875,
    1.0,
    1.125,
    1.25,
    1.5,
    1.75,
    2.0,
)  # of the answer's K, in whole nodes
CUTS: Final = (1, 2, 4, 8)  # devices of one replica, for which a batch is rounded
BATCHES: Final = 2  # tried at a K, besides the stated one
SHOWN: Final = 4


class NearBatch(TypedDict):
    """One K near the answer with the batch that suits it, and what it takes with the stated one."""

    k: int
    global_batch: int
    global_batch_tokens: float
    layout: Mapping[str, object]
    time_s: float
    wall_s: float
    cost_usd: float
    stated_wall_s: float | None
    stated_cost_usd: float | None
    keeps_limits: bool


def near_batches(found: Found, best: Candidate) -> list[NearBatch]:
    """K near the answer with the batch that suits it, the best by the objective first; none where the batch is fixed."""
    job, node = found.jobs[best.target], found.targets[best.target].shape.node
    stated = job.global_batch or 1
    if job.batch_range is None or job.regime == "weak":
        return []
    tried = {k: batches(k, job.batch_range, stated) for k in near_k(best.k, node, _most(found, best))}
    without = _fastest(found, best.target, dict.fromkeys(tried, stated))
    rules, name = constraints_of(found), found.request.objective
    opened: dict[int, tuple[Candidate, int]] = {}
    for turn in range(BATCHES):
        asked = {k: suited[turn] for k, suited in tried.items() if len(suited) > turn}
        for k, there in _fastest(found, best.target, asked).items():
            before = opened[k][0] if k in opened else without.get(k)
            if before is None or there.objective(name) < before.objective(name):
                opened[k] = there, asked[k]
    ranked = sorted(
        opened.values(),
        key=lambda item: (not all(rule.kept(item[0]) for rule in rules), item[0].objective(name)),
    )
    return [_row(found, there, batch, without.get(there.k)) for there, batch in ranked[:SHOWN]]


def _row(found: Found, there: Candidate, batch: int, stated: Candidate | None) -> NearBatch:
    return {
        "k": there.k,
        "global_batch": batch,
        "global_batch_tokens": batch * (found.jobs[there.target].tokens_per_sample or 1),
        "layout": there.layout(),
        "time_s": there.time_s,
        "wall_s": found.wall_s(there),
        "cost_usd": there.cost_usd,
        "stated_wall_s": None if stated is None else found.wall_s(stated),
        "stated_cost_usd": None if stated is None else stated.cost_usd,
        "keeps_limits": all(rule.kept(there) for rule in constraints_of(found)),
    }


def near_in_words(row: NearBatch, best_cost_usd: float, best_wall_s: float) -> str:
    """What a near batch opens, with both prices."""
    money = f", {in_words(row['cost_usd'], 'USD', 4)}" if math.isfinite(row["cost_usd"]) else ""
    own = f", {in_words(best_cost_usd, 'USD', 4)}" if math.isfinite(best_cost_usd) else ""
    stated = "no layout at the stated batch"
    cost = row["stated_cost_usd"]
    if row["stated_wall_s"] is not None:
        spent = f", {in_words(cost, 'USD', 4)}" if cost is not None and math.isfinite(cost) else ""
        stated = f"{in_words(row['stated_wall_s'], 's', 3)}{spent} at the stated batch"
    return (
        f"a batch of {row['global_batch_tokens']:,} tokens ({row['global_batch']} sequences) opens K = {row['k']}: "
        f"{in_words(row['wall_s'], 's', 3)}{money} ({stated}), against {in_words(best_wall_s, 's', 3)}{own} of the answer"
    )


def _most(found: Found, best: Candidate) -> float:
    limits = (found.request.max_k, found.jobs[best.target].cluster.max_accelerators)
    return min((limit for limit in limits if limit is not None), default=math.inf)


def near_k(k: int, node: int, most: float) -> list[int]:
    """Round numbers of whole nodes around `k`; of accelerators where `k` is less than a node.

    >>> near_k(128, 8, 1000), near_k(4, 8, 1000)
    ([64, 80, 96, 112, 128, 144, 160, 192, 224, 256], [2, 3, 4, 5, 6, 7, 8])
    """
    unit = node if k >= node else 1
    found = {max(unit, round(k * ratio / unit) * unit) for ratio in RATIOS}
    return sorted(count for count in found if count <= most)


def batches(k: int, room: tuple[int, int], stated: int) -> list[int]:
    """Batches within `room` that the replicas of `k` accelerators divide, those nearest to the stated one.

    >>> batches(96, (440, 537), 488), batches(128, (440, 537), 488)
    ([492, 480], [480, 512])
    """
    low, high = room
    found = set()
    for cut in CUTS:
        replicas = max(1, k // cut)
        multiples = np.arange(math.ceil(low / replicas), high // replicas + 1) * replicas
        if multiples.size:
            found.add(int(multiples[np.argmin(np.abs(multiples - stated))]))
    return sorted(found - {stated}, key=lambda batch: (abs(batch - stated), batch))[:BATCHES]


def _fastest(found: Found, index: int, batch_at: dict[int, int]) -> dict[int, Candidate]:
    """The fastest layout at each K with a batch of its own; the run keeps its samples: work counts against the stated batch."""
    if not batch_at:
        return {}
    target, stated = found.targets[index], found.jobs[index].global_batch or 1
    there = replace(
        target,
        global_batch=batch_at,
        work={k: batch / stated for k, batch in batch_at.items()},
        calibrated=_nearest(target.calibrated, batch_at),
        jitter=_nearest(target.jitter, batch_at),
    )
    task = Task(index, tuple(sorted(batch_at)), found.request.objective, 1, Limits(), found.request.bounds)
    return {candidate.k: candidate for candidate in run_task(there, task).fastest}


def _nearest(known: Mapping[int, float], wanted: Iterable[int]) -> dict[int, float]:
    """What is known at the K of the ladder, at K that may not be on it: that of the nearest.

    >>> _nearest({8: 1.0, 64: 2.0}, [16, 48]), _nearest({}, [16])
    ({16: 1.0, 48: 2.0}, {})
    """
    return {k: known[min(known, key=lambda on: (abs(math.log(on / k)), on))] for k in wanted} if known else {}
