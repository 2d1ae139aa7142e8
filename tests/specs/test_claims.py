"""Claim files: the contract's example, and how little a claim may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import load_claim

FULL = """\
vendor: Example Cloud
workload: resnet50
cluster: dgx-a100
precision: fp16
regime: strong
global_batch: 3264
seq_len: 2048
layout: {sharding: ddp}
headline: {k: 256, speedup: 180}
baseline: {k: 1, throughput: 2470}
points:
  - {k: 8, throughput: 16621, global_batch: 2048, repeats: 5, spread: 0.01, quality: 0.759}
  - {k: 64, throughput: 120000}
price: 2.10 USD/h
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.default()


def test_the_contract_example(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text(FULL)
    claim = load_claim(path, catalog=catalog)
    assert claim.vendor == "Example Cloud"
    assert claim.workload is not None
    assert claim.device is not None
    assert claim.device.name == "a100-sxm4-80gb"
    assert claim.headline is not None
    assert (claim.headline.k, claim.headline.speedup) == (256, 180)
    assert claim.price == pytest.approx(2.1 / 3600)
    assert [point.k for point in claim.points] == [8, 64]
    assert claim.points[0].quality == 0.759
    problem = claim.error_at("points.1.throughput", "A001", "odd").problems[0]
    assert (problem.line, problem.column) == (13, 25)


def test_only_a_headline(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text("accelerator: h100-sxm5-80gb\nheadline: {k: 256, speedup: 180}\n")
    claim = load_claim(path, catalog=catalog)
    assert claim.workload is None
    assert claim.cluster is None
    assert claim.regime is None
    assert claim.device is not None


def test_any_measure_at_a_point(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "claim.yaml"
    measures = "time_s: 0.5, tokens_per_s: 1e6, efficiency: 0.9, mfu: 45 %, tflop_per_s_per_accelerator: 400, energy_j: 3 kJ"
    path.write_text(f"points:\n  - {{k: 8, {measures}}}\n")
    point = load_claim(path, catalog=catalog).points[0]
    assert (point.time_s, point.mfu, point.energy_j) == (0.5, 0.45, 3000.0)
