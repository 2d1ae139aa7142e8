"""Where every lost accelerator-second went, and what made the curve bend.

The ledger prices the loss exactly: part by part, `K p(K) - K0 p(K0)` in the strong regime and `K (p(K) - p(K0))` in
the weak one, so that the entries sum to `K T(K) - K0 T(K0)` or `K (T(K) - T(K0))`. Diagnosis, plots and audits read
this one ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.remedies import Here, job_at
from perfmodel.physics.layouts import Sharding
from perfmodel.physics.parts import (
    BY_NAME,
    COMPUTE,
    DATA_PARALLEL,
    EXPERT_PARALLEL,
    IMBALANCE,
    SHARDED_WEIGHTS,
    TENSOR_PARALLEL,
)  # fmt: skip
from perfmodel.training.curve import Curve

Array = NDArray[np.float64]

# Neighbours among whom a part is exchanged; whether they leave a node tells the tier.
_REACH: dict[str, Callable[[Here], float]] = {
    DATA_PARALLEL.name: lambda job: np.inf,
    SHARDED_WEIGHTS.name: lambda job: job.of("shard_group") * job.of("tp"),
    TENSOR_PARALLEL.name: lambda job: job.of("tp"),
    EXPERT_PARALLEL.name: lambda job: job.of("ep") if job.of("ep") > 1.0 else np.inf,
}


def ledger(k: Array, parts: Mapping[str, Array], regime: str, baseline: int) -> dict[str, Array]:
    """Lost accelerator-seconds of every part at every K, against the baseline's."""
    k0 = k[baseline]
    if regime == "weak":
        return {name: k * (part - part[baseline]) for name, part in parts.items()}
    return {name: k * part - k0 * part[baseline] for name, part in parts.items()}


def cause_at(lost: Mapping[str, Array], index: int) -> str | None:
    """The part that lost most at one K, or None where nothing was lost."""
    amounts = {name: float(values[index]) for name, values in lost.items()}
    known = {name: amount for name, amount in amounts.items() if np.isfinite(amount) and amount > 0}
    return max(known, key=lambda name: known[name]) if known else None


def in_words(curve: Curve, part: str, index: int, lost: Mapping[str, Array]) -> str:
    """A cause as people say it, with the tier where it happens and its share of the step.

    Arithmetic is most of a good step: of it, only what it takes beyond the baseline's counts as a cause.
    """
    job = job_at(curve, index)
    words = _of_this_job(job, part) or BY_NAME[part].words
    nodes = job.of("k") / job.of("per_node")
    if part in _REACH:
        leaves = nodes > 1 and _REACH[part](job) > float(curve.setup.machine.domain)
        words = f"{'inter-node' if leaves else 'intra-node'} {words}"
    where = f"of the step at K={int(curve.k[index])}"
    if part == COMPUTE.name:
        more = float(lost[part][index] / (curve.k[index] * curve.time_s[index]))
        return f"{words} loses {more:.0%} {where}"
    return f"{words} takes {float(curve.parts[part][index] / curve.time_s[index]):.0%} {where}"


def _of_this_job(job: Here, part: str) -> str | None:
    """Words for a part that is something else in some jobs."""
    if part == DATA_PARALLEL.name and job.of("sharding") == Sharding.PARAMETER_SERVER:
        return "exchange with the parameter server"
    if part == EXPERT_PARALLEL.name and job.of("ep") == 1.0:
        return "exchange of embedding vectors"
    if part == IMBALANCE.name and job.of("pp") == 1.0:
        return f"waiting for the replicas with {'most' if job.is_uneven else 'the longest'} samples"
    return None
