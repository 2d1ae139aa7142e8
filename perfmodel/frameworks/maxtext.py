"""MaxText: `key=value` arguments of train.py, and its YAML (names of configs/base.yml)."""

from __future__ import annotations

import math
import re
from typing import Any

from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern, truth, whole
from perfmodel.frameworks.remat import AGAIN, repeated
from perfmodel.specs.loader import Mark

NAME = "maxtext"
DTYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
ATTENTION = {
    "flash": "splash",
    "dot_product": "unfused",
    "cudnn_flash_te": "cudnn",
    "cudnn_flash_jax": "cudnn",
    "autoselected": None,
}
# Names that MaxText gives to models which others name differently.
MODELS = {"deepseek3-671b": "deepseek-v3", "deepseek2-16b": "deepseek-v2-lite", "deepseek2-236b": "deepseek-v2",
          "llama4-17b-16e": "llama4-scout", "llama4-17b-128e": "llama4-maverick", "kimi-k2-1t": "kimi-k2"}  # fmt: skip
# Chips of a slice by its name: of v2 to v5p the number counts cores, two a chip.
_CORES = ("v2", "v3", "v4", "v5p")
_PODS = {"v4": "tpu-v4-pod", "v5p": "tpu-v5p-pod", "v6e": "tpu-v6e-pod"}


def _degree(value: Any) -> int | None:
    number = int(str(value))
    return None if number < 0 else number


AXES = ("data", "fsdp", "fsdp_transpose", "tensor", "tensor_transpose", "tensor_sequence", "sequence", "context",
        "expert", "pipeline", "autoregressive", "context_autoregressive")  # fmt: skip
TABLE: dict[str, Rule] = {
    "model_name": ("model.name", lambda value: None if value == "default" else MODELS.get(str(value), value)),
    "per_device_batch_size": ("batch.per_accelerator", float),
    "gradient_accumulation_steps": "layout.accumulation",
    "max_target_length": "seq_len",
    "steps": ("steps", lambda value: None if int(str(value)) < 1 else value),
    "dtype": ("maxtext.dtype", DTYPES),
    "quantization": "maxtext.quantization",
    "grad_dtype": ("gradient_dtype", DTYPES),
    "remat_policy": "maxtext.remat",
    "attention": ("stack.attention", ATTENTION),
    "context_parallel_strategy": ("maxtext.context", {"all_gather": "all-gather", "ring": "ring"}),
    "optimizer_memory_host_offload": ("stack.offload", lambda value: ["optimizer"] if truth(value) else None),
    "base_emb_dim": "model.hidden",
    "base_num_query_heads": "model.heads",
    "base_num_kv_heads": "model.kv_heads",
    "base_mlp_dim": "model.ffn",
    "base_moe_mlp_dim": "model.moe_ffn",
    "base_num_decoder_layers": "model.layers",
    "head_dim": "model.head_dim",
    "vocab_size": "model.vocab",
    "mlp_activations": ("model.gated", lambda value: "linear" in str(value)),
    "logits_via_embedding": "model.tied",
    "num_experts": ("model.experts", lambda value: None if int(str(value)) < 2 else value),
    "num_experts_per_tok": "model.top_k",
    "global_parameter_scale": "maxtext.scale",
    "compile_topology": "maxtext.topology",
    "M_COMPILE_TOPOLOGY": "maxtext.topology",
    "compile_topology_num_slices": ("maxtext.slices", _degree),
    "num_slices": ("maxtext.slices", _degree),
    "num_layers_per_pipeline_stage": "maxtext.per_stage",
    "num_pipeline_microbatches": ("maxtext.microbatches", _degree),
    **{f"{net}_{axis}_parallelism": (f"maxtext.{net}_{axis}", _degree) for net in ("ici", "dcn") for axis in AXES},
}  # fmt: skip
IRRELEVANT = pattern(
    """base_config run_name base_output_directory dataset* tokenizer* enable_checkpointing async_checkpointing reuse_example_batch
    use_iota_embed profiler* skip_first* gcs_metrics learning_rate* warmup* adam_* opt_type enable_* log_* checkpoint* load_*
    max_prefill* eval_* hf_* grain_* hardware scan_layers param_scan* weight_dtype matmul_precision sa_* monitor_* jax_* upload*
    metrics_* save_* gradient_clipping* cosine_* data_shuffle* logits_dot* cast_logits* normalize* attention_type rope_* use_* megablox
    sparse_matmul capacity_factor load_balance* decoder_block trainable* dropout* normalization* hbm_* packing add_* stack_*
    num_epoch shardy ragged* tile_* *_tile_* wi_* wo_* allow_split* goodput* vertex* compiled_* context decoder_layer_input mlpw*
    query_proj key_proj value_proj out_proj mu_dtype fused_* float32_* shard_* expansion_* inhomogeneous* num_* quant_* replicate_*
    *_axis_order *_sharding train_* skip_* abort_* elastic* optimize_* mesh_axes logical* data_sharding position* custom_mesh
    activations_in* temperature* record_* remat_* *_parallelism per_device_batch* pipeline_* internal_* kv_quant* ar_* prefill_*
    OUTPUT_PATH DATASET_PATH RUN_NAME EXECUTABLE PLATFORM M_*"""
)


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """Settings of base.yml, however they were given."""
    draft.apply(entries.values(), TABLE, IRRELEVANT)
    for entry in entries.values():
        if entry.key.endswith("_parallelism") and str(entry.value).strip() == "-1":
            draft.put("maxtext.left_open", True, entry)
    draft.default("stack.framework", NAME, "the framework", start)
    draft.default("stack.compiled", True, "XLA", start)
    _precision(draft, start)
    _topology(draft)
    _model(draft)
    _degrees(draft, start)
    _size(draft)
    _remat(draft, start)
    draft.default("seq_len", 2048, "max_target_length", start)
    draft.default("batch.per_accelerator", 12.0, "per_device_batch_size", start)


