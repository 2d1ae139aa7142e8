"""Megatron-Bridge's YAML (a ConfigContainer or overrides of one) and the YAML of NeMo's Megatron models.

Both hand their settings to Megatron core, whose rules hold. Bridge files override a recipe: what they leave out is the
recipe's, so that defaults are asked for instead of taken from Megatron-LM.
"""

from __future__ import annotations

from typing import Any

from perfmodel.frameworks import megatron
from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern, truth, whole
from perfmodel.specs.loader import Mark

PRECISION = {"16": "fp16", "16-mixed": "fp16", "16-true": "fp16", "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16",
             "32": "fp32", "32-true": "fp32", "bfloat16": "bf16", "float32": "fp32", "torch.bfloat16": "bf16",
             "torch.float16": "fp16", "fp16": "fp16", "torch.float32": "fp32"}  # fmt: skip
SHARED: dict[str, Rule] = {
    "tensor_model_parallel_size": "layout.tp", "pipeline_model_parallel_size": "layout.pp",
    "virtual_pipeline_model_parallel_size": "layout.vpp", "context_parallel_size": "layout.cp",
    "expert_model_parallel_size": "layout.ep", "expert_tensor_parallel_size": "layout.etp",
    "sequence_parallel": "layout.sequence_parallel", "num_layers": "model.layers", "hidden_size": "model.hidden",
    "ffn_hidden_size": "model.ffn", "num_attention_heads": "model.heads", "num_query_groups": "model.kv_heads",
    "kv_channels": "model.head_dim", "vocab_size": "model.vocab", "make_vocab_size_divisible_by": "model.vocab_multiple",
    "num_moe_experts": "model.experts", "moe_router_topk": "model.top_k", "moe_ffn_hidden_size": "model.moe_ffn",
    "moe_shared_expert_intermediate_size": "model.shared_ffn", "seq_length": "seq_len",
    "share_embeddings_and_output_weights": "model.tied", "gated_linear_unit": "model.gated",
    "recompute_granularity": ("layout.recompute", megatron.RECOMPUTE), "recompute_method": "megatron.recompute_method",
    "recompute_num_layers": "recompute.layers", "cp_comm_type": ("stack.context_parallel", megatron.CP_EXCHANGE),
    "moe_token_dispatcher_type": ("stack.dispatcher", megatron.DISPATCHER),
    "moe_enable_deepep": ("stack.dispatcher", lambda value: "deepep" if truth(value) else None),
    "moe_flex_dispatcher_backend": ("stack.dispatcher", {"deepep": "deepep", "hybridep": "hybridep"}),
    "add_bias_linear": "model.bias", "tp_comm_overlap": "stack.overlap_tensor",
    "q_lora_rank": "model.q_lora_rank", "kv_lora_rank": "model.kv_lora_rank", "qk_head_dim": "model.qk_nope_head_dim",
    "qk_pos_emb_head_dim": "model.qk_rope_head_dim", "v_head_dim": "model.v_head_dim",
    "multi_latent_attention": "megatron.mla", "moe_layer_freq": "megatron.moe_layers",
    "pipeline_model_parallel_layout": "megatron.uneven", "num_layers_in_first_pipeline_stage": "megatron.uneven",
    "num_layers_in_last_pipeline_stage": "megatron.uneven",
    "cpu_offloading_num_layers": ("stack.offload", lambda value: ["activations"] if whole(value) else None),
}  # fmt: skip


def _mixed(value: Any) -> str | None:
    """The precision that a name of a mixed-precision recipe states."""
    text = str(value).casefold()
    if "nvfp4" in text or "fp8" in text:
        return "fp8"
    return next((word for word in ("bf16", "fp16") if word in text), None)


def _recipe(value: Any) -> str | None:
    text = str(value).casefold()
    names = (
        ("nvfp4", "nvfp4"),
        ("mxfp8", "mxfp8"),
        ("subchannel", "blockwise"),
        ("delayed", "delayed"),
        ("current", "tensorwise"),
    )
    return next((word for part, word in names if part in text), None)


