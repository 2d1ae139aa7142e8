"""The formats of `--export`, and the job that a format states in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import UsageError
from perfmodel.frameworks.export import hugging_face, maxtext, megatron, slurm, titan
from perfmodel.frameworks.export.chosen import Chosen, Expected, Writer
from perfmodel.specs.job import Job
from perfmodel.specs.layout import Layout
from perfmodel.specs.stack import CLASS_OF, FrameworkName, Stack


@dataclass(frozen=True)
class Target:
    """One format: the framework, its name for people, and how it is written."""

    framework: FrameworkName
    title: str
    write: Writer


TARGETS: dict[str, Target] = {
    "megatron": Target("megatron-lm", "Megatron-LM", megatron.write),
    "bridge": Target("megatron-bridge", "Megatron-Bridge", megatron.write_bridge),
    "torchtitan": Target("torchtitan", "torchtitan", titan.write),
    "deepspeed": Target("deepspeed", "DeepSpeed", hugging_face.write_deepspeed),
    "accelerate": Target("accelerate", "accelerate", hugging_face.write_accelerate),
    "maxtext": Target("maxtext", "MaxText", maxtext.write),
}
FORMATS = (*TARGETS, "slurm")
_GRADIENTS = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "bf16", "int8": "bf16"}


def target_of(name: str, job: Job) -> Target:
    """The target of a format; that of `slurm` is the job's own framework, else what fits its sharding."""
    if name != "slurm":
        return TARGETS[name]
    said = job.stack.framework if job.stack is not None else None
    known = {target.framework: target for target in TARGETS.values()} | {
        "transformers": TARGETS["accelerate"]
    }
    if said is not None and said not in known:
        raise UsageError(
            f"--export slurm: no launch of {said} is written",
            code="U040",
            help=f"--set stack.framework= one of {', '.join(target.framework for target in TARGETS.values())}",
        )
    if said is not None:
        return known[said]
    sharding = job.layout.sharding if isinstance(job.layout, Layout) else None
    return TARGETS["torchtitan" if sharding in ("fsdp", "hsdp", "zero2", "zero3") else "megatron"]


def named(target: Target, job: Job) -> dict[str, Any]:
    """What makes the job one of this framework, with the types and switches that it has; refused where it is of another."""
    stack = job.stack or Stack()
    made: dict[str, Any] = {"gradient_dtype": _gradients(target, job)} if job.gradient_dtype is None else {}
    if stack.overlap_gradients is None:
        made["stack.overlap_gradients"] = True
    made = {key: value for key, value in made.items() if value is not None}
    said = stack.framework
    if said == target.framework or {said, target.framework} == {"transformers", "accelerate"}:
        return made
    if said is not None:
        raise UsageError(
            f"--export: the job is of {said}, not of {target.framework}",
            code="U041",
            help=f"--set stack.framework={target.framework} predicts it there",
        )
    if job.framework_given and job.framework not in CLASS_OF[target.framework]:
        raise UsageError(
            f"--export: the job is predicted as {job.framework}, and {target.title} is {CLASS_OF[target.framework][0]}",
            code="U041",
            help=f"leave framework out, or write framework: {CLASS_OF[target.framework][0]}",
        )
    if target.framework == "maxtext":
        made["stack.compiled"] = True
    return made | {"stack.framework": target.framework}


def complete(target: Target, job: Job, chosen: Mapping[str, Any], cuts_norms: bool) -> dict[str, Any]:
    """The layout that the configuration will state, as an override of the job.

    `chosen` is the layout of a result at the K that is exported; `cuts_norms` whether norms are split by tensor
    parallelism in it.
    """
    layout = {
        key: value
        for key, value in chosen.items()
        if value is not None and key not in ("dp", "accumulation") and not (key == "ep" and value == 1)
    }
    pp, tp, ep = (int(layout.get(name, 1)) for name in ("pp", "tp", "ep"))
    if pp == 1:
        layout.pop("vpp", None)
    else:
        layout["vpp"] = int(layout.get("vpp") or 1)
        said = job.layout.schedule if isinstance(job.layout, Layout) else None
        layout["schedule"] = said or ("interleaved" if layout["vpp"] > 1 else "1f1b")
    if tp > 1:
        layout["sequence_parallel"] = _cuts_norms(target, job, cuts_norms)
    if ep > 1:
        usual = tp if target.framework == "maxtext" else max(tp // ep, 1)
        layout["etp"] = int(layout.get("etp") or usual)
    return {"layout": layout}


def _cuts_norms(target: Target, job: Job, cuts_norms: bool) -> bool:
    """As predicted; where it is not stated, as the framework does it."""
    if isinstance(job.layout, Layout) and job.layout.sequence_parallel is not None:
        return job.layout.sequence_parallel
    usual = {"torchtitan": True, "maxtext": True, "deepspeed": False, "accelerate": False}
    return usual.get(target.framework, cuts_norms)


def _gradients(target: Target, job: Job) -> str | None:
    """The type in which gradients are exchanged where it is not stated: the framework's own."""
    if target.framework in ("accelerate", "maxtext"):
        return None
    if target.framework == "torchtitan" or (
        target.framework in ("megatron-lm", "megatron-bridge") and job.precision != "fp16"
    ):
        return "fp32"
    return _GRADIENTS.get(job.precision)


def text_of(name: str, job: Job, expected: Expected) -> str:
    """The export of a job that states all that its format needs."""
    target = target_of(name, job)
    chosen = Chosen(job, expected, target.title)
    if name == "slurm":
        return slurm.write(chosen, target.write)
    return target.write(chosen)


__all__ = ["FORMATS", "TARGETS", "Expected", "complete", "named", "target_of", "text_of"]
