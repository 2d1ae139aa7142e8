"""Exact parameter counts of transformers from their dimensions.

`Dimensions` says what a model is made of, down to biases and norms; `count` adds it up. With h hidden,
a heads, g key/value heads, d head size, f MLP width, V vocabulary, E routed experts of width e:

    attention      h d (2 a + 2 g)                                            (1)
    latent         h q + q a (n + r) + h (c + r) + c a (n + v) + a v h         (2)
    MLP            2 h f, gated 3 h f                                         (3)
    experts        E times (3) at width e, plus h E of router, plus shared    (4)
    Mamba-2        h (2 i + 2 G N + m) + 5 (i + 2 G N) + 3 m + i + i h         (5)
    embedding      V h, twice when untied                                     (6)

In (2) q and c are the query and key/value ranks, n and r the head sizes without and with rotation, v that
of values; the query terms are h a (n + r) where q is none. In (5) i = m times the head size, m heads, N
states, G groups, convolution of 4 with bias.

References: Vaswani et al. 2017 (arXiv:1706.03762); Shazeer 2019 (arXiv:1911.02150) and Ainslie et al. 2023
(arXiv:2305.13245) for (1); DeepSeek-V2 (arXiv:2405.04434) for (2) and (4); Dao & Gu 2024 (arXiv:2405.21060)
for (5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Protocol

from perfmodel.specs.workload import TRANSFORMER_KINDS

MAMBA_CONVOLUTION = 4  # taps of the depthwise convolution before the scan, in every published Mamba-2
IMAGENET_CLASSES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What a transformer is made of. Counts of layers are of sub-layers, so that hybrids fit as well."""

    hidden: int
    vocab: int = 0
    tied: bool = False
    positions: int = 0  # rows of a learned position table, all towers together
    token_types: int = 0
    # attention
    attention_layers: int = 0
    cross_attention_layers: int = 0
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: int = 0  # weights of query and key norms in one attention layer
    # MLP and experts
    mlp_layers: int = 0
    ffn: int = 0
    gated: bool = False
    mlp_bias: bool = False
    moe_layers: int = 0
    experts: int = 0
    top_k: int = 0
    moe_ffn: int = 0
    shared_ffn: int = 0  # width of all shared experts together
    shared_gate: bool = False
    router_bias: bool = False
    moe_latent: int = 0
    # Mamba-2
    mamba_layers: int = 0
    mamba_heads: int = 0
    mamba_head_dim: int = 0
    mamba_state: int = 0
    mamba_groups: int = 1
    # norms and heads
    norms: int = 0  # norms over the hidden width in the whole model, final ones included
    norm_bias: bool = False
    head_bias: bool = False  # a bias on the vocabulary projection
    other: int = 0  # whatever the terms above do not name: pooler, classifier, patches, relative positions


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters by part; `active` are those that one token passes through."""

    embedding: int
    head: int
    attention: int
    mlp: int
    experts: int
    router: int
    mamba: int
    norm: int
    other: int
    active: int

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self) if field.name != "active")


def attention_parameters(d: Dimensions) -> int:
    """Parameters of one attention layer, norms of queries, keys and latents included (eq. 1 and 2).

    >>> attention_parameters(Dimensions(hidden=4096, heads=32, kv_heads=8, head_dim=128)) / 4096**2
    2.5
    """
    if d.kv_lora_rank:
        query = d.heads * (d.qk_nope_head_dim + d.qk_rope_head_dim)
        rank = d.q_lora_rank
        weights = d.hidden * rank + rank + rank * query if rank else d.hidden * query
        weights += d.hidden * (d.kv_lora_rank + d.qk_rope_head_dim) + d.kv_lora_rank
        weights += d.kv_lora_rank * d.heads * (d.qk_nope_head_dim + d.v_head_dim)
        output = d.heads * d.v_head_dim
    else:
        output = d.heads * d.head_dim
        keys_values = 2 * d.kv_heads * d.head_dim
        rank = d.q_lora_rank
        weights = d.hidden * rank + rank + rank * output if rank else d.hidden * output
        weights += d.hidden * keys_values + (output + keys_values if d.qkv_bias else 0)
    weights += output * d.hidden + (d.hidden if d.output_bias else 0)
    return weights + d.qk_norm


def mlp_parameters(hidden: int, width: int, *, gated: bool, bias: bool = False) -> int:
    """Parameters of one MLP of `width` (eq. 3).

    >>> mlp_parameters(4096, 14336, gated=True)
    176160768
    """
    inner = (2 if gated else 1) * width
    return hidden * inner + width * hidden + (inner + hidden if bias else 0)


def mamba_parameters(d: Dimensions) -> int:
    """Parameters of one Mamba-2 layer without its input norm (eq. 5)."""
    inner = d.mamba_heads * d.mamba_head_dim
    states = 2 * d.mamba_groups * d.mamba_state
    projection = d.hidden * (2 * inner + states + d.mamba_heads)
    convolution = (MAMBA_CONVOLUTION + 1) * (inner + states)
    return projection + convolution + 3 * d.mamba_heads + inner + inner * d.hidden


def count(d: Dimensions) -> ParameterCount:
    """Parameters of a model, by part.

    >>> llama3_8b = Dimensions(hidden=4096, vocab=128256, attention_layers=32, heads=32, kv_heads=8,
    ...     head_dim=128, mlp_layers=32, ffn=14336, gated=True, norms=65)
    >>> count(llama3_8b).total
    8030261248
    """
    expert_width = d.moe_latent or d.hidden
    expert = mlp_parameters(expert_width, d.moe_ffn, gated=d.gated, bias=d.mlp_bias)
    shared = mlp_parameters(d.hidden, d.shared_ffn, gated=d.gated, bias=d.mlp_bias) if d.shared_ffn else 0
    shared += d.hidden if d.shared_gate else 0
    router = d.hidden * d.experts + (d.experts if d.router_bias else 0) + 2 * d.hidden * d.moe_latent
    cross = attention_parameters(d) if d.cross_attention_layers else 0
    parts = {
        "embedding": d.hidden * (d.vocab + d.positions + d.token_types),
        "head": (0 if d.tied else d.hidden * d.vocab) + (d.vocab if d.head_bias else 0),
        "attention": attention_parameters(d) * d.attention_layers + cross * d.cross_attention_layers,
        "mlp": mlp_parameters(d.hidden, d.ffn, gated=d.gated, bias=d.mlp_bias) * d.mlp_layers,
        "experts": (d.experts * expert + shared) * d.moe_layers,
        "router": router * d.moe_layers,
        "mamba": mamba_parameters(d) * d.mamba_layers,
        "norm": d.norms * d.hidden * (2 if d.norm_bias else 1),
        "other": d.other,
    }
    idle = max(0, d.experts - d.top_k) * expert * d.moe_layers
    return ParameterCount(**parts, active=sum(parts.values()) - idle)


class Described(Protocol):
    """The fields of a workload spec that its dimensions are read from; all but `kind` may be None."""

    @property
    def kind(self) -> str: ...


class _Reader:
    """Integers of a workload spec, with a default for those that are not stated."""

    def __init__(self, workload: Described) -> None:
        self._workload = workload

    def __call__(self, name: str, default: int = 0) -> int:
        value = getattr(self._workload, name, None)
        return default if value is None else round(value)

    def text(self, name: str) -> str:
        return str(getattr(self._workload, name, None) or "")


def dimensions(workload: Described) -> Dimensions | None:
    """Dimensions that a workload spec states, or None where it states too few.

    A spec does not say where biases stand, so the convention of its kind does: a gated MLP comes without
    biases and with RMS norms, a plain one with biases and layer norms. This moves the count by less than
    0.2 %. Learned positions are counted where `max_positions` is stated.
    """
    read = _Reader(workload)
    hidden, layers = read("hidden"), read("layers")
    hybrid = bool(read("mamba_layers"))
    attends = not hybrid or bool(read("attention_layers"))
    if not (hidden and layers) or workload.kind not in TRANSFORMER_KINDS:
        return None
    if attends and not (read("heads") and (read("ffn") or read("moe_ffn"))):
        return None
    gated = bool(read("gated_mlp"))
    heads = read("heads", 1)
    decoder_layers = read("decoder_layers") if workload.kind == "encoder-decoder-transformer" else 0
    experts = read("experts") if read("experts") > 1 else 0
    interval = max(1, read("moe_interval", 1))
    moe_layers = read("moe_layers", (layers - read("first_dense_layers")) // interval) if experts else 0
    width = read("moe_ffn", read("ffn"))
    # A hybrid's layer is one mixer with one norm; any other layer holds attention, an MLP and two norms.
    norms = layers + 1 if hybrid else 2 * layers + decoder_layers + (2 if decoder_layers else 1)
    vision, encoder = workload.kind == "vision-transformer", workload.kind == "encoder-transformer"
    if vision and not read("seq_len"):
        return None  # windows and stages: one width does not describe it
    other, positions, bias = 0, read("max_positions"), not gated
    if vision:
        other, positions = _image_parameters(read, hidden)
    elif encoder:
        # Embedding norm, pooler, and the transform with norm before the vocabulary (BERT, arXiv:1810.04805).
        norms += 1
        other = 2 * (hidden * hidden + hidden)
    return Dimensions(
        hidden=hidden,
        vocab=0 if vision else read("vocab"),
        tied=bool(read("tied_embeddings")),
        positions=positions,
        attention_layers=read("attention_layers", layers) if hybrid else layers,
        cross_attention_layers=decoder_layers,
        heads=heads,
        kv_heads=read("kv_heads", heads),
        head_dim=read("head_dim", hidden // heads),
        q_lora_rank=read("q_lora_rank"),
        kv_lora_rank=read("kv_lora_rank"),
        qk_nope_head_dim=read("qk_nope_head_dim"),
        qk_rope_head_dim=read("qk_rope_head_dim"),
        v_head_dim=read("v_head_dim", read("head_dim")),
        qkv_bias=bias,
        output_bias=bias,
        mlp_layers=read("mlp_layers") if hybrid else layers - moe_layers,
        ffn=read("dense_ffn", read("ffn")) if experts else read("ffn"),
        gated=gated,
        mlp_bias=bias,
        moe_layers=moe_layers,
        experts=experts,
        top_k=read("top_k"),
        moe_ffn=width,
        shared_ffn=read("shared_experts") * read("shared_expert_ffn", width),
        moe_latent=read("moe_latent"),
        mamba_layers=read("mamba_layers"),
        mamba_heads=read("mamba_heads"),
        mamba_head_dim=read("mamba_head_dim"),
        mamba_state=read("mamba_state"),
        mamba_groups=read("mamba_groups", 1),
        norms=norms,
        norm_bias=bias,
        head_bias=encoder,
        other=other,
    )


def _image_parameters(read: _Reader, hidden: int) -> tuple[int, int]:
    """Patches, class token and classifier of a vision transformer; rows of its position table.

    The patch follows from the image side and the sequence: (side / patch)^2 + 1 tokens
    (Dosovitskiy et al. 2021, arXiv:2010.11929).
    """
    tokens = read("seq_len")
    sides = [int(part) for part in read.text("input_shape").split("x") if part.isdigit()]
    if not sides or tokens < 2:
        return 0, tokens
    patch = sides[0] / math.isqrt(tokens - 1)
    channels = sides[2] if len(sides) > 2 else 3
    classifier = IMAGENET_CLASSES * (hidden + 1)
    return round(channels * patch * patch * hidden) + hidden + hidden + classifier, tokens
