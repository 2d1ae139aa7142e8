"""Features of a job by which beliefs vary, and the slopes of the discrepancy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.layouts import Layouts
from perfmodel.physics.operations import Operations
from perfmodel.specs.hardware import Accelerator
from perfmodel.specs.workload import Workload

Array = NDArray[np.float64]

# One rate, one traffic: what was measured in the one is known of the other.
HALF = ("fp16", "bf16")
# Generations that came to market before libraries had fused attention, and the month in which PyTorch 2.0 brought it to all.
BEFORE_FUSED = frozenset(
    {
        "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "gcn5", "cdna1", "cdna2", "gaudi1",
        "tpu-v2", "tpu-v3", "tpu-v4", "ipu-mk1", "ipu-mk2", "ipu-mk2-bow",
    }
)  # fmt: skip
FUSED_SINCE = "2023-03"


def features(
    workload: Workload,
    accelerator: Accelerator,
    precision: str,
    *,
    framework: str | None,
    scale_up: str | None,
    scale_out: str | None,
    tuning: str = "stock",
    date: str | None = None,
) -> dict[str, str]:
    """Level values of one job; what nobody says is "unknown", a value with a belief of its own.

    `date` is when the software was current; without it the age of the accelerator stands in for that of the software. `tuning` is "tuned" for a stack whose batch and layout were retuned at every K by people who race, else "stock".
    """
    generation = accelerator.generation or "unknown"
    # A TPU runs nothing but what XLA compiled, whoever wrote the program.
    stack = "xla" if generation.startswith("tpu") else framework or "unknown"
    return {
        "generation": generation,
        "width": "16bit" if precision in HALF else precision,
        "accelerator": accelerator.name or "unknown",
        "framework": stack,
        "kind": workload.kind,
        "workload": workload.name or "unknown",
        "scale_up": scale_up or "unknown",
        "scale_out": scale_out or "unknown",
        "tuning": tuning,
        "peer": "direct" if accelerator.peer_access else "staged",
        "era": "before" if is_before_fused(generation, date) else "since",
    }


def is_before_fused(generation: str, date: str | None) -> bool:
    """Whether software of a date, else software on such accelerators, mostly had no fused attention.

    >>> is_before_fused("ampere", None), is_before_fused("ampere", "2024-06"), is_before_fused("hopper", None)
    (True, False, False)
    """
    return date < FUSED_SINCE if date else generation in BEFORE_FUSED


def level_value(features: Mapping[str, str], level: str) -> str:
    """A job's value of a level, crossed levels included.

    >>> level_value({"kind": "convnet", "framework": "xla"}, "kind*framework")
    'convnet*xla'
    """
    return "*".join(features.get(part, "unknown") for part in level.split("*"))


def retuned(levels: Mapping[str, str]) -> float:
    """1 for a job whose features say that it was retuned at every K, else 0."""
    return float(levels["tuning"] == "tuned")


def discrepancy(ops: Operations, at: Layouts) -> Array:
    """Slopes of what no coefficient explains, in the order of `beliefs.DISCREPANCIES`; shape (n, ...)."""
    nodes = np.maximum(at.k / at.per_node, 1.0)
    repeat = np.where(np.isnan(at.recompute), np.square(at.freed), at.recompute)
    rows = (
        np.ones_like(at.k),
        np.log2(at.k),
        np.minimum(nodes - 1.0, 1.0),
        np.log2(nodes),
        np.log(at.global_batch / at.k),
        np.log(at.tp),
        np.log(at.pp),
        np.log(at.cp),
        np.log(at.ep),
        repeat,
        np.log(at.micro_batch),
        np.log(ops.tokens),
    )
    return np.stack(np.broadcast_arrays(*rows))
