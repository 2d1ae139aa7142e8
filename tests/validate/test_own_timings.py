"""A job's own runs against its prediction: the five example tables, advice, and refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from perfmodel.cli.main import main
from perfmodel.decide.prediction import predict
from perfmodel.errors import SpecError
from perfmodel.specs.jobs import load_job
from perfmodel.validate.own_timings import validate_job

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "timings"
# Median error that each may have; the shipped beliefs were fitted with these runs among others.
TABLES = {
    "bert-large-dgx-a100": 0.10,
    "llama3-70b-dgx-h100": 0.10,
    "gpt-neo-125m-mi250x": 0.30,
    "bert-squad-dgx-2": 0.20,
    "resnet50-mxnet-v100": 0.80,  # a slow loader, which the job does not declare
}


def validated(name, **said):
    return validate_job(load_job(EXAMPLES / f"{name}.yaml", overrides=said), EXAMPLES / f"{name}.csv").result


@pytest.mark.parametrize("name", TABLES)
def test_five_example_tables(name):
    result = validated(name)
    assert result["median_ape"] < TABLES[name]
    error = np.asarray(result["predicted_s"]) / np.asarray(result["measured_s"]) - 1
    np.testing.assert_allclose(result["error"], error)
    inside = (np.asarray(result["low_s"]) <= result["measured_s"]) & (
        result["measured_s"] <= np.asarray(result["high_s"])
    )
    assert result["in_band"] == inside.tolist()
    assert set(result["laws"]) == {"ideal", "constant_efficiency", "amdahl", "usl", "ring_law", "log_law"}
    assert result["beyond"]["k"] == list(result["k"][2:])
    assert bool(result["advice"]) == (result["median_ape"] > 0.05)


def test_there_are_five():
    assert (
        {path.stem for path in EXAMPLES.glob("*.csv")}
        == set(TABLES)
        == {p.stem for p in EXAMPLES.glob("*.yaml")}
    )


def test_the_prediction_is_that_of_predict_with_its_own_defaults():
    name = "bert-large-dgx-a100"
    job = load_job(EXAMPLES / f"{name}.yaml", overrides={"k": "8..256"})
    whole = predict(job, None, draws=0).result
    result = validated(name)
    at = [list(whole["k"]).index(k) for k in result["k"]]
    np.testing.assert_allclose(result["predicted_s"], np.asarray(whole["time_s"])[at], rtol=1e-12)
    np.testing.assert_allclose(result["low_s"], np.asarray(whole["time_s_low"])[at], rtol=1e-12)


def test_a_batch_in_the_table_wins_over_the_jobs():
    result = validated("bert-squad-dgx-2")
    assert list(result["global_batch"]) == [24, 96, 192, 384]
    assert not any("global_batch" in item["what"] for item in result["advice"])


def test_a_factor_on_the_times_is_found_again(tmp_path):
    """Times as if the memory were half as fast: the advice names what would explain it, and by how much."""
    job = load_job(None, overrides={"workload": "resnet50", "cluster": "dgx-a100", "k": "1..8", "framework": "mxnet",
                                    "global_batch": 1024, "layout": {"sharding": "ddp", "micro_batch": 128}})  # fmt: skip
    whole = predict(job, None, draws=0).result
    rows = [f"{k},{float(2.0 * t)!r}" for k, t in zip(whole["k"], whole["time_s"], strict=True)]
    table = tmp_path / "slow.csv"
    table.write_text("k,time_s\n" + "\n".join(rows) + "\n")
    result = validate_job(job, table).result
    assert result["median_ape"] == pytest.approx(0.5)
    assert result["bias"] == pytest.approx(-0.5)
    named = [item for item in result["advice"] if item["explains"]]
    assert named
    assert named[0]["explains"] > 0.8


def test_times_of_whole_runs_are_recognised(tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text("k,time_s\n8,14394\n16,7130\n32,3617\n")
    result = validate_job(load_job(EXAMPLES / "bert-large-dgx-a100.yaml"), table).result
    assert "time_s must be that of one optimizer step" in result["advice"][0]["what"]


def test_one_run_is_scored_without_laws(tmp_path):
    table = tmp_path / "one.csv"
    table.write_text("k,time_s\n8,14.4\n")
    result = validate_job(load_job(EXAMPLES / "bert-large-dgx-a100.yaml"), table).result
    assert (result["points"], result["laws"], result["beyond"]) == (1, {}, None)


def test_a_job_that_runs_at_none_of_the_k_is_told(tmp_path):
    table = tmp_path / "odd.csv"
    table.write_text("k,time_s\n7,1\n9,1\n")
    with pytest.raises(SpecError, match="none of these K"):
        validate_job(load_job(EXAMPLES / "llama3-70b-dgx-h100.yaml"), table)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["job.yaml"], "measured timings"),
        (["job.yaml", "--timings", "t.csv", "--refit"], "--refit and a job"),
        (["--timings", "t.csv"], "no job given"),
        (["job.yaml", "--timings", "gone.csv"], "gone.csv"),
        (["job.yaml", "--timings", "bad.csv"], "bad.csv:2"),
    ],
)
def test_bad_usage_is_told(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("workload: resnet50\ncluster: dgx-a100\n")
    Path("t.csv").write_text("k,time_s\n8,1\n")
    Path("bad.csv").write_text("k,time_s\n8,-1\n")
    assert main(["validate", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_as_a_command_of_its_own(tmp_path):
    name = EXAMPLES / "bert-large-dgx-a100"
    plot, report = tmp_path / "runs.svg", tmp_path / "runs.json"
    command = [sys.executable, "-m", "perfmodel", "validate", f"{name}.yaml", "--timings", f"{name}.csv"]
    done = subprocess.run([*command, "--plot", str(plot)], capture_output=True, text=True, check=True)
    assert "in  " in done.stdout
    assert "Beside the laws" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "measured" in plot.read_text(encoding="utf-8")
    subprocess.run([*command, "-o", str(report)], check=True, capture_output=True)
    assert json.loads(report.read_text())["schema"] == "perfmodel/timings/1"
