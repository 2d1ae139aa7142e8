"""llm-foundry and Composer: their YAML, and `key=value` arguments of train.py."""

from __future__ import annotations

import math
import re
from typing import Any

from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern, truth
from perfmodel.specs.loader import Mark

NAME = "llm-foundry"
STRATEGY = {
    "full_shard": "fsdp",
    "shard_grad_op": "zero2",
    "no_shard": "ddp",
    "hybrid_shard": "hsdp",
    "_hybrid_shard_zero2": "hsdp",
}
IMPL = {"flash": "flash", "triton": "flash", "torch": "unfused", "flex": "flex"}


def _number(value: Any) -> Any:
    return None if str(value).casefold() == "auto" else value


TABLE: dict[str, Rule] = {
    "max_seq_len": "seq_len",
    "global_train_batch_size": "batch.global",
    "device_train_microbatch_size": ("layout.micro_batch", _number),
    "device_train_grad_accum": ("layout.accumulation", _number),
    "max_duration": "composer.duration",
    "precision": ("precision", {"amp_bf16": "bf16", "amp_fp16": "fp16", "amp_fp8": "fp8", "fp32": "fp32"}),
    "compute.gpus": "world.gpus",
    "gpu_num": "world.gpus",
    "model.d_model": "model.hidden",
    "model.n_heads": "model.heads",
    "model.n_layers": "model.layers",
    "model.expansion_ratio": "composer.ratio",
    "model.ffn_config.ffn_hidden_size": "model.ffn",
    "model.ffn_config.ffn_type": ("model.gated", lambda value: str(value) in ("mptglu", "mptgeglu", "te_ln_mlp_glu")),
    "model.ffn_config.moe_num_experts": "model.experts",
    "model.ffn_config.moe_top_k": "model.top_k",
    "model.vocab_size": "model.vocab",
    "model.max_seq_len": "model.positions",
    "model.tie_word_embeddings": "model.tied",
    "model.no_bias": ("model.bias", lambda value: not truth(value)),
    "model.attn_config.kv_n_heads": "model.kv_heads",
    "model.attn_config.attn_impl": ("stack.attention", IMPL),
    "model.attn_impl": ("stack.attention", IMPL),
    "model.attn_config.alibi": ("composer.alibi", truth),
    "model.attn_config.rope": ("composer.alibi", truth),
    "model.learned_pos_emb": "model.learned_positions",
    "model.pretrained_model_name_or_path": "model.name",
    "model.use_flash_attention_2": ("stack.attention", lambda value: "flash2" if truth(value) else None),
    "fsdp_config.sharding_strategy": ("layout.sharding", STRATEGY),
    "fsdp_config.mixed_precision": "composer.mixed",
    "fsdp_config.activation_checkpointing": ("layout.recompute", lambda value: "full" if truth(value) else "none"),
    "fsdp_config.activation_cpu_offload": ("stack.offload", lambda value: ["activations"] if truth(value) else None),
    "fsdp_config.cpu_offload": ("stack.offload", lambda value: ["parameters", "optimizer"] if truth(value) else None),
    "fsdp_config.data_parallel_shard_degree": ("layout.dp_shard", lambda value: None if int(value) < 1 else value),
    "fsdp_config.data_parallel_replicate_degree": ("layout.dp_replicate", lambda value: None if value is None else value),
    "fsdp_config.device_mesh": "composer.mesh",
    "tp_config.tensor_parallel_degree": "layout.tp",
    "compile_config": ("stack.compiled", lambda value: True),
}  # fmt: skip
IRRELEVANT = pattern(
    """data_local data_remote global_seed seed run_name name tokenizer.* tokenizer_name train_loader.* eval_loader.* optimizer.*
    scheduler.* algorithms.* eval_* save_* load_* callbacks.* loggers.* progress_bar log_to_console console_log* python_log*
    dist_timeout autoresume icl_* metadata.* code_paths log_config only_* accumulate_* device_eval* model.name model.init_* model.loss*
    model.attn_config.* model.emb_pdrop model.resid_pdrop model.norm_type model.config_overrides.* model.trust_* model.use_* model.pretrained
    model.convert_to model.should_* model.peft_config.* model.ffn_config.* model.verbose fsdp_config.* compile_config.* image command
    integrations.* compute.* cluster experiment_tracker* scheduling.* dataset* profiler.* variables.* max_split* expandable* timeout
    activation_checkpointing* gradient_clipping* tags model.allow_* model.kv_* run_type parallelism_config.* env_variables.* model.softmax*
    model.embedding_fraction model.logit_scale model.low_precision* model.fc_type model.tokenizer_name model.additional*"""
)


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """Settings of llm-foundry's train.py."""
    plain = {}
    for entry in entries.values():
        key = re.sub(r"^(parameters|variables)\.", "", entry.key)
        if key not in plain or entry.key == key:
            plain[key] = Entry(key, entry.value, entry.mark)
    draft.apply(plain.values(), TABLE, IRRELEVANT)
    draft.default("stack.framework", NAME, "the framework", start)
    _model(draft, start)
    # Overrides on a command line alone: what they leave out stands in the file that they override, not in a default.
    whole_file = any(key.startswith(("model", "train_loader", "fsdp_config")) for key in plain)
    _sharding(draft, start, defaults=whole_file)
    _duration(draft)
    if whole_file:
        draft.default("precision", "bf16", "precision", start)


