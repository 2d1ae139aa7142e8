"""The whole run: its bands, and the chance to keep a deadline or a budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide.goodput import Reliability
from perfmodel.decide.prediction import predict
from perfmodel.decide.pricing import Tariff, per_hour
from perfmodel.decide.wholerun import whole_run
from perfmodel.results.envelope import plain
from perfmodel.specs.jobs import load_job

PRICE = Tariff("on-demand", per_hour(2.0))
FAILING = Tariff(
    "on-demand", per_hour(2.0), interruptions=Reliability(mtbf_per_accelerator_s=5e6, checkpoint_s=30)
)


def test_the_chance_is_that_of_many_simulated_runs():
    """Against draws of step time and failures made one by one, by another road than the formulas."""
    rng = np.random.default_rng(1)
    sigma = np.log(1.1) / 1.6448536
    k, steps, limit = 64, 100_000, 111_000.0
    found = whole_run([k], [1.0], [1.1], steps, FAILING, deadline_s=limit)
    rate = k / 5e6
    interval = float(FAILING.interruptions.checkpoint_interval_s([k])[0])
    restart = FAILING.interruptions.restart_s
    times = []
    for work in steps * np.exp(sigma * rng.standard_normal(3000)):
        wall = done = 0.0
        while done < work:
            need = min(interval, work - done) + 30
            fails = rng.exponential(1 / rate)
            if fails < need:
                wall += fails + restart
            else:
                wall += need
                done += interval
        times.append(wall)
    assert found.deadline_probability[0] == pytest.approx(np.mean(np.array(times) <= limit), abs=0.03)
    assert found.time_s_low[0] == pytest.approx(np.quantile(times, 0.05), rel=0.02)
    assert found.time_s_high[0] == pytest.approx(np.quantile(times, 0.95), rel=0.02)


@given(high=st.floats(1.01, 2.0), limit=st.floats(0.2, 5.0), more=st.floats(1.0, 2.0), failing=st.booleans())
def test_a_later_deadline_is_never_less_likely(high, limit, more, failing):
    tariff = FAILING if failing else PRICE

    def chance(factor):
        run = whole_run([8, 64], [1.0, 0.3], [high, 0.3 * high], 50_000, tariff,
                        deadline_s=50_000 * factor, budget_usd=200 * factor)  # fmt: skip
        return np.concatenate([run.deadline_probability, run.budget_probability])

    first, later = chance(limit), chance(limit * more)
    assert ((first >= 0) & (first <= later + 1e-9) & (later <= 1)).all()


def test_the_ends_of_the_band_are_missed_by_one_run_in_twenty():
    run = whole_run([8], [2.0], [2.6], 1000, PRICE)
    for limit, chance in ((run.time_s_low[0], 0.05), (run.time_s[0], 0.5), (run.time_s_high[0], 0.95)):
        found = whole_run(
            [8], [2.0], [2.6], 1000, PRICE, deadline_s=limit, budget_usd=limit * 8 * per_hour(2.0)
        )
        assert found.deadline_probability[0] == pytest.approx(chance, abs=0.005)
        assert found.budget_probability[0] == pytest.approx(chance, abs=0.005)


def test_an_infeasible_k_has_no_run():
    run = whole_run([8, 16], [np.nan, 1.0], [np.nan, 1.2], 100, FAILING, deadline_s=200.0)
    assert np.isnan([run.time_s[0], run.time_s_high[0], run.cost_usd[0], run.deadline_probability[0]]).all()
    assert np.isfinite([run.time_s[1], run.cost_usd[1], run.deadline_probability[1]]).all()


def result(workload="llama3-8b", **more):
    words = {"workload": workload, "cluster": "dgx-h100", "k": "8..128", **more}
    return plain(predict(load_job(None, overrides=words), draws=20).result)


def test_a_prediction_has_the_run_where_its_length_is_known():
    assert result(global_batch=128)["run"] is None
    found = result(global_batch=128, steps=1000, deadline="20 min")
    run = found["run"]
    assert run["time_s"] == pytest.approx([1000 * t for t in found["time_s"]])
    assert run["cost_usd"] == pytest.approx(found["cost_usd"])
    assert found["cost_usd_low"] == run["cost_usd_low"]
    assert all(
        low < t < high
        for low, t, high in zip(run["time_s_low"], run["time_s"], run["time_s_high"], strict=True)
    )
    assert run["deadline_probability"] == sorted(run["deadline_probability"])
    assert set(run["budget_probability"]) == {None}


def test_in_weak_scaling_a_run_of_tokens_has_fewer_steps_at_larger_k():
    run = result(batch_per_accelerator=2, tokens="1 G")["run"]
    steps = run["steps"]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]
    assert run["time_s"] == sorted(run["time_s"], reverse=True)


def test_rates_belong_together():
    found = result(global_batch=128, seq_len=4096)
    for i, k in enumerate(found["k"]):
        assert found["tokens_per_s_per_accelerator"][i] == pytest.approx(found["throughput"][i] * 4096 / k)
        assert found["mfu"][i] == pytest.approx(
            found["tflop_per_s_per_accelerator"][i] * 1e12 / 989.4e12, rel=0.01
        )
        assert 0 < found["mfu"][i] < 1
    # The usual estimate of six FLOP a parameter and token, attention and the embedding aside.
    each = found["tflop_per_s_per_accelerator"][0] * 1e12 / found["tokens_per_s_per_accelerator"][0]
    assert each == pytest.approx(6 * 8.03e9, rel=0.15)


def test_what_makes_no_sense_is_null():
    images = result("resnet50", global_batch=1024)
    assert set(images["tokens_per_s_per_accelerator"]) == {None}
    assert all(images["samples_per_s_per_accelerator"])
