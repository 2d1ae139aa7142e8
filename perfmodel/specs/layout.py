"""How the work is cut: degrees of parallelism, micro-batches, sharding, recomputation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import core_schema

from perfmodel.errors import did_you_mean
from perfmodel.specs.fields import Number, ReadByItself, SpecModel, problem

Sharding = Literal["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "parameter_server"]
RecomputeWord = Literal["none", "selective", "full"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble"]
# Ways of sharding under which a replica (of hsdp: a shard group) holds everything and could step alone.
WHOLE_REPLICAS: tuple[Sharding, ...] = ("ddp", "hsdp", "parameter_server")
# The first and the last stage may each hold one layer less, in place of embeddings and logits (Llama 3, arXiv:2407.21783,
# section 3.3.2).
MISSING_LAYERS = 2
Degree = Annotated[int, Number(least=1, most=1_000_000, whole=True)]


@dataclass(frozen=True)
class WordOrShare(ReadByItself):
    """What is recomputed, as a word or as the share of a forward pass that is repeated."""

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        words = {"enum": list(get_args(RecomputeWord)), "type": "string"}
        share = _SHARE.__get_pydantic_json_schema__(schema, handler)
        return {"anyOf": [words, *share["anyOf"]]}

    def read(self, value: object) -> RecomputeWord | float:
        """A word, or a number of 0 to 1; the two ends of the shares have a word of their own."""
        words: tuple[RecomputeWord, ...] = get_args(RecomputeWord)
        for word in words:
            if value == word:
                return word
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number and not (isinstance(value, str) and value.strip()[:1] in {*"+-.0123456789"}):
            shown = f'"{value}"' if isinstance(value, str) else _kind_of(value)
            choices = f"one of {', '.join(words)}, or the share of a forward pass that is repeated (0 to 1)"
            guess = did_you_mean(value, words) if isinstance(value, str) else ""
            raise problem("S011", f"{shown} is not a choice here{guess}", choices)
        share = float(_SHARE.read(value))
        return "none" if share == 0.0 else "full" if share == 1.0 else share


def _kind_of(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return "a mapping" if isinstance(value, Mapping) else "a list"


_SHARE = Number(least=0.0, most=1.0)
Recompute = Annotated[RecomputeWord | float, WordOrShare()]


class Layout(SpecModel):
    """A layout. A missing degree is 1; a missing `dp` is what K leaves; what else is missing is filled in as runs mostly have it."""

    dp: Degree | None = Field(None, description="Data-parallel replicas; what K leaves when missing.")
    tp: Degree = Field(1, description="Tensor parallelism.")
    pp: Degree = Field(1, description="Pipeline stages.")
    cp: Degree = Field(1, description="Context (sequence) parallelism.")
    ep: Degree = Field(1, description="Expert parallelism.")
    etp: Degree | None = Field(
        None,
        description="Tensor parallelism inside an expert; what tp leaves beyond ep when missing.",
    )
    vpp: Degree | None = Field(
        None,
        description="Virtual pipeline stages per device (interleaving); where a pipeline states none, a belief: as "
        "many as its kind of software mostly runs.",
    )
    micro_batch: Degree | None = Field(
        None,
        description="Samples per micro-batch and replica; when missing 1 in a pipeline, else as many as fit in memory.",
    )
    accumulation: Degree | None = Field(None, description="Micro-batches per step and replica.")
    sharding: Sharding | None = Field(
        None,
        description="ddp, zero1, zero2, zero3, fsdp, hsdp or parameter_server; zero1 for transformers, else (and "
        "with sync_every) ddp.",
    )
    shard_group: Degree | None = Field(
        None,
        description="Replicas that share one sharded copy, when not all: those of a node (the default of hsdp; or zero1 in a node).",
    )
    recompute: Recompute | None = Field(
        None,
        description="Activations computed again in the backward pass: none, selective, full, or the share of a "
        "forward pass that is repeated (0 to 1); when missing none where that fits in memory, else full.",
    )
    schedule: Schedule | None = Field(
        None, description="Order of pipeline micro-batches; 1f1b, or interleaved with vpp > 1."
    )
    sequence_parallel: bool | None = Field(
        None,
        description="Whether norms are split along the sequence inside a tensor group; when missing yes for megatron_core, "
        "xla and selective recomputation.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Layout:
        if (self.vpp or 1) > 1 and self.pp == 1:
            raise problem(
                "S010", f"vpp {self.vpp} needs a pipeline: pp is 1", "give pp, or leave vpp out", at="vpp"
            )
        if self.schedule in ("gpipe", "1f1b") and (self.vpp or 1) > 1:
            raise problem(
                "S010", f"schedule {self.schedule} does not interleave, yet vpp is {self.vpp}", at="schedule"
            )
        if self.shard_group is not None and self.sharding in ("ddp", "parameter_server"):
            raise problem(
                "S010", f"shard_group has no meaning with sharding {self.sharding}", at="shard_group"
            )
        if self.sequence_parallel and self.tp == 1:
            raise problem(
                "S010", "sequence_parallel needs tensor parallelism: tp is 1", at="sequence_parallel"
            )
        return self

    @property
    def model_parallel(self) -> int:
        """Accelerators that hold one replica."""
        return self.tp * self.pp * self.cp

    @property
    def interleaving_unsaid(self) -> bool:
        """Whether this is a pipeline whose virtual stages a device are not stated."""
        return self.pp > 1 and self.vpp is None and self.schedule in (None, "interleaved")


DEGREES = ("dp", "tp", "pp", "cp", "ep", "etp", "vpp")


def layout_words(
    layout: Mapping[str, object], *, spelled_out: bool = False, micro_batch_of_one: bool = False
) -> str:
    """The layout of a result in a few words, degrees of one left out; `spelled_out` as a sentence has them.

    >>> layout = {"dp": 8, "tp": 2, "pp": 1, "micro_batch": 1, "sharding": "zero1", "recompute": "full"}
    >>> layout_words(layout)
    'dp8 tp2 zero1 recompute full'
    >>> layout_words(layout, spelled_out=True, micro_batch_of_one=True)
    'dp8 tp2 micro-batch 1 zero1 full recompute'
    >>> layout_words({"dp": 64, "sharding": "zero1", "shard_group": 8})
    'dp64 zero1 group 8'
    """
    words = [f"{name}{layout[name]}" for name in DEGREES if layout.get(name) not in (None, 1)]
    micro_batch, sharding, recompute = (layout.get(name) for name in ("micro_batch", "sharding", "recompute"))
    if micro_batch is not None and (micro_batch_of_one or micro_batch != 1):
        words.append(f"micro-batch {micro_batch}" if spelled_out else f"mb{micro_batch}")
    if sharding:
        words.append(str(sharding))
    if layout.get("shard_group") is not None:  # of fewer than all
        words.append(f"{'in groups of' if spelled_out else 'group'} {layout['shard_group']}")
    if recompute not in (None, "none", False):
        words.append(f"{recompute} recompute" if spelled_out else f"recompute {recompute}")
    return " ".join(words)
