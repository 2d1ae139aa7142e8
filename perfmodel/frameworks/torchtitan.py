"""torchtitan: its TOML files, and the same settings as the JSON that it logs or as `--section.key value` arguments.

Names are those of torchtitan/config (job_config.py, 2024 to 2025), old and new spellings; defaults are its own.
"""

from __future__ import annotations

from typing import Any

from perfmodel.frameworks.draft import Draft, Entry, Rule, pattern, truth, whole
from perfmodel.frameworks.models import in_zoo
from perfmodel.specs.loader import Mark

NAME = "torchtitan"
SCHEDULES = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "interleavedzerobubble": "zero-bubble",
             "zbvzerobubble": "zero-bubble", "loopedbfs": None, "dualpipev": "dualpipe"}  # fmt: skip
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
# Flavors that are a published model, by the name of the model's code.
FLAVORS = {
    ("llama3", "8b"): "llama3-8b", ("llama3", "70b"): "llama3-70b", ("llama3", "405b"): "llama3-405b",
    ("llama2", "7b"): "llama2-7b", ("llama2", "13b"): "llama2-13b", ("llama2", "70b"): "llama2-70b",
    ("llama4", "17bx16e"): "llama4-scout", ("llama4", "17bx128e"): "llama4-maverick",
    ("deepseek_v3", "16b"): "deepseek-v2-lite", ("deepseek_v3", "671b"): "deepseek-v3",
}  # fmt: skip


def _positive(value: Any) -> int | None:
    """A degree; -1 is what the ranks leave."""
    number = int(str(value)) if str(value).lstrip("-").isdigit() else whole(value)
    return None if number < 0 else number


TABLE: dict[str, Rule] = {
    "training.batch_size": "batch.local",
    "training.local_batch_size": "batch.local",
    "training.global_batch_size": ("batch.global", _positive),
    "training.seq_len": "seq_len",
    "training.steps": "steps",
    "training.compile": "stack.compiled",
    "compile.enable": "titan.compile",
    "compile.components": "titan.components",
    "training.dtype": ("titan.dtype", DTYPES),
    "training.mixed_precision_param": ("precision", DTYPES),
    "training.mixed_precision_reduce": ("gradient_dtype", DTYPES),
    "training.enable_cpu_offload": ("stack.offload", lambda value: ["parameters", "optimizer"] if truth(value) else None),
    "training.data_parallel_degree": ("layout.dp_shard", _positive),
    "training.data_parallel_shard_degree": ("layout.dp_shard", _positive),
    "training.data_parallel_replicate_degree": "layout.dp_replicate",
    "training.tensor_parallel_degree": "layout.tp",
    "parallelism.data_parallel_shard_degree": ("layout.dp_shard", _positive),
    "parallelism.data_parallel_replicate_degree": "layout.dp_replicate",
    "parallelism.fsdp_reshard_after_forward": "titan.reshard",
    "parallelism.tensor_parallel_degree": "layout.tp",
    "parallelism.enable_async_tensor_parallel": "stack.overlap_tensor",
    "parallelism.disable_loss_parallel": "titan.loss_parallel",
    "parallelism.pipeline_parallel_degree": "layout.pp",
    "parallelism.pipeline_parallel_schedule": ("titan.schedule", SCHEDULES),
    "parallelism.pipeline_parallel_microbatch_size": "titan.micro_batch",
    "parallelism.pipeline_parallel_microbatches": "titan.microbatches",
    "parallelism.pipeline_parallel_layers_per_stage": "titan.per_stage",
    "parallelism.context_parallel_degree": "layout.cp",
    "parallelism.context_parallel_rotate_method": ("titan.rotate", {"allgather": "all-gather", "alltoall": "all-to-all"}),
    "parallelism.expert_parallel_degree": "layout.ep",
    "parallelism.expert_tensor_parallel_degree": "layout.etp",
    "experimental.pipeline_parallel_degree": "layout.pp",
    "experimental.pipeline_parallel_schedule": ("titan.schedule", SCHEDULES),
    "experimental.pipeline_parallel_microbatches": "titan.microbatches",
    "experimental.context_parallel_degree": "layout.cp",
    "experimental.enable_async_tensor_parallel": "stack.overlap_tensor",
    "activation_checkpoint.mode": "titan.checkpoint",
    "activation_checkpoint.selective_ac_option": "titan.selective",
    "model.name": "titan.model",
    "model.flavor": "titan.flavor",
    "model.converters": "titan.converters",
    "model.tokenizer_path": "titan.tokenizer",
    "model.hf_assets_path": "titan.assets",
    "float8.recipe_name": ("stack.fp8_recipe", {"tensorwise": "tensorwise", "rowwise": "rowwise", "rowwise_with_gw_hp": "rowwise"}),
    "float8.enable_float8_linear": "titan.float8",
    "quantize.linear.float8.recipe_name": ("stack.fp8_recipe", {"tensorwise": "tensorwise", "rowwise": "rowwise", "rowwise_with_gw_hp": "rowwise"}),
    "quantize.linear.mx.recipe_name": ("stack.fp8_recipe", lambda value: "mxfp8" if "fp8" in str(value) else "nvfp4"),
    "comm.mode": "titan.comm",
}  # fmt: skip
IRRELEVANT = pattern(
    """job.* profiling.* metrics.* optimizer.* lr_scheduler.* checkpoint.* training.max_norm training.dataset*
    training.warmup_steps training.deterministic training.seed training.gc* training.enable_fp8* float8.* mx.*
    quantize.* comm.* memory_estimation.* fault_tolerance.* validation.* debug.* experimental.*
    training.data_parallel_type training.dump* training.debug* activation_checkpoint.* compile.*
    parallelism.module_fqns* parallelism.pipeline_parallel_split* parallelism.pipeline_parallel_first*
    parallelism.pipeline_parallel_last* parallelism.pipeline_parallel_expert*
    parallelism.enable_compiled* model.norm_type model.print* model.tokenizer* model.use_flex* dataloader.*
    training.fsdp* deepep.* parallelism.enable_approx* training.mixed*"""
)


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """Settings by `section.key`."""
    draft.apply(entries.values(), TABLE, IRRELEVANT)
    near = start
    draft.default("stack.framework", NAME, "the framework", near)
    _model(draft)
    _precision(draft, near)
    _sharding(draft, near)
    _compile(draft, near)
    _recompute(draft, near)
    _pipeline(draft, near)
    draft.default("seq_len", 2048, "training.seq_len", near)
    draft.default("batch.local", 8, "training.local_batch_size", near)
    pp = draft.get("layout.pp", 1)
    if pp == 1:
        local = draft.findings["batch.local"]
        draft.put("layout.micro_batch", local.value, Entry(local.key, local.value, local.mark))
    if draft.get("layout.tp", 1) > 1:
        draft.default("layout.sequence_parallel", True, "tensor_parallel_degree above 1", near)
    if draft.get("stack.overlap_tensor") and not (
        draft.get("layout.tp", 1) > 1 and draft.get("stack.compiled")
    ):
        draft.refuse("stack.overlap_tensor", "async tensor parallelism needs tensor parallelism and compile")


