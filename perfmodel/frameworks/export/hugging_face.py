"""DeepSpeed's JSON and a file of `accelerate config`, each with the Trainer arguments that go with it."""

from __future__ import annotations

import json
from typing import Any

from perfmodel.frameworks.export.chosen import Chosen, array, here, script

STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "fsdp": 3}
ATTENTION = {"flash": "flash_attention_2", "flash2": "flash_attention_2", "flash3": "flash_attention_3", "sdpa": "sdpa",
             "unfused": "eager", "flex": "flex_attention"}  # fmt: skip


def _shared(chosen: Chosen) -> None:
    chosen.common()
    chosen.decoder()
    layout, stack = chosen.layout, chosen.stack
    chosen.only_one(
        pp="the model's own code cuts it into stages", ep="experts are spread by the model's own code"
    )
    if layout.recompute not in (None, "none", "full"):
        chosen.lacks(f"recompute {layout.recompute}: whole layers are recomputed, all or none")
    if chosen.job.precision not in ("bf16", "fp16", "fp32"):
        chosen.lacks(f"precision {chosen.job.precision}: bf16, fp16 or fp32")
    if layout.sequence_parallel:
        chosen.lacks("sequence_parallel: norms are not cut by tensor parallelism")
    if chosen.job.first_bucket is not None:
        chosen.lacks("first_bucket: there is no such setting")
    if stack.attention not in (None, *ATTENTION):
        chosen.lacks(f"attention {stack.attention}: known are {', '.join(ATTENTION)}")
    if stack.overlap_tensor:
        chosen.lacks("overlap_tensor: there is no such setting")


def _trainer(chosen: Chosen) -> dict[str, Any]:
    """Arguments of the Trainer."""
    job = chosen.job
    return {
        "--model_name_or_path": f"./{chosen.workload.name}",
        "--max_seq_length": job.seq_len,
        "--per_device_train_batch_size": chosen.micro_batch,
        "--gradient_accumulation_steps": chosen.accumulation,
        "--bf16": "true" if job.precision == "bf16" else None,
        "--fp16": "true" if job.precision == "fp16" else None,
        "--gradient_checkpointing": "true" if chosen.layout.recompute == "full" else "false",
        "--attn_implementation": ATTENTION.get(chosen.stack.attention or ""),
        "--torch_compile": "true" if chosen.stack.compiled else None,
        "--max_steps": job.steps,
    }


def write_deepspeed(chosen: Chosen) -> str:
    """The JSON, the Trainer's arguments and the launch."""
    _shared(chosen)
    job, layout, stack = chosen.job, chosen.layout, chosen.stack
    if chosen.sharding == "hsdp":
        chosen.lacks("sharding hsdp: stage 3 in groups (MiCS) is sharding zero3 with a shard_group")
    if layout.shard_group is not None and chosen.sharding != "fsdp":
        chosen.lacks(f"shard_group {layout.shard_group} of {chosen.sharding}: groups are of stage 3 alone")
    moved = set(stack.offload or ())
    if (
        "activations" in moved
        or ("parameters" in moved and chosen.sharding != "fsdp")
        or (moved and chosen.sharding == "ddp")
    ):
        chosen.lacks(f"offload of {', '.join(stack.offload or ())} with {chosen.sharding}")
    if layout.cp > 1 and stack.context_parallel not in (None, "all-to-all"):
        chosen.lacks(
            f"context_parallel {stack.context_parallel}: sequences are exchanged by all-to-all (Ulysses)"
        )
    if chosen.sharding == "ddp" and stack.overlap_gradients is False:
        chosen.lacks("overlap_gradients false without ZeRO: overlap_comm is a switch of its stages")
    chosen.refuse()
    width = 4 if job.gradient_dtype == "fp32" or job.precision == "fp32" else 2
    zero: dict[str, Any] = {"stage": STAGES[chosen.sharding]}
    if chosen.sharding != "ddp":
        zero["overlap_comm"] = stack.overlap_gradients is not False
        if job.bucket:
            zero["reduce_bucket_size"] = round(job.bucket / width)
    if layout.shard_group is not None:
        zero["mics_shard_size"] = layout.shard_group
    for word, key in (("optimizer", "offload_optimizer"), ("parameters", "offload_param")):
        if word in moved:
            zero[key] = {"device": "cpu"}
    config: dict[str, Any] = {
        "train_batch_size": chosen.batch,
        "train_micro_batch_size_per_gpu": chosen.micro_batch,
        "gradient_accumulation_steps": chosen.accumulation,
        "zero_optimization": zero,
        "communication_data_type": job.gradient_dtype,
    }
    if job.precision in ("bf16", "fp16"):
        config[job.precision] = {"enabled": True}
    if layout.tp > 1:
        config["tensor_parallel"] = {"autotp_size": layout.tp}
    if layout.cp > 1:
        config["sequence_parallel_size"] = layout.cp
    if stack.compiled:
        config["compile"] = {"enabled": True}
    config = {key: value for key, value in config.items() if value is not None}
    body = [*here("ds_config.json", json.dumps(config, indent=2)), *array("TRAINER", _trainer(chosen))]
    rest = 'train.py --deepspeed ds_config.json ${TRAINER[@]} "$@"'
    own = f"deepspeed --num_nodes {chosen.nodes} --num_gpus {chosen.per_node} {rest}"
    body.append(chosen.torchrun(rest) if chosen.under_slurm else own)
    relies = [
        "the stage",
        "overlap_comm",
        "reduce_bucket_size",
        "communication_data_type",
        "gradient_checkpointing",
    ]
    return script(chosen, relies, body)


