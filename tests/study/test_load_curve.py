"""A measured load curve: its knees, its objectives, and what a latency cap costs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from perfmodel.errors import SpecError, UsageError
from perfmodel.readings.load import LoadPoint, is_load_test
from perfmodel.study.load_curve import parse_objectives, study_load

CONCURRENCY = (1.0, 4.0, 16.0, 64.0, 256.0)
TTFT_P99 = (0.07, 0.1, 0.2, 0.8, 6.0)
TPOT = (0.010, 0.011, 0.014, 0.024, 0.055)
OUT = (95.0, 350.0, 1100.0, 2600.0, 3900.0)


def points(**more: float) -> list[LoadPoint]:
    return [
        LoadPoint(
            source=f"c.csv:{i + 2}",
            tool="csv",
            concurrency=c,
            requests=20.0 * c + 200.0,
            throughput_out_tokens_per_s=OUT[i],
            ttft_s={"p99": TTFT_P99[i]},
            tpot_s={"mean": TPOT[i]},
            **more,
        )
        for i, c in enumerate(CONCURRENCY)
    ]


def test_the_objectives_end_between_the_loads_that_hold_and_fail() -> None:
    found = study_load(points(), parse_objectives("ttft_p99=1 s")).result
    knee = found["knee"]["slo"]
    expected = 64.0 * 4.0 ** (math.log(1.0 / 0.8) / math.log(6.0 / 0.8))
    assert (knee["low"], knee["high"], knee["cause"]) == (64.0, 256.0, "ttft_p99")
    assert knee["load"] == pytest.approx(expected)
    assert 2600.0 < found["under_slo"]["throughput_out_tokens_per_s"] < 3900.0


def test_the_tightest_objective_rules() -> None:
    found = study_load(points(), parse_objectives("ttft_p99=10 s, tpot_mean<=12 ms")).result
    assert found["knee"]["slo"]["cause"] == "tpot_mean"
    assert [item["kept_to_load"] for item in found["objectives"]] == [256.0, 4.0]


@pytest.mark.parametrize(
    ("slo", "load", "low", "words"),
    [
        ("ttft_p99=100 s", None, 256.0, "at least 256"),
        ("ttft_p99=1 ms", None, None, "hold at no measured load"),
    ],
)
def test_objectives_that_always_or_never_hold(
    slo: str, load: float | None, low: float | None, words: str
) -> None:
    found = study_load(points(), parse_objectives(slo)).result
    assert (found["knee"]["slo"]["load"], found["knee"]["slo"]["low"]) == (load, low)
    assert words in found["verdict"]


def test_time_per_token_doubles_between_two_loads() -> None:
    knee = study_load(points()).result["knee"]["tpot_doubled"]
    assert (knee["low"], knee["high"]) == (16.0, 64.0)
    assert 16.0 < knee["load"] < 64.0


def test_latency_under_a_throughput_floor() -> None:
    found = study_load(points(), min_throughput=1000.0).result["least_latency"]
    assert (found["load"], found["ttft_p99_s"]) == (16.0, 0.2)
    none = study_load(points(), min_throughput=1e6).result["least_latency"]
    assert none["load"] is None


def test_a_rate_that_the_server_cannot_follow_is_saturated() -> None:
    rates = [
        LoadPoint(
            source="", tool="", rate_per_s=rate, requests_per_s=min(rate, 5.0), ttft_s={"p99": 0.1 * rate}
        )
        for rate in (1.0, 4.0, 5.1, 8.0)
    ]
    found = study_load(rates).result
    assert found["knee"]["saturated"]["load"] == 8.0
    assert "Saturated from 8 requests/s" in found["verdict"]


def test_repeats_are_averaged_and_other_kinds_left_out() -> None:
    offline = LoadPoint(source="", tool="", requests=1000.0, throughput_out_tokens_per_s=5000.0)
    found = study_load([*points(), *points(), offline]).result
    assert found["repeats"] == [2] * 5
    assert list(found["ttft_s"]["p99"]) == list(TTFT_P99)
    assert "1 points left out" in found["notes"][0]


def test_what_makes_a_curve_doubtful_is_said() -> None:
    rows = [
        LoadPoint(source="", tool="", concurrency=c, requests=2.0 * c, requests_per_s=1.0, ttft_s={"p99": 1.0},
                  e2e_s={"mean": 0.1})
        for c in (8.0, 16.0)
    ]  # fmt: skip
    told = " ".join(study_load(rows).result["notes"])
    assert "first wave" in told
    assert "p99 from fewer than" in told
    assert "Little's law" in told


@pytest.mark.parametrize("text", ["ttft_p42=1 s", "ttft_p99", "ttft_p99=1", "ttft_p99=-1 s", "x=1 s", ""])
def test_an_objective_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="--slo"):
        parse_objectives(text)


def test_an_objective_that_was_not_measured_is_refused() -> None:
    with pytest.raises(SpecError, match="e2e_p99 was not measured") as caught:
        study_load(points(), parse_objectives("e2e_p99=1 s"))
    assert "ttft_p99" in str(caught.value.problems[0].help)


def test_timings_by_k_are_no_load_curve(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("k,time_s,concurrency\n1,2,3\n")
    assert not is_load_test(table)
    table.write_text("# a load curve\nrate_per_s,ttft_s\n1,2\n")
    assert is_load_test(table)


def test_the_verb_reads_a_curve(tmp_path: Path) -> None:
    table = tmp_path / "curve.csv"
    rows = [f"{c:g},{x:g},{t:g}" for c, x, t in zip(CONCURRENCY, OUT, TTFT_P99, strict=True)]
    table.write_text("concurrency,throughput,ttft_p99_s\n" + "\n".join(rows) + "\n")
    command = [sys.executable, "-m", "perfmodel", "study", str(table), "--slo", "ttft_p99=1 s"]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["schema"] == "perfmodel/load-study/1"
    assert found["result"]["knee"]["slo"]["low"] == 64.0
    assert not done.stderr
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "The objectives hold up to" in shown.stdout
