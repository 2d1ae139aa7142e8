"""Evaluate every layout of the space with the one step model, and keep what an answer needs.

A task is one cluster at some K. Its rows are evaluated in chunks, with sharding and recompute as broadcast axes:
matrix products and collectives that do not depend on them are priced once per row. Memory comes first: a row
that fits with no sharding and recompute level cannot be an answer, and its time is never computed (`pruned`).
Kept are the best layouts by the objective within the limits, and the fastest of each K: at one K cost rises
with time, so these are the front of time against cost.

Results of tasks are merged by a total order (objective, simplicity, cluster, K, place in the enumeration): how
the work is cut and which process finishes first do not matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from perfmodel.beliefs.features import discrepancy
from perfmodel.decide.cost import CostTerms
from perfmodel.decide.energy import PowerModel
from perfmodel.decide.plan.candidates import Candidate, Partial, Target, Task
from perfmodel.physics.energy import power_w
from perfmodel.physics.memory import MEMORY_PARTS, memory, room
from perfmodel.physics.parts import activity
from perfmodel.specs.layout import Recompute
from perfmodel.training.declared import usable_shardings
from perfmodel.training.search import TIE_DIGITS, least_repeated, significant
from perfmodel.training.space import (
    STEPS_ALONE,
    Bounds,
    Rows,
    Told,
    as_layouts,
    enumerate_rows,
    shard_group,
    sharding_allowed,
    sharding_refused,
    simplicity,
    usual_space,
)
from perfmodel.training.step import step

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Rows of a chunk: with two ways of sharding and two recompute levels an array takes 130 kB.
CHUNK_ROWS = 4096
TIE = 10.0 ** (1 - TIE_DIGITS)


def energy_of(parts: Mapping[str, Floats], time_s: Floats, k: npt.ArrayLike, model: PowerModel) -> Floats:
    """Energy of a step [J]: `decide.energy.step_energy` with waiting as the ground level, in fewer operations."""
    watts = {
        name: float(power_w(model.shares[name], rated_w=model.rated_w, idle_w=model.idle_w))
        for name in ("compute", "memory", "communication", "waiting")
    }
    above: Floats = np.zeros(())
    # Small parts first: what does not vary with sharding or recompute is summed before it is broadcast.
    for name, part in sorted(parts.items(), key=lambda item: item[1].size):
        doing = activity(name)
        if doing != "waiting" and (part.ndim or part):
            above = above + part * (watts[doing] - watts["waiting"])
    joules = time_s * (watts["waiting"] + model.host_w) + above
    return np.asarray(joules * (np.asarray(k, dtype=float) * model.pue))


@dataclass(frozen=True)
class Priced:
    """A chunk of layouts after the step model: arrays of shape (rows, shardings, recompute levels)."""

    rows: Rows
    fits: Mask
    time_s: Floats
    cost_usd: Floats
    energy_j: Floats
    memory_bytes: Floats
    work: Floats | float = 1.0

    def objective(self, name: str) -> Floats:
        """The array that `name` minimises."""
        if name == "time":
            return self.time_s if isinstance(self.work, float) else np.asarray(self.time_s / self.work)
        return self.cost_usd if name == "cost" else self.energy_j


@dataclass(frozen=True)
class Picked:
    """Layouts that may be an answer, as arrays of one length."""

    rows: Rows
    sharding: npt.NDArray[np.intp]
    recompute: npt.NDArray[np.intp]
    objective: Floats  # rounded: see `significant`
    simplicity: Floats
    time_s: Floats
    cost_usd: Floats
    energy_j: Floats
    memory_bytes: Floats

    @classmethod
    def joined(cls, chunks: Sequence[Picked]) -> Picked:
        """Many as one."""
        rows = {f.name: np.concatenate([getattr(c.rows, f.name) for c in chunks]) for f in fields(Rows)}
        names = [f.name for f in fields(cls) if f.name != "rows"]
        columns = {name: np.concatenate([getattr(c, name) for c in chunks]) for name in names}
        return cls(rows=Rows(**rows), **columns)

    def order(self) -> npt.NDArray[np.intp]:
        """Positions from best to worst: the total order of `Candidate.key`."""
        place = (self.recompute, self.rows.position, self.sharding, self.rows.k)
        return np.lexsort((*place, self.simplicity, self.objective))


def run_task(target: Target, task: Task) -> Partial:
    """Evaluate every layout of one cluster at the K of the task; the widened bounds where nothing else fits."""
    found = _evaluated(target, task, task.ks, task.bounds)
    without = tuple(sorted(set(task.ks) - {c.k for c in found.fastest}))
    cut = target.shape.cut()
    if not without or not cut.is_transformer:
        return found
    wider = _evaluated(replace(target, shape=cut), task, without, task.bounds.widened())
    if not wider.fastest:
        return found
    reached = {c.k for c in wider.fastest}
    return Partial(
        found.evaluated + wider.evaluated,
        found.pruned + wider.pruned,
        found.feasible + wider.feasible,
        found.refused + wider.refused,
        tuple(sorted((*found.best, *wider.best), key=lambda c: c.key)[: task.keep]),
        (*found.fastest, *wider.fastest),
        tuple(c for c in found.smallest if c.k not in reached),
    )


def _evaluated(target: Target, task: Task, ks: Sequence[int], bounds: Bounds) -> Partial:
    space = usual_space(target.shape, bounds, max(ks))
    made = enumerate_rows(target.shape, ks, [target.global_batch[k] for k in ks], bounds, space=space)
    found = _Found(target, task, ks, space.sharding, space.recompute, made.refused)
    rows = made.rows
    # Pipelines know fewer ways of sharding: apart, neither kind of row pays for the other's.
    for group in (np.flatnonzero(rows.pp == 1), np.flatnonzero(rows.pp > 1)):
        for start in range(0, group.size, CHUNK_ROWS):
            found.add(rows.take(group[start : start + CHUNK_ROWS]))
    return found.partial()


class _Found:
    """Collects one task's results chunk by chunk; candidates become objects only at the end."""

    def __init__(
        self,
        target: Target,
        task: Task,
        ks: Sequence[int],
        ways: tuple[str, ...],
        levels: tuple[Recompute, ...],
        refused: Counter[str],
    ) -> None:
        self.target, self.task, self.ways, self.levels, self.refused = target, task, ways, levels, refused
        self.shardings = ways  # those of the chunk at hand
        self.told = Told(target.shape.node, target.declared, sequence_parallel=target.sequence_parallel)
        self.room = float(room(target.machine, target.headroom))
        self.evaluated = self.pruned = self.feasible = 0
        self.best: list[Picked] = []
        self.fastest: list[Picked] = []
        self.smallest: list[Picked] = []
        self.edge = math.inf  # the worst of the best so far: nothing beyond it can enter
        self.ks = np.array(sorted(ks))
        self.terms = CostTerms.of(self.ks, target.tariff)
        self.limit_s = np.array([task.limits.time_s_at.get(int(k), math.inf) for k in self.ks])
        work = np.array([target.work[int(k)] for k in self.ks])
        self.work = work if np.any(work != 1.0) else None
        self.coefficients = target.coefficients_at(self.ks)

    def add(self, rows: Rows) -> None:
        """Price one chunk of rows."""
        target, count = self.target, len(self.levels)
        masks = {name: self._allowed(rows, name) for name in self.ways}
        self.shardings = tuple(name for name, mask in masks.items() if mask.any())
        if not self.shardings:
            return
        allowed = np.stack([masks[name] for name in self.shardings], axis=1)
        at = as_layouts(rows, self.shardings, self.levels, self.told)
        need = memory(target.ops, target.machine, at)
        shape = (len(rows), len(self.shardings), count)
        total = np.broadcast_to(need.total, shape)
        fits = (total <= self.room) & allowed[:, :, None]
        self._refuse(need.parts, allowed[:, :, None] & ~fits)
        alive = np.asarray(fits.any(axis=(1, 2)))
        if not alive.all():
            self.pruned += int(allowed[~alive].sum()) * count
            self._keep_smallest(rows, np.where(allowed[:, :, None], total, np.inf), alive)
            index = np.flatnonzero(alive)
            if index.size == 0:
                return
            rows, total, fits, allowed = rows.take(index), total[index], fits[index], allowed[index]
            at = as_layouts(rows, self.shardings, self.levels, self.told)
        self.evaluated += int(allowed.sum()) * count
        self.feasible += int(fits.sum())
        fits = fits & least_repeated(self.levels, fits)
        where = rows.point[:, None, None]
        result = step(target.ops, target.machine, at, self.coefficients(where))
        time_s = np.asarray(np.broadcast_to(result.time_s, fits.shape))
        joules = np.asarray(np.broadcast_to(energy_of(result.parts, time_s, at.k, target.power), fits.shape))
        if target.offsets is not None:
            scale = np.exp(np.tensordot(target.offsets, discrepancy(target.ops, at), axes=1))
            time_s, joules = time_s * scale, joules * scale
        if target.calibrated:
            scale = np.array([target.calibrated[int(k)] for k in self.ks])[where]
            time_s, joules = time_s * scale, joules * scale
        cost = self.terms.take(where).usd(time_s * target.steps)
        work: Floats | float = 1.0
        if self.work is not None:
            work = self.work[where]
            cost, joules = cost / work, joules / work
        priced = Priced(rows, fits, time_s, cost, joules, total, work)
        self._keep_fastest(priced)
        self._keep_best(priced, self.limit_s[where])

    def _allowed(self, rows: Rows, sharding: str) -> Mask:
        """Rows that may use a way of sharding; those that frameworks refuse are counted."""
        exists = sharding_allowed(rows, sharding, self.told.node)
        refused, reason = sharding_refused(rows, sharding)
        if sharding not in usable_shardings((sharding,), self.target.declared):
            refused, reason = np.ones_like(exists), STEPS_ALONE
        if reason:
            self.refused[reason] += int((exists & refused).sum()) * len(self.levels)
        return np.asarray(exists & ~refused)

    def _keep_fastest(self, priced: Priced) -> None:
        """The fastest of each K, limits aside."""
        time_s = np.where(priced.fits, priced.time_s, np.inf)
        edge = least_of_each_k(priced.rows.k, time_s.min(axis=(1, 2))) * (1.0 + TIE)
        mask = (time_s <= edge[:, None, None]) & priced.fits
        self.fastest.append(self._pick(priced, mask, priced.time_s))

    def _keep_best(self, priced: Priced, limit_s: Floats) -> None:
        """The best by the objective among those within the limits."""
        objective = priced.objective(self.task.objective)
        ok = priced.fits & (priced.time_s <= limit_s) & (objective <= self.edge)
        if math.isfinite(self.task.limits.cost_usd):  # an unknown price meets no budget
            ok &= priced.cost_usd <= self.task.limits.cost_usd
        if not ok.any():
            return
        values = objective[ok]
        keep = self.task.keep
        if values.size > keep:
            last = float(np.partition(values, keep - 1)[keep - 1])
            self.edge = min(self.edge, last * (1.0 + TIE))
        self.best.append(self._pick(priced, ok & (objective <= self.edge), objective))

    def _keep_smallest(self, rows: Rows, total: Floats, alive: Mask) -> None:
        """The least memory of each K at which nothing fits in this chunk."""
        dead = least_of_each_k(rows.k, (~alive).astype(float)) > 0
        if not dead.any():
            return
        least = least_of_each_k(rows.k, total.min(axis=(1, 2)))
        nothing = np.full(total.shape, np.nan)
        priced = Priced(rows, total >= 0, nothing, nothing, nothing, total)
        self.smallest.append(self._pick(priced, (total <= least[:, None, None]) & dead[:, None, None], total))

    def _pick(self, priced: Priced, mask: Mask, objective: Floats) -> Picked:
        place = np.nonzero(mask)
        i, s, r = place
        rows = priced.rows.take(i)
        order = np.array([self.ways.index(name) for name in self.shardings])
        return Picked(
            rows=rows,
            sharding=order[s],
            recompute=r,
            objective=significant(objective[place]),
            simplicity=simplicity(rows) + order[s] + r / len(self.levels),
            time_s=priced.time_s[place],
            cost_usd=priced.cost_usd[place],
            energy_j=priced.energy_j[place],
            memory_bytes=priced.memory_bytes[place],
        )

    def _refuse(self, parts: Mapping[str, Floats], bad: Mask) -> None:
        """Count what does not fit by its largest part."""
        place = np.nonzero(bad)
        if place[0].size == 0:
            return
        stacked = np.stack([np.broadcast_to(parts[name], bad.shape)[place] for name in MEMORY_PARTS])
        counts = np.bincount(np.argmax(stacked, axis=0), minlength=len(MEMORY_PARTS))
        for name, number in zip(MEMORY_PARTS, counts, strict=True):
            if number:
                self.refused[f"out of memory, mostly {name}"] += int(number)

    def partial(self) -> Partial:
        """What this task found."""
        fastest = self._candidates(self.fastest, per_k=True)
        reached = {candidate.k for candidate in fastest}
        return Partial(
            self.evaluated,
            self.pruned,
            self.feasible,
            self.refused,
            self._candidates(self.best, per_k=False),
            fastest,
            tuple(c for c in self._candidates(self.smallest, per_k=True) if c.k not in reached),
        )

    def _candidates(self, chunks: list[Picked], *, per_k: bool) -> tuple[Candidate, ...]:
        """Candidates in their order: the first of each K, or the first `keep` of all."""
        if not chunks:
            return ()
        found = Picked.joined(chunks)
        order = found.order()
        if per_k:
            _, first = np.unique(found.rows.k[order], return_index=True)
            order = order[first]
        return tuple(self._candidate(found, int(i)) for i in order[: None if per_k else self.task.keep])

    def _candidate(self, found: Picked, i: int) -> Candidate:
        rows = found.rows.take(np.array([i]))
        sharding = self.ways[int(found.sharding[i])]
        names = ("k", "dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "accumulation")
        key = (
            float(found.objective[i]),
            float(found.simplicity[i]),
            float(self.task.target),
            float(rows.k[0]),
            float(found.sharding[i]),
            float(rows.position[0]),
            float(found.recompute[i]),
        )
        return Candidate(
            key=key,
            target=self.task.target,
            **{name: int(getattr(rows, name)[0]) for name in names},
            sharding=sharding,
            shard_group=int(shard_group(rows, sharding, self.target.shape.node)[0]),
            recompute=self.levels[int(found.recompute[i])],
            time_s=float(found.time_s[i]),
            cost_usd=float(found.cost_usd[i]),
            energy_j=float(found.energy_j[i]),
            memory_bytes=float(found.memory_bytes[i]),
            work=self.target.work[int(rows.k[0])],
        )


def least_of_each_k(k: npt.NDArray[np.int64], values: Floats) -> Floats:
    """For each row the least value among the rows of its K; rows of one K lie together.

    >>> least_of_each_k(np.array([8, 8, 16]), np.array([3.0, 2.0, 5.0])).tolist()
    [2.0, 2.0, 5.0]
    """
    starts = np.flatnonzero(np.concatenate([[True], k[1:] != k[:-1]]))
    return np.repeat(np.minimum.reduceat(values, starts), np.diff(np.append(starts, k.size)))
