"""Each load tool's report becomes the same rows; damaged ones name file, line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import SpecError
from perfmodel.readings.load import LoadPoint, read_load
from perfmodel.readings.load.point import load_csv

VLLM: dict[str, Any] = {
    "backend": "vllm",
    "model_id": "m",
    "request_rate": "inf",
    "max_concurrency": 16,
    "duration": 20.0,
    "completed": 100,
    "failed": 0,
    "total_input_tokens": 50000,
    "total_output_tokens": 20000,
    "request_throughput": 5.0,
    "output_throughput": 1000.0,
    "total_token_throughput": 3500.0,
    "mean_ttft_ms": 200.0,
    "median_ttft_ms": 150.0,
    "p99_ttft_ms": 900.0,
    "mean_tpot_ms": 12.0,
    "median_tpot_ms": 11.5,
    "p99_tpot_ms": 20.0,
    "mean_e2el_ms": 2600.0,
    "p99_e2el_ms": 4000.0,
}


def written(path: Path, data: object) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def only(path: Path) -> LoadPoint:
    (point,) = read_load(path)
    return point


def test_vllm(tmp_path: Path) -> None:
    point = only(written(tmp_path / "r.json", VLLM))
    assert (point.tool, point.load_kind, point.load) == ("vllm bench serve", "concurrency", 16.0)
    assert (point.input_tokens, point.output_tokens, point.rate_per_s) == (500.0, 200.0, None)
    assert point.ttft_s == {"mean": 0.2, "p50": 0.15, "p99": 0.9}
    assert point.e2e_s == {"mean": 2.6, "p99": 4.0}


def test_sglang_writes_a_line_a_run(tmp_path: Path) -> None:
    lines = []
    for rate in (4.0, 2.0):
        run = {k: v for k, v in VLLM.items() if "e2el" not in k and k != "max_concurrency"}
        run |= {"request_rate": rate, "mean_e2e_latency_ms": 2600.0, "total_output_tokens_retokenized": 19999}
        lines.append(json.dumps(run))
    points = read_load(written(tmp_path / "online.jsonl", "\n".join(lines) + "\n"))
    assert [point.load for point in points] == [2.0, 4.0]
    assert {point.tool for point in points} == {"sglang bench_serving"}
    assert points[0].e2e_s == {"mean": 2.6}


def genai() -> dict[str, Any]:
    def times(mean: float) -> dict[str, Any]:
        return {"unit": "ms", "avg": mean, "p50": mean * 0.9, "p90": mean * 1.5, "p99": mean * 3.0}

    return {
        "time_to_first_token": times(100.0),
        "inter_token_latency": times(10.0),
        "request_latency": times(1100.0),
        "output_token_throughput": {"unit": "tokens/sec", "avg": 800.0},
        "request_throughput": {"unit": "requests/sec", "avg": 8.0},
        "request_count": {"unit": "requests", "avg": 160.0},
        "input_sequence_length": {"unit": "tokens", "avg": 300.0},
        "output_sequence_length": {"unit": "tokens", "avg": 100.0},
    }


def test_genai_perf_and_aiperf(tmp_path: Path) -> None:
    old = genai() | {"input_config": {"perf_analyzer": {"stimulus": {"concurrency": 10}}}}
    new = genai() | {"schema_version": "1.4", "input_config": {"loadgen": {"request_rate": 8.5}}}
    first = only(written(tmp_path / "a.json", old))
    second = only(written(tmp_path / "b.json", new))
    assert (first.tool, first.load_kind, first.load) == ("genai-perf", "concurrency", 10.0)
    assert (second.tool, second.load_kind, second.load) == ("aiperf", "rate", 8.5)
    assert first.ttft_s["p99"] == pytest.approx(0.3)
    assert first.tpot_s["mean"] == pytest.approx(0.01)
    assert (first.requests, first.output_tokens) == (160.0, 100.0)


def test_genai_perf_table_takes_its_load_from_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model-openai-chat-concurrency32"
    folder.mkdir()
    point = only(
        written(
            folder / "profile_export_genai_perf.csv",
            'Metric,avg,min,max,p99,p95,p90,p75,p50,p25\nTime To First Token (ms),"1,146.31",1,2,'
            '"3,457.97",3300,3200,1300,640.07,286\nInter Token Latency (ms),30.35,1,2,35,34,33,32,30,29\n\n'
            "Metric,Value\nOutput Token Throughput (per sec),261.25\nRequest Count (count),40.00\n",
        )
    )
    assert point.load == 32.0
    assert point.ttft_s["mean"] == pytest.approx(1.14631)
    assert point.throughput_out_tokens_per_s == 261.25


def test_guidellm_has_a_point_a_benchmark(tmp_path: Path) -> None:
    def stat(mean: float) -> dict[str, Any]:
        values = {
            "mean": mean,
            "median": mean,
            "percentiles": {"p50": mean, "p90": 2 * mean, "p99": 3 * mean},
        }
        return {"successful": values}

    def benchmark(strategy: dict[str, Any]) -> dict[str, Any]:
        metrics = {
            "time_to_first_token_ms": stat(50.0),
            "inter_token_latency_ms": stat(8.0),
            "request_latency": stat(1.5),
            "output_tokens_per_second": stat(900.0),
            "requests_per_second": stat(5.0),
            "prompt_token_count": stat(256.0),
            "output_token_count": stat(180.0),
            "request_totals": {"successful": 300, "errored": 0},
        }
        return {"config": {"strategy": strategy}, "duration": 60.0, "metrics": metrics}

    report = {
        "benchmarks": [
            benchmark({"type_": "constant", "rate": 5.0}),
            benchmark({"type_": "concurrent", "streams": 8}),
            benchmark({"type_": "synchronous"}),
        ]
    }
    points = read_load(written(tmp_path / "g.json", report))
    assert [(p.load_kind, p.load) for p in points] == [
        ("concurrency", 1.0),
        ("concurrency", 8.0),
        ("rate", 5.0),
    ]
    assert points[0].e2e_s["mean"] == 1.5
    assert points[0].tpot_s["p99"] == pytest.approx(0.024)


def test_llmperf_takes_the_first_token_out(tmp_path: Path) -> None:
    summary = {
        "model": "m",
        "num_concurrent_requests": 5,
        "results_ttft_s_mean": 0.25,
        "results_ttft_s_quantiles_p99": 0.6,
        "results_end_to_end_latency_s_mean": 1.25,
        "results_inter_token_latency_s_mean": 0.0125,
        "results_number_output_tokens_mean": 101.0,
        "results_num_completed_requests": 50,
        "results_num_completed_requests_per_min": 120.0,
        "results_mean_output_throughput_token_per_s": 400.0,
    }
    point = only(written(tmp_path / "x_summary.json", summary))
    assert point.tpot_s["mean"] == pytest.approx(0.01)
    assert (point.requests_per_s, point.load, point.output_tokens) == (2.0, 5.0, 101.0)
    assert point.notes


def test_trtllm_bench(tmp_path: Path) -> None:
    spread = {"minimum": 1.0, "average": 20.0, "p50": 19.0, "p90": 30.0, "p95": 33.0, "p99": 40.0}
    report = {
        "engine": {"model": "m"},
        "request_info": {
            "num_requests": 100,
            "avg_num_concurrent_requests": 31.5,
            "avg_input_length": 128,
            "avg_output_length": 64,
        },
        "performance": {
            "total_latency_ms": 2000.0,
            "request_throughput_req_s": 50.0,
            "system_output_throughput_tok_s": 3200.0,
            "system_total_throughput_tok_s": 9600.0,
            "request_latency_percentiles_ms": spread,
        },
        "streaming_metrics": {"avg_ttft_ms": 12.0, "tpot_percentiles": spread},
    }
    point = only(written(tmp_path / "report.json", report))
    assert (point.load, point.duration_s, point.throughput_total_tokens_per_s) == (31.5, 2.0, 9600.0)
    assert point.ttft_s == {"mean": 0.012}
    assert point.tpot_s["p95"] == pytest.approx(0.033)


MLPERF = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 100.00
Completed tokens per second: 29000.00
Result is : VALID

Scheduled samples per second : 102.00
Mean latency (ns)               : 40000000000
99.00 percentile latency (ns)   : 120000000000
Mean First Token latency (ns)                : 963332124
50.00 percentile first token latency (ns)   : 950532291
99.00 percentile first token latency (ns)   : 1760966679
Mean Time to Output Token (ns)                : 126269215
99.00 percentile time to output token (ns)   : 164964162
"""


