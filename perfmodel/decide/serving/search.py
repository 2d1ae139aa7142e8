"""Search of a service's options: layouts, number formats, limits of the engine and hardware, for what its users expect.

Every configuration at every number of requests in flight is one entry of arrays that go through the closed loop of
`physics.serving` in blocks that fit a cache. The means of that pass choose whom to look at closely; the knee of those
is found in an open loop, by the tails that the objectives name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.pareto import front
from perfmodel.decide.serving.crossing import crossing
from perfmodel.decide.serving.curve import latencies, saturation
from perfmodel.decide.serving.fleet import over_day, replicas_for, spares_of
from perfmodel.decide.serving.money import MILLION, bill
from perfmodel.physics.serving import CLOSED, Load, serving_answer
from perfmodel.physics.serving_step import Deployment, cache_sequences
from perfmodel.results.envelope import Result
from perfmodel.serving.beliefs import ServingBeliefs, shipped_beliefs
from perfmodel.serving.precision import FORMATS, usual_precision
from perfmodel.serving.setup import Service, layouts_of, service_of
from perfmodel.specs.serving import STATISTICS, ServedLayout, ServingJob

Array = NDArray[np.float64]

_BLOCK: Final = 4096  # entries at once: what a second-level cache holds
_BATCHES: Final = (32, 64, 128, 256, 512, 1024)
_BUDGETS: Final = (2048, 4096, 8192, 16384)  # tokens of a step
_FLIGHT: Final = tuple(sorted({round(float(c)) for c in np.geomspace(1, 2048, 28)}))
_CLOSELY: Final = 6  # configurations of a group whose tails are computed
_SHARES: Final = np.array([0.05, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97])
_TAIL: Final = {"ttft": 2.0, "tpot": 1.2, "e2e": 1.5}  # p99 over mean, until the tails are computed
_MOST_PARETO: Final = 24
_SPLITTING: Final = (
    "vllm",
    "sglang",
    "tensorrt-llm",
)  # engines whose replicas hand caches over, by their documentation


@dataclass(frozen=True)
class Wanted:
    """What a search is for, beside the job's own words."""

    keep: int = 10
    most_accelerators: int | None = None
    budget_usd_per_s: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class _Group:
    """All configurations of one cluster and number formats."""

    service: Service
    cache_precision: str
    layouts: tuple[ServedLayout, ...]
    batches: tuple[float, ...]
    budgets: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.layouts), len(self.batches), len(self.budgets), len(_FLIGHT)

    def deployment(self, at: NDArray[np.intp]) -> tuple[Deployment, Array]:
        """Deployments at flat indices, and their requests in flight."""
        layout, batch, budget, flight = np.unravel_index(at, self.shape)
        degrees = np.array([[one.tp, one.pp, one.dp, one.ep] for one in self.layouts], float)[layout].T
        most = np.array(self.batches)[batch]
        tokens = np.array(self.budgets)[budget]
        if self.service.job.is_one_pass:  # a step is a batch
            tokens = most * self.service.job.serving.input_tokens.mean
        found = self.service.deployment(
            [ServedLayout()],
            tensor=degrees[0],
            pipeline=degrees[1],
            attention_replicas=degrees[2],
            expert_ranks=degrees[3],
            max_sequences=most,
            chunk_tokens=tokens,
            cache_bytes=_cache_bytes(self.cache_precision),
        )
        return found, np.array(_FLIGHT, float)[flight]


@dataclass
class _Tally:
    evaluated: int = 0
    memory: int = 0
    feasible: int = 0
    points: list[tuple[float, float, dict[str, object]]] = field(default_factory=list)


def _cache_bytes(name: str) -> float:
    return 1.0 if name in ("fp8", "int8") else 2.0


