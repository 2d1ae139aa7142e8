"""Policies on services."""

from __future__ import annotations

import math

import pytest

from perfmodel.decide.gate.check import check
from perfmodel.decide.gate.grammar import PolicyError, parse
from perfmodel.decide.gate.serving import Asked
from perfmodel.errors import SpecError
from perfmodel.specs.jobs import load_any_job
from perfmodel.specs.policies import load_policies

BLOCK = {
    "input_tokens": 500,
    "output_tokens": 100,
    "load": {"rate": "1..8 /s"},
    "slo": {"tpot": {"p99": "40 ms"}},
}


def job(**block):
    return load_any_job(
        {"workload": "llama3-8b", "cluster": "dgx-h100", "price": "2 USD/h", "serving": BLOCK | block}
    )


@pytest.fixture(scope="module")
def asked():
    return Asked(job())


def value(asked, text):
    return asked.measure(parse(text))


@pytest.mark.parametrize(
    ("text", "rate", "concurrency"),
    [
        ("ttft_p99(rate=8/s) <= 2 s", 8.0, None),
        ("tpot_mean(rate = 480/min) <= 2 ms", 8.0, None),
        ("tokens_per_s(concurrency=64) >= 2k", None, 64),
        ("cost_per_mtok <= 0.40 USD", None, None),
        ("0.40 USD >= cost_per_mtok(rate=1/s)", 1.0, None),
        ("replicas(rate=200/s) <= 12", 200.0, None),
    ],
)
def test_policies_on_services_are_read(text, rate, concurrency):
    policy = parse(text)
    assert policy.is_serving
    assert (policy.rate_per_s, policy.concurrency) == (rate, concurrency)
    assert parse(f"{policy.subject} <= {policy.limit.text}").subject == policy.subject


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttft_p99(rate=8) <= 2 s", "a rate without a time"),
        ("ttft_p99(rate=8/fortnight) <= 2 s", "per s, min or h"),
        ("ttft_p99(rate=-8/s) <= 2 s", "above 0"),
        ("ttft_p99(k=8) <= 2 s", "takes no"),
        ("ttft_p99(rate=8/s, concurrency=4) <= 2 s", "takes no"),
        ("ttft_p99(rate=8/s, rate=9/s) <= 2 s", "given twice"),
        ("ttft_p99(rate=8/s) <= 2", "without a unit"),
        ("replicas <= 12", "needs the rate"),
        ("replicas(concurrency=8) <= 12", "takes no"),
        ("change(ttft_p99) <= 5 %", "no baseline holds"),
        ("efficiency(rate=8/s) >= 0.5", "takes no"),
    ],
)
def test_what_cannot_be_read_says_why(text, words):
    with pytest.raises(PolicyError, match=words):
        parse(text)


def test_values_are_those_of_the_prediction(asked):
    from perfmodel.decide.serving.prediction import predict_serving

    found = predict_serving(job()).envelope()["result"]
    at = value(asked, "ttft_p99(rate=4/s) <= 1 s")
    place = found["load"].index(4.0)
    assert (at.low, at.value, at.high) == pytest.approx(
        [found["ttft_s"][f"p99{end}"][place] for end in ("_low", "", "_high")]
    )
    assert value(asked, "tokens_per_s(rate=4/s) >= 1").value == pytest.approx(400.0)
    assert value(asked, "cost_per_mtok(rate=4/s) <= 1 USD").value == pytest.approx(
        found["usd_per_million_tokens"][place]
    )
    assert value(asked, "max_load >= 1").value == pytest.approx(found["knee"]["slo"]["load"])


def test_replicas_grow_with_what_they_answer(asked):
    few, many = (value(asked, f"replicas(rate={rate}/s) <= 9") for rate in (20, 2000))
    assert few.value < many.value
    assert many.low <= many.value <= many.high


def test_a_rate_that_nothing_answers_fails_with_what_is_answered(asked):
    found = value(asked, "ttft_p99(rate=100000/s) <= 1 s")
    assert found.value is None
    assert "that are answered" in found.reason


def test_near_saturation_the_band_has_no_high_end(asked):
    most = asked.whole.saturation_per_s
    assert math.isinf(value(asked, f"ttft_p99(rate={0.98 * most:.4f}/s) <= 1 s").high)


def test_an_offline_service_is_asked_without_a_load():
    found = Asked(load_any_job({"workload": "llama3-8b", "cluster": "dgx-h100", "price": "2 USD/h",
                                "serving": {"input_tokens": 500, "output_tokens": 100, "load": "offline"}}))  # fmt: skip
    made, cost = value(found, "tokens_per_s >= 1"), value(found, "cost_per_mtok <= 1 USD")
    assert made.low < made.value < made.high
    assert cost.value == pytest.approx(2.0 / 3600 / made.value * 1e6)
    assert value(found, "replicas(rate=3/s) <= 1").reason == "the job states no slo"


GATE = """\
jobs:
  chat:
    workload: llama3-8b
    cluster: dgx-h100
    serving: {input_tokens: 500, output_tokens: 100, slo: {tpot: {p99: 40 ms}}}
  train: {workload: llama3-8b, cluster: dgx-h100, global_batch: 64, k: 8}
policies:
"""


def gate(tmp_path, *policies):
    path = tmp_path / "perfmodel.yaml"
    path.write_text(GATE + "".join(f"  - {policy}\n" for policy in policies))
    return load_policies(path)


def never(job):
    raise AssertionError("a training job was predicted")


def test_each_policy_goes_to_jobs_of_its_kind(tmp_path):
    from perfmodel.decide.gate.predictor import predictor

    found = check(
        gate(tmp_path, "ttft_p99(rate=1/s) <= 60 s", "time(k=8) <= 1 h"), predictor(None, 0)
    ).result.result
    assert [(row["job"], row["metric"], row["verdict"]) for row in found["policies"]] == [
        ("chat", "ttft_p99", "pass"),
        ("train", "time", "pass"),
    ]


def test_a_policy_on_a_job_of_the_other_kind_is_refused(tmp_path):
    with pytest.raises(SpecError, match="measured of a service, and train is not"):
        check(gate(tmp_path, "{expression: ttft_p99(rate=1/s) <= 60 s, jobs: [train]}"), never)
    with pytest.raises(SpecError, match="measured of training jobs, and chat is not"):
        check(gate(tmp_path, "{expression: time(k=8) <= 60 s, jobs: [chat]}"), never)
