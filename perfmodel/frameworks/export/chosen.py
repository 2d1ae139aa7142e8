"""What is written out: a job whose layout is complete, what it is expected to reach, and what a framework lacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import UsageError
from perfmodel.frameworks.models import zoo_names
from perfmodel.results.envelope import __version__
from perfmodel.specs.job import Job
from perfmodel.specs.layout import Layout, layout_words
from perfmodel.specs.stack import Stack
from perfmodel.specs.workload import Workload
from perfmodel.units import band_in_words, format_quantity

DECODERS = ("decoder-transformer", "moe-transformer")


@dataclass(frozen=True)
class Expected:
    """What the prediction says of the layout."""

    time_s: float
    low_s: float
    high_s: float
    memory_bytes: float
    memory_limit_bytes: float
    fits: str | None = None  # why not, where it does not
    run_s: float | None = None  # upper end of the run's time with its interruptions, where steps are known


@dataclass
class Chosen:
    """A job with one K and a complete layout, and everything that its framework cannot say about it."""

    job: Job
    expected: Expected
    title: str  # the framework's name for people
    under_slurm: bool = False
    missing: list[str] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        """The layout, complete."""
        assert isinstance(self.job.layout, Layout)
        return self.job.layout

    @property
    def stack(self) -> Stack:
        """The declared facts of the software."""
        return self.job.stack or Stack()

    @property
    def workload(self) -> Workload:
        """What is trained."""
        return self.job.workload

    @property
    def k(self) -> int:
        """Accelerators."""
        return self.job.k[0]

    @property
    def batch(self) -> int:
        """Samples of a step."""
        if self.job.global_batch is not None:
            return self.job.global_batch
        return (self.job.batch_per_accelerator or 1) * self.k

    @property
    def replicas(self) -> int:
        """Data-parallel ranks."""
        return self.k // self.layout.model_parallel

    @property
    def micro_batch(self) -> int:
        """Samples of a micro-batch."""
        return self.layout.micro_batch or 1

    @property
    def accumulation(self) -> int:
        """Micro-batches of a step."""
        return max(self.batch // (self.replicas * self.micro_batch), 1)

    @property
    def sharding(self) -> str:
        """How the state is spread; zero3 is fsdp by another name."""
        word = self.layout.sharding or "zero1"
        return "fsdp" if word == "zero3" else word

    @property
    def nodes(self) -> int:
        """Machines."""
        return max(self.k // self.per_node, 1)

    @property
    def per_node(self) -> int:
        """Accelerators of the job on each machine."""
        return min(self.k, self.job.cluster.node.accelerators_per_node)

    @property
    def model_name(self) -> str | None:
        """The model's name in the zoo; None where it is not of the zoo."""
        return self.workload.name if self.workload.name in zoo_names() else None

    # -- refusals ----------------------------------------------------------------------------------------------

    def lacks(self, what: str) -> None:
        """Something that the framework cannot be told."""
        if what not in self.missing:
            self.missing.append(what)

    def only_one(self, **why: str) -> None:
        """Degrees that must be 1 here, each with the reason."""
        for name, reason in why.items():
            degree = getattr(self.layout, name) or 1
            if degree > 1:
                self.lacks(f"{name} {degree}: {reason}")

    def common(self) -> None:
        """What no framework here can be told."""
        if self.batch != self.replicas * self.micro_batch * self.accumulation:
            self.lacks(
                f"a batch of {self.batch} on {self.replicas} replicas in micro-batches of {self.micro_batch}: every "
                "replica must take the same number of whole micro-batches"
            )
        if self.k % self.per_node:
            self.lacks(
                f"{self.k} accelerators on nodes of {self.per_node}: launchers start the same number on every node"
            )
        spread = self.layout.ep * (self.layout.etp or 1)
        if self.layout.ep > 1 and (self.k // self.layout.pp) % spread:
            self.lacks(
                f"experts on {spread} ranks: a stage has {self.k // self.layout.pp}, which that does not divide"
            )
        if self.workload.trainable_params is not None:
            self.lacks("a model of which a part is trained (LoRA): adapters are the training script's matter")
        unsaid = {
            "parameter_server": self.sharding == "parameter_server",
            "sync_every above 1 (local SGD)": (self.job.sync_every or 1) > 1,
            "compression of gradients": self.job.compression is not None,
            "algorithm of the collectives": self.job.algorithm is not None,
        }
        for what, is_there in unsaid.items():
            if is_there:
                self.lacks(f"{what}: it has no setting for that")

    def decoder(self) -> None:
        """Refuse a model that is no decoder of text."""
        if self.workload.kind not in DECODERS or not self.workload.layers or not self.job.seq_len:
            self.lacks(f"a {self.workload.kind}: only decoders of text are written")

    def refuse(self) -> None:
        """Raise what was found missing."""
        if self.missing:
            raise UsageError(
                f"--export: {self.title} cannot express {'; '.join(self.missing)}",
                code="U040",
                help="change the layout (--layout), or export to another framework",
            )

    # -- what every export says --------------------------------------------------------------------------------

    def header(self, relies: list[str]) -> list[str]:
        """Comment lines: what this is, what it should reach, what the prediction relies on."""
        job, expected = self.job, self.expected
        words = layout_words(
            self.layout.model_dump() | {"dp": self.replicas}, spelled_out=True, micro_batch_of_one=True
        )
        band = band_in_words(expected.low_s, expected.high_s, "s", 3, expected.time_s)
        lines = [
            f"Written by perfmodel {__version__} for {self.title}: {self.workload.name} on {self.k} accelerators of "
            f"{job.cluster.name}.",
            f"Layout: {words or 'one accelerator'}; {self.accumulation} micro-batches a step, a batch of {self.batch}.",
            f"Expected step: {format_quantity(expected.time_s, 's', 3)} (90 % band {band}).",
        ]
        if job.seq_len and self.workload.sample == "sequence":
            tokens = self.batch * job.seq_len / self.k
            lines.append(
                f"Expected throughput: {_count(tokens / expected.time_s)} tokens/s on each accelerator "
                f"(90 % band {_count(tokens / expected.high_s)} to {_count(tokens / expected.low_s)})."
            )
        share = expected.memory_bytes / expected.memory_limit_bytes
        lines.append(
            f"Expected memory: {format_quantity(expected.memory_bytes, 'B', 3)} of "
            f"{format_quantity(expected.memory_limit_bytes, 'B', 3)} on each accelerator ({share:.0%})."
        )
        if expected.fits:
            lines.append(f"It does not fit: {expected.fits}.")
        lines.append(
            f"The prediction is of the software class {job.framework}, and relies on {', '.join(relies)}."
        )
        lines.append(
            "Left to you: data, tokenizer, learning rate, checkpoints, and how ranks find each other."
        )
        return lines

    @property
    def srun(self) -> str:
        """What stands before a launcher that starts once on every node."""
        return "srun " if self.under_slurm else ""

    def torchrun(self, script: str) -> str:
        """The launch of one process a GPU."""
        return (
            f"{self.srun}torchrun --nnodes {self.nodes} --nproc_per_node {self.per_node} {RENDEZVOUS}{script}"
        )


RENDEZVOUS = "--rdzv_backend c10d --rdzv_endpoint ${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500} "
Writer = Callable[[Chosen], str]


def _count(value: float) -> str:
    """Three digits of a count, with commas.

    >>> _count(12345.6), _count(98.76)
    ('12,300', '98.8')
    """
    if value <= 0 or not math.isfinite(value):
        return "0"
    digits = 2 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def comment(lines: list[str]) -> list[str]:
    """Lines behind `# `, wrapped."""
    import textwrap

    made = []
    for line in lines:
        made += textwrap.wrap(line, 116, initial_indent="# ", subsequent_indent="#   ")
    return made


def script(chosen: Chosen, relies: list[str], body: list[str]) -> str:
    """A shell script with the comments above it."""
    return "\n".join(["#!/bin/bash", *comment(chosen.header(relies)), "set -euo pipefail", *body]) + "\n"


def array(name: str, flags: Mapping[str, Any]) -> list[str]:
    """Arguments as a shell array, one to a line; True is a bare flag, None and False are left out."""
    import shlex

    lines = [f"{name}=("]
    for flag, value in flags.items():
        if value is None or value is False:
            continue
        lines.append(f"    {flag}" if value is True else f"    {flag} {shlex.quote(str(value))}")
    return [*lines, ")"]


def here(name: str, text: str) -> list[str]:
    """A file that the script writes before it starts."""
    return [f"cat > {name} <<'EOF'", *text.rstrip("\n").split("\n"), "EOF"]
