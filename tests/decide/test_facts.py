"""What a prediction says of the runs that its beliefs rest on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfmodel.beliefs.population import Beliefs, from_mapping, shipped_beliefs
from perfmodel.calibrate.run import calibrate_job
from perfmodel.decide.prediction import predict
from perfmodel.specs.jobs import Job, load_job
from perfmodel.study.table import parse_timings

GIVEN = {"workload": "llama3-8b", "cluster": "dgx-h100", "global_batch": 512, "k": "8..16"}


def job(**more: Any) -> Job:
    return load_job(None, overrides={**GIVEN, **more})


def calibrated(folder: Path, **more: Any) -> Beliefs:
    (folder / "t.csv").write_text("k,time_s\n8,48\n16,25\n")
    found = calibrate_job(job(**more), None, parse_timings, timings=folder / "t.csv")
    return from_mapping(found.result["beliefs"])


def notes(asked: Job, beliefs: Beliefs | None, words: str) -> list[str]:
    return [note for note in predict(asked, beliefs, draws=0).result["notes"] if words in note]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"precision": "fp8"}, "precision bf16 there, fp8 here"),
        ({"seq_len": 2048}, "seq_len 8192 there, 2048 here"),
        ({"framework": "fsdp_eager"}, "framework unknown there, fsdp_eager here"),
    ],
)
def test_beliefs_of_another_setting_are_used_with_a_warning(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    beliefs = calibrated(tmp_path)
    assert notes(job(), beliefs, "calibrated on") == []
    said = notes(job(**change), beliefs, "calibrated on")
    assert len(said) == 1
    assert words in said[0]


@pytest.mark.parametrize("change", [{"workload": "bert-large"}, {"cluster": "dgx-a100"}, {"seq_len": 2048}])
def test_step_times_of_another_job_are_no_points_of_the_curve_and_narrow_no_band(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    beliefs = calibrated(tmp_path)
    alone, own, other = (
        predict(asked, given, draws=0).result
        for asked, given in ((job(**change), None), (job(), beliefs), (job(**change), beliefs))
    )
    width = [
        [high / low for low, high in zip(one["time_s_low"], one["time_s_high"], strict=True)]
        for one in (alone, own, other)
    ]
    assert all(narrow < wide for narrow, wide in zip(width[1], width[0], strict=True))
    assert width[2] == pytest.approx(width[0], rel=0.1)
    assert list(other["time_s"]) == pytest.approx(list(alone["time_s"]), rel=0.3)  # the run was as predicted


def test_beliefs_of_older_versions_name_no_settings(tmp_path: Path) -> None:
    beliefs = calibrated(tmp_path)
    old = replace(beliefs, meta={"calibrated_on": {"workload": "llama3-8b", "cluster": "dgx-h100"}})
    assert notes(job(precision="fp8", seq_len=2048), old, "calibrated on") == []
    assert len(notes(job(workload="llama3-70b"), old, "calibrated on")) == 1


def test_a_framework_that_no_measured_run_has_is_named(tmp_path: Path) -> None:
    words = "no measured run of this class"
    measured = shipped_beliefs()
    counts = {key: n for key, n in measured.counts.items() if key[2] != "fsdp_compiled"}
    values = {key: v for key, v in measured.values.items() if key[2] != "fsdp_compiled"}
    older = replace(measured, counts=counts, values=values)
    assert len(notes(job(framework="fsdp_compiled"), older, words)) == 1
    assert notes(job(framework="fsdp_eager"), older, words) == []
