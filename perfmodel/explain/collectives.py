"""Each collective of a step at one K: bytes, group, time, what shows of it, and the bandwidth that would hide it.

Nothing is modelled again here: the step model's own functions run with links that write down every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.explain.one_collective import Crossover, crossovers, decomposed
from perfmodel.physics.algorithms import ALGORITHMS, AUTO, CODES, has
from perfmodel.physics.coefficients import Coefficients
from perfmodel.physics.compute import micro_batch
from perfmodel.physics.constants import BACKWARD_SHARE
from perfmodel.physics.exchanges import (
    LIBRARY,
    Links,
    context_parallel,
    data_parallel,
    expert_parallel,
    pipeline_message,
    pipeline_messages,
    tensor_parallel,
)
from perfmodel.physics.layouts import Layouts, Sharding
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations
from perfmodel.physics.parts import (
    CONTEXT_PARALLEL,
    DATA_PARALLEL,
    EXPERT_PARALLEL,
    PIPELINE_MESSAGES,
    SHARDED_WEIGHTS,
    TENSOR_PARALLEL,
)  # fmt: skip
from perfmodel.training.step import step

Array = NDArray[np.float64]

NEGLIGIBLE = 0.01  # of the step
# Factors on today's bandwidth among which an answer is looked for, 1 % apart; all in one call of the step model.
_FACTORS = np.exp(np.linspace(np.log(1e-4), np.log(1e5), 2084))


@dataclass(frozen=True)
class Call:
    """One call of the collective library as the step model prices it."""

    operation: str
    message_bytes: float
    ranks: float
    nodes: float
    time_s: float
    stride: float
    algorithm: str


@dataclass(frozen=True, slots=True)
class Recorder(Links):
    """Links that write down what is asked of them."""

    calls: list[Call] = field(default_factory=list)

    def time(
        self, op: str, message_bytes: Array, ranks: Array, stride: Array, algorithm: Array = LIBRARY
    ) -> Array:
        """As `Links.time`, and a line in the book."""
        seconds = Links.time(self, op, message_bytes, ranks, stride, algorithm)
        inside = np.clip(self.reach / stride, 1.0, ranks)
        nodes = _one(np.asarray(ranks) / inside)
        word = ALGORITHMS[int(_one(algorithm))]
        word = word if has(op, word) else AUTO
        self.calls.append(
            Call(op, _one(message_bytes), _one(ranks), nodes, _one(seconds), _one(stride), word)
        )
        return seconds


@dataclass(frozen=True)
class Exchange:
    """A collective of one step. Times are seconds a step; bandwidths are datasheet figures per direction.

    `time_s` is what it would take with nothing hidden. `hidden_at_bytes_per_s` is the bandwidth of `link` from which
    it takes no longer than the arithmetic behind which it may run; `why` says how much of it shows even then.
    Of one call: `algorithm`, `steps` messages one after another taking `alpha_s`, bytes taking `beta_s`, additions taking
    `gamma_s`; at `crossover_bytes` ring and tree take as long in this group, `beyond_crossover` is ahead from there.
    `negligible_at_bytes_per_s` is that from which what shows is below 1 % of the step. None: no bandwidth does it
    that the accelerators' memory could feed.
    """

    name: str
    operation: str
    message_bytes: float
    ranks: float
    nodes: float
    calls: float
    time_s: float
    exposed_s: float
    hidden_s: float
    link: str
    bandwidth_bytes_per_s: float
    hidden_at_bytes_per_s: float | None
    negligible_at_bytes_per_s: float | None
    why: str
    algorithm: str
    steps: float
    alpha_s: float
    beta_s: float
    gamma_s: float
    crossover_bytes: float | None
    beyond_crossover: str | None

    def mapping(self) -> dict[str, object]:
        """For a result."""
        return asdict(self)


@dataclass(frozen=True)
class Point:
    """One layout on one machine, with the coefficients that apply: scalars and arrays of length one."""

    ops: Operations
    machine: Machine
    at: Layouts
    c: Coefficients
    scale: float = 1.0  # of a calibration, on every second

    def with_links(self, factor: Array, across: bool) -> Point:
        """The same with the network (`across`) or the scale-up links `factor` times as fast."""
        up, out = (np.ones(()), factor) if across else (factor, np.ones(()))
        machine = replace(
            self.machine,
            up_bytes_per_s=self.machine.up_bytes_per_s * up,
            out_bytes_per_s=self.machine.out_bytes_per_s * out,
        )
        return replace(self, machine=machine, c=replace(self.c, bus_bytes_per_s=self.c.bus_bytes_per_s * up))


def _one(value: object) -> float:
    return float(np.asarray(value, dtype=float).ravel()[0])


@dataclass(frozen=True)
class _Priced:
    """A collective of the layout: its part of the step, one of its calls, and its seconds a step if nothing hid."""

    name: str
    part: str
    operation: str
    call: Call
    calls: float
    total_s: Array


def _between_stages(ops: Operations, at: Layouts, links: Links, _: Array) -> Array:
    """Messages of a pipeline, in the form of the other exchanges inside a micro-batch."""
    return pipeline_messages(at, pipeline_message(ops, at, links), links.c.p2p_exposed)


# Part of the step, the function that prices it, the belief that says how much of it shows, and its name.
_INSIDE: tuple[tuple[str, Callable[..., Array], str, str], ...] = (
    (TENSOR_PARALLEL.name, tensor_parallel, "tp_exposed", "tensor parallel"),
    (CONTEXT_PARALLEL.name, context_parallel, "cp_exposed", "context parallel"),
    (EXPERT_PARALLEL.name, expert_parallel, "ep_exposed", "expert parallel"),
    (PIPELINE_MESSAGES.name, _between_stages, "p2p_exposed", "pipeline messages"),
)  # fmt: skip
EXPOSURE = {part: belief for part, _, belief, _ in _INSIDE}


def _priced(point: Point) -> dict[str, _Priced]:
    """The collectives that the layout has, by part. Totals keep the shape of the machine's arrays."""
    ops, at, m = point.ops, point.at, _one(point.at.accumulation)
    repeated = micro_batch(ops, point.machine, at, point.c).repeated
    found = {}
    for part, price, belief, name in _INSIDE:
        links = Recorder(point.machine, at, point.c)
        shown, share = price(ops, at, links, repeated), _one(getattr(point.c, belief))
        if links.calls and share > 0.0 and _one(shown) > 0.0:
            call, total = links.calls[-1], np.asarray(m * shown / share)
            found[part] = _Priced(
                name, part, call.operation, call, round(_one(total) / call.time_s, 6), total
            )
    links = Recorder(point.machine, at, point.c)
    exchange = data_parallel(ops, at, links)
    calls: dict[str, list[Call]] = {}
    for call in links.calls:
        calls.setdefault(call.operation, []).append(call)
    if _one(exchange.shards) > 0.0:
        layers = max(_one(ops.layers) / _one(at.pp), 1.0)
        gathers = m if _one(at.pp) == 1.0 else 1.0  # a pipeline keeps its stage's weights through the step
        found[SHARDED_WEIGHTS.name] = _Priced(
            "sharded weights", SHARDED_WEIGHTS.name, "2 all_gather + reduce_scatter", calls["all_gather"][-1],
            3.0 * layers * gathers, np.asarray(gathers * exchange.shards),
        )  # fmt: skip
    if _one(exchange.gradients) > 0.0:
        call, operation, count = _gradients(calls, int(_one(at.sharding)), m)
        every = _one(at.sync_every)
        total = (exchange.gradients + (m - 1.0) * exchange.repeated) / every
        found[DATA_PARALLEL.name] = _Priced(
            "data parallel", DATA_PARALLEL.name, operation, call, count / every, np.asarray(total)
        )
    return found


