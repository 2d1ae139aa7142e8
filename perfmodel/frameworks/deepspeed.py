"""DeepSpeed's JSON, and the arguments of Hugging Face's Trainer that go with it (YAML, JSON or a command line).

Names are those of deepspeed.ai/docs/config-json and of transformers.TrainingArguments; "auto" in the JSON means that the
Trainer's argument holds.
"""

from __future__ import annotations

from typing import Any

from perfmodel.frameworks.draft import Draft, Entry, Finding, Rule, pattern, truth, whole
from perfmodel.specs.loader import Mark

NAME = "deepspeed"
STAGES = {"0": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"}


def _unless_auto(value: Any) -> Any:
    return None if str(value).casefold() == "auto" else value


def _offload(word: str) -> Any:
    return lambda value: word if str(value).casefold() in ("cpu", "nvme") else None


TABLE: dict[str, Rule] = {
    "train_batch_size": ("batch.global", _unless_auto),
    "train_micro_batch_size_per_gpu": ("layout.micro_batch", _unless_auto),
    "gradient_accumulation_steps": ("layout.accumulation", _unless_auto),
    "zero_optimization.stage": ("layout.sharding", lambda value: None if value == "auto" else _stage(value)),
    "zero_optimization.overlap_comm": ("deepspeed.overlap", _unless_auto),
    "zero_optimization.reduce_bucket_size": ("deepspeed.bucket_elements", _unless_auto),
    "zero_optimization.offload_optimizer.device": ("deepspeed.offload_optimizer", _offload("optimizer")),
    "zero_optimization.offload_param.device": ("deepspeed.offload_parameters", _offload("parameters")),
    "zero_optimization.cpu_offload": (
        "deepspeed.offload_optimizer",
        lambda value: "optimizer" if truth(value) else None,
    ),
    "zero_optimization.zero_hpz_partition_size": ("deepspeed.hpz", _unless_auto),
    "zero_optimization.mics_shard_size": (
        "layout.shard_group",
        lambda value: None if int(value) < 1 else value,
    ),
    "bf16.enabled": ("deepspeed.bf16", _unless_auto),
    "bfloat16.enabled": ("deepspeed.bf16", _unless_auto),
    "fp16.enabled": ("deepspeed.fp16", _unless_auto),
    "communication_data_type": (
        "gradient_dtype",
        {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "bfp16": "bf16"},
    ),
    "sequence_parallel_size": "layout.cp",
    "tensor_parallel.autotp_size": "layout.tp",
    "compile.enabled": "stack.compiled",
    "pipeline.stages": ("layout.pp", _unless_auto),
}
IRRELEVANT = pattern(
    """optimizer.* scheduler.* steps_per_print gradient_clipping wall_clock_breakdown tensorboard.* wandb.* csv_monitor.*
    zero_optimization.* fp16.* bf16.* bfloat16.* activation_checkpointing.* aio.* flops_profiler.* zero_allow_untested*
    zero_force_ds* prescale_gradients gradient_predivide* dump_state checkpoint.* data_efficiency.* comms_logger.*
    amp.* memory_breakdown seed data_types.* elasticity.* autotuning.* compression_training.* sparse_* monitor_config.*
    fp32_allreduce disable_allgather train_steps timers.* pipeline.* hybrid_engine.* load_universal* use_node_local*
    bfloat16.* $schema"""
)

# transformers.TrainingArguments, as YAML or JSON keys and, with dashes before them, as arguments.
ARGUMENTS: dict[str, Rule] = {
    "per_device_train_batch_size": "layout.micro_batch",
    "gradient_accumulation_steps": "layout.accumulation",
    "max_steps": ("steps", lambda value: None if int(value) < 1 else value),
    "bf16": ("hf.bf16", lambda value: None if str(value) == "auto" else value),
    "fp16": ("hf.fp16", lambda value: None if str(value) == "auto" else value),
    "gradient_checkpointing": ("layout.recompute", lambda value: "full" if truth(value) else "none"),
    "torch_compile": "stack.compiled",
    "model_name_or_path": "model.name",
    "max_seq_length": "seq_len",
    "max_seq_len": "seq_len",
    "max_length": "seq_len",
    "model_max_length": "seq_len",
    "block_size": "seq_len",
    "fsdp": "hf.fsdp",
    "fsdp_config.fsdp_version": "hf.fsdp_version",
    "fsdp_config.version": "hf.fsdp_version",
    "fsdp_config.activation_checkpointing": ("layout.recompute", lambda value: "full" if truth(value) else None),
    "fsdp_config.reshard_after_forward": "hf.reshard",
    "ddp_bucket_cap_mb": ("bucket", lambda value: whole(value) * 2**20),
    "attn_implementation": ("stack.attention", {"flash_attention_2": "flash2", "flash_attention_3": "flash3", "sdpa": "sdpa",
                                                "eager": "unfused", "flex_attention": "flex", "kernels-community/flash-attn": "flash2"}),
    "use_flash_attention_2": ("stack.attention", lambda value: "flash2" if truth(value) else None),
}  # fmt: skip
ARGUMENTS_IRRELEVANT = pattern(
    """learning_rate lr_* weight_decay adam_* warmup_* num_train_epochs logging_* save_* eval_* evaluation_* output_dir
    seed data_seed report_to run_name deepspeed dataset* do_* overwrite_* preprocessing_* dataloader_* max_grad_norm
    optim* tf32 ddp_* fsdp_* remove_unused* load_best* metric_* greater_* push_to_hub* hub_* resume_* use_fast*
    trust_remote_code torch_dtype cache_dir tokenizer_* config_name train_file validation_* data_path local_rank
    local-rank per_device_eval* gradient_checkpointing_kwargs* group_by_length label_* packing include_* torchdynamo
    torch_compile_* disable_tqdm streaming model_revision token use_auth* low_cpu* validation_split* max_train_samples
    max_eval_samples hf_* accelerator_config* bf16_full* neftune* ignore_* no_* jit_* skip_* past_index average_*
    auto_find* prediction_* past* log_* task* lazy_* version vision_* mm_* image_* tune_* freeze_* bits is_*
    deepspeed_config use_* deepspeed.*"""
)


def _stage(value: Any) -> str:
    word = str(whole(value))
    if word not in STAGES:
        raise ValueError("stages are 0 to 3")
    return STAGES[word]


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """A DeepSpeed configuration."""
    draft.apply(entries.values(), TABLE, IRRELEVANT)
    draft.default("stack.framework", NAME, "the framework", start)
    finish(draft, start)


def read_arguments(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """Arguments of the Trainer."""
    plain = {key.lstrip("-").replace("-", "_"): entry for key, entry in entries.items()}
    draft.apply(
        [Entry(key, entry.value, entry.mark) for key, entry in plain.items()], ARGUMENTS, ARGUMENTS_IRRELEVANT
    )
    draft.default("stack.framework", "transformers", "the framework", start)
    finish_arguments(draft, start)


def finish_arguments(draft: Draft, start: Mark) -> None:
    """What follows from arguments of the Trainer, and its defaults."""
    _half(draft, "hf", start)
    said = draft.findings.get("hf.fsdp")
    words = str(
        " ".join(map(str, said.value))
        if said is not None and isinstance(said.value, list)
        else said.value
        if said
        else ""
    )
    if said is not None and words.strip() and words.casefold() != "false":
        entry = Entry(said.key, said.value, said.mark)
        sharding = ("zero2" if "shard_grad_op" in words or str(draft.get("hf.reshard")).casefold() == "false"
                    else "hsdp" if "hybrid_shard" in words else "ddp" if "no_shard" in words else "fsdp")  # fmt: skip
        draft.put("layout.sharding", sharding, entry)
        if "offload" in words.split():
            draft.put("stack.offload", ["parameters", "optimizer"], entry)
    draft.default("layout.micro_batch", 8, "per_device_train_batch_size", start)
    draft.default("layout.accumulation", 1, "gradient_accumulation_steps", start)


def _half(draft: Draft, prefix: str, start: Mark) -> None:
    on = [
        found
        for name in ("bf16", "fp16")
        if (found := draft.findings.get(f"{prefix}.{name}")) and truth(found.value)
    ]
    if len(on) == 2:
        draft.refuse(f"{prefix}.fp16", "bf16 and fp16 exclude each other", "keep one of them")
    elif on:
        name = on[0].field.rpartition(".")[2]
        draft.put("precision", name, Entry(on[0].key, True, on[0].mark))


def finish(draft: Draft, start: Mark) -> None:
    """What follows from several keys of the JSON, and DeepSpeed's rules."""
    _half(draft, "deepspeed", start)
    draft.default("layout.sharding", "ddp", "zero_optimization.stage", start)
    stage = draft.get("layout.sharding")
    moved: dict[str, Finding] = {
        word: draft.findings[f"deepspeed.offload_{word}"]
        for word in ("optimizer", "parameters")
        if f"deepspeed.offload_{word}" in draft.findings
    }
    if moved:
        first = next(iter(moved.values()))
        draft.put("stack.offload", list(moved), Entry(first.key, first.value, first.mark))
    if "parameters" in moved and stage != "zero3":
        draft.refuse("deepspeed.offload_parameters", "offload_param works with stage 3 only")
    if "optimizer" in moved and stage == "ddp":
        draft.refuse("deepspeed.offload_optimizer", "offload_optimizer needs ZeRO")
    if stage in ("zero2", "zero3") and draft.get("layout.pp", 1) > 1:
        draft.refuse("layout.sharding", "ZeRO 2 and 3 do not work with pipeline parallelism", "use stage 1")
    overlap = draft.findings.get("deepspeed.overlap")
    if overlap is not None:
        draft.put(
            "stack.overlap_gradients", truth(overlap.value), Entry(overlap.key, overlap.value, overlap.mark)
        )
    elif stage in ("zero1", "zero2"):
        draft.default("stack.overlap_gradients", False, "zero_optimization.overlap_comm", start)
    elements = draft.findings.get("deepspeed.bucket_elements")
    if elements is not None and stage != "ddp":
        width = 4 if draft.get("gradient_dtype") == "fp32" or draft.get("precision") == "fp32" else 2
        draft.put("bucket", whole(elements.value) * width, Entry(elements.key, elements.value, elements.mark))
