"""A job in numbers: what the step model, the searches and the calibrations are asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import features
from perfmodel.physics.counting import operations
from perfmodel.physics.machine import Machine, machine
from perfmodel.physics.memory import HEADROOM
from perfmodel.physics.operations import PADS_VOCABULARY, TRANSFORMER_KINDS, Operations
from perfmodel.physics.variation import Variation, spread_of
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.job import Job
from perfmodel.specs.layout import Layout
from perfmodel.specs.stack import Stack
from perfmodel.specs.workload import Workload
from perfmodel.training.declared import Measured, declared, measured_hardware, usable_shardings, variation

Array = NDArray[np.float64]

NORMS_CUT = frozenset(
    {"megatron_core", "xla"}
)  # classes that cut norms by tensor parallelism where nobody says
UNALIGNED_CUDA = 11.0  # whose cuBLAS gives tensor cores operands of any alignment, the first to do so
SETTINGS = ("precision", "seq_len", "framework")  # that step times depend on, beside workload and cluster


@dataclass(frozen=True)
class Setup:
    """One job in numbers: what is trained, on what, at which K and batch."""

    workload: Workload
    cluster: Cluster
    precision: str
    k: Array
    global_batch: Array  # samples at each K
    layout: Layout | None = None  # None: the best feasible layout at each K
    seq_len: int | None = None
    framework: str | None = None
    jitter: float | None = None  # spread of one worker's step, when declared
    variation: Variation = field(default_factory=Variation)  # its distribution
    declared: dict[str, float] = field(default_factory=dict)  # values of `layouts.DECLARED`
    batch_grows: bool = False  # with K, beyond those asked for as well
    headroom: float = HEADROOM  # share of memory that a searched layout leaves free
    facts: Stack = field(default_factory=Stack)

    @cached_property
    def operations(self) -> Operations:
        """Per-sample operations."""
        said = self.facts.pads_vocabulary
        pads = self.stack in PADS_VOCABULARY if said is None else said
        return operations(self.workload, self.seq_len, pads_vocabulary=pads)

    @cached_property
    def machine(self) -> Machine:
        """Numbers of the cluster."""
        cuda = self.facts.cuda
        return machine(self.cluster, self.precision, aligned_only=cuda is not None and cuda < UNALIGNED_CUDA)

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """Efficiencies of the hardware that the user measured."""
        return measured_hardware(self.cluster)

    @property
    def states_work(self) -> bool:
        """Whether the workload states FLOP or bytes: without them only measurements predict."""
        return float(self.operations.training_flop()) > 0 or float(self.operations.other_traffic) > 0

    @property
    def default_sharding(self) -> str:
        """What a layout that names no sharding gets."""
        usual = "zero1" if self.workload.kind in TRANSFORMER_KINDS else "ddp"
        return usable_shardings((usual,), self.declared)[0]

    @property
    def sequence_parallel(self) -> float:
        """1 where norms and residuals are cut by tensor parallelism as well: as the layout says, else as its software does."""
        layout = self.layout
        if layout is not None and layout.sequence_parallel is not None:
            return float(layout.sequence_parallel)
        repeats_attention = layout is not None and layout.recompute == "selective"
        return float(repeats_attention or self.stack in NORMS_CUT)

    @property
    def schedule(self) -> str | None:
        """Order of the micro-batches of a pipeline, where the layout says."""
        return self.layout.schedule if self.layout is not None else None

    @property
    def stack(self) -> str:
        """The framework class by which beliefs vary; one that nobody names is no better than runs whose stack is unknown."""
        return self.framework or "unknown"

    @property
    def identity(self) -> dict[str, str | int]:
        """What step times of this job are about: kept with the beliefs that they were turned into."""
        names = {
            "workload": self.workload.name,
            "cluster": self.cluster.name,
            "precision": self.precision,
            "seq_len": self.seq_len,
            "framework": self.framework,
        }
        return {key: name for key, name in names.items() if name}

    def differs(self, there: Mapping[str, object]) -> list[str]:
        """Keys by which this job is another than the one of that identity; older files name no settings."""
        own = self.identity
        return [
            key
            for key in ("workload", "cluster", *SETTINGS)
            if there.get(key) != own.get(key) and (key in there or key not in SETTINGS)
        ]

    def features(self) -> dict[str, str]:
        """Level values for the beliefs."""
        up, out = self.cluster.node.scale_up, self.cluster.network
        return features(
            self.workload,
            self.cluster.node.accelerator,
            self.precision,
            framework=self.stack,
            scale_up=up.name if up else None,
            scale_out=out.name if out else None,
            tuning="tuned" if self.facts.retuned else "stock",
            date=self.facts.date,
        )


def batch_of(job: Job, k: Array) -> Array:
    """Samples of a step at each K: in the weak regime the batch grows with K."""
    if job.regime == "weak":
        return k * float(job.batch_per_accelerator or 1)
    return np.full_like(k, float(job.global_batch or 1))


def setup_of(job: Job) -> Setup:
    """A job's numbers."""
    k = np.array(sorted(job.k), dtype=float)
    return Setup(
        workload=job.workload,
        cluster=job.cluster,
        precision=job.precision,
        k=k,
        global_batch=batch_of(job, k),
        layout=None if job.layout == "auto" else job.layout,
        seq_len=job.seq_len,
        framework=job.framework,
        jitter=spread_of(variation(job.jitter)) if job.jitter is not None else None,
        variation=variation(job.jitter) if job.jitter is not None else Variation(),
        declared=declared(job),
        batch_grows=job.regime == "weak",
        headroom=HEADROOM if job.headroom is None else job.headroom,
        facts=job.stack or Stack(),
    )
