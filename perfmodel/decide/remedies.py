"""What would mend the cause of a bend, given what the job already does, and T(K) after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics import parts
from perfmodel.physics.coefficients import NAMES
from perfmodel.physics.layouts import SHARDED, Layouts, Sharding
from perfmodel.physics.operations import Operations
from perfmodel.physics.parts import BY_NAME
from perfmodel.training.curve import Curve, coefficients
from perfmodel.training.step import step

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Here:
    """What a job does at one K, as far as it decides which remedies are left."""

    at: Layouts
    index: int
    layers: int

    def of(self, name: str) -> float:
        """One number of the layout there."""
        return float(np.broadcast_to(getattr(self.at, name), self.at.k.shape)[self.index])

    @property
    def ranks(self) -> float:
        """Those that hold the same weights before sharding."""
        return self.of("dp") * self.of("cp")

    @property
    def is_sharded(self) -> bool:
        """Whether ranks share one copy of the states."""
        return self.of("sharding") in SHARDED

    @property
    def steps_alone(self) -> bool:
        """Whether a replica holds everything, and could go without an exchange for some steps."""
        return not self.is_sharded or self.of("sharding") == Sharding.HSDP

    @property
    def is_uneven(self) -> bool:
        """Whether some replicas have more samples than others."""
        slots = self.of("dp") * self.of("micro_batch") * self.of("accumulation")
        return self.of("global_batch") < slots * (1.0 - 1e-9)


def job_at(curve: Curve, index: int) -> Here:
    """The job at one K of its curve."""
    return Here(curve.at, index, curve.setup.workload.layers or 1)


# What bandwidth is of, and what of the model stands for it.
LINKS: Final[Mapping[str, str]] = {
    "of the scale-up links": "up_efficiency",
    "of the network": "out_efficiency",
    "of the host's bus": "bus_bytes_per_s",
}
BANDWIDTH: Final = "twice the bandwidth"


def remedy(job: Here, part: str, link: str | None = None) -> str:
    """The remedy for one cause; what the job already does, or could not do, is not among it. `link` is what is too slow."""
    words = BY_NAME[part].remedy or _either(_WAYS[part](job))
    return words.replace(BANDWIDTH, f"{BANDWIDTH} {link}", 1) if link else words


def slowest_link(curve: Curve, part: str, index: int) -> str | None:
    """The one of the links under a part of which twice the bandwidth saves most at one K; None where none matters."""
    eased = BY_NAME[part].eased
    links = {words: {name: eased[name]} for words, name in LINKS.items() if name in eased}
    if not links:
        return None
    logs = np.stack([_eased(curve.logs, one) for one in links.values()], axis=1)
    times = _changed(curve, logs, curve.setup.operations, curve.at)[:, index]
    saves = dict(zip(links, 1.0 - times, strict=True))
    best = max(saves, key=lambda words: saves[words])
    return best if saves[best] > 0.0 else None


def _either(ways: list[str]) -> str:
    """
    >>> _either(["a"]), _either(["a", "b"]), _either(["a", "b", "c"])
    ('a', 'a, or b', 'a, b, or c')
    """
    return ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])}, or {ways[-1]}"


def _experts(job: Here) -> list[str]:
    if job.of("ep") == 1.0:  # tables of a recommender
        return ["twice the bandwidth for the exchange of embedding vectors"]
    return ["twice the bandwidth for the expert all-to-all", "fewer expert ranks"]


def _imbalance(job: Here) -> list[str]:
    ways = ["balance the stages: fewer layers beside the logits"] if job.of("pp") > 1.0 else []
    if job.is_uneven:
        ways.append("a batch that the replicas share evenly")
    if job.of("length_spread") > 0.0:
        ways.append("samples sorted or packed by length")
    return ways or ["even out the shares"]


def _bubble(job: Here) -> list[str]:
    more = "more micro-batches per step"
    ways = [f"{more}, by a larger batch" if job.of("micro_batch") <= 1.0 else more]
    if not job.of("vpp") > 1.0 and job.layers > job.of("pp"):
        ways.append("interleaved stages")
    return ways


def _weights(job: Here) -> list[str]:
    in_node = max(job.of("per_node") / job.of("tp"), 1.0)
    nodes = job.of("k") > job.of("per_node")
    inside = ["shard inside a node only"] if nodes and min(job.of("shard_group"), job.ranks) > in_node else []
    return ["twice the bandwidth", *inside]


def _gradients(job: Here) -> list[str]:
    ways = ["twice the bandwidth"]
    if job.of("compression") <= 1.0:
        ways.append("gradient compression")
    if job.steps_alone:
        seldom = "less often" if job.of("sync_every") > 1.0 else "every second step"
        ways.append(f"synchronising {seldom}")
    return ways


def _optimizer(job: Here) -> list[str]:
    if job.of("sharding") == Sharding.DDP and job.ranks > 1.0:
        return ["shard the optimizer (zero1)"]
    if job.is_sharded and job.of("shard_group") < job.ranks:
        return ["shard the optimizer over all ranks"]
    return ["a fused optimizer", "optimizer states of fewer bytes"]


def _contention(job: Here) -> list[str]:
    fewer = ["fewer accelerators a node"] if job.of("per_node") > 1.0 else []
    return ["more host cores and memory channels per accelerator", *fewer]


def _meetings(job: Here) -> list[str]:
    if not job.steps_alone:  # sharded states are needed in every step
        return ["a larger batch: fewer meetings for the same samples"]
    return ["synchronise less often" if job.of("sync_every") > 1.0 else "synchronise every second step"]


def _straggler(job: Here) -> list[str]:
    slow = "replace the slow devices" if job.of("slow_share") > 0.0 else "drop slow workers"
    return [f"less jitter: isolate cores, {slow}, add spares"]


_WAYS: Final[Mapping[str, Callable[[Here], list[str]]]] = {
    parts.EXPERT_PARALLEL.name: _experts,
    parts.IMBALANCE.name: _imbalance,
    parts.BUBBLE.name: _bubble,
    parts.SHARDED_WEIGHTS.name: _weights,
    parts.DATA_PARALLEL.name: _gradients,
    parts.OPTIMIZER.name: _optimizer,
    parts.CONTENTION.name: _contention,
    parts.SYNCHRONISATION.name: _meetings,
    parts.STRAGGLER.name: _straggler,
}


def after_remedy(curve: Curve, part: str) -> Array:
    """T(K) with the remedy for one cause, on the same layouts; the curve keeps it.

    Remedies that ease coefficients alone are answered together, in one call of the step.
    """
    if part not in curve.mended:
        together = [part] if part in _OTHERWISE else [name for name in BY_NAME if name not in _OTHERWISE]
        ops, at = _OTHERWISE.get(part, _as_they_are)(curve.setup.operations, curve.at)
        logs = np.stack([_eased(curve.logs, BY_NAME[name].eased) for name in together], axis=1)
        times = curve.time_s * _changed(curve, logs, ops, at)
        curve.mended.update(zip(together, times, strict=True))
    return curve.mended[part]


def _eased(logs: Array, factors: Mapping[str, float]) -> Array:
    """Log coefficients with some of them multiplied."""
    eased = logs.copy()
    for name, factor in factors.items():
        eased[NAMES.index(name)] += float(np.log(factor))
    return eased


def _as_they_are(ops: Operations, at: Layouts) -> tuple[Operations, Layouts]:
    return ops, at


def _less_serial(ops: Operations, at: Layouts) -> tuple[Operations, Layouts]:
    return replace(ops, serial_s=ops.serial_s * 0.5), replace(at, stall_s=at.stall_s * 0.5)


def _even(ops: Operations, at: Layouts) -> tuple[Operations, Layouts]:
    shared = np.minimum(at.micro_batch, at.global_batch / (at.dp * at.accumulation))
    return ops, replace(at, micro_batch=shared, length_spread=at.length_spread * 0.5)


def _faster_input(ops: Operations, at: Layouts) -> tuple[Operations, Layouts]:
    loader, storage = at.loader_bytes_per_s * 2.0, at.storage_bytes_per_s * 2.0
    return ops, replace(at, loader_bytes_per_s=loader, storage_bytes_per_s=storage)


def _none_slow(ops: Operations, at: Layouts) -> tuple[Operations, Layouts]:
    return ops, replace(at, slow_share=np.zeros_like(at.slow_share))


# Remedies that change the work or the layout as well.
_OTHERWISE: Final[Mapping[str, Callable[[Operations, Layouts], tuple[Operations, Layouts]]]] = {
    parts.SERIAL.name: _less_serial,
    parts.IMBALANCE.name: _even,
    parts.INPUT_STALL.name: _faster_input,
    parts.STRAGGLER.name: _none_slow,
}


def padding_saves(curve: Curve) -> Array:
    """Share of the step that a vocabulary rounded up to a multiple of eight saves at each K."""
    padded = replace(curve.setup.operations, logit_width=np.zeros(()))
    return np.asarray(1.0 - _changed(curve, curve.logs[:, None], padded, curve.at)[0])


def _changed(curve: Curve, logs: Array, ops: Operations, at: Layouts) -> Array:
    """T(K) with each of other coefficients (one set a column), operations or layouts over that of the curve."""
    found = coefficients(curve.setup, logs[:, :, None], curve.k)
    times = step(ops, curve.setup.machine, at, found).time_s
    return np.broadcast_to(times, (logs.shape[1], curve.k.size)) / curve.step.time_s
