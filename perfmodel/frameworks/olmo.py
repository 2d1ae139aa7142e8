"""OLMo-core: the config.json that it saves, and `--section.key=value` overrides of its scripts."""

from __future__ import annotations

from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern, truth, whole
from perfmodel.specs.loader import Mark

NAME = "olmo-core"
DTYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
SCHEDULES = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "interleaved_1f1b": "interleaved",
             "interleavedzerobubble": "zero-bubble", "zbvzerobubble": "zero-bubble"}  # fmt: skip
SHARDINGS = {"fsdp": "fsdp", "hsdp": "hsdp", "ddp": "ddp"}
# What the training module holds, and before version 2 the model held.
_TRAINED: dict[str, Rule] = {
    "dp_config.name": ("layout.sharding", SHARDINGS),
    "dp_config.num_replicas": "layout.dp_replicate",
    "dp_config.shard_degree": "layout.dp_shard",
    "dp_config.param_dtype": ("precision", DTYPES),
    "dp_config.reduce_dtype": ("gradient_dtype", DTYPES),
    "tp_config.degree": "layout.tp",
    "ac_config.mode": "olmo.mode",
    "ac_config.block_interval": "olmo.interval",
    "float8_config.enabled": ("olmo.float8", truth),
}
TABLE: dict[str, Rule] = {
    **{f"{place}.{key}": rule for place in ("model", "train_module") for key, rule in _TRAINED.items()},
    "model.d_model": "model.hidden",
    "model.n_layers": "model.layers",
    "model.vocab_size": "model.vocab",
    "model.block.attention.n_heads": "model.heads",
    "model.block.attention.n_kv_heads": "model.kv_heads",
    "model.block.attention.head_dim": "model.head_dim",
    "model.block.attention.use_flash": ("stack.attention", lambda value: "flash2" if truth(value) else "sdpa"),
    "model.block.attention.backend": ("stack.attention", {"flash_2": "flash2", "flash_3": "flash3", "flash_4": "flash4", "torch": "sdpa", "te": "cudnn"}),
    "model.block.attention.bias": "model.bias",
    "model.block.sequence_mixer.n_heads": "model.heads",
    "model.block.sequence_mixer.n_kv_heads": "model.kv_heads",
    "model.block.feed_forward.hidden_size": "model.ffn",
    "model.block.feed_forward_moe.hidden_size": "model.moe_ffn",
    "model.block.feed_forward_moe.num_experts": "model.experts",
    "model.block.feed_forward_moe.router.top_k": "model.top_k",
    "dataset.sequence_length": "seq_len",
    "train_module.max_sequence_length": "olmo.seq_len",
    # Before version 2 the model had these too, and the trainer the micro-batch.
    "model.compile": "stack.compiled",
    "trainer.rank_microbatch_size": "batch.micro_tokens",
    "data_loader.global_batch_size": "batch.global_tokens",
    "train_module.rank_microbatch_size": "batch.micro_tokens",
    "train_module.compile_model": "stack.compiled",
    "train_module.tp_config.enable_async": "stack.overlap_tensor",
    "train_module.cp_config.degree": "layout.cp",
    "train_module.cp_config.ulysses.degree": "layout.cp",
    "train_module.pp_config.degree": "layout.pp",
    "train_module.pp_config.schedule": ("stack.schedule", SCHEDULES),
    "train_module.ep_config.degree": "layout.ep",
    "trainer.max_duration.value": "olmo.duration",
    "trainer.max_duration.unit": "olmo.unit",
    "launch.num_nodes": "world.nodes",
    "launch.num_gpus": "world.gpus_per_node",
}  # fmt: skip
IRRELEVANT = pattern(
    """*_CLASS_ optim.* dataset.* data_loader.* trainer.* train_module.optim.* train_module.scheduler.* train_module.z_loss*
    train_module.max_grad* train_module.dp_config.* train_module.float8* train_module.ac_config.* train_module.cp_config.*
    train_module.tp_config.* train_module.pp_config.* train_module.ep_config.* train_module.autocast* train_module.label*
    train_module.state_dict* train_module.load_* init_seed run_name launch.* model.block.name model.block.layer_norm* model.name
    model.block.attention.* model.block.feed_forward.* model.block.feed_forward_moe.* model.lm_head.* model.init_* model.dtype
    model.block.dropout model.float8* model.block.sequence_mixer.* model.block_overrides.* backend dataset* seed model.fused_ops
    model.freeze* model.embed_* model.dp_config.* model.tp_config.* model.ac_config.* cmd_to_run command save_folder work_dir data_root sequence-length model_factory"""
)


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """Settings of an experiment."""
    plain = [Entry(key.lstrip("-"), entry.value, entry.mark) for key, entry in entries.items()]
    draft.apply(plain, TABLE, IRRELEVANT)
    draft.default("stack.framework", NAME, "the framework", start)
    if draft.get("model.layers"):
        draft.default("model.gated", True, "feed_forward", start)
    seq_len = draft.findings.get("olmo.seq_len")
    if seq_len is not None and "seq_len" not in draft.findings:
        draft.put("seq_len", whole(seq_len.value), Entry(seq_len.key, seq_len.value, seq_len.mark))
    _batch(draft)
    _sharding(draft, start)
    _recompute(draft, start)
    eight = draft.findings.get("olmo.float8")
    if eight is not None and eight.value:
        draft.findings.pop("precision", None)
        draft.put("precision", "fp8", Entry(eight.key, True, eight.mark))
        draft.default("stack.fp8_recipe", "tensorwise", "float8_config", start)
    value, unit = draft.findings.get("olmo.duration"), str(draft.get("olmo.unit", "")).casefold()
    if value is not None and unit in ("steps", "tokens"):
        draft.take(Entry(value.key, value.value, value.mark), unit)


