"""`accelerate config` files: FSDP1, FSDP2, DeepSpeed, plain data parallelism (names of accelerate 0.20 to 1.x)."""

from __future__ import annotations

from typing import Any

from perfmodel.frameworks import deepspeed
from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern, truth
from perfmodel.specs.loader import Mark

NAME = "accelerate"
STRATEGY = {"1": "fsdp", "2": "zero2", "3": "ddp", "4": "hsdp", "5": "hsdp", "full_shard": "fsdp", "shard_grad_op": "zero2",
            "no_shard": "ddp", "hybrid_shard": "hsdp", "hybrid_shard_zero2": "hsdp"}  # fmt: skip
TYPES = (
    "no",
    "multi_gpu",
    "fsdp",
    "deepspeed",
    "megatron_lm",
    "tpu",
    "xla",
    "multi_cpu",
    "multi_npu",
    "multi_xpu",
)
TABLE: dict[str, Rule] = {
    "distributed_type": "accelerate.type",
    "num_machines": "world.nodes",
    "num_processes": "world.gpus",
    "mixed_precision": ("precision", {"bf16": "bf16", "fp16": "fp16", "no": None, "fp8": "fp8"}),
    "dynamo_config.dynamo_backend": ("stack.compiled", lambda value: str(value).casefold() != "no"),
    "dynamo_backend": ("stack.compiled", lambda value: str(value).casefold() != "no"),
    "gradient_accumulation_steps": ("layout.accumulation", lambda value: None if str(value) == "auto" else value),
    "fsdp_config.fsdp_version": "accelerate.version",
    "fsdp_config.fsdp_sharding_strategy": ("accelerate.strategy", STRATEGY),
    "fsdp_config.fsdp_reshard_after_forward": "accelerate.reshard",
    "fsdp_config.fsdp_offload_params": ("stack.offload", lambda value: ["parameters", "optimizer"] if truth(value) else None),
    "fsdp_config.fsdp_activation_checkpointing": ("layout.recompute", lambda value: "full" if truth(value) else None),
    "fsdp_config.fsdp_backward_prefetch": ("accelerate.prefetch", lambda value: str(value)),
    "deepspeed_config.zero_stage": ("layout.sharding", deepspeed.STAGES),
    "deepspeed_config.gradient_accumulation_steps": ("layout.accumulation", lambda value: None if str(value) == "auto" else value),
    "deepspeed_config.offload_optimizer_device": ("deepspeed.offload_optimizer", lambda value: "optimizer" if str(value) in ("cpu", "nvme") else None),
    "deepspeed_config.offload_param_device": ("deepspeed.offload_parameters", lambda value: "parameters" if str(value) in ("cpu", "nvme") else None),
    "deepspeed_config.deepspeed_config_file": "accelerate.file",
    "parallelism_config.parallelism_config_tp_size": "layout.tp",
    "parallelism_config.parallelism_config_cp_size": "layout.cp",
    "parallelism_config.parallelism_config_dp_replicate_size": "layout.dp_replicate",
    "parallelism_config.parallelism_config_dp_shard_size": "layout.dp_shard",
    "megatron_lm_config.megatron_lm_tp_degree": "layout.tp",
    "megatron_lm_config.megatron_lm_pp_degree": "layout.pp",
    "megatron_lm_config.megatron_lm_num_micro_batches": "layout.accumulation",
    "megatron_lm_config.megatron_lm_sequence_parallelism": "layout.sequence_parallel",
    "megatron_lm_config.megatron_lm_use_distributed_optimizer": ("layout.sharding", lambda value: "zero1" if truth(value) else "ddp"),
    "megatron_lm_config.megatron_lm_recompute_activations": ("layout.recompute", lambda value: "selective" if truth(value) else "none"),
}  # fmt: skip
IRRELEVANT = pattern(
    """compute_environment debug downcast_bf16 machine_rank main_* rdzv_* same_network tpu_* use_cpu gpu_ids
    deepspeed_config.* fsdp_config.* dynamo_config.* command_file commands enable_cpu_affinity ipex_config.*
    parallelism_config.* megatron_lm_config.* fp8_config.* mpirun_config.* use_parallelism_config
    gradient_clipping use_xpu aws_accelerator* ec2_instance_type image_uri profile region sagemaker*
    max_restarts monitor_interval env.*"""
)


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """A file of `accelerate config`."""
    draft.apply(entries.values(), TABLE, IRRELEVANT)
    draft.default("stack.framework", NAME, "the framework", start)
    kind = draft.findings.get("accelerate.type")
    word = str(kind.value).casefold() if kind is not None else "no"
    if kind is not None and word not in TYPES:
        draft.questions.append(f"{kind.key} {kind.value} is not known here; how are replicas kept?")
        return
    if word == "fsdp":
        _fsdp(draft, start)
    elif word == "deepspeed":
        deepspeed.finish(draft, start) if "accelerate.file" not in draft.findings else draft.questions.append(
            f"the file {draft.get('accelerate.file')} holds the DeepSpeed settings; give it as well"
        )
    elif word in ("multi_gpu", "no") and kind is not None:
        draft.put("layout.sharding", "ddp", Entry(kind.key, kind.value, kind.mark))
    _half(draft)
    nodes, total = draft.get("world.nodes"), draft.get("world.gpus")
    if nodes and total and total % nodes:
        draft.refuse("world.gpus", f"{total} processes do not divide by {nodes} machines")


def _half(draft: Draft) -> None:
    """`mixed_precision: no` says nothing of the model's own type."""


def _fsdp(draft: Draft, start: Mark) -> None:
    version, strategy = draft.get("accelerate.version"), draft.findings.get("accelerate.strategy")
    reshard = draft.findings.get("accelerate.reshard")
    found: tuple[str, Any] | None = None
    said = str(reshard.value).casefold() if reshard is not None else ""
    if reshard is not None and said in ("true", "false"):
        found = ("fsdp" if said == "true" else "zero2", reshard)
        draft.put(
            "stack.reshard_after_forward", said == "true", Entry(reshard.key, reshard.value, reshard.mark)
        )
    elif (
        reshard is not None and said in STRATEGY
    ):  # FSDP1 keeps its strategy under this key in files that were converted
        found = (STRATEGY[said], reshard)
    if strategy is not None and (found is None or str(version) != "2"):
        found = (strategy.value, strategy)
    copies = draft.get("layout.dp_replicate", 1) or 1
    if found is None:
        draft.default("layout.sharding", "fsdp", "fsdp_sharding_strategy", start)
        return
    word, at = found
    if copies > 1 and word == "fsdp":
        word = "hsdp"
        if draft.get("layout.dp_shard"):
            shard = draft.findings["layout.dp_shard"]
            ranks = shard.value * (draft.get("layout.cp", 1) or 1)  # ranks of the context share the shards
            draft.put("layout.shard_group", ranks, Entry(shard.key, shard.value, shard.mark))
    draft.put("layout.sharding", word, Entry(at.key, at.value, at.mark))
