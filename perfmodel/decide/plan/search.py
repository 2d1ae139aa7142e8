"""Evaluate every layout of the space with the one step model, and keep what an answer needs.

A task is one cluster at some K. Its rows are evaluated in chunks, with recompute as a broadcast axis, so that
matrix products and collectives are priced once per row. Memory comes first: a row that fits at no recompute
level cannot be an answer, and its time is never computed (`pruned`). Kept are the best layouts by the objective
within the limits, and the fastest of each K: at one K cost rises with time, so these are the front of time
against cost.

Results of tasks are merged by a total order (objective, simplicity, cluster, K, place in the enumeration): how
the work is cut and which process finishes first do not matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from perfmodel.decide.cost import CostTerms
from perfmodel.decide.energy import ACTIVITY, PowerModel
from perfmodel.decide.plan.space import (
    Bounds,
    Rows,
    Shape,
    enumerate_rows,
    shard_group,
    sharding_allowed,
    simplicity,
)
from perfmodel.decide.pricing import Tariff
from perfmodel.models.energy import power_w
from perfmodel.predict.coefficients import Coefficients
from perfmodel.predict.features import discrepancy
from perfmodel.predict.layouts import RECOMPUTE_SHARE, SHARDING_CODES, Layouts, layouts
from perfmodel.predict.machine import Machine
from perfmodel.predict.memory import MEMORY_PARTS, memory
from perfmodel.predict.step import step
from perfmodel.workloads.operations import Operations

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# With three recompute levels an array of a chunk takes 100 kB: the working set stays in a core's cache.
CHUNK_ROWS = 4096
# Objectives that agree to this many digits are a tie, which simplicity breaks.
TIE_DIGITS = 10
TIE = 10.0 ** (1 - TIE_DIGITS)
OBJECTIVES = ("time", "cost", "energy")


@dataclass(frozen=True)
class Target:
    """One cluster with everything the search needs to price a job on it. Plain data: it travels to workers."""

    name: str
    ops: Operations
    machine: Machine
    coefficients: Mapping[str, Coefficients]  # by way of sharding: beliefs may differ by it
    shape: Shape
    tariff: Tariff
    power: PowerModel
    global_batch: Mapping[int, int]  # K -> samples of a step
    work: Mapping[int, float]  # K -> work of a step against the smallest K: 1, or growing in the weak regime
    steps: float = 1.0
    offsets: Floats | None = None  # calibrated slopes of `predict.features.discrepancy`


@dataclass(frozen=True)
class Limits:
    """Longest step and dearest run that are allowed, and the longest step at each K (efficiency)."""

    time_s: float = math.inf
    cost_usd: float = math.inf
    time_s_at: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One cluster at some K."""

    target: int
    ks: tuple[int, ...]
    objective: str
    keep: int
    limits: Limits
    bounds: Bounds