def plan_serving(
    jobs: Sequence[ServingJob], wanted: Wanted, beliefs: ServingBeliefs | None = None
) -> tuple[Result, bool]:
    """The cheapest services, one job a cluster, and whether any keeps what is asked."""
    from perfmodel.decide.serving.search_pools import pooled_candidates

    known = beliefs or shipped_beliefs()
    job = jobs[0]
    limits = job.serving.slo.limits if job.serving.slo is not None else ()
    if job.serving.load is not None and job.serving.load.kind == "offline":
        limits = ()
    started = time.perf_counter()
    tally, ranked = _Tally(), []
    groups = [group for one in jobs for group in _groups(one, known)]
    searching = 0.0
    for group in groups:
        begun = time.perf_counter()
        worth = _searched(group, limits, tally)
        searching += time.perf_counter() - begun
        ranked += _closely(group, worth, limits, wanted)
    for service in [one for job_of in jobs for one in _services(job_of, known) if _may_split(job_of)]:
        found, points, rates = pooled_candidates(service, limits, wanted)
        tally.evaluated += rates.evaluated
        tally.feasible += rates.feasible
        tally.points += points
        ranked += found
    best = sorted(ranked, key=_order)[: wanted.keep]
    for place, item in enumerate(best, start=1):
        item["rank"] = place
    refused = {"the weights and one request do not fit the memory": tally.memory} if tally.memory else {}
    if tally.feasible < tally.evaluated and limits:
        refused["means beyond the slo"] = tally.evaluated - tally.feasible
    result = {
        "evaluated": tally.evaluated,
        "feasible": tally.feasible,
        "refused": refused,
        "seconds": time.perf_counter() - started,
        "configurations_per_s": tally.evaluated / max(searching, 1e-9),
        "demand_per_s": job.serving.demand,
        "budget_usd_per_h": None if wanted.budget_usd_per_s is None else wanted.budget_usd_per_s * 3600.0,
        "slo": [{"quantity": q, "statistic": s, "limit_s": limit} for q, s, limit in limits],
        "candidates": best,
        "pareto": _front(tally),
        "notes": _notes(jobs, known, limits),
    }
    inputs = job.model_dump(mode="json", exclude_none=True) | {"clusters": [one.cluster.name for one in jobs]}
    return Result("serving-plan", inputs, result, wanted.seed), bool(best)


def _services(job: ServingJob, known: ServingBeliefs) -> list[Service]:
    """The job in each number format of weights and of keys and values that it leaves open."""
    said, device = job.serving, job.cluster.node.accelerator
    usual = usual_precision(device)
    precisions = (
        [said.precision]
        if said.precision
        else [usual, *(p for p in ("fp8", "fp4") if p in device.peak), "int4"]
    )
    caches = [said.kv_precision] if said.kv_precision else ["bf16", "fp8"]
    if job.is_one_pass:  # nothing is kept, and weights that are only stored in fewer bits gain nothing
        precisions, caches = [one for one in precisions if one != "int4" or said.precision], ["bf16"]
    return [
        service_of(
            job.model_copy(update={"serving": said.model_copy(update={"kv_precision": cache})}),
            known,
            precision,
        )
        for precision in precisions
        if precision in FORMATS
        for cache in caches
    ]


def _may_split(job: ServingJob) -> bool:
    """Whether prefill on replicas of its own is worth a look: the job leaves it open or asks for it."""
    said = job.serving
    offline = said.load is not None and said.load.kind == "offline"
    able = said.engine is None or said.engine in _SPLITTING
    return said.prefill == "disaggregated" or (
        said.prefill is None and able and not offline and said.output_tokens.mean > 1.0
    )


def _groups(job: ServingJob, known: ServingBeliefs) -> list[_Group]:
    said = job.serving
    if said.prefill == "disaggregated":
        return []
    batches = (float(said.max_batch),) if said.max_batch else tuple(map(float, _BATCHES))
    budgets = (float(said.max_batched_tokens),) if said.max_batched_tokens else tuple(map(float, _BUDGETS))
    if job.is_one_pass:
        budgets = budgets[:1]
    return [
        _Group(service, str(service.job.serving.kv_precision), tuple(layouts_of(service)), batches, budgets)
        for service in _services(job, known)
    ]


def _asked(service: Service, flight: Array) -> Load:
    return service.load(CLOSED, concurrency=flight)


