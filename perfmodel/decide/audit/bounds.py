"""Physical bounds: arithmetic, links, memory, energy. Each breaks a claim for good, with the arithmetic shown.

None of the numbers here is fitted. Each bound is the most generous one that physics allows: full overlap, perfect
kernels, dense datasheet peaks, collectives at their bandwidth lower bound.
"""

from __future__ import annotations

import math

from perfmodel.decide.audit.findings import Finding
from perfmodel.decide.audit.normalise import Point, Series
from perfmodel.decide.audit.subject import WEIGHT_BYTES, Load, Machine, Split, Subject
from perfmodel.physics.constants import GRADIENT_BYTES
from perfmodel.physics.layouts import recompute_share
from perfmodel.specs.layout import Recompute
from perfmodel.units import format_quantity

# Rounded numbers on a slide, and datasheets that round the clock, may pass a bound by this much.
ROUNDING = 1.01
# A chip run slower and at a lower voltage needs less energy per FLOP than at its rated power; no public
# measurement saves more than this share of (rated - idle) power per FLOP.
VOLTAGE_ALLOWANCE = 0.4
MODEL_PASSES = 3.0  # one forward, and a backward of twice its FLOP (Korthikanti et al. 2022, sec. 5)
# Weights are updated, so their gradients exist: 2 B each in 16 bit, 1 B below; Adam adds two states.
ADAM_BYTES = 8.0


def least_compute_s(samples: float, k: float, load: Load, peak_flop_per_s: float) -> float:
    """Seconds that K accelerators at their peak need for the arithmetic of some samples: samples * FLOP_min / (K * peak)."""
    return samples * load.minimum_flop / (k * peak_flop_per_s)


def flop_above_peak(point: Point, machine: Machine, load: Load) -> Finding | None:
    """rate * FLOP_min / K <= peak(precision), FLOP_min what an algorithm needs for one sample."""
    if point.rate is None or point.rate_from in ("mfu", "tflop_per_s_per_accelerator"):
        return None
    peak, precision = machine.peak(point.precision)
    busy = least_compute_s(point.rate, point.k, load, peak)  # seconds of arithmetic in each second
    if busy <= ROUNDING:
        return None
    needed = busy * peak
    faster = [name for name, rate in machine.peak_flop_per_s.items() if rate * ROUNDING >= needed]
    hint = f" It would fit the peak at {' or '.join(sorted(faster))}." if faster else ""
    named = (
        precision if point.precision else f"{precision}, the fastest it has (the claim names no precision)"
    )
    return Finding(
        code="flop-above-peak",
        severity="impossible",
        claim=f"{point.rate:,.4g} {load.sample}s/s on {point.k}",
        bound=f"{peak * point.k / load.minimum_flop:,.4g} {load.sample}s/s ({format_quantity(peak, 'FLOP/s')} each in {named})",
        evidence=(
            f"{point.rate:,.4g} /s x {format_quantity(load.minimum_flop, 'FLOP')} ({load.minimum_why}) / {point.k} = "
            f"{format_quantity(needed, 'FLOP/s')} per accelerator, {busy:.2f} times the peak of {machine.name}.{hint}"
        ),
        weight=busy,
        k=point.k,
    )


def mfu_ceiling(recompute: Recompute | None) -> float:
    """Largest MFU of a device at its peak: passes that the model needs over passes executed, 3 / (3 + share).

    `selective` repeats attention alone, a share that slides leave out and that may be next to nothing.

    >>> mfu_ceiling(None), mfu_ceiling("selective"), mfu_ceiling("full"), mfu_ceiling(0.75)
    (1.0, 1.0, 0.75, 0.8)
    """
    repeated = 0.0 if recompute is None or recompute == "selective" else recompute_share(recompute)
    return MODEL_PASSES / (MODEL_PASSES + repeated)


