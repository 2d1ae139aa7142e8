"""The job: as it is written, and with everything resolved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from perfmodel.specs.amounts import AroundTokens, Data, Epochs, TokensPerParameter
from perfmodel.specs.economy import Grid, Price, PriceWords
from perfmodel.specs.fields import (
    Count,
    CountOrZero,
    Duration,
    FileModel,
    Fraction,
    Interval,
    Number,
    Quantity,
    SpecModel,
    TimeBetweenFailures,
)
from perfmodel.specs.hardware import Bandwidth, Cluster
from perfmodel.specs.jitter import Jitter
from perfmodel.specs.layout import Layout
from perfmodel.specs.precisions import Precision
from perfmodel.specs.serving import Serving
from perfmodel.specs.stack import FrameworkClass, GradientType, Stack
from perfmodel.specs.workload import TRANSFORMER_KINDS, Workload

Regime = Literal["strong", "weak"]
BucketSize = Annotated[float, Quantity("B", least="1 kB", most="1 TB")]
Budget = Annotated[float, Quantity("USD", least="0.01 USD", most="1000 MUSD")]
Algorithm = Literal[
    "auto", "ring", "tree", "halving_doubling", "in_switch", "hierarchical", "parameter_server"
]
Headroom = Annotated[float, Number(least=0, most=0.9)]
Framework = FrameworkClass


class Reliability(SpecModel):
    """How often a run is interrupted and what an interruption costs."""

    mtbf_per_accelerator: TimeBetweenFailures | None = Field(
        None, description="Mean time between failures of one accelerator."
    )
    mtbf_per_node: TimeBetweenFailures | None = Field(
        None, description="The same of what the accelerators of a node share."
    )
    checkpoint: Duration = Field(
        60.0, description="Time for which the job stands still to write a checkpoint."
    )
    restart: Duration = Field(300.0, description="Detection, rescheduling, loading, warm-up.")
    interval: Interval | None = Field(
        None, description="Useful time between checkpoints; the best one when missing."
    )
    spares: CountOrZero = Field(0, description="Nodes that stand by.")
    repair: Duration | None = Field(None, description="Time until a broken node is back.")


class Compression(SpecModel):
    """Gradients made smaller before they are sent."""

    ratio: Annotated[float, Number(least=1, most=100_000)] = Field(
        description="Bytes of a gradient over bytes on the wire; 1 is none."
    )
    cost: Duration = Field(
        0.0, description="Time a rank takes to compress and expand the gradients of one exchange."
    )


class Stall(SpecModel):
    """Something for which the job stands still now and then: a checkpoint, logging, an evaluation."""

    name: str = Field("stall", description="What it is: checkpoint, logging, evaluation.")
    time: Duration = Field(description="How long the job stands still, whatever K is.")
    every: Count = Field(1, description="Steps from one to the next.")


class InputRates(SpecModel):
    """How quickly samples arrive, where measured; what the data needs is the workload's `input_bytes_per_sample`."""

    loader: Bandwidth | None = Field(None, description="Rate at which the host of one node prepares input.")
    storage: Bandwidth | None = Field(None, description="Rate at which storage feeds the whole job.")


class SlowDevices(SpecModel):
    """Devices that are always slower than the others; the whole job waits for them."""

    share: Fraction = Field(description="Share of devices that are slow.")
    slowdown: Annotated[float, Number(least=1, most=100)] = Field(
        description="Their step time over that of a healthy device."
    )


class Algorithms(SpecModel):
    """Algorithm of each kind of exchange; `auto` is what the library takes, as measured sweeps show it."""

    data_parallel: Algorithm = Field("auto", description="Gradients and sharded weights, between replicas.")
    tensor_parallel: Algorithm = Field("auto", description="Activations, inside a tensor group.")
    context_parallel: Algorithm = Field("auto", description="Keys and values, along the sequence.")
    expert_parallel: Algorithm = Field("auto", description="Tokens, to their experts and back.")