def _gradients(calls: Mapping[str, list[Call]], sharding: int, m: float) -> tuple[Call, str, float]:
    """The call that carries the gradients: (call, its name, how often an exchange)."""
    reduce = calls["all_reduce"]
    if sharding in (Sharding.ZERO1, Sharding.ZERO2) and calls["reduce_scatter"][0].ranks < reduce[0].ranks:
        between = "reduce_scatter + all_reduce between copies + all_gather"
        return reduce[1], between, 3.0 if sharding == Sharding.ZERO1 else m + 2.0
    if sharding == Sharding.ZERO2 and m > 1.0:
        return calls["reduce_scatter"][0], "reduce_scatter a micro-batch + all_gather", m + 1.0
    if sharding in (Sharding.ZERO1, Sharding.ZERO2):
        return calls["reduce_scatter"][0], "reduce_scatter + all_gather", 2.0
    if sharding in (Sharding.FSDP, Sharding.HSDP):
        return reduce[-1], "all_reduce", 1.0
    if sharding == Sharding.PARAMETER_SERVER:
        return reduce[0], "push + pull", 2.0
    return reduce[0], "all_reduce", 1.0


def exchanges(point: Point) -> list[Exchange]:
    """Every collective of the step at `point`, the one that shows most first."""
    today = step(point.ops, point.machine, point.at, point.c)
    rows = [
        _exchange(point, found, _one(today.parts[part]), _one(today.time_s))
        for part, found in _priced(point).items()
    ]
    return sorted(rows, key=lambda row: -row.exposed_s)