def test_mlperf_summary(tmp_path: Path) -> None:
    point = only(written(tmp_path / "mlperf_log_summary.txt", MLPERF))
    assert (point.load_kind, point.load, point.output_tokens) == ("rate", 102.0, 290.0)
    assert point.ttft_s["p99"] == pytest.approx(1.760966679)
    assert point.tpot_s == {"mean": pytest.approx(0.126269215), "p99": pytest.approx(0.164964162)}
    assert point.e2e_s["p99"] == pytest.approx(120.0)


def test_a_written_curve_reads_back(tmp_path: Path) -> None:
    points = [
        LoadPoint(
            source="",
            tool="t",
            concurrency=c,
            requests=100.0,
            throughput_out_tokens_per_s=50.0 * c,
            ttft_s={"mean": 0.1, "p99": 0.2},
            low_s={"ttft_p99": 0.15},
            high_s={"ttft_p99": 0.3},
        )
        for c in (1.0, 4.0)
    ]
    again = read_load(written(tmp_path / "curve.csv", load_csv(points, comment="a curve\nof two loads")))
    assert [point.ttft_s for point in again] == [point.ttft_s for point in points]
    assert again[1].low_s == points[1].low_s
    assert again[1].source.endswith("curve.csv:5")


def test_other_spellings_and_milliseconds(tmp_path: Path) -> None:
    point = only(written(tmp_path / "c.csv", "rate,osl,throughput,ttft_p99_ms,tpot_ms\n4,100,400,250,12.5\n"))
    assert (point.load, point.requests_per_s) == (4.0, 4.0)
    assert (point.ttft_s, point.tpot_s) == ({"p99": 0.25}, {"mean": 0.0125})