def _model(draft: Draft) -> None:
    name, flavor = draft.findings.get("titan.model"), draft.findings.get("titan.flavor")
    if flavor is None:
        return
    code = str(name.value).casefold() if name is not None else "llama3"
    known = FLAVORS.get((code, str(flavor.value).casefold())) or in_zoo(f"{code}-{flavor.value}")
    draft.put("model.name", known or f"{code} {flavor.value}", Entry(flavor.key, flavor.value, flavor.mark))


def _precision(draft: Draft, near: Mark) -> None:
    converters = draft.findings.get("titan.converters")
    listed = converters.value if converters is not None else []
    words = " ".join(map(str, listed)) if isinstance(listed, list) else str(listed)
    older = draft.findings.get("titan.float8")
    used = converters if "float8" in words or "mx" in words.split() else None
    if older is not None and truth(older.value):
        used = older
    if used is not None:
        draft.findings.pop("precision", None)
        draft.put("precision", "fp8", Entry(used.key, words, used.mark))
        if "mx" in words.split(".")[-1].split() or ".mx" in words:
            draft.default("stack.fp8_recipe", "mxfp8", "mx.recipe_name", near)
        draft.default("stack.fp8_recipe", "tensorwise", "float8.recipe_name", near)
    else:
        draft.findings.pop("stack.fp8_recipe", None)  # a recipe without its converter does nothing
        pure = draft.findings.get("titan.dtype")
        if pure is not None and "precision" not in draft.findings:
            draft.put(
                "precision",
                pure.value if pure.value != "fp32" else "bf16",
                Entry(pure.key, pure.value, pure.mark),
            )
        draft.default("precision", "bf16", "training.mixed_precision_param", near)
    draft.default("gradient_dtype", "fp32", "training.mixed_precision_reduce", near)


