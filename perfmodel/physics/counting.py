"""A workload spec becomes operations: matrix products and totals of one sample, counted from its shape.

References: Narayanan et al. 2021 (arXiv:2104.04473) for the transformer arithmetic; Korthikanti et al. 2022
(arXiv:2205.05198) for the element-wise and activation traffic; DeepSeek-V2 (arXiv:2405.04434) for latent
attention; Dao & Gu 2024 (arXiv:2405.21060) for Mamba-2.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.constants import (
    GATED_TRAFFIC,
    HEAD_WIDTH,
    HIDDEN_TRAFFIC,
    INNER_TRAFFIC,
    LAYER_KERNELS,
    MASKED_SHARE,
    NETWORK_KERNELS,
    RECOMMENDER_KERNELS,
    ROUNDED,
    SAMPLE_INPUT_BYTES,
    SCAN_CHUNK,
    TOKEN_INPUT_BYTES,
    TRAFFIC_PER_KEPT,
    TYPICAL_FFN,
    TYPICAL_TOKENS,
    UNCOUNTED_INTENSITY,
)  # fmt: skip
from perfmodel.physics.operations import LANGUAGE_KINDS, SLOT_FIELDS, Operations, Split
from perfmodel.specs.workload import TWO_TOWERS, Workload

Array = NDArray[np.float64]


class _Slots:
    """Collects matrix products while a builder walks the model."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []

    def add(
        self,
        inner: float,
        outer: float,
        count: float,
        *,
        split: Split,
        rows: float = 1.0,
        experts: float = 1.0,
        last: bool = False,
    ) -> None:
        if count > 0 and inner > 0 and outer > 0:
            self.rows.append((inner, outer, count, rows, float(split), experts, float(last)))

    def columns(self) -> dict[str, Array]:
        table = np.array(self.rows, dtype=float).reshape(len(self.rows), len(SLOT_FIELDS))
        return dict(zip(SLOT_FIELDS, table.T.copy(), strict=True))


def operations(
    workload: Workload, seq_len: int | None = None, *, pads_vocabulary: bool = False
) -> Operations:
    r"""Operations of one sample of `workload` at `seq_len` (the workload's own when not given).

    `pads_vocabulary` says that whoever runs it rounds the number of logits up.

    With b, s, h, L, V batch, tokens, width, layers and vocabulary, training a dense transformer takes about

    .. math:: F = 72\,b\,s\,L\,h^2\,\Big(1 + \frac{s}{6h} + \frac{V}{12 L h}\Big)                                    (2)

    (Narayanan et al. 2021, appendix, without recomputation); a causal mask halves the term in s.

    Parameters
    ----------
    workload : its spec.
    seq_len : tokens of a sample; None: the workload's own.
    pads_vocabulary : whether the framework rounds the number of logits up.

    Returns
    -------
    FLOP, bytes and counts of one sample.

    >>> from perfmodel.physics.examples import transformer
    >>> s, h, layers, words = 1024, 1024, 2, 32_000
    >>> F = 72 * s * layers * h**2 * (1 + s / (12 * h) + words / (12 * layers * h))
    >>> bool(abs(transformer().training_flop() / F - 1.0) < 0.01)
    True
    """
    if not workload.is_counted:
        return _generic(workload)
    counted = _transformer(workload, seq_len)
    return replace(counted, logit_width=np.zeros(())) if pads_vocabulary else counted


def _number(value: float | None, default: float = 0.0) -> float:
    return default if value is None else float(value)


def _struct(slots: _Slots, **numbers: float) -> Operations:
    """Fill what a builder did not name with zero."""
    scalars = {f.name: np.asarray(float(numbers.get(f.name, 0.0))) for f in fields(Operations)}
    return Operations(**{**scalars, **slots.columns()})