def test_a_folder_gives_the_points_of_its_files(tmp_path: Path) -> None:
    for c in (2, 1):
        folder = tmp_path / f"c{c}"
        folder.mkdir()
        written(folder / "r.json", VLLM | {"max_concurrency": c})
    assert [point.load for point in read_load(tmp_path)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("name", "text", "place", "message"),
    [
        ("a.json", "{", "a.json:1:2", "not JSON"),
        ("a.json", "{}", "a.json", "not a report"),
        ("a.json", "[1]", "a.json", "not a mapping"),
        ("a.json", json.dumps(VLLM | {"p99_ttft_ms": -1.0}), "a.json", "p99_ttft_ms: must be above zero"),
        ("a.json", json.dumps(VLLM | {"p99_ttft_ms": 100.0}), "a.json", "p99 (0.1 s) is below p50"),
        ("a.json", json.dumps(VLLM | {"mean_tpot_ms": "x"}), "a.json", 'not a number: "x"'),
        ("a.json", json.dumps(VLLM | {"mean_tpot_ms": 1e400}), "a.json", "not a finite number"),
        ("a.json", json.dumps(VLLM | {"completed": 0}), "a.json", "completed: must be above zero"),
        ("a.jsonl", json.dumps(VLLM) + "\n{bad}\n", "a.jsonl:2", "not a line of JSON"),
        ("a.csv", "", "a.csv:1", "empty"),
        ("a.csv", "x,ttft_s\n1,2\n", "a.csv:1", "no column of loads"),
        ("a.csv", "concurency,ttft_s\n1,2\n", "a.csv:1:1", 'did you mean "concurrency"'),
        ("a.csv", "concurrency,ttft_s\n1\n", "a.csv:2", "1 cells"),
        ("a.csv", "concurrency,ttft_s,ttft_mean_ms\n1,2,3\n", "a.csv:1", "two columns"),
        ("a.csv", "# c\n\nconcurrency,ttft_s\n1,nope\n", "a.csv:4", "ttft_s: not a number"),
        ("a.csv", "concurrency,ttft_s\n0,1\n", "a.csv:2", "must be above zero"),
        ("a.csv", "concurrency,ttft_s\n", "a.csv:1", "no loads under the header"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, name: str, text: str, place: str, message: str
) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(SpecError) as caught:
        read_load(path)
    told = str(caught.value)
    assert f"{tmp_path}/{place}" in told
    assert message in told


def test_every_problem_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    first = written(tmp_path / "a.json", VLLM | {"p99_ttft_ms": -1.0, "mean_tpot_ms": "x"})
    second = written(tmp_path / "b.csv", "concurrency,ttft_s\n1,nope\n")
    with pytest.raises(SpecError) as caught:
        read_load([first, second])
    assert len(caught.value.problems) == 3
