"""A measured serving row and a job that says the same are one deployment, one belief and one answer."""

from __future__ import annotations

import csv
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from perfmodel.physics.serving import serving_answer
from perfmodel.physics.serving_step import Deployment
from perfmodel.serving.beliefs import shipped_beliefs
from perfmodel.serving.setup import service_of
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_any_job
from perfmodel.validate.serving_predicted import features_of
from perfmodel.validate.serving_rows import resolve_runs
from perfmodel.validate.serving_table import read_runs

ROW = {
    "source": "lab",
    "scenario": "closed-loop",
    "concurrency": "32",
    "isl": "1024",
    "osl": "256",
    "tpot_mean_s": "0.02",
    "ttft_mean_s": "0.2",
}
CASES = {
    "dense on Hopper": (
        {"model": "Llama-3-70B", "accelerator": "H100", "n_accel": "4", "tp": "4", "engine": "vllm", "date": "2026-01", "precision": "fp8"},
        {"workload": "llama3-70b", "cluster": "dgx-h100"},
        {"engine": "vllm", "date": "2026-01", "precision": "fp8", "layout": {"tp": 4}},
    ),
    "an old engine on Ampere": (
        {"model": "Llama-3-8B", "accelerator": "A100-SXM4-80GB", "n_accel": "1", "tp": "1", "engine": "vllm", "engine_version": "0.5.4", "precision": "bf16"},
        {"workload": "llama3-8b", "cluster": "dgx-a100"},
        {"engine": "vllm", "version": "0.5.4", "precision": "bf16", "layout": {"tp": 1}},
    ),
    "eight-bit caches by default": (
        {"model": "Llama-3-70B", "accelerator": "H100", "n_accel": "8", "tp": "8", "engine": "tensorrt-llm", "engine_version": "1.1", "precision": "fp8"},
        {"workload": "llama3-70b", "cluster": "dgx-h100"},
        {"engine": "tensorrt-llm", "version": "1.1", "precision": "fp8", "layout": {"tp": 8}},
    ),
    "experts over all ranks": (
        {"model": "DeepSeek-V3", "accelerator": "H200", "n_accel": "8", "tp": "8", "ep": "8", "engine": "sglang", "date": "2026-01", "precision": "fp8"},
        {"workload": "deepseek-v3", "cluster": "hgx-h200"},
        {"engine": "sglang", "date": "2026-01", "precision": "fp8", "layout": {"tp": 8, "ep": 8}},
    ),
    "weights alone in four bits": (
        {"model": "Llama-3-8B", "accelerator": "H100", "n_accel": "1", "tp": "1", "engine": "vllm", "date": "2026-01", "precision": "awq"},
        {"workload": "llama3-8b", "cluster": "dgx-h100"},
        {"engine": "vllm", "date": "2026-01", "precision": "int4", "layout": {"tp": 1}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_row_and_a_job_are_one(name: str, tmp_path: Path) -> None:
    row, where, block = CASES[name]
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(ROW | row))
        writer.writeheader()
        writer.writerow(ROW | row)
    runs = resolve_runs(read_runs(path).rows, Catalog.default())
    assert len(runs) == 1, runs.unresolved
    job = load_any_job(
        where | {"serving": {"input_tokens": 1024, "output_tokens": 256, "load": {"concurrency": 32}} | block}
    )
    beliefs = shipped_beliefs()
    service = service_of(job, beliefs)
    at = service.deployment([job.serving.layout])
    assert runs.deployment.prefill_at is at.prefill_at is None
    for field in fields(Deployment):
        if field.name == "prefill_at":
            continue
        assert float(np.ravel(getattr(runs.deployment, field.name))[0]) == pytest.approx(
            float(getattr(at, field.name))
        ), field.name
    (features,) = features_of(runs)
    belief = beliefs.belief(features)
    np.testing.assert_array_equal(belief.median, service.belief.median)
    np.testing.assert_array_equal(belief.spread, service.belief.spread)
    measured = serving_answer(runs.shape, runs.machine, runs.deployment, runs.load, belief.coefficients)
    own = serving_answer(
        service.shape, service.machine, at, service.load(0.0, concurrency=32.0), service.coefficients
    )
    for field_name in ("throughput_out_tokens_per_s", "tpot_s", "ttft_s", "fitting"):
        np.testing.assert_allclose(
            np.ravel(getattr(measured, field_name)), np.ravel(getattr(own, field_name)), rtol=1e-6
        )
