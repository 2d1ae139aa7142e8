"""Where each phase of a step sits under the roofline, and how it moves as the batch of a worker shrinks.

A phase computes F floating-point operations, moves V bytes through device memory and takes t seconds; it stands at
intensity F/V and rate F/t, under the roofs P (peak) and B F/V (memory bandwidth). Amounts are of one accelerator and
one step, as the step model counts them.

Reference: Williams, Waterman, Patterson, Communications of the ACM 52 (2009) 65.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.decide.prediction import curve_of, inputs_of
from perfmodel.explain.kernel import REMEDIES
from perfmodel.physics.coefficients import Coefficients
from perfmodel.physics.compute import (
    MicroBatch,
    micro_batch,
    other_work,
    score_bytes,
)
from perfmodel.physics.constants import (
    ATTENTION_PASSES,
    OPTIMIZER_BYTES,
    PRODUCT_BYTES,
    PRODUCTS_BACKWARD,
    SOFTMAX_BYTES,
)
from perfmodel.physics.products import products
from perfmodel.physics.roofline import ridge_flop_per_byte
from perfmodel.results.envelope import Result
from perfmodel.specs.jobs import Job
from perfmodel.training.curve import Curve, coefficients
from perfmodel.units import format_quantity

Array = NDArray[np.float64]

ELEMENTWISE_FLOP = 1.0  # per element read and written: norms, residuals, activations
ADAM_FLOP = 12.0  # per parameter of an optimizer step
WORTH_SAYING = 0.7  # share of the step under a roof below which the rest is mentioned
LOGITS = "logits and loss"
LAUNCH_BOUND = 0.5  # share of idle time from which a product is bound by launches and part-full waves


@dataclass(frozen=True)
class Phase:
    """FLOP, bytes, seconds of one accelerator and step at each K; `idle_s` is time that no roof explains.

    `compute_s` are seconds at the rate that such work can reach at most, where that is not the rate of products.
    """

    name: str
    flop: Array
    traffic_bytes: Array
    time_s: Array
    idle_s: Array = field(default_factory=lambda: np.zeros(()))
    compute_s: Array | None = None


def roofline(job: Job, beliefs: Beliefs | None = None, *, seed: int = 0) -> Result:
    """Phases of a job at every feasible K, with the roofs of its accelerator."""
    known = beliefs or shipped_beliefs()
    found = curve_of(job, known, draws=0, seed=seed)
    return Result("roofline", inputs_of(job, known), _result(job, found), seed)


class PhaseRow(TypedDict):
    """One kind of work on the roofline, at each K that can run."""

    name: str
    k: list[int]
    intensity_flop_per_byte: Array
    flop_per_s: Array
    flop: Array
    traffic_bytes: Array
    time_s: Array
    bound: list[str]


def _result(job: Job, found: Curve) -> dict[str, object]:
    machine = found.setup.machine
    c = coefficients(found.setup, found.logs[:, None], found.k)
    # Some jobs' device time is less than such operations usually take.
    quicker = max(1.0, 1.0 / float(np.ravel(c.pace)[0]))
    rate = float(machine.peak_flop_per_s * np.ravel(c.matmul)[0]) * quicker
    bandwidth = float(machine.memory_bytes_per_s * np.ravel(c.memory)[0]) * quicker
    good = found.feasible
    k = found.k[good].astype(int).tolist()
    rows = [_row(phase, good, k, rate, bandwidth) for phase in phases(found, c)] if good.any() else []
    rows = [row for row in rows if any(row["time_s"])]
    work = found.setup.operations.training_flop() * found.setup.global_batch / found.k
    reached = np.where(good, work / found.time_s, np.nan)
    return {
        "peak_flop_per_s": float(machine.peak_flop_per_s),
        "memory_bandwidth_bytes_per_s": float(machine.memory_bytes_per_s),
        "ridge_flop_per_byte": float(ridge_flop_per_byte(machine.peak_flop_per_s, machine.memory_bytes_per_s)),
        "achievable_flop_per_s": rate,
        "achievable_bytes_per_s": bandwidth,
        "k": found.k.astype(int),
        "batch_per_accelerator": found.setup.global_batch / found.k,
        "step_flop_per_s": reached,
        "model_flop_utilisation": reached / float(machine.peak_flop_per_s),
        "phases": rows,
        "reason": list(found.reasons),
        "layout": [name if ok else None for name, ok in zip(found.names, good, strict=True)],
        "answer": _sentence(found, rows, reached / float(machine.peak_flop_per_s)),
        "advice": _advice(rows),
        "notes": [note for note in job.notes if not note.startswith("price")] + _saved(found),
    }  # fmt: skip


def _advice(rows: Sequence[PhaseRow]) -> dict[str, dict[str, object]]:
    """For each roof that binds at the largest K: which phases, and what to do."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row["bound"][-1], []).append(row["name"])
    return {bound: {"phases": phases, "remedy": REMEDIES[bound]} for bound, phases in names.items()}


