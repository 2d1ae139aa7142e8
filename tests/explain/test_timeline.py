"""The step as a timeline: its spans add up to the prediction, and the trace is one that viewers open."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from perfmodel.cli.main import main
from perfmodel.decide.prediction import Prediction, predict
from perfmodel.errors import SpecError
from perfmodel.explain.timeline import HIDDEN, Timeline, timeline
from perfmodel.readings.one_step import read_one_step
from perfmodel.report.timeline import draw, figure
from perfmodel.report.trace_events import document
from perfmodel.specs.jobs import load_job

JOBS: dict[str, dict[str, Any]] = {
    "pipeline": {
        "layout": {"tp": 2, "pp": 4, "vpp": 1, "sharding": "zero1", "micro_batch": 1},
        "k": 64,
    },
    "interleaved": {
        "layout": {"tp": 2, "pp": 4, "vpp": 2, "sharding": "zero1", "micro_batch": 1},
        "k": 32,
    },
    "unsaid interleaving": {"layout": {"pp": 4, "sharding": "zero1", "micro_batch": 1}, "k": 32},
    "gpipe": {"layout": {"pp": 2, "sharding": "ddp", "schedule": "gpipe", "recompute": "full"}, "k": 8},
    "sharded": {"layout": {"sharding": "fsdp", "micro_batch": 2}, "k": 64},
    "one": {"layout": {"sharding": "ddp"}, "k": 1},
    "network": {"workload": "resnet50", "seq_len": None, "layout": "auto", "k": 16},
    "stragglers": {
        "layout": {"sharding": "zero1"},
        "k": 12,
        "jitter": {"distribution": "lognormal", "spread": 0.1},
        "stalls": [{"name": "checkpoint", "time": "1 s", "every": 10}],
    },
}


def made(name: str) -> Prediction:
    base = {"workload": "gpt-1.7b", "cluster": "dgx-h100", "global_batch": 192, "seq_len": 2048}
    said = {key: value for key, value in (base | JOBS[name]).items() if value is not None}
    return predict(load_job(None, overrides=said), draws=0)


def sums(found: Timeline) -> dict[str, dict[str, float]]:
    total: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for span in found.spans:
        total[found.lanes[span.lane].group][span.part] += span.time_s
    return total


@pytest.mark.parametrize("name", JOBS)
def test_spans_add_up_to_the_parts_and_lanes_to_the_step(name: str) -> None:
    prediction = made(name)
    assert prediction.curve is not None
    found = timeline(prediction.curve)
    total = sums(found)
    stages = [group for group in total if group != "workers"]
    assert len(stages) == prediction.result["layout"][0]["pp"]
    time = float(prediction.result["time_s"][0])
    for part, values in prediction.result["parts_s"].items():
        mean = sum(total[group][part] for group in stages) / len(stages)
        assert mean == pytest.approx(float(values[0]), abs=1e-9 * time), part
    for group in stages:
        shown = sum(seconds for part, seconds in total[group].items() if part != HIDDEN)
        assert shown == pytest.approx(time, rel=1e-9)
        assert total[group][HIDDEN] == pytest.approx(float(prediction.result["hidden_s"][0]), abs=1e-9 * time)


@pytest.mark.parametrize("name", JOBS)
def test_no_lane_does_two_things_at_once_and_none_leaves_the_step(name: str) -> None:
    curve = made(name).curve
    assert curve is not None
    found = timeline(curve)
    by_lane: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for span in found.spans:
        assert span.time_s > 0.0
        by_lane[span.lane].append((span.start_s, span.start_s + span.time_s))
    for spans in by_lane.values():
        ordered = np.array(sorted(spans))
        assert (ordered[1:, 0] >= ordered[:-1, 1] - 1e-9 * found.time_s).all()
        assert ordered[0, 0] >= 0.0
        assert ordered[-1, 1] <= found.time_s * (1.0 + 1e-9)


def test_what_workers_idle_is_the_straggler_part() -> None:
    prediction = made("stragglers")
    assert prediction.curve is not None
    found = timeline(prediction.curve)
    lanes = {index for index, lane in enumerate(found.lanes) if lane.group == "workers"}
    idle = [span.time_s for span in found.spans if span.lane in lanes and span.part == "straggler"]
    assert len(lanes) == 12
    assert sum(idle) / 12 == pytest.approx(float(prediction.result["parts_s"]["straggler"][0]))
    assert idle == sorted(idle, reverse=True)


def test_many_micro_batches_are_drawn_by_fewer_that_add_up_too() -> None:
    prediction = made("pipeline")
    assert prediction.curve is not None
    few = timeline(prediction.curve, most=40)
    assert few.drawn < few.micro_batches
    assert "are drawn for" in few.notes[0]
    whole, less = sums(timeline(prediction.curve)), sums(few)
    for group in whole:
        for part, seconds in whole[group].items():
            if group != "workers":
                assert less[group][part] == pytest.approx(seconds, rel=1e-9)


# The trace event format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
NUMBER = {"type": "number", "minimum": 0}
EVENT = {
    "type": "object",
    "required": ["ph", "name", "pid", "tid", "ts", "args"],
    "properties": {
        "ph": {"enum": ["X", "M"]},
        "name": {"type": "string", "minLength": 1},
        "cat": {"type": "string", "minLength": 1},
        "ts": NUMBER,
        "dur": NUMBER,
        "pid": {"type": "integer", "minimum": 0},
        "tid": {"type": "integer", "minimum": 0},
        "args": {"type": "object"},
    },
    "additionalProperties": False,
    "if": {"properties": {"ph": {"const": "X"}}},
    "then": {"required": ["dur", "cat"]},
    "else": {
        "properties": {
            "name": {"enum": ["process_name", "process_sort_index", "thread_name", "thread_sort_index"]}
        }
    },
}
SCHEMA = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit", "otherData"],
    "properties": {
        "traceEvents": {"type": "array", "minItems": 1, "items": EVENT},
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "additionalProperties": False,
}


def kineto(path: Path, steps: int = 6) -> Path:
    """A small trace of the form that the PyTorch profiler writes."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        at = 1000.0 + step * 500.0
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 7, "tid": 1, "ts": at, "dur": 500.0},
            {"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{step}", "pid": 0, "tid": 7, "ts": at + 5, "dur": 490.0},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 1, "ts": at + 1, "dur": 9.0},
            {"ph": "X", "cat": "kernel", "name": "sm90_gemm", "pid": 0, "tid": 7, "ts": at + 10, "dur": 300.0, "args": {"device": 0, "stream": 7}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum", "pid": 0, "tid": 20, "ts": at + 200, "dur": 200.0, "args": {"device": 0, "stream": 20}},
        ]  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["interleaved", "sharded", "one"])
