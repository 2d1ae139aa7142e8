"""`law stragglers`, and jitter of any distribution in a job."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

JOB = ("-w", "resnet50", "-c", "dgx-a100", "--global-batch", "4096", "-k", "64")


def result_of(run, *arguments, cwd="."):
    done = run(*arguments, "--format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_closed_forms_to_the_printed_digit(run):
    """Exponential 1 - s + s H_K, Gumbel 1 + s sqrt(6)/pi ln K, normal of two 1 + s/sqrt(pi)."""
    done = run("law", "stragglers", "--spread", "0.1", "-k", "2,8,64")
    for value in (
        1 + 0.1 / math.sqrt(math.pi),
        1 + 0.1 * math.sqrt(6) / math.pi * math.log(64),
        0.9 + 0.1 * 761 / 280,
    ):
        assert f"{value:.4f}" in done.stdout


def test_parameters_and_samples(run, tmp_path):
    (tmp_path / "steps.csv").write_text("step,time_s\n1,1.0\n2,3.0\n")
    found = result_of(
        run,
        "law",
        "stragglers",
        "--distribution",
        "pareto",
        "--tail",
        "2.5",
        "--samples",
        "steps.csv",
        "-k",
        "1,2",
        cwd=tmp_path,
    )
    assert found["expected_max"]["samples"] == pytest.approx([1.0, 1.25])
    assert set(found["expected_max"]) == {"pareto", "samples"}
    assert "tail index 2.5" in found["distributions"]["pareto"]


def test_as_a_command_of_its_own_with_a_plot(tmp_path):
    plot = tmp_path / "wait.svg"
    command = [sys.executable, "-m", "perfmodel", "law", "stragglers", "-k", "1..1024", "--plot", str(plot)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "no wait" in plot.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("{distribution: pareto, spread: 0.05, tail: 2.2}", "pareto, spread 0.05, tail index 2.2"),
        ("{distribution: gamma, spread: 0.05, shift: 0.5}", "gamma, spread 0.05, 0.5 of the step constant"),
        (
            "{distribution: mixture, mixture: [{share: 0.9, spread: 0.02}, {share: 0.1, slower: 2}]}",
            "mixture: 0.9 of lognormal",
        ),
        ("{distribution: empirical, samples: [1, 1.1, 1.2]}", "3 measured samples"),
        ("{file: steps.csv}", "4 measured samples"),
    ],
)
def test_explain_names_the_declared_distribution(run, tmp_path, declared, words):
    (tmp_path / "steps.csv").write_text("1.0\n1.0\n1.1\n1.3\n")
    (tmp_path / "job.yaml").write_text(
        f"workload: resnet50\ncluster: dgx-a100\nglobal_batch: 4096\njitter: {declared}\n"
    )
    found = result_of(run, "explain", "job.yaml", "-k", "64", cwd=tmp_path)
    term = next(row for row in found["terms"] if row["name"] == "straggler")
    (row,) = [item for item in term["inputs"] if item["name"] == "distribution of the jitter"]
    assert words in row["shown"]
    assert row["source"] == "job"
    assert any(words in note for note in found["notes"])
    assert term["share"] > 0.02


BAD = [
    ("{distribution: pareto, spread: 0.1, tail: 2}", "must be above 2"),
    ("{distribution: gamma, spread: 0.1, tail: 3}", "tail is the index of pareto"),
    ("{distribution: mixture, mixture: [{share: 1.0}]}", "at least two parts"),
    ("{distribution: mixture, mixture: [{share: 0.5}, {share: 0.4}]}", "sum to 0.9"),
    ("{distribution: empirical}", "needs measured step times"),
    ("{distribution: empirical, samples: [1]}", "at least 2 samples"),
    ("{distribution: empirical, samples: [1, -1]}", "must be above 0"),
    ("{distribution: lognormal}", 'missing key "spread"'),
    ("{spread: 0.1, mixture: []}", "no part of distribution lognormal"),
    ("{file: gone.csv}", "cannot read"),
    ("{file: words.csv}", "words.csv:3"),
]


@pytest.mark.parametrize(("declared", "words"), BAD)
def test_a_bad_declaration_is_told(run, tmp_path, declared, words):
    (tmp_path / "words.csv").write_text("time_s\n1\nquick\n")
    (tmp_path / "job.yaml").write_text(f"workload: resnet50\ncluster: dgx-a100\njitter: {declared}\n")
    done = run("predict", "job.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "job.yaml:3" in done.stderr or ".csv" in done.stderr


def test_few_samples_and_many_workers_are_noted(run):
    found = result_of(
        run, "predict", *JOB, "--set", "jitter={samples: [1, 1.1], distribution: empirical}", "--draws", "0"
    )
    assert any("too few for the slowest of 64" in note for note in found["notes"])
