"""The `serving:` block: what it reads, what it refuses, and where it says so."""

from __future__ import annotations

import textwrap
from typing import get_args

import pytest

from perfmodel.errors import SpecError
from perfmodel.physics.operations import LANGUAGE_KINDS
from perfmodel.serving.engine import NAMES
from perfmodel.serving.precision import CACHE_BYTES, FORMATS
from perfmodel.specs.jobs import load_any_job, load_job, serves
from perfmodel.specs.serving import (
    TRAINING_ONLY,
    CachePrecision,
    EngineName,
    ServedPrecision,
    ServingFile,
    ServingJob,
)
from perfmodel.specs.serving_words import SERVED_KINDS
from perfmodel.validate.serving_names import names

CHAT = {"input_tokens": 1000, "output_tokens": 200}


def job(block=None, **keys):
    whole = {"workload": "llama3-8b", "cluster": "dgx-h100", "serving": CHAT | (block or {})} | keys
    return load_any_job(whole)


def refused(block=None, **keys):
    with pytest.raises(SpecError) as error:
        job(block, **keys)
    return error.value.problems


def test_what_a_spec_lists_is_what_the_layers_above_know():
    assert set(get_args(EngineName)) == set(NAMES)
    assert set(get_args(ServedPrecision)) == set(FORMATS)
    assert set(get_args(CachePrecision)) == set(CACHE_BYTES)
    assert SERVED_KINDS == LANGUAGE_KINDS


def test_formats_are_those_by_which_measured_rows_are_read():
    table = names().precisions
    for name, known in FORMATS.items():
        assert (float(table[name]["weights"]), table[name]["arithmetic"]) == (
            known.weight_bits,
            known.arithmetic,
        ) or name == "fp32"


@pytest.mark.parametrize(
    ("load", "kind", "values"),
    [
        ({"rate": "1..8 /s"}, "rate", (1, 2, 4, 8)),
        ({"rate": "0.5 req/s"}, "rate", (0.5,)),
        ({"rate": "60, 120 /min"}, "rate", (1, 2)),
        ({"rate": "2..6:2 requests/s"}, "rate", (2, 4, 6)),
        ({"concurrency": "1..8"}, "concurrency", (1, 2, 4, 8)),
        ({"concurrency": 12, "arrivals": "closed"}, "concurrency", (12,)),
        ({"offline": {"requests": 50}}, "offline", 50),
        ("offline", "offline", 1000),
    ],
)
def test_loads_are_read(load, kind, values):
    found = job({"load": load}).serving.load
    assert found.kind == kind
    given = {
        "rate": found.rate and found.rate.per_s,
        "concurrency": found.concurrency,
        "offline": found.offline,
    }
    assert given.pop(kind) == values
    assert not any(given.values())


