"""The search against brute force, constraints that cannot be met, fleets and sweeps."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.population import Beliefs, shipped_beliefs, textbook_beliefs
from perfmodel.calibrate.job import calibrate
from perfmodel.decide.energy import step_energy
from perfmodel.decide.knee import threshold_knee
from perfmodel.decide.plan import backends as runners
from perfmodel.decide.plan import search
from perfmodel.decide.plan.answer import make_plan
from perfmodel.decide.plan.candidates import Candidate
from perfmodel.decide.plan.fleet import Option, allocate
from perfmodel.decide.plan.planner import Found, Request
from perfmodel.decide.plan.planner import search as find
from perfmodel.decide.plan.run import plan_fleet, plan_job, plan_sweep
from perfmodel.decide.plan.search import energy_of
from perfmodel.decide.plan.sweep import parse_sweep
from perfmodel.decide.plan.targets import candidate_setup, setup_at, target_of
from perfmodel.decide.prediction import predict
from perfmodel.errors import UsageError
from perfmodel.physics.layouts import pick
from perfmodel.physics.memory import memory, room
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.training import space
from perfmodel.training.curve import curve
from perfmodel.training.space import Bounds, Told, as_layouts
from perfmodel.training.step import step

OBJECTIVES = ("time", "cost", "energy")
TINY = Bounds(max_tp=4, max_pp=4, max_vpp=2, max_micro_batch=4)
SMALL = Bounds(max_tp=4, max_pp=8, max_vpp=4, max_micro_batch=8)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.default()


@pytest.fixture(scope="module")
def beliefs() -> Beliefs:
    return textbook_beliefs()


def make(catalog: Catalog, **overrides: Any) -> Job:
    words = {"workload": "llama3-8b", "cluster": "dgx-h100", "k": "8..64", "global_batch": 128, "steps": 1000}
    words["framework"] = "megatron_core"
    return load_job(None, overrides=words | overrides, catalog=catalog)


def layout_of(candidate: Candidate) -> tuple[Any, ...]:
    layout = candidate.layout()
    layout.pop("shard_group", None)
    return (candidate.k, *layout.values())


Tried = tuple[dict[str, float], tuple[Any, ...]]


@pytest.fixture(scope="module")
def every(catalog: Catalog, beliefs: Beliefs) -> list[Tried]:
    """All layouts that fit, each priced alone: no chunks, no broadcasting, no pruning."""
    job = make(catalog, k="8,24")
    target = target_of(job, job.k, beliefs)
    batches = target.global_batch
    rows = space.enumerate_rows(target.shape, list(batches), list(batches.values()), TINY).rows
    found: list[Tried] = []
    for sharding in TINY.shardings:
        refused, _ = space.sharding_refused(rows, sharding)
        ok = space.sharding_allowed(rows, sharding, target.shape.node) & ~refused
        allowed = rows.take(np.flatnonzero(ok))
        for i, level in itertools.product(range(len(allowed)), TINY.recompute):
            at = as_layouts(
                allowed.take(np.array([i])), (sharding,), (level,), Told(target.shape.node, target.declared)
            )
            if memory(target.ops, target.machine, at).total.max() > room(target.machine, target.headroom):
                continue
            result = step(target.ops, target.machine, at, target.coefficients)
            seconds, k = float(result.time_s.max()), int(allowed.k[i])
            values = {
                "time": seconds,
                "cost": seconds * target.steps * k * target.tariff.usd_per_accelerator_s,
                "energy": float(step_energy([[[k]]], result.parts, target.power).energy_j.max()),
            }
            names = ("dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "accumulation")
            found.append((values, (k, *(int(getattr(allowed, n)[i]) for n in names), sharding, level)))
    return found


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_best_is_what_brute_force_finds(
    catalog: Catalog, beliefs: Beliefs, every: list[Tried], objective: str
) -> None:
    found = find([make(catalog, k="8,24")], Request(objective=objective, bounds=TINY, keep=5), beliefs)
    ranked = sorted(every, key=lambda item: item[0][objective])
    assert found.partial.feasible == len(every)
    values = [candidate.objective(objective) for candidate in found.partial.best]
    np.testing.assert_allclose(values, [item[0][objective] for item in ranked[:5]], rtol=1e-9)
    least = ranked[0][0][objective]
    ties = [words for values, words in ranked if values[objective] <= least * (1 + 1e-9)]
    assert layout_of(found.partial.best[0]) in ties


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("workload", "k"), [("bert-large", "8..64"), ("gpt3-175b", "256..512")])
def test_repeating_attention_alone_wins_nothing_and_takes_no_place_of_another(
    catalog: Catalog, beliefs: Beliefs, workload: str, k: str, objective: str
) -> None:
    job = make(catalog, workload=workload, cluster="dgx-1v", k=k, global_batch=512)
    every = dataclasses.replace(Bounds(), recompute=("none", "selective", "full"))
    usual, whole = (
        find([job], Request(objective=objective, bounds=bounds), beliefs).partial
        for bounds in (Bounds(), every)
    )
    assert layout_of(usual.best[0]) == layout_of(whole.best[0])
    assert [layout_of(one) for one in usual.fastest] == [layout_of(one) for one in whole.fastest]
    assert all(candidate.recompute != "selective" for candidate in usual.best)


def test_a_candidate_is_what_predict_says_of_its_layout(catalog: Catalog, beliefs: Beliefs) -> None:
    job = make(catalog)
    found = find([job], Request(bounds=SMALL), beliefs)
    for candidate in found.partial.best[:4]:
        predicted = curve(candidate_setup(job, candidate), beliefs, draws=2)
        assert predicted.time_s[0] == pytest.approx(candidate.time_s, rel=1e-12)
        assert predicted.memory.total[0] == pytest.approx(candidate.memory_bytes, rel=1e-12)


def test_a_calibrated_plan_is_the_calibrated_curve(catalog: Catalog, beliefs: Beliefs) -> None:
    """Timings that the step model does not explain: the curve leans on laws through them, and so must the plan."""
    job = make(catalog, workload="resnet50", cluster="dgx-a100", k="1..256", global_batch=4096)
    measured = setup_at(job, [1, 2, 4])
    slower, _ = calibrate(measured, np.array([4.0, 3.2, 2.7]), beliefs)
    predicted = curve(setup_at(job, job.k), slower, draws=0)
    alone = curve(setup_at(job, job.k), beliefs, draws=0)
    assert predicted.time_s[-1] > 1.2 * alone.time_s[-1]
    found = find([job], Request(bounds=Bounds(max_micro_batch=1024)), slower)
    times = {candidate.k: candidate.time_s for candidate in found.partial.fastest}
    for k, time_s in zip(predicted.k, predicted.time_s, strict=True):
        # Measurements pull layouts by how far each is from them, so two that are as fast may change places.
        assert times[int(k)] <= time_s * (1 + 1e-3)
        assert times[int(k)] == pytest.approx(time_s, rel=0.05)


def test_energy_in_few_operations_is_the_energy_model(catalog: Catalog, beliefs: Beliefs) -> None:
    target = target_of(make(catalog), [16], beliefs)
    rows = space.enumerate_rows(target.shape, [16], [128], SMALL).rows
    at = pick(as_layouts(rows, ("ddp",), ("none",), Told(8, {})), 0)
    result = step(target.ops, target.machine, at, target.coefficients)
    plain = step_energy(at.k, result.parts, target.power).energy_j
    np.testing.assert_allclose(energy_of(result.parts, result.time_s, at.k, target.power), plain, rtol=1e-12)


def same(first: Found, second: Found) -> bool:
    return first.partial == second.partial


def test_how_the_work_is_cut_does_not_matter(
    catalog: Catalog, beliefs: Beliefs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [make(catalog), make(catalog, cluster="dgx-a100")]
    whole = find(jobs, Request(bounds=SMALL), beliefs)
    monkeypatch.setattr(search, "CHUNK_ROWS", 13)
    assert same(whole, find(jobs, Request(bounds=SMALL), beliefs, workers=3))

    def backwards(targets: Any, tasks: Any) -> Any:
        return reversed([search.run_task(targets[task.target], task) for task in tasks])

    assert same(whole, find(jobs, Request(bounds=SMALL), beliefs, runner=backwards, workers=8))


def test_processes_give_the_same(catalog: Catalog, beliefs: Beliefs) -> None:
    job = make(catalog)
    here = find([job], Request(bounds=SMALL), beliefs)
    there = find([job], Request(bounds=SMALL), beliefs, runner=runners.in_processes(2), workers=2)
    assert same(here, there)


def test_an_interrupt_leaves_what_is_finished(catalog: Catalog, beliefs: Beliefs) -> None:
    def stops(targets: Any, tasks: Any) -> Any:
        yield search.run_task(targets[0], tasks[0])
        raise KeyboardInterrupt

    found = find([make(catalog)], Request(bounds=SMALL), beliefs, runner=stops, workers=4)
    assert found.interrupted
    assert {c.k for c in found.partial.fastest} == {8}
    plan = make_plan(found, beliefs, catalog, {})
    assert plan.interrupted
    assert "interrupted" in plan.result.result["answer"]


def test_refusals_and_counts_add_up(catalog: Catalog, beliefs: Beliefs) -> None:
    found = find([make(catalog, k="8")], Request(bounds=SMALL), beliefs)
    part = found.partial
    memory_refused = sum(n for reason, n in part.refused.items() if reason.startswith("out of memory"))
    assert memory_refused == part.evaluated + part.pruned - part.feasible
    assert part.pruned > 0


def test_limits_bind(catalog: Catalog, beliefs: Beliefs) -> None:
    job = make(catalog)
    free = find([job], Request(objective="cost", bounds=SMALL), beliefs)
    cheapest = free.partial.best[0]
    assert cheapest.k < 64
    deadline = free.wall_s(cheapest) * 0.4
    rushed = find([job], Request(objective="cost", deadline_s=deadline, bounds=SMALL), beliefs)
    assert rushed.partial.best[0].k > cheapest.k
    assert all(rushed.wall_s(c) <= deadline for c in rushed.partial.best)
    budget = cheapest.cost_usd * 1.05
    poor = find([job], Request(objective="time", budget_usd=budget, bounds=SMALL), beliefs)
    assert all(c.cost_usd <= budget for c in poor.partial.best)
    frugal = find([job], Request(objective="time", min_efficiency=0.95, bounds=SMALL), beliefs)
    assert all(frugal.efficiency(c) >= 0.95 - 1e-9 for c in frugal.partial.best)
    capped = find([job], Request(objective="time", max_k=16, bounds=SMALL), beliefs)
    assert max(c.k for c in capped.partial.best) == 16


def plan(catalog: Catalog, beliefs: Beliefs, job: Job, **limits: Any) -> Any:
    return plan_job([job], Request(bounds=SMALL, **limits), beliefs)


def test_deadline_too_short_names_the_fastest(catalog: Catalog, beliefs: Beliefs) -> None:
    out = plan(catalog, beliefs, make(catalog), deadline_s=1.0)
    result = out.result.result
    assert not out.met
    assert result["candidates"] == []
    assert result["nearest"]["k"] == 64
    assert result["relax"][0].startswith("relax the deadline from 1 s to ")
    assert "the fastest possible run takes" in result["answer"]


def test_budget_too_small_names_the_cheapest(catalog: Catalog, beliefs: Beliefs) -> None:
    out = plan(catalog, beliefs, make(catalog), budget_usd=1.0)
    free = find([make(catalog)], Request(bounds=SMALL), beliefs)
    cheapest = min(free.partial.fastest, key=lambda candidate: candidate.cost_usd)
    assert out.result.result["nearest"]["k"] == cheapest.k
    assert out.result.result["nearest"]["cost_usd"] == pytest.approx(cheapest.cost_usd)
    assert out.result.result["relax"][0].startswith("relax the budget from 1 USD to ")


def test_two_limits_that_fight_offer_two_ways_out(catalog: Catalog, beliefs: Beliefs) -> None:
    job = make(catalog)
    free = find([job], Request(bounds=SMALL), beliefs)
    ends = sorted(free.partial.fastest, key=lambda c: c.k)
    deadline = free.wall_s(ends[-1]) * 1.01
    budget = ends[0].cost_usd * 1.001
    out = plan(catalog, beliefs, job, deadline_s=deadline, budget_usd=budget)
    result = out.result.result
    assert not out.met
    assert result["reason"] == "no K keeps deadline and budget at once, though each can be kept alone"
    assert sorted(way.split()[2] for way in result["relax"]) == ["budget", "deadline"]
    # The nearest answer asks for less: the budget gives by a few percent, the deadline by a factor.
    assert result["relax"][0].startswith("relax the budget")


def test_nothing_fits_says_how_much_memory_is_missing(catalog: Catalog, beliefs: Beliefs) -> None:
    out = plan(catalog, beliefs, make(catalog, workload="gpt3-175b", k="8"))
    result = out.result.result
    assert not out.met
    assert result["nearest"] is None
    assert "no layout fits in memory: the smallest (K = 8 on dgx-h100) needs" in result["answer"]
    way = result["relax"][0]
    enough = int(re.match(r"use K = (\d+) on dgx-h100, which fits, or a device with at least", way)[1])
    assert plan(catalog, beliefs, make(catalog, workload="gpt3-175b", k=str(enough))).met


def test_no_divisible_layout_says_so(catalog: Catalog, beliefs: Beliefs) -> None:
    out = plan(catalog, beliefs, make(catalog, k="13", global_batch=7))
    assert "no layout exists" in out.result.result["reason"]
    assert not out.met


def test_a_candidate_is_banded_as_the_prediction_of_its_layout(catalog: Catalog, beliefs: Beliefs) -> None:
    row = plan(catalog, beliefs, make(catalog), objective="cost").result.envelope()["result"]["candidates"][0]
    alone = predict(make(catalog, k=row["k"], layout=row["layout"]), beliefs, draws=64).result
    for name in ("time_s", "cost_usd", "energy_j"):
        assert row[f"{name}_high"] / row[name] == pytest.approx(
            alone[f"{name}_high"][0] / alone[name][0], rel=0.05
        ), name


def test_notes_are_of_every_cluster(catalog: Catalog, beliefs: Beliefs) -> None:
    jobs = [make(catalog, cluster=name) for name in ("dgx-a100", "dgx-h100")]
    found = find(jobs, Request(objective="cost", bounds=TINY), beliefs)
    notes = make_plan(found, beliefs, catalog, {}).result.result["notes"]
    assert [sum(name in note for note in notes) for name in ("DGX A100", "DGX H100")] == [1, 1]


def test_result_has_what_the_contract_names(catalog: Catalog, beliefs: Beliefs) -> None:
    out = plan(catalog, beliefs, make(catalog, grid="US-VA"), objective="cost")
    envelope = out.result.envelope()
    result = envelope["result"]
    assert envelope["schema"] == "perfmodel/plan/1"
    assert {"evaluated", "pruned", "feasible", "seconds", "candidates", "pareto", "refused"} <= set(result)
    names = {"rank", "cluster", "k", "layout", "time_s", "cost_usd", "energy_j", "memory_bytes"}
    for rank, row in enumerate(result["candidates"], 1):
        assert names | {"time_s_low", "time_s_high", "carbon_g"} <= set(row)
        assert row["rank"] == rank
        for name in ("time_s", "cost_usd", "energy_j", "carbon_g"):
            assert row[f"{name}_low"] < row[name] < row[f"{name}_high"], name
    costs = [row["cost_usd"] for row in result["candidates"]]
    assert costs == sorted(costs)
    front = [(row["wall_s"], row["cost_usd"]) for row in result["pareto"]]
    assert front == sorted(front)
    assert [cost for _, cost in front] == sorted((cost for _, cost in front), reverse=True)
    assert result["regimes"][0]["regime"] == "on-demand"
    assert {row["goal"] for row in result["recommendations"]} == {"nightly", "interactive", "balanced"}
    assert result["told_apart"]["bands_overlap"] is True
    assert "cannot be told apart" in result["answer"]
    assert isinstance(result["runner_up"], str)
    assert result["sensitivity"]


def test_weak_scaling_is_per_unit_of_work(catalog: Catalog, beliefs: Beliefs) -> None:
    job = make(catalog, global_batch=None, regime="weak", batch_per_accelerator=2)
    found = find([job], Request(objective="time", bounds=SMALL), beliefs)
    assert found.partial.best[0].k == 64
    fastest = {c.k: c for c in found.partial.fastest}
    assert fastest[64].work == 8.0
    assert found.efficiency(fastest[64]) == pytest.approx(fastest[8].time_s / fastest[64].time_s)
    usd = fastest[64].time_s * 1000 * 64 * found.targets[0].tariff.usd_per_accelerator_s / 8.0
    assert fastest[64].cost_usd == pytest.approx(usd)


def test_spot_counts_lost_time_against_the_deadline(catalog: Catalog, beliefs: Beliefs) -> None:
    price = {"regime": "spot", "per_accelerator": "1 USD/h", "preemption_interval": "10 h"}
    calm = find([make(catalog, price={"per_accelerator": "1 USD/h"})], Request(bounds=SMALL), beliefs)
    spot = find([make(catalog, price=price)], Request(bounds=SMALL), beliefs)
    for before, after in zip(calm.partial.fastest, spot.partial.fastest, strict=True):
        assert after.time_s == before.time_s
        assert spot.wall_s(after) > 1.02 * calm.wall_s(before)
        assert after.cost_usd > 1.02 * before.cost_usd


def test_fleet_allocation_is_exact() -> None:
    rng = np.random.default_rng(7)
    for objective in ("time", "cost", "energy"):
        for _ in range(30):
            jobs = [
                [
                    Option(
                        int(k),
                        float(rng.integers(1, 50)),
                        float(rng.integers(1, 50)),
                        float(rng.integers(1, 50)),
                        i,
                    )
                    for i, k in enumerate((1, 2, 4, 8))
                ]
                for _ in range(3)
            ]
            shared, budget = int(rng.integers(3, 20)), float(rng.integers(20, 120))
            best = math.inf
            for picks in itertools.product(*jobs):
                if sum(p.k for p in picks) <= shared and sum(p.cost_usd for p in picks) <= budget:
                    value = {
                        "time": max(p.wall_s for p in picks),
                        "cost": sum(p.cost_usd for p in picks),
                        "energy": sum(p.energy_j for p in picks),
                    }[objective]
                    best = min(best, value)
            share = allocate(jobs, shared, objective, budget)
            assert (math.inf if share is None else share.value(objective)[0]) == best


def test_fleet_shares_accelerators(catalog: Catalog, beliefs: Beliefs) -> None:
    jobs = {"small": make(catalog, steps=100), "large": make(catalog, steps=1000)}
    request = Request(objective="time", bounds=SMALL)
    out = plan_fleet(jobs, request, beliefs, 72)
    rows = {row["job"]: row for row in out.result.result["candidates"]}
    assert out.met
    assert sum(row["k"] for row in rows.values()) <= 72
    assert rows["large"]["k"] == 64
    assert rows["small"]["k"] == 8
    assert "2 jobs on 72 of 72 accelerators" in out.result.result["answer"]
    crowded = plan_fleet(jobs, request, beliefs, 12)
    assert not crowded.met
    assert crowded.result.result["relax"] == ["share at least 16 accelerators"]
    poor = plan_fleet(jobs, dataclasses.replace(request, budget_usd=1.0), beliefs, 72)
    assert poor.result.result["relax"][0].startswith("raise the budget from 1 USD to")
    late = plan_fleet(jobs, dataclasses.replace(request, deadline_s=1.0), beliefs, 72)
    assert "no K of small, large has a feasible layout within the deadline" in late.result.result["reason"]


def test_sweep_of_the_network_moves_the_fastest_run(catalog: Catalog, beliefs: Beliefs) -> None:
    def load(extra: str | None) -> Job:
        path, _, value = (extra or "steps=1000").partition("=")
        return make(catalog, **{path: value if " " in value else int(value)})

    out = plan_sweep("cluster.scale_out.bandwidth=10..400 Gbit/s:3", load, Request(bounds=SMALL), beliefs)
    sweep = out.result.result["sweep"]
    assert sweep["value"] == pytest.approx([10.0, 63.2455532034, 400.0])
    assert sweep["fastest_s"] == sorted(sweep["fastest_s"], reverse=True)
    assert {"knee_k", "p_star_k", "p_star_usd", "fastest_k"} <= set(sweep)
    assert out.result.result["candidates"]


def test_a_swept_knee_is_as_cautious_as_a_predicted_one(catalog: Catalog) -> None:
    """Over a network so slow that caution moves the first knee, and the usual layouts are the best."""

    def load(extra: str | None) -> Job:
        path, _, value = (extra or "cluster.scale_out.bandwidth=1 GB/s").partition("=")
        words = {"workload": "resnet50", "cluster": "dgx-a100", "k": "1..256", "global_batch": 4096}
        return make(catalog, **words, **{path: value})

    shipped = shipped_beliefs()
    known = dataclasses.replace(
        shipped, meta={**shipped.meta, "knee": {"ratio": 0.1}}
    )  # odds below which a knee is declared
    out = plan_sweep("cluster.scale_out.bandwidth=1..8 GB/s:2", load, Request(), known)
    sweep = out.result.result["sweep"]
    slow, quick = (
        predict(load(f"cluster.scale_out.bandwidth={value} GB/s"), known).result for value in (1, 8)
    )
    assert sweep["knee_k"] == [found["knee"]["threshold"]["k"] for found in (slow, quick)]
    assert sweep["knee_k"][0] < threshold_knee(np.array(slow["k"]), np.array(slow["efficiency"])).k
    assert slow["knee"]["threshold"]["how"].startswith(sweep["how"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "cluster.scale_out.bandwidth=100..800 Gbit/s:4",
            ["100 Gbit/s", "200 Gbit/s", "400 Gbit/s", "800 Gbit/s"],
        ),
        ("global_batch=64..256:3", ["64", "128", "256"]),
        ("price.fixed=0..10 USD/h:3", ["0 USD/h", "5 USD/h", "10 USD/h"]),
    ],
)
def test_sweeps_are_read(text: str, values: list[str]) -> None:
    assert list(parse_sweep(text).texts) == values


@pytest.mark.parametrize(
    "text", ["", "a", "a=1..2", "a=1..2:1", "a=1..1:3", "a=x..2:3", "a=1..2 s:100000", "=1..2:3"]
)
def test_bad_sweeps_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        parse_sweep(text)
