"""Declared facts of the software stack: read, checked, handed to the physics, or named as not modelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import SpecError
from perfmodel.physics.layouts import ONE_BUCKET
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.specs.layout import Layout
from perfmodel.training.declared import declared

BASE = "workload: llama3-8b\ncluster: dgx-h100\nk: 64\nlayout: {tp: 2, pp: 4, sharding: zero1}\n"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.default()


@pytest.fixture
def load(tmp_path: Path, catalog: Catalog) -> Any:
    def read(stack: str, base: str = BASE) -> Job:
        path = tmp_path / "job.yaml"
        path.write_text(f"{base}stack: {stack}\n", encoding="utf-8")
        return load_job(path, catalog=catalog)

    return read


def test_facts_reach_the_physics(load: Any) -> None:
    job = load("{gradient_dtype: fp32, overlap_gradients: false, overlap_tensor: false, schedule: gpipe}")
    found = declared(job)
    assert found["gradient_bytes"] == 4.0
    assert found["bucket_bytes"] == ONE_BUCKET
    assert found["tp_hidden"] == 0.0
    assert isinstance(job.layout, Layout)
    assert job.layout.schedule == "gpipe"
    assert not [note for note in job.notes if "not modelled" in note]


@pytest.mark.parametrize(
    ("stack", "hidden"),
    [
        ("{overlap_experts: true}", 1.0),
        ("{overlap_experts: false}", 0.0),
        ("{schedule: dualpipe}", 1.0),
        ("{schedule: dualpipe, overlap_experts: false}", 0.0),
        ("{framework: megatron-lm}", None),
    ],
)
def test_what_hides_the_exchange_of_experts(load: Any, stack: str, hidden: float | None) -> None:
    assert declared(load(stack)).get("expert_hidden") == hidden


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("{framework: torchtitan, compiled: true}", "fsdp_compiled"),
        ("{framework: torchtitan}", "fsdp_eager"),
        ("{framework: maxtext}", "xla"),
        ("{compiled: true}", "unknown"),
    ],
)
def test_the_class_of_software(load: Any, stack: str, expected: str) -> None:
    assert load(stack).framework == expected
    assert load(stack, BASE + "framework: megatron_eager\n").framework == "megatron_eager"


def test_what_nothing_models_is_named(load: Any) -> None:
    job = load("{attention: flash3, power_cap: 500 W, date: 2025-01, offload: [optimizer]}")
    told = [note for note in job.notes if "is stated, not modelled yet" in note]
    assert [note.split()[0] for note in told] == [
        "stack.offload",
        "stack.power_cap",
    ]


def test_an_auto_layout_says_that_the_order_is_left_out(load: Any) -> None:
    job = load("{schedule: gpipe}", "workload: llama3-8b\ncluster: dgx-h100\nk: 64\n")
    assert any("stack.schedule is left out" in note for note in job.notes)


@pytest.mark.parametrize(
    ("stack", "base", "wrong"),
    [
        ("{atention: flash2}", BASE, 'unknown key "atention" in stack; did you mean "attention"'),
        ("{attention: fast}", BASE, "fast"),
        ("{date: soon}", BASE, "not a date"),
        ("{power_cap: 3 W}", BASE, "too small"),
        ("{power_cap: .nan}", BASE, ""),
        ("{compiled: perhaps}", BASE, ""),
        ("{gradient_dtype: fp32}", BASE + "gradient_dtype: bf16\n", "stack says fp32"),
        ("{fp8_recipe: delayed}", BASE + "precision: fp16\n", "scales products in 8 bits"),
        ("{schedule: gpipe}", BASE.replace("tp: 2", "tp: 2, schedule: 1f1b"), "stack says gpipe"),
        ("{schedule: 1f1b}", BASE.replace("tp: 2", "tp: 2, vpp: 2"), "does not interleave"),
    ],
)
def test_refusals_have_their_line(load: Any, stack: str, base: str, wrong: str) -> None:
    with pytest.raises(SpecError) as error:
        load(stack, base)
    line = base.count("\n") + 1
    assert any(problem.line == line and wrong in problem.message for problem in error.value.problems)
