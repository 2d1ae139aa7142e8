"""`compare`: what differs, what each difference did, and that the order does not matter."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.decide.differing import changes
from perfmodel.decide.gate.inputs import dump
from perfmodel.explain.comparison import compare
from perfmodel.results.envelope import plain
from perfmodel.specs.jobs import load_job


def job(workload="resnet50", cluster="dgx-a100", k="8..64", **more):
    words = {"workload": workload, "cluster": cluster, "k": k, **more}
    if words.get("regime") != "weak":
        words.setdefault("global_batch", 4096)
    return load_job(None, overrides=words)


def told(a, b, **more):
    return plain(compare(a, b, draws=50, **more).result)


def names(a, b):
    return [change.name for change in changes(dump(a), dump(b))]


def test_a_job_against_itself_has_no_causes():
    result = told(job(), job())
    assert result["changes"] == []
    assert "same" in result["answer"]
    assert result["time_ratio"] == [1.0] * len(result["k"])


def test_notes_of_one_side_carry_its_name():
    notes = told(job(), job(price={"fixed": "400 USD/h"}), names=("before", "after"))["notes"]
    assert any(note.startswith("after: ") for note in notes)
    assert not any(note.startswith(("A: ", "B: ")) for note in notes)


def test_one_change_explains_everything():
    a, b = job(), job(global_batch=8192)
    result = told(a, b)
    assert [row["input"] for row in result["changes"]] == ["global_batch"]
    at = result["k"].index(result["at_k"])
    assert result["changes"][0]["effect"] == pytest.approx(result["time_ratio"][at] - 1.0, rel=1e-9)
    assert result["attribution"]["interaction"] == pytest.approx([0.0] * len(result["k"]), abs=1e-12)


def test_the_factors_of_the_sentence_multiply_to_the_speed():
    a = job("llama3-8b", "dgx-a100", k="256", global_batch=512)
    b = job("gpt2-xl", "dgx-h100", k="256", global_batch=1024, framework="mxnet", precision="fp16")
    result = told(a, b)
    speed, factors = result["answer"].split(" runs ")[1].split(". ")[0].split("): ")
    assert "interaction" in factors
    product = np.prod([float(word.rpartition(" ")[2].strip("x")) for word in factors.split(", times ")])
    assert product == pytest.approx(float(speed.split("x")[0]), rel=0.02)
    assert product == pytest.approx(1.0 / result["time_ratio"][0], rel=0.02)


def test_more_changes_than_are_told_one_by_one_are_told_by_group():
    work = {"name": "mine", "flop_per_sample": "24 GFLOP", "bytes_per_sample": "400 MB", "params": 25_000_000}
    other = work | {"flop_per_sample": "48 GFLOP", "bytes_per_sample": "800 MB"}
    a, b = dump(job(work)), dump(job(other, cluster="dgx-h100", precision="tf32"))
    every = [change.name for change in changes(a, b)]
    fewer = changes(a, b, most=len(every) - 1)
    assert [change.name for change in fewer] == [*every[:-2], "workload"]
    assert fewer[-1].after == "bytes_per_sample 800 MB, flop_per_sample 48 GFLOP"
    assert [change.name for change in changes(a, b, most=1)] == ["cluster", "precision", "price", "workload"]


def test_batches_that_differ_are_compared_by_the_sample():
    result = told(job(steps=10), job(global_batch=8192))
    for key, whole in (("time_s", 1), ("cost_usd", 10)):
        assert np.array(result["per_sample"]["a"][key]) * 4096 * whole == pytest.approx(result["a"][key])
        assert np.array(result["per_sample"]["b"][key]) * 8192 == pytest.approx(result["b"][key])


def test_two_changes_leave_no_interaction():
    """The mean of first-in and last-in is the Shapley value of two players: it leaves nothing over."""
    result = told(job(), job(precision="tf32", framework="mxnet"))
    assert len(result["attribution"]["effects"]) == 2
    assert result["attribution"]["interaction"] == pytest.approx([0.0] * len(result["k"]), abs=1e-9)


def test_the_way_back_is_the_inverse():
    a, b = job(), job(cluster="dgx-h100", precision="fp16")
    there, back = told(a, b), told(b, a)
    effects = [
        {
            row["input"]: np.log1p(np.array(row["effect"], dtype=float))
            for row in side["attribution"]["effects"]
        }
        for side in (there, back)
    ]
    assert set(effects[0]) == set(effects[1])
    for name, values in effects[0].items():
        assert values == pytest.approx(-effects[1][name], abs=1e-9)


def test_another_cluster_differs_in_pieces():
    found = names(job(), job(cluster="dgx-h100"))
    assert {"cluster: accelerator", "cluster: scale-up", "cluster: network"} <= set(found)
    result = told(job(), job(cluster="dgx-h100"))
    largest = result["changes"][0]
    assert largest["input"] == "cluster: accelerator"
    assert largest["after"] == "h100-sxm5-80gb"
    assert largest["effect"] < 0


def test_a_link_of_the_same_cluster_is_one_change():
    fast = load_job(None, overrides={
        "workload": "resnet50", "cluster": "dgx-a100", "k": "8..64", "global_batch": 4096,
        "cluster.scale_out.bandwidth": "1 GB/s"})  # fmt: skip
    result = told(job(), fast)
    assert [row["input"] for row in result["changes"]] == ["cluster.scale_out.bandwidth"]
    assert result["changes"][0]["before"] == "25 GB/s"
    assert result["changes"][0]["effect"] > 0


def test_price_changes_cost_and_not_time():
    result = told(job(price={"per_accelerator": "2 USD/h"}), job(price={"per_accelerator": "3 USD/h"}))
    row = result["changes"][0]
    assert row["input"] == "price"
    assert row["effect"] == pytest.approx(0.0, abs=1e-12)
    assert row["cost_effect"] == pytest.approx(0.5)
    assert "2 USD/h" in row["before"]


def test_names_and_ranges_are_no_causes():
    assert names(job(name="one", k="8"), job(name="two", k="16")) == []


def test_both_sides_stand_on_one_ladder():
    result = told(job(k="8,16"), job(k="16,64"), at=16)
    assert result["k"] == [8, 16, 64]
    assert len(result["a"]["time_s"]) == len(result["b"]["time_s"]) == 3
    assert result["at_k"] == 16


def test_regimes_are_compared_by_throughput():
    result = told(job(k="64", global_batch=64 * 64), job(k="64", regime="weak", batch_per_accelerator=64))
    assert result["time_ratio"] == pytest.approx([1.0], rel=1e-9)
    assert names(job(), job(regime="weak", batch_per_accelerator=64)) == ["regime and batch"]


def test_equal_speed_is_the_fewest_that_are_as_fast():
    result = told(job(cluster="dgx-1v", k="8..64"), job(cluster="dgx-h100", k="2..64"))
    k, a, b = result["k"], result["a"]["time_s"], result["b"]["time_s"]
    for row in result["equal_speed"]:
        i = k.index(row["k_a"])
        enough = [n for n, t in zip(k, b, strict=True) if t is not None and t <= a[i] * (1 + 1e-9)]
        assert row["k_b"] == (enough[0] if enough else None)
    assert any(row["k_b"] is not None and row["k_b"] < row["k_a"] for row in result["equal_speed"])


def test_a_change_that_is_impossible_first_counts_as_it_comes_last():
    a = job("llama3-8b", "dgx-h100", k="96", global_batch=512, layout={"tp": 2})
    b = job("bert-large", "dgx-h100", k="96", global_batch=512, layout={"tp": 2, "pp": 6})
    result = told(a, b)
    logs = [
        np.nan_to_num(np.log1p(np.array(row["effect"], dtype=float)))
        for row in result["attribution"]["effects"]
    ]
    total = np.sum(logs, axis=0) + np.log1p(np.array(result["attribution"]["interaction"], dtype=float))
    assert np.exp(total) == pytest.approx(np.array(result["time_ratio"], dtype=float), rel=1e-9)


def test_a_band_beside_the_ratio():
    result = told(job(), job(cluster="dgx-h100"))
    at = result["k"].index(result["at_k"])
    assert result["time_ratio_low"][at] < result["time_ratio"][at] < result["time_ratio_high"][at]


def test_a_ratio_is_no_less_certain_than_the_two_times_are_apart():
    result = told(job(k="64"), job(cluster="dgx-h100", k="64"))

    def reach(name):
        return np.log(result[name]["time_s_high"][0] / result[name]["time_s"][0])

    for end in ("low", "high"):
        width = abs(np.log(result[f"time_ratio_{end}"][0] / result["time_ratio"][0]))
        assert 0.0 < width <= np.hypot(reach("a"), reach("b")) * (1.0 + 1e-9)


def test_no_k_in_common():
    result = told(
        job("llama3-70b", "dgx-h100", k="4", global_batch=64),
        job("llama3-8b", "dgx-h100", k="4", global_batch=64),
    )
    assert result["at_k"] is None
    assert "no K in common that both can run: " in result["answer"]
    assert result["a"]["reason"][-1] in result["answer"]


def test_another_grid_is_told_by_what_it_emits():
    result = told(job(grid="FRA"), job(grid="POL"))
    emitted = [result["per_sample"][side]["carbon_g"][-1] for side in ("a", "b")]
    assert f"emits {emitted[1] / emitted[0]:.3g}x the CO2" in result["answer"]
    assert "runs as fast as" in result["answer"]
    assert "1x" not in result["answer"].replace("11.8x", "")
    assert any(note.endswith("costs: grid.") for note in result["notes"])
    assert result["a"]["rests_on"]["grid"]["value"].startswith("FRA: ")
    assert "PUE 1.25" in result["a"]["rests_on"]["power"]["value"]


def test_a_change_that_can_only_help_is_not_uncertain():
    work = {"name": "mine", "flop_per_sample": "24 GFLOP", "bytes_per_sample": "400 MB", "params": 25_000_000}
    slow, quick = (job(work | {"serial_time": t}, k="64") for t in ("300 ms", "30 ms"))
    result = told(slow, quick)
    assert result["time_ratio_low"][0] < result["time_ratio"][0]
    assert result["time_ratio_high"][0] <= 1.0
    assert "no more than is uncertain" not in result["answer"]


def test_one_accelerator_is_unknown_alike_on_both_sides():
    alike = told(job(k="64"), job(k="64", global_batch=8192))
    apart = told(job(k="64"), job("resnet50", "dgx-h100", k="64"))

    def width(result):
        return np.log(result["time_ratio_high"][0] / result["time_ratio_low"][0])

    assert width(alike) < 0.6 * width(apart)
