"""The coefficients of the step model: what each means, where it starts, and by what it varies.

A coefficient is positive and lives on a log scale. `median` and `spread` are the textbook starting belief
(spread = standard deviation of the logarithm), before anything is fitted; `levels` names the features of a
job by which the fitted belief may differ (see `beliefs/population.py`). Fitted values are data in
`perfmodel/priors/`. Medians here are counted, measured on kernels or published, but for those of whole-step stacks and of
cards without peer access, which were read off runs of the corpus; how far a fit may move from them, the spreads and
levels, was chosen by the errors of held-out runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def _coefficient(median: float, spread: float, levels: str, unit: str, meaning: str, source: str) -> Any:
    """A field of `Coefficients` with its textbook belief; `LIMITS` holds what no device, link or share can exceed."""
    return field(
        metadata={
            "median": median,
            "spread": spread,
            "levels": tuple(levels.split()),
            "unit": unit,
            "meaning": meaning,
            "source": source,
        }
    )


_KERNELS = "kernel measurements summarised in the theory page on roofline"
_COMM = "collective sweeps, theory page on collectives"
_STEP = "regression on published step times"


@dataclass(frozen=True, slots=True)
class Coefficients:
    """One array per coefficient; each broadcasts against the layouts and may carry a leading axis of draws."""

    # device
    matmul: Array = _coefficient(
        0.72, 0.25, "generation generation*width framework tuning",
        "1", "fraction of the datasheet peak that a large matrix product reaches inside a step", _KERNELS,
    )  # fmt: skip
    attention: Array = _coefficient(
        0.42,
        0.3,
        "generation framework framework*generation",
        "1",
        "fraction of the 16-bit peak that fused attention reaches",
        _KERNELS,
    )
    unfused: Array = _coefficient(
        0.03, 0.5, "framework*era framework*tuning",
        "1", "share of attention that runs without a fused kernel; above 1, so many times the leanest such kernels",
        _KERNELS,
    )  # fmt: skip
    memory: Array = _coefficient(
        0.80,
        0.03,
        "generation",
        "1",
        "fraction of the memory bandwidth that long kernels reach",
        _KERNELS,
    )
    elementwise: Array = _coefficient(
        1.0,
        0.15,
        "framework",
        "1",
        "element-wise traffic against the counted one",
        "Korthikanti 2022",
    )
    call_s: Array = _coefficient(
        10e-6, 0.4, "generation framework", "s", "fixed device time of a matrix product", _KERNELS
    )
    tail: Array = _coefficient(
        0.3,
        0.4,
        "generation generation*width framework",
        "1",
        "share of a wave of tiles by which a matrix product runs longer than its work",
        _KERNELS,
    )
    unaligned: Array = _coefficient(
        650.0,
        0.3,
        "generation framework",
        "FLOP",
        "work of a compute unit per cycle in a product of odd width, whose operands load one by one",
        _KERNELS,
    )
    loss_bytes: Array = _coefficient(
        34.0,
        0.2,
        "framework",
        "B",
        "traffic per logit beside its product: casts, softmax, loss and their gradient",
        "kernel counting",
    )
    other: Array = _coefficient(
        0.45, 0.45, "kind kind*width generation*width framework tuning",
        "1", "fraction of peak of convolutions, recurrences and other counted arithmetic", _KERNELS,
    )  # fmt: skip
    other_traffic: Array = _coefficient(
        1.6,
        0.5,
        "kind framework generation",
        "1",
        "memory traffic of such layers against the counted one",
        _KERNELS,
    )
    winograd: Array = _coefficient(
        0.7,
        0.3,
        "generation framework",
        "1",
        "share of 3x3 convolutions in 32 bit whose multiplications a fast algorithm saves",
        "the algorithm: Lavin & Gray 2016; how much of it runs: assumed",
    )
    cast_bytes: Array = _coefficient(
        2.3, 0.5, "generation", "B", "traffic per element of casting to 8 bit or less and back", _STEP
    )
    imbalance: Array = _coefficient(
        1.15, 0.15, "framework", "1", "work of the fullest expert against the mean", _STEP
    )
    routing_bytes: Array = _coefficient(
        19.0,
        0.5,
        "framework",
        "B",
        "traffic of permuting a routed token-element, forward and backward",
        _STEP,
    )
    pace: Array = _coefficient(
        1.0,
        0.3,
        "framework*generation",
        "1",
        "device time of such jobs against what their operations alone explain",
        _STEP,
    )
    # host
    host_kernel_s: Array = _coefficient(
        35e-6,
        0.7,
        "framework kind tuning",
        "s",
        "host time to issue one forward kernel",
        "PyTorch eager dispatch 5-10 us per operator",
    )
    micro_s: Array = _coefficient(0.5e-3, 0.9, "framework", "s", "fixed cost of a micro-batch", _STEP)
    step_s: Array = _coefficient(6e-3, 1.0, "framework tuning", "s", "fixed cost of a step", _STEP)
    start_s: Array = _coefficient(
        5.0, 0.7, "framework", "s", "start of a run, where a step time is a share of the whole run",
        "assumed: loader processes, libraries and communicators take seconds before the first steady step",
    )  # fmt: skip
    recompute: Array = _coefficient(
        0.2, 0.5, "", "1", "share of a forward pass repeated to free half of the activations, where a layout does not say",
        "measured runs whose scripts say, when their labels did not: see the theory page",
    )  # fmt: skip
    # links
    up_efficiency: Array = _coefficient(
        0.85,
        0.15,
        "scale_up",
        "1",
        "effective scale-up bandwidth against the datasheet's; above 1, more of a call hides than is counted",
        _COMM,
    )
    up_step_s: Array = _coefficient(
        1.2e-6, 0.4, "scale_up", "s", "software latency of one scale-up step, beside the link's own", _COMM
    )
    out_efficiency: Array = _coefficient(
        0.75,
        0.35,
        "scale_out",
        "1",
        "effective network bandwidth against the datasheet's; above 1, more of a call hides than is counted",
        _COMM,
    )
    out_step_s: Array = _coefficient(
        15e-6, 0.7, "scale_out", "s", "software latency of one network step, beside the link's own", _COMM
    )
    bus_bytes_per_s: Array = _coefficient(
        80e9,
        0.8,
        "peer",
        "B/s",
        "rate of the host bus that accelerators without a switch share",
        _COMM,
    )
    base_s: Array = _coefficient(18e-6, 0.4, "generation", "s", "fixed cost of a collective call", _COMM)
    # overlap
    tp_exposed: Array = _coefficient(
        0.9, 0.3, "framework", "1", "exposed share of tensor-parallel communication", _STEP
    )
    cp_exposed: Array = _coefficient(
        0.6, 0.6, "framework", "1", "exposed share of context-parallel communication", _STEP
    )
    ep_exposed: Array = _coefficient(0.8, 0.5, "framework", "1", "exposed share of expert all-to-all", _STEP)
    p2p_exposed: Array = _coefficient(0.4, 0.6, "framework", "1", "exposed share of pipeline messages", _STEP)
    bubble: Array = _coefficient(
        1.0, 0.12, "framework", "1", "pipeline bubble against the textbook one", _STEP
    )
    interleave: Array = _coefficient(
        0.5, 0.5, "", "1",
        "depth of interleaving where a layout does not say: virtual stages are this power of the layers of a stage", "assumed",
    )  # fmt: skip
    last_stage: Array = _coefficient(
        1.0, 0.3, "framework", "1", "share of logits and loss that the slowest stage carries", _STEP
    )
    dp_exposed: Array = _coefficient(
        0.25,
        0.7,
        "framework tuning",
        "1",
        "share of the gradient exchange inside a node that is never hidden",
        _STEP,
    )
    net_exposed: Array = _coefficient(
        0.25,
        0.7,
        "framework tuning",
        "1",
        "share of the gradient exchange across nodes that is never hidden",
        _STEP,
    )
    dp_overlap: Array = _coefficient(
        0.6, 0.4, "framework", "1", "share of the last backward pass that can hide the exchange", _STEP
    )
    shard_cost: Array = _coefficient(
        0.25, 0.6, "framework", "1", "slow-down of what overlaps while shards are gathered", _STEP
    )
    server: Array = _coefficient(
        0.5, 0.6, "framework", "1", "share of the host link that a parameter server reaches", _STEP
    )
    optimizer: Array = _coefficient(
        1.1,
        0.5,
        "framework tuning",
        "1",
        "optimizer traffic against 34 bytes per parameter",
        "kernel counting",
    )
    # contention and waiting
    dp_on: Array = _coefficient(
        0.025, 0.9, "kind",
        "1", "work added when data parallelism goes on", _STEP,
    )  # fmt: skip
    half_node: Array = _coefficient(0.012, 1.0, "kind", "1", "work added by the second half of a node", _STEP)
    local: Array = _coefficient(
        0.008,
        1.0,
        "kind",
        "1",
        "work added per doubling inside a node",
        _STEP,
    )
    crossing: Array = _coefficient(0.015, 1.0, "kind", "1", "work added by leaving the node", _STEP)
    doubling: Array = _coefficient(0.008, 1.0, "kind", "1", "work added per doubling of nodes", _STEP)
    sync_s: Array = _coefficient(
        0.3e-3, 1.0, "framework tuning", "s", "time per step and doubling of workers", _STEP
    )
    node_sync_s: Array = _coefficient(0.3e-3, 1.0, "kind", "s", "time per step and doubling of nodes", _STEP)
    jitter: Array = _coefficient(
        0.004, 0.7, "", "1", "log-spread of one worker's step time", "theory page on stragglers"
    )
    input_s: Array = _coefficient(
        4e-5, 1.2, "kind", "s", "host time of a node to prepare one megabyte of input", _STEP
    )


_LANGUAGE = ("decoder-transformer", "moe-transformer", "hybrid-mamba-transformer")
_CONTENTION = ("dp_on", "half_node", "local", "crossing", "doubling")
# Frameworks that had no fused attention before libraries brought it, and those of them that racers (a stack retuned at every K) use: they wrote fused
# kernels of their own.
_UNFUSED = ("tensorflow", "mxnet", "oneflow", "paddle", "mindspore", "pytorch_eager", "megatron_eager")
_RACED = ("tensorflow", "mxnet", "paddle", "mindspore", "pytorch_eager")

# Stacks that hand the device a whole step at once, captured as a graph or compiled: the host issues no kernels one by
# one, and has little to do between steps. What is left per kernel is its own least time on the device. HugeCTR keeps the
# rows that are looked up often on every device, so it exchanges less than all of them.
_WHOLE_STEPS = {
    "hugectr": {
        "host_kernel_s": 8e-6,
        "micro_s": 0.1e-3,
        "step_s": 0.1e-3,
        "sync_s": 5e-6,
        "ep_exposed": 0.3,
    },
    "xla": {"host_kernel_s": 5e-6, "micro_s": 50e-6, "step_s": 0.5e-3, "sync_s": 20e-6},
}

# What is known of a level before anything is fitted, where it differs from the coefficient's own median. Large products
# inside a step reach a smaller part of the peak on newer chips (power); Megatron-LM of the V100 and A100 years had no
# fused attention; long steps of language models hide what contention costs others.
KNOWN_MEDIANS: dict[tuple[str, str, str], float] = {
    ("matmul", "generation*width", "ampere*16bit"): 0.85,
    ("matmul", "generation*width", "hopper*16bit"): 0.73,
    ("matmul", "generation*width", "hopper*fp8"): 0.68,
    ("matmul", "generation*width", "blackwell*16bit"): 0.51,
    ("matmul", "generation*width", "blackwell*fp8"): 0.61,
    ("matmul", "generation*width", "blackwell*fp4"): 0.45,
    ("matmul", "generation*width", "blackwell-ultra*16bit"): 0.51,
    ("matmul", "generation*width", "blackwell-ultra*fp8"): 0.61,
    ("matmul", "generation*width", "blackwell-ultra*fp4"): 0.45,
    ("matmul", "generation*width", "cdna3*16bit"): 0.40,
    ("matmul", "generation*width", "cdna3*fp8"): 0.41,
    # Fitted to DeepBench's products on V100 and T4 (160 shapes each): 0.37 and 0.08 of a wave of 128 x 128 tiles on the
    # V100 in 16 and 32 bit, none to 0.13 on the T4, whose power holds it back before its waves do.
    ("tail", "generation*width", "volta*16bit"): 0.18,
    ("tail", "generation*width", "volta*fp32"): 0.08,
    **{("tail", "generation*width", f"turing*{width}"): 0.10 for width in ("16bit", "fp32")},
    ("attention", "generation", "ampere"): 0.56,
    ("attention", "generation", "hopper"): 0.36,
    ("attention", "generation", "blackwell"): 0.44,
    ("attention", "generation", "blackwell-ultra"): 0.44,
    ("bus_bytes_per_s", "peer", "staged"): 9e9,
    **{
        (name, "framework", stack): value
        for stack, row in _WHOLE_STEPS.items()
        for name, value in row.items()
    },
    # FlashAttention before its second version: 25 to 40 % of the peak (Dao 2023, arXiv:2307.08691, abstract).
    ("attention", "framework", "fsdp_eager"): 0.25,
    # Megatron-LM's mpu/cross_entropy.py takes maximum, difference, exponential, sum, quotient and gradient one by one, in
    # 32 bit: 40 bytes, and 12 of casts. A library's log-softmax: cast (6), forward (8), backward (12), cast back (8).
    ("loss_bytes", "framework", "megatron_eager"): 52.0,
    ("tp_exposed", "framework", "megatron_core"): 0.48,
    **{("unfused", "framework*era", f"{name}*before"): 0.8 for name in _UNFUSED},
    # An old script may run on a new card, and a library's fused kernel does not take every mask and length.
    **{("unfused", "framework*era", f"{name}*since"): 0.15 for name in _UNFUSED},
    **{("unfused", "framework*tuning", f"{name}*tuned"): 0.001 for name in _RACED},
}

NAMES: tuple[str, ...] = tuple(f.name for f in fields(Coefficients))
MEDIANS: dict[str, float] = {f.name: f.metadata["median"] for f in fields(Coefficients)}
SPREADS: dict[str, float] = {f.name: f.metadata["spread"] for f in fields(Coefficients)}
LEVELS: dict[str, tuple[str, ...]] = {f.name: f.metadata["levels"] for f in fields(Coefficients)}
# The same as shifts of the logarithm.
KNOWN: dict[tuple[str, str, str], float] = {
    key: float(np.log(median / MEDIANS[key[0]])) for key, median in KNOWN_MEDIANS.items()
} | {(name, "kind", kind): float(np.log(0.2)) for name in _CONTENTION for kind in _LANGUAGE}
# A part of a peak, of a nominal rate or of a whole is at most all of it, and the fullest expert has at least the mean's work.
WHOLE: tuple[str, ...] = (
    "matmul", "attention", "memory", "other", "winograd", "recompute", "interleave", "up_efficiency", "out_efficiency", "server",
    "tp_exposed", "cp_exposed", "ep_exposed", "p2p_exposed", "dp_exposed", "net_exposed", "dp_overlap",
)  # fmt: skip
LIMITS: dict[str, tuple[float, float]] = dict.fromkeys(WHOLE, (0.0, 1.0)) | {"imbalance": (1.0, np.inf)}
UNITS: dict[str, str] = {f.name: f.metadata["unit"] for f in fields(Coefficients)}
MEANINGS: dict[str, str] = {f.name: f.metadata["meaning"] for f in fields(Coefficients)}


def from_logs(logs: Array) -> Coefficients:
    """Coefficients from their logarithms, `logs[i]` belonging to `NAMES[i]`, each inside its `LIMITS`.

    >>> from_logs(np.full(len(NAMES), np.log(3.0))).matmul, from_logs(np.zeros(len(NAMES)) - 9.0).imbalance
    (np.float64(1.0), np.float64(1.0))
    """
    values = np.exp(logs)
    for name, (least, most) in LIMITS.items():
        index = NAMES.index(name)
        values[index] = np.clip(values[index], least, most)
    return Coefficients(**dict(zip(NAMES, values, strict=True)))


DIFFERENCE = 1e-3  # step of the forward differences, of a log coefficient


def nudged(logs: Array) -> Array:
    """Logs of n coefficients n + 1 times along a new second axis: the i-th with the i-th moved, the last as they are."""
    n = logs.shape[0]
    moved = np.repeat(logs[:, None], n + 1, axis=1)
    moved[np.arange(n), np.arange(n)] += DIFFERENCE
    return moved


def log_slopes(values: Array) -> Array:
    """Slopes in each log coefficient from values at `nudged` logs, along the first axis.

    >>> log_slopes(3.0 * nudged(np.zeros(2)).sum(axis=0)).round(6).tolist()
    [3.0, 3.0]
    """
    return np.asarray((values[:-1] - values[-1]) / DIFFERENCE)


def textbook() -> Coefficients:
    """The starting medians, as scalars."""
    return from_logs(np.log(np.array([MEDIANS[name] for name in NAMES])))


def quiet() -> Coefficients:
    """An ideal machine: full rates, no latency, overhead, exposure, jitter or contention. For limits and tests."""
    rates = {"matmul", "attention", "memory", "other", "up_efficiency", "out_efficiency", "server", "bubble",
             "imbalance", "pace", "winograd", "elementwise", "other_traffic", "optimizer", "last_stage", "dp_overlap"}  # fmt: skip
    values = {name: 1.0 if name in rates else 0.0 for name in NAMES}
    values |= {"bus_bytes_per_s": 1e30, "unaligned": 1e30}
    return Coefficients(**{name: np.asarray(value) for name, value in values.items()})