TABLE: dict[str, Rule] = {
    **{f"model.{key}": rule for key, rule in SHARED.items()},
    "train.micro_batch_size": "layout.micro_batch",
    "train.global_batch_size": "batch.global",
    "train.train_iters": "steps",
    "train.train_samples": "samples",
    "dataset.sequence_length": "seq_len",
    "dataset.seq_length": "seq_len",
    "ddp.use_distributed_optimizer": ("bridge.distributed", truth),
    "optimizer.use_distributed_optimizer": ("bridge.distributed", truth),
    "optimizer.optimizer_cpu_offload": ("stack.offload", lambda value: ["optimizer"] if truth(value) else None),
    "ddp.overlap_grad_reduce": "stack.overlap_gradients",
    "ddp.overlap_param_gather": "stack.overlap_gather",
    "ddp.grad_reduce_in_fp32": ("bridge.reduce", truth),
    "ddp.bucket_size": "megatron.bucket_elements",
    "ddp.use_megatron_fsdp": "megatron.fsdp",
    "ddp.use_custom_fsdp": "megatron.fsdp",
    "ddp.data_parallel_sharding_strategy": ("megatron.fsdp_strategy", megatron.FSDP_STRATEGY),
    "dist.use_megatron_fsdp": "megatron.fsdp",
    "mixed_precision": "bridge.mixed",
    "mixed_precision.dtype": ("precision", PRECISION),
    "mixed_precision.bf16": "megatron.bf16",
    "mixed_precision.fp16": "megatron.fp16",
    "mixed_precision.fp8": "megatron.fp8",
    "mixed_precision.fp8_recipe": ("stack.fp8_recipe", megatron.RECIPE),
    "mixed_precision.grad_reduce_in_fp32": ("bridge.reduce", truth),
    "comm_overlap.tp_comm_overlap": "stack.overlap_tensor",
    "comm_overlap.overlap_moe_expert_parallel_comm": "stack.overlap_experts",
    "comm_overlap.overlap_grad_reduce": "stack.overlap_gradients",
    "comm_overlap.overlap_param_gather": "stack.overlap_gather",
    "comm_overlap.bucket_size": "megatron.bucket_elements",
    "model.attention_backend": ("stack.attention", lambda value: megatron.ATTENTION[str(value).rpartition(".")[2].casefold()]),
    "tokenizer.tokenizer_type": "megatron.tokenizer_type",
    "tokenizer.tokenizer_model": "megatron.tokenizer",
    "tokenizer.vocab_size": "model.vocab",
    "model.hf_model_id": "model.name",
    "model.pretrained_model_name_or_path": "model.name",
    "hf_path": "model.name",
}  # fmt: skip
IRRELEVANT = pattern(
    """optimizer.* scheduler.* logger.* checkpoint.* tokenizer.* rng.* profiling.* dataset.* dist.* rerun_state_machine.*
    *_target_ *_partial_ ft.* straggler.* nvrx_straggler.* inprocess_restart.* validation.* peft.* train.eval_* train.exit_*
    train.manual_gc* train.rampup* train.check_* train.empty_* train.decrease_* train.train_sync* train.skip_*
    ddp.check_* ddp.average_in* ddp.pad_* ddp.align_* ddp.keep_* ddp.nccl* ddp.fsdp_* ddp.num_dist* ddp.preserve*
    model.cross_entropy* model.use_transformer* model.init_method* model.attention_dropout model.hidden_dropout
    model.rotary* model.normalization model.layernorm* model.apply_* model.bias_* model.masked_* model.gradient_*
    model.moe_router* model.moe_aux* model.moe_grouped* model.moe_permute* model.moe_z* model.position_* model.rope*
    model.*dtype model.deterministic* model.fp8* model.qk_* model.persist* model.activation_func model.enable_* model.cuda_graph*
    model.use_te* model.transformer_impl model.autocast* model.parallel_output model.pipeline_dtype model.scatter*
    model.distribute_saved* model.perform_init* model.async_tensor* model.calculate* model.generation* model.*fusion
    mixed_precision.* comm_overlap.* model.external_* model.mtp_* model.account_* model.init_model* model.recompute_modules model.should_pad* model.cudnn* trust_*
    model.moe_pad* model.moe_token_drop* model.moe_deepep* model.moe_shared_expert_overlap"""
)


