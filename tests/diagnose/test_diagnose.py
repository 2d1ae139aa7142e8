"""`perfmodel diagnose`: a run that was made slow in a known way is told so, and a good one is left in peace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.parts import COVERS, HIDDEN
from perfmodel.cli.main import main
from perfmodel.diagnose.causes import CAUSES, Model
from perfmodel.diagnose.diagnosis import diagnose
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import curve
from perfmodel.training.setup import setup_of
from perfmodel.training.step import Step

JOB = """\
workload: llama3-8b
cluster: dgx-h100
seq_len: 8192
global_batch: 256
layout: {sharding: zero1, tp: 2, micro_batch: 1, recompute: selective, sequence_parallel: true}
k: 64
stack: {framework: megatron-lm, overlap_gradients: true}
"""
BY_NAME = {cause.name: cause for cause in CAUSES}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


def model_of(config: Path) -> Model:
    return Model.of(curve(setup_of(load_job(config)), shipped_beliefs(), draws=0))


def log_of(path: Path, seconds: np.ndarray[Any, Any], k: int = 64, batch: int = 256) -> Path:
    lines = [f"using world size: {k}, data-parallel size: {k // 2}"]
    lines += [
        f" iteration {i:8d}/ 500 | elapsed time per iteration (ms): {1e3 * time:.2f} | global batch size: {batch} |"
        for i, time in enumerate(seconds, start=1)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def steady(time: float, steps: int = 40) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(7)
    return np.concatenate([[3.0 * time], time * (1.0 + 0.005 * rng.standard_normal(steps))])


def under(model: Model, name: str, severity: float) -> Step:
    return BY_NAME[name].change(model, np.array([[severity]])).step()


def trace_of(path: Path, made: Step, k: int = 64, steps: int = 5) -> Path:
    """A rank's profiler trace that has the parts of a step: compute, exchange under it, exchange, idle, stall."""

    def seconds(name: str) -> float:
        parts = [made.hidden_s if part == HIDDEN else made.parts[part] for part in COVERS[name].parts]
        return float(np.sum([np.asarray(part).reshape(-1)[0] for part in parts]))

    events: list[dict[str, Any]] = []

    def add(category: str, name: str, start: float, length: float, **args: Any) -> None:
        events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 0,
                "tid": 7,
                "ts": start * 1e6,
                "dur": length * 1e6,
                "args": args,
            }
        )

    at = 0.0
    for number in range(steps):
        begin = at
        stall, compute, hidden = seconds("input_stall"), seconds("compute"), seconds("hidden_communication")
        add("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, stall)
        at += stall
        add("kernel", "sm90_gemm", at, compute, device=0, stream=7)
        facts = {
            "Collective name": "allreduce",
            "dtype": "Float",
            "In msg nelems": 9,
            "Out msg nelems": 9,
            "Group size": k,
        }
        add("kernel", "ncclDevKernel_AllReduce", at, min(hidden, compute), device=0, stream=9, **facts)
        at += compute
        shown = seconds("exposed_communication")
        add("kernel", "ncclDevKernel_AllReduce", at, shown, device=0, stream=9, **facts)
        at += shown + seconds("idle")
        add("user_annotation", f"ProfilerStep#{number}", begin, at - begin)
    world = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": k}}
    path.write_text(json.dumps({**world, "traceEvents": events}), encoding="utf-8")
    return path


def test_a_run_at_the_expected_pace_is_fine(config: Path, tmp_path: Path) -> None:
    model = model_of(config)
    found = diagnose([config], log_of(tmp_path / "train.log", steady(1.02 * model.time_s))).result
    assert found["verdict"] == "fine"
    assert found["causes"] == []
    assert found["answer"].startswith("The run is fine: ")
    assert found["reaches"] == pytest.approx(1.0 / 1.02, rel=0.01)
    assert sum(found["parts_s"].values()) == pytest.approx(found["expected_s"])


def test_a_run_that_is_too_fast_is_doubted(config: Path, tmp_path: Path) -> None:
    model = model_of(config)
    found = diagnose([config], log_of(tmp_path / "train.log", steady(0.6 * model.time_s))).result
    assert found["verdict"] == "fast"
    assert "batch" in found["answer"]


def test_a_log_alone_does_not_pretend_to_know_the_cause(config: Path, tmp_path: Path) -> None:
    model = model_of(config)
    found = diagnose([config], log_of(tmp_path / "train.log", steady(3.0 * model.time_s))).result
    assert found["verdict"] == "slow"
    assert "fit more than one cause" in found["answer"]
    assert found["tells_apart"]["quantity"] in COVERS
    likely = found["causes"][:2]
    assert all(abs(row["explains_s"] / found["measured_s"] - 1.0) < 0.1 for row in likely)
    # What a cause would gain is the model's own: mended, the run is back at what was expected.
    first = likely[0]
    assert first["after_s"] == pytest.approx(found["measured_s"] * found["expected_s"] / first["explains_s"])


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("slow_clock", 0.6),
        ("slow_network", 1.0 / 14.0),
        ("slow_host", 12.0),
        ("slow_input", 1.5),
        ("unfused_attention", 1.0),
    ],
)
def test_a_trace_tells_the_cause(config: Path, tmp_path: Path, name: str, severity: float) -> None:
    model = model_of(config)
    made = under(model, name, severity)
    time = float(np.asarray(made.time_s).reshape(-1)[0])
    log = log_of(tmp_path / "train.log", steady(time))
    found = diagnose([config], log, [trace_of(tmp_path / "rank0.json", made)]).result
    assert found["verdict"] == "slow"
    named = [row["cause"] for row in found["causes"]]
    # Causes with the same signature share the odds: attention and clocks lengthen compute, host and pauses idle time.
    alike = {
        "slow_clock": {"slow_clock", "unfused_attention", "recomputed", "wider_precision"},
        "unfused_attention": {"slow_clock", "unfused_attention", "recomputed", "wider_precision"},
        "slow_host": {"slow_host", "work_between_steps"},
        "slow_network": {"slow_network", "slow_links", "slow_device", "jitter"},
        "slow_input": {"slow_input"},
    }[name]
    assert named[0] in alike
    assert name in named
    row = next(row for row in found["causes"] if row["cause"] == name)
    if BY_NAME[name].severity is not None:
        assert row["severity"] == pytest.approx(severity, rel=0.25)
    assert row["evidence"][0]["speaks_for"] > 0.0


