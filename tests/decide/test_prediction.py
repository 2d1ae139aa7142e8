"""A whole prediction: definitions, knees with causes and remedies, prices, impossible layouts."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.decide.knee_causes import in_words
from perfmodel.decide.prediction import predict
from perfmodel.decide.remedies import after_remedy
from perfmodel.errors import SpecError
from perfmodel.results.envelope import plain
from perfmodel.specs.jobs import load_job
from perfmodel.training.step import PARTS

ALIGNED = (
    "time_s", "time_s_low", "time_s_high", "speedup", "efficiency", "throughput", "memory_bytes", "feasible",
    "reason", "layout", "cost_usd", "energy_j", "carbon_g", "hidden_s", "cost_usd_low", "cost_usd_high", "energy_j_low",
    "energy_j_high", "carbon_g_low", "carbon_g_high",
)  # fmt: skip


def job(workload="resnet50", cluster="dgx-a100", **more):
    words = {"workload": workload, "cluster": cluster, "k": "1..256", **more}
    if words.get("regime") != "weak":
        words.setdefault("global_batch", 2048)
    return load_job(None, overrides=words)


def answer(*args, draws=100, **more):
    return predict(job(*args, **more), draws=draws).result


def array(result, key):
    return np.array([np.nan if value is None else value for value in plain(result[key])], dtype=float)


def test_every_array_is_aligned_with_k():
    result = answer(steps=1000, grid="US-VA")
    for key in ALIGNED:
        assert len(result[key]) == len(result["k"]), key
    for group in ("parts_s", "ledger_accelerator_s"):
        assert set(result[group]) == set(PARTS)
        assert all(len(values) == len(result["k"]) for values in result[group].values())
    for rule in ("threshold", "curvature", "marginal"):
        assert {"k", "k_low", "k_high", "cause", "remedy", "k_after_remedy", "at_risk_from_k"} <= set(
            result["knee"][rule]
        )
    assert array(result, "carbon_g").min() > 0


@pytest.mark.parametrize("regime", ["strong", "weak"])
def test_ledger_parts_and_definitions(regime):
    words = {"regime": regime} | ({"batch_per_accelerator": 32} if regime == "weak" else {})
    result = answer(**words)
    k, time = np.asarray(result["k"], float), array(result, "time_s")
    assert sum(np.asarray(v) for v in result["parts_s"].values()) == pytest.approx(time, rel=1e-9)
    lost = k * time - k[0] * time[0] if regime == "strong" else k * (time - time[0])
    entries = sum(np.asarray(v) for v in result["ledger_accelerator_s"].values())
    assert np.allclose(entries, lost, atol=1e-9 * np.max(k * time))
    efficiency = time[0] / time if regime == "weak" else k[0] * time[0] / (k * time)
    assert array(result, "efficiency") == pytest.approx(efficiency, rel=1e-12)
    assert array(result, "speedup") == pytest.approx(k * efficiency, rel=1e-12)
    batch = 32 * k if regime == "weak" else 2048
    assert array(result, "throughput") == pytest.approx(batch / time, rel=1e-12)


def test_cost_is_price_times_accelerators_times_time():
    result = answer(steps=500, price={"per_accelerator": "2 USD/h", "fixed": "10 USD/h"})
    k, time = np.asarray(result["k"], float), array(result, "time_s")
    assert array(result, "cost_usd") == pytest.approx((2 * k + 10) / 3600 * time * 500, rel=1e-9)
    assert result["cost_basis"] == "500 steps"
    best = int(np.argmin(array(result, "cost_usd")))
    assert result["p_star"]["k"] == k[best]
    assert result["p_star"]["time_s"] == time[best]
    assert result["p_star"]["run_s"] == pytest.approx(500 * time[best])
    assert result["fastest"]["k"] == k[int(np.argmin(time))]


def test_weak_cost_is_per_unit_of_work():
    result = answer(regime="weak", batch_per_accelerator=32, price={"per_accelerator": "2 USD/h"})
    k, time = np.asarray(result["k"], float), array(result, "time_s")
    assert array(result, "cost_usd") == pytest.approx(2 * k / 3600 * time / (k / k[0]), rel=1e-9)


def test_without_fixed_cost_no_price_moves_p_star():
    cheap, dear = (answer(price={"per_accelerator": p})["p_star"]["k"] for p in ("0.5 USD/h", "50 USD/h"))
    assert cheap == dear


def test_a_price_that_nobody_knows_is_null():
    result = answer("llama3-8b", "gb200-nvl72", k="8,16", global_batch=512)
    if result["rests_on"]["price"]["value"] == "unknown":
        assert np.isnan(array(result, "cost_usd")).all()
        assert result["p_star"]["cost_usd"] is None
    assert result["p_star"]["k"] in (8, 16)


def test_when_one_accelerator_is_too_small_the_baseline_moves():
    result = answer("llama3-8b", "dgx-h100", k="1..64", global_batch=512)
    base = result["baseline_k"]
    assert base > 1
    index = list(result["k"]).index(base)
    assert array(result, "speedup")[index] == base
    assert array(result, "efficiency")[index] == 1.0
    assert np.isnan(array(result, "speedup")[:index]).all()
    assert all(result["reason"][:index])


def test_nothing_fits_is_an_answer_too():
    result = answer("gpt3-175b", k="1,2", global_batch=64)
    assert not any(result["feasible"])
    assert all(result["reason"])
    assert result["p_star"]["k"] is None
    assert result["knee"]["threshold"]["k"] is None
    for key in ALIGNED:
        assert len(result[key]) == 2, key


def keys_of(value, under=""):
    """Every key of a result with those above it, as far as mappings go."""
    if not isinstance(value, dict):
        return {under}
    return {under}.union(*(keys_of(inner, f"{under}.{key}") for key, inner in value.items()))


@pytest.mark.parametrize("regime", [{"global_batch": 64}, {"regime": "weak", "batch_per_accelerator": 8}])
def test_where_nothing_fits_the_keys_are_the_same(regime):
    nothing, some = (answer("gpt3-175b", "dgx-h100", k=k, **regime) for k in ("1,2", "256,512"))
    assert not any(nothing["feasible"])
    assert any(some["feasible"])
    near = {f".nearest.{name}" for name in ("k", "layout", "time_s", "memory_bytes")}
    assert {key for key in keys_of(nothing) if not key.startswith(".nearest.")} == keys_of(some)
    assert near <= keys_of(nothing)
    assert nothing["cost_basis"] == some["cost_basis"]


def test_the_knee_by_threshold_comes_no_later_than_the_middle_falls_below_it():
    """Odds under one half declare it where the middle is still above, on this curve at most one doubling before."""
    found = predict(job(k="1..1024"), draws=50, threshold=0.8).result
    k, efficiency = np.asarray(found["k"]), array(found, "efficiency")
    knee = found["knee"]["threshold"]
    last = k[efficiency >= 0.8].max()
    assert last / 2 <= knee["k"] <= last
    assert "% of the step at K=" in knee["cause"]
    assert knee["remedy"]
    assert knee["k_after_remedy"] >= knee["k"]


def test_a_knee_beyond_the_range_is_not_reached():
    for knee in answer(k="1,2", global_batch=4096)["knee"].values():
        assert knee["k"] is None
        assert "not reached" in knee["cause"]
        assert knee["k_after_remedy"] is None


def test_the_knee_after_a_remedy_is_found_by_the_same_rule():
    found = predict(job(cluster="dgx-h100", k="8..1024", global_batch=1024), draws=50)
    knee = found.result["knee"]["marginal"]
    k, mended = found.curve.k, after_remedy(found.curve, knee["cause_part"])
    beyond = list(k).index(knee["k"]) + 1
    assert found.curve.time_s[beyond] >= found.curve.time_s[beyond - 1]
    assert knee["remedy_saves"] == pytest.approx(1.0 - mended[beyond] / found.curve.time_s[beyond])
    last_that_gains = k[:-1][np.diff(1 / mended) <= 0]
    assert knee["k_after_remedy"] == (last_that_gains[0] if last_that_gains.size else k[-1])


def test_the_cause_is_what_a_remedy_saves_most_of():
    made = predict(job(k="1..1024"), draws=50)
    found, knee = made.result, made.result["knee"]["threshold"]
    index = list(found["k"]).index(knee["k"]) + 1
    lost = {name: values[index] for name, values in found["ledger_accelerator_s"].items()}
    saves = {name: 1.0 - after_remedy(made.curve, name)[index] / made.curve.time_s[index] for name in lost}
    assert knee["cause_part"] == max((name for name in lost if lost[name] > 0), key=lambda name: saves[name])


def test_arithmetic_is_a_cause_by_what_it_loses_not_by_what_it_takes():
    asked = job("llama3-8b", "dgx-h100", k="8..1024", global_batch=128)
    found = predict(asked, draws=50)
    k, time = array(found.result, "k"), array(found.result, "time_s")
    compute = np.asarray(found.result["parts_s"]["compute"])
    lost = {name: np.asarray(values) for name, values in found.result["ledger_accelerator_s"].items()}
    share = (compute[-1] - compute[0] * k[0] / k[-1]) / time[-1]
    words = in_words(found.curve, "compute", len(k) - 1, lost)
    assert words.endswith(f"loses {share:.0%} of the step at K=1024")
    assert 0 < share < 0.5 * compute[-1] / time[-1]


def test_a_slow_network_is_named_as_the_cause():
    link = {"name": "slow", "latency": "50 us", "bandwidth": "0.2 GB/s"}
    cluster = {"node": "hgx-a100", "nics_per_node": 1, "scale_out": link}
    knee = answer("bert-large", cluster, k="1..256", global_batch=512)["knee"]["threshold"]
    assert knee["cause_part"] == "data_parallel"
    assert "inter-node" in knee["cause"]


def test_a_serial_stage_is_named_as_the_cause():
    work = {"name": "mine", "flop_per_sample": "24 GFLOP", "bytes_per_sample": "400 MB", "params": 25_000_000,
            "serial_time": "200 ms"}  # fmt: skip
    knee = answer(work, k="1..256", global_batch=4096)["knee"]["threshold"]
    assert knee["cause_part"] == "serial"
    assert "serial" in knee["remedy"]


@pytest.mark.parametrize(
    ("layout", "words"),
    [({"micro_batch": 4096}, "batch"), ({"cp": 3}, "sequence")],
)
def test_a_layout_that_is_impossible_at_every_k_is_bad_input(layout, words):
    made = job("llama3-8b", "dgx-h100", k="60,120", global_batch=512, layout=layout)
    with pytest.raises(SpecError, match=words):
        predict(made, draws=0)


def test_three_numbers_are_enough():
    work = {
        "name": "mine",
        "flop_per_sample": 24.6e9,
        "bytes_per_sample": 4e8,
        "params": 25_600_000,
        "sample": "image",
    }
    result = answer(work, k="1,8,12,64", global_batch=4096)
    assert all(result["feasible"])
    # No accelerator beats its own peak.
    flop = 24.6e9 * array(result, "throughput") / np.asarray(result["k"], float)
    assert np.all(flop < 312e12)


def test_frozen_weights_are_quicker_and_smaller():
    base = {"k": "8", "global_batch": 64}
    full = answer("llama3-8b", "dgx-h100", **base)
    lora = predict(load_job(None, overrides={
        "workload": "llama3-8b", "cluster": "dgx-h100", **base, "workload.trainable_params": 20_000_000}), draws=0).result  # fmt: skip
    assert lora["time_s"][0] < full["time_s"][0]
    assert lora["memory_parts_bytes"]["optimizer"][0] < 0.01 * 12 * 8e9


def test_the_same_input_gives_the_same_bytes():
    assert predict(job(), seed=3).to_json() == predict(job(), seed=3).to_json()


def test_bands_of_ratios_are_narrower_than_bands_of_times():
    result = answer(draws=300)
    width = np.log(array(result, "time_s_high") / array(result, "time_s_low"))
    ratio = np.log(array(result, "efficiency_high") / array(result, "efficiency_low"))
    assert ratio[0] == 0.0
    assert np.all(ratio[:4] < width[:4])


def test_a_workload_without_any_work_is_refused():
    with pytest.raises(SpecError, match="nothing to predict from"):
        predict(job("rgat"))


def test_an_efficiency_above_one_is_explained():
    result = answer("falcon-40b", "dgx-h100", k="8,64", global_batch=2048)
    if np.nanmax(array(result, "efficiency")) > 1.05:
        assert any(note.startswith("efficiency above 1") for note in result["notes"])


def test_a_vocabulary_that_nobody_pads_is_told_with_what_padding_saves():
    """GPT-2's 50,257 words, against the same model with 50,264; Megatron pads by itself."""

    def run(vocab, **more):
        words = {"k": "1", "global_batch": 64, "framework": "pytorch_eager", "precision": "fp16"} | more
        asked = job("gpt2-medium", **words)
        asked = asked.model_copy(update={"workload": asked.workload.model_copy(update={"vocab": vocab})})
        result = predict(asked, draws=20).result
        return array(result, "time_s")[0], [note for note in result["notes"] if "multiple of 8" in note]

    (odd_s, told), (even_s, nothing) = run(50257), run(50264)
    saved = 1.0 - even_s / odd_s
    assert saved > 0.05
    assert told == [
        "50,257 words are no multiple of 8, and pytorch_eager does not pad them: rounded up, a step at K = 1 would "
        f"take {saved:.0%} less"
    ]
    assert nothing == []
    # A multiple of eight, of which each of eight ranks has an odd share.
    _, (cut,) = run(50264, k="8", layout={"tp": 8})
    assert cut.startswith("6,283 of 50,264 words on a rank are no multiple of 8")
    assert run(50257, framework="megatron_core")[1] == []


def test_a_large_network_that_is_no_transformer_is_sharded():
    result = answer("flux1", "dgx-h100", k="1,64", global_batch=4096)
    assert result["feasible"][1]
    assert result["layout"][1]["sharding"] != "ddp"