_OFF: dict[str, tuple[str, Any]] = {
    "model.recompute_granularity": ("layout.recompute", "none"),
    "model.virtual_pipeline_model_parallel_size": ("layout.vpp", 1),
}


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """A ConfigContainer, whole or as overrides."""
    plain = [
        Entry(entry.key.removeprefix("ConfigContainer."), entry.value, entry.mark)
        for entry in entries.values()
        if not entry.key.startswith("perf_matrix.")
    ]
    matrix = next((entry for entry in entries.values() if entry.key.startswith("perf_matrix.")), None)
    if matrix is not None:
        draft.questions.append(
            f"perf_matrix ({matrix.mark.source.name}:{matrix.mark.line}) holds layouts for several machines; which one "
            "runs? Give --layout, -k and --global-batch"
        )
    draft.apply(plain, TABLE, IRRELEVANT)
    for entry in plain:  # a null that overrides the recipe's value
        if entry.value is None and entry.key in _OFF:
            name, value = _OFF[entry.key]
            draft.put(name, value, entry)
    mixed = draft.findings.get("bridge.mixed")
    if mixed is not None:
        entry = Entry(mixed.key, mixed.value, mixed.mark)
        if (word := _mixed(mixed.value)) is not None:
            draft.put("precision", word, entry)
        if (recipe := _recipe(mixed.value)) is not None:
            draft.put("stack.fp8_recipe", recipe, entry)
    _finish(draft, start, "megatron-bridge")
    if "layout.sharding" not in draft.findings:
        draft.notes.append("the file overrides a recipe: sharding is the recipe's, and zero1 is taken")


def _finish(draft: Draft, start: Mark, name: str) -> None:
    """What follows from several settings, and the rules of Megatron core."""
    draft.default("stack.framework", name, "the framework", start)
    draft.default("rule.megatron", True, "the framework", start)
    eight = draft.findings.get("megatron.fp8")
    if eight is not None and str(eight.value).casefold() not in ("none", "false", "null", ""):
        draft.findings.pop("precision", None)
        draft.put("precision", "fp8", Entry(eight.key, eight.value, eight.mark))
    elif eight is None or "precision" not in draft.findings:
        for word in ("bf16", "fp16"):
            half = draft.findings.get(f"megatron.{word}")
            if half is not None and truth(half.value) and "precision" not in draft.findings:
                draft.put("precision", word, Entry(half.key, half.value, half.mark))
    if draft.get("precision") != "fp8":
        draft.findings.pop("stack.fp8_recipe", None)
    reduce = draft.findings.get("bridge.reduce")
    if reduce is not None:
        word = "fp32" if reduce.value else "fp16" if draft.get("precision") == "fp16" else "bf16"
        draft.put("gradient_dtype", word, Entry(reduce.key, reduce.value, reduce.mark))
    spread = draft.findings.get("bridge.distributed")
    if spread is not None:
        draft.put(
            "layout.sharding",
            "zero1" if spread.value else "ddp",
            Entry(spread.key, spread.value, spread.mark),
        )
    fsdp, strategy = draft.findings.get("megatron.fsdp"), draft.findings.get("megatron.fsdp_strategy")
    if fsdp is not None and truth(fsdp.value):
        stated = strategy or fsdp
        draft.findings.pop("layout.sharding", None)
        said = strategy.value if strategy is not None else "fsdp"
        draft.put("layout.sharding", said, Entry(stated.key, stated.value, stated.mark))
    elements = draft.findings.get("megatron.bucket_elements")
    if elements is not None and elements.value is not None:
        width = 4 if draft.get("gradient_dtype") == "fp32" else 2
        draft.put("bucket", whole(elements.value) * width, Entry(elements.key, elements.value, elements.mark))
    draft.default(
        "rule.megatron_flags", False, "the framework", start
    )  # Bridge sets dependent switches itself
    if draft.get("model.experts"):
        megatron.moe_layers(draft)
    megatron.recompute_share(draft)
    megatron.rules(draft)


# -- NeMo ------------------------------------------------------------------------------------------------------------

_ACTIVATIONS = {"swiglu": True, "fast-swiglu": True, "geglu": True, "fast-geglu": True, "reglu": True, "fast-reglu": True,
                "gelu": False, "relu": False, "squared-relu": False, "openai-gelu": False, "quick-gelu": False}  # fmt: skip