def test_ranks_name_the_slow_one(config: Path, tmp_path: Path) -> None:
    model = model_of(config)
    time = float(np.asarray(under(model, "slow_device", 1.4).time_s).reshape(-1)[0])
    log = log_of(tmp_path / "train.log", steady(time))
    rng = np.random.default_rng(3)
    rows = ["rank,step,time_s"]
    for step in range(20):
        for rank in range(64):
            own = model.time_s * (1.4 if rank == 17 else 1.0) * (1.0 + 0.004 * rng.standard_normal())
            rows.append(f"{rank},{step},{own:.5f}")
    ranks = tmp_path / "ranks.csv"
    ranks.write_text("\n".join(rows), encoding="utf-8")
    found = diagnose([config], log, ranks=ranks).result
    assert found["causes"][0]["cause"] == "slow_device"
    assert found["slowest_rank"]["rank"] == 17
    assert any("rank 17 is the slowest" in note for note in found["notes"])


def test_what_the_configuration_gives_away_is_told_with_its_line(config: Path, tmp_path: Path) -> None:
    config.write_text(JOB.replace("selective", "full"), encoding="utf-8")
    model = model_of(config)
    found = diagnose([config], log_of(tmp_path / "train.log", steady(model.time_s))).result
    assert found["verdict"] == "fine"
    row = next(row for row in found["settings"] if row["setting"] == "recompute")
    assert row["stated_at"] == f"{config}:5"
    changed = load_job(config, overrides={"layout.recompute": "none"})
    again = float(curve(setup_of(changed), shipped_beliefs(), draws=0).time_s[0])
    assert row["gain"] == pytest.approx(1.0 - again / model.time_s, rel=0.02)


