"""PyTorch Lightning's CLI YAML, and LitGPT's."""

from __future__ import annotations

import re
from typing import Any

from perfmodel.frameworks.accelerate import STRATEGY
from perfmodel.frameworks.bridge import PRECISION
from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern
from perfmodel.specs.loader import Mark

NAME = "lightning"
STRATEGIES = {"ddp": "ddp", "ddp_find_unused_parameters_true": "ddp", "ddp_find_unused_parameters_false": "ddp", "fsdp": "fsdp",
              "deepspeed": "zero2", "deepspeed_stage_1": "zero1", "deepspeed_stage_2": "zero2", "deepspeed_stage_3": "zero3",
              "deepspeed_stage_2_offload": "zero2", "deepspeed_stage_3_offload": "zero3", "auto": None}  # fmt: skip


def _devices(value: Any) -> Any:
    if isinstance(value, list):
        return len(value)
    return None if str(value).casefold() in ("auto", "-1") else value


def _class(value: Any) -> str | None:
    name = str(value).rpartition(".")[2]
    return {"FSDPStrategy": "fsdp", "DDPStrategy": "ddp", "ModelParallelStrategy": "fsdp"}.get(name)


TABLE: dict[str, Rule] = {
    "trainer.devices": ("world.gpus_per_node", _devices),
    "trainer.num_nodes": "world.nodes",
    "trainer.precision": ("precision", {**PRECISION, "transformer-engine": "fp8", "bf16-mixed": "bf16"}),
    "trainer.accumulate_grad_batches": "layout.accumulation",
    "trainer.max_steps": ("steps", lambda value: None if int(value) < 1 else value),
    "trainer.strategy": ("layout.sharding", STRATEGIES),
    "trainer.strategy.class_path": ("lightning.strategy", _class),
    "trainer.strategy.init_args.sharding_strategy": ("layout.sharding", STRATEGY),
    "trainer.strategy.init_args.stage": ("layout.sharding", {"0": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"}),
    "trainer.strategy.init_args.offload_optimizer": ("stack.offload", lambda value: ["optimizer"] if value else None),
    "trainer.strategy.init_args.cpu_offload": ("stack.offload", lambda value: ["parameters", "optimizer"] if value else None),
    "trainer.strategy.init_args.tensor_parallel_size": "layout.tp",
    "trainer.strategy.init_args.data_parallel_size": ("layout.dp", _devices),
    "trainer.strategy.init_args.activation_checkpointing_policy": ("layout.recompute", lambda value: "full" if value else None),
    "trainer.strategy.init_args.allgather_bucket_size": "lightning.bucket",
    "trainer.strategy.init_args.bucket_cap_mb": ("bucket", lambda value: int(value) * 2**20),
    "data.batch_size": "layout.micro_batch",
    "data.init_args.batch_size": "layout.micro_batch",
    "data.init_args.max_length": "seq_len",
    "data.init_args.seq_length": "seq_len",
    "data.init_args.max_seq_length": "seq_len",
    "data.max_length": "seq_len",
    "model.init_args.model_name": "model.name",
    "model.init_args.model_name_or_path": "model.name",
    "model.model_name_or_path": "model.name",
    "model_name": "model.name",
    "checkpoint_dir": "model.name",
    "devices": ("world.gpus_per_node", _devices),
    "num_nodes": "world.nodes",
    "precision": ("precision", {**PRECISION, "transformer-engine": "fp8"}),
    "train.global_batch_size": "batch.global",
    "train.micro_batch_size": "layout.micro_batch",
    "train.max_seq_length": "seq_len",
    "train.max_steps": "steps",
    "train.max_tokens": "tokens",
}  # fmt: skip
IRRELEVANT = pattern(
    """seed_everything trainer.* data.* data model.* optimizer.* lr_scheduler.* ckpt_path out_dir resume logger_name seed
    tokenizer_dir eval.* train.* initial_checkpoint_dir optimizer model_config.* log.* access_token ops* quantize lora_* name fit.*
    num_workers initial_* hparams.*"""
)


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """Settings of a LightningCLI or of LitGPT."""
    draft.apply(entries.values(), TABLE, IRRELEVANT)
    draft.default("stack.framework", NAME, "the framework", start)
    chosen = draft.findings.get("lightning.strategy")
    if chosen is not None and "layout.sharding" not in draft.findings:
        draft.put("layout.sharding", chosen.value, Entry(chosen.key, chosen.value, chosen.mark))
    litgpt = "train.micro_batch_size" in entries
    if litgpt:
        if "layout.sharding" not in draft.findings:
            draft.questions.append(
                "how are replicas kept? LitGPT's scripts choose it, the file does not: give --layout"
            )
        return
    draft.default("world.nodes", 1, "trainer.num_nodes", start)
    if "trainer.strategy" not in entries and chosen is None:
        draft.default("layout.sharding", "ddp", "trainer.strategy", start)
    draft.default("layout.accumulation", 1, "trainer.accumulate_grad_batches", start)
    draft.default("precision", "fp32", "trainer.precision", start)
    if re.search("offload", str(entries["trainer.strategy"].value) if "trainer.strategy" in entries else ""):
        said = entries["trainer.strategy"]
        draft.put("stack.offload", ["optimizer"], said)
