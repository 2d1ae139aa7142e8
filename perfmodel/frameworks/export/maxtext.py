"""Arguments of MaxText's train.py."""

from __future__ import annotations

from typing import Any

from perfmodel.frameworks.export.chosen import Chosen, script
from perfmodel.frameworks.maxtext import MODELS

DTYPES = {"bf16": "bfloat16", "fp32": "float32", "fp8": "bfloat16", "int8": "bfloat16"}
ATTENTION = {"splash": "flash", "cudnn": "cudnn_flash_te", "unfused": "dot_product"}
NAMES = {zoo: name for name, zoo in MODELS.items()} | {
    name: name for name in ("llama2-7b", "llama2-13b", "llama2-70b", "llama3-8b", "llama3-70b", "llama3.1-8b", "mistral-7b",
                            "mixtral-8x7b", "mixtral-8x22b", "gemma-2b", "gemma-7b", "gemma2-2b", "gemma2-9b", "gemma2-27b",
                            "gpt3-175b", "qwen3-0.6b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b")
} | {"llama3-405b": "llama3.1-405b"}  # fmt: skip


def write(chosen: Chosen) -> str:
    """The launch of train.py."""
    job, layout, stack = chosen.job, chosen.layout, chosen.stack
    chosen.common()
    chosen.decoder()
    chosen.only_one(pp="its pipelines cut the whole batch into micro-batches, which perfmodel does not write")
    if chosen.sharding not in ("ddp", "fsdp", "hsdp"):
        chosen.lacks(
            f"sharding {chosen.sharding}: weights and states are cut together (fsdp, hsdp) or not at all (ddp)"
        )
    if layout.shard_group is not None and chosen.sharding != "hsdp":
        chosen.lacks(
            f"shard_group {layout.shard_group} of {chosen.sharding}: groups of replicas are hsdp there"
        )
    if isinstance(layout.recompute, float):
        chosen.lacks(f"recompute {layout.recompute:g}: its policies are none, a part (minimal) or full")
    if job.precision not in DTYPES:
        chosen.lacks(f"precision {job.precision}: known are {', '.join(DTYPES)}")
    if layout.ep > 1 and chosen.sharding != "fsdp":
        chosen.lacks(f"ep {layout.ep} with {chosen.sharding}: experts are spread together with fsdp")
    if layout.cp > 1 and chosen.sharding == "ddp":
        chosen.lacks("sharding ddp with context parallelism: its axis cuts weights")
    if layout.ep > 1 and (layout.etp or 1) != layout.tp:
        chosen.lacks(f"etp {layout.etp or 1}: the tensor axis ({layout.tp}) cuts experts as well")
    if chosen.replicas % layout.ep:
        chosen.lacks(f"ep {layout.ep} on {chosen.replicas} replicas: the expert axis is one of theirs")
    if layout.tp > 1 and not layout.sequence_parallel:
        chosen.lacks("tensor parallelism without sequence_parallel: XLA cuts norms with the rest")
    if job.gradient_dtype not in (None, "bf16", "fp32"):
        chosen.lacks(f"gradient_dtype {job.gradient_dtype}")
    if job.bucket is not None or job.first_bucket is not None:
        chosen.lacks("bucket: XLA forms its own")
    if stack.attention not in (None, *ATTENTION):
        chosen.lacks(f"attention {stack.attention}: known are {', '.join(ATTENTION)}")
    if stack.compiled is False:
        chosen.lacks("compiled false: XLA always compiles")
    if stack.overlap_gradients is False:
        chosen.lacks("overlap_gradients false: XLA schedules the exchange itself")
    model = _model(chosen)
    chosen.refuse()
    replicas = chosen.replicas // layout.ep
    shard, copies = (1, replicas) if chosen.sharding == "ddp" else (replicas, 1)
    if chosen.sharding == "hsdp":
        shard = min((layout.shard_group or replicas * layout.cp) // layout.cp, replicas)
        copies = replicas // shard
    each = chosen.batch / chosen.k / chosen.accumulation
    values: dict[str, Any] = {
        **model,
        "per_device_batch_size": f"{each:.12g}",
        "gradient_accumulation_steps": chosen.accumulation if chosen.accumulation > 1 else None,
        "max_target_length": job.seq_len,
        "steps": job.steps,
        "dtype": DTYPES[job.precision],
        "quantization": job.precision if job.precision in ("fp8", "int8") else None,
        "grad_dtype": DTYPES[job.gradient_dtype] if job.gradient_dtype else None,
        "remat_policy": {"selective": "minimal"}.get(str(layout.recompute), layout.recompute or "none"),
        "attention": ATTENTION.get(stack.attention or ""),
        "optimizer_memory_host_offload": "true" if stack.offload else None,
        "context_parallel_strategy": {"all-gather": "all_gather", "ring": "ring"}.get(
            stack.context_parallel or ""
        )
        if layout.cp > 1
        else None,
        "ici_data_parallelism": copies,
        "ici_fsdp_parallelism": shard,
        "ici_tensor_parallelism": layout.tp,
        "ici_context_parallelism": layout.cp if layout.cp > 1 else None,
        "ici_expert_parallelism": layout.ep if layout.ep > 1 else None,
    }
    words = [f"{key}={value}" for key, value in values.items() if value is not None]
    body = [
        f"{chosen.srun}python3 -m MaxText.train MaxText/configs/base.yml \\",
        *(f"    {word} \\" for word in words),
        '    "$@"',
    ]
    relies = ["the axes of the mesh", "remat_policy", "dtype and quantization", "per_device_batch_size"]
    return script(chosen, relies, body)


def _model(chosen: Chosen) -> dict[str, Any]:
    """The model by its name there, or by its dimensions."""
    w = chosen.workload
    if w.name in NAMES:
        return {"model_name": NAMES[w.name]}
    is_odd = (
        w.kv_lora_rank or w.attention_window or w.first_dense_layers or w.shared_experts or w.max_positions
    )
    if is_odd or (w.moe_interval or 1) > 1:
        chosen.lacks(f"the model {w.name}: it has no such name, and its blocks are not of one plain kind")
    return {
        "base_emb_dim": w.hidden,
        "base_num_query_heads": w.heads,
        "base_num_kv_heads": w.kv_heads or w.heads,
        "base_mlp_dim": w.ffn,
        "base_num_decoder_layers": w.layers,
        "head_dim": w.head_dim or (w.hidden or 0) // (w.heads or 1),
        "vocab_size": w.vocab,
        "mlp_activations": '["silu","linear"]' if w.gated_mlp else '["gelu"]',
        "logits_via_embedding": str(bool(w.tied_embeddings)).lower(),
        "num_experts": w.experts or None,
        "num_experts_per_tok": w.top_k or None,
        "base_moe_mlp_dim": w.moe_ffn if w.experts else None,
    }
