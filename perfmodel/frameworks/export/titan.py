"""A TOML file of torchtitan."""

from __future__ import annotations

from typing import Any

from perfmodel.frameworks.export.chosen import Chosen, here, script
from perfmodel.frameworks.torchtitan import FLAVORS

DTYPES = {"bf16": "bfloat16", "fp32": "float32", "fp8": "bfloat16"}
SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble",
}
RECIPES = {"tensorwise": "tensorwise", "rowwise": "rowwise"}
ROTATE = {"all-gather": "allgather", "all-to-all": "alltoall"}
NAMES = {zoo: key for key, zoo in FLAVORS.items()} | {
    f"qwen3-{size}": ("qwen3", size)
    for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b", "30b-a3b", "235b-a22b")
}
SPELLED = {"llama4-scout": "17bx16e", "llama4-maverick": "17bx128e"}


def _check(chosen: Chosen) -> None:
    job, layout, stack = chosen.job, chosen.layout, chosen.stack
    chosen.common()
    if chosen.workload.name not in NAMES:
        chosen.lacks(f"the model {chosen.workload.name}: it has flavors for {', '.join(sorted(NAMES))}")
    if chosen.sharding == "zero1":
        chosen.lacks(
            "sharding zero1: FSDP2 shards gradients and weights too (zero2, fsdp, hsdp), or nothing (ddp)"
        )
    if chosen.sharding == "ddp" and layout.cp > 1:
        chosen.lacks("sharding ddp with context parallelism: its ranks shard weights")
    if layout.shard_group is not None and chosen.sharding not in ("hsdp", "zero2"):
        chosen.lacks(
            f"shard_group {layout.shard_group} of {chosen.sharding}: groups of replicas are hsdp there"
        )
    if chosen.sharding in ("hsdp", "zero2") and layout.shard_group and layout.shard_group % layout.cp:
        chosen.lacks(f"shard_group {layout.shard_group}: it holds whole context-parallel groups")
    if layout.tp > 1 and not layout.sequence_parallel:
        chosen.lacks("tensor parallelism without sequence_parallel: its plans always cut norms")
    if job.precision not in DTYPES:
        chosen.lacks(f"precision {job.precision}: bf16, fp32 or float8 products")
    if job.gradient_dtype not in ("fp32", "bf16"):
        chosen.lacks(f"gradient_dtype {job.gradient_dtype}: gradients are reduced in fp32 or bf16")
    if stack.fp8_recipe not in (None, *RECIPES):
        chosen.lacks(f"fp8_recipe {stack.fp8_recipe}: tensorwise or rowwise")
    if layout.cp > 1 and stack.context_parallel not in (None, *ROTATE):
        chosen.lacks(f"context_parallel {stack.context_parallel}: all-gather or all-to-all")
    if (layout.vpp or 1) > 2 or (
        (layout.vpp or 1) == 1 and layout.schedule in ("interleaved", "zero-bubble")
    ):
        chosen.lacks(
            f"vpp {layout.vpp or 1}: its interleaved schedules are written with two stages on a rank"
        )
    if stack.offload and set(stack.offload) != {"parameters", "optimizer"}:
        chosen.lacks(f"offload of {', '.join(stack.offload)}: of parameters and optimizer together")
    if stack.overlap_gradients is False:
        chosen.lacks("overlap_gradients false: FSDP2 always reduces under the backward pass")
    if stack.overlap_tensor and not stack.compiled:
        chosen.lacks("overlap_tensor without compiled: async tensor parallelism needs the compiler")
    if job.bucket is not None or job.first_bucket is not None:
        chosen.lacks("bucket: gradients go by layer")
    if isinstance(layout.recompute, float) and abs(1 / layout.recompute - round(1 / layout.recompute)) > 0.02:
        chosen.lacks(f"recompute {layout.recompute:g}: every n-th layer is recomputed, a share of 1/n")


def write(chosen: Chosen) -> str:
    """The TOML and the launch."""
    _check(chosen)
    chosen.refuse()
    job, layout, stack = chosen.job, chosen.layout, chosen.stack
    name, flavor = NAMES[chosen.workload.name]
    flavor = SPELLED.get(chosen.workload.name, flavor).upper()
    flavor = flavor.replace("X", "x") if name == "llama4" else flavor
    shard, copies = _mesh(chosen)
    keeps = chosen.sharding == "zero2"
    mode: dict[str, Any] = {"mode": layout.recompute or "none"}
    if layout.recompute == "selective":
        mode["selective_ac_option"] = "op"
    elif isinstance(layout.recompute, float):
        mode = {"mode": "selective", "selective_ac_option": str(round(1 / layout.recompute))}
    parallel: dict[str, Any] = {
        "data_parallel_replicate_degree": copies,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": None if shard * layout.cp == 1 else "never" if keeps else "always",
        "tensor_parallel_degree": layout.tp,
        "enable_async_tensor_parallel": stack.overlap_tensor,
        "pipeline_parallel_degree": layout.pp,
        "pipeline_parallel_schedule": _schedule(chosen) if layout.pp > 1 else None,
        "pipeline_parallel_microbatch_size": chosen.micro_batch if layout.pp > 1 else None,
        "context_parallel_degree": layout.cp,
        "context_parallel_rotate_method": ROTATE[stack.context_parallel or "all-gather"]
        if layout.cp > 1
        else None,
        "expert_parallel_degree": layout.ep if layout.ep > 1 else None,
        "expert_tensor_parallel_degree": layout.etp if layout.ep > 1 else None,
    }
    is_eight = job.precision == "fp8"
    sections: dict[str, dict[str, Any]] = {
        "model": {"name": name, "flavor": flavor, "converters": ["float8"] if is_eight else []},
        "training": {
            "local_batch_size": chosen.micro_batch * (chosen.accumulation if layout.pp > 1 else 1),
            "global_batch_size": chosen.batch,
            "seq_len": job.seq_len,
            "steps": job.steps,
            "mixed_precision_param": DTYPES[job.precision],
            "mixed_precision_reduce": DTYPES[job.gradient_dtype or "fp32"],
            "enable_cpu_offload": True if stack.offload else None,
        },
        "parallelism": parallel,
        "activation_checkpoint": mode,
        "compile": {"enable": bool(stack.compiled), "components": ["model", "loss"]},
        "float8": {"recipe_name": RECIPES[stack.fp8_recipe or "tensorwise"]} if is_eight else {},
    }
    lines: list[str] = []
    for section, values in sections.items():
        given = {key: value for key, value in values.items() if value is not None}
        if given:
            lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in given.items())]
    body = here("train.toml", "\n".join(lines))
    body.append(chosen.torchrun('-m torchtitan.train --job.config_file train.toml "$@"'))
    relies = [
        "the degrees",
        "fsdp_reshard_after_forward",
        "compile",
        "mixed_precision_reduce",
        "what is recomputed",
    ]
    return script(chosen, relies, body)


def _mesh(chosen: Chosen) -> tuple[int, int]:
    """Ranks that share a copy (context parallelism apart), and copies."""
    replicas, group = chosen.replicas, chosen.layout.shard_group
    if chosen.sharding == "ddp":
        return 1, replicas
    shard = min(group // chosen.layout.cp, replicas) if group is not None else replicas
    return shard, replicas // shard


def _schedule(chosen: Chosen) -> str:
    said = chosen.layout.schedule or ("interleaved" if (chosen.layout.vpp or 1) > 1 else "1f1b")
    return SCHEDULES[said]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
