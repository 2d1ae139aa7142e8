"""What may be wrong with a run: each cause as a change of the inputs of the step model.

A cause with a severity (a network at a fraction of its rate, a device slower by a factor) has a grid of severities, even
on a log scale, so that it is asked about all of them in one call. The ends of the grids are what such faults are known
to reach (assumed); within them nothing is preferred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.coefficients import Coefficients
from perfmodel.physics.layouts import ONE_BUCKET, SHARDED, Layouts, Sharding
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations
from perfmodel.training.curve import FUSED as STATED_FUSED
from perfmodel.training.curve import Curve, coefficients
from perfmodel.training.setup import Setup
from perfmodel.training.step import Step, step

Array = NDArray[np.float64]

GRID = 49  # severities of a cause
FUSED = 0.5  # share of attention without a fused kernel, below which the usual stack counts as fused


def _as_usual(setup: Setup, c: Coefficients) -> Coefficients:
    return c


def _fused(setup: Setup, c: Coefficients) -> Coefficients:
    return (
        replace(c, unfused=np.minimum(c.unfused, STATED_FUSED)) if setup.facts.attention == "unfused" else c
    )


def _gathered_late(setup: Setup, c: Coefficients) -> Coefficients:
    return replace(c, shard_cost=np.ones(())) if setup.facts.overlap_gather is False else c


#: Facts of a stack that leave no doubt, by their names: what stating them and what leaving them out makes of a curve's
#: coefficients. A curve knows of a stated attention kernel itself.
STATED: Final[
    dict[
        str,
        tuple[Callable[[Setup, Coefficients], Coefficients], Callable[[Setup, Coefficients], Coefficients]],
    ]
] = {
    "attention": (_as_usual, _fused),
    "overlap_gather": (_gathered_late, _as_usual),
}


@dataclass(frozen=True)
class Model:
    """The inputs of the step model at one K, and what a calibration multiplies its time by."""

    setup: Setup
    ops: Operations
    machine: Machine
    at: Layouts
    c: Coefficients
    time_s: float
    scale: float

    @classmethod
    def of(cls, curve: Curve, without: str | None = None) -> Model:
        """Those of a curve of one K, with what its stack states of them; `without` is a fact that is taken as usual."""
        setup = curve.setup
        usual = coefficients(setup, curve.logs[:, None], curve.k)
        found = usual
        for fact, (told, left_out) in STATED.items():
            found = (left_out if fact == without else told)(setup, found)
        scale = float(curve.time_s[0]) / float(curve.step.time_s[0])
        seconds = float(step(setup.operations, setup.machine, curve.at, found).time_s[0]) * scale
        return cls(setup, setup.operations, setup.machine, curve.at, found, seconds, scale)

    def one(self, name: str) -> float:
        """A number of the layout."""
        return float(np.broadcast_to(getattr(self.at, name), (1,))[0])

    @property
    def replicas(self) -> float:
        """Ranks that exchange gradients."""
        return self.one("dp") * self.one("cp")

    @property
    def sharding(self) -> float:
        """A `Sharding`."""
        return self.one("sharding")

    @property
    def gathers(self) -> bool:
        """Whether weights are gathered in every step."""
        return self.sharding in SHARDED and self.sharding >= Sharding.FSDP

    def step(self) -> Step:
        """The parts of a step, a row for each severity."""
        return step(self.ops, self.machine, self.at, self.c)


Change = Callable[[Model, Array], Model]


@dataclass(frozen=True)
class Cause:
    """One thing that may be wrong. `severity` is (least, most); None where it is or is not."""

    name: str
    words: str
    severity: tuple[float, float] | None
    applies: Callable[[Model], bool]
    change: Change
    amount: str  # what a severity means, with its value in braces
    check: str

    @property
    def severities(self) -> Array:
        """Even on a log scale, a column."""
        if self.severity is None:
            return np.ones((1, 1))
        low, high = self.severity
        return np.geomspace(low, high, GRID)[:, None]


def _c(**changed: Callable[[Coefficients, Array], Array]) -> Change:
    """A change of coefficients."""

    def change(model: Model, s: Array) -> Model:
        return replace(model, c=replace(model.c, **{name: of(model.c, s) for name, of in changed.items()}))

    return change


def _at(**changed: Callable[[Model, Array], Array]) -> Change:
    """A change of the layout or of what a job declares beside it."""

    def change(model: Model, s: Array) -> Model:
        return replace(model, at=replace(model.at, **{name: of(model, s) for name, of in changed.items()}))

    return change


def _slow_clock(model: Model, s: Array) -> Model:
    slower = {
        name: getattr(model.machine, name) * s
        for name in ("peak_flop_per_s", "peak16_flop_per_s", "plain_flop_per_s")
    }
    return replace(model, machine=replace(model.machine, **slower))


def _input(model: Model, s: Array) -> Model:
    """Input that takes `s` times as long as the rest of the step."""
    hosts = max(model.one("k") / model.one("per_node"), 1.0)
    sample = np.maximum(model.ops.input_bytes, 1.0)
    rate = sample * model.one("global_batch") / hosts / (s * model.time_s / model.scale)
    ops = replace(model.ops, input_bytes=sample)
    return replace(model, ops=ops, at=replace(model.at, loader_bytes_per_s=rate))


def wider(model: Model) -> str | None:
    """The precision to which matrix products fall back when the stated one is not in effect."""
    peaks = model.setup.cluster.node.accelerator.peak
    if model.setup.precision in ("bf16", "fp16"):
        return next((name for name in ("tf32", "fp32") if name in peaks), None)
    if model.setup.precision in ("tf32", "fp32", "fp64"):
        return None
    return next((name for name in ("bf16", "fp16") if name in peaks), None)


def _precision(model: Model, s: Array) -> Model:
    return replace(model, machine=replace(model.setup, precision=str(wider(model))).machine)


def _nodes(model: Model) -> bool:
    return model.one("k") > float(model.machine.domain)


def _is_transformer(model: Model) -> bool:
    return bool(np.any(model.ops.is_transformer > 0.0))


CAUSES: Final = (
    Cause(
        "gradients_not_hidden",
        "the exchange of gradients is not overlapped with the backward pass",
        None,
        lambda m: m.replicas > 1.0 and m.sharding <= Sharding.ZERO2 and m.one("bucket_bytes") < ONE_BUCKET,
        _at(bucket_bytes=lambda m, s: np.asarray(ONE_BUCKET)),
        "",
        "in a trace, see whether all-reduce or reduce-scatter kernels start before the last backward kernel ends",
    ),
    Cause(
        "weights_not_prefetched",
        "sharded weights are gathered without running ahead of compute",
        None,
        lambda m: m.replicas > 1.0 and m.gathers and m.setup.facts.overlap_gather is not False,
        _c(shard_cost=lambda c, s: np.ones(())),
        "",
        "in a trace, see whether the all-gather of the next layer runs under the compute of this one (prefetch)",
    ),
    Cause(
        "slow_network",
        "the network between nodes gives less than its rate",
        (1.0 / 16.0, 1.0),
        _nodes,
        _c(out_efficiency=lambda c, s: c.out_efficiency * s),
        "at {:.0%} of what is usual",
        "run all_reduce_perf of nccl-tests over the same nodes; NCCL_DEBUG=INFO must say NET/IB (or the provider's plugin), "
        "not NET/Socket, and use every network card",
    ),
    Cause(
        "slow_links",
        "the links inside a node give less than their rate",
        (1.0 / 16.0, 1.0),
        lambda m: min(m.one("k"), m.one("per_node")) > 1.0,
        _c(up_efficiency=lambda c, s: c.up_efficiency * s),
        "at {:.0%} of what is usual",
        "run all_reduce_perf in one node, and nvidia-smi topo -m: peers must be joined by NVLink, with peer access on",
    ),
    Cause(
        "slow_clock",
        "the accelerators run below their clock (power cap, heat)",
        (0.35, 1.0),
        lambda m: True,
        _slow_clock,
        "arithmetic at {:.0%} of its usual rate",
        "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER while it trains: clocks and the reasons why they are throttled",
    ),
    Cause(
        "unfused_attention",
        "attention runs without a fused kernel",
        None,
        lambda m: _is_transformer(m) and float(np.max(m.c.unfused)) < FUSED,
        _c(unfused=lambda c, s: np.maximum(c.unfused, 1.0)),
        "",
        "in a trace, look for flash, cudnn or fmha kernels; softmax kernels of their own mean that it is not fused",
    ),
    Cause(
        "recomputed",
        "activations are recomputed",
        None,
        lambda m: _is_transformer(m) and bool(m.one("recompute") < 1.0),
        _at(recompute=lambda m, s: np.ones(())),
        "",
        "in a trace, count the forward kernels of a layer: twice a step means recomputation",
    ),
    Cause(
        "wider_precision",
        "matrix products run in a wider type than stated",
        None,
        lambda m: wider(m) is not None,
        _precision,
        "",
        "in a trace, the names of the largest kernels say their type (s884/tf32/bf16/e4m3)",
    ),
    Cause(
        "slow_host",
        "the host issues kernels too slowly (not compiled or captured, a slow or busy CPU, synchronising calls)",
        (1.0, 16.0),
        lambda m: bool(np.any(m.ops.kernels > 0.0)),
        _c(
            host_kernel_s=lambda c, s: c.host_kernel_s * s,
            micro_s=lambda c, s: c.micro_s * s,
            step_s=lambda c, s: c.step_s * s,
        ),
        "{:.1f} times slower than usual",
        "in a trace, gaps between kernels while the Python thread is busy; see that compile, CUDA graphs and CPU pinning "
        "are in effect",
    ),
    Cause(
        "slow_input",
        "the input pipeline cannot keep up",
        (0.5, 3.0),
        lambda m: True,
        _input,
        "a batch takes {:.2f} times as long to read as to compute",
        "train some steps on synthetic data: the step must not get shorter",
    ),
    Cause(
        "work_between_steps",
        "the run stands still between steps (checkpoints, evaluation, logging, garbage collection)",
        (0.01, 2.0),
        lambda m: True,
        _at(stall_s=lambda m, s: m.at.stall_s + s * m.time_s / m.scale),
        "{:.0%} of a step",
        "compare the time of steps with and without a checkpoint, an evaluation or a log line",
    ),
    Cause(
        "slow_device",
        "one rank is always slower than the others",
        (1.0, 2.5),
        lambda m: m.one("k") > 1.0,
        _at(slow_share=lambda m, s: np.ones(()), slowdown=lambda m, s: s),
        "slower by a factor of {:.2f}",
        "log each rank's own compute time (--ranks): the same rank is the slowest in most steps; swap its node",
    ),
    Cause(
        "jitter",
        "some rank is late in every step, never the same one",
        (1.0, 12.0),
        lambda m: m.one("k") > 1.0,
        _c(jitter=lambda c, s: c.jitter * s),
        "times of a rank vary {:.1f} times as much as usual",
        "log each rank's own compute time (--ranks): the slowest rank changes from step to step",
    ),
    Cause(
        "uneven_experts",
        "tokens reach the experts unevenly",
        (1.0, 4.0),
        lambda m: bool(np.any(m.ops.moe_layers > 0.0)),
        _c(imbalance=lambda c, s: c.imbalance * s),
        "the fullest expert has {:.1f} times more than usual",
        "log the tokens of each expert; the fullest over the mean is what the others wait for",
    ),
)  # fmt: skip