def _sharding(draft: Draft, near: Mark) -> None:
    """FSDP2: full, kept whole after the forward pass (as ZeRO-2 does), or in groups of replicas."""
    shard, copies = draft.get("layout.dp_shard"), draft.get("layout.dp_replicate", 1) or 1
    pp = draft.get("layout.pp", 1)
    reshard = draft.findings.get("titan.reshard")
    word = str(reshard.value).casefold() if reshard is not None else "default"
    if word not in ("default", "never", "always"):
        assert reshard is not None
        draft.problems.append(
            reshard.mark.problem("F003", f"{reshard.key}: known are default, never, always")
        )
        return
    keeps = word == "never" or (word == "default" and pp > 1)
    base = "zero2" if keeps else "fsdp"
    at = next(
        (
            draft.findings[name]
            for name in ("layout.dp_shard", "layout.dp_replicate")
            if name in draft.findings
        ),
        None,
    )
    entry = (
        Entry(at.key, at.value, at.mark) if at is not None else Entry("the framework", "", Mark(near.source))
    )
    if shard == 1 and draft.get("layout.cp", 1) == 1:  # ranks of the context shard as well
        draft.put("layout.sharding", "ddp", entry)
    elif copies > 1:
        draft.put("layout.sharding", "hsdp" if base == "fsdp" else "zero2", entry)
        if shard:  # ranks of the context share the shards
            draft.put("layout.shard_group", shard * (draft.get("layout.cp", 1) or 1), entry)
        else:
            draft.questions.append(
                "how many ranks share a copy? data_parallel_shard_degree is what the ranks leave"
            )
    else:
        draft.put("layout.sharding", base, entry)
    stated = reshard or at
    if stated is not None and shard != 1:
        draft.put("stack.reshard_after_forward", not keeps, Entry(stated.key, word, stated.mark))


def _compile(draft: Draft, near: Mark) -> None:
    enabled = draft.findings.get("titan.compile")
    if enabled is None:
        draft.default("stack.compiled", False, "compile.enable", near)
        return
    parts = draft.get("titan.components", ["model", "loss"])
    on = truth(enabled.value) and "model" in parts
    draft.put("stack.compiled", on, Entry(enabled.key, enabled.value, enabled.mark))


def _recompute(draft: Draft, near: Mark) -> None:
    mode = draft.findings.get("titan.checkpoint")
    if mode is None:
        draft.default("layout.recompute", "selective", "activation_checkpoint.mode", near)
        return
    word, entry = str(mode.value).casefold(), Entry(mode.key, mode.value, mode.mark)
    if word in ("none", "full"):
        draft.put("layout.recompute", word, entry)
        return
    if word != "selective":
        if word != "memory_budget":
            draft.problems.append(mode.mark.problem("F003", f"{mode.key}: known are none, selective, full"))
        else:
            draft.questions.append("which share of the forward pass does the memory budget recompute?")
        return
    option = str(draft.get("titan.selective", "2"))
    if option == "op":
        draft.put("layout.recompute", "selective", entry)
    elif option.isdigit() and int(option) > 0:  # every n-th layer whole
        draft.put("layout.recompute", "full" if option == "1" else round(1 / int(option), 6), entry)
    else:
        draft.problems.append(
            draft.mark("titan.selective").problem("F003", f"selective_ac_option: cannot read {option[:40]!r}")
        )


def _pipeline(draft: Draft, near: Mark) -> None:
    pp, local = draft.get("layout.pp", 1), draft.get("batch.local")
    rotate = draft.findings.get("titan.rotate")
    if draft.get("layout.cp", 1) > 1:
        if rotate is not None:
            draft.put("stack.context_parallel", rotate.value, Entry(rotate.key, rotate.value, rotate.mark))
        draft.default("stack.context_parallel", "all-gather", "context_parallel_rotate_method", near)
    if pp <= 1:
        return
    said = draft.findings.get("titan.schedule")
    if said is not None:
        draft.put("stack.schedule", said.value, Entry(said.key, said.value, said.mark))
    draft.default("stack.schedule", "1f1b", "parallelism.pipeline_parallel_schedule", near)
    micro = draft.findings.get("titan.micro_batch")
    count = draft.findings.get("titan.microbatches")
    if micro is not None:
        draft.put("layout.micro_batch", whole(micro.value), Entry(micro.key, micro.value, micro.mark))
    elif count is not None and local and whole(count.value) > 0 and local % whole(count.value) == 0:
        draft.put(
            "layout.micro_batch", local // whole(count.value), Entry(count.key, count.value, count.mark)
        )
    draft.default("layout.micro_batch", 1, "pipeline_parallel_microbatch_size", near)
    if local and local % draft.get("layout.micro_batch", 1):
        draft.refuse("layout.micro_batch", f"the local batch of {local} does not divide by the micro-batch")
    if draft.get("stack.schedule") in ("interleaved", "zero-bubble"):
        draft.default("layout.vpp", 2, "stages per rank of this schedule", near)