def _attention_slots(
    slots: _Slots,
    w: Workload,
    layers: float,
    heads: float,
    head_dim: float,
    rows: float = 1.0,
    remembered: float = 0.0,
) -> tuple[float, float, float]:
    """Projections of attention; returns (score width, value width, key plus value width per token).

    `remembered` tokens of the segment before, per token, are projected again.
    """
    hidden = _number(w.hidden)
    kv_heads = _number(w.kv_heads, heads)
    if w.kv_lora_rank:
        nope, rope = _number(w.qk_nope_head_dim), _number(w.qk_rope_head_dim)
        value = _number(w.v_head_dim, head_dim)
        rank = _number(w.kv_lora_rank)
        if w.q_lora_rank:
            slots.add(hidden, _number(w.q_lora_rank), layers, split=Split.NONE)
            slots.add(_number(w.q_lora_rank), heads * (nope + rope), layers, split=Split.COLUMN)
        else:
            slots.add(hidden, heads * (nope + rope), layers, split=Split.COLUMN)
        slots.add(hidden, rank + rope, layers, split=Split.NONE)
        slots.add(rank, heads * (nope + value), layers, split=Split.COLUMN)
        slots.add(heads * value, hidden, layers, split=Split.ROW)
        return heads * (nope + rope), heads * value, rank + rope
    if w.q_lora_rank:
        slots.add(hidden, _number(w.q_lora_rank), layers, split=Split.NONE)
        slots.add(_number(w.q_lora_rank), heads * head_dim, layers, split=Split.COLUMN)
        slots.add(hidden, 2 * kv_heads * head_dim, layers, split=Split.COLUMN)
    else:
        slots.add(
            hidden,
            (heads + 2 * kv_heads) * head_dim,
            layers,
            split=Split.COLUMN,
            rows=rows * (1.0 + remembered),
        )
    slots.add(heads * head_dim, hidden, layers, split=Split.ROW, rows=rows)
    return heads * head_dim, heads * head_dim, 2 * kv_heads * head_dim


def _mlp_slots(
    slots: _Slots, hidden: float, width: float, layers: float, gates: float, rows: float = 1.0
) -> None:
    slots.add(hidden, gates * width, layers, split=Split.COLUMN, rows=rows)
    slots.add(width, hidden, layers, split=Split.ROW, rows=rows)


def _cross_slots(
    slots: _Slots, w: Workload, layers: float, heads: float, head_dim: float, rows: float
) -> None:
    """Cross attention: queries and output of the decoder's tokens, keys and values of the encoder's."""
    hidden, kv_heads = _number(w.hidden), _number(w.kv_heads, heads)
    slots.add(hidden, heads * head_dim, layers, split=Split.COLUMN, rows=rows)
    slots.add(hidden, 2 * kv_heads * head_dim, layers, split=Split.COLUMN)
    slots.add(heads * head_dim, hidden, layers, split=Split.ROW, rows=rows)


def _expert_slots(slots: _Slots, w: Workload, layers: float, gates: float) -> None:
    """Router, routed experts (in a latent width of their own where there is one) and shared experts."""
    hidden, experts, top_k = _number(w.hidden), _number(w.experts), _number(w.top_k)
    latent, width = _number(w.moe_latent, hidden), _number(w.moe_ffn, _number(w.ffn))
    slots.add(hidden, experts, layers, split=Split.NONE)
    if w.moe_latent:
        slots.add(hidden, 2 * latent, layers, split=Split.NONE)
    slots.add(latent, gates * width, layers, split=Split.EXPERT, rows=top_k, experts=experts)
    slots.add(width, latent, layers, split=Split.EXPERT, rows=top_k, experts=experts)
    _mlp_slots(slots, hidden, _shared_width(w), layers, gates)


def _shared_width(w: Workload) -> float:
    """FFN width of all shared experts of a layer."""
    return _number(w.shared_expert_ffn, _number(w.moe_ffn, _number(w.ffn))) * _number(w.shared_experts)


def _mamba_slots(slots: _Slots, w: Workload, inner: float) -> None:
    """Projections into and out of a state-space block of `inner` width."""
    groups_state = 2 * _number(w.mamba_groups) * _number(w.mamba_state)
    into = 2 * inner + groups_state + _number(w.mamba_heads)
    slots.add(_number(w.hidden), into, _number(w.mamba_layers), split=Split.COLUMN)
    slots.add(inner, _number(w.hidden), _number(w.mamba_layers), split=Split.ROW)


def _adapter_parameters(w: Workload) -> float:
    """Parameters of low-rank adapters, r (inner + outer) for each product that has one (Hu et al. 2021, arXiv:2106.09685).

    >>> one = Workload(name="x", kind="decoder-transformer", layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000)
    >>> _adapter_parameters(one.model_copy(update={"adapter_rank": 8, "adapter_on": "query-value"}))
    4194304.0
    """
    rank, hidden, layers = _number(w.adapter_rank), _number(w.hidden), _number(w.layers)
    heads = _number(w.heads, 1.0)
    head_dim = _number(w.head_dim, hidden / heads)
    wide, narrow = heads * head_dim, _number(w.kv_heads, heads) * head_dim
    each = 2.0 * hidden + wide + narrow
    if w.adapter_on != "query-value":
        each += 2.0 * hidden + wide + narrow
    if w.adapter_on in (None, "all"):
        width = _number(w.moe_ffn, _number(w.ffn)) if w.experts else _number(w.ffn, TYPICAL_FFN * hidden)
        count = max(_number(w.experts), 1.0) + (_number(w.shared_experts) if w.experts else 0.0)
        each += (3.0 if w.gated_mlp else 2.0) * (hidden + width) * count
    return rank * each * layers


