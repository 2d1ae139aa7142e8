"""Axolotl's and LLaMA-Factory's YAML: fine-tuning over Hugging Face's Trainer, accelerate, FSDP and DeepSpeed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.frameworks import deepspeed
from perfmodel.frameworks.accelerate import STRATEGY
from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern, truth
from perfmodel.frameworks.models import in_zoo
from perfmodel.specs.loader import Mark

NAME, FACTORY = "axolotl", "llama-factory"


def _on(value: Any) -> bool:
    return str(value).casefold() in ("auto", "unsloth", "offload") or truth(value)


_FSDP: dict[str, Rule] = {
    "sharding_strategy": ("axolotl.strategy", STRATEGY),
    "reshard_after_forward": "axolotl.reshard",
    "offload_params": ("stack.offload", lambda value: ["parameters", "optimizer"] if truth(value) else None),
    "activation_checkpointing": ("layout.recompute", lambda value: "full" if truth(value) else None),
}
TABLE: dict[str, Rule] = {
    "base_model": "model.name",
    "sequence_len": "seq_len",
    "micro_batch_size": "layout.micro_batch",
    "gradient_accumulation_steps": "layout.accumulation",
    "max_steps": ("steps", lambda value: None if int(value) < 1 else value),
    "bf16": ("axolotl.bf16", _on),
    "bfloat16": ("axolotl.bf16", _on),
    "fp16": ("axolotl.fp16", _on),
    "fp8": ("axolotl.fp8", truth),
    "adapter": "axolotl.adapter",
    "gradient_checkpointing": ("layout.recompute", lambda value: "full" if _on(value) else "none"),
    "activation_offloading": ("stack.offload", lambda value: ["activations"] if str(value).casefold() in ("true", "legacy", "disk") else None),
    "flash_attention": ("stack.attention", lambda value: "flash2" if truth(value) else None),
    "sdp_attention": ("stack.attention", lambda value: "sdpa" if truth(value) else None),
    "flex_attention": ("stack.attention", lambda value: "flex" if truth(value) else None),
    "eager_attention": ("stack.attention", lambda value: "unfused" if truth(value) else None),
    "attention": ("stack.attention", {"flash": "flash2", "sdpa": "sdpa", "flex": "flex", "eager": "unfused"}),
    "attn_implementation": ("stack.attention", {"flash_attention_2": "flash2", "flash_attention_3": "flash3", "sdpa": "sdpa",
                                                "flex_attention": "flex", "eager": "unfused"}),
    "torch_compile": ("stack.compiled", lambda value: None if str(value).casefold() == "auto" else value),
    "tensor_parallel_size": "layout.tp",
    "context_parallel_size": "layout.cp",
    "sequence_parallel_degree": "layout.cp",
    "expert_parallel_size": "layout.ep",
    "dp_shard_size": "layout.dp_shard",
    "dp_replicate_size": "layout.dp_replicate",
    "fsdp": "axolotl.fsdp",
    "fsdp_version": "axolotl.version",
    "fsdp_config.fsdp_version": "axolotl.version",
    **{f"fsdp_config.{prefix}{key}": rule for prefix in ("", "fsdp_") for key, rule in _FSDP.items()},
    "deepspeed": "axolotl.deepspeed",
    "load_in_4bit": ("axolotl.quantized", lambda value: True if truth(value) else None),
    "load_in_8bit": ("axolotl.quantized", lambda value: True if truth(value) else None),
}  # fmt: skip
IRRELEVANT = pattern(
    """base_model_* model_type tokenizer* datasets.* test_datasets.* dataset* val_set* output_dir wandb_* mlflow_* comet_* optim*
    lr_* learning_rate warmup* *_per_epoch weight_decay special_tokens.* tokens.* train_on* group_by_length tf32 logging_* save_*
    eval_* early_stopping* resume_* local_rank debug strict plugins.* plugins liger_* chat_template* hub_* push_* lora_* peft_* qlora*
    sample_packing* pad_to* num_epochs cosine_* gradient_checkpointing_kwargs.* max_grad_norm adam_* fsdp_config.* xformers* s2_*
    flash_attn* flex_attn* torch_compile_* trust_* hf_* seed ddp_* shuffle* remove_* is_* rl dpo_* trl.* excess_length* cut_cross*
    load_in_* noisy_* neftune* fp8_* model_config.* overrides_* bnb_* gptq* unfrozen* dataloader_* val* roles.* loss_* mean_* lisa*
    relora* use_* ddp_* heads_k_stride ring_attn* deepspeed.* quantization.* qat.* kd_* reward_* data_seed experimental_* rope_*
    pretraining* skip_* streaming* evals* xpos* unsloth_* llmcompressor* profiler_* revision* fix_untrained* field_* include_* max_steps_* experts_impl* min_sample*"""
)


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """Axolotl's settings."""
    draft.apply(entries.values(), TABLE, IRRELEVANT)
    shard, experts = draft.findings.get("layout.dp_shard"), draft.get("layout.ep", 1)
    if shard is not None and experts > 1:  # its expert groups stand beside those that shard
        draft.findings["layout.dp_shard"] = replace(shard, value=shard.value * experts)
    draft.default("stack.framework", NAME, "the framework", start)
    bf16, fp16 = draft.findings.get("axolotl.bf16"), draft.findings.get("axolotl.fp16")
    if (
        bf16 is not None
        and fp16 is not None
        and bf16.value
        and fp16.value
        and bf16.mark.line != fp16.mark.line
    ):
        said = {str(entries[name].value).casefold() for name in ("bf16", "fp16") if name in entries}
        if "auto" not in said:
            draft.refuse("axolotl.fp16", "bf16 and fp16 exclude each other", "keep one of them")
    for word in ("fp8", "bf16", "fp16"):
        found = draft.findings.get(f"axolotl.{word}")
        if found is not None and found.value and "precision" not in draft.findings:
            draft.put("precision", word, Entry(found.key, found.value, found.mark))
    if draft.get("precision") == "fp8":
        draft.default("stack.fp8_recipe", "tensorwise", "torchao's recipe", start)
    _fsdp(draft, start)
    _files(draft, "axolotl.deepspeed")
    _adapter(draft, "axolotl.adapter")
    draft.default("layout.micro_batch", 1, "micro_batch_size", start)
    draft.default("layout.accumulation", 1, "gradient_accumulation_steps", start)
    draft.default("layout.recompute", "none", "gradient_checkpointing", start)


