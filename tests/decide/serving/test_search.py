"""The search of a service's options."""

from __future__ import annotations

import pytest

from perfmodel.decide.serving.search import Wanted, plan_serving
from perfmodel.serving.beliefs import textbook_beliefs

SLO = {"ttft": {"p99": "1 s"}, "tpot": {"p99": "30 ms"}}
FIXED = {"slo": SLO, "precision": "bf16", "kv_precision": "bf16", "max_batched_tokens": 8192}


def planned(service, block=None, wanted=None, clusters=("dgx-h100",)):
    jobs = [service(FIXED | (block or {}), cluster=name, price="2 USD/h").job for name in clusters]
    result, met = plan_serving(jobs, wanted or Wanted(), textbook_beliefs())
    return result.envelope()["result"], met


def ranks(layout):
    own = layout["tp"] * layout["pp"] * layout["dp"]
    if "prefill" not in layout:
        return own
    return layout["prefill_replicas"] * ranks(layout["prefill"]) + layout["decode_replicas"] * own


def test_candidates_keep_what_is_asked_and_come_cheapest_first(service):
    found, met = planned(service, {"demand": "40 /s"})
    assert met
    costs = [item["usd_per_million_tokens"] for item in found["candidates"]]
    assert costs == sorted(costs)
    for item in found["candidates"]:
        assert item["knee_requests_per_s"] * item["replicas"] >= 40 * (1 - 1e-9)
        assert item["tpot_p99_s"] <= 0.030 * 1.05
        assert item["accelerators"] == (item["replicas"] + 1) * ranks(item["layout"])


def test_the_front_is_one(service):
    front = planned(service)[0]["pareto"]
    users = [item["tokens_per_s_per_user"] for item in front]
    made = [item["tokens_per_s_per_accelerator"] for item in front]
    assert users == sorted(users, reverse=True)
    assert made == sorted(made)


def test_stricter_objectives_cost_more(service):
    lax = planned(service, {"demand": "40 /s"})[0]["candidates"][0]
    strict = planned(service, {"demand": "40 /s", "slo": {"ttft": {"p99": "1 s"}, "tpot": {"p99": "9 ms"}}})[
        0
    ]["candidates"][0]
    assert strict["usd_per_million_tokens"] > lax["usd_per_million_tokens"]


def test_a_budget_buys_whole_replicas_and_bounds_their_price(service):
    found, _ = planned(service, wanted=Wanted(budget_usd_per_s=10 / 3600))
    for item in found["candidates"]:
        assert 0 < item["usd_per_h"] <= 10 + 1e-9


def test_the_most_accelerators_are_a_limit(service):
    found, met = planned(service, {"demand": "400 /s"}, Wanted(most_accelerators=2))
    assert not met
    assert found["candidates"] == []


def test_what_nothing_keeps_is_no_candidate(service):
    found, met = planned(service, {"slo": {"tpot": {"p99": "0.1 ms"}}})
    assert not met
    assert found["feasible"] == 0
    assert found["refused"]["means beyond the slo"] == found["evaluated"]


@pytest.mark.parametrize("block", [{"max_batch": 17}, {"layout": {"tp": 4}}])
def test_what_the_job_states_is_not_searched(service, block):
    for item in planned(service, block)[0]["candidates"]:
        assert item["precision"] == item["kv_precision"] == "bf16"
        assert item["max_batch"] == 17 or "max_batch" not in block
        assert item["layout"]["tp"] == 4 or "layout" not in block


def test_hardware_is_compared(service):
    found, _ = planned(service, {"demand": "40 /s"}, clusters=("dgx-h100", "hgx-a100"))
    assert {item["cluster"] for item in found["candidates"]} == {"dgx-h100", "hgx-a100"}
    assert found["candidates"][0]["cluster"] == "dgx-h100"  # at the same price


def test_long_prompts_beside_quick_tokens_are_prefilled_apart(service):
    asked = {
        "input_tokens": 6000,
        "slo": {"ttft": {"p99": "3 s"}, "tpot": {"p99": "11 ms"}},
        "demand": "200 /s",
    }
    costs = {}
    for prefill in ("chunked", "disaggregated"):
        found, met = planned(service, asked | {"prefill": prefill})
        assert met
        assert all(
            ("prefill" in item["layout"]) == (prefill == "disaggregated") for item in found["candidates"]
        )
        costs[prefill] = found["candidates"][0]["usd_per_million_tokens"]
    both = planned(service, asked)[0]["candidates"][0]
    assert both["usd_per_million_tokens"] == min(costs.values())
    assert costs["disaggregated"] < costs["chunked"]


def test_only_engines_that_hand_caches_over_are_split(service):
    found, _ = planned(service, {"engine": "tgi"})
    assert all("prefill" not in item["layout"] for item in found["candidates"])