def _parameters(slots: _Slots, w: Workload) -> dict[str, float]:
    """Parameters by where they live: those of the slots, and what the stated count leaves for the embeddings."""
    table = slots.columns()
    weights = table["slot_inner"] * table["slot_outer"] * table["slot_count"] * table["slot_experts"]
    routed = float(weights[table["slot_split"] == Split.EXPERT].sum())
    inside = float(weights[table["slot_last"] == 0].sum())  # of the layers, experts included
    embedding = _number(w.vocab) * _number(w.hidden) * (1.0 if w.tied_embeddings else 2.0)
    params = _number(w.params, inside + embedding)
    if params < (1.0 - ROUNDED) * (inside + embedding):
        embedding = max(params - inside, 0.0)  # rare words have narrow vectors (an adaptive embedding)
    trained = _adapter_parameters(w) if w.adapter_rank else _number(w.trainable_params, params)
    return {
        "params": params,
        "block_params": max(inside - routed, params - routed - embedding),
        "expert_params": routed,
        "embedding_params": embedding,
        "trainable_fraction": min(1.0, trained / params) if params else 1.0,
    }


def _attended(w: Workload, tokens: float, layers: float, causal: bool) -> float:
    """Share of the attention of whole sequences that is left by documents apart from each other and by windows.

    Of t tokens, in documents of d <= t: d/t. A causal window of v <= d tokens leaves 2 v/d - (v/d)^2 of a document, one
    that looks both ways v/d.

    >>> packed = Workload(name="x", kind="decoder-transformer", params=1, layers=1, hidden=1, heads=1, vocab=1, document_len=64)
    >>> _attended(packed, 256.0, 1.0, True), _attended(packed, 32.0, 1.0, True)
    (0.25, 1.0)
    """
    document = min(tokens, _number(w.document_len, tokens))
    seen = min(1.0, _number(w.attention_window, document) / document)
    windowed = min(1.0, _number(w.window_layers, layers) / layers) if layers else 0.0
    left = 2.0 * seen - seen**2 if causal else seen
    return document / tokens * (1.0 - windowed * (1.0 - left))


def _layer_weights(slots: _Slots, layers: float) -> float:
    """Weights of one of each shape that most layers have; logits apart."""
    return sum(
        row[0] * row[1]
        for row in {row[:6]: row for row in slots.rows if not row[6]}.values()
        if row[2] > layers / 4
    )


def _kept(
    w: Workload,
    tokens: float,
    *,
    blocks: float,
    attention: tuple[float, float, float],
    attention_layers: float,
    mlps: tuple[float, float],
    moe_layers: float,
    mamba: float,
) -> dict[str, float]:
    """Elements of a sample that fused kernels keep for the backward pass: what each product and each norm was given.

    Of a layer: two norms' inputs and outputs, and the masks of two dropouts where there are any (counted as one element
    more); queries, keys, values and what attention makes of them; both sides of the feed-forward activation. A token has
    its experts' inputs, activations and outputs `top_k` times.
    """
    hidden, gates = _number(w.hidden), 2.0 if w.gated_mlp else 1.0
    score, value, kv = attention
    width, mlp_layers = mlps
    routed, shared = _number(w.moe_ffn, _number(w.ffn)), _shared_width(w) if moe_layers else 0.0
    if w.kv_lora_rank:
        # The keys are put together in a copy; the values are a part of the projection that made both.
        heads, rank = _number(w.heads), 2.0 * (_number(w.q_lora_rank) + kv)
        projections = 2.0 * score + heads * _number(w.qk_nope_head_dim) + 2.0 * value
    else:
        rank, projections = 0.0, score + kv + value
    experts = _number(w.top_k) * (2.0 * _number(w.moe_latent, hidden) + (gates + 1.0) * routed)
    inner = (gates + 1.0) * width
    moe = experts + (gates + 1.0) * shared
    widest = max(inner if mlp_layers > 0 else 0.0, moe if moe_layers > 0 else 0.0)
    return {
        "kept_hidden": tokens * ((4.0 if w.gated_mlp else 5.0) * hidden * blocks + rank * attention_layers),
        "kept_inner": tokens
        * (projections * attention_layers + inner * mlp_layers + moe * moe_layers + 4.0 * mamba),
        # Norms' outputs; of the feed-forward part what its last product is given.
        "given_hidden": tokens * 2.0 * hidden * blocks,
        "given_inner": tokens * (width * mlp_layers + (_number(w.top_k) * routed + shared) * moe_layers),
        "widest_inner": tokens * widest,
    }


