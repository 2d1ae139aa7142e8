"""Arguments of Megatron-LM (pretrain_gpt.py) and overrides of a Megatron-Bridge recipe."""

from __future__ import annotations

from typing import Any

from perfmodel.frameworks.export.chosen import Chosen, array, here, script

RECIPES = {"delayed": "delayed", "tensorwise": "tensorwise", "blockwise": "blockwise", "mxfp8": "mxfp8"}
ATTENTION = {"flash": "flash", "flash2": "flash", "flash3": "flash", "cudnn": "fused", "unfused": "unfused"}
CONTEXT = {"ring": "p2p", "all-gather": "all_gather", "all-to-all": "a2a", "ring+all-to-all": "a2a+p2p"}
DISPATCHERS = {"all-gather": "allgather", "all-to-all": "alltoall", "deepep": "flex", "hybridep": "flex"}
STRATEGIES = {"fsdp": "optim_grads_params", "zero2": "optim_grads"}


def check(chosen: Chosen) -> None:
    """Refuse what Megatron core has no argument for, or does not allow."""
    chosen.common()
    chosen.decoder()
    layout, workload, stack = chosen.layout, chosen.workload, chosen.stack
    if chosen.sharding == "hsdp":
        chosen.lacks("sharding hsdp: Megatron-FSDP in groups is set by code")
    if layout.shard_group is not None and chosen.sharding != "hsdp":
        chosen.lacks(f"shard_group {layout.shard_group}: the distributed optimizer spreads over all replicas")
    if chosen.sharding in STRATEGIES and layout.pp > 1:
        chosen.lacks(f"sharding {chosen.sharding} with a pipeline: Megatron-FSDP has none")
    if layout.schedule in ("gpipe", "zero-bubble"):
        chosen.lacks(f"schedule {layout.schedule}: it runs 1F1B, plain or interleaved")
    chunks = layout.pp * (layout.vpp or 1)
    if workload.layers and workload.layers % chunks:
        chosen.lacks(
            f"{workload.layers} layers on {chunks} pipeline stages: they must divide, unless --pipeline-model-parallel-layout "
            "says by hand where each goes"
        )
    if (layout.vpp or 1) > 1 and chosen.accumulation % layout.pp:
        chosen.lacks(
            f"{chosen.accumulation} micro-batches on {layout.pp} interleaved stages: they must divide by them"
        )
    if chosen.job.seq_len and layout.cp > 1 and chosen.job.seq_len % (2 * layout.cp):
        chosen.lacks(f"cp {layout.cp}: the sequence must divide by twice that")
    if layout.ep > 1 and layout.tp > 1 and not layout.sequence_parallel:
        chosen.lacks("experts with tensor parallelism but without sequence_parallel")
    if workload.window_layers or workload.document_len or workload.memory_len or workload.moe_latent:
        chosen.lacks("attention windows in some layers, documents, memory or latent experts: set by code")
    if chosen.job.precision not in ("bf16", "fp16", "fp32", "fp8"):
        chosen.lacks(f"precision {chosen.job.precision}")
    if stack.fp8_recipe not in (None, "nvfp4", *RECIPES):
        chosen.lacks(f"fp8_recipe {stack.fp8_recipe}: known are {', '.join(RECIPES)}, nvfp4")
    if stack.offload and tuple(stack.offload) != ("optimizer",):
        chosen.lacks(f"offload of {', '.join(stack.offload)}: of the optimizer alone")
    if stack.overlap_tensor and not layout.sequence_parallel:
        chosen.lacks("overlap_tensor without sequence_parallel")
    if stack.compiled:
        chosen.lacks("compiled: it has no such switch")
    if stack.hidden_tensor_calls is not None:
        chosen.lacks("hidden_tensor_calls: it is what a run measured, not a setting")
    if chosen.job.first_bucket is not None:
        chosen.lacks("first_bucket: all buckets are of one size")
    half = "fp16" if chosen.job.precision == "fp16" else "bf16"
    if chosen.job.gradient_dtype not in (None, "fp32", half):
        chosen.lacks(f"gradient_dtype {chosen.job.gradient_dtype}")
    _layers_recomputed(chosen)