def _searched(group: _Group, limits: Sequence[tuple[str, str, float]], tally: _Tally) -> Array:
    """Requests a second of a replica within the objectives by means, of every layout, batch and budget."""
    service, shape = group.service, group.shape
    said = service.job.serving
    first = np.arange(shape[0]) * int(np.prod(shape[1:]))
    at, _ = group.deployment(first)
    fitting = cache_sequences(
        service.shape,
        service.machine,
        at,
        said.input_tokens.mean,
        said.output_tokens.mean,
        service.coefficients,
    )
    good = np.flatnonzero(np.broadcast_to(fitting >= 1.0, first.shape))
    each = int(np.prod(shape[1:]))
    tally.memory += (shape[0] - good.size) * each
    rates = np.zeros(int(np.prod(shape)))
    index = (good[:, None] * each + np.arange(each)).ravel()
    users, made = np.full(rates.shape, np.nan), np.zeros(rates.shape)
    for start in range(0, index.size, _BLOCK):
        block = index[start : start + _BLOCK]
        at, flight = group.deployment(block)
        found = serving_answer(
            service.shape, service.machine, at, _asked(service, flight), service.coefficients
        )
        kept = np.asarray(found.fits).copy()
        times = {"ttft": found.ttft_s, "tpot": found.tpot_s, "e2e": found.e2e_s}
        for quantity, statistic, limit in limits:
            kept &= times[quantity] * (1.0 if statistic in ("mean", "p50") else _TAIL[quantity]) <= limit
        rates[block] = np.where(kept, found.requests_per_s, 0.0)
        users[block] = 1.0 / found.tpot_s
        made[block] = found.throughput_out_tokens_per_s / at.accelerators
        tally.feasible += int(kept.sum())
    tally.evaluated += index.size
    _remember(group, index, users, made, tally)
    return np.asarray(rates.reshape(shape).max(axis=-1))


def _remember(group: _Group, index: NDArray[np.intp], users: Array, made: Array, tally: _Tally) -> None:
    """Keep the configurations of this group that no other of it beats in both speed of a user and tokens an accelerator."""
    for i in index[front((-users[index], -made[index]))]:
        layout, batch, budget, flight = np.unravel_index(int(i), group.shape)
        tally.points.append(
            (
                float(users[i]),
                float(made[i]),
                {
                    **_named(group, int(layout), int(batch), int(budget)),
                    "concurrency": _FLIGHT[int(flight)],
                    "tokens_per_s_per_user": float(users[i]),
                    "tokens_per_s_per_accelerator": float(made[i]),
                },
            )
        )


def _named(group: _Group, layout: int, batch: int, budget: int) -> dict[str, object]:
    one = group.layouts[layout]
    return {
        "cluster": group.service.job.cluster.name,
        "precision": group.service.precision,
        "kv_precision": group.cache_precision,
        "layout": {"tp": one.tp, "pp": one.pp, "ep": one.ep, "dp": one.dp},
        "max_batch": int(group.batches[batch]),
        "max_batched_tokens": None if group.service.job.is_one_pass else int(group.budgets[budget]),
    }


def _front(tally: _Tally) -> list[dict[str, object]]:
    if not tally.points:
        return []
    users, made = (np.array([point[i] for point in tally.points]) for i in (0, 1))
    points = [tally.points[i] for i in np.flatnonzero(front((-users, -made)))]
    kept = [named for _, _, named in sorted(points, key=lambda point: -point[0])]
    if len(kept) > _MOST_PARETO:
        kept = [kept[i] for i in np.unique(np.linspace(0, len(kept) - 1, _MOST_PARETO).round().astype(int))]
    return kept


def _closely(
    group: _Group, worth: Array, limits: Sequence[tuple[str, str, float]], wanted: Wanted
) -> list[dict[str, object]]:
    """The most promising configurations of a group with their knees in an open loop, replicas and price."""
    service = group.service
    ranks = np.array([one.accelerators for one in group.layouts], float)
    an_accelerator = (worth / ranks[:, None, None]).ravel()
    # One of each layout, the limits of the engine that suit it best: neighbours differ by nothing.
    an_accelerator = an_accelerator.reshape(len(group.layouts), -1)
    best = an_accelerator.argmax(axis=1)
    order = np.argsort(-an_accelerator.max(axis=1))[:_CLOSELY]
    order = order[an_accelerator.max(axis=1)[order] > 0.0]
    if order.size == 0:
        return []
    batch, budget = np.unravel_index(best[order], worth.shape[1:])
    flat = np.ravel_multi_index((order, batch, budget, np.zeros_like(order)), group.shape)
    at, _ = group.deployment(flat)
    layouts = [group.layouts[int(i)] for i in order]
    named = [_named(group, int(i), int(b), int(n)) for i, b, n in zip(order, batch, budget, strict=True)]
    return at_knees(service, layouts, named, at, limits, wanted)


