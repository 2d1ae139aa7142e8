"""What a lock keeps of a job is what the model reads: the same inputs give the same prediction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.decide.gate.inputs import dump, restore
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import curve
from perfmodel.training.setup import setup_of

CATALOG = Catalog.default()
MEASURED = """\
node:
  name: own
  accelerator: {extends: h100-sxm5-80gb, name: own-h100, matmul_fraction: {value: 0.6, source: a benchmark, confidence: measured}}
  accelerators_per_node: 8
  scale_up: nvlink-4
"""


def seconds(job) -> float:
    return float(curve(setup_of(job), shipped_beliefs(), draws=0).time_s[0])


@pytest.mark.parametrize("cluster", CATALOG.names("clusters"))
def test_a_restored_job_is_predicted_as_the_job_was(cluster: str) -> None:
    for workload in ("resnet50", "llama3.2-1b"):
        words = {"workload": workload, "cluster": cluster, "k": 4, "global_batch": 256}
        job = load_job(words, catalog=CATALOG)
        now, again = seconds(job), seconds(restore(dump(job)))
        assert now == pytest.approx(again, rel=1e-12) or (np.isnan(now) and np.isnan(again))


def test_a_measured_efficiency_is_kept_as_measured(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("name: own\n" + MEASURED, encoding="utf-8")
    job = load_job(
        {"workload": "llama3-8b", "cluster": str(path), "k": 8, "global_batch": 64}, catalog=CATALOG
    )
    assert setup_of(job).measured
    assert seconds(job) == pytest.approx(seconds(restore(dump(job))), rel=1e-12)