def _transformer(w: Workload, seq_len: int | None) -> Operations:
    """Dense, mixture-of-experts, encoder-decoder and hybrid Mamba transformers."""
    tokens = float(seq_len or w.seq_len or TYPICAL_TOKENS)
    layers, hidden, vocab = _number(w.layers), _number(w.hidden), _number(w.vocab)
    heads = _number(w.heads, max(1.0, hidden / HEAD_WIDTH))
    head_dim = _number(w.head_dim, hidden / heads)
    gates = 2.0 if w.gated_mlp else 1.0
    attention_layers, mamba_layers = _number(w.attention_layers, layers), _number(w.mamba_layers)
    hybrid = mamba_layers > 0
    experts, top_k = _number(w.experts), _number(w.top_k)
    moe_layers, dense_width = 0.0, _number(w.ffn, TYPICAL_FFN * hidden)
    if experts > 1:
        interval = max(1.0, _number(w.moe_interval, 1.0))
        moe_layers = _number(w.moe_layers, (layers - _number(w.first_dense_layers)) / interval)
        dense_width = _number(w.dense_ffn, dense_width)
    mlp_layers = _number(w.mlp_layers, 0.0) if hybrid else layers - moe_layers
    expert_width = _number(w.moe_ffn, _number(w.ffn))
    mamba_inner = _number(w.mamba_heads) * _number(w.mamba_head_dim)
    # The decoder of two towers has tokens of its own: its rows per token of the encoder.
    decoder_layers = _number(w.decoder_layers, layers / 2) if w.kind in TWO_TOWERS else 0.0
    decoder_rows = _number(w.decoder_seq_len, tokens) / tokens if decoder_layers else 1.0
    first_layers = attention_layers - decoder_layers
    remembered = _number(w.memory_len) / tokens

    slots = _Slots()
    score_width, value_width, kv_width = _attention_slots(
        slots, w, first_layers, heads, head_dim, remembered=remembered
    )
    _attention_slots(slots, w, decoder_layers, heads, head_dim, decoder_rows)
    _cross_slots(slots, w, decoder_layers, heads, head_dim, decoder_rows)
    _mlp_slots(slots, hidden, dense_width, mlp_layers - decoder_layers, gates)
    _mlp_slots(slots, hidden, dense_width, decoder_layers, gates, decoder_rows)
    if moe_layers > 0:
        _expert_slots(slots, w, moe_layers, gates)
    if hybrid:
        _mamba_slots(slots, w, mamba_inner)
    logits = _number(w.projected_vocab, vocab) if vocab > 0 and w.kind != "vision-transformer" else 0.0
    logit_rows = MASKED_SHARE if w.kind == "encoder-transformer" else decoder_rows
    slots.add(hidden, logits, 1.0, split=Split.COLUMN, last=True, rows=logit_rows)

    causal = bool(w.causal) if w.causal is not None else w.kind in LANGUAGE_KINDS
    causal_share = 0.5 if causal else 1.0
    first_share = 1.0 if decoder_layers else causal_share  # an encoder looks both ways
    squares = first_share * first_layers + (causal_share * decoder_rows**2 + decoder_rows) * decoder_layers
    score_layers = first_layers + (decoder_rows**2 + decoder_rows) * decoder_layers
    # Memory adds columns that no mask hides, and relative positions (Dai et al. 2019, arXiv:1901.02860) a second score.
    squares += remembered * first_layers
    score_layers += remembered * first_layers
    scores = 2.0 if remembered else 1.0
    attended = _attended(w, tokens, attention_layers, causal)
    # State-space scan in chunks (arXiv:2405.21060, sec. 6): inter- and intra-chunk products.
    mamba_flop = tokens * mamba_layers * mamba_inner * (4 * _number(w.mamba_state) + 2 * SCAN_CHUNK)

    activated = dense_width * mlp_layers + (_shared_width(w) + expert_width * top_k) * moe_layers
    inner_widths = (
        activated * (GATED_TRAFFIC if w.gated_mlp else 1.0)
        + score_width * attention_layers
        + mamba_layers * 2 * mamba_inner
    )
    # Cross attention is half a block more; a decoder's block counts by its share of the tokens.
    blocks = layers / 2.0 if hybrid else first_layers + 1.5 * decoder_rows * decoder_layers
    row_share = (first_layers + decoder_rows * decoder_layers) / attention_layers if decoder_layers else 1.0
    return _struct(
        slots,
        tokens=tokens,
        hidden=hidden,
        layers=layers,
        heads=heads,
        attention_flop=2 * tokens**2 * (scores * score_width + value_width) * squares * attended,
        score_elements=scores * heads * tokens**2 * score_layers,
        least_score_bytes=4.0 if w.scores_in_fp32 else 0.0,
        kv_width=kv_width,
        kv_heads=0.0 if w.kv_lora_rank else _number(w.kv_heads, heads),
        attention_layers=attention_layers,
        hidden_traffic=HIDDEN_TRAFFIC * tokens * hidden * blocks,
        inner_traffic=INNER_TRAFFIC * tokens * row_share * inner_widths,
        logit_elements=tokens * logit_rows * logits,
        # Clusters of an adaptive softmax have cut-offs of their own, round ones.
        logit_width=0.0 if w.projected_vocab else vocab,
        other_flop=mamba_flop,
        kernels=LAYER_KERNELS * layers,
        **_parameters(slots, w),
        experts=max(experts, 1.0),
        top_k=max(top_k, 1.0),
        moe_layers=moe_layers,
        routed_width=_number(w.moe_latent, hidden),
        first_dense_layers=layers - moe_layers
        if moe_layers > 0 and not w.moe_layers and (w.moe_interval or 1) == 1
        else 0.0,
        layer_weights=_layer_weights(slots, layers),
        **_kept(
            w,
            tokens,
            blocks=blocks,
            attention=(score_width, value_width, kv_width),
            attention_layers=attention_layers,
            mlps=(dense_width, mlp_layers),
            moe_layers=moe_layers,
            mamba=mamba_inner * mamba_layers,
        ),
        input_bytes=_number(w.input_bytes_per_sample, TOKEN_INPUT_BYTES * tokens),
        serial_s=_number(w.serial_time),
        is_transformer=1.0,
        masked=(1.0 + float(causal) / (1.0 + 2.0 * remembered)) / attended - 1.0,
    )


