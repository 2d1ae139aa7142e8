"""What the model families of the Hugging Face hub are made of: a config's keys become `Dimensions`.

Each builder returns the dimensions that its architecture's published code has, biases and norms included;
the `model_type` of a config picks the builder. Keys that a config may leave out take the default of the
`transformers` configuration class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from perfmodel.workloads.parameters import Dimensions


class Config(Protocol):
    """A config file: missing or malformed keys are noted by the reader and refused together."""

    def integer(self, key: str, default: int | None = None) -> int: ...
    def flag(self, key: str, default: bool) -> bool: ...
    def integers(self, key: str) -> list[int] | None: ...
    def get(self, key: str) -> object: ...


class NotingConfig(Config, Protocol):
    """One that takes note of a key's other faults too."""

    def note(self, code: str, message: str, key: str | None = None, help: str | None = None) -> None: ...


WINDOWED, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture: the workload kind it makes and how its config is read."""

    kind: str
    build: Callable[[Config], Dimensions]
    positions: str = "max_position_embeddings"  # the key of the longest sequence
    note: str = ""
    window_every: int = 0  # of so many layers all but one have the window, or each where it is 1; 0: none has
    scores_in_fp32: bool = False

    def window(self, c: NotingConfig, layers: int) -> dict[str, int]:
        """Tokens that windowed layers look back, and how many layers these are."""
        tokens = c.integer("sliding_window", 0) if self.window_every else 0
        if not tokens:
            return {}
        types, every = c.get("layer_types"), c.integer("sliding_window_pattern", self.window_every)
        if types is None:
            if every == 0:
                c.note("W102", '"sliding_window_pattern" must be at least 1, not 0', "sliding_window_pattern")
                return {}
            windowed = layers if every == 1 else layers - layers // every
        elif (
            isinstance(types, list) and len(types) == layers and all(one in (WINDOWED, FULL) for one in types)
        ):
            windowed = types.count(WINDOWED)
        else:
            wanted = f'"layer_types" must name {WINDOWED} or {FULL} for each of the {layers} layers'
            c.note("W102", wanted, "layer_types")
            return {}
        return {"attention_window": tokens, "window_layers": windowed}


def _sizes(c: Config) -> tuple[int, int, int]:
    """Width, layers and heads under their usual names."""
    return c.integer("hidden_size"), c.integer("num_hidden_layers"), c.integer("num_attention_heads")


def _decoder(c: Config, *, tied: bool = False, head_dim: int = 0, norms: int = 2) -> Dimensions:
    """The common decoder: RMS norms, gated MLP, grouped queries, no biases (Llama, arXiv:2302.13971)."""
    hidden, layers, heads = _sizes(c)
    return Dimensions(
        hidden=hidden,
        vocab=c.integer("vocab_size"),
        tied=c.flag("tie_word_embeddings", tied),
        attention_layers=layers,
        heads=heads,
        kv_heads=c.integer("num_key_value_heads", heads),
        head_dim=c.integer("head_dim", head_dim or hidden // heads),
        mlp_layers=layers,
        ffn=c.integer("intermediate_size"),
        gated=True,
        norms=norms * layers + 1,
    )


def _llama(c: Config) -> Dimensions:
    bias = c.flag("attention_bias", False)
    return replace(_decoder(c), qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias", False))


def _qwen2(c: Config) -> Dimensions:
    return replace(_decoder(c), qkv_bias=True)


def _qwen3(c: Config) -> Dimensions:
    d = _decoder(c, head_dim=128)
    bias = c.flag("attention_bias", False)
    return replace(d, qk_norm=2 * d.head_dim, qkv_bias=bias, output_bias=bias)


def _gemma(c: Config) -> Dimensions:
    return _decoder(c, tied=True, head_dim=256)


def _gemma2(c: Config) -> Dimensions:
    return _decoder(c, tied=True, head_dim=256, norms=4)


class _WithDefaults:
    """A config whose class has defaults even for sizes (Gemma 3 ships configs that rely on them)."""

    def __init__(self, config: Config, defaults: Mapping[str, int]) -> None:
        self._config, self._defaults = config, defaults

    def integer(self, key: str, default: int | None = None) -> int:
        return self._config.integer(key, self._defaults.get(key, default))

    def flag(self, key: str, default: bool) -> bool:
        return self._config.flag(key, default)

    def integers(self, key: str) -> list[int] | None:
        return self._config.integers(key)

    def get(self, key: str) -> object:
        return self._config.get(key)


_GEMMA3 = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
}


def _gemma3(c: Config) -> Dimensions:
    d = _gemma2(_WithDefaults(c, _GEMMA3))
    return replace(d, qk_norm=2 * d.head_dim)


def _olmo2(c: Config) -> Dimensions:
    d = _decoder(c)
    return replace(d, qk_norm=(d.heads + d.kv_heads) * d.head_dim)


def _phi(c: Config) -> Dimensions:
    """Phi-1 and 2: attention and MLP side by side behind one layer norm, biases everywhere."""
    d = _decoder(c, norms=1)
    qk_norm = 4 * d.head_dim if c.flag("qk_layernorm", False) else 0
    return replace(
        d,
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        norm_bias=True,
        head_bias=True,
        qk_norm=qk_norm,
    )


def _experts(c: Config, d: Dimensions, experts: int, width: int, moe_layers: int) -> Dimensions:
    return replace(
        d,
        experts=experts,
        top_k=c.integer("num_experts_per_tok"),
        moe_ffn=width,
        moe_layers=moe_layers,
        mlp_layers=d.attention_layers - moe_layers,
    )


def _mixtral(c: Config) -> Dimensions:
    d = _decoder(c)
    return _experts(c, d, c.integer("num_local_experts"), d.ffn, d.attention_layers)


def _phimoe(c: Config) -> Dimensions:
    bias = c.flag("attention_bias", False)
    head = c.flag("lm_head_bias", False)
    return replace(_mixtral(c), qkv_bias=bias, output_bias=bias, norm_bias=True, head_bias=head)


def _sparse_layers(c: Config, layers: int) -> int:
    """Layers with experts: every `decoder_sparse_step`-th that is not named in `mlp_only_layers`."""
    step = max(1, c.integer("decoder_sparse_step", 1))
    dense = set(c.integers("mlp_only_layers") or ())
    return sum(1 for layer in range(layers) if layer not in dense and (layer + 1) % step == 0)


def _qwen2_moe(c: Config) -> Dimensions:
    d = _qwen2(c)
    sparse = _sparse_layers(c, d.attention_layers)
    d = _experts(c, d, c.integer("num_experts"), c.integer("moe_intermediate_size"), sparse)
    return replace(d, shared_ffn=c.integer("shared_expert_intermediate_size"), shared_gate=True)


def _qwen3_moe(c: Config) -> Dimensions:
    d = _qwen3(c)
    sparse = _sparse_layers(c, d.attention_layers)
    return _experts(c, d, c.integer("num_experts"), c.integer("moe_intermediate_size"), sparse)


def _gpt_oss(c: Config) -> Dimensions:
    """Attention sinks are one weight per head."""
    d = _mixtral(c)
    return replace(d, qkv_bias=True, output_bias=True, mlp_bias=True, router_bias=True, qk_norm=d.heads)


def _deepseek(c: Config) -> Dimensions:
    """Latent attention, shared experts, first layers dense (arXiv:2405.04434, arXiv:2412.19437)."""
    d = _decoder(c, head_dim=1)
    first, frequency = c.integer("first_k_dense_replace", 0), c.integer("moe_layer_freq", 1)
    sparse = sum(1 for n in range(d.attention_layers) if n >= first and n % max(1, frequency) == 0)
    d = _experts(c, d, c.integer("n_routed_experts"), c.integer("moe_intermediate_size"), sparse)
    nope, rope = c.integer("qk_nope_head_dim"), c.integer("qk_rope_head_dim")
    return replace(
        d,
        head_dim=nope + rope,
        kv_heads=d.heads,
        q_lora_rank=c.integer("q_lora_rank", 0),
        kv_lora_rank=c.integer("kv_lora_rank"),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=c.integer("v_head_dim"),
        shared_ffn=c.integer("n_shared_experts", 0) * d.moe_ffn,
        router_bias=c.get("topk_method") == "noaux_tc",
    )


def _llama4(c: Config) -> Dimensions:
    """Text part of Llama 4: one shared expert as wide as a routed one, dense layers in between."""
    d = _decoder(c)
    step = max(1, c.integer("interleave_moe_layer_step", 1))
    named = c.integers("moe_layers")
    sparse = d.attention_layers // step if named is None else len(named)
    dense = c.integer("intermediate_size_mlp") if sparse < d.attention_layers else 0
    d = replace(_experts(c, d, c.integer("num_local_experts"), d.ffn, sparse), shared_ffn=d.ffn)
    return replace(d, ffn=dense)


def _plain(d: Dimensions) -> Dimensions:
    """Biases everywhere, layer norms, plain MLP."""
    return replace(d, gated=False, qkv_bias=True, output_bias=True, mlp_bias=True, norm_bias=True)


def _equal_heads(c: Config, hidden: int, layers: int, heads: int) -> Dimensions:
    """A key/value head for every head, tied embeddings, two norms a layer: what came before Llama has in common."""
    return Dimensions(
        hidden=hidden,
        vocab=c.integer("vocab_size"),
        tied=c.flag("tie_word_embeddings", True),
        attention_layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        mlp_layers=layers,
        ffn=4 * hidden,
        norms=2 * layers + 2,
    )


def _gpt2(c: Config) -> Dimensions:
    d = _equal_heads(c, c.integer("n_embd"), c.integer("n_layer"), c.integer("n_head"))
    positions, ffn = c.integer("n_positions"), c.integer("n_inner", d.ffn)
    return _plain(replace(d, positions=positions, ffn=ffn, norms=2 * d.attention_layers + 1))


def _gptj(c: Config) -> Dimensions:
    d = replace(_gpt2(c), positions=0, tied=c.flag("tie_word_embeddings", False))
    return replace(d, qkv_bias=False, output_bias=False, head_bias=True, norms=d.attention_layers + 1)


def _gpt_neox(c: Config) -> Dimensions:
    bias = c.flag("attention_bias", True)
    return replace(_plain(_decoder(c)), qkv_bias=bias, output_bias=bias)


def _opt(c: Config) -> Dimensions:
    hidden, layers, heads = _sizes(c)
    before = c.flag("do_layer_norm_before", True)
    narrow = c.integer("word_embed_proj_dim", hidden)
    d = _equal_heads(c, hidden, layers, heads)
    d = replace(
        d,
        positions=c.integer("max_position_embeddings") + 2,
        ffn=c.integer("ffn_dim"),
        norms=2 * layers + int(before),
    )
    if narrow != hidden:
        # A narrower word embedding is projected in and out of the model (OPT-350M alone).
        d = replace(d, other=(narrow - hidden) * d.vocab + 2 * narrow * hidden)
    return _plain(d)


def _bloom(c: Config) -> Dimensions:
    hidden = c.integer("hidden_size", c.integer("n_embed", 0) or None)
    layers = c.integer("n_layer", c.integer("num_hidden_layers", 0) or None)
    heads = c.integer("n_head", c.integer("num_attention_heads", 0) or None)
    return _plain(_equal_heads(c, hidden, layers, heads))


def _falcon(c: Config) -> Dimensions:
    """Grouped or single key/value heads; the larger sizes have one norm each for attention and MLP."""
    new = c.flag("new_decoder_architecture", False)
    heads = c.integer("num_attention_heads")
    grouped = c.integer("num_kv_heads", heads) if new or not c.flag("multi_query", True) else 1
    hidden, layers = c.integer("hidden_size"), c.integer("num_hidden_layers")
    bias = c.flag("bias", False)
    d = replace(
        _equal_heads(c, hidden, layers, heads),
        kv_heads=grouped,
        ffn=c.integer("ffn_hidden_size", 4 * hidden),
        norms=(2 if new or not c.flag("parallel_attn", True) else 1) * layers + 1,
        norm_bias=True,
    )
    return replace(d, qkv_bias=bias, output_bias=bias, mlp_bias=bias)


def _bert(c: Config) -> Dimensions:
    """BERT with its pre-training heads, as its checkpoints are published (arXiv:1810.04805)."""
    d = _plain(_equal_heads(c, *_sizes(c)))
    square = d.hidden * d.hidden + d.hidden
    return replace(
        d,
        positions=c.integer("max_position_embeddings"),
        token_types=c.integer("type_vocab_size", 2),
        ffn=c.integer("intermediate_size"),
        head_bias=True,
        other=2 * square + 2 * d.hidden + 2,
    )


def _roberta(c: Config) -> Dimensions:
    """RoBERTa has neither pooler nor next-sentence head."""
    d = _bert(c)
    return replace(d, other=d.hidden * d.hidden + d.hidden)


def _t5(c: Config) -> Dimensions:
    """Encoder and decoder with relative position tables, RMS norms and no biases (arXiv:1910.10683)."""
    layers, heads = c.integer("num_layers"), c.integer("num_heads")
    decoder = c.integer("num_decoder_layers", layers)
    buckets = c.integer("relative_attention_num_buckets", 32)
    return Dimensions(
        hidden=c.integer("d_model"),
        vocab=c.integer("vocab_size"),
        tied=c.flag("tie_word_embeddings", True),
        attention_layers=layers + decoder,
        cross_attention_layers=decoder,
        heads=heads,
        kv_heads=heads,
        head_dim=c.integer("d_kv"),
        mlp_layers=layers + decoder,
        ffn=c.integer("d_ff"),
        gated=str(c.get("feed_forward_proj") or "relu").startswith("gated"),
        norms=2 * layers + 3 * decoder + 2,
        other=2 * buckets * heads,
    )


DECODER, MOE = "decoder-transformer", "moe-transformer"
_CHUNKS = "chunked layers are counted as full attention"

FAMILIES: Mapping[str, Family] = {
    "llama": Family(DECODER, _llama),
    "mistral": Family(DECODER, _decoder, window_every=1),
    "mixtral": Family(MOE, _mixtral, window_every=1),
    "qwen2": Family(DECODER, _qwen2),
    "qwen3": Family(DECODER, _qwen3),
    "qwen2_moe": Family(MOE, _qwen2_moe),
    "qwen3_moe": Family(MOE, _qwen3_moe),
    "gemma": Family(DECODER, _gemma),
    "gemma2": Family(DECODER, _gemma2, window_every=2),
    "gemma3_text": Family(DECODER, _gemma3, window_every=6),
    "phi": Family(DECODER, _phi),
    "phi3": Family(DECODER, _decoder, window_every=1),
    "phimoe": Family(MOE, _phimoe, window_every=1),
    "olmo2": Family(DECODER, _olmo2),
    "gpt2": Family(DECODER, _gpt2, positions="n_positions"),
    "gptj": Family(DECODER, _gptj, positions="n_positions", scores_in_fp32=True),
    "gpt_neox": Family(DECODER, _gpt_neox),
    "gpt_oss": Family(MOE, _gpt_oss, window_every=2),
    "opt": Family(DECODER, _opt),
    "bloom": Family(DECODER, _bloom, positions="seq_length"),
    "falcon": Family(DECODER, _falcon),
    "bert": Family("encoder-transformer", _bert),
    "roberta": Family("encoder-transformer", _roberta),
    "t5": Family("encoder-decoder-transformer", _t5, positions="n_positions"),
    "mt5": Family("encoder-decoder-transformer", _t5, positions="n_positions"),
    "deepseek_v2": Family(MOE, _deepseek, note="layers that predict further tokens are not counted"),
    "deepseek_v3": Family(MOE, _deepseek, note="layers that predict further tokens are not counted"),
    "kimi_k2": Family(MOE, _deepseek, note="layers that predict further tokens are not counted"),
    "llama4_text": Family(MOE, _llama4, note=_CHUNKS),
}
