"""Families that a job file describes: the least that a folder of measured runs needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.corpus import read_corpus
from perfmodel.validate.resolve import resolve
from perfmodel.validate.validation import validate

JOB = """workload: resnet50
cluster: dgx-a100
precision: fp16
framework: pytorch_eager
regime: weak
batch_per_accelerator: 128
layout: {sharding: ddp, micro_batch: 128}
"""
POINTS = "family,k,step_s\none,1,0.055\none,8,0.060\none,16,0.062\none,32,0.064\n"


def write(folder: Path, points: str = POINTS, **jobs: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "points.csv").write_text(points)
    for name, text in ({"one": JOB} | jobs).items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = validate(folder).envelope()["result"]
    return found


def test_three_columns_and_a_job_file_are_enough(tmp_path: Path) -> None:
    found = result(write(tmp_path / "d"))
    assert [found["modes"][mode]["points"] for mode in ("datasheet", "one_node", "two_point")] == [4, 2, 2]
    assert found["unresolved"] == []
    assert found["contradicted"] == []


def test_the_job_is_what_the_tables_would_say(tmp_path: Path) -> None:
    """The same runs in the whole form and as job files are the same observations."""
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "families.csv").write_text(
        "family,workload,precision,accelerator,accelerators_per_node,scale_up,scale_out,"
        "network_gbit_per_s_per_node,framework_class,sharding,regime\n"
        "one,resnet50,fp16,a100-sxm4-80gb,8,nvswitch-2,ib-hdr,1600,pytorch_eager,ddp,weak\n"
    )
    (whole / "points.csv").write_text(
        "family,k,nodes,tp,pp,micro_batch,global_batch,step_s\n"
        "one,1,1,1,1,128,128,0.055\none,8,1,1,1,128,1024,0.060\none,16,2,1,1,128,2048,0.062\none,32,4,1,1,128,4096,0.064\n"
    )
    with pytest.raises(SpecError, match=r"no file workloads\.csv"):
        read_corpus(whole)
    (whole / "workloads.csv").write_text("workload,kind\n")
    tables, jobs = result(whole), result(write(tmp_path / "d"))
    assert tables["unresolved"] == []
    for one, other in zip(tables["families"], jobs["families"], strict=True):
        assert [p["measured_s"] for p in one["points"]] == [p["measured_s"] for p in other["points"]]
        for a, b in zip(one["points"], other["points"], strict=True):
            assert b["predicted_s"] == pytest.approx(a["predicted_s"], rel=0.02)


def test_what_a_point_states_wins_over_the_job(tmp_path: Path) -> None:
    points = "family,k,step_s,global_batch,micro_batch\none,1,0.055,,\none,8,0.060,512,64\n"
    at = resolve(read_corpus(write(tmp_path / "d", points)), Catalog.default()).observations.at
    assert at.global_batch.tolist() == [128, 512]
    assert at.micro_batch.tolist() == [128, 64]


def test_a_transformer_without_a_layout_holds_its_weights(tmp_path: Path) -> None:
    job = "workload: llama3-70b\ncluster: dgx-h100\nglobal_batch: 512\n"
    points = "family,k,step_s\nbig,64,30\nbig,128,15.5\nbig,256,8\n"
    data = resolve(read_corpus(write(tmp_path / "d", points, big=job)), Catalog.default()).observations
    assert (data.at.tp * data.at.pp > 1).all()
    assert data.at.global_batch.tolist() == [512, 512, 512]


def test_blanks_that_cost_accuracy_are_told(tmp_path: Path) -> None:
    job = "workload: llama3-8b\ncluster: dgx-h100\n"
    points = "family,k,step_s\nfew,8,12\nfew,16,6.3\nfew,32,3.4\n"
    (hint,) = [h for h in result(write(tmp_path / "d", points, few=job))["hints"] if h.startswith("few.yaml")]
    for word in ("global_batch", "layout", "stack"):
        assert word in hint
    said = "workload: llama3-8b\ncluster: dgx-h100\nglobal_batch: 512\nseq_len: 8192\nprecision: bf16\n"
    said += "framework: megatron_core\nlayout: {tp: 2, sharding: zero1, recompute: none}\nstack: {attention: flash}\n"
    (tmp_path / "d" / "few.yaml").write_text(said)
    assert not [
        hint for hint in result(tmp_path / "d")["hints"] if "global_batch" in hint or "layout" in hint
    ]


def test_blank_columns_of_the_tables_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "families.csv").write_text(
        "family,workload,precision,accelerator,accelerators_per_node\none,resnet50,fp16,a100-sxm4-80gb,8\n"
    )
    (folder / "points.csv").write_text("family,k,step_s,global_batch\none,8,0.060,1024\none,16,0.062,2048\n")
    (folder / "workloads.csv").write_text("workload,kind\n")
    hints = " ".join(result(folder)["hints"])
    for word in ("micro_batch and accumulation of 2 points", "scale_out", "framework_class of 1 family"):
        assert word in hints
    for word in ("recompute", "seq_len", "sharding", "global_batch"):  # of an image model, or stated
        assert word not in hints


def test_mistakes_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", POINTS + "two,1,0.1\n")
    with pytest.raises(SpecError, match=r'"two" is not in families\.csv') as caught:
        read_corpus(folder)
    assert any("two.yaml" in (problem.help or "") for problem in caught.value.problems)
    (folder / "two.yaml").write_text("workload: resnet51\ncluster: dgx-a100\n")
    with pytest.raises(SpecError, match="resnet51"):
        read_corpus(folder)
    (folder / "two.yaml").write_text(JOB)
    (folder / "workloads.csv").write_text("workload,kind\n")
    (folder / "families.csv").write_text(
        "family,workload,precision,accelerator,accelerators_per_node\none,resnet50,fp16,a100-sxm4-80gb,8\n"
    )
    with pytest.raises(SpecError, match=r"has a job file, one\.yaml"):
        read_corpus(folder)


def test_a_family_name_reaches_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(JOB)
    folder = write(tmp_path / "d", POINTS + "../secret,1,0.1\n")
    with pytest.raises(SpecError, match=r"is not in families\.csv"):
        read_corpus(folder)