def write_accelerate(chosen: Chosen) -> str:
    """The YAML, the Trainer's arguments and the launch."""
    _shared(chosen)
    job, layout, stack = chosen.job, chosen.layout, chosen.stack
    if chosen.sharding == "zero1":
        chosen.lacks("sharding zero1: FSDP shards gradients and weights too; --export deepspeed has stage 1")
    if layout.shard_group is not None and chosen.sharding != "hsdp":
        chosen.lacks(
            f"shard_group {layout.shard_group} of {chosen.sharding}: groups of replicas are hsdp there"
        )
    if chosen.sharding == "hsdp" and layout.shard_group and layout.shard_group % layout.cp:
        chosen.lacks(f"shard_group {layout.shard_group}: it holds whole context-parallel groups")
    if job.gradient_dtype is not None and job.gradient_dtype != job.precision:
        chosen.lacks(
            f"gradient_dtype {job.gradient_dtype}: gradients are reduced in the type of mixed_precision"
        )
    if job.bucket is not None and chosen.sharding != "ddp":
        chosen.lacks("bucket: FSDP reduces gradients by layer")
    if stack.overlap_gradients is False:
        chosen.lacks("overlap_gradients false: gradients are always reduced under the backward pass")
    if stack.offload and (set(stack.offload) != {"parameters", "optimizer"} or chosen.sharding == "ddp"):
        chosen.lacks(f"offload of {', '.join(stack.offload)}: FSDP moves parameters and optimizer together")
    chosen.refuse()
    is_plain = chosen.sharding == "ddp"
    lines = [
        "compute_environment: LOCAL_MACHINE",
        f"distributed_type: {'MULTI_GPU' if is_plain else 'FSDP'}",
        f"num_machines: {chosen.nodes}",
        "rdzv_backend: c10d",
        f"num_processes: {chosen.k}",
        f"mixed_precision: '{'no' if job.precision == 'fp32' else job.precision}'",
    ]
    if not is_plain:
        lines += [
            "fsdp_config:",
            "  fsdp_version: 2",
            f"  fsdp_reshard_after_forward: {'false' if chosen.sharding == 'zero2' else 'true'}",
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            f"  fsdp_activation_checkpointing: {'true' if layout.recompute == 'full' else 'false'}",
            f"  fsdp_offload_params: {'true' if stack.offload else 'false'}",
        ]
    if layout.tp * layout.cp > 1 or chosen.sharding == "hsdp":
        replicas = chosen.replicas
        shard = min((layout.shard_group or replicas * layout.cp) // layout.cp, replicas)
        if is_plain:
            shard = 1
        lines += [
            "parallelism_config:",
            f"  parallelism_config_dp_replicate_size: {replicas // shard}",
            f"  parallelism_config_dp_shard_size: {shard}",
            f"  parallelism_config_tp_size: {layout.tp}",
            f"  parallelism_config_cp_size: {layout.cp}",
        ]
    trainer = _trainer(chosen)
    if not is_plain and layout.recompute == "full":
        trainer["--gradient_checkpointing"] = None  # FSDP wraps the layers itself
    if job.bucket:
        trainer["--ddp_bucket_cap_mb"] = round(job.bucket / 2**20)
    body = [*here("accelerate.yaml", "\n".join(lines)), *array("TRAINER", trainer)]
    body.append(chosen.srun + 'accelerate launch --config_file accelerate.yaml train.py ${TRAINER[@]} "$@"')
    relies = ["how FSDP reshards", "mixed_precision", "activation checkpointing", "the batch of a device"]
    return script(chosen, relies, body)
