"""What is trained: a workload, as counts and sizes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from perfmodel.specs.fields import Count, CountOrZero, Duration, Fraction, Quantity, Record, problem

WorkloadKind = Literal[
    "convnet",
    "decoder-transformer",
    "detection",
    "diffusion",
    "encoder-decoder-transformer",
    "encoder-transformer",
    "forecasting",
    "generic",
    "gnn",
    "hybrid-mamba-transformer",
    "moe-transformer",
    "recommendation",
    "rnn-translation",
    "segmentation",
    "speech",
    "tts",
    "vision-transformer",
]
TRANSFORMER_KINDS = frozenset(
    {
        "decoder-transformer",
        "encoder-transformer",
        "encoder-decoder-transformer",
        "moe-transformer",
        "hybrid-mamba-transformer",
        "vision-transformer",
    }
)
AdaptedProducts = Literal["query-value", "attention", "all"]
MEMORY_KINDS = frozenset({"decoder-transformer", "moe-transformer"})  # may look at the segment before
TWO_TOWERS = frozenset({"encoder-decoder-transformer"})
Flop = Annotated[float, Quantity("FLOP", most="1000000 ZFLOP", bare=True)]
Bytes = Annotated[float, Quantity("B", most="1000 PB", bare=True)]


class Workload(Record):
    """A model and one sample of its training data. Amounts are per sample unless the name says otherwise."""

    kind: WorkloadKind = Field(
        "generic", description="Which arithmetic describes it; generic needs three numbers."
    )
    sample: str = Field("sample", description="What the batch counts: sequence, image, utterance, ...")
    params: Count | None = Field(None, description="Parameters.")
    trainable_params: CountOrZero | None = Field(
        None, description="Parameters that are trained, when not all (LoRA)."
    )
    params_from_dimensions: Count | None = Field(
        None, description="A check: parameters counted from the dimensions."
    )
    params_note: str | None = Field(None, description="Where the count comes from.")
    adapter_rank: Count | None = Field(
        None, description="Rank of low-rank adapters (LoRA), which alone are trained."
    )
    adapter_on: AdaptedProducts | None = Field(
        None, description="Products that have them: query-value, attention, or all; all when missing."
    )
    flop_per_sample: Flop | None = Field(None, description="Forward plus backward, of a generic workload.")
    flop_per_sample_forward: Flop | None = Field(None, description="Forward only.")
    conv3x3_share: Fraction | None = Field(
        None,
        description="Of the forward FLOP, in dense 3x3 convolutions of stride 1 in two dimensions: libraries run "
        "them in 32 bit with fewer multiplications.",
    )
    bytes_per_sample: Bytes | None = Field(None, description="Device memory traffic, forward plus backward.")
    input_bytes_per_sample: Bytes | None = Field(None, description="Read from storage.")
    serial_time: Duration | None = Field(None, description="Per step, whatever K is.")
    kernels: Count | None = Field(None, description="Kernel launches of one forward pass.")
    layers: Count | None = Field(None, description="Blocks.")
    hidden: Count | None = Field(None, description="Width of the residual stream.")
    heads: Count | None = Field(None, description="Attention heads.")
    kv_heads: Count | None = Field(None, description="Heads of keys and values.")
    head_dim: Count | None = Field(None, description="Width of a head.")
    ffn: Count | None = Field(None, description="Inner width of the feed-forward block.")
    gated_mlp: bool | None = Field(
        None, description="Whether the feed-forward block has a gate (three matrices)."
    )
    vocab: Count | None = Field(None, description="Vocabulary size.")
    projected_vocab: Count | None = Field(
        None, description="Logits computed per token, where an adaptive softmax skips most of the vocabulary."
    )
    seq_len: Count | None = Field(None, description="Tokens of a sequence, by default.")
    document_len: Count | None = Field(
        None,
        description="Tokens of a document, where a sequence is packed from several that do not attend to each other.",
    )
    attention_window: Count | None = Field(
        None, description="Tokens back that attention looks, in the layers that have a window."
    )
    window_layers: CountOrZero | None = Field(
        None, description="Attention layers that have the window; all by default."
    )
    scores_in_fp32: bool | None = Field(
        None,
        description="Whether the model's code takes attention scores in 32 bit whatever the precision (GPT-Neo, GPT-J).",
    )
    memory_len: CountOrZero | None = Field(
        None, description="Tokens of the segment before that attention looks at too (Transformer-XL)."
    )
    max_positions: Count | None = Field(None, description="Rows of a learned position table.")
    token_types: Count | None = Field(None, description="Rows of a token-type table.")
    decoder_seq_len: Count | None = Field(None, description="Tokens on the decoder's side.")
    encoder_layers: CountOrZero | None = Field(None, description="Blocks of the encoder.")
    decoder_layers: CountOrZero | None = Field(None, description="Blocks of the decoder.")
    tied_embeddings: bool | None = Field(
        None, description="Whether input and output embeddings are one matrix."
    )
    causal: bool | None = Field(None, description="Whether attention looks back only.")
    experts: CountOrZero | None = Field(None, description="Routed experts.")
    top_k: CountOrZero | None = Field(None, description="Experts that a token visits.")
    shared_experts: CountOrZero | None = Field(None, description="Experts that every token visits.")
    moe_ffn: Count | None = Field(None, description="Inner width of an expert.")
    dense_ffn: Count | None = Field(None, description="Inner width of the dense blocks of a MoE model.")
    shared_expert_ffn: Count | None = Field(None, description="Inner width of a shared expert.")
    moe_latent: Count | None = Field(
        None, description="Width to which tokens are projected before the experts."
    )
    first_dense_layers: CountOrZero | None = Field(
        None, description="Dense blocks before the first MoE block."
    )
    moe_interval: Count | None = Field(None, description="Every n-th block is a MoE block.")
    q_lora_rank: Count | None = Field(None, description="Latent attention: rank of the queries.")
    kv_lora_rank: Count | None = Field(None, description="Latent attention: rank of keys and values.")
    qk_nope_head_dim: Count | None = Field(None, description="Latent attention: head width without rotation.")
    qk_rope_head_dim: Count | None = Field(None, description="Latent attention: head width with rotation.")
    v_head_dim: Count | None = Field(None, description="Latent attention: head width of the values.")
    mamba_layers: CountOrZero | None = Field(None, description="State-space blocks of a hybrid.")
    mlp_layers: CountOrZero | None = Field(None, description="Feed-forward blocks of a hybrid.")
    moe_layers: CountOrZero | None = Field(None, description="MoE blocks of a hybrid.")
    attention_layers: CountOrZero | None = Field(None, description="Attention blocks of a hybrid.")
    mamba_heads: Count | None = Field(None, description="Heads of a state-space block.")
    mamba_head_dim: Count | None = Field(None, description="Width of such a head.")
    mamba_state: Count | None = Field(None, description="State size.")
    mamba_groups: Count | None = Field(None, description="Groups that share B and C.")
    input_shape: str | None = Field(None, description="224x224x3, or words.")
    activation_elements_per_sample: Count | None = Field(
        None, description="Outputs of convolutions and matrix products, forward."
    )
    bytes_per_sample_activations: Bytes | None = Field(
        None, description="Activation traffic, forward plus backward."
    )
    activation_bytes_method: str | None = Field(None, description="How that was counted.")
    embedding_table_params: CountOrZero | None = Field(
        None, description="Recommender: parameters of the tables."
    )
    dense_params: CountOrZero | None = Field(None, description="Recommender: parameters outside the tables.")

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        if self.kind == "generic":
            for key, example in (
                ("flop_per_sample", "24.6 GFLOP"),
                ("bytes_per_sample", "400 MB"),
                ("params", "25.6 M"),
            ):
                if getattr(self, key) is None and not (
                    key == "flop_per_sample" and self.flop_per_sample_forward
                ):
                    raise problem("S004", f'a generic workload needs "{key}"', f"such as {key}: {example}")
        if self.heads and self.kv_heads and self.heads % self.kv_heads:
            raise problem(
                "S010", f"kv_heads {self.kv_heads} does not divide heads {self.heads}", at="kv_heads"
            )
        self._check_language()
        self._check_counted()
        self._check_adapter()
        if self.experts and self.top_k and self.top_k > self.experts:
            raise problem("S010", f"top_k {self.top_k} exceeds the {self.experts} experts", at="top_k")
        if self.params and self.trainable_params and self.trainable_params > self.params:
            raise problem(
                "S010",
                f"trainable_params {self.trainable_params} exceeds params {self.params}",
                at="trainable_params",
            )
        return self

    def _check_language(self) -> None:
        """What only some language models have: elsewhere it would be left out of the count without a word."""
        if self.projected_vocab and self.projected_vocab > (self.vocab or 0):
            raise problem(
                "S010",
                f"projected_vocab {self.projected_vocab} exceeds vocab {self.vocab}"
                if self.vocab
                else "projected_vocab needs a vocab to be a part of",
                "leave it out where every token meets the whole vocabulary",
                at="projected_vocab",
            )
        if self.window_layers and not self.attention_window:
            raise problem("S010", "window_layers needs an attention_window", "in tokens", at="window_layers")
        layers = self.attention_layers or self.layers
        if layers and self.window_layers and self.window_layers > layers:
            raise problem(
                "S010", f"window_layers {self.window_layers} exceeds the {layers} layers", at="window_layers"
            )
        is_plain = not (self.kv_lora_rank or self.q_lora_rank or self.document_len or self.attention_window)
        if self.memory_len and (self.kind not in MEMORY_KINDS or not is_plain):
            raise problem(
                "S010",
                "memory_len is modelled for decoders with plain attention only",
                f"kind {' or '.join(sorted(MEMORY_KINDS))}, without latent attention, documents or windows",
                at="memory_len",
            )

    def _check_adapter(self) -> None:
        """Low-rank adapters are counted from the dimensions of a transformer."""
        if self.adapter_on and not self.adapter_rank:
            raise problem("S010", "adapter_on needs an adapter_rank", "such as 16", at="adapter_on")
        if not self.adapter_rank:
            return
        if not self.is_counted:
            raise problem(
                "S010",
                f"adapter_rank is for transformers that are counted from dimensions; this {self.kind} is not",
                "state trainable_params",
                at="adapter_rank",
            )
        if self.trainable_params:
            raise problem(
                "S010",
                "adapter_rank and trainable_params both state the trainable parameters",
                "leave one of them out",
                at="adapter_rank",
            )

    def _check_counted(self) -> None:
        """What only attention or only stated FLOP have: elsewhere it would be left out without a word."""
        if self.is_counted and self.conv3x3_share:
            raise problem(
                "S010",
                f"conv3x3_share is of stated FLOP; those of this {self.kind} are counted from its dimensions",
                "leave it out",
                at="conv3x3_share",
            )
        for key in ("document_len", "attention_window", "scores_in_fp32"):
            if getattr(self, key) and not self.is_counted:
                raise problem(
                    "S010",
                    f"{key} is for attention that is counted from dimensions; FLOP of this {self.kind} are not",
                    "a transformer of layers and hidden, whose FLOP are not stated; else leave it out",
                    at=key,
                )
        if self.attention_window and self.kind in TWO_TOWERS:
            raise problem(
                "S010",
                "attention_window is modelled for one tower only, not for an encoder with a decoder",
                "leave it out: full attention is counted",
                at="attention_window",
            )

    @property
    def is_counted(self) -> bool:
        """Whether its FLOP come from the dimensions of a transformer rather than from a number in the spec."""
        return bool(
            self.kind in TRANSFORMER_KINDS
            and self.layers
            and self.hidden
            and not self.flop_per_sample
            and self.sample != "token"  # its FLOP are stated per token: there is no sequence to build
            and (self.kind != "vision-transformer" or self.seq_len)
        )
