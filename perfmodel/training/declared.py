"""What a job declares beside its layout, as the step model's numbers; and measured hardware that moves beliefs.

A catalogue entry's own efficiencies are part of what the priors were fitted on. An efficiency that a user measured on
hardware of their own is news: it counts as one measurement of the coefficient, with a spread that says how far the
figure of a benchmark is from what a step reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Belief
from perfmodel.physics.algorithms import CODES
from perfmodel.physics.coefficients import NAMES
from perfmodel.physics.layouts import (
    DECLARED,
    FUSED_LOGIT_BYTES,
    ONE_BUCKET,
    usual_bucket_bytes,
    usual_gradient_bytes,
    usual_memory,
)
from perfmodel.physics.stragglers import PARETO_TAIL
from perfmodel.physics.variation import Component, Variation, spread_of
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.fields import Record
from perfmodel.specs.folders import shipped_folder
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.jitter import Jitter
from perfmodel.specs.job import Job
from perfmodel.specs.layout import WHOLE_REPLICAS

Array = NDArray[np.float64]

GRADIENT_BYTES: Final[dict[str, float]] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}

# Log-spread between a benchmark's figure and what a step reaches: matrix products of a step are smaller than the
# best one; streaming is streaming; collectives reach less of a link than one long transfer.
MATMUL_SPREAD: Final = 0.12
MEMORY_SPREAD: Final = 0.06
LINK_SPREAD: Final = 0.12


def declared(job: Job) -> dict[str, float]:
    """The values of `layouts.DECLARED` that a job or its framework sets, where they are not the usual ones."""
    # An exchange that does not overlap is one call after the last backward pass.
    exchanged_last = job.stack is not None and job.stack.overlap_gradients is False
    found: dict[str, float | None] = {
        "gradient_bytes": GRADIENT_BYTES[job.gradient_dtype]
        if job.gradient_dtype
        else usual_gradient_bytes(job.framework, job.precision),
        **_held(job),
        "sync_every": job.sync_every,
        "bucket_bytes": ONE_BUCKET if exchanged_last else job.bucket or usual_bucket_bytes(job.framework),
        "first_bucket_bytes": job.first_bucket,
        "length_spread": job.length_spread,
        "run_steps": job.timed_steps,
    }
    if job.stack is not None:
        calls = 0.0 if job.stack.overlap_tensor is False else None
        found["tp_hidden"] = calls if job.stack.hidden_tensor_calls is None else job.stack.hidden_tensor_calls
        overlap = job.stack.overlap_experts
        if overlap is None and job.stack.schedule == "dualpipe":
            overlap = True  # what that schedule is for
        found["expert_hidden"] = None if overlap is None else float(overlap)
    if job.algorithm is not None:
        found |= {
            f"{kind.removesuffix('_parallel')}_algorithm": CODES[word]
            for kind, word in job.algorithm.model_dump().items()
        }
    if job.compression is not None:
        found |= {"compression": job.compression.ratio, "compression_s": job.compression.cost}
    if job.stalls:
        found["stall_s"] = sum(stall.time / stall.every for stall in job.stalls)
    if job.input is not None:
        found |= {"loader_bytes_per_s": job.input.loader, "storage_bytes_per_s": job.input.storage}
    if job.slow_devices is not None:
        found |= {"slow_share": job.slow_devices.share, "slowdown": job.slow_devices.slowdown}
    return {
        name: float(value) for name, value in found.items() if value is not None and value != DECLARED[name]
    }


# Bytes of the moments of an optimizer per trained parameter, in 32 bit but for those of the names; factored ones take next to
# nothing. A copy of 16-bit weights in 32 bit takes four more.
MOMENT_BYTES: Final[dict[str, float]] = {
    "adamw": 8.0, "adamw-8bit": 2.0, "adafactor": 0.0, "muon": 4.0, "lion": 4.0, "sgd": 0.0, "sgd-momentum": 4.0,
}  # fmt: skip
# Of a weight that is not trained: 4-bit values with a 32-bit scale for each 64, or with 8-bit scales (arXiv:2305.14314, sec. 3).
FROZEN_BYTES: Final[dict[str, float]] = {"nf4": 0.5625, "nf4-dq": 0.516, "int8": 1.0, "fp8": 1.0}


def _held(job: Job) -> dict[str, float | None]:
    """What the software holds in memory: as the job states it, else as its framework does."""
    found: dict[str, float | None] = {}
    if job.is_transformer:
        found |= usual_memory(job.framework, job.precision)
    if job.gradient_dtype:
        found |= {"held_gradient_bytes": GRADIENT_BYTES[job.gradient_dtype], "open_gradient": 0.0}
    stack = job.stack
    if stack is None:
        return found
    if stack.fused_loss is not None:
        found["logit_bytes"] = FUSED_LOGIT_BYTES if stack.fused_loss else None
    if stack.optimizer is not None or stack.master_weights is not None:
        moments, own_copy = MOMENT_BYTES[stack.optimizer or "adamw"], job.precision not in ("fp32", "tf32")
        if stack.master_weights is False:
            # Without a wide copy of the weights the moments are as narrow as these.
            moments, own_copy = min(moments, max(moments / 2.0, 2.0 * (moments > 0.0))), False
        found["optimizer_bytes"] = moments + 4.0 * own_copy
    if stack.frozen_dtype is not None:
        found["frozen_bytes"] = FROZEN_BYTES[stack.frozen_dtype]
    return found | {f"offloaded_{name}": 1.0 for name in stack.offload or ()}


def variation(jitter: Jitter) -> Variation:
    """A declared jitter as the physics has it."""
    parts = tuple(
        Component(part.share, part.slower, part.distribution, part.spread, part.tail)
        for part in jitter.mixture or ()
    )
    made = Variation(
        jitter.distribution,
        jitter.spread or 0.0,
        tail=jitter.tail or PARETO_TAIL,
        constant=jitter.shift or 0.0,
        parts=parts,
        samples=jitter.samples or (),
    )
    return replace(made, spread=spread_of(made))


def replicas_step_alone(values: Mapping[str, float]) -> bool:
    """Whether replicas go for several steps without an exchange."""
    return values.get("sync_every", 1.0) > 1.0


def usable_shardings(shardings: Sequence[str], values: Mapping[str, float]) -> tuple[str, ...]:
    """Those of `shardings` under which a replica can step alone, where it must; ddp where none of them can.

    >>> usable_shardings(("zero1", "fsdp"), {"sync_every": 4.0}), usable_shardings(("zero1", "fsdp"), {})
    (('ddp',), ('zero1', 'fsdp'))
    """
    if not replicas_step_alone(values):
        return tuple(shardings)
    return tuple(name for name in shardings if name in WHOLE_REPLICAS) or ("ddp",)


@dataclass(frozen=True)
class Measured:
    """One measured efficiency of the hardware: a value of a coefficient, with its log-spread."""

    coefficient: str
    value: float
    spread: float
    source: str


@lru_cache(maxsize=1)
def _shipped() -> Catalog:
    """The shipped folder alone: neither the user's own specs nor the current folder are part of it."""
    return Catalog((shipped_folder(),))


