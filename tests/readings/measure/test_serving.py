"""The load client against a server on loopback that batches continuously."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from serving_server import FakeServer, served

from perfmodel.errors import SpecError, UsageError
from perfmodel.readings.load import read_load
from perfmodel.readings.measure.serving import Answer, Plan, Target, estimate, measure_load, summed_up

STEP_S = 0.004


def steps(decodes: int, prompt: int) -> float:
    return STEP_S + 2e-5 * prompt


QUICK = Plan(requests=12, warmup=4, most_s=20.0)


def test_a_closed_loop_holds_its_requests_open() -> None:
    server = FakeServer(steps)
    with served(server) as url:
        target = Target(url, input_tokens=20, output_tokens=10)
        point = measure_load(target, concurrency=4, plan=QUICK)
    assert server.widest == 4
    assert (point.load_kind, point.load, point.requests, point.failed) == ("concurrency", 4.0, 12.0, 0.0)
    assert (point.input_tokens, point.output_tokens, point.model) == (20.0, 10.0, "fake")
    assert point.tpot_s["mean"] >= STEP_S
    assert point.ttft_s["p50"] >= STEP_S
    assert point.ttft_s["p50"] <= point.ttft_s["p99"]
    assert point.e2e_s["mean"] == pytest.approx(point.ttft_s["mean"] + 9 * point.tpot_s["mean"], rel=0.01)
    # Little's law: four requests are open all the time.
    assert point.requests_per_s is not None
    assert point.requests_per_s * point.e2e_s["mean"] == pytest.approx(4.0, rel=0.25)


def test_an_open_loop_does_not_wait_for_answers() -> None:
    server = FakeServer(lambda decodes, prompt: 0.02)
    with served(server) as url:
        target = Target(url, model="given", api="chat", input_tokens=5, output_tokens=8)
        point = measure_load(target, rate_per_s=60.0, plan=QUICK)
    assert server.widest > 2
    assert (point.load_kind, point.load, point.model) == ("rate", 60.0, "given")
    assert point.ttft_s["mean"] >= 0.02


def test_failed_requests_are_counted_and_not_timed() -> None:
    with served(FakeServer(steps, refuse=6)) as url:
        point = measure_load(Target(url, input_tokens=5, output_tokens=4), concurrency=2, plan=QUICK)
    assert point.failed == 2.0
    assert point.requests == 10.0


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (FakeServer(steps, refuse=10_000), "HTTP 503: overloaded"),
        (FakeServer(steps, garbage=True), "not JSON"),
        (FakeServer(lambda decodes, prompt: 60.0), "none had ended after 0.3 s"),
    ],
)
def test_a_load_without_an_answer_is_an_error(server: FakeServer, message: str) -> None:
    plan = Plan(requests=2, warmup=0, most_s=0.3)
    with served(server) as url, pytest.raises(SpecError, match=message):
        measure_load(Target(url, input_tokens=5, output_tokens=4), concurrency=2, plan=plan)


def test_a_closed_port_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UsageError, match="no answer"):
        measure_load(Target(url), concurrency=1, plan=QUICK)


@pytest.mark.parametrize(
    "load", [{}, {"concurrency": 0}, {"rate_per_s": -1.0}, {"concurrency": 1, "rate_per_s": 1.0}]
)
def test_a_load_that_cannot_be(load: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        measure_load(Target("http://127.0.0.1:1"), plan=QUICK, **load)


def answer(sent: float, pieces: list[float], tokens: float | None = None) -> Answer:
    return Answer(sent, pieces, pieces[-1], 10.0, tokens)


def test_warm_up_is_left_out_and_tokens_of_others_count() -> None:
    slow = answer(0.0, [5.0, 6.0])
    measured = [answer(1.0, [2.0, 3.0, 4.0]), answer(2.0, [2.5, 3.5, 4.5])]
    after = answer(3.0, [4.0, 9.0])
    point = summed_up([slow, *measured, after], Plan(requests=2, warmup=1), source="x", concurrency=2)
    assert point.ttft_s["mean"] == pytest.approx(0.75)
    assert point.tpot_s["mean"] == pytest.approx(1.0)
    # From 1.0 to 4.5: six tokens of the measured ones and one of the request that came after.
    assert point.throughput_out_tokens_per_s == pytest.approx(7.0 / 3.5)


def test_a_piece_may_hold_several_tokens() -> None:
    point = summed_up(
        [answer(0.0, [1.0, 2.0], tokens=5.0)], Plan(requests=1, warmup=0), source="x", concurrency=1
    )
    assert point.tpot_s["mean"] == pytest.approx(0.25)
    assert point.output_tokens == 5.0


def test_ninety_percent_of_the_intervals_hold_the_truth() -> None:
    rng = np.random.default_rng(3)
    truth = {"mean": 1.0, "p50": np.log(2.0), "p90": np.log(10.0)}
    for statistic, value in truth.items():
        hits = 0
        for _ in range(300):
            _, low, high = estimate(rng.exponential(size=200), statistic)
            hits += low <= value <= (np.inf if high is None else high)
        assert 0.84 <= hits / 300 <= 0.96, statistic


def test_the_verb_writes_a_curve_that_study_reads(tmp_path: Path) -> None:
    curve = tmp_path / "curve.csv"
    environment = {**os.environ, "NO_COLOR": "1"}
    with served(FakeServer(steps)) as url:
        command = [sys.executable, "-m", "perfmodel", "measure", "serving", url, "--concurrency", "1,4"]
        command += ["--requests", "8", "--warmup", "2", "--input-tokens", "16", "--output-tokens", "6"]
        command += ["-o", str(curve), "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema"] == "perfmodel/load-study/1"
    points = read_load(curve)
    assert [point.load for point in points] == [1.0, 4.0]
    assert points[0].low_s["ttft_mean"] <= points[0].ttft_s["mean"] <= points[0].high_s["ttft_mean"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["http://x"], "either --concurrency or --rate"),
        (["x", "--concurrency", "1"], "not an address"),
        (["http://x", "--rate", "fast"], 'cannot read "fast"'),
        (["http://x", "--concurrency", "1", "--max-time", "1"], "--max-time"),
        (["http://x", "--concurrency", "1", "--api-key-variable", "NO_SUCH_VARIABLE"], "is not set"),
    ],
)
def test_bad_flags_end_with_two(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    from perfmodel.cli.main import main

    assert main(["measure", "serving", *flags]) == 2
    assert message in capsys.readouterr().err