def _exchange(point: Point, found: _Priced, exposed_s: float, time_s: float) -> Exchange:
    across, machine = found.call.nodes > 1.0, point.machine
    bandwidth = _one(machine.out_bytes_per_s * machine.node if across else machine.up_bytes_per_s)
    memory = _one(machine.memory_bytes_per_s) * (_one(machine.node) if across else 1.0)
    moved = point.with_links(_FACTORS, across)
    faster = step(moved.ops, moved.machine, moved.at, moved.c)
    shown, total = faster.parts[found.part], _priced(moved)[found.part].total_s
    hidden_at, why = _hidden(point, found, shown, total)
    # A slower link also stretches what else it carries: that makes no collective small.
    around = np.minimum(faster.time_s, time_s - exposed_s + shown)
    negligible = _first(shown <= NEGLIGIBLE * around)
    total_s = _one(found.total_s)
    steps, alpha, beta, gamma, crossing = _parts_of(point, found.call)
    return Exchange(
        name=found.name,
        operation=found.operation,
        message_bytes=found.call.message_bytes,
        ranks=found.call.ranks,
        nodes=found.call.nodes,
        calls=found.calls,
        time_s=total_s * point.scale,
        exposed_s=exposed_s * point.scale,
        hidden_s=max(total_s - exposed_s, 0.0) * point.scale,
        link="network of a node" if across else "scale-up link",
        bandwidth_bytes_per_s=bandwidth,
        hidden_at_bytes_per_s=_bandwidth(hidden_at, bandwidth, memory),
        negligible_at_bytes_per_s=_bandwidth(negligible, bandwidth, memory),
        why=why,
        algorithm=found.call.algorithm,
        steps=steps,
        alpha_s=alpha,
        beta_s=beta,
        gamma_s=gamma,
        crossover_bytes=None if crossing is None else crossing["bytes"],
        beyond_crossover=None if crossing is None else crossing["to"],
    )


def _parts_of(point: Point, call: Call) -> tuple[float, float, float, float, Crossover | None]:
    """Messages, alpha, beta and gamma of one call, and the size at which ring and tree change places in its group."""
    links = Links(point.machine, point.at, point.c)
    size, n, stride = (np.asarray(x) for x in (call.message_bytes, call.ranks, call.stride))
    steps, alpha, beta, gamma = decomposed(links, call.operation, size, n, stride, call.algorithm)

    def by(word: str) -> Callable[[Array, Array], Array]:
        return lambda sizes, _: links.time(call.operation, sizes, n, stride, np.asarray(CODES[word]))

    pair = {word: by(word) for word in ("ring", "tree") if has(call.operation, word)}
    found = crossovers(pair, int(call.ranks)) if len(pair) == 2 else []
    scale = point.scale
    return (
        _one(steps),
        scale * _one(alpha),
        scale * _one(beta),
        scale * _one(gamma),
        found[-1] if found else None,
    )


def _bandwidth(factor: float | None, today: float, most: float) -> float | None:
    return None if factor is None or factor * today > most else factor * today


def _hidden(point: Point, found: _Priced, shown: Array, total: Array) -> tuple[float | None, str]:
    """Factor on the bandwidth from which the collective fits behind arithmetic, and what limits it.

    Gradients run behind the backward pass of the last micro-batch, all others behind all micro-batches.
    """
    belief, at = EXPOSURE.get(found.part), point.at
    mb = micro_batch(point.ops, point.machine, at, point.c)
    window = _one(at.accumulation) * _one(mb.device)
    if found.part == DATA_PARALLEL.name:
        passes = at.accumulation if _one(at.sharding) == Sharding.ZERO2 else 1.0
        window = BACKWARD_SHARE * _one(passes * (mb.device + mb.last)) / _one(at.sync_every)
    factor = _first(total <= window)
    if factor is None:
        return None, "its latency alone exceeds the arithmetic behind which it could run"
    if belief is not None:
        return factor, f"{_one(getattr(point.c, belief)):.0%} of it shows until the framework overlaps it"
    floor = float((shown / total)[-1])
    kept = f"{floor:.0%} of it shows at any bandwidth: the framework does not overlap that"
    return factor, kept if floor > 0.005 else "the arithmetic hides it"


def _first(holds: NDArray[np.bool_]) -> float | None:
    """The least factor from which a monotone condition holds, or None."""
    return float(_FACTORS[int(np.argmax(holds))]) if holds[-1] else None
