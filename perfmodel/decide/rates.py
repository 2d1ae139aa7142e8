"""What an accelerator gets done: model FLOP, their share of the peak, and tokens, each per second and accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.physics.machine import peak
from perfmodel.physics.operations import Operations
from perfmodel.specs.job import Job

Array = npt.NDArray[np.float64]


def rates(
    job: Job, ops: Operations, k: npt.ArrayLike, time_s: npt.ArrayLike, batch: npt.ArrayLike
) -> dict[str, Array]:
    """Utilisation and rates at each K, NaN where they make no sense: without FLOP, or of a workload without tokens.

    `mfu` counts the FLOP that the model needs (forward and backward, nothing repeated) against the datasheet's dense
    peak at the job's precision (PaLM, arXiv:2204.02311, appendix B).
    """
    each = np.asarray(batch, dtype=float) / np.asarray(time_s, dtype=float) / np.asarray(k, dtype=float)
    flop = float(ops.model_flop())
    tokens = job.tokens_per_sample
    achieved = each * (flop if flop > 0 else np.nan)
    return {
        "mfu": np.asarray(achieved / peak(job.cluster.accelerator, job.precision)),
        "tflop_per_s_per_accelerator": np.asarray(achieved / 1e12),
        "tokens_per_s_per_accelerator": np.asarray(each * (tokens or np.nan)),
        "samples_per_s_per_accelerator": np.asarray(each),
    }


RATES: tuple[str, ...] = (
    "mfu",
    "tflop_per_s_per_accelerator",
    "tokens_per_s_per_accelerator",
    "samples_per_s_per_accelerator",
)


def no_rates(shape: tuple[int, ...]) -> dict[str, Any]:
    """The same keys where nothing runs."""
    return {name: np.full(shape, np.nan) for name in RATES}
