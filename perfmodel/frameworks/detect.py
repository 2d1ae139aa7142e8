"""Whose configuration a file is, told by the names in it; a file's own name is never asked."""

from __future__ import annotations

import re
from collections.abc import Callable

from perfmodel.frameworks.document import Document

# role -> the function that reads the settings of such a file: (draft, entries, start of the file)
ROLES: dict[str, str] = {
    "megatron-lm": "megatron:read",
    "torchtitan": "torchtitan:read",
    "deepspeed": "deepspeed:read",
    "transformers": "deepspeed:read_arguments",
    "accelerate": "accelerate:read",
    "megatron-bridge": "bridge:read",
    "nemo": "bridge:read_nemo",
    "maxtext": "maxtext:read",
    "llm-foundry": "composer:read",
    "axolotl": "axolotl:read",
    "llama-factory": "axolotl:read_factory",
    "olmo-core": "olmo:read",
    "lightning": "lightning:read",
    "model": "models:read",
    "slurm": "",
}


def flags_of(document: Document) -> dict[str, object]:
    """Every argument of every command."""
    return {key: entry for command in document.commands for key, entry in command.entries.items()}


def _megatron(document: Document) -> bool:
    flags = (
        flags_of(document)
        if document.syntax == "shell"
        else {key.rpartition(".")[2] for key in document.entries}
    )
    named = {"--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--micro-batch-size", "--num-layers",
             "--hidden-size", "--num-attention-heads", "--seq-length", "--global-batch-size", "--model-parallel-size",
             "--train-iters"}  # fmt: skip
    return len(named & set(flags)) >= 2


def _nemo(document: Document) -> bool:
    keys = {key.removeprefix("training.") for key in (*document.entries, *flags_of(document))}
    has_trainer = any(key.startswith("trainer.") for key in keys)
    return has_trainer and bool(
        {"model.tensor_model_parallel_size", "model.encoder_seq_length"} & keys
        or ("training" in keys and any(key.startswith("model.") for key in keys))
    )


def _bridge(document: Document) -> bool:
    keys = {key.removeprefix("ConfigContainer.") for key in (*document.entries, *flags_of(document))}
    sections = {key.split(".")[0] for key in keys}
    has = {"train.global_batch_size", "train.micro_batch_size", "train.train_iters", "model.tensor_model_parallel_size",
           "ddp.overlap_grad_reduce", "ddp.use_distributed_optimizer", "model.seq_length"} & keys  # fmt: skip
    return "ConfigContainer" in document.top or (
        len(has) >= 2 and "train" in sections and not {"trainer", "devices", "model_name"} & sections
    )


def _titan(document: Document) -> bool:
    if document.syntax == "shell":
        return sum(
            bool(re.match(r"--(training|parallelism|activation_checkpoint|model)\.\w", key))
            for key in flags_of(document)
        ) >= 1 and not _olmo(document)
    sections = {
        "training",
        "parallelism",
        "activation_checkpoint",
        "job",
        "lr_scheduler",
        "metrics",
        "experimental",
        "float8",
    }
    keys = document.entries
    return len(sections & document.top) >= 3 and any(
        key in keys
        for key in ("model.flavor", "training.seq_len", "training.local_batch_size", "training.batch_size")
    )


def _deepspeed(document: Document) -> bool:
    return document.syntax != "shell" and (
        document.has("zero_optimization")
        or document.has("train_micro_batch_size_per_gpu")
        or (document.has("train_batch_size") and bool({"fp16", "bf16", "optimizer"} & document.top))
    )


def _trainer(document: Document) -> bool:
    flags = {key.lstrip("-").replace("-", "_") for key in (*flags_of(document), *document.entries)}
    return "per_device_train_batch_size" in flags and not _factory(document)


def _accelerate(document: Document) -> bool:
    return document.has("distributed_type") and bool(
        {"num_processes", "compute_environment", "mixed_precision"} & document.top
    )


def _maxtext(document: Document) -> bool:
    keys = {*flags_of(document), *document.entries}
    named = {"per_device_batch_size", "max_target_length", "remat_policy", "ici_fsdp_parallelism", "ici_tensor_parallelism",
             "base_emb_dim", "base_num_decoder_layers", "ici_data_parallelism", "dcn_data_parallelism", "dcn_fsdp_parallelism",
             "model_name", "use_iota_embed", "global_parameter_scale"}  # fmt: skip
    return (
        len(named & keys) >= 2
        and "per_device_train_batch_size" not in keys
        and "base_model" not in keys
        and (
            "per_device_batch_size" in keys
            or bool({"ici_fsdp_parallelism", "max_target_length", "base_emb_dim"} & keys)
        )
    )


def _composer(document: Document) -> bool:
    keys = {*document.entries, *(key for key in flags_of(document))}
    tops = {key.removeprefix("parameters.").removeprefix("variables.").split(".")[0] for key in keys}
    named = {
        "global_train_batch_size",
        "device_train_microbatch_size",
        "max_duration",
        "fsdp_config",
        "train_loader",
        "max_seq_len",
        "variables",
    }
    return len(named & tops) >= 3 and bool({"global_train_batch_size", "device_train_microbatch_size"} & tops)


def _axolotl(document: Document) -> bool:
    return document.has("base_model") and bool(
        {"sequence_len", "micro_batch_size", "datasets", "num_epochs", "sample_packing"} & document.top
    )


def _factory(document: Document) -> bool:
    keys = {key.lstrip("-").replace("-", "_") for key in (*flags_of(document), *document.top)}
    return "model_name_or_path" in keys and bool({"finetuning_type", "cutoff_len", "stage"} & keys)


def _olmo(document: Document) -> bool:
    keys = {key.lstrip("-") for key in (*flags_of(document), *document.entries)}
    return any(key.startswith("train_module.") for key in keys) or (
        "trainer.rank_microbatch_size" in keys and "data_loader.global_batch_size" in keys
    )


def _lightning(document: Document) -> bool:
    keys = document.entries
    cli = (
        document.has("trainer")
        and any(
            key in keys
            for key in ("trainer.devices", "trainer.num_nodes", "trainer.precision", "trainer.strategy")
        )
    ) or document.has("trainer.strategy")
    litgpt = document.has("train.micro_batch_size") and bool(
        {"devices", "num_nodes", "model_name", "checkpoint_dir", "model_config"} & document.top
    )
    return document.syntax != "shell" and (cli or litgpt) and not _nemo(document)


def _model(document: Document) -> bool:
    return (
        document.syntax == "json"
        and "model_type" in document.entries
        and bool({"hidden_size", "n_embd", "d_model", "text_config", "num_hidden_layers"} & document.top)
    )


def _slurm(document: Document) -> bool:
    return bool(document.directives) or any(command.launch for command in document.commands)


SIGNS: dict[str, Callable[[Document], bool]] = {
    "megatron-lm": _megatron,
    "nemo": _nemo,
    "megatron-bridge": _bridge,
    "torchtitan": _titan,
    "olmo-core": _olmo,
    "maxtext": _maxtext,
    "llm-foundry": _composer,
    "axolotl": _axolotl,
    "llama-factory": _factory,
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
    "transformers": _trainer,
    "lightning": _lightning,
    "model": _model,
}


def roles_of(document: Document) -> list[str]:
    """The framework whose names a document has: the first that fits; a launch script may only say where it runs."""
    for role, sign in SIGNS.items():
        if sign(document):
            return [role]
    return ["slurm"] if _slurm(document) else []