def _precision(draft: Draft, start: Mark) -> None:
    said, kind = draft.findings.get("maxtext.quantization"), draft.findings.get("maxtext.dtype")
    word = str(said.value).casefold() if said is not None else ""
    if said is not None and ("fp8" in word or word.startswith("int8")):
        draft.put("precision", "fp8" if "fp8" in word else "int8", Entry(said.key, said.value, said.mark))
    elif said is not None and word not in ("", "none", "true"):
        draft.questions.append(
            f"quantization {said.value} is not known here; which precision do products have?"
        )
    elif kind is not None:
        draft.put("precision", kind.value, Entry(kind.key, kind.value, kind.mark))
    draft.default("precision", "bf16", "dtype", start)


def _topology(draft: Draft) -> None:
    """Chips of the slices that the run is compiled for."""
    said = draft.findings.get("maxtext.topology")
    if said is None:
        return
    name = re.fullmatch(r"(v\d+[a-z]*?)(?:litepod)?-(\d{1,6})", str(said.value).replace("v5litepod", "v5e"))
    if name is None:
        draft.questions.append(f"how many chips has the topology {said.value}?")
        return
    chips = int(name.group(2)) // (2 if name.group(1) in _CORES else 1)
    entry = Entry(said.key, said.value, said.mark)
    draft.put("world.gpus", max(chips, 1) * (draft.get("maxtext.slices") or 1), entry)
    if name.group(1) in _PODS:
        draft.put("cluster", _PODS[name.group(1)], entry)


def _model(draft: Draft) -> None:
    if (
        draft.get("maxtext.scale") not in (None, 1, "1")
        and draft.get("model.layers") is None
        and draft.get("model.name") is None
    ):
        scale = draft.findings["maxtext.scale"]
        draft.put("model.name", f"maxtext-{scale.value}b", Entry(scale.key, scale.value, scale.mark))
    if draft.get("model.layers") and "model.gated" not in draft.findings:
        draft.default("model.gated", True, "mlp_activations", draft.mark("model.layers"))
    if draft.get("model.layers"):
        draft.default("model.vocab", 32000, "vocab_size", draft.mark("model.layers"))
        draft.default("model.head_dim", 128, "head_dim", draft.mark("model.layers"))


