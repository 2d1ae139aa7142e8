"""The graph of a job's own step: its work is the step model's, its span one chain, its speedup within Brent's bounds."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.decide.prediction import curve_of
from perfmodel.explain.work_depth import _grain as grain
from perfmodel.explain.work_depth import of_job, step_graph
from perfmodel.physics.workdepth import work_depth
from perfmodel.specs.jobs import load_job


def job(**said):
    usual = {"workload": "pythia-1b", "cluster": "dgx-a100", "k": "8..64", "global_batch": 64}
    return load_job(None, overrides={**usual, "layout": {"micro_batch": 1, "sharding": "ddp"}, **said})


def test_work_is_the_arithmetic_of_the_step_and_does_not_depend_on_the_grain():
    found = curve_of(job(), shipped_beliefs(), draws=0)
    parts = found.parts
    arithmetic = float((parts["compute"][0]) * 8)
    works = [
        work_depth(step_graph(found, 0, grain(found, 0, n, p))).work_s for n, p in ((1, 1), (4, 1), (1, 4))
    ]
    assert works == pytest.approx([works[0]] * 3)
    assert arithmetic < works[0] < 1.2 * arithmetic  # the rest is the optimizer, once for all replicas


def test_speedup_lies_between_brents_bounds_and_below_work_over_span():
    result = of_job(job(k="1..1024"), samples=1).result
    made, low, high = (np.asarray(result[key]) for key in ("greedy_s", "brent_low_s", "brent_high_s"))
    assert (low <= made * (1 + 1e-9)).all()
    assert (made <= high * (1 + 1e-9)).all()
    speedup = np.asarray(result["speedup"])
    assert (np.diff(speedup) >= -1e-9).all()
    assert speedup[-1] <= result["parallelism"] * (1 + 1e-9)
    # 64 samples, one accelerator each: no more than 64 of them can be busy with layers at once.
    assert 50 < result["parallelism"] < 64


def test_more_samples_in_an_operation_leave_less_to_do_side_by_side():
    one, four = (of_job(job(), samples=n).result["parallelism"] for n in (1, 4))
    assert four == pytest.approx(one / 4, rel=0.2)


def test_pieces_of_tensor_parallelism_shorten_the_span():
    plain, cut = (of_job(job(layout={"tp": tp, "micro_batch": 1, "sharding": "ddp"})).result for tp in (1, 8))
    assert (plain["pieces"], cut["pieces"]) == (1, 8)
    assert cut["parallelism"] > 6 * plain["parallelism"]


def test_a_pipeline_is_followed_pass_by_pass():
    found = of_job(job(layout={"pp": 4, "micro_batch": 1, "sharding": "ddp"})).result["pipeline"]
    assert found["stages"] == 4
    assert found["micro_batches"] == 32
    assert found["bubble_of_equal_stages"] == pytest.approx(3 / 35)
    assert found["bubble_of_equal_stages"] < found["idle_share"] < 0.5  # the last stage has the logits too
    assert of_job(job()).result["pipeline"] is None