def _fsdp(draft: Draft, start: Mark) -> None:
    listed, strategy, reshard = (
        draft.findings.get(f"axolotl.{name}") for name in ("fsdp", "strategy", "reshard")
    )
    words = (
        " ".join(listed.value)
        if listed is not None and isinstance(listed.value, list)
        else str(listed.value)
        if listed
        else ""
    )
    version = draft.findings.get("axolotl.version")
    if not words.strip() and strategy is None and version is None and reshard is None:
        if draft.get("axolotl.deepspeed") is None:
            draft.default("layout.sharding", "ddp", "fsdp and deepspeed", start)
        return
    at = reshard or strategy or listed or version
    assert at is not None
    word = (
        strategy.value
        if strategy is not None
        else "zero2"
        if "shard_grad_op" in words
        else "hsdp"
        if "hybrid" in words
        else "fsdp"
    )
    if reshard is not None:
        gathered = truth(reshard.value)
        word = "fsdp" if gathered else "zero2"
        draft.put("stack.reshard_after_forward", gathered, Entry(reshard.key, reshard.value, reshard.mark))
    shard, copies = draft.findings.get("layout.dp_shard"), draft.get("layout.dp_replicate", 1)
    if copies > 1:
        word = "hsdp"
        if shard is not None:
            draft.put("layout.shard_group", shard.value, Entry(shard.key, shard.value, shard.mark))
    draft.put("layout.sharding", word, Entry(at.key, at.value, at.mark))
    if "offload" in words.split():
        draft.put("stack.offload", ["parameters", "optimizer"], Entry(at.key, at.value, at.mark))


