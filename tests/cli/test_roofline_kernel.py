"""`perfmodel roofline` for one kernel: textbook numbers, what to do, refusals."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def kernel(run, *arguments):
    done = run("roofline", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_a_large_product_is_bound_by_the_peak(run):
    found = kernel(run, "--m", "4096", "--n", "4096", "--k", "4096", "-c", "dgx-a100")
    assert found["flop"] == 2 * 4096**3
    assert found["traffic_bytes"] == 3 * 2 * 4096**2
    assert found["intensity_flop_per_byte"] == pytest.approx(4096 / 3)
    assert found["bound"] == "compute"
    assert found["roof_s"] == pytest.approx(2 * 4096**3 / 312e12)


def test_a_product_with_a_vector_is_bound_by_memory(run):
    found = kernel(run, "--m", "1", "--n", "4096", "--k", "4096", "-c", "dgx-a100")
    assert found["bound"] == "memory"
    assert found["roof_s"] == pytest.approx(found["traffic_bytes"] / found["memory_bandwidth_bytes_per_s"])
    assert "move fewer bytes" in found["remedy"]


@pytest.mark.parametrize(("bytes_", "bound"), [("1 GB", "compute"), ("100 GB", "memory")])
def test_flop_and_bytes_against_the_ridge(run, bytes_, bound):
    found = kernel(run, "--flop", "2 TFLOP", "--bytes", bytes_, "-c", "dgx-a100")
    assert found["bound"] == bound
    ridge = found["peak_flop_per_s"] / found["memory_bandwidth_bytes_per_s"]
    assert found["ridge_flop_per_byte"] == pytest.approx(ridge)
    assert f"ridge at {ridge:.4g}" in found["answer"]
    assert found["remedy"].rstrip(".") in found["answer"]


def test_near_the_ridge_both_roofs_matter(run):
    found = kernel(run, "--flop", "2e12", "--bytes", "13e9", "-c", "dgx-a100")
    assert "both roofs matter" in found["remedy"]


def test_a_job_says_where_the_ridge_lies_and_what_to_do(run):
    done = run("roofline", "-w", "resnet50", "-c", "dgx-a100", "-k", "8,1024", "--format", "json")
    found = json.loads(done.stdout)["result"]
    assert f"ridge lies at {found['ridge_flop_per_byte']:.4g} FLOP per byte" in found["answer"]
    bounds = {row["bound"][-1] for row in found["phases"]}
    assert set(found["advice"]) == bounds
    assert sorted(name for about in found["advice"].values() for name in about["phases"]) == sorted(
        row["name"] for row in found["phases"]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--flop", "1e9", "-c", "dgx-a100"), "both --flop and --bytes"),
        (("--m", "8", "--n", "8", "-c", "dgx-a100"), "--m, --n and --k"),
        (("--m", "8", "--n", "8", "--k", "8", "--flop", "1", "-c", "dgx-a100"), "both a product and"),
        (("--flop", "-1", "--bytes", "1", "-c", "dgx-a100"), "--flop must be above zero"),
        (("--flop", "1", "--bytes", "nan", "-c", "dgx-a100"), "--bytes"),
        (("--flop", "1", "--bytes", "1"), "no accelerator"),
        (("--flop", "1", "--bytes", "1", "-w", "resnet50", "-c", "dgx-a100"), "a kernel has no job"),
        (("--m", "8", "--n", "8", "--k", "8..16", "-c", "dgx-a100"), "inner dimension"),
        (("--flop", "1", "--bytes", "1", "-c", "dgx-a100", "--precision", "fp8"), "has no fp8"),
    ],
)
def test_bad_usage_is_told(run, arguments, words):
    done = run("roofline", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_as_a_command_of_its_own(tmp_path):
    plot = tmp_path / "kernel.svg"
    command = [
        sys.executable,
        "-m",
        "perfmodel",
        "roofline",
        "--flop",
        "2e9",
        "--bytes",
        "12 MB",
        "-c",
        "dgx-a100",
    ]
    done = subprocess.run([*command, "--plot", str(plot)], capture_output=True, text=True, check=True)
    assert "the ridge at" in " ".join(done.stdout.split())
    assert "ridge" in plot.read_text(encoding="utf-8")
