"""The search before the physics: complete, the same for other links, and without layouts that cannot win."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.physics.coefficients import NAMES, from_logs
from perfmodel.physics.memory import memory, room
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.layout import Layout
from perfmodel.training.curve import centre, choose
from perfmodel.training.rules import Refusal, shape_of
from perfmodel.training.search import search
from perfmodel.training.setup import Setup
from perfmodel.training.space import Bounds, usual_space
from perfmodel.training.step import step

CATALOG = Catalog.default()
JOBS = [
    ("llama3-8b", "dgx-h100"),
    ("mixtral-8x7b", "dgx-a100"),
    ("bert-large", "dgx-1v"),
    ("resnet50", "dgx-1v"),
]


def setup(workload="llama3-8b", cluster="dgx-h100", k=(1, 8, 64, 256), batch=512.0, **more) -> Setup:
    ks = np.array(k, dtype=float)
    found, on = CATALOG.get("workloads", workload), CATALOG.cluster(cluster)
    precision = "bf16" if "bf16" in on.accelerator.peak else "fp16"
    return Setup(found, on, precision, ks, np.full(ks.shape, batch), **more)


def same(a, b) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name), equal_nan=True) for f in fields(a))


def usual(job: Setup):
    return usual_space(shape_of(job.workload, job.machine, job.seq_len), Bounds(), int(job.k.max()))


@pytest.mark.parametrize(("workload", "cluster"), JOBS)
def test_what_is_left_out_would_not_have_been_chosen(workload, cluster):
    job = setup(workload, cluster)
    _, logs = centre(job, shipped_beliefs())
    whole = search(job, usual(job))
    short = search(job)
    assert short.count <= whole.count
    chosen, refusal = choose(job, logs, short)
    expected, refused = choose(job, logs, whole)
    assert same(chosen, expected)
    assert np.array_equal(refusal, refused)


def test_ample_memory_leaves_no_layout_that_repeats_work():
    found = search(setup("bert-large", "dgx-h100", k=(8,)))
    assert found.count > 0
    assert not found.allowed.recompute.any()


@given(seed=st.integers(0, 10_000), job=st.sampled_from(JOBS))
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
def test_recomputation_is_slower_whatever_the_beliefs(seed, job):
    """What the search leaves out rests on this; to 1 %, as a longer backward pass may hide more of an exchange."""
    made = setup(*job)
    at = search(made, usual(made)).allowed
    _, logs = centre(made, shipped_beliefs())
    moved = logs + 1.5 * np.random.default_rng(seed).standard_normal(len(NAMES))
    # Probabilities that have room once they are made again may be slower or quicker without a fused kernel, by two of the
    # beliefs: these stay where they are, or the memory has room for probabilities in any case.
    kept = moved.copy()
    pair = [NAMES.index(name) for name in ("attention", "unfused")]
    kept[pair] = logs[pair]
    roomy = replace(made.machine, memory_bytes=np.asarray(1e18))
    for machine, beliefs in ((made.machine, kept), (roomy, moved)):
        seconds = []
        for share, selective in ((0.0, 0.0), (0.05, 1.0), (1.0, 1.0)):
            layout = replace(at, recompute=np.full_like(at.k, share), selective=np.full_like(at.k, selective))
            seconds.append(step(made.operations, machine, layout, from_logs(beliefs[:, None])).time_s)
        assert (np.diff(seconds, axis=0) >= -0.01 * seconds[0]).all()


def test_other_links_and_jitter_have_the_same_search():
    job = setup()
    link = job.cluster.scale_out or job.cluster.node.scale_out
    slow = job.cluster.model_copy(
        update={"scale_out": link.model_copy(update={"bandwidth": 1e8, "latency": 1e-3})}
    )
    other = replace(job, cluster=slow, jitter=0.3)
    assert other.machine != job.machine
    a, b = search(job), search(other)
    assert same(a.at, b.at)
    assert np.array_equal(a.k_index, b.k_index)


def test_where_nothing_is_allowed_the_refusal_is_the_nearest():
    found = search(setup("gpt3-175b", "dgx-1v", k=(1, 3), layout=Layout(tp=2)))
    assert found.count == 0
    assert found.refusal.tolist() == [Refusal.DIVISION, Refusal.DIVISION]
    at, refusal = choose(
        setup("gpt3-175b", "dgx-1v", k=(1, 3), layout=Layout(tp=2)), np.zeros(len(NAMES)), found
    )
    assert at.k.shape == refusal.shape == (2,)


def test_a_searched_layout_fits_by_the_whole_count() -> None:
    """A stated layout of a convolutional network is refused only where half of its activations do not fit."""
    job = setup("resnet50", "dgx-1v", k=(1, 2), batch=2048.0)
    stated = search(replace(job, layout=Layout(micro_batch=1024)))
    assert stated.count == 2
    needed = memory(job.operations, job.machine, stated.allowed).total
    found = memory(job.operations, job.machine, search(job).allowed).total
    assert (needed > job.machine.memory_bytes).all()
    assert (found <= room(job.machine, job.headroom)).all()


def test_where_nothing_fits_the_layout_of_least_memory_is_shown():
    """Of every way of sharding and recomputing, at degrees that are left open."""
    job = setup("llama3-8b", "dgx-1v", k=(1,))
    _, logs = centre(job, shipped_beliefs())
    shown, refusals = choose(job, logs)
    assert refusals.tolist() == [Refusal.MEMORY]
    needed = float(memory(job.operations, job.machine, shown).total[0])
    for sharding in ("ddp", "zero1", "zero2", "fsdp"):
        for recompute in ("none", "full"):
            layout = Layout(sharding=sharding, recompute=recompute, micro_batch=1)
            other, _ = choose(setup("llama3-8b", "dgx-1v", k=(1,), layout=layout), logs)
            assert needed <= float(memory(job.operations, job.machine, other).total[0]) * (1 + 1e-9)
