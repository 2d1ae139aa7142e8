"""The K that a slightly different batch opens."""

from __future__ import annotations

import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.decide.plan.near import batches, near_k
from perfmodel.decide.plan.planner import Request
from perfmodel.decide.plan.run import plan_job
from perfmodel.specs.jobs import load_job


def plan(batch, objective="cost", **more):
    words = {
        "workload": "llama3-8b",
        "cluster": "dgx-h100",
        "k": "8..256",
        "tokens": "100 G",
        "seq_len": 8192,
    }
    job = load_job(None, overrides={**words, "global_batch_tokens": batch, **more})
    return plan_job([job], Request(objective=objective, draws=20), shipped_beliefs()).result.result


def test_a_batch_with_room_opens_k_between_the_powers_of_two():
    found = plan("4M +-10 %")
    rows = found["near_batches"]
    assert rows
    for row in rows:
        assert 440 <= row["global_batch"] <= 537
        assert row["global_batch"] != 488
        assert row["stated_cost_usd"] is None or row["cost_usd"] < row["stated_cost_usd"]
    assert [row["cost_usd"] for row in rows] == sorted(row["cost_usd"] for row in rows)
    assert any(f"K = {rows[0]['k']}" in note and "USD" in note for note in found["notes"])


def test_an_exact_batch_opens_nothing():
    assert "near_batches" not in plan("4M")


def test_the_stated_batch_at_a_near_k_is_what_plan_says_there():
    rows = {row["k"]: row for row in plan("4M +-10 %")["near_batches"]}
    k = next(iter(rows))
    alone = plan("4M", k=str(k))["by_k"][0]
    assert rows[k]["stated_wall_s"] == pytest.approx(alone["wall_s"], rel=1e-9)
    assert rows[k]["stated_cost_usd"] == pytest.approx(alone["cost_usd"], rel=1e-9)


def test_near_k_are_whole_nodes_within_the_limit():
    assert all(k % 8 == 0 and k <= 150 for k in near_k(128, 8, 150))
    assert near_k(1, 8, 8) == [1, 2]
    assert batches(64, (10, 20), 15) == [16]