def test_what_the_stack_states_is_expected_and_told_as_a_setting(config: Path, tmp_path: Path) -> None:
    usual = model_of(config).time_s
    config.write_text(JOB.replace("overlap_gradients: true", "attention: unfused"), encoding="utf-8")
    model = model_of(config)
    assert model.time_s > 1.2 * usual
    found = diagnose([config], log_of(tmp_path / "train.log", steady(model.time_s))).result
    assert found["verdict"] == "fine"
    assert sum(found["parts_s"].values()) == pytest.approx(found["expected_s"])
    best = next(row for row in found["settings"] if row["setting"] == "attention")
    assert best["stated_at"] == f"{config}:7"
    assert best["gain"] == pytest.approx(1.0 - usual / model.time_s, rel=0.1)


def test_what_the_run_leaves_open_is_said(config: Path, tmp_path: Path) -> None:
    config.write_text("workload: llama3-8b\ncluster: dgx-h100\nseq_len: 8192\n", encoding="utf-8")
    found = diagnose([config], log_of(tmp_path / "train.log", steady(3.0))).result
    assert found["k"] == 64  # the log's
    assert any("the layout of the run is not stated" in note for note in found["notes"])
    heavy = (
        JOB.replace("tp: 2", "tp: 1")
        .replace("llama3-8b", "llama3-70b")
        .replace(", sequence_parallel: true", "")
    )
    config.write_text(heavy, encoding="utf-8")
    found = diagnose([config], log_of(tmp_path / "train.log", steady(30.0))).result
    assert any("does not fit" in note and "took place" in note for note in found["notes"])


def test_causes_change_what_their_names_say(config: Path) -> None:
    model = model_of(config)
    base = model.step()
    part_of = {
        "gradients_not_hidden": "data_parallel",
        "slow_host": "host",
        "slow_input": "input_stall",
        "work_between_steps": "serial",
        "slow_device": "straggler",
        "jitter": "straggler",
        "recomputed": "compute",
    }
    for name, part in part_of.items():
        worst = (BY_NAME[name].severity or (1.0, 1.0))[1]
        made = under(model, name, worst)
        more = {key: float(np.max(made.parts[key] - base.parts[key])) for key in base.parts}
        assert max(more, key=lambda key: more[key]) == part, name
        assert BY_NAME[name].applies(model)
    for cause in CAUSES:  # no severity makes a step shorter
        if cause.applies(model):
            times = np.asarray(cause.change(model, cause.severities).step().time_s)
            assert np.all(times >= float(base.time_s[0]) * (1.0 - 1e-9)), cause.name
    assert not BY_NAME["slow_network"].applies(replace(model, at=replace(model.at, k=np.array([8.0]))))


def test_a_launch_script_is_the_configuration(tmp_path: Path, capsys: Any) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
        "--seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 64 --bf16 "
        "--group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu --vocab-size 128256 "
        "--use-distributed-optimizer --tensor-model-parallel-size 2 --sequence-parallel\n",
        encoding="utf-8",
    )
    log = log_of(tmp_path / "train.log", steady(1.4), batch=64)
    words = ["diagnose", "--config", str(script), "--log", str(log), "-c", "dgx-h100"]
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "perfmodel/diagnosis/1"
    row = next(row for row in found["result"]["settings"] if row["setting"] == "overlap_gradients")
    assert row["stated_at"] == f"{script} (default of --overlap-grad-reduce)"
    report = tmp_path / "report.html"
    assert main([*words, "--report", str(report)]) == 0
    assert "What the configuration gives away" in capsys.readouterr().out
    assert "Expected and measured" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ([], "the configuration of the run is not stated"),
        (["-w", "llama3-8b", "-c", "dgx-h100"], "nothing measured"),
        (["-w", "llama3-8b", "-c", "dgx-h100", "--log", "table.csv"], "is no log of one run's steps"),
        (["-w", "llama3-8b", "-c", "dgx-h100", "--log", "none.log"], "cannot read it"),
    ],
)
def test_bad_requests_are_refused(
    words: list[str], wrong: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("k,time_s\n8,1.0\n", encoding="utf-8")
    assert main(["diagnose", *words]) == 2
    assert wrong in capsys.readouterr().err