class JobFile(SpecModel):
    """A job as it is written: every key but workload and cluster may be missing."""

    name: str | None = Field(None, description="What to call the job.")
    workload: Workload = Field(
        description="Zoo name, an inline mapping, {file: ...}, {hf: config.json} or {torch: 'mod:fn'}."
    )
    cluster: Cluster = Field(description="Catalogue name of a cluster or node, or an inline mapping.")
    precision: Precision | None = Field(None, description="Type of the matmuls; bf16, else fp16, else fp32.")
    seq_len: Count | None = Field(None, description="Tokens per sequence; the workload's own when missing.")
    regime: Regime | None = Field(
        None, description="strong: global_batch fixed; weak: batch_per_accelerator fixed."
    )
    global_batch: Count | None = Field(None, description="Samples per optimizer step.")
    batch_per_accelerator: Count | None = Field(
        None, description="Samples per optimizer step and accelerator."
    )
    global_batch_tokens: AroundTokens | None = Field(
        None,
        description="Tokens per optimizer step, in place of global_batch: 4M, or 4M +-10 % where a near batch will do.",
    )
    layout: Layout | None = Field(None, description="auto, or a mapping of degrees; missing degrees are 1.")
    headroom: Headroom | None = Field(
        None, description="Share of a device's memory that automatic layouts leave free; 0.05."
    )
    k: object = Field(
        None, description="Worker counts: 8, [1, 2, 4], 1..1024 (doubling) or 64..128:8 (steps)."
    )
    steps: Count | None = Field(None, description="Optimizer steps of the whole run.")
    tokens: Count | None = Field(None, description="Tokens of the whole run, in place of steps.")
    tokens_per_parameter: TokensPerParameter | None = Field(
        None,
        description="Tokens of the whole run over the model's parameters, in place of tokens; 20 is compute-optimal for dense "
        "language models (Hoffmann et al. 2022, arXiv:2203.15556).",
    )
    epochs: Epochs | None = Field(None, description="Passes over `data` of the whole run, in place of steps.")
    data: Data | None = Field(None, description="One pass over the data, which epochs count.")
    deadline: Interval | None = Field(None, description="Longest run that will do.")
    budget: Budget | None = Field(None, description="Dearest run that will do.")
    timed_steps: Count | None = Field(
        None,
        description="Steps over which a run's whole time, start included, is shared; steady steps when missing.",
    )
    price: PriceWords | None = Field(
        None, description="What accelerators cost; on-demand of the node's provider."
    )
    grid: Grid | None = Field(None, description="Where the electricity comes from: a grid's id.")
    jitter: Jitter | None = Field(None, description="Variation of one worker's step time.")
    reliability: Reliability | None = Field(None, description="Failures, checkpoints, restarts.")
    framework: Framework | None = Field(None, description="Software class whose coefficients apply.")
    gradient_dtype: GradientType | None = Field(
        None,
        description="Type in which gradients are exchanged; fp32 in 32-bit training and bf16 of megatron_eager, else 16 bit.",
    )
    compression: Compression | None = Field(None, description="Gradients made smaller before they are sent.")
    sync_every: Count | None = Field(
        None, description="Steps from one exchange between replicas to the next (local SGD); 1 is every step."
    )
    bucket: BucketSize | None = Field(
        None, description="Gradients that are sent together; 25 MiB, of megatron_eager all."
    )
    first_bucket: BucketSize | None = Field(
        None, description="Those sent first, fewer so that sending starts early; 1 MiB."
    )
    stalls: tuple[Stall, ...] | None = Field(
        None, description="Checkpoints, logging and the like for which the job stands still."
    )
    input: InputRates | None = Field(None, description="Measured rates of loader and storage.")
    length_spread: Annotated[float, Number(least=0, most=10)] | None = Field(
        None, description="Standard deviation over the mean of a sample's work: variable lengths."
    )
    slow_devices: SlowDevices | None = Field(None, description="Devices that are always slower.")
    stack: Stack | None = Field(None, description="Declared facts of the software stack.")
    serving: Serving | None = Field(
        None,
        description="Of a job that serves requests: engine, lengths, load and objectives; no key of training goes with it.",
    )
    algorithm: Algorithms | None = Field(
        None,
        description="Algorithm of the collectives, one word for all or a mapping by kind of exchange; auto: the library's own.",
    )


def language(workload: Workload, seq_len: int | None) -> bool:
    """Whether a sample is a sequence of tokens."""
    return workload.kind in TRANSFORMER_KINDS and seq_len is not None and workload.sample == "sequence"


def tokens_per_sample(workload: Workload, seq_len: int | None) -> int | None:
    """Tokens of a sample of a language model, None of anything else."""
    if workload.sample == "token":
        return 1
    return seq_len if language(workload, seq_len) else None


class Job(FileModel):
    """A job with everything resolved. `notes` list what was assumed.

    `run_samples` are those of the whole run where its length is known; in the weak regime of a run that is stated in tokens or
    epochs, `steps` is None, since it differs with K. `batch_range` holds the batches that will do as well as `global_batch`.
    """

    name: str
    workload: Workload
    cluster: Cluster
    precision: Precision
    seq_len: int | None
    regime: Regime
    global_batch: int | None
    batch_per_accelerator: int | None
    layout: Layout | Literal["auto"]
    k: tuple[int, ...]
    k_given: bool
    headroom: float | None = None
    steps: int | None
    run_samples: int | None = None
    batch_range: tuple[int, int] | None = None
    deadline: float | None = None
    budget: float | None = None
    timed_steps: int | None = None
    price: Price
    grid: Grid | None
    jitter: Jitter | None
    reliability: Reliability | None
    framework: Framework
    framework_given: bool = True
    gradient_dtype: GradientType | None = None
    compression: Compression | None = None
    sync_every: int | None = None
    bucket: float | None = None
    first_bucket: float | None = None
    stalls: tuple[Stall, ...] | None = None
    input: InputRates | None = None
    length_spread: float | None = None
    slow_devices: SlowDevices | None = None
    stack: Stack | None = None
    algorithm: Algorithms | None = None
    notes: tuple[str, ...]

    @classmethod
    def from_yaml(cls, path: str | Path, **keys: object) -> Job:
        """The job of a file, with `keys` (as the file writes them; a dotted path reaches inside) over it."""
        from perfmodel.specs.jobs import load_job  # which builds jobs, and so imports this module

        return load_job(path, overrides=keys)

    @classmethod
    def from_dict(cls, data: Mapping[str, object], **keys: object) -> Job:
        """The job of a mapping with the keys of a job file; relative file names start at the current folder."""
        from perfmodel.specs.jobs import load_job

        return load_job(data, overrides=keys)

    @property
    def tokens_per_sample(self) -> int | None:
        """Tokens of a sample of a language model, None of anything else."""
        return tokens_per_sample(self.workload, self.seq_len)

    @property
    def is_transformer(self) -> bool:
        """Whether the workload is cut by tensor and pipeline parallelism as transformers are."""
        return self.workload.kind in TRANSFORMER_KINDS
