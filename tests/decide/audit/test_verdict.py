"""What a claim's points say about themselves reaches their prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfmodel.decide.audit.verdict import audit
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import load_claim

CATALOG = Catalog.default()
CLAIM = """\
workload: mpt-7b
cluster: {node: hgx-a100, scale_out: roce-200, nics_per_node: 8}
precision: bf16
regime: weak
seq_len: 2048
"""
LAYOUT = "layout: {tp: 2, sharding: zero1, micro_batch: 1}\n"


def audited(tmp_path: Path, head: str, *points: str) -> dict[str, Any]:
    path = tmp_path / "claim.yaml"
    listed = "".join(f"  - {{{point}}}\n" for point in points)
    path.write_text(f"{CLAIM}{head}points:\n{listed}", encoding="utf-8")
    return dict(audit(load_claim(path, catalog=CATALOG), catalog=CATALOG).result)


def predicted(tmp_path: Path, head: str, recompute: str) -> float:
    result = audited(tmp_path, head, f"k: 64, time_s: 17, global_batch: 2048, recompute: {recompute}")
    return float(result["points"][0]["predicted_s"])


@pytest.mark.parametrize("head", [LAYOUT, ""], ids=["given-layout", "open-layout"])
def test_the_recomputation_of_a_point_moves_its_band(tmp_path: Path, head: str) -> None:
    none, half, full = (predicted(tmp_path, head, said) for said in ("none", "0.5", "full"))
    assert none * 1.08 < half < full
    assert full < none * 1.5


def test_one_k_claims_no_speedup(tmp_path: Path) -> None:
    alone = audited(tmp_path, "", "k: 64, time_s: 17, global_batch: 2048")["points"][0]
    assert (alone["speedup"], alone["efficiency"]) == (None, None)
    stated = audited(tmp_path, "", "k: 64, speedup: 60, global_batch: 2048")["points"][0]
    assert stated["speedup"] == pytest.approx(60)


def test_points_at_one_k_keep_their_own_recomputation(tmp_path: Path) -> None:
    step = "k: 64, time_s: 17, global_batch: 2048"
    rows = audited(tmp_path, LAYOUT, f"{step}, recompute: none", f"{step}, recompute: full")["points"]
    assert rows[0]["predicted_s"] * 1.2 < rows[1]["predicted_s"]


def test_the_ladder_recomputes_what_all_points_do(tmp_path: Path) -> None:
    def rungs(recompute: str) -> list[float]:
        points = (f"k: {k}, global_batch: {32 * k}, time_s: 17, recompute: {recompute}" for k in (16, 64))
        return [rung["efficiency"] for rung in audited(tmp_path, LAYOUT, *points)["ladder"]]

    assert rungs("none") != rungs("full")
