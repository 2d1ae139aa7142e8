"""One layout space, one set of rules: every verb gives the same number for the same layout, and the same feasibility.

Metamorphic relations on random jobs (see `random_jobs.py`): no known answer is needed to see that an answer is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from random_jobs import CATALOG, jobs_of, one_in, random_job, random_layout, stated_job

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.decide.audit.plausible import stacks
from perfmodel.decide.gate.predictor import predictor
from perfmodel.decide.plan.planner import Found, Request
from perfmodel.decide.plan.planner import search as plan
from perfmodel.decide.plan.targets import candidate_setup
from perfmodel.decide.prediction import predict
from perfmodel.errors import SpecError
from perfmodel.explain.comparison import compare
from perfmodel.explain.explanation import explain
from perfmodel.explain.roofline import roofline
from perfmodel.explain.work_depth import of_job
from perfmodel.physics.coefficients import NAMES
from perfmodel.physics.variation import spread_of
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.specs.stack import Stack
from perfmodel.training.curve import Curve, curve
from perfmodel.training.declared import variation
from perfmodel.training.setup import setup_of
from perfmodel.training.space import Bounds
from perfmodel.web.answers import Library
from perfmodel.web.requests import LayoutChoice, WhatIf

SEEDS = jobs_of(60)
BELIEFS = shipped_beliefs()


def planned(job: Job) -> Found:
    return plan([job], Request(objective="time", keep=4), BELIEFS)


@pytest.fixture(scope="module")
def answers() -> list[tuple[int, Job, Curve, Found]]:
    made = []
    for seed in SEEDS:
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


def slower(before: Curve, after: Curve, where: NDArray[np.bool_]) -> list[tuple[str, str]]:
    """Layouts before and after at the K where the time rose beyond rounding."""
    both = before.feasible & after.feasible & where
    worse = both & (np.nan_to_num(after.time_s) > np.nan_to_num(before.time_s) * (1.0 + 1e-6))
    return [(str(before.names[i]), str(after.names[i])) for i in np.flatnonzero(worse)]


EVERYWHERE = np.ones(1, dtype=bool)


def test_more_memory_bandwidth_is_never_slower(answers: list[tuple[int, Job, Curve, Found]]) -> None:
    for seed, job, before, _ in answers:
        device = job.cluster.node.accelerator
        faster = device.model_copy(update={"memory_bandwidth": device.memory_bandwidth * 1.5})
        node = job.cluster.node.model_copy(update={"accelerator": faster})
        cluster = job.cluster.model_copy(update={"node": node})
        after = curve(setup_of(job.model_copy(update={"cluster": cluster})), BELIEFS, draws=0)
        assert not slower(before, after, EVERYWHERE), seed


def test_a_shorter_sequence_is_never_slower(answers: list[tuple[int, Job, Curve, Found]]) -> None:
    for seed, job, before, _ in answers:
        length = job.seq_len or job.workload.seq_len
        if length is None or length < 512:
            continue
        after = curve(setup_of(job.model_copy(update={"seq_len": length // 2})), BELIEFS, draws=0)
        # Context parallelism is not tried (but where nothing else fits) on sequences that it would cut too short.
        as_short = before.at.cp <= max(length // 2 // Bounds().shortest_sequence, 1)
        if slower(before, after, as_short):
            # Of a job that states no kernel a long sequence tells that attention is fused, a short one does not.
            told = job.model_copy(
                update={"stack": (job.stack or Stack()).model_copy(update={"attention": "flash"})}
            )
            pair = (told, told.model_copy(update={"seq_len": length // 2}))
            assert not slower(*(curve(setup_of(each), BELIEFS, draws=0) for each in pair), as_short), seed
        assert (after.feasible | ~(before.feasible & as_short)).all(), seed


def test_a_larger_batch_is_never_quicker(answers: list[tuple[int, Job, Curve, Found]]) -> None:
    for seed, job, before, _ in answers:
        if job.regime == "weak" or job.global_batch is None:
            continue
        twice = setup_of(job.model_copy(update={"global_batch": 2 * job.global_batch}))
        after = curve(twice, BELIEFS, draws=0)
        # A batch below K forbids layouts that a larger one allows, and those may be quicker.
        assert not slower(after, before, before.k <= job.global_batch), seed


def test_jitter_counts_in_a_plan(answers: list[tuple[int, Job, Curve, Found]]) -> None:
    for seed, job, _, found in answers:
        if job.jitter is None:
            continue
        calm = {c.k: c.time_s for c in planned(job.model_copy(update={"jitter": None})).partial.fastest}
        own = float(np.exp(BELIEFS.belief(setup_of(job).features()).median[NAMES.index("jitter")]))
        declared = spread_of(variation(job.jitter))
        for candidate in found.partial.fastest:
            if candidate.k > 1 and declared > own:
                assert candidate.time_s > calm[candidate.k], seed


def test_what_fits_when_stated_is_found_when_it_is_not() -> None:
    for seed in SEEDS:
        words = random_layout(seed) | {"sharding": "zero1", "recompute": "full", "cp": 1}
        stated = stated_or_none(seed, words)
        if stated is None:
            continue
        given, free = (
            curve(setup_of(each), BELIEFS, draws=0)
            for each in (stated, stated.model_copy(update={"layout": "auto"}))
        )
        room = given.memory.total <= float(given.setup.machine.memory_bytes) * (1.0 - given.setup.headroom)
        missed = given.feasible & np.broadcast_to(room, given.k.shape) & ~free.feasible
        assert not missed.any(), (seed, words, free.reasons)


def stated_or_none(seed: int, words: dict[str, Any]) -> Job | None:
    """The job of a seed with that layout, where a job file can say so."""
    try:
        return stated_job(seed, words)
    except SpecError:
        return None


def test_every_verb_has_the_same_time_for_the_same_layout(
    answers: list[tuple[int, Job, Curve, Found]],
) -> None:
    """explain, the gate, compare, the page and one stack of the audit, each along its own way from the job to the number."""
    page = Library(beliefs=BELIEFS)
    for seed, job, _, found in answers[:: one_in(6)]:
        if not found.partial.best:
            continue
        best = found.partial.best[0]
        layout = candidate_setup(job, best).layout
        assert layout is not None
        stated = job.model_copy(update={"layout": layout, "k": (best.k,)})
        times = {
            "explain": explain(stated, BELIEFS).result["time_s"],
            "check": predictor(BELIEFS, 0)(stated)["time_s"][0],
            "compare": compare(stated, stated, BELIEFS, draws=2).result["a"]["time_s"][0],
        }
        stack = stacks(setup_of(stated))[0]
        if job.framework == stack.framework:
            times["audit"] = curve(stack, BELIEFS, draws=0).time_s[0]
        if _can_be_asked(job):
            times["page"] = page.predict(_asked(job, best.k))["result"]["time_s"][0]
        for verb, seconds in times.items():
            assert seconds == pytest.approx(best.time_s, rel=1e-6), (seed, verb, job.workload.name, best)


def test_every_verb_says_alike_whether_a_layout_can_run() -> None:
    """Random layouts, most of which cannot: predict, explain, the gate and the page."""
    page = Library(beliefs=BELIEFS)
    for seed in SEEDS[:: one_in(2)]:
        job, words = random_job(seed), random_layout(seed)
        stated = stated_or_none(seed, words)
        if stated is None:
            continue
        found = curve(setup_of(stated), BELIEFS, draws=0)
        heard = {
            "explain": said(lambda job=stated: explain(job, BELIEFS).result),
            "check": said(lambda job=stated: predictor(BELIEFS, 0)(job)),
        }
        if _can_be_asked(job):
            asked = _asked(job, job.k[-1]).model_copy(update={"layout": LayoutChoice(**words)})
            heard["page"] = said(lambda asked=asked: page.predict(asked)["result"])
        assert len(set(heard.values())) == 1, (seed, heard)
        feasible, reason = heard["explain"]
        assert feasible == bool(found.feasible[0]), seed
        assert reason == (found.reasons[0] or ""), seed


def test_a_workload_without_any_work_is_refused_by_every_verb() -> None:
    """What states neither FLOP nor bytes would be predicted as next to nothing."""
    named = [
        name
        for name in CATALOG.names("workloads")
        if not setup_of(load_job(None, overrides=idle(name), catalog=CATALOG)).states_work
    ]
    assert named
    page = Library(beliefs=BELIEFS)
    for name in named:
        job = load_job(None, overrides=idle(name), catalog=CATALOG)
        asked: tuple[Callable[[], object], ...] = (
            lambda job=job: predict(job, BELIEFS),
            lambda job=job: planned(job),
            lambda job=job: explain(job, BELIEFS),
            lambda job=job: compare(job, job, BELIEFS),
            lambda job=job: roofline(job, BELIEFS),
            lambda job=job: of_job(job, BELIEFS),
            lambda job=job: predictor(BELIEFS, 0)(job),
            lambda name=name: page.predict(WhatIf(workload=name, cluster="dgx-a100")),
        )
        for ask in asked:
            with pytest.raises(SpecError, match="nothing to predict from"):
                ask()


def idle(workload: str) -> dict[str, Any]:
    """The words of a job with that workload and nothing special."""
    return {"workload": workload, "cluster": "dgx-a100", "k": [8]}


IMPOSSIBLE = "the layout is impossible at every K: "


def said(ask: Callable[[], Mapping[str, Any]]) -> tuple[bool, str]:
    """Whether a verb finds its one K feasible, and its reason; a layout that can run at no K is refused."""
    try:
        result = ask()
    except SpecError as error:
        return False, error.problems[0].message.removeprefix(IMPOSSIBLE)
    feasible, reason = (
        np.atleast_1d(np.array(result[key], dtype=object))[0] for key in ("feasible", "reason")
    )
    return bool(feasible), reason or ""


def _can_be_asked(job: Job) -> bool:
    """Whether the page has a field for everything that the job states."""
    return (
        job.jitter is None
        and job.sync_every is None
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
