"""What a search is asked, what it keeps, and how partial answers become one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from perfmodel.decide.energy import PowerModel
from perfmodel.decide.pricing import Tariff
from perfmodel.physics.coefficients import Coefficients
from perfmodel.physics.machine import Machine
from perfmodel.physics.memory import HEADROOM
from perfmodel.physics.operations import Operations
from perfmodel.specs.layout import Recompute
from perfmodel.training.rules import Shape
from perfmodel.training.space import Bounds

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """One cluster with everything the search needs to price a job on it. Plain data: it travels to workers."""

    name: str
    ops: Operations
    machine: Machine
    coefficients: Coefficients
    shape: Shape
    tariff: Tariff
    power: PowerModel
    global_batch: Mapping[int, int]  # K -> samples of a step
    work: Mapping[int, float]  # K -> work of a step against the smallest K: 1, or growing in the weak regime
    steps: float = 1.0
    offsets: Floats | None = None  # calibrated slopes of `beliefs.features.discrepancy`
    declared: Mapping[str, float] = field(default_factory=dict)  # values of `physics.layouts.DECLARED`
    calibrated: Mapping[int, float] = field(default_factory=dict)  # K -> what measured steps add to the above
    jitter: Mapping[int, float] = field(default_factory=dict)  # K -> spread, where its family differs with K
    headroom: float = HEADROOM  # share of memory that stays free
    sequence_parallel: float = 1.0  # 1 where norms are cut by tensor parallelism as well

    def coefficients_at(
        self, ks: npt.NDArray[np.int64 | np.float64]
    ) -> Callable[[npt.NDArray[np.int64]], Coefficients]:
        """The coefficients of layouts, given the positions of their K in `ks`."""
        if not self.jitter:
            return lambda where: self.coefficients
        spread = np.array([self.jitter[int(k)] for k in ks])
        return lambda where: replace(self.coefficients, jitter=spread[where])


@dataclass(frozen=True)
class Limits:
    """Dearest run that is allowed, and the longest step at each K (deadline, efficiency)."""

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
    recompute: Recompute
    time_s: float
    cost_usd: float
    energy_j: float
    memory_bytes: float
    work: float

    def objective(self, name: str) -> float:
        """What `name` minimises."""
        return {"time": self.time_s / self.work, "cost": self.cost_usd, "energy": self.energy_j}[name]

    def layout(self) -> dict[str, int | float | str]:
        """The layout as a job file would say it."""
        names = ("dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "accumulation", "sharding", "recompute")
        found: dict[str, int | float | str] = {name: getattr(self, name) for name in names}
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


def merge(partials: Iterable[Partial], keep: int) -> Partial:
    """All partial results as one; the order in which they come does not matter."""
    parts = list(partials)
    refused: Counter[str] = Counter()
    for part in parts:
        refused.update(part.refused)
    best = sorted((c for part in parts for c in part.best), key=lambda c: c.key)
    return Partial(
        evaluated=sum(part.evaluated for part in parts),
        pruned=sum(part.pruned for part in parts),
        feasible=sum(part.feasible for part in parts),
        refused=Counter(dict(sorted(refused.items()))),
        best=tuple(best[:keep]),
        fastest=tuple(sorted((c for p in parts for c in p.fastest), key=lambda c: (c.target, c.k))),
        smallest=tuple(sorted((c for p in parts for c in p.smallest), key=lambda c: (c.target, c.k))),
    )


def cut_tasks(
    targets: Sequence[Target],
    objective: str,
    keep: int,
    limits: Sequence[Limits],
    bounds: Bounds,
    sizes: Sequence[int],
) -> list[Task]:
    """Tasks of at most `sizes[i]` values of K for each target `i`."""
    tasks = []
    for index, (target, size) in enumerate(zip(targets, sizes, strict=True)):
        ks = sorted(target.global_batch)
        for start in range(0, len(ks), size):
            group = tuple(ks[start : start + size])
            tasks.append(Task(index, group, objective, keep, limits[index], bounds))
    return tasks