def _axis(draft: Draft, *axes: str) -> tuple[int, Entry | None]:
    """The product of axes over chips of a slice and over slices, and the setting that makes it more than one."""
    product, at = 1, None
    for net in ("ici", "dcn"):
        for axis in axes:
            found = draft.findings.get(f"maxtext.{net}_{axis}")
            if found is not None and whole(found.value) > 1:
                product *= whole(found.value)
                at = Entry(found.key, found.value, found.mark)
    return product, at


def _degrees(draft: Draft, start: Mark) -> None:
    for name, axes in (
        ("layout.tp", ("tensor", "tensor_transpose", "tensor_sequence")),
        ("layout.cp", ("sequence", "context")),
        ("layout.ep", ("expert",)),
        ("layout.pp", ("pipeline",)),
    ):
        degree, at = _axis(draft, *axes)
        if at is not None:
            draft.put(name, degree, at)
    exchange = draft.findings.get("maxtext.context")
    if exchange is not None and draft.get("layout.cp", 1) > 1:
        draft.put(
            "stack.context_parallel", exchange.value, Entry(exchange.key, exchange.value, exchange.mark)
        )
    shards, sharded = _axis(draft, "fsdp", "fsdp_transpose")
    copies, copied = _axis(draft, "data")
    fsdp = draft.findings.get("maxtext.ici_fsdp")
    # Weights are cut along the context and the experts' axis too.
    with_others = math.prod(draft.get(f"layout.{name}", 1) for name in ("cp", "ep"))
    alone = fsdp is not None and whole(fsdp.value) == 1 and sharded is None and with_others == 1
    if draft.get("layout.ep", 1) > 1:
        draft.default(
            "layout.etp", draft.get("layout.tp", 1), "ici_tensor_parallelism", draft.mark("layout.ep")
        )
    slices = draft.get("maxtext.slices") or 1
    if alone and fsdp is not None:
        draft.put("layout.sharding", "ddp", Entry(fsdp.key, fsdp.value, fsdp.mark))
    elif copied is not None or slices > 1:
        at = copied or Entry("num_slices", slices, draft.mark("maxtext.slices"))
        dcn = draft.findings.get("maxtext.dcn_fsdp")
        if dcn is not None and whole(dcn.value) == slices:
            draft.put("layout.sharding", "fsdp", Entry(dcn.key, dcn.value, dcn.mark))
            return
        draft.put("layout.sharding", "hsdp", at)
        if shards > 1 and sharded is not None:
            draft.put("layout.shard_group", shards, sharded)
        elif draft.get("world.gpus"):
            rest = draft.get("world.gpus") // (
                max(copies, slices) * math.prod(draft.get(f"layout.{d}", 1) for d in ("tp", "pp", "cp"))
            )
            if rest > 0:
                draft.put("layout.shard_group", rest, at)
    elif sharded is not None:
        draft.put("layout.sharding", "fsdp", sharded)
    draft.default("layout.sharding", "fsdp", "ici_fsdp_parallelism", start)


def _size(draft: Draft) -> None:
    """Devices of the mesh, where every axis is stated: -1 is what the devices leave."""
    sizes = {name: found for name, found in draft.findings.items() if re.match(r"maxtext\.(ici|dcn)_", name)}
    fsdp = sizes.get("maxtext.ici_fsdp")  # its default is what the devices leave
    if draft.get("world.gpus") or fsdp is None or draft.get("maxtext.slices"):
        return
    if draft.get("maxtext.left_open"):
        return
    total = math.prod(whole(found.value) for found in sizes.values())
    draft.put("world.gpus", total, Entry(fsdp.key, total, fsdp.mark))


def _remat(draft: Draft, start: Mark) -> None:
    said = draft.findings.get("maxtext.remat")
    word = str(said.value).casefold() if said is not None else "full"
    if said is None:
        draft.default("layout.recompute", "full", "remat_policy", start)
        return
    entry = Entry(said.key, said.value, said.mark)
    if word in ("full", "none"):
        draft.put("layout.recompute", word, entry)
    elif word in AGAIN:
        share = repeated(draft, word)
        if share is None:
            share = "selective"
            draft.notes.append(f"remat_policy {word} recomputes a part of a layer: taken as selective")
        draft.put("layout.recompute", share, entry)
    else:
        draft.questions.append(
            f"remat_policy {said.value}: which share of the forward pass is computed again?"
        )