def test_the_trace_keeps_to_the_format(name: str) -> None:
    curve = made(name).curve
    assert curve is not None
    text = document(timeline(curve).mapping(), {"job": "x"})
    found = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    named = {(e["pid"], e["tid"]) for e in found["traceEvents"] if e["name"] == "thread_name"}
    processes = {e["pid"] for e in found["traceEvents"] if e["name"] == "process_name"}
    for event in found["traceEvents"]:
        if event["ph"] == "X":
            assert (event["pid"], event["tid"]) in named
            assert event["pid"] in processes
    assert text == document(timeline(curve).mapping(), {"job": "x"})


def test_a_measured_step_stands_beside_it(tmp_path: Path, capsys: Any) -> None:
    trace, out = kineto(tmp_path / "rank0.json"), tmp_path / "step.json"
    words = [
        "-w",
        "gpt-1.7b",
        "-c",
        "dgx-h100",
        "-k",
        "8",
        "--layout",
        "sharding=ddp",
        "--timeline",
        str(out),
    ]
    assert main(["explain", *words, "--against", str(trace), "--quiet"]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    jsonschema.validate(found, SCHEMA)
    measured = [e for e in found["traceEvents"] if e["ph"] == "X" and e["pid"] > 1000]
    assert {e["name"] for e in measured} >= {"sm90_gemm", "ncclDevKernel_AllReduce_Sum"}
    assert {e["cat"] for e in measured} == {"compute", "communication", "annotation"}
    assert max(e["ts"] + e["dur"] for e in measured) <= 500.0 + 1e-6
    names = [e["args"]["name"] for e in found["traceEvents"] if e["name"] == "process_name"]
    assert any(name.startswith("measured: rank0.json") for name in names)


def test_one_step_of_a_trace(tmp_path: Path) -> None:
    step = read_one_step(kineto(tmp_path / "t.json"))
    assert step.time_s == pytest.approx(500e-6)
    kinds = [event.kind for event in step.events]
    assert kinds.count("communication") == 1
    assert read_one_step(tmp_path / "t.json", most=1).cut > 0
    empty = tmp_path / "empty.json"
    empty.write_text("[]", encoding="utf-8")
    with pytest.raises(SpecError, match="no events"):
        read_one_step(empty)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["-k", "1,2", "--timeline", "t.json"], "one K"),
        (["-k", "8", "--timeline", "t.svg"], "end the name in .json"),
        (["-k", "8", "--against", "t.json"], "--against goes with --timeline"),
        (["-k", "8", "--timeline", "t.json", "-o", "t.json"], "different files"),
        (["-k", "1", "-w", "llama3-70b", "--layout", "tp=1", "--timeline", "t.json"], "not feasible"),
    ],
)
def test_bad_requests_are_refused(
    words: list[str], wrong: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "-w", "gpt-1.7b", "-c", "dgx-h100", *words]) == 2
    assert wrong in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_picture_stands_in_the_report(tmp_path: Path) -> None:
    page, out = tmp_path / "r.html", tmp_path / "s.json"
    command = [sys.executable, "-m", "perfmodel", "explain", "-w", "gpt-1.7b", "-c", "dgx-h100", "-k", "16", "--layout",
               "pp=2,vpp=1,micro_batch=1", "--timeline", str(out), "--report", str(page), "--quiet"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = page.read_text(encoding="utf-8")
    assert "One step, stage by stage" in text
    assert "stage 1" in text
    again = subprocess.run(
        [sys.executable, "-m", "perfmodel", "report", str(page), "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    kept = json.loads(again.stdout)["result"]["timeline"]
    assert figure(kept) in text
    assert draw(kept) == draw(kept)
    assert draw({**kept, "spans": []}) == ""