def _saved(found: Curve) -> list[str]:
    """Why the counted rate may exceed the peak."""
    if not np.any(found.setup.machine.fast_convolutions * found.setup.operations.conv3x3_flop):
        return []
    return [
        "3x3 convolutions in 32 bit take fewer multiplications than are counted (Winograd): the model rate may exceed the peak"
    ]


def _row(phase: Phase, good: NDArray[np.bool_], k: list[int], rate: float, bandwidth: float) -> PhaseRow:
    flop, traffic, time, idle, compute = (
        np.broadcast_to(value, good.shape)[good]
        for value in (
            phase.flop,
            phase.traffic_bytes,
            phase.time_s,
            phase.idle_s,
            phase.flop / rate if phase.compute_s is None else phase.compute_s,
        )
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(compute >= traffic / bandwidth, "compute", "memory")
        bound = np.where(idle > LAUNCH_BOUND * time, "launch", bound)
        return {
            "name": phase.name,
            "k": k,
            "intensity_flop_per_byte": flop / traffic,
            "flop_per_s": flop / time,
            "flop": flop,
            "traffic_bytes": traffic,
            "time_s": time,
            "bound": bound.tolist(),
        }


def phases(found: Curve, c: Coefficients) -> list[Phase]:
    """Matrix products by shape, attention, element-wise work, other layers, logits and optimizer."""
    ops, machine, at = found.setup.operations, found.setup.machine, found.at
    mb = micro_batch(ops, machine, at, c)
    bandwidth = machine.memory_bytes_per_s * c.memory
    m, cut = at.accumulation, 1.0 / (at.cp * at.tp * at.pp)
    width = at.micro_batch * ops.tokens / at.cp / at.tp * machine.element_bytes
    tensors = width * (2.0 * ops.hidden + ops.kv_width) * ops.attention_layers / at.pp
    repeated = np.maximum(mb.repeated, at.selective)
    moved = sum(score_bytes(ops, machine, repeated, each) for each in (PRODUCT_BYTES, SOFTMAX_BYTES))
    scores = at.micro_batch * ops.score_elements * cut * c.unfused * moved
    unfused = np.minimum(c.unfused, 1.0)
    passes = (1.0 - unfused) * (ATTENTION_PASSES + repeated) + unfused * (1.0 + ops.masked) * (
        1.0 + PRODUCTS_BACKWARD + repeated
    )
    elementwise = mb.elementwise / c.pace * bandwidth
    other = at.micro_batch * cut * (3.0 + mb.repeated)
    optimizer = found.step.parts["optimizer"]
    owned = optimizer * bandwidth / (OPTIMIZER_BYTES * c.optimizer)
    return [
        *_products(found, c, mb),
        Phase("attention", m * at.micro_batch * ops.attention_flop * cut * passes,
              m * (tensors * (ATTENTION_PASSES + repeated) + scores), m * mb.attention),
        Phase("element-wise", m * elementwise * ELEMENTWISE_FLOP / (2.0 * machine.element_bytes), m * elementwise,
              m * mb.elementwise),
        Phase("convolutions and other", m * other * other_work(ops, machine, c),
              m * other * ops.other_traffic * 0.5 * machine.element_bytes * c.other_traffic, m * mb.other),
        Phase("optimizer", owned * ADAM_FLOP, owned * OPTIMIZER_BYTES * c.optimizer, optimizer),
    ]  # fmt: skip


def _products(found: Curve, c: Coefficients, mb: MicroBatch) -> list[Phase]:
    """Matrix products of the same shape together; logits with the loss that follows them."""
    ops, machine, at, m = found.setup.operations, found.setup.machine, found.at, found.at.accumulation
    made: dict[str, Phase] = {}
    for product in products(ops, machine, at, c, mb.repeated):
        shape = f"{ops.slot_inner[product.slot]:.0f} x {ops.slot_outer[product.slot]:.0f}"
        kind = "experts" if product.is_routed else "product"
        name = LOGITS if product.is_logits else f"{kind} {shape}"
        phase = Phase(
            name, m * product.flop, m * product.elements * machine.element_bytes, m * product.seconds,
            m * product.idle_s, m * product.compute_s,
        )  # fmt: skip
        made[name] = _joined(made.get(name), phase)
    if LOGITS in made:
        loss = m * at.micro_batch * ops.logit_elements / (at.cp * at.tp) * c.loss_bytes
        seconds = c.pace * loss / (machine.memory_bytes_per_s * c.memory)
        none = np.zeros(())
        made[LOGITS] = _joined(made[LOGITS], Phase(LOGITS, none, loss, seconds, none, none))
    return list(made.values())


def _joined(one: Phase | None, other: Phase) -> Phase:
    if one is None:
        return other
    compute = None if one.compute_s is None or other.compute_s is None else one.compute_s + other.compute_s
    return Phase(
        one.name, one.flop + other.flop, one.traffic_bytes + other.traffic_bytes, one.time_s + other.time_s,
        one.idle_s + other.idle_s, compute,
    )  # fmt: skip


def _sentence(found: Curve, rows: Sequence[PhaseRow], utilisation: Array) -> str:
    """How far the step is from the peak at both ends, and which phase turns memory- or launch-bound on the way."""
    good = np.flatnonzero(found.feasible)
    if not good.size:
        return f"Nothing fits: {next(reason for reason in found.reasons if reason)}."
    first, last = int(good[0]), int(good[-1])
    peak = format_quantity(float(found.setup.machine.peak_flop_per_s), "FLOP/s")
    text = f"The step reaches {utilisation[first]:.0%} of {peak} at K = {int(found.k[first])}"
    if last != first:
        text += f" and {utilisation[last]:.0%} at K = {int(found.k[last])}"
    ridge = ridge_flop_per_byte(found.setup.machine.peak_flop_per_s, found.setup.machine.memory_bytes_per_s)
    largest = max(rows, key=lambda row: float(row["time_s"][-1]))
    text += f"; at K = {int(found.k[last])} {largest['name']} takes most, bound by {largest['bound'][-1]}."
    text += f" The ridge lies at {float(ridge):.4g} FLOP per byte: less is bound by memory, more by the peak rate."
    busy = sum(float(row["time_s"][-1]) for row in rows) / float(found.step.time_s[last])
    if busy < WORTH_SAYING:
        text += f" Only {busy:.0%} of the step is under a roof there: the rest is host, communication and waiting."
    turned = [
        (row["name"], row["k"][i], row["bound"][i])
        for row in rows
        for i in range(1, len(row["k"]))
        if row["bound"][i] != row["bound"][i - 1]
    ]
    if turned:
        text += (
            " " + "; ".join(f"{name} becomes {bound}-bound at K = {k}" for name, k, bound in turned[:3]) + "."
        )
    return text