def _generic(w: Workload) -> Operations:
    """Three numbers are enough: FLOP, bytes and parameters per sample."""
    if w.flop_per_sample is not None:
        flop = float(w.flop_per_sample) / 3.0
    else:
        flop = _number(w.flop_per_sample_forward)
    if w.bytes_per_sample is not None:
        traffic = float(w.bytes_per_sample) / 3.0
    elif w.bytes_per_sample_activations is not None:
        traffic = float(w.bytes_per_sample_activations) / 3.0
    else:
        traffic = flop / UNCOUNTED_INTENSITY
    tables = _number(w.embedding_table_params)
    params = _number(w.dense_params, _number(w.params) - tables)
    elements = _number(w.activation_elements_per_sample, traffic / TRAFFIC_PER_KEPT)
    return _struct(
        _Slots(),
        tokens=1.0,
        hidden=1.0,
        layers=1.0,
        heads=1.0,
        other_flop=flop,
        conv3x3_flop=flop * _number(w.conv3x3_share),
        other_traffic=traffic,
        kernels=_number(w.kernels, RECOMMENDER_KERNELS if w.kind == "recommendation" else NETWORK_KERNELS),
        params=params + tables,
        block_params=params,
        table_params=tables,
        trainable_fraction=1.0,
        experts=1.0,
        top_k=1.0,
        activation_elements=elements,
        input_bytes=_number(w.input_bytes_per_sample, _input_bytes(w)),
        serial_s=_number(w.serial_time),
    )


# Bytes that a loader prepares per sample where no input shape is stated: what such samples usually weigh.
TYPICAL_INPUT_BYTES = {
    "mel frame": 320.0,
    "audio sample": 4.0,
    "token": 8.0,
    "utterance": 4e5,
    "molecule": 1e4,
    "pair": 2e3,
    "image": 1.5e5,
}


def _input_bytes(w: Workload) -> float:
    """Bytes of an `HxWxC` input shape in 8 bit, or what such a sample usually weighs."""
    shape = (w.input_shape or "").split(" ")[0].split("x")
    if len(shape) >= 2 and all(part.isdigit() for part in shape):
        return float(np.prod([float(part) for part in shape]))
    return TYPICAL_INPUT_BYTES.get(w.sample, SAMPLE_INPUT_BYTES)