def mfu_above_ceiling(point: Point, machine: Machine) -> Finding | None:
    """MFU <= 1, and less where a share of the forward pass is computed twice; FLOP/s <= peak."""
    peak, precision = machine.peak(point.precision)
    if "mfu" in point.stated:
        used = point.stated["mfu"]
        ceiling = mfu_ceiling(point.recompute)
        why = "no device computes faster than its peak"
        if ceiling < 1:
            repeats = "full recompute" if point.recompute == "full" else f"recompute {point.recompute}"
            executed, most = MODEL_PASSES / ceiling, "3/4" if point.recompute == "full" else f"{ceiling:.4g}"
            why = f"{repeats} executes {executed:.4g} passes where the model needs 3, so MFU <= {most} (HFU may reach 1)"
        claimed, bound = f"MFU {used:.3g} at K = {point.k}", f"MFU {ceiling:.4g}"
    elif "tflop_per_s_per_accelerator" in point.stated:
        used = point.stated["tflop_per_s_per_accelerator"] * 1e12 / peak
        ceiling = 1.0
        why = f"the dense peak of {machine.name} in {precision} is {format_quantity(peak, 'FLOP/s')}"
        claimed = (
            f"{point.stated['tflop_per_s_per_accelerator']:.4g} TFLOP/s per accelerator at K = {point.k}"
        )
        bound = format_quantity(peak, "FLOP/s")
        if 1.0 < used <= 2.0:
            why += f"; against a sparse peak it would be {used / 2:.2f} of it"
    else:
        return None
    if used <= ceiling * ROUNDING:
        return None
    return Finding(
        code="mfu-above-ceiling",
        severity="impossible",
        claim=claimed,
        bound=bound,
        evidence=f"{used:.3g} of the peak; {why}.",
        weight=used / ceiling,
        k=point.k,
    )


def exchange_bytes(gradient_bytes: float, n: int, reduces: bool) -> float:
    """Least bytes that one of n participants sends to add up vectors of `gradient_bytes` [B].

    2(n-1)/n of the vector (Patarasuk & Yuan 2009, theorem 1); once the vector where switches add on the way.

    >>> exchange_bytes(100.0, 4, reduces=False), exchange_bytes(100.0, 4, reduces=True), exchange_bytes(100.0, 1, False)
    (150.0, 100.0, 0.0)
    """
    if n <= 1:
        return 0.0
    ring = 2.0 * (n - 1) / n * gradient_bytes
    return min(ring, gradient_bytes) if reduces else ring


