"""Declared inputs of a job at one K, each with its value, unit, source and confidence, and what fell back to a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.physics.algorithms import ALGORITHMS
from perfmodel.physics.compute import repeated_share
from perfmodel.physics.constants import DEFAULT_NETWORK_BYTES_PER_S, HOST_LINK_BYTES_PER_S
from perfmodel.physics.layouts import DECLARED as USUAL
from perfmodel.physics.layouts import Sharding
from perfmodel.physics.machine import (
    FALLBACKS,
    GPU_VENDORS,
)
from perfmodel.specs.fields import Origin, SpecModel
from perfmodel.specs.jobs import Job
from perfmodel.training.curve import Curve, coefficients
from perfmodel.training.setup import setup_of
from perfmodel.training.step import interleaved
from perfmodel.units import format_quantity

DECLARED = "declared"  # by the job itself: no knowledge of the world


@dataclass(frozen=True)
class Fact:
    """One input. `unit` is a base unit of `perfmodel.units`, or "" for counts and words."""

    value: float | str | None
    unit: str
    source: str | None
    confidence: str
    date: str | None = None

    @property
    def shown(self) -> str:
        """The value with its unit."""
        if isinstance(self.value, str) or self.value is None:
            return self.value or "none"
        if self.unit:
            return format_quantity(self.value, self.unit)
        return f"{self.value:,.0f}" if float(self.value).is_integer() else f"{self.value:.4g}"


# Hardware facts that a slope is taken of, and the fields of the machine that move with them.
MACHINE_FIELDS: dict[str, tuple[str, ...]] = {
    "peak rate": ("peak_flop_per_s", "peak16_flop_per_s"),
    "memory bandwidth": ("memory_bytes_per_s",),
    "compute units": ("units", "unit_hz"),
    "scale-up bandwidth": ("up_bytes_per_s",),
    "network bandwidth": ("out_bytes_per_s",),
    "scale-up latency": ("up_latency_s",),
    "network latency": ("out_latency_s",),
}


def _of(record: SpecModel | None, field: str, value: float | None, unit: str, default: str) -> Fact:
    """A fact of a record, with the origin of that very field."""
    if record is None or value is None:
        return Fact(value, unit, default, "assumed")
    origin: Origin = record.origin(field)
    return Fact(value, unit, origin.source, origin.confidence or "assumed", origin.date)


def facts(job: Job, found: Curve, index: int) -> dict[str, Fact]:
    """Everything declared that the step at one K rests on."""
    return {
        **_hardware(job, found),
        **_work(job, found),
        **_layout(job, found, index),
        **_declared(job, found),
    }


def _hardware(job: Job, found: Curve) -> dict[str, Fact]:
    node, machine = job.cluster.node, found.setup.machine
    device, up, out = node.accelerator, node.scale_up, job.cluster.network
    rate = next((name for name in FALLBACKS[job.precision] if name in device.peak), job.precision)
    network = float(machine.out_bytes_per_s * machine.node)
    cards = job.cluster.cards
    link = _of(out, "bandwidth", network, "B/s", "default: the usual network of such nodes")
    if job.cluster.network_per_node is not None and out is not None:
        link = Fact(network, "B/s", f"network_per_node, on {out.name}", link.confidence, link.date)
    elif out is not None:
        link = Fact(
            link.value,
            "B/s",
            f"{cards or 1} x {out.name}: {link.source or 'given'}",
            link.confidence,
            link.date,
        )
    return {
        "peak rate": _of(device, f"peak.{rate}", float(machine.peak_flop_per_s), "FLOP/s", "default"),
        "memory bandwidth": _of(device, "memory_bandwidth", device.memory_bandwidth, "B/s", "default"),
        "memory": _of(device, "memory", device.memory, "B", "default"),
        "compute units": _of(device, "compute_units", device.compute_units, "", "nobody gave them"),
        "scale-up bandwidth": _of(
            up, "bandwidth", float(machine.up_bytes_per_s), "B/s", "default: PCIe 3, as none is stated"
        ),
        "network bandwidth": link,
        "scale-up latency": _of(up, "latency", float(machine.up_latency_s), "s", "default: not stated"),
        "network latency": _of(out, "latency", float(machine.out_latency_s), "s", "default: not stated"),
        "accelerators per node": _of(node, "accelerators_per_node", float(node.accelerators_per_node), "", ""),
        "scale-up domain": _of(node, "scale_up_domain", float(machine.domain), "", "the node"),
    }  # fmt: skip


def _work(job: Job, found: Curve) -> dict[str, Fact]:
    work, ops = job.workload, found.setup.operations
    counted = "counted from the workload's dimensions"

    def given(field: str, value: NDArray[np.float64], unit: str = "") -> Fact:
        if getattr(work, field, None) is None:
            return Fact(float(value), unit, "default: not stated", "assumed")
        return _of(work, field, float(value), unit, counted)

    return {
        "parameters": given("params", ops.params),
        "layers": given("layers", ops.layers),
        "hidden width": given("hidden", ops.hidden),
        "tokens per sample": Fact(float(ops.tokens), "", "job" if job.seq_len else work.source, DECLARED),
        "FLOP per sample": Fact(float(ops.training_flop()), "FLOP", counted, work.confidence or "assumed"),
        "kernels": given("kernels", ops.kernels)
        if not float(ops.is_transformer)
        else Fact(float(ops.kernels), "", counted, "assumed"),
        "input bytes per sample": given("input_bytes_per_sample", ops.input_bytes, "B"),
        "serial time": Fact(float(ops.serial_s), "s", "job" if work.serial_time else "none declared", DECLARED),
    }  # fmt: skip


def _layout(job: Job, found: Curve, index: int) -> dict[str, Fact]:
    shown = found.names[index]
    how, basis = ("the fastest that fits", "chosen") if job.layout == "auto" else ("job", DECLARED)
    names = {"micro_batch": "micro-batch", "recompute": "recomputation"}
    made: dict[str, Fact] = {
        names.get(key, key): Fact(
            float(value) if isinstance(value, (int, float)) else str(value), "", how, basis
        )
        for key, value in shown.items()
        if value is not None
    }
    if shown["vpp"] is None:
        c = coefficients(found.setup, found.logs[:, None], found.k)
        stages = np.broadcast_to(interleaved(found.setup.operations, found.at, c).vpp, found.k.shape)
        made["vpp"] = Fact(float(stages[index]), "", "a belief: the virtual stages are not stated", "assumed")
    if shown["recompute"] is None:
        share = repeated_share(found.at, coefficients(found.setup, found.logs[:, None], found.k))
        made["recomputation"] = Fact(
            float(share[index]), "", "a belief: how much is repeated is not stated", "assumed"
        )
    batch = float(np.asarray(found.setup.global_batch)[index])
    return made | {
        "K": Fact(float(found.k[index]), "", "job", DECLARED),
        "batch": Fact(batch, "", "job", DECLARED),
        "distribution of the jitter": Fact("lognormal, of the believed spread", "", "default", "assumed")
        if job.jitter is None
        else Fact(found.setup.variation.in_words(), "", "job", DECLARED),
        "framework": Fact(
            job.framework, "", *(("job", DECLARED) if job.framework_given else ("default", "assumed"))
        ),
    }


# Values of `layouts.DECLARED` by the name under which people read them, with their unit.
DECLARED_NAMES: dict[str, tuple[str, str]] = {
    "gradient_bytes": ("gradient bytes", "B"),
    "compression": ("compression", ""),
    "compression_s": ("cost of compression", "s"),
    "sync_every": ("synchronised every", ""),
    "bucket_bytes": ("bucket", "B"),
    "first_bucket_bytes": ("first bucket", "B"),
    "stall_s": ("stalls", "s"),
    "loader_bytes_per_s": ("loader rate", "B/s"),
    "storage_bytes_per_s": ("storage rate", "B/s"),
    "length_spread": ("length spread", ""),
    "slow_share": ("slow share", ""),
    "slowdown": ("slowdown", ""),
    "data_algorithm": ("algorithm between replicas", ""),
    "tensor_algorithm": ("algorithm inside tensor groups", ""),
    "context_algorithm": ("algorithm along the sequence", ""),
    "expert_algorithm": ("algorithm between experts", ""),
}


# What a class of frameworks does where a job does not say (`layouts.usual_bucket_bytes`, `usual_gradient_bytes`).
FRAMEWORK_DEFAULT = "default of "
_BY_FRAMEWORK = {
    "bucket_bytes": "all gradients in one call, after the backward pass",
    "gradient_bytes": "gradients of bf16 are added and reduced in 32 bit",
}


def _declared(job: Job, found: Curve) -> dict[str, Fact]:
    """What the job declares beside its layout; a default, of its framework or of all, where it does not."""
    made = {}
    wide = float(found.setup.machine.element_bytes) > 2.0
    # The two that a framework may have of its own: saying the usual value there is saying something.
    said = {"bucket_bytes": job.bucket, "gradient_bytes": job.gradient_dtype}
    for key, (name, unit) in DECLARED_NAMES.items():
        value = found.setup.declared.get(key, USUAL[key])
        if key.endswith("_algorithm"):
            said_so = key in found.setup.declared
            made[name] = Fact(ALGORITHMS[int(value)], "", "job" if said_so else "default", DECLARED)
            continue
        by_layer = key == "bucket_bytes" and bool((found.at.sharding > Sharding.ZERO2).all())
        if by_layer and said[key] is None:
            made[name] = Fact("none", "", "default: sharded weights go layer by layer", DECLARED)
        elif said.get(key) is None and key in _BY_FRAMEWORK and key in found.setup.declared:
            source = f"{FRAMEWORK_DEFAULT}{job.framework}: {_BY_FRAMEWORK[key]}"
            made[name] = Fact(value, unit, source, "assumed")
        elif key in found.setup.declared or said.get(key) is not None:
            made[name] = Fact(value, unit, "job", DECLARED)
        elif key == "gradient_bytes":
            made[name] = Fact(4.0 if wide else 2.0, unit, "default: as the precision has it", "assumed")
        elif np.isfinite(value):
            made[name] = Fact(value, unit, "default", DECLARED)
        else:
            made[name] = Fact("not declared", "", "default: the belief about the host's input rate", DECLARED)
    return made


def calibrated_on(job: Job) -> dict[str, str | int]:
    """What a calibration on this job is about: kept with its beliefs."""
    return setup_of(job).identity


def foreign(job: Job, beliefs: Beliefs) -> list[str]:
    """A warning where the beliefs were calibrated on another cluster or, by step times, on another workload or setting.

    Files of older versions do not say on what, or name no settings.
    """
    known, held = beliefs.meta.get("calibrated_on"), beliefs.calibration
    if held is None or not isinstance(known, Mapping):
        return []
    own = calibrated_on(job)
    about = ("workload", "cluster") if held.k.size else ("cluster",)  # a link's rate is of no workload
    differs = [key for key in setup_of(job).differs(known) if held.k.size or key in about]
    if not differs:
        return []
    changed = [
        f"{key} {known[key]} there, {own.get(key, 'none')} here" for key in differs if key not in about
    ]
    there, here = (" on ".join(str(names.get(key, "?")) for key in about) for names in (known, own))
    settings = f" ({'; '.join(changed)})" if changed else ""
    use = ", and its step times are no points of this curve" if held.k.size else ""
    return [
        f"beliefs: calibrated on {there}, used for {here}{settings}: what was measured there need not hold here{use}"
    ]


def unmeasured(job: Job, beliefs: Beliefs) -> list[str]:
    """A note where no measured run is of the job's framework class: neither among the population nor the job's own."""
    if any(
        count > 0 and level == "framework" and value == job.framework
        for (_, level, value), count in beliefs.counts.items()
    ):
        return []
    held, on = beliefs.calibration, beliefs.meta.get("calibrated_on")
    if held is not None and held.k.size and isinstance(on, Mapping) and on.get("framework") == job.framework:
        return []
    return [
        f"framework {job.framework}: no measured run of this class stands behind the beliefs, so what all classes have "
        "in common is used, with wider bands; calibrate with timings of your own"
    ]


def defaults(job: Job, found: Curve) -> list[str]:
    """Facts that were neither declared nor measured, in words."""
    node = job.cluster.node
    said = [note for note in job.notes if "default" in note or "nearest precision" in note]
    if job.cluster.network_bytes_per_s is None:
        said.append(f"network: {format_quantity(DEFAULT_NETWORK_BYTES_PER_S, 'B/s')} a node, not stated")
    if node.scale_up is None:
        said.append(f"scale-up link: {format_quantity(HOST_LINK_BYTES_PER_S, 'B/s')}, not stated")
    device = node.accelerator
    if device.vendor in GPU_VENDORS and device.compute_units is None:
        said.append(
            f"compute units of {device.name} are not stated, so its products lose nothing to part-full waves of tiles"
        )
    for field, what in (("kernels", "kernel launches"), ("input_bytes_per_sample", "input bytes")):
        if not float(found.setup.operations.is_transformer) and getattr(job.workload, field) is None:
            said.append(f"{what} of the workload: a typical count")
    for basis, words in (
        ("assumed", "never measured: the textbook value"),
        ("inherited", "of related hardware"),
    ):
        names = sorted(name for name, known in found.belief.basis.items() if known == basis)
        if names:
            said.append(f"{words}: {', '.join(names)}")
    return said