def _batch(draft: Draft) -> None:
    """Batches are stated in tokens."""
    seq_len, micro = draft.get("seq_len"), draft.findings.get("batch.micro_tokens")
    if micro is not None and seq_len:
        if micro.value % seq_len:
            draft.refuse(
                "batch.micro_tokens",
                f"a micro-batch of {micro.value} tokens does not divide by sequences of {seq_len}",
            )
        else:
            draft.put("layout.micro_batch", micro.value // seq_len, Entry(micro.key, micro.value, micro.mark))
    total = draft.findings.get("batch.global_tokens")
    if total is not None and seq_len and total.value % seq_len:
        draft.refuse(
            "batch.global_tokens",
            f"a batch of {total.value} tokens does not divide by sequences of {seq_len}",
        )


def _sharding(draft: Draft, start: Mark) -> None:
    if draft.get("layout.sharding") == "hsdp" and draft.get("layout.dp_shard"):
        shard = draft.findings["layout.dp_shard"]
        draft.put("layout.shard_group", shard.value, Entry(shard.key, shard.value, shard.mark))
    draft.default("layout.sharding", "ddp", "train_module.dp_config", start)
    if draft.get("layout.tp", 1) > 1:
        draft.default("layout.sequence_parallel", True, "tp_config", start)


def _recompute(draft: Draft, start: Mark) -> None:
    mode = draft.findings.get("olmo.mode")
    if mode is None:
        draft.default("layout.recompute", "none", "train_module.ac_config", start)
        return
    word, entry = str(mode.value).casefold(), Entry(mode.key, mode.value, mode.mark)
    interval = draft.get("olmo.interval")
    if word == "full":
        draft.put("layout.recompute", "full", entry)
    elif word == "selected_blocks" and interval:
        draft.put(
            "layout.recompute", "full" if whole(interval) == 1 else round(1 / whole(interval), 6), entry
        )
    elif word == "selected_ops":
        draft.put("layout.recompute", "selective", entry)
    else:
        draft.questions.append(
            f"{mode.key} {mode.value} ({mode.place}): which share of the forward pass is computed again?"
        )
