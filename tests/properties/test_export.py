"""Export and import are each other's inverse: the job read from an export is the job that was exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfmodel.errors import SpecError, UsageError
from perfmodel.frameworks.export.chosen import Expected
from perfmodel.frameworks.export.formats import FORMATS, complete, named, target_of, text_of
from perfmodel.frameworks.reader import read_texts
from perfmodel.physics.layouts import SHARDING_CODES
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import Job, job_from_tree, load_job
from perfmodel.specs.layout import Layout
from perfmodel.training.setup import NORMS_CUT

CLUSTER = "dgx-h100"
MODELS = ("llama3-8b", "llama3-70b", "mixtral-8x7b", "deepseek-v2-lite", "gpt3-175b", "qwen3-8b")
EXPECTED = Expected(1.5, 1.2, 1.9, 5e10, 8e10, run_s=9000.0)
POWERS = st.sampled_from([1, 1, 2, 4, 8])


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """A job whose layout is given in full, legal or not."""
    tp, pp, cp = draw(POWERS), draw(st.sampled_from([1, 1, 2, 4])), draw(st.sampled_from([1, 1, 2]))
    dp, micro, steps = draw(st.sampled_from([1, 2, 4, 8, 16])), draw(st.sampled_from([1, 2, 4])), draw(POWERS)
    ep = draw(st.sampled_from([1, 1, 2, 4]))
    layout: dict[str, Any] = {
        "tp": tp, "pp": pp, "cp": cp, "ep": ep, "micro_batch": micro,
        "sharding": draw(st.sampled_from(["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"])),
        "recompute": draw(st.sampled_from(["none", "selective", "full", 0.5, 0.25])),
    }  # fmt: skip
    if pp > 1:
        layout["vpp"] = draw(st.sampled_from([1, 1, 2, 4]))
    if tp > 1:
        layout["sequence_parallel"] = draw(st.booleans())
    if layout["sharding"] == "hsdp":
        layout["shard_group"] = max(dp * cp // 2, 1)
    given_: dict[str, Any] = {
        "workload": draw(st.sampled_from(MODELS)), "cluster": CLUSTER, "layout": layout, "k": tp * pp * cp * dp,
        "global_batch": dp * micro * steps, "seq_len": draw(st.sampled_from([2048, 4096])),
        "precision": draw(st.sampled_from(["bf16", "fp16", "fp8"])), "steps": draw(st.sampled_from([None, 500])),
        "gradient_dtype": draw(st.sampled_from([None, "fp32", "bf16"])),
        "stack.compiled": draw(st.sampled_from([None, True])),
        "stack.overlap_gradients": draw(st.sampled_from([None, None, False])),
    }  # fmt: skip
    return {key: value for key, value in given_.items() if value is not None}


def written(name: str, said: dict[str, Any]) -> tuple[Job, str] | None:
    """The job that states all that the format needs, and its text; None where that is refused with a reason."""
    try:
        job = load_job(None, overrides=said)
        said = said | named(target_of(name, job), job)
        job = load_job(None, overrides=said)
        assert isinstance(job.layout, Layout)
        cuts = bool(job.layout.sequence_parallel)
        chosen = job.layout.model_dump(exclude_none=True)
        full = load_job(None, overrides=said | complete(target_of(name, job), job, chosen, cuts))
        return full, text_of(name, full, EXPECTED)
    except UsageError as error:
        if any(problem.code not in ("U040", "U041") for problem in error.problems):
            raise
        return None
    except SpecError:  # the layout itself is impossible
        return None


def again(text: str, workload: str) -> Job:
    """The job that the import reads; the cluster, and a model that the format only names, answer its questions."""
    overrides = {"cluster": CLUSTER}
    reading = read_texts([(text, "run.sh")], overrides)
    assert not reading.draft.not_understood
    if reading.assembled.tree.get("workload") is None:
        overrides["workload"] = workload
    return job_from_tree(reading.assembled.tree, Path(), Catalog.default(), overrides)


def facts(job: Job) -> dict[str, Any]:
    """What a prediction takes of a job, with names for one thing made one."""
    assert isinstance(job.layout, Layout)
    layout = job.layout.model_dump()
    layout["sharding"] = SHARDING_CODES[layout["sharding"]]
    if job.k[0] == layout["tp"] * layout["pp"]:  # one rank has all: there is nothing to share
        layout["sharding"] = layout["shard_group"] = None
    if layout["shard_group"] == 1:  # groups of one share nothing
        layout["sharding"], layout["shard_group"] = SHARDING_CODES["ddp"], None
    layout["schedule"] = layout["schedule"] or ("interleaved" if (layout["vpp"] or 1) > 1 else "1f1b")
    layout["vpp"] = layout["vpp"] or 1
    layout["etp"] = layout["etp"] if layout["ep"] > 1 else None
    layout["accumulation"] = layout["dp"] = None
    if layout["sequence_parallel"] is None:  # as the software does it
        layout["sequence_parallel"] = layout["tp"] > 1 and job.framework in NORMS_CUT
    if isinstance(layout["recompute"], float):
        layout["recompute"] = round(layout["recompute"], 3)
    said = job.stack.model_dump(exclude_none=True) if job.stack is not None else {}
    gradient = job.gradient_dtype or {"bf16": "bf16", "fp16": "fp16"}.get(job.precision, "bf16")
    stack = {
        "framework": said.get("framework"), "compiled": bool(said.get("compiled")),
        "overlap": said.get("overlap_gradients", True),
    }  # fmt: skip
    if stack["framework"] in ("transformers", "accelerate"):
        stack["framework"] = "deepspeed"  # the Trainer drives both
    flat = {f"layout.{key}": value for key, value in layout.items()} | {
        f"stack.{key}": v for key, v in stack.items()
    }
    return flat | {
        "k": job.k, "batch": job.global_batch, "precision": job.precision, "seq_len": job.seq_len, "steps": job.steps,
        "gradient": gradient, "class": job.framework, "layers": job.workload.layers,
        "experts": job.workload.experts or 0, "hidden": job.workload.hidden,
    }  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(FORMATS), said=jobs())
def test_the_import_of_an_export_is_the_same_job(name: str, said: dict[str, Any]) -> None:
    found = written(name, said)
    if found is None:
        return
    job, text = found
    back = again(text, job.workload.name)
    there, here = facts(back), facts(job)
    assert {key: (there[key], value) for key, value in here.items() if there[key] != value} == {}
    assert back.workload.params == pytest.approx(job.workload.params, rel=0.01)
    assert back.workload.vocab == pytest.approx(job.workload.vocab, rel=0.05)