def _layers_recomputed(chosen: Chosen) -> int | None:
    """Layers of a (virtual) stage that `block` recomputes; None where the share is a word."""
    share, layers = chosen.layout.recompute, chosen.workload.layers or 0
    if share is None or isinstance(share, str):
        return None
    each = share * layers / (chosen.layout.pp * (chosen.layout.vpp or 1))
    if abs(each - round(each)) > 0.02 or not round(each):
        chosen.lacks(f"recompute {share:g}: of {layers} layers that is no whole number in each stage")
    return round(each)


def model_flags(chosen: Chosen) -> dict[str, Any]:
    """The model's dimensions as arguments."""
    w, cp = chosen.workload, chosen.layout.cp
    hidden, heads = w.hidden or 0, w.heads or 1
    learned = bool(w.max_positions)
    flags: dict[str, Any] = {
        "--num-layers": w.layers,
        "--hidden-size": hidden,
        "--num-attention-heads": heads,
        "--group-query-attention": bool(w.kv_heads and w.kv_heads != heads and not w.kv_lora_rank),
        "--num-query-groups": w.kv_heads if w.kv_heads != heads and not w.kv_lora_rank else None,
        "--kv-channels": w.head_dim
        if w.head_dim and w.head_dim * heads != hidden and not w.kv_lora_rank
        else None,
        "--ffn-hidden-size": w.dense_ffn or w.ffn,
        "--swiglu": bool(w.gated_mlp),
        "--untie-embeddings-and-output-weights": w.tied_embeddings is False,
        "--disable-bias-linear": bool(w.gated_mlp),
        "--normalization": "RMSNorm" if w.gated_mlp else None,
        "--position-embedding-type": None if learned else "rope",
        "--seq-length": chosen.job.seq_len,
        "--max-position-embeddings": max(w.max_positions or 0, chosen.job.seq_len or 0),
        "--vocab-size": w.vocab,
        "--window-size": f"{w.attention_window},0" if w.attention_window else None,
    }
    if w.kv_lora_rank:
        flags |= {
            "--multi-latent-attention": True, "--q-lora-rank": w.q_lora_rank, "--kv-lora-rank": w.kv_lora_rank,
            "--qk-head-dim": w.qk_nope_head_dim, "--qk-pos-emb-head-dim": w.qk_rope_head_dim,
            "--v-head-dim": w.v_head_dim,
        }  # fmt: skip
    if w.experts:
        shared = (w.shared_experts or 0) * (w.shared_expert_ffn or w.moe_ffn or w.ffn or 0)
        flags |= {
            "--num-experts": w.experts,
            "--moe-router-topk": w.top_k,
            "--moe-ffn-hidden-size": w.moe_ffn or w.ffn,
            "--moe-shared-expert-intermediate-size": shared or None,
            "--moe-layer-freq": moe_layers(chosen),
        }
    flags["--cp-comm-type"] = CONTEXT.get(chosen.stack.context_parallel or "") if cp > 1 else None
    return flags


def moe_layers(chosen: Chosen) -> str | None:
    """Which layers hold experts, as Megatron's list; None where all do."""
    w = chosen.workload
    layers, step = w.layers or 0, w.moe_interval or 1
    dense = w.first_dense_layers or 0
    if not dense and step == 1 and w.moe_layers:
        dense = layers - w.moe_layers
    if dense:
        return f"([0]*{dense}+[1]*{layers - dense})" if step == 1 else None
    return str(step) if step > 1 else None