NEMO: dict[str, Rule] = {
    "training": ("model.name", lambda value: str(value).replace("/", "-")),  # the launcher's own config of a model
    **{f"model.{key}": rule for key, rule in SHARED.items()},
    "trainer.devices": "world.gpus_per_node",
    "trainer.num_nodes": "world.nodes",
    "trainer.precision": ("precision", PRECISION),
    "trainer.max_steps": ("steps", lambda value: None if int(value) < 1 else value),
    "model.micro_batch_size": "layout.micro_batch",
    "model.global_batch_size": "batch.global",
    "model.encoder_seq_length": "seq_len",
    "model.data.seq_length": "seq_len",
    "model.max_position_embeddings": "model.positions",
    "model.activation": ("model.gated", _ACTIVATIONS),
    "model.bias": "model.bias",
    "model.position_embedding_type": ("model.learned_positions", lambda value: value == "learned_absolute"),
    "model.activations_checkpoint_granularity": ("layout.recompute", megatron.RECOMPUTE),
    "model.activations_checkpoint_method": "megatron.recompute_method",
    "model.activations_checkpoint_num_layers": "recompute.layers",
    "model.ub_tp_comm_overlap": "stack.overlap_tensor",
    "model.fp8": ("nemo.fp8", truth),
    "model.use_flash_attention": ("stack.attention", lambda value: "flash" if truth(value) else None),
    "model.mcore_gpt": ("framework", lambda value: None if truth(value) else "megatron_eager"),
    "model.optim.name": ("layout.sharding", lambda value: "zero1" if str(value) in ("distributed_fused_adam", "mcore_distributed_optim") else "ddp"),
    "model.optim.overlap_grad_sync": "stack.overlap_gradients",
    "model.optim.overlap_param_sync": "stack.overlap_gather",
    "model.optim.bucket_cap_mb": ("bucket", lambda value: whole(value) * 2**20),
    "model.optim.grad_sync_dtype": ("gradient_dtype", {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}),
    "model.tokenizer.type": "megatron.tokenizer_type",
    "model.tokenizer.model": "megatron.tokenizer",
    "model.fsdp": ("nemo.fsdp", truth),
    "model.fsdp_sharding_strategy": ("nemo.fsdp_strategy", {"full": "fsdp", "hybrid": "hsdp", "grad": "zero2"}),
}  # fmt: skip
NEMO_IRRELEVANT = pattern(
    """trainer.* exp_manager.* model.optim.* model.data.* model.tokenizer.* model.nsys_profile.* name restore_from_path run.*
    hydra.* defaults* cluster* model.init_method* model.*dropout model.*norm* model.*fusion* model.fp8_* model.reduce_amax
    model.use_emha model.seed model.resume* model.native_amp* model.apex* model.gradient_as* model.sync_batch*
    model.megatron_amp_O2 model.grad_* model.transformer_* model.apply_* model.*_type model.rotary* model.rope* model.use_scaled*
    model.activations_checkpoint_layers* model.num_micro_batches* model.hidden_dropout model.rampup* model.gc_interval
    model.pre_process model.post_process model.persist* model.precision model.batch_p2p* model.overlap_p2p* model.ub_* model.moe_*
    model.sharp model.nccl* model.use_cpu* model.onnx* model.resume_* model.attention_* model.masked* model.openai* model.normalize*
    model.get_attention* model.scale_* model.migration* model.peft* model.seq_len_* model.headscale model.share_* model.dist_*
    model.fsdp_* model.torch* model.use_tp* model.name stages launcher_scripts_path data_dir base_results_dir model.deterministic* model.enable_* model.use_te*"""
)


def read_nemo(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """The YAML of a NeMo Megatron model."""
    plain = [
        Entry(entry.key.removeprefix("training."), entry.value, entry.mark) for entry in entries.values()
    ]
    draft.apply(plain, NEMO, NEMO_IRRELEVANT)
    if "training" in entries:
        draft.notes.append(
            "the command overrides a config of the launcher: what it leaves out is that config's"
        )
        draft.default("world.gpus_per_node", 8, "trainer.devices of the launcher's configs", start)
    eight = draft.findings.get("nemo.fp8")
    if eight is not None and eight.value:
        draft.findings.pop("precision", None)
        draft.put("precision", "fp8", Entry(eight.key, True, eight.mark))
        draft.default("stack.fp8_recipe", "delayed", "transformer_engine", start)
    fsdp = draft.findings.get("nemo.fsdp")
    if fsdp is not None and fsdp.value:
        draft.findings.pop("layout.sharding", None)
        strategy = draft.findings.get("nemo.fsdp_strategy") or fsdp
        word = strategy.value if isinstance(strategy.value, str) else "fsdp"
        draft.put("layout.sharding", word, Entry(strategy.key, strategy.value, strategy.mark))
    layers = draft.get("model.layers")
    if layers:
        draft.default("model.vocab_multiple", 128, "make_vocab_size_divisible_by", start)
        draft.default("model.tied", True, "share_embeddings_and_output_weights", start)
        draft.default("model.bias", True, "bias", start)
        draft.default("model.learned_positions", True, "position_embedding_type", start)
        megatron.vocabulary(draft)
    if "training" not in entries:
        draft.default("layout.recompute", "none", "activations_checkpoint_granularity", start)
    _finish(draft, start, "nemo")