@dataclass(frozen=True)
class Candidate:
    """One layout: time of a step, memory per device, and, per unit of work, energy of a step and cost of the run."""

    key: tuple[float, ...] = field(repr=False)  # objective, simplicity, cluster, K, place
    target: int
    k: int
    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    vpp: int
    micro_batch: int
    accumulation: int
    sharding: str
    shard_group: int
    recompute: str
    time_s: float
    cost_usd: float
    energy_j: float
    memory_bytes: float
    work: float

    def objective(self, name: str) -> float:
        """What `name` minimises."""
        return {"time": self.time_s / self.work, "cost": self.cost_usd, "energy": self.energy_j}[name]

    def layout(self) -> dict[str, int | str]:
        """The layout as a job file would say it."""
        names = ("dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "accumulation", "sharding", "recompute")
        found: dict[str, int | str] = {name: getattr(self, name) for name in names}
        if self.sharding == "hsdp":
            found["shard_group"] = self.shard_group
        return found


@dataclass(frozen=True)
class Partial:
    """What one or many tasks found."""

    evaluated: int = 0
    pruned: int = 0
    feasible: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    best: tuple[Candidate, ...] = ()  # by the objective, within the limits
    fastest: tuple[Candidate, ...] = ()  # of each cluster and K, limits aside
    smallest: tuple[Candidate, ...] = ()  # least memory of each cluster and K where nothing fits


@dataclass(frozen=True)
class Priced:
    """A chunk of layouts after the step model: arrays of shape (rows, recompute levels)."""

    rows: Rows
    sharding: str
    fits: Mask
    time_s: Floats
    cost_usd: Floats
    energy_j: Floats
    memory_bytes: Floats
    work: Floats | float = 1.0

    def objective(self, name: str) -> Floats:
        """The array that `name` minimises."""
        if name == "time":
            return np.asarray(self.time_s / self.work)
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


def as_layouts(rows: Rows, sharding: str, recompute: Sequence[str], node: int) -> Layouts:
    """Rows as the step model's struct, recompute along a trailing axis."""
    names = ("k", "global_batch", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "accumulation")
    columns = {name: getattr(rows, name).astype(float)[:, None] for name in names}
    return layouts(
        columns.pop("k"),
        accelerators_per_node=float(node),
        sharding=float(SHARDING_CODES[sharding]),
        shard_group=shard_group(rows, sharding, node).astype(float)[:, None],
        recompute=np.array([RECOMPUTE_SHARE[level] for level in recompute]),
        **columns,
    )


def energy_of(parts: Mapping[str, Floats], time_s: Floats, k: npt.ArrayLike, model: PowerModel) -> Floats:
    """Energy of a step [J]: `decide.energy.step_energy` with waiting as the ground level, in fewer operations."""
    watts = {
        name: float(power_w(model.shares[name], rated_w=model.rated_w, idle_w=model.idle_w))
        for name in ("compute", "memory", "communication", "waiting")
    }
    joules = time_s * (watts["waiting"] + model.host_w)
    for name, part in parts.items():
        activity = ACTIVITY.get(name, "waiting")
        if activity != "waiting" and (part.ndim or part):
            joules = joules + part * (watts[activity] - watts["waiting"])
    return np.asarray(joules * (np.asarray(k, dtype=float) * model.pue))


def run_task(target: Target, task: Task) -> Partial:
    """Evaluate every layout of one cluster at the K of the task."""
    bounds = task.bounds
    levels = bounds.recompute if target.shape.is_transformer else bounds.recompute[:1]
    rows, refused = enumerate_rows(target.shape, {k: target.global_batch[k] for k in task.ks}, bounds)
    found = _Found(target, task, levels, refused)
    for sharding in bounds.shardings:
        allowed = np.flatnonzero(sharding_allowed(rows, sharding, target.shape.node))
        for start in range(0, allowed.size, CHUNK_ROWS):
            found.add(rows.take(allowed[start : start + CHUNK_ROWS]), sharding)
    return found.partial()


class _Found:
    """Collects one task's results chunk by chunk; candidates become objects only at the end."""

    def __init__(self, target: Target, task: Task, levels: tuple[str, ...], refused: Counter[str]) -> None:
        self.target, self.task, self.levels, self.refused = target, task, levels, refused
        self.evaluated = self.pruned = self.feasible = 0
        self.best: list[Picked] = []
        self.fastest: list[Picked] = []
        self.smallest: list[Picked] = []
        self.edge = math.inf  # the worst of the best so far: nothing beyond it can enter
        limits = task.limits
        self.ks = np.array(sorted(task.ks))
        self.terms = CostTerms.of(self.ks, target.tariff)
        work = np.array([target.work[int(k)] for k in self.ks])
        self.work = work if np.any(work != 1.0) else None
        self.limit_s = np.array([min(limits.time_s, limits.time_s_at.get(int(k), math.inf)) for k in self.ks])

    def add(self, rows: Rows, sharding: str) -> None:
        """Price one chunk of rows under one way of sharding."""
        target, count = self.target, len(self.levels)
        at = as_layouts(rows, sharding, self.levels, target.shape.node)
        need = memory(target.ops, target.machine, at)
        total = np.broadcast_to(need.total, (len(rows), count))
        fits = total <= target.machine.memory_bytes
        self._refuse(need.parts, fits)
        alive = np.asarray(fits.any(axis=1))
        self.pruned += int((~alive).sum()) * count
        if not alive.all():
            self._keep_smallest(rows, sharding, total, alive)
            index = np.flatnonzero(alive)
            if index.size == 0:
                return
            rows, total, fits = rows.take(index), total[index], fits[index]
            at = as_layouts(rows, sharding, self.levels, target.shape.node)
        self.evaluated += fits.size
        self.feasible += int(fits.sum())
        result = step(target.ops, target.machine, at, target.coefficients[sharding])
        time_s = np.asarray(np.broadcast_to(result.time_s, fits.shape))
        joules = energy_of(result.parts, time_s, at.k, target.power)
        if target.offsets is not None:
            scale = np.exp(np.tensordot(target.offsets, discrepancy(target.ops, at), axes=1))
            time_s, joules = time_s * scale, joules * scale
        where = np.searchsorted(self.ks, rows.k)
        cost = self.terms.take(where[:, None]).usd(time_s * target.steps)
        work: Floats | float = 1.0
        if self.work is not None:
            work = self.work[where][:, None]
            cost, joules = cost / work, joules / work
        priced = Priced(rows, sharding, fits, time_s, cost, joules, total, work)
        self._keep_fastest(priced)
        self._keep_best(priced, self.limit_s[where][:, None])

    def _keep_fastest(self, priced: Priced) -> None:
        """The fastest of each K, limits aside."""
        time_s = np.where(priced.fits, priced.time_s, np.inf)
        k = priced.rows.k
        starts = np.flatnonzero(np.concatenate([[True], k[1:] != k[:-1]]))
        least = np.minimum.reduceat(time_s.min(axis=1), starts)
        edge = np.repeat(least * (1.0 + TIE), np.diff(np.append(starts, k.size)))[:, None]
        self.fastest.append(self._pick(priced, (time_s <= edge) & np.isfinite(time_s), priced.time_s))

    def _keep_best(self, priced: Priced, limit_s: Floats) -> None:
        """The best by the objective among those within the limits."""
        objective = priced.objective(self.task.objective)
        ok = priced.fits & (priced.time_s <= limit_s) & (objective <= self.edge)
        if math.isfinite(self.task.limits.cost_usd):  # an unknown price meets no budget
            ok &= priced.cost_usd <= self.task.limits.cost_usd
        values = np.where(ok, objective, np.inf)
        flat = values.ravel()
        keep = self.task.keep
        if flat.size > keep:
            last = float(np.partition(flat, keep - 1)[keep - 1])
            self.edge = min(self.edge, last * (1.0 + TIE))
        self.best.append(self._pick(priced, ok & (values <= self.edge), objective))

    def _keep_smallest(self, rows: Rows, sharding: str, total: Floats, alive: Mask) -> None:
        """The least memory of each K at which nothing fits in this chunk."""
        starts = np.flatnonzero(np.concatenate([[True], rows.k[1:] != rows.k[:-1]]))
        sizes = np.diff(np.append(starts, rows.k.size))
        dead = ~np.repeat(np.logical_or.reduceat(alive, starts), sizes)
        if not dead.any():
            return
        edge = np.repeat(np.minimum.reduceat(total.min(axis=1), starts), sizes)[:, None]
        nothing = np.full(total.shape, np.nan)
        priced = Priced(rows, sharding, total >= 0, nothing, nothing, nothing, total)
        self.smallest.append(self._pick(priced, (total <= edge) & dead[:, None], total))

    def _pick(self, priced: Priced, mask: Mask, objective: Floats) -> Picked:
        i, r = np.nonzero(mask)
        rows = priced.rows.take(i)
        return Picked(
            rows=rows,
            sharding=np.full(i.shape, self.task.bounds.shardings.index(priced.sharding)),
            recompute=r,
            objective=significant(objective[i, r]),
            simplicity=simplicity(rows, priced.sharding) + r / len(self.levels),
            time_s=priced.time_s[i, r],
            cost_usd=priced.cost_usd[i, r],
            energy_j=priced.energy_j[i, r],
            memory_bytes=priced.memory_bytes[i, r],
        )

    def _refuse(self, parts: Mapping[str, Floats], fits: Mask) -> None:
        """Count what does not fit by its largest part."""
        if fits.all():
            return
        bad = np.nonzero(~fits)
        stacked = np.stack([np.broadcast_to(parts[name], fits.shape)[bad] for name in MEMORY_PARTS])
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
            self._candidates(self.best, per_k=False)[: self.task.keep],
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
        sharding = self.task.bounds.shardings[int(found.sharding[i])]
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


def significant(values: Floats) -> Floats:
    """`values` to `TIE_DIGITS` significant digits, so that rounding errors do not order layouts.

    >>> significant(np.array([1.00000000001, 250.0])).tolist()
    [1.0, 250.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(values))) - (TIE_DIGITS - 1))
        return np.asarray(np.where(np.isfinite(unit) & (unit > 0), np.round(values / unit) * unit, values))


def _key(candidate: Candidate) -> tuple[float, ...]:
    return candidate.key


def merge(partials: Iterable[Partial], keep: int) -> Partial:
    """All partial results as one; the order in which they come does not matter."""
    parts = list(partials)
    refused: Counter[str] = Counter()
    for part in parts:
        refused.update(part.refused)
    gathered: dict[str, list[Candidate]] = {
        name: sorted((c for part in parts for c in getattr(part, name)), key=_key)
        for name in ("best", "fastest", "smallest")
    }
    return Partial(
        evaluated=sum(part.evaluated for part in parts),
        pruned=sum(part.pruned for part in parts),
        feasible=sum(part.feasible for part in parts),
        refused=Counter(dict(sorted(refused.items()))),
        best=tuple(gathered["best"][:keep]),
        fastest=tuple(sorted(gathered["fastest"], key=lambda c: (c.target, c.k))),
        smallest=tuple(sorted(gathered["smallest"], key=lambda c: (c.target, c.k))),
    )


def cut_tasks(
    targets: Sequence[Target],
    objective: str,
    keep: int,
    limits: Sequence[Limits],
    bounds: Bounds,
    ks_per_task: int,
) -> list[Task]:
    """One task per cluster and `ks_per_task` values of K."""
    tasks = []
    for index, target in enumerate(targets):
        ks = sorted(target.global_batch)
        for start in range(0, len(ks), ks_per_task):
            group = tuple(ks[start : start + ks_per_task])
            tasks.append(Task(index, group, objective, keep, limits[index], bounds))
    return tasks
