"""`plan`: search layouts, K and clusters for an objective under constraints, and answer in one sentence."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perfmodel.beliefs.population import Beliefs
from perfmodel.decide.cost import CostTerms
from perfmodel.decide.plan import backends as runners
from perfmodel.decide.plan.candidates import Candidate, Limits, Partial, Target, Task, cut_tasks, merge
from perfmodel.decide.plan.search import run_task
from perfmodel.decide.plan.targets import target_of
from perfmodel.specs.job import Job
from perfmodel.training.space import Bounds, combinations

# Degree combinations that one task enumerates at most: full chunks, and some 30 MB of integers.
COMBINATIONS_PER_TASK = 200_000


@dataclass(frozen=True)
class Request:
    """What is wanted. `objective` is time, cost or energy; limits that are None do not bind."""

    objective: str = "time"
    objective_unpriced: str | None = None  # in place of cost where no price is known; None: that is refused
    deadline_s: float | None = None
    budget_usd: float | None = None
    max_k: int | None = None
    min_efficiency: float | None = None
    keep: int = 10
    bounds: Bounds = field(default_factory=Bounds)
    draws: int = 200
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """A finished search: the jobs it was for, what it kept, and how long it took."""

    jobs: tuple[Job, ...]  # one per cluster
    targets: tuple[Target, ...]
    request: Request
    partial: Partial
    baselines: tuple[Candidate | None, ...]  # of each cluster: the fastest layout at the smallest K that fits
    seconds: float
    interrupted: bool

    def wall_s(self, candidate: Candidate) -> float:
        """Expected wall clock of the whole run, interruptions included [s]; weak: of the smallest K's work."""
        target = self.targets[candidate.target]
        slow = float(CostTerms.of([candidate.k], target.tariff).slow[0])
        return candidate.time_s * target.steps * slow / candidate.work

    def energy_j(self, candidate: Candidate) -> float:
        """Energy of the whole run [J]; weak: of the smallest K's work."""
        return candidate.energy_j * self.targets[candidate.target].steps

    def efficiency(self, candidate: Candidate) -> float:
        """E of a candidate against its cluster's baseline, by the job's regime."""
        base = self.baselines[candidate.target]
        if base is None:
            return math.nan
        ratio = base.time_s / candidate.time_s
        return ratio if self.jobs[0].regime == "weak" else ratio * base.k / candidate.k


def allowed_k(job: Job, max_k: int | None) -> list[int]:
    """K of the job that its cluster and the request allow, ascending."""
    most = min(max_k or math.inf, job.cluster.max_accelerators or math.inf)
    return sorted(k for k in job.k if k <= most)


def search(
    jobs: Sequence[Job],
    request: Request,
    beliefs: Beliefs,
    *,
    runner: runners.Runner = runners.run_here,
    workers: int = 1,
    progress: runners.Progress | None = None,
) -> Found:
    """Search one job on several clusters (`jobs` hold the same job, one per cluster)."""
    started = time.perf_counter()
    kept = [(job, ks) for job in jobs if (ks := allowed_k(job, request.max_k))]
    targets = tuple(target_of(job, ks, beliefs) for job, ks in kept)
    baselines: list[Candidate | None] = [None] * len(targets)
    if request.min_efficiency is not None:
        baselines = [_baseline(target, request) for target in targets]
    limits = [
        _limits(target, job, request, baseline)
        for target, (job, _), baseline in zip(targets, kept, baselines, strict=True)
    ]
    count = sum(len(target.global_batch) for target in targets)
    # Four tasks a worker: the last one to finish is not long alone.
    most = count if workers == 1 else max(1, count // (4 * workers))
    sizes = [
        max(1, min(most, COMBINATIONS_PER_TASK // combinations(target.shape, request.bounds)))
        for target in targets
    ]
    tasks = cut_tasks(targets, request.objective, request.keep, limits, request.bounds, sizes)
    partials, interrupted = runners.collect(runner, targets, tasks, progress)
    merged = merge(partials, request.keep)
    if request.min_efficiency is None:
        baselines = [next((c for c in merged.fastest if c.target == i), None) for i in range(len(targets))]
    return Found(
        jobs=tuple(job for job, _ in kept),
        targets=targets,
        request=request,
        partial=merged,
        baselines=tuple(baselines),
        seconds=time.perf_counter() - started,
        interrupted=interrupted,
    )


def _baseline(target: Target, request: Request) -> Candidate | None:
    """Try K upwards until one has a feasible layout."""
    for k in sorted(target.global_batch):
        found = run_task(target, Task(0, (k,), "time", 1, Limits(), request.bounds))
        if found.fastest:
            return found.fastest[0]
    return None


def _limits(target: Target, job: Job, request: Request, baseline: Candidate | None) -> Limits:
    """Longest step that deadline and efficiency allow at each K."""
    ks = np.array(sorted(target.global_batch))
    longest = np.full(ks.shape, math.inf)
    if request.deadline_s is not None:
        work = np.array([target.work[int(k)] for k in ks])
        longest = request.deadline_s * work / (target.steps * CostTerms.of(ks, target.tariff).slow)
    if request.min_efficiency is not None and baseline is not None:
        share = 1.0 if job.regime == "weak" else baseline.k / ks
        # A rounding error must not refuse the baseline itself, whose efficiency is 1.
        longest = np.minimum(longest, baseline.time_s * share / request.min_efficiency * (1.0 + 1e-12))
    return Limits(
        cost_usd=math.inf if request.budget_usd is None else request.budget_usd,
        time_s_at={int(k): float(limit) for k, limit in zip(ks, longest, strict=True)},
    )