def job_flags(chosen: Chosen) -> dict[str, dict[str, Any]]:
    """The arguments by group."""
    job, layout, stack = chosen.job, chosen.layout, chosen.stack
    parallel: dict[str, Any] = {
        "--tensor-model-parallel-size": layout.tp,
        "--pipeline-model-parallel-size": layout.pp,
        "--num-virtual-stages-per-pipeline-rank": layout.vpp if (layout.vpp or 1) > 1 else None,
        "--context-parallel-size": layout.cp if layout.cp > 1 else None,
        "--expert-model-parallel-size": layout.ep if layout.ep > 1 else None,
        "--expert-tensor-parallel-size": layout.etp if layout.ep > 1 else None,
        "--sequence-parallel": bool(layout.sequence_parallel),
        "--use-distributed-optimizer": chosen.sharding in ("zero1", *STRATEGIES),
        "--use-megatron-fsdp": chosen.sharding in STRATEGIES,
        "--data-parallel-sharding-strategy": STRATEGIES.get(chosen.sharding),
        "--use-mcore-models": True,
        "--overlap-grad-reduce": stack.overlap_gradients is not False,
        "--overlap-param-gather": stack.overlap_gather,
        "--tp-comm-overlap": stack.overlap_tensor,
        "--overlap-moe-expert-parallel-comm": stack.overlap_experts,
        "--ddp-bucket-size": round(job.bucket / (4 if job.gradient_dtype == "fp32" else 2)) if job.bucket else None,
        "--moe-token-dispatcher-type": DISPATCHERS.get(stack.dispatcher or ""),
        "--moe-flex-dispatcher-backend": stack.dispatcher if stack.dispatcher in ("deepep", "hybridep") else None,
    }  # fmt: skip
    layers = _layers_recomputed(chosen)
    again: dict[str, Any] = {}
    if layers is not None:
        again = {
            "--recompute-granularity": "full",
            "--recompute-method": "block",
            "--recompute-num-layers": layers,
        }
    elif layout.recompute == "full":
        again = {
            "--recompute-granularity": "full",
            "--recompute-method": "uniform",
            "--recompute-num-layers": 1,
        }
    elif layout.recompute == "selective":
        again = {"--recompute-granularity": "selective"}
    is_eight = job.precision == "fp8"
    train: dict[str, Any] = {
        "--micro-batch-size": chosen.micro_batch,
        "--global-batch-size": chosen.batch,
        "--bf16": job.precision in ("bf16", "fp8"),
        "--fp16": job.precision == "fp16",
        "--fp4-format": "e2m1" if is_eight and stack.fp8_recipe == "nvfp4" else None,
        "--fp8-format": "hybrid" if is_eight and stack.fp8_recipe != "nvfp4" else None,
        "--fp8-recipe": RECIPES.get(stack.fp8_recipe or "delayed") if is_eight and stack.fp8_recipe != "nvfp4" else None,
        "--grad-reduce-in-bf16": job.gradient_dtype == "bf16",
        "--accumulate-allreduce-grads-in-fp32": job.gradient_dtype == "fp32" and job.precision != "fp32",
        "--attention-backend": ATTENTION.get(stack.attention or ""),
        "--optimizer-cpu-offload": bool(stack.offload),
        **again,
        "--train-iters": job.steps,
    }  # fmt: skip
    return {"MODEL": model_flags(chosen), "PARALLEL": parallel, "TRAIN": train}


RELIES = ["the degrees", "--use-distributed-optimizer", "--overlap-grad-reduce", "the type of gradients",
          "what is recomputed", "--sequence-parallel", "the micro-batch"]  # fmt: skip


def write(chosen: Chosen) -> str:
    """A launch script of Megatron-LM."""
    check(chosen)
    groups = job_flags(chosen)
    chosen.refuse()
    body = [line for name, flags in groups.items() for line in array(name, flags)]
    words = " ".join(f"${{{name}[@]}}" for name in groups)
    body.append(chosen.torchrun(f'pretrain_gpt.py {words} "$@"'))
    relies = [
        word for word in RELIES if not word.startswith("--") or any(g.get(word) for g in groups.values())
    ]
    return script(chosen, relies, body)


# -- Megatron-Bridge ---------------------------------------------------------------------------------------------------

_BRIDGE_MODEL = {
    "--num-layers": "num_layers", "--hidden-size": "hidden_size", "--num-attention-heads": "num_attention_heads",
    "--num-query-groups": "num_query_groups", "--kv-channels": "kv_channels", "--ffn-hidden-size": "ffn_hidden_size",
    "--seq-length": "seq_length", "--vocab-size": "vocab_size", "--q-lora-rank": "q_lora_rank",
    "--kv-lora-rank": "kv_lora_rank", "--qk-head-dim": "qk_head_dim", "--qk-pos-emb-head-dim": "qk_pos_emb_head_dim",
    "--v-head-dim": "v_head_dim", "--num-experts": "num_moe_experts", "--moe-router-topk": "moe_router_topk",
    "--moe-ffn-hidden-size": "moe_ffn_hidden_size", "--cp-comm-type": "cp_comm_type",
    "--moe-shared-expert-intermediate-size": "moe_shared_expert_intermediate_size", "--moe-layer-freq": "moe_layer_freq",
    "--tensor-model-parallel-size": "tensor_model_parallel_size",
    "--pipeline-model-parallel-size": "pipeline_model_parallel_size",
    "--num-virtual-stages-per-pipeline-rank": "virtual_pipeline_model_parallel_size",
    "--context-parallel-size": "context_parallel_size", "--expert-model-parallel-size": "expert_model_parallel_size",
    "--expert-tensor-parallel-size": "expert_tensor_parallel_size", "--sequence-parallel": "sequence_parallel",
    "--recompute-granularity": "recompute_granularity", "--recompute-method": "recompute_method",
    "--recompute-num-layers": "recompute_num_layers", "--moe-token-dispatcher-type": "moe_token_dispatcher_type",
    "--moe-flex-dispatcher-backend": "moe_flex_dispatcher_backend", "--attention-backend": "attention_backend",
}  # fmt: skip
_BRIDGE_NAMES = {"delayed": "bf16_with_fp8_delayed_scaling_mixed", "tensorwise": "bf16_with_fp8_current_scaling_mixed",
                 "blockwise": "bf16_with_fp8_subchannel_scaling_mixed", "mxfp8": "bf16_with_mxfp8_mixed",
                 "nvfp4": "bf16_with_nvfp4_mixed"}  # fmt: skip