def measured_hardware(cluster: Cluster) -> tuple[Measured, ...]:
    """Efficiencies marked `measured` that are not the shipped catalogue's own."""
    node = cluster.node
    rows: tuple[tuple[str, Record | None, str, str, float], ...] = (
        ("accelerators", node.accelerator, "matmul_fraction", "matmul", MATMUL_SPREAD),
        ("accelerators", node.accelerator, "memory_fraction", "memory", MEMORY_SPREAD),
        ("links", node.scale_up, "efficiency", "up_efficiency", LINK_SPREAD),
        ("links", cluster.network, "efficiency", "out_efficiency", LINK_SPREAD),
    )
    found = []
    for kind, record, field, coefficient, spread in rows:
        value = getattr(record, field, None)
        if record is None or value is None or record.origin(field).confidence != "measured":
            continue
        if _is_shipped(kind, record, field, value):
            continue
        source = record.origin(field).source or f"{record.name}: {field}"
        found.append(Measured(coefficient, float(value), spread, source))
    return tuple(found)


def _is_shipped(kind: str, record: Record, field: str, value: float) -> bool:
    catalog = _shipped()
    if record.name not in catalog.names(kind):
        return False
    known = getattr(catalog.get(kind, record.name), field)
    return known is not None and bool(np.isclose(known, value, rtol=1e-9))


def informed(belief: Belief, scatter: Array, measured: Sequence[Measured]) -> Belief:
    """The belief after measurements, each a normal observation of the coefficient's logarithm.

    The belief's own variance is what the population leaves open plus the scatter between jobs; the spread after it may
    not fall below that scatter, which a benchmark of the hardware cannot remove.
    """
    if not measured:
        return belief
    median, spread, basis = belief.median.copy(), belief.spread.copy(), dict(belief.basis)
    for item in measured:
        index = NAMES.index(item.coefficient)
        prior = spread[index] ** 2 + scatter[index]
        weight = prior / (prior + item.spread**2)
        median[index] += weight * (np.log(item.value) - median[index])
        spread[index] = np.sqrt(max(prior * (1.0 - weight) - scatter[index], 0.0))
        basis[item.coefficient] = "measured"
    return replace(belief, median=median, spread=spread, basis=basis)