def at_knees(
    service: Service,
    layouts: Sequence[ServedLayout],
    named: Sequence[dict[str, Any]],
    at: Deployment,
    limits: Sequence[tuple[str, str, float]],
    wanted: Wanted,
) -> list[dict[str, Any]]:
    """Configurations (the entries of `at`, one a layout) with their knees in an open loop, replicas and price."""
    most = np.broadcast_to(saturation(service, at), (len(layouts),))
    rates = most[:, None] * _SHARES
    _, times = latencies(service, at.column(), "rate", rates)
    found = []
    for place, layout in enumerate(layouts):
        values = {f"{q}_{s}": times[q][s][place] for q, s, _ in limits}
        knee, who = crossing(rates[place], values, {f"{q}_{s}": limit for q, s, limit in limits})
        if math.isnan(knee):
            continue
        knee = float(min(knee, rates[place, -1]))
        at_knee = {
            f"{q}_{s}_s": float(np.interp(knee, rates[place], times[q][s][place]))
            for q in ("ttft", "tpot")
            for s in STATISTICS
            if s in ("mean", "p99")
        }
        item = {
            "rank": 0,
            **named[place],
            "knee_requests_per_s": knee,
            "ends_with": who,
            "saturation_requests_per_s": float(most[place]),
            **at_knee,
            **_fleet(service.job, layout, knee, wanted),
        }
        too_many = (
            wanted.most_accelerators is not None and (item["accelerators"] or 0) > wanted.most_accelerators
        )
        if not too_many and item["replicas"] > 0:
            found.append(item)
    return found


def _fleet(job: ServingJob, layout: ServedLayout, knee: float, wanted: Wanted) -> dict[str, object]:
    """Replicas, accelerators and price of what is asked: a demand, all that a budget buys, or one replica.

    Over a day the price is that of its mean hour, for its mean rate.
    """
    ranks, demand = layout.accelerators, job.serving.demand
    one = bill(job, ranks).usd_per_s
    budget = math.inf if wanted.budget_usd_per_s is None else wanted.budget_usd_per_s
    spare, count, rate = 0, 1, knee
    if demand is not None:
        count = replicas_for(demand, knee)
        spare, rate = spares_of(job, count, ranks), demand
    elif math.isfinite(budget):
        count = int(budget / one) if one > 0.0 else 0
        rate = knee * count
    paid = bill(job, (count + spare) * ranks).usd_per_s if count else math.nan
    if demand is not None and job.serving.day is not None:
        day = over_day(job, knee, ranks)
        paid, rate = day["usd_per_day"] / 86400.0, float(np.mean(day["rate_per_s"]))
    if demand is not None and math.isfinite(budget) and not paid <= budget:
        count = 0
    out = rate * job.serving.output_tokens.mean
    return {
        "replicas": count,
        "spare": spare,
        "accelerators": (count + spare) * ranks,
        "requests_per_s": rate,
        "tokens_per_s_per_accelerator": out / max((count + spare) * ranks, 1),
        "usd_per_h": None if math.isnan(paid) else paid * 3600.0,
        "usd_per_million_tokens": None if math.isnan(paid) or not out else paid / out * MILLION,
    }


def _order(item: dict[str, Any]) -> tuple[float, float]:
    """The cheapest token first; where no price is known, the fewest accelerators for it."""
    cost = item["usd_per_million_tokens"]
    return (math.inf if cost is None else cost, -item["tokens_per_s_per_accelerator"])


def _notes(jobs: Sequence[ServingJob], known: ServingBeliefs, limits: Sequence[object]) -> list[str]:
    notes = [f"{job.cluster.name}: {note}" for job in jobs for note in job.notes]
    said = jobs[0].serving
    if said.precision is None or said.kv_precision is None:
        notes.append(
            "fewer bits may cost quality, which nothing here measures: state precision and kv_precision to keep them"
        )
    if not limits:
        notes.append("no slo is stated: configurations are ranked by what they make when saturated")
    if not known.is_fitted:
        notes.append("nothing measured stands behind the coefficients of serving yet")
    return notes
