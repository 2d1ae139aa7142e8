"""Where every lost accelerator-second went, what made the curve bend, and what would mend it.

The ledger prices the loss exactly: part by part, `K p(K) - K0 p(K0)` in the strong regime and `K (p(K) - p(K0))` in
the weak one, so that the entries sum to `K T(K) - K0 T(K0)` or `K (T(K) - T(K0))`. Diagnosis, plots and audits read
this one ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.predict.coefficients import NAMES
from perfmodel.predict.curve import Curve, coefficients
from perfmodel.predict.layouts import Sharding
from perfmodel.predict.step import step

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Remedy:
    """A change that treats one cause: words, and the log shifts of coefficients that stand for it."""

    words: str
    shifts: Mapping[str, float]


_HALF, _DOUBLE = -float(np.log(2.0)), float(np.log(2.0))
_LINKS = {"up_efficiency": _DOUBLE, "out_efficiency": _DOUBLE, "bus_bytes_per_s": _DOUBLE}

REMEDIES: dict[str, Remedy] = {
    "compute": Remedy("a larger batch per accelerator: small pieces of work run below the roofline", {"call_s": _HALF}),
    "host": Remedy("compile or capture graphs: halve the host's time per kernel", {"host_kernel_s": _HALF, "micro_s": _HALF, "step_s": _HALF}),
    "tensor_parallel": Remedy("twice the bandwidth inside a tensor-parallel group, or a smaller group", _LINKS),
    "context_parallel": Remedy("twice the bandwidth between context-parallel ranks", _LINKS),
    "expert_parallel": Remedy("twice the bandwidth for the expert all-to-all, or fewer expert ranks", _LINKS),
    "pipeline_messages": Remedy("twice the bandwidth between pipeline stages", _LINKS),
    "imbalance": Remedy("balance the stages: fewer layers beside the logits", {"last_stage": _HALF}),
    "bubble": Remedy("more micro-batches per step, or interleaved stages", {"bubble": _HALF}),
    "sharded_weights": Remedy("twice the bandwidth, or shard inside a node only", _LINKS),
    "data_parallel": Remedy("twice the bandwidth, gradient compression, or synchronising every second step", _LINKS),
    "optimizer": Remedy("shard the optimizer (zero1)", {"optimizer": _HALF}),
    "contention": Remedy("more host cores and memory channels per accelerator, or fewer accelerators a node",
                         {"dp_on": _HALF, "half_node": _HALF, "local": _HALF, "crossing": _HALF, "doubling": _HALF}),
    "synchronisation": Remedy("synchronise every second step", {"sync_s": _HALF, "node_sync_s": _HALF}),
    "straggler": Remedy("less jitter: isolate cores, drop slow workers, add spares", {"jitter": _HALF}),
    "input_stall": Remedy("twice the input rate: more loader workers or faster storage", {"input_s": _HALF}),
    "serial": Remedy("shorten the serial stage", {}),
}  # fmt: skip

_WORDS: dict[str, str] = {
    "compute": "arithmetic in pieces too small to run at full rate",
    "host": "the host that cannot issue kernels fast enough",
    "tensor_parallel": "tensor-parallel all-reduce",
    "context_parallel": "context-parallel exchange of keys and values",
    "expert_parallel": "expert all-to-all",
    "pipeline_messages": "pipeline messages",
    "imbalance": "the last pipeline stage with logits and loss",
    "bubble": "the pipeline bubble",
    "sharded_weights": "gathering sharded weights",
    "data_parallel": "gradient all-reduce",
    "optimizer": "the optimizer step",
    "contention": "contention for the host and the network",
    "synchronisation": "synchronisation of the workers",
    "straggler": "waiting for the slowest worker",
    "input_stall": "the input pipeline",
    "serial": "the serial part",
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
    words = _WORDS[part]
    sharding = float(np.broadcast_to(curve.at.sharding, curve.k.shape)[index])
    if part == "data_parallel" and sharding == Sharding.PARAMETER_SERVER:
        words = "exchange with the parameter server"
    nodes = float(curve.k[index] / np.broadcast_to(curve.at.per_node, curve.k.shape)[index])
    if part in ("data_parallel", "sharded_weights", "tensor_parallel", "expert_parallel"):
        tier = (
            "inter-node"
            if nodes > 1 and (part != "tensor_parallel" or _tensor_leaves_node(curve, index))
            else "intra-node"
        )
        words = f"{tier} {words}"
    where = f"of the step at K={int(curve.k[index])}"
    if part == "compute":
        more = float(lost[part][index] / (curve.k[index] * curve.time_s[index]))
        return f"{words} loses {more:.0%} {where}"
    return f"{words} takes {float(curve.parts[part][index] / curve.time_s[index]):.0%} {where}"


def _tensor_leaves_node(curve: Curve, index: int) -> bool:
    tp = float(np.broadcast_to(curve.at.tp, curve.k.shape)[index])
    return tp > float(curve.setup.machine.domain)


def after_remedy(curve: Curve, part: str) -> Array:
    """T(K) with the remedy for one cause, on the same layouts; the curve keeps it."""
    if part in curve.mended:
        return curve.mended[part]
    remedy = REMEDIES[part]
    logs = curve.logs.copy()
    for name, shift in remedy.shifts.items():
        logs[NAMES.index(name)] += shift
    ops = curve.setup.operations
    if part == "serial":
        ops = replace(ops, serial_s=ops.serial_s * 0.5)
    found = coefficients(curve.setup, logs[:, None], curve.k)
    changed = step(ops, curve.setup.machine, curve.at, found).time_s
    curve.mended[part] = np.asarray(curve.time_s * changed / curve.step.time_s)
    return curve.mended[part]