def _files(draft: Draft, name: str) -> None:
    """The DeepSpeed file that is named; shipped ones say their stage in the name, which is no proof."""
    said = draft.findings.get(name)
    if said is None or not said.value:
        return
    if "deepspeed" not in draft.frameworks and "layout.sharding" not in draft.findings:
        draft.questions.append(
            f"the file {str(said.value)[:120]} ({said.place}) holds the DeepSpeed settings; give it as well"
        )


def _adapter(draft: Draft, name: str) -> None:
    """LoRA trains few parameters: the zoo's entry for it, where there is one."""
    said = draft.findings.get(name)
    model = draft.findings.get("model.name")
    if said is None or str(said.value).casefold() in ("full", "none", "false", ""):
        return
    known = in_zoo(str(model.value)) if model is not None else None
    lora = in_zoo(f"{known}-lora") if known is not None else None
    if lora is not None and model is not None and str(said.value).casefold() in ("lora", "qlora"):
        draft.put("model.name", lora, Entry(said.key, said.value, said.mark))
        return
    draft.questions.append(
        f"{said.key} {said.value} ({said.place}) trains few parameters; how many? "
        "Give --set workload.trainable_params=N, or all are taken to be trained"
    )


# -- LLaMA-Factory -----------------------------------------------------------------------------------------------------

FACTORY_TABLE: dict[str, Rule] = {
    **deepspeed.ARGUMENTS,
    "cutoff_len": "seq_len",
    "finetuning_type": "factory.kind",
    "flash_attn": ("stack.attention", {"fa2": "flash2", "fa3": "flash3", "sdpa": "sdpa", "disabled": "unfused", "auto": None}),
    "pure_bf16": ("hf.bf16", truth),
    "disable_gradient_checkpointing": ("layout.recompute", lambda value: "none" if truth(value) else "full"),
    "fp8": ("axolotl.fp8", truth),
    "deepspeed": "axolotl.deepspeed",
    "sequence_parallel_size": "layout.cp",
}  # fmt: skip
FACTORY_REST = """stage template adapter_name* quantization_* lora_* pissa* additional_target use_dora packing neat_packing
    mix_strategy interleave* max_samples media_dir overwrite_cache plot_loss val_size ref_model* pref_* reward_* ppo_* kto_* badam* galore*
    use_galore use_badam apollo* use_apollo freeze_* infer_* export_* shift_attn rope_scaling enable_liger* upcast_* train_on_prompt
    mask_history streaming buffer_size tokenized_path resize_vocab swanlab* use_swanlab ray_* moe_aux* fp8_* predict_with* tool_format
    enable_thinking cp_mode mixture_of_depths use_muon use_llama_pro print_param* double_quantization eval_dataset include_mfu* mfu_* fsdp*"""


def read_factory(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """LLaMA-Factory's settings."""
    plain = {
        key.lstrip("-"): Entry(key.lstrip("-"), entry.value, entry.mark) for key, entry in entries.items()
    }
    both = pattern(
        deepspeed.ARGUMENTS_IRRELEVANT.pattern.replace("\\", "").replace("|", " ").replace(".*", "*"),
        FACTORY_REST,
    )
    draft.apply(plain.values(), FACTORY_TABLE, both)
    draft.default("stack.framework", FACTORY, "the framework", start)
    draft.default("seq_len", 2048, "cutoff_len", start)
    # Its model loader turns checkpointing on unless disable_gradient_checkpointing is set.
    draft.default("layout.recompute", "full", "disable_gradient_checkpointing", start)
    eight = draft.findings.get("axolotl.fp8")
    if eight is not None and eight.value:
        draft.put("precision", "fp8", Entry(eight.key, True, eight.mark))
        draft.default("stack.fp8_recipe", "tensorwise", "fp8_backend", start)
        draft.findings.pop("hf.bf16", None)
    deepspeed.finish_arguments(draft, start)
    if draft.get("axolotl.deepspeed") is None:
        draft.default("layout.sharding", "ddp", "fsdp and deepspeed", start)
    _files(draft, "axolotl.deepspeed")
    _adapter(draft, "factory.kind")