def write_bridge(chosen: Chosen) -> str:
    """Overrides of a recipe of Megatron-Bridge, and the launch."""
    check(chosen)
    job, layout, stack = chosen.job, chosen.layout, chosen.stack
    if job.precision == "fp32":
        chosen.lacks("precision fp32: its recipes are of mixed precision")
    if chosen.workload.attention_window:
        chosen.lacks("an attention window: it is a part of the recipe's model")
    groups = job_flags(chosen)
    chosen.refuse()
    flags = {**groups["MODEL"], **groups["PARALLEL"], **groups["TRAIN"]}
    model = {key: flags.get(flag) for flag, key in _BRIDGE_MODEL.items()}
    model |= {
        "share_embeddings_and_output_weights": chosen.workload.tied_embeddings is not False,
        "gated_linear_unit": bool(chosen.workload.gated_mlp),
        "add_bias_linear": not chosen.workload.gated_mlp,
        "sequence_parallel": bool(layout.sequence_parallel),
        "multi_latent_attention": True if chosen.workload.kv_lora_rank else None,
        "recompute_granularity": flags.get("--recompute-granularity"),
    }
    recipe = "fp16_mixed" if job.precision == "fp16" else "bf16_mixed"
    if job.precision == "fp8":
        recipe = _BRIDGE_NAMES[stack.fp8_recipe or "delayed"]
    sections: dict[str, dict[str, Any]] = {
        "model": model,
        "train": {"micro_batch_size": chosen.micro_batch, "global_batch_size": chosen.batch, "train_iters": job.steps},
        "ddp": {
            "use_distributed_optimizer": chosen.sharding != "ddp",
            "overlap_grad_reduce": stack.overlap_gradients is not False,
            "overlap_param_gather": stack.overlap_gather,
            "grad_reduce_in_fp32": job.gradient_dtype == "fp32",
            "bucket_size": flags.get("--ddp-bucket-size"),
            "use_megatron_fsdp": True if chosen.sharding in STRATEGIES else None,
            "data_parallel_sharding_strategy": STRATEGIES.get(chosen.sharding),
        },
        "optimizer": {"optimizer_cpu_offload": True if stack.offload else None},
        "comm_overlap": {
            "tp_comm_overlap": stack.overlap_tensor,
            "overlap_moe_expert_parallel_comm": stack.overlap_experts,
        },
    }  # fmt: skip
    lines = [f"mixed_precision: {recipe}"]
    for name, values in sections.items():
        given = {key: value for key, value in values.items() if value is not None}
        if name == "model":  # null takes back what the recipe says
            given.setdefault("recompute_granularity", None)
            given.setdefault("virtual_pipeline_model_parallel_size", None)
        if given:
            lines += [f"{name}:", *(f"  {key}: {_yaml(value)}" for key, value in given.items())]
    body = here("overrides.yaml", "\n".join(lines))
    body.append("# The script is yours: it takes the recipe of the model, and these overrides over it.")
    body.append(chosen.torchrun('train_with_recipe.py --config-file overrides.yaml "$@"'))
    return script(
        chosen, ["what overrides.yaml states", "its recipe changing nothing else of the layout"], body
    )


def _yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) and value[:1] in "([" else str(value)