def links_too_slow(point: Point, subject: Subject) -> Finding | None:
    """T(K) >= bytes that must leave a node (or a device) per step / what its links carry, however well overlapped."""
    machine, load, split = subject.machine, subject.load_at(point.seq_len), point.split
    time_s = point.time_s
    if load is None or time_s is None or point.k == 1 or (load.is_transformer and not split.known):
        return None
    cut = split.tp * split.pp * split.cp
    replicas = point.k // cut
    if replicas <= 1 or machine.per_node is None:
        return None
    gradient = (
        load.synchronised_params
        / cut
        * (1.0 if point.precision in ("fp8", "fp4", "int8") else GRADIENT_BYTES)
    )
    domain = machine.domain or machine.per_node
    # The kindest placement: the replicas of one slice of the model fill a scale-up domain before a second one.
    groups = math.ceil(replicas / domain)
    bounds: list[tuple[float, str]] = []
    if groups > 1 and machine.node_bytes_per_s:
        sent = exchange_bytes(gradient, groups, machine.out_reduces)
        rate = machine.node_bytes_per_s * max(1, domain // machine.per_node)
        where = "nodes" if domain == machine.per_node else "scale-up domains"
        bounds.append(
            (
                sent / rate,
                f"{format_quantity(sent, 'B')} out of each of {groups} {where} at {format_quantity(rate, 'B/s')}",
            )
        )
    local = min(replicas, domain)
    if local > 1 and machine.up_bytes_per_s:
        sent = exchange_bytes(gradient, local, machine.up_reduces)
        rate = machine.up_bytes_per_s
        bounds.append(
            (
                sent / rate,
                f"{format_quantity(sent, 'B')} out of each of {local} accelerators at {format_quantity(rate, 'B/s')}",
            )
        )
    if not bounds:
        return None
    least_s, why = max(bounds)
    if time_s * ROUNDING >= least_s:
        return None
    return Finding(
        code="links-too-slow",
        severity="impossible",
        claim=f"a step in {format_quantity(time_s, 's')} on {point.k}",
        bound=f"at least {format_quantity(least_s, 's')}",
        evidence=(
            f"{load.synchronised_params:,.3g} parameters must be averaged every step: {why}, even with all communication "
            f"hidden behind compute ({least_s / time_s:.2f} times the claimed step)."
        ),
        weight=least_s / time_s,
        k=point.k,
    )


def state_bytes(load: Load, split: Split, k: int, precision: str | None, *, optimizer: bool) -> float:
    """Least bytes of weights, gradients and, if asked, Adam's two states on one accelerator [B].

    Nothing that the claim leaves open is held against it: without a layout everything is cut K ways.
    """
    weight = WEIGHT_BYTES.get(precision or "bf16", 2.0)
    gradient = GRADIENT_BYTES if weight >= 2 else 1.0
    trained = load.params * load.trainable_fraction
    if not split.known and load.is_transformer:
        cut = shard = float(k)
    else:
        cut = float(split.tp * split.pp * split.ep)
        shard = max(cut, float(k))
    full = split.sharding in ("fsdp", "zero3")
    weights = load.params * weight / (shard if full else cut)
    gradients = trained * gradient / (shard if full or split.sharding == "zero2" else cut)
    ddp = split.known and split.sharding in (None, "ddp", "parameter_server")
    states = trained * ADAM_BYTES / (cut if ddp else shard) if optimizer else 0.0
    return weights + gradients + states


def memory_does_not_fit(point: Point, subject: Subject) -> Finding | None:
    """Weights and gradients exceed the device: impossible. With Adam's states they do: suspicious."""
    machine, load, split = subject.machine, subject.load_at(point.seq_len), point.split
    if load is None:
        return None
    least = state_bytes(load, split, point.k, point.precision, optimizer=False)
    full = state_bytes(load, split, point.k, point.precision, optimizer=True)
    layout = f"tp {split.tp}, pp {split.pp}, {split.sharding or 'ddp'}" if split.known else "cut over all K"
    if load.is_transformer is False and not split.known:
        layout = "a replica on each accelerator"
    if least > machine.memory_bytes * ROUNDING:
        code, severity, held, words = (
            "memory-does-not-fit",
            "impossible",
            least,
            "weights and gradients alone",
        )
    elif load.is_transformer and full > machine.memory_bytes * ROUNDING:
        code, severity, held, words = (
            "memory-is-tight",
            "suspicious",
            full,
            "weights, gradients and Adam's states",
        )
    else:
        return None
    return Finding(
        code=code,
        severity=severity,
        claim=f"{load.name} on {point.k} x {machine.name}",
        bound=f"{format_quantity(machine.memory_bytes, 'B')} per accelerator",
        evidence=f"{load.params:,.3g} parameters ({layout}): {words} take {format_quantity(held, 'B')}, before any activation.",
        weight=held / machine.memory_bytes,
        k=point.k,
    )


def energy_below_arithmetic(point: Point, machine: Machine, load: Load) -> Finding | None:
    """E >= K*T*P_idle + FLOP/peak * (P_rated - P_idle) * allowance, for one step."""
    if point.energy_j is None or not point.global_batch or not machine.tdp_w:
        return None
    peak, _ = machine.peak(point.precision)
    idle = machine.idle_w or 0.0
    flop = point.global_batch * load.minimum_flop
    computing = flop / peak * (machine.tdp_w - idle) * VOLTAGE_ALLOWANCE
    waiting = point.k * (point.time_s or flop / peak / point.k) * idle
    least = computing + waiting
    if point.energy_j * ROUNDING >= least:
        return None
    return Finding(
        code="energy-below-arithmetic",
        severity="impossible",
        claim=f"{format_quantity(point.energy_j, 'J')} a step at K = {point.k}",
        bound=f"at least {format_quantity(least, 'J')}",
        evidence=(
            f"{format_quantity(flop, 'FLOP')} at {VOLTAGE_ALLOWANCE:g} of the rated {machine.tdp_w / peak * 1e12:.2g} pJ/FLOP is "
            f"{format_quantity(computing, 'J')}; idle power over the step adds {format_quantity(waiting, 'J')}."
        ),
        weight=least / point.energy_j,
        k=point.k,
    )


def findings(series: Series, subject: Subject) -> list[Finding]:
    """Every bound at every point."""
    found: list[Finding | None] = []
    for point in series.all:
        found.append(mfu_above_ceiling(point, subject.machine))
        found.append(links_too_slow(point, subject))
        found.append(memory_does_not_fit(point, subject))
        load = subject.load_at(point.seq_len)
        if load is not None:
            found.append(flop_above_peak(point, subject.machine, load))
            found.append(energy_below_arithmetic(point, subject.machine, load))
    return [finding for finding in found if finding is not None]
