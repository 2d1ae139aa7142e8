"""One layout space, one set of rules: every verb gives the same number for the same layout, and the same feasibility.

`PERFMODEL_JOBS` sets how many random jobs are tried.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.decide.audit.plausible import stacks
from perfmodel.decide.gate.predictor import predictor
from perfmodel.decide.plan.planner import Found, Request
from perfmodel.decide.plan.planner import search as plan
from perfmodel.decide.plan.targets import candidate_setup
from perfmodel.errors import SpecError
from perfmodel.explain.explanation import explain
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import Curve, curve
from perfmodel.training.setup import setup_of
from perfmodel.web.answers import Library
from perfmodel.web.requests import WhatIf

JOBS = int(os.environ.get("PERFMODEL_JOBS", "40"))
CATALOG = Catalog.default()
BELIEFS = shipped_beliefs()

WORKLOADS = (
    "bert-large",
    "gpt2-xl",
    "llama3-8b",
    "llama3-70b",
    "gpt3-175b",
    "mixtral-8x7b",
    "deepseek-v3",
    "resnet50",
)
CLUSTERS = ("dgx-1v", "dgx-a100", "dgx-h100", "p5.48xlarge")
FAMILIES = ("normal", "lognormal", "gumbel", "exponential", "pareto")


def random_job(seed: int) -> Job:
    """A valid job with facts that a search must not forget."""
    rng = np.random.default_rng(seed)

    def one(values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    least = int(2 ** rng.integers(0, 9))
    k = [least, least * 2, int(rng.integers(1, 40)) * one((1, 8))]
    words: dict[str, Any] = {
        "workload": one(WORKLOADS),
        "cluster": one(CLUSTERS),
        "k": sorted(set(k)),
        "steps": 1000,
    }
    if rng.random() < 0.2:
        words |= {"regime": "weak", "batch_per_accelerator": int(2 ** rng.integers(0, 6))}
    else:
        words["global_batch"] = one((int(2 ** rng.integers(3, 12)), int(rng.integers(8, 3000))))
    if rng.random() < 0.3:
        words["jitter"] = {"distribution": one(FAMILIES), "spread": float(rng.uniform(0.01, 0.2))}
    if rng.random() < 0.15:
        words["sync_every"] = int(rng.integers(2, 8))
    if rng.random() < 0.15:
        words["slow_devices"] = {"share": 0.01, "slowdown": 1.3}
    if rng.random() < 0.2:
        words["gradient_dtype"] = one(("fp32", "bf16"))
    if rng.random() < 0.2 and words["workload"] not in ("resnet50", "bert-large"):
        words["seq_len"] = one((1024, 4096, 16384))
    if rng.random() < 0.2:
        words["framework"] = one(("megatron_eager", "fsdp_eager", "pytorch_eager"))
    return load_job(None, overrides=words, catalog=CATALOG)


def planned(job: Job) -> Found:
    return plan([job], Request(objective="time", keep=4), BELIEFS)


@pytest.fixture(scope="module")
def answers() -> list[tuple[int, Job, Curve, Found]]:
    made = []
    for seed in range(JOBS):
        job = random_job(seed)
        made.append((seed, job, curve(setup_of(job), BELIEFS, draws=0), planned(job)))
    return made


def test_a_plan_and_a_prediction_find_the_same_layouts(answers: list[tuple[int, Job, Curve, Found]]) -> None:
    for seed, _, predicted, found in answers:
        fastest = {candidate.k: candidate for candidate in found.partial.fastest}
        feasible = {int(k) for k, ok in zip(predicted.k, predicted.feasible, strict=True) if ok}
        assert set(fastest) == feasible, seed
        for i, k in enumerate(predicted.k):
            if int(k) not in feasible:
                continue
            best = fastest[int(k)]
            assert best.time_s == pytest.approx(float(predicted.time_s[i]), rel=1e-9), seed
            assert best.memory_bytes == pytest.approx(float(predicted.memory.total[i]), rel=1e-9), seed


def test_a_layout_has_one_time_whoever_states_it(answers: list[tuple[int, Job, Curve, Found]]) -> None:
    for seed, job, _, found in answers:
        for candidate in found.partial.best[:2]:
            alone = curve(candidate_setup(job, candidate), BELIEFS, draws=0)
            assert bool(alone.feasible[0]), seed
            assert float(alone.time_s[0]) == pytest.approx(candidate.time_s, rel=1e-9), seed
            assert float(alone.memory.total[0]) == pytest.approx(candidate.memory_bytes, rel=1e-9), seed


def test_more_memory_bandwidth_is_never_slower(answers: list[tuple[int, Job, Curve, Found]]) -> None:
    for seed, job, before, _ in answers[::3]:
        device = job.cluster.node.accelerator
        faster = device.model_copy(update={"memory_bandwidth": device.memory_bandwidth * 1.5})
        node = job.cluster.node.model_copy(update={"accelerator": faster})
        cluster = job.cluster.model_copy(update={"node": node})
        after = curve(setup_of(job.model_copy(update={"cluster": cluster})), BELIEFS, draws=0)
        for i in np.flatnonzero(before.feasible):
            assert after.time_s[i] <= before.time_s[i] * (1.0 + 1e-6), (seed, before.names[i], after.names[i])


def test_a_larger_batch_is_never_quicker(answers: list[tuple[int, Job, Curve, Found]]) -> None:
    for seed, job, before, _ in answers[1::3]:
        if job.regime == "weak" or job.global_batch is None:
            continue
        after = curve(
            setup_of(job.model_copy(update={"global_batch": 2 * job.global_batch})), BELIEFS, draws=0
        )
        # A batch below K forbids layouts that a larger one allows, and those may be quicker.
        enough = before.k <= job.global_batch
        for i in np.flatnonzero(before.feasible & after.feasible & enough):
            assert after.time_s[i] >= before.time_s[i] * (1.0 - 1e-6), (seed, before.names[i], after.names[i])


def test_what_fits_when_stated_is_found_when_it_is_not() -> None:
    rng = np.random.default_rng(7)
    for _ in range(JOBS // 2):
        job = random_job(int(rng.integers(1 << 30)))
        tp, pp = (int(2 ** rng.integers(0, 4)) for _ in range(2))
        words = {"tp": tp, "pp": pp, "micro_batch": 1, "recompute": "full"}
        try:
            stated = job.model_copy(update={"layout": load_job(None, overrides={
                "workload": job.workload.name, "cluster": job.cluster.name, "k": list(job.k),
                "global_batch": job.global_batch or 64, "layout": words}, catalog=CATALOG).layout})  # fmt: skip
        except SpecError:
            continue
        given = curve(setup_of(stated), BELIEFS, draws=0)
        free = curve(setup_of(job), BELIEFS, draws=0)
        room = given.memory.total <= float(given.setup.machine.memory_bytes) * (1.0 - given.setup.headroom)
        missed = given.feasible & np.broadcast_to(room, given.k.shape) & ~free.feasible
        assert not missed.any(), (job.workload.name, job.cluster.name, job.k, words, free.reasons)


def test_every_verb_has_the_same_time_for_the_same_layout(
    answers: list[tuple[int, Job, Curve, Found]],
) -> None:
    """explain, the gate, the page and one stack of the audit, each along its own way from the job to the number."""
    tried = [(job, found) for _, job, _, found in answers if found.partial.best and job.jitter is None]
    page = Library(beliefs=BELIEFS)
    for job, found in tried[:: max(len(tried) // 6, 1)]:
        best = found.partial.best[0]
        layout = candidate_setup(job, best).layout
        assert layout is not None
        stated = job.model_copy(update={"layout": layout, "k": (best.k,)})
        times = {
            "explain": explain(stated, BELIEFS).result["time_s"],
            "check": predictor(BELIEFS, 0)(stated)["time_s"][0],
            "audit": curve(stacks(setup_of(stated))[0], BELIEFS, draws=0).time_s[0]
            if job.framework == stacks(setup_of(stated))[0].framework
            else best.time_s,
        }
        asked = page.predict(_asked(job, best.k)) if _can_be_asked(job) else None
        if asked is not None:
            times["page"] = asked["result"]["time_s"][0]
        for verb, seconds in times.items():
            assert seconds == pytest.approx(best.time_s, rel=1e-6), (verb, job.workload.name, best)


def _can_be_asked(job: Job) -> bool:
    """Whether the page has a field for everything that the job states."""
    return (
        job.sync_every is None
        and job.slow_devices is None
        and job.gradient_dtype is None
        and not job.framework_given
    )


def _asked(job: Job, k: int) -> WhatIf:
    batch = {
        "regime": job.regime,
        "global_batch": job.global_batch,
        "batch_per_accelerator": job.batch_per_accelerator,
    }
    return WhatIf(
        workload=job.workload.name, cluster=job.cluster.name, k=str(k), seq_len=job.seq_len, **batch
    )