def _model(draft: Draft, start: Mark) -> None:
    if not draft.get("model.layers"):
        return
    ratio, hidden = draft.findings.get("composer.ratio"), draft.get("model.hidden")
    if ratio is not None and hidden and not draft.get("model.ffn"):
        draft.put("model.ffn", int(float(ratio.value) * hidden), Entry(ratio.key, ratio.value, ratio.mark))
    # MPT's own defaults: tied embeddings, learned positions unless alibi or rope replaces them, biases.
    draft.default("model.tied", True, "tie_word_embeddings", start)
    draft.default("model.learned_positions", not draft.get("composer.alibi", False), "learned_pos_emb", start)
    draft.default("model.bias", True, "no_bias", start)


def _sharding(draft: Draft, start: Mark, *, defaults: bool) -> None:
    mixed = draft.findings.get("composer.mixed")
    if mixed is not None:
        word = {"pure": draft.get("precision", "bf16"), "default": "fp32", "full": "fp32"}.get(
            str(mixed.value).casefold()
        )
        if word in ("bf16", "fp16", "fp32", "fp8"):
            draft.put(
                "gradient_dtype", "bf16" if word == "fp8" else word, Entry(mixed.key, mixed.value, mixed.mark)
            )
    mesh = draft.findings.get("composer.mesh")
    sizes = mesh.value if mesh is not None and isinstance(mesh.value, list) else []
    whole_sizes = len(sizes) == 2 and all(isinstance(one, int) and one > 0 for one in sizes)
    if mesh is not None and whole_sizes and draft.get("layout.sharding") in ("hsdp", "fsdp"):
        at = Entry(mesh.key, mesh.value, mesh.mark)
        draft.findings.pop("layout.sharding")  # two sizes: copies, and the ranks that share one
        draft.put("layout.sharding", "hsdp" if sizes[0] > 1 else "fsdp", at)
        if sizes[0] > 1:
            draft.put("layout.shard_group", sizes[1], at)
        draft.put("world.gpus", math.prod(sizes), at)
    if draft.get("layout.sharding") is None:
        if not defaults:
            return
        draft.default("layout.sharding", "ddp", "fsdp_config", start)
    elif draft.get("layout.dp_replicate", 1) > 1 and draft.get("layout.dp_shard"):
        shard = draft.findings["layout.dp_shard"]
        draft.findings.pop("layout.sharding")
        draft.put("layout.sharding", "hsdp", Entry(shard.key, shard.value, shard.mark))
        draft.put("layout.shard_group", shard.value, Entry(shard.key, shard.value, shard.mark))
    draft.default("layout.recompute", "none", "fsdp_config.activation_checkpointing", start)


def _duration(draft: Draft) -> None:
    said = draft.findings.get("composer.duration")
    if said is None:
        return
    text = re.fullmatch(r"([\d_.eE+]+)\s*(ba|tok|sp|ep|iter|dur)", str(said.value).strip())
    entry = Entry(said.key, said.value, said.mark)
    if text is None:
        draft.problems.append(
            said.mark.problem(
                "F003", f"{said.key}: cannot read {str(said.value)[:60]!r}", "write 100ba or 1e9tok"
            )
        )
    elif text.group(2) in ("ba", "tok", "sp"):
        name = {"ba": "steps", "tok": "tokens", "sp": "samples"}[text.group(2)]
        draft.take(Entry(said.key, text.group(1), entry.mark), name)
