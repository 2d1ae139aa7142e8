"""The job: as it is written, and with everything resolved."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from perfmodel.errors import SpecError
from perfmodel.specs.economy import Grid, Price, PriceWords
from perfmodel.specs.fields import (
    Count,
    CountOrZero,
    Duration,
    Interval,
    Number,
    Precision,
    SpecModel,
    TimeBetweenFailures,
)
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.layout import Layout
from perfmodel.specs.loader import Mark, Source, Tree
from perfmodel.specs.workload import TRANSFORMER_KINDS, Workload

Regime = Literal["strong", "weak"]
Framework = Literal[
    "pytorch_eager",
    "megatron_eager",
    "megatron_core",
    "fsdp_eager",
    "fsdp_compiled",
    "xla",
    "tensorflow",
    "mxnet",
    "oneflow",
    "paddle",
    "hugectr",
    "mindspore",
    "other",
    "unknown",
]


class Jitter(SpecModel):
    """How much the step time of one worker varies."""

    distribution: Literal["normal", "lognormal", "gumbel", "exponential", "pareto", "gamma", "weibull"] = (
        Field("lognormal", description="Family of the distribution.")
    )
    spread: Annotated[float, Number(least=0, most=5)] = Field(description="Standard deviation over the mean.")


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
    layout: Layout | None = Field(None, description="auto, or a mapping of degrees; missing degrees are 1.")
    k: Any = Field(None, description="Worker counts: 8, [1, 2, 4], 1..1024 (doubling) or 64..128:8 (steps).")
    steps: Count | None = Field(None, description="Optimizer steps of the whole run.")
    price: PriceWords | None = Field(
        None, description="What accelerators cost; on-demand of the node's provider."
    )
    grid: Grid | None = Field(None, description="Where the electricity comes from: a grid's id.")
    jitter: Jitter | None = Field(None, description="Variation of one worker's step time.")
    reliability: Reliability | None = Field(None, description="Failures, checkpoints, restarts.")
    framework: Framework | None = Field(None, description="Software class whose coefficients apply.")


class Job(SpecModel):
    """A job with everything resolved. `notes` say what was assumed."""

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
    steps: int | None
    price: Price
    grid: Grid | None
    jitter: Jitter | None
    reliability: Reliability | None
    framework: Framework
    notes: tuple[str, ...]
    _tree: Tree | None = PrivateAttr(None)

    def error_at(self, path: str, code: str, message: str, help: str | None = None) -> SpecError:
        """An error at the line of a value of the job file (`layout.tp`), or of the nearest key above it."""
        mark = self._tree.mark_at(path) if self._tree is not None else Mark(Source(""))
        return SpecError(mark.problem(code, message, help))

    @property
    def is_transformer(self) -> bool:
        """Whether the workload is cut by tensor and pipeline parallelism as transformers are."""
        return self.workload.kind in TRANSFORMER_KINDS