def test_a_trace_gives_lengths_and_the_irregularity_of_arrivals(tmp_path):
    (tmp_path / "trace.csv").write_text(
        "arrival_s,input_tokens,output_tokens\n0,100,10\n1,300,30\n2,200,20\n3,200,20\n"
    )
    (tmp_path / "job.yaml").write_text(
        textwrap.dedent("""\
        workload: llama3-8b
        cluster: dgx-h100
        serving:
          input_tokens: {file: trace.csv}
          output_tokens: {file: trace.csv}
          load: {rate: 4 /s, arrivals: {file: trace.csv}}
        """)
    )
    found = load_any_job(tmp_path / "job.yaml").serving
    assert (found.input_tokens.mean, found.output_tokens.mean) == (200, 20)
    assert found.input_tokens.spread == pytest.approx((0.5) ** 0.5 / 2)
    assert found.load.arrivals == 0.01  # as regular as a clock


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a,b\n1,2\n", 1, "no column of input_tokens"),
        ("input_tokens\n5\nmany\n", 3, "not a number"),
        ("input_tokens\n5\n", None, "at least 2 requests"),
        ("input_tokens\n5\n-3\n", 3, "not a number"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(tmp_path, text, line, words):
    (tmp_path / "trace.csv").write_text(text)
    path = tmp_path / "job.yaml"
    path.write_text(
        "workload: llama3-8b\ncluster: dgx-h100\nserving: {input_tokens: {file: trace.csv}, output_tokens: 5}\n"
    )
    with pytest.raises(SpecError, match=words) as error:
        load_any_job(path)
    assert error.value.problems[0].line == line


@pytest.mark.parametrize("key", TRAINING_ONLY)
def test_each_key_of_training_is_refused_with_a_reason(key):
    (problem,) = refused(**{key: 8})
    assert f'"{key}" is a key of training jobs' in problem.message
    assert problem.help == TRAINING_ONLY[key]


def test_every_key_of_a_training_job_is_shared_or_refused():
    from perfmodel.specs.job import JobFile

    shared = set(ServingFile.model_fields) | {"precision", "layout"}
    assert set(JobFile.model_fields) == shared | set(TRAINING_ONLY)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"load": {"rate": "8..1 /s"}}, "runs backwards"),
        ({"load": {"rate": "8"}}, "as a rate of requests"),
        ({"load": {"rate": "0 /s"}}, "above 0"),
        ({"load": {"rate": "1 /s", "concurrency": 4}}, "given twice"),
        ({"load": {"rate": "1 /s", "arrivals": "closed"}}, "a closed loop holds"),
        ({"load": {"concurrency": 4, "arrivals": "poisson"}}, "arrivals vary about a rate"),
        ({"load": {"rate": "1 /s", "arrivals": "bursty"}}, "not a kind of arrivals"),
        ({"load": {"concurrency": 64}, "requests": 10}, "cannot keep 64 in flight"),
        ({"load": "offline", "slo": {"ttft": {"p99": "1 s"}}}, "no latency"),
        ({"slo": {"ttft": {}}}, "needs a statistic"),
        ({"slo": {"ttft": {"p99": "0 s"}}}, "no time"),
        ({"slo": {"ttft": {"p98": "1 s"}}}, 'did you mean "p9'),
        ({"pools": {"prefill": 2, "decode": 6}}, "pools are of disaggregated prefill"),
        ({"prefill": {"disaggregated": {"prefill": 2}}}, "a ratio needs both numbers"),
        ({"prefill": {"disaggregated": {"prefil": 2, "decode": 6}}}, 'did you mean "prefill"'),
        ({"prefill": "disaggregated", "output_tokens": 1}, "is not decoded"),
        ({"prefill": "disaggregated", "pools": {"layout": {"tp": 3}}}, "does not divide"),
        ({"version": "0.9"}, "of which engine"),
        ({"engine": "vlm"}, 'did you mean "vllm"'),
        ({"demand": "20 /s"}, "no slo says that"),
        ({"spares": 2}, "spares stand by for a demand"),
        ({"day": [0.5, 1]}, "shares of a demand"),
        ({"rented": "2 USD/h"}, "follows from a day"),
        (
            {"demand": "2 /s", "slo": {"ttft": {"p99": "1 s"}}, "day": [0.5, 0.9]},
            "largest share of a day is 1",
        ),
        ({"failures": {"mtbf_per_accelerator": "1 h", "repair": "1 h"}}, "leave too few"),
        (
            {"demand": "20 /s", "slo": {"ttft": {"p99": "1 s"}}, "layout": {"replicas": 3}},
            "asks for the number of replicas",
        ),
        (
            {"demand": "20 /s", "slo": {"ttft": {"p99": "1 s"}}, "load": {"concurrency": 8}},
            "arrives at a rate",
        ),
        ({"layout": {"tp": 3}}, "does not divide the 32 heads"),
        ({"layout": {"pp": 64}}, "more than the 32 layers"),
        ({"layout": {"dp": 2}}, "of a dense model they are replicas"),
        ({"layout": {"ep": 8}}, "no experts"),
        ({"layout": "best"}, "is not a layout"),
        ({"precision": "fp4"}, "has no fp4 arithmetic"),
        ({"input_tokens": 0}, "at least 1"),
        ({"prefix_hit": 1}, "at most 0.999"),
    ],
)
def test_contradictions_are_refused_at_once(block, words):
    assert any(words in problem.message for problem in refused(block))


def test_what_is_no_decoder_is_not_served():
    (problem,) = refused(workload="dlrm")
    assert "only decoders" in problem.message


def test_everything_wrong_is_told_together_with_its_line(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        textwrap.dedent("""\
        workload: llama3-8b
        cluster: dgx-h100
        global_batch: 8
        serving:
          engine: vlm
          input_tokens: many
          output_tokens: 5
          load: {rate: fast}
        """)
    )
    with pytest.raises(SpecError) as error:
        load_any_job(path)
    assert [problem.line for problem in error.value.problems] == [3, 5, 6, 8]


def test_flags_over_a_job_reach_the_block(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "workload: llama3-8b\ncluster: dgx-h100\nserving: {input_tokens: 9, output_tokens: 9, precision: bf16}\n"
    )
    found = load_any_job(path, overrides={"precision": "fp8", "layout": {"tp": 2}, "serving.max_batch": 7})
    assert isinstance(found, ServingJob)
    assert (found.serving.precision, found.serving.layout.tp, found.serving.max_batch) == ("fp8", 2, 7)
    assert serves(path)


def test_a_precision_beside_the_block_and_in_it_is_one_too_many(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "workload: llama3-8b\ncluster: dgx-h100\nprecision: fp8\nserving: {input_tokens: 9, output_tokens: 9, precision: bf16}\n"
    )
    with pytest.raises(SpecError, match="given twice"):
        load_any_job(path)


def test_a_reader_of_training_jobs_refuses_a_service_in_words():
    with pytest.raises(SpecError, match="serves requests"):
        load_job({"workload": "llama3-8b", "cluster": "dgx-h100", "serving": CHAT})


def test_a_day_may_be_a_file_of_rates(tmp_path):
    (tmp_path / "day.csv").write_text("hour,rate_per_s\n0,10\n8,40\n16,20\n", encoding="utf-8")
    path = tmp_path / "job.yaml"
    path.write_text(
        "workload: llama3-8b\ncluster: dgx-h100\nserving:\n  input_tokens: 100\n  output_tokens: 50\n"
        "  slo: {ttft: {p99: 1 s}}\n  demand: 40 /s\n  day: {file: day.csv}\n",
        encoding="utf-8",
    )
    assert load_any_job(path).serving.day == (0.25, 1.0, 0.5)
