"""What a study says: intervals, gate, cost, serving, straggler, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from perfmodel.errors import UsageError
from perfmodel.study.options import StudyOptions, parse_factors
from perfmodel.study.rubric import study
from perfmodel.study.table import Timings, parse_timings

CONTRACT = [
    "k",
    "mean_s",
    "std_s",
    "ci95_s",
    "speedup",
    "efficiency",
    "cost_usd",
    "cost_per_work",
    "work_per_usd",
    "marginal",
    "fits",
    "quality",
    "threshold",
    "regime",
    "parts_s",
    "energy_j",
    "latency_p99_s",
    "bend",
    "recommended_k",
    "cost_optimal_k",
    "fastest_k",
    "exchange",
    "checklist",
    "verdict",
]


def run(text: str, **options: Any) -> dict[str, Any]:
    return dict(study(parse_timings(text), StudyOptions(**options)).envelope()["result"])


CURVE = "k,time_s\n1,800\n2,430\n4,260\n8,206\n16,235\n"


def test_every_name_of_the_contract_is_there():
    result = run(CURVE)
    assert set(CONTRACT) <= set(result)
    assert set(result["fits"]) >= {"amdahl", "usl", "communication"}
    assert set(result["fits"]["amdahl"]) >= {"serial_fraction", "ceiling", "k_at_efficiency_050"}
    assert set(result["fits"]["usl"]) >= {"sigma", "kappa", "k_peak"}
    assert set(result["bend"]) >= {"k", "cause", "evidence", "remedy"}
    assert set(result["checklist"][0]) == {"item", "ok", "note"}
    assert len(result["checklist"]) == 9


def test_intervals_by_t_and_normal():
    rows = [
        (k, float(t)) for k, base in ((1, 10.0), (2, 5.5)) for t in base * np.array([0.99, 1.0, 1.02, 1.01])
    ]
    text = "k,time_s\n" + "".join(f"{k},{t!r}\n" for k, t in rows)
    times = np.array([t for k, t in rows if k == 2])
    by_t = run(text)
    assert by_t["ci95_s"][1] == pytest.approx(stats.t.ppf(0.975, 3) * stats.sem(times))
    by_normal = run(text, ci="normal")
    assert by_normal["ci95_s"][1] == pytest.approx(stats.norm.ppf(0.975) * stats.sem(times))
    relative = np.hypot(by_t["ci95_s"][0] / by_t["mean_s"][0], by_t["ci95_s"][1] / by_t["mean_s"][1])
    assert by_t["speedup_ci95"][1] == pytest.approx(by_t["speedup"][1] * relative)
    assert by_t["efficiency_ci95"][1] == pytest.approx(by_t["efficiency"][1] * relative)
    assert by_t["speedup_ci95"][0] == 0.0


def test_propagated_interval_covers_the_true_speedup():
    """In 95 % of simulated studies the interval of S(8) holds the true value."""
    held = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        k = np.repeat([1.0, 8.0], 6)
        time = np.where(k == 1, 10.0, 1.6) * (1 + 0.03 * rng.standard_normal(12))
        found = study(Timings("x", k, time)).result
        held += abs(found["speedup"][1] - 10 / 1.6) <= found["speedup_ci95"][1]
    assert 0.92 <= held / 300 <= 0.99


def test_order_of_rows_does_not_matter():
    rows = CURVE.splitlines()
    shuffled = "\n".join([rows[0], *reversed(rows[1:])]) + "\n"
    assert run(shuffled) == run(CURVE)


def test_one_k_only():
    result = run("k,time_s\n8,3.1\n8,3.0\n8,3.2\n")
    assert result["speedup"] == [8.0]
    assert result["recommended_k"] is None
    assert result["verdict"].startswith("No K is recommended")
    assert result["bend"]["k"] is None
    assert "one_k" in {item["code"] for item in result["honesty"]}


def test_without_k1_the_smallest_k_is_the_baseline():
    result = run("k,time_s\n16,2.2\n8,4\n32,1.3\n64,0.9\n")
    assert result["baseline_k"] == 8
    assert result["speedup"][0] == 8.0
    assert result["efficiency"][0] == 1.0
    assert result["speedup"][1] == pytest.approx(8 * 4 / 2.2)
    assert "baseline_above_one" in {item["code"] for item in result["honesty"]}


def test_two_k_below_the_threshold_name_no_cause_and_no_k():
    result = run("k,time_s\n1,10\n8,4\n")
    assert result["bend"] | {"evidence": None} == {
        "k": 8,
        "cause": "undetermined",
        "leading_loss": None,
        "close_behind": None,
        "confidence": "none",
        "evidence": None,
        "remedy": None,
        "crossing_k": pytest.approx(result["bend"]["crossing_k"]),
        "crossing_k_if_halved": {},
    }
    assert result["recommended_k"] is None
    assert "K = 1 is the largest that clears" in result["verdict"]
    assert "three different K" in result["verdict"]


def test_threshold_and_its_undecided_points():
    rows = "".join(f"{k},{t}\n" for k, t in [(1, 10), (1, 10.4), (2, 5.5), (2, 8.6), (4, 5.9), (4, 6.1)])
    result = run("k,time_s\n" + rows)
    assert result["threshold"]["undecided_k"] == [2]
    assert run(CURVE, threshold=0.8)["threshold"]["last_at_or_above_k"] == 2
    assert run(CURVE, threshold=0.8)["recommended_k"] == 2


def test_quality_gate_edges():
    text = "k,time_s,quality\n1,10,0.871\n2,5,0.866\n4,2.6,0.8659\n8,1.5,\n"
    quality = run(text)["quality"]
    assert quality["excluded_k"] == [4, 8]  # exactly at the tolerance is held; unknown is not
    assert "not measured" in quality["reasons"]["8"]
    assert run(text, quality_tolerance=0.01)["quality"]["excluded_k"] == [8]
    better = run("k,time_s,quality\n1,10,0.80\n2,5,0.90\n")
    assert better["quality"]["excluded_k"] == [2]  # a drift is a drift: the experiment changed


def test_a_point_without_quality_is_out_of_everything():
    """The laws, the bend, the knees and the ledger are those of the table without the point."""
    # Six points, one of them far off and not of the same quality.
    good = [(1, 100.0), (2, 52.0), (8, 15.2), (16, 9.1), (32, 6.2)]
    rows = "".join(f"{k},{time},0.76\n" for k, time in good)
    head = "k,time_s,quality\n"
    without, given = run(head + rows), run(head + rows + "4,90,0.50\n")
    assert given["quality"]["excluded_k"] == [4]
    at = [given["k"].index(k) for k in without["k"]]
    for name in (
        "fits",
        "bend",
        "knee",
        "threshold",
        "recommended_k",
        "fastest_k",
        "cost_optimal_k",
        "marginal",
    ):
        assert given[name] == without[name], name
    for name in ("amdahl", "serial_gap"):
        assert [given["gap"][name][i] for i in at] == without["gap"][name]
    for cause, lost in without["ledger_worker_s"].items():
        spread = given["ledger_worker_s"][cause]
        assert [spread[i] for i in at] == lost
        assert spread[given["k"].index(4)] is None


def test_without_quality_nobody_claims_it_is_held():
    result = run(CURVE)
    assert result["quality"]["held"] is None
    assert "quality not measured" in result["verdict"]


def test_gate_beats_speed_in_every_ranking():
    result = run("k,time_s,price_usd_per_h,quality\n1,100,1,0.9\n2,20,2,0.5\n4,27,4,0.9\n")
    assert result["quality"]["excluded_k"] == [2]
    assert (result["cost_optimal_k"], result["fastest_k"]) == (1, 4)
    assert [step["step"] for step in result["marginal"]] == ["1->4"]
    assert result["recommended_k"] == 4


def test_each_run_is_paid_at_its_own_price():
    text = "k,time_s,price_usd_per_h\n1,3600,1\n1,7200,3\n"
    assert run(text)["cost_usd"] == [pytest.approx((1 + 6) / 2)]


def test_price_flag_wins_over_the_table_and_says_so():
    text = "k,time_s,price_usd_per_h\n1,3600,1\n2,1800,2\n4,950,4\n"
    result = run(text, price_usd_per_s=2 / 3600)
    assert result["cost_usd"][:2] == pytest.approx([2.0, 2.0])
    assert "price_replaced" in {item["code"] for item in result["honesty"]}


def test_without_a_price_the_choices_still_stand():
    priced, bare = run(CURVE, price_usd_per_s=0.001), run(CURVE)
    assert bare["cost_usd"] is None
    for key in ("cost_optimal_k", "fastest_k", "recommended_k"):
        assert bare[key] == priced[key]
    assert bare["exchange"]["times_the_cost"] == pytest.approx(priced["exchange"]["times_the_cost"])
    assert {step["cost_usd"] for step in bare["marginal"]} == {None}


def test_a_cheaper_and_faster_step_has_no_price_per_speedup():
    result = run("k,time_s\n1,100\n2,45\n4,30\n", price_usd_per_s=0.01)
    assert result["marginal"][0]["speedup_per_usd"] is None
    assert result["marginal"][0]["note"] == "faster and not dearer"


def test_energy_is_the_fifth_conjunct():
    text = "k,time_s,energy_j\n1,100,30000\n2,55,28000\n4,33,36000\n"
    result = run(text, work=1000, regime="strong", price_usd_per_s=0.001)
    assert result["energy_j"] == [30000, 28000, 36000]
    assert result["energy"]["optimal_k"] == 2
    assert result["energy"]["per_work_j"] == [30, 28, 36]
    assert result["energy"]["mean_power_w"][0] == 300
    assert "energy per unit of work 36 J" in result["verdict"]


SERVING = "k,time_s,throughput,latency_p99_s\n1,10,100,0.05\n2,5.2,190,0.06\n4,2.8,350,0.30\n8,1.6,340,0.35\n"


def test_throughput_under_a_latency_limit_and_the_reverse():
    free = run(SERVING)["serving"]
    assert free["pareto_k"] == [1, 2, 4]
    assert free["largest_throughput"]["k"] == 4
    assert free["smallest_latency"]["k"] == 1
    limited = run(SERVING, max_latency_p99_s=0.1, min_throughput=150)["serving"]
    assert limited["largest_throughput"]["k"] == 2
    assert limited["smallest_latency"]["k"] == 2
    none = run(SERVING, max_latency_p99_s=0.01)["serving"]
    assert none["largest_throughput"]["k"] is None


def test_p99_of_repeats_is_the_worst_and_setup_is_apart():
    text = "k,time_s,latency_p99_s,setup_s\n1,10,0.05,30\n1,10,0.09,34\n2,5.2,0.06,31\n"
    result = run(text)
    assert result["latency_p99_s"] == [0.09, 0.06]
    assert result["setup_s"] == [32, 31]
    assert result["mean_s"] == [10, 5.2]


def test_weak_regime():
    result = run(
        "k,time_s,price_usd_per_h\n1,10,1\n2,10.5,2\n4,11.5,4\n8,13,8\n16,16,16\n", regime="weak", work=100
    )
    assert result["efficiency"] == pytest.approx([1, 10 / 10.5, 10 / 11.5, 10 / 13, 10 / 16])
    assert result["speedup"][3] == pytest.approx(80 / 13)
    assert result["work"] == [100, 200, 400, 800, 1600]
    assert result["cost_per_work"] == pytest.approx(np.array([10, 10.5, 11.5, 13, 16]) / 3600 / 100)
    assert result["cost_optimal_k"] == 1
    assert result["fits"]["amdahl"]["serial_fraction"] is None
    assert result["fits"]["gustafson"]["serial_fraction"] > 0
    assert result["bend"]["k"] == 16
    assert result["bend"]["cause"] == "communication"


PARTS = "k,compute_s,communication_s,idle_s\n1,800,0,0\n2,400,18,12\n4,200,34,26\n8,100,58,48\n16,50,95,90\n"


def test_straggler_moves_bend_and_band():
    result = run(PARTS, straggler=(1.0, 1.5))["straggler"]
    assert result["applies_to"] == "compute"
    # On average the slow worker adds a quarter of the compute: 400/4 at K = 2.
    assert result["mean_s"] == pytest.approx([800, 530, 310, 231, 247.5])
    assert result["std_s"][1] == pytest.approx(400 * 0.5 / np.sqrt(12))
    assert (result["bend_k_without"], result["bend_k"], result["bend_k_at_worst"]) == (8, 4, 2)


def test_straggler_closed_form_agrees_with_simulation():
    rng = np.random.default_rng(1)
    k = np.repeat([1.0, 2.0, 4.0], 400)
    time = 12 / k * (1 + 0.05 * rng.standard_normal(k.size))
    found = study(Timings("x", k, time), StudyOptions(straggler=(1.1, 1.6))).result
    slowed = time * np.where(k > 1, rng.uniform(1.1, 1.6, k.size), 1.0)
    simulated = study(Timings("x", k, slowed)).result
    assert found["straggler"]["mean_s"] == pytest.approx(simulated["mean_s"], rel=0.02)
    assert found["straggler"]["std_s"] == pytest.approx(simulated["std_s"], rel=0.08)
    assert found["straggler"]["ci95_s"] == pytest.approx(simulated["ci95_s"], rel=0.08)


def test_no_straggler_changes_nothing():
    result = run(PARTS, straggler=(1.0, 1.0))
    assert result["straggler"]["efficiency"] == result["efficiency"]
    assert result["straggler"]["bend_k"] == result["bend"]["k"]


@pytest.mark.parametrize("text", ["", "1.5..1.0", "0.5..2", "a..b", "-1", "1..", "nan", "1..inf"])
def test_bad_straggler_ranges(text):
    with pytest.raises(UsageError, match="inject-straggler"):
        StudyOptions(straggler=parse_factors(text))


def test_bad_options_are_named_all_at_once():
    with pytest.raises(UsageError) as caught:
        StudyOptions(threshold=0, work=-1, quality_tolerance=-0.1)
    assert len(caught.value.problems) == 3


def test_same_input_same_bytes():
    one, two = (study(parse_timings(PARTS)).to_json() for _ in range(2))
    assert one == two


def test_inputs_tell_runs_apart_that_share_a_name():
    first, second = (parse_timings(f"k,time_s\n1,{t}\n2,0.6\n", "runs.csv") for t in (1.0, 1.1))
    assert study(first).inputs["sha256"] != study(second).inputs["sha256"]
    assert study(first).inputs == study(parse_timings("time_s,k\n1.0,1\n0.6,2\n", "runs.csv")).inputs


def test_batches_that_grow_with_k_are_weak_scaling_and_it_is_said() -> None:
    table = "k,time_s,global_batch\n1,1.0,32\n2,1.02,64\n4,1.05,128\n8,1.1,256\n"
    found = run(table)
    assert (found["regime"], found["regime_in_doubt"]) == ("weak", False)
    assert found["efficiency"][-1] == pytest.approx(1 / 1.1)
    assert found["notes"] == ["the batch grows with K, 32 for each worker: read as weak scaling"]
    assert run(table, regime="strong")["regime"] == "strong"
    assert run(table.replace("256", "200"))["regime"] == "strong"


def test_beyond_one_nothing_is_recommended() -> None:
    """Efficiency above 1 says that the baseline is wrong, not that a K is good."""
    found = run("k,time_s\n1,100\n2,40\n4,18\n8,10\n")
    assert sum(value > 1 for value in found["efficiency"]) == 3
    assert found["recommended_k"] in (None, 1)
