"""Which model a configuration trains: a zoo entry by the name that people use, or a workload from stated dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import perfmodel.workloads
from perfmodel.frameworks.draft import Draft, Entry
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.loader import Mark
from perfmodel.workloads.from_hf import parse_config, workload_fields
from perfmodel.workloads.hf_families import Family
from perfmodel.workloads.parameters import Dimensions, count

# Words of a model's name that say how it was tuned, packed or dated, not what it is made of.
_TUNING = re.compile(
    r"-(instruct|chat|hf|base|it|pt|bnb|4bit|8bit|awq|gptq|fp8|bf16|dynamic|unsloth|preview|sft|dpo|"
    r"v0(\.\d+)*|\d{4}|thinking|tp\d+|16e|128e|original|step\S*)(?=-|$)"
)
# Releases with the dimensions of an earlier one.
_SAME = ((r"llama-?3\.[13](?=-|$)", "llama3"), (r"deepseek-v3\.1(?=-|$)", "deepseek-v3"))


@lru_cache(maxsize=1)
def zoo_names() -> tuple[str, ...]:
    """Names of the shipped zoo."""
    folder = Path(perfmodel.workloads.__file__).parent / "zoo"
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def _squashed(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name)


def in_zoo(name: str) -> str | None:
    """The zoo entry that a model's name on a hub, in a path or in a framework's own list means; None: not known.

    >>> in_zoo("meta-llama/Meta-Llama-3.1-8B-Instruct"), in_zoo("mistralai/Mixtral-8x7B-v0.1"), in_zoo("Qwen/Qwen3-8B")
    ('llama3-8b', 'mixtral-8x7b', 'qwen3-8b')
    >>> in_zoo("someone/llama-3-8b-pruned"), in_zoo("./assets/hf/DeepSeek-V3.1-Base"), in_zoo("llama2-70b")
    (None, 'deepseek-v3', 'llama2-70b')
    """
    if not isinstance(name, str) or len(name) > 300:
        return None
    last = name.rstrip("/").rsplit("/", 1)[-1].casefold().replace("_", "-").removeprefix("meta-")
    while True:
        shorter = _TUNING.sub("", last)
        if shorter == last:
            break
        last = shorter
    for old, new in _SAME:
        last = re.sub(old, new, last)
    known = {_squashed(item): item for item in zoo_names()}
    return known.get(_squashed(last))


def workload_from(draft: Draft) -> dict[str, Any] | None:
    """A workload from the dimensions that a configuration states, where these are complete."""
    need = ("model.layers", "model.hidden", "model.heads")
    if any(draft.get(name) in (None, 0) for name in need):
        return None
    layers, hidden, heads = (int(draft.get(name)) for name in need)
    gated = bool(draft.get("model.gated", False))
    ffn = draft.get("model.ffn") or 4 * hidden
    kv = draft.get("model.kv_heads") or heads
    head_dim = draft.get("model.head_dim") or hidden // heads
    vocab = padded_vocab(draft)
    if not vocab or not head_dim:
        return None
    experts = draft.get("model.experts") or 0
    dense = draft.get("model.first_dense") or 0
    moe_layers = draft.get("model.moe_layers") if experts else 0
    if experts and moe_layers is None:
        moe_layers = max(layers - dense, 0)
    moe_layers = min(int(moe_layers or 0), layers)
    tied = bool(draft.get("model.tied", False))
    bias = bool(draft.get("model.bias", False))
    positions = int(draft.get("model.positions") or 0) if draft.get("model.learned_positions") else 0
    latent = draft.get("model.kv_lora_rank") or 0
    dimensions = Dimensions(
        hidden=hidden, vocab=vocab, tied=tied, positions=positions, attention_layers=layers, heads=heads,
        kv_heads=kv, head_dim=head_dim, q_lora_rank=draft.get("model.q_lora_rank") or 0, kv_lora_rank=latent,
        qk_nope_head_dim=draft.get("model.qk_nope_head_dim") or 0 if latent else 0,
        qk_rope_head_dim=draft.get("model.qk_rope_head_dim") or 0 if latent else 0,
        v_head_dim=draft.get("model.v_head_dim") or 0 if latent else 0, qkv_bias=bias, output_bias=bias,
        mlp_layers=layers - moe_layers, ffn=ffn, gated=gated, mlp_bias=bias, moe_layers=moe_layers,
        experts=experts, top_k=draft.get("model.top_k") or (1 if experts else 0),
        moe_ffn=(draft.get("model.moe_ffn") or ffn) if experts else 0,
        shared_ffn=(draft.get("model.shared_ffn") or 0) if experts else 0,
        norms=2 * layers + 1, norm_bias=bias and not draft.get("model.rms_norm", False),
    )  # fmt: skip
    kind = "moe-transformer" if experts else draft.get("model.kind", "decoder-transformer")
    parameters = count(dimensions)
    fields = workload_fields(
        dimensions, parameters, Family(kind, lambda _: dimensions), seq_len=draft.get("seq_len")
    )
    name = (
        draft.get("model.label")
        or same_in_zoo(fields)
        or f"{'moe' if experts else 'transformer'}-{layers}l-h{hidden}"
    )
    window = {key: draft.get(f"model.{key}") for key in ("attention_window",) if draft.get(f"model.{key}")}
    return {"name": name, **fields, **window, "source": "dimensions of the imported configuration"}


_COMPARED = (
    "kind",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "gated_mlp",
    "tied_embeddings",
    "experts",
    "top_k",
    "moe_ffn",
)
_ROWS = 1024  # that a framework may add to a vocabulary


def same_in_zoo(fields: Mapping[str, Any]) -> str | None:
    """The one zoo entry with these dimensions, its vocabulary perhaps padded; what was measured of it holds here too."""
    found = [
        path.stem
        for path, text in _zoo_texts()
        if f"\nlayers: {fields.get('layers')}\n" in text and f"\nhidden: {fields.get('hidden')}\n" in text
    ]
    same = [name for name in found if _agree(fields, Catalog.default().get("workloads", name))]
    return same[0] if len(same) == 1 else None


@lru_cache(maxsize=1)
def _zoo_texts() -> tuple[tuple[Path, str], ...]:
    folder = Path(perfmodel.workloads.__file__).parent / "zoo"
    return tuple((path, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml")))


def _agree(fields: Mapping[str, Any], entry: Any) -> bool:
    spare = (fields.get("vocab") or 0) - (entry.vocab or 0)
    widths = all((fields.get(key) or None) == (getattr(entry, key) or None) for key in _COMPARED)
    return widths and 0 <= spare < _ROWS and entry.trainable_params is None


def padded_vocab(draft: Draft) -> int | None:
    """The vocabulary with the rows that the framework adds so that tensor ranks share it evenly."""
    vocab = draft.get("model.vocab")
    if not vocab:
        return None
    multiple = draft.get("model.vocab_multiple")
    if multiple:
        step = int(multiple) * int(draft.get("layout.tp", 1) or 1)
        vocab = -(-int(vocab) // step) * step
    return int(vocab)


def read(draft: Draft, entries: dict[str, Entry], start: Mark) -> None:
    """The `config.json` of a model."""
    found = parse_config("\n".join(start.source.lines), file=start.source.name)
    draft.put(
        "model.fields",
        dict(found.fields),
        Entry("model_type", entries["model_type"].value, entries["model_type"].mark),
    )
    draft.notes += [f"{start.source.name}: {remark}" for remark in found.remarks]
