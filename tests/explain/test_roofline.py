"""Phases under the roofline: nothing above a roof, nothing lost, and the move to the left as batches shrink."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.explain.roofline import phases, roofline
from perfmodel.physics.compute import micro_batch
from perfmodel.results.envelope import plain
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import coefficients, curve
from perfmodel.training.setup import setup_of


def job(workload="llama3-8b", cluster="dgx-h100", k="8,64,512", **more):
    return load_job(
        None, overrides={"workload": workload, "cluster": cluster, "k": k, "global_batch": 512, **more}
    )


@pytest.mark.parametrize(
    ("workload", "more"),
    [
        ("llama3-8b", {}),
        ("llama3-8b", {"layout": {"tp": 4, "pp": 2, "recompute": "full"}}),
        ("mixtral-8x7b", {"k": "64,128", "layout": {"ep": 8}}),
        ("resnet50", {}),
        ("bert-large", {}),
    ],
)
def test_the_phases_are_the_arithmetic_of_the_step_model(workload, more):
    found = curve(setup_of(job(workload, **more)), shipped_beliefs(), draws=0)
    c = coefficients(found.setup, found.logs[:, None], found.k)
    mb = micro_batch(found.setup.operations, found.setup.machine, found.at, c)
    counted = found.at.accumulation * (mb.device + mb.last)
    rows = [phase for phase in phases(found, c) if phase.name != "optimizer"]
    total = sum(np.broadcast_to(phase.time_s, found.k.shape) for phase in rows)
    assert total == pytest.approx(np.broadcast_to(counted, found.k.shape), rel=1e-9)


@pytest.mark.parametrize("workload", ["llama3-8b", "resnet50", "mixtral-8x7b"])
def test_no_product_is_above_what_kernels_reach(workload):
    result = plain(roofline(job(workload, k="64,256")).result)
    for row in result["phases"]:
        if not row["name"].startswith(("product", "experts", "element-wise", "optimizer")):
            continue
        for intensity, rate in zip(row["intensity_flop_per_byte"], row["flop_per_s"], strict=True):
            roof = min(result["achievable_flop_per_s"], intensity * result["achievable_bytes_per_s"])
            assert rate <= roof * 1.02
            assert rate <= result["peak_flop_per_s"]


def test_smaller_batches_move_products_to_the_left():
    result = plain(roofline(job("llama3-8b", k="64", layout={"sharding": "fsdp", "micro_batch": 8})).result)
    other = plain(roofline(job("llama3-8b", k="512", layout={"sharding": "fsdp", "micro_batch": 1})).result)
    rows = [{row["name"]: row for row in one["phases"]} for one in (result, other)]
    for name in rows[0]:
        if name.startswith("product"):
            assert rows[1][name]["intensity_flop_per_byte"][0] < rows[0][name]["intensity_flop_per_byte"][0]


def test_every_row_is_aligned_and_the_bound_is_a_word():
    result = plain(roofline(job()).result)
    assert result["ridge_flop_per_byte"] == pytest.approx(
        result["peak_flop_per_s"] / result["memory_bandwidth_bytes_per_s"]
    )
    for row in result["phases"]:
        for key in ("intensity_flop_per_byte", "flop_per_s", "time_s", "bound"):
            assert len(row[key]) == len(row["k"])
        assert set(row["bound"]) <= {"compute", "memory", "launch"}
    assert all(0 < value < 1 for value in result["model_flop_utilisation"])
    kinds = {row["name"]: row["bound"][0] for row in result["phases"]}
    assert kinds["element-wise"] == "memory"
    assert kinds["optimizer"] == "memory"


def test_what_does_not_fit_has_a_reason_and_no_phase():
    result = plain(roofline(job("gpt3-175b", k="1,2")).result)
    assert result["phases"] == []
    assert all(result["reason"])
    assert result["answer"].startswith("Nothing fits")


def test_what_is_executed_stays_below_the_peak():
    """VGG's 3x3 convolutions multiply less than is counted in 32 bit."""
    for precision in ("fp32", "bf16"):
        result = plain(roofline(job("vgg16", "dgx-a100", "1,8", precision=precision)).result)
        assert any("Winograd" in note for note in result["notes"]) == (precision == "fp32")
        assert all(
            rate < result["peak_flop_per_s"] for phase in result["phases"] for rate in phase["flop_per_s"]
        )


def test_logits_that_wait_for_narrow_loads_are_bound_by_compute():
    """50,257 words, odd: their product runs at a fraction of the peak, far from the memory's roof."""
    eager = {"framework": "pytorch_eager", "cluster": "dgx-a100", "k": "8", "layout": {"tp": 1}}
    row = next(
        row
        for row in plain(roofline(job("gpt2-small", **eager)).result)["phases"]
        if row["name"] == "logits and loss"
    )
    assert row["bound"] == ["compute"]
    assert row["flop_per_s"][0] < 0.5 * 312e12


def test_deep_cuts_leave_products_that_wait_for_their_last_tiles():
    """Four tensor ranks leave each a few tiles: what no roof explains outweighs the arithmetic."""
    found = plain(roofline(job("gpt2-small", k="16", global_batch=4, layout={"tp": 4})).result)
    bounds = {row["name"]: row["bound"] for row in found["phases"] if row["name"].startswith("product")}
    assert bounds
    assert all(bound == ["launch"] for bound in bounds.values())
