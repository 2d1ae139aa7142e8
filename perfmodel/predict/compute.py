"""Device and host time of one micro-batch on one pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.models.fabric import soft_max
from perfmodel.models.roofline import product_time, roofline_time
from perfmodel.predict.coefficients import Coefficients
from perfmodel.predict.layouts import Layouts
from perfmodel.predict.machine import Machine
from perfmodel.workloads.operations import (
    FAST_CONVOLUTION,
    HIDDEN_TRAFFIC,
    INNER_TRAFFIC,
    Operations,
    Split,
)

Array = NDArray[np.float64]

BACKWARD_TRAFFIC = 1.6  # element-wise bytes of a backward pass against a forward one
ATTENTION_BACKWARD = 3.0  # 2.5 x the FLOP at 0.84 of the forward rate (FlashAttention accounting)
# Without a fused kernel: passes of the two products backward, and bytes per probability in 16 bit that the products move
# (each writes or reads the scores once) and that softmax, mask and dropout do, forward and backward.
PRODUCTS_BACKWARD = 2.0
PRODUCT_BYTES = (4.0, 8.0)
SOFTMAX_BYTES = (9.0, 11.0)
BACKWARD_HOST = 1.65  # kernels of a backward pass against a forward one
# More to issue where tensor parallelism adds its collectives, and with every doubling of ranks the slowest host is slower:
# layers too small for the device (vTrain, one or two sequences of width 1,024 and 2,048) take 3.2, 3.4, 3.2 and 4.0 ms on
# 1, 2, 4 and 8 ranks.
TENSOR_HOST = 0.12
# Counted bytes per element to cast: products read four elements a hidden unit, one a unit of MLP or QKV width.
CAST_INNER, CAST_HIDDEN = INNER_TRAFFIC, HIDDEN_TRAFFIC / 4.0
WIDEST_LOAD = 8  # 16-bit elements that one instruction loads (128 bit)
EXPERT_CALL_SHARE = 0.1  # a grouped product pays this share of a call for each further expert


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Seconds of forward plus backward of one micro-batch on an average stage."""

    matmul: Array
    attention: Array
    elementwise: Array
    other: Array
    last: Array  # logits and loss, on the last stage only
    host: Array
    repeated: Array  # share of a forward pass that is recomputed

    @property
    def device(self) -> Array:
        """Compute of an average stage, without logits."""
        return self.matmul + self.attention + self.elementwise + self.other


def micro_batch(ops: Operations, machine: Machine, at: Layouts, c: Coefficients) -> MicroBatch:
    """The phases of the theory page on the roofline, cut by the layout; all arrays broadcast."""
    tokens = at.micro_batch * ops.tokens / at.cp
    bandwidth = machine.memory_bytes_per_s * c.memory
    rate = machine.peak_flop_per_s * c.matmul
    rate16 = logit_rate(ops, machine, at, c)
    cut = 1.0 / (at.cp * at.tp * at.pp)
    width = 0.5 * machine.element_bytes  # traffic is counted at 2 bytes per element
    repeated = np.where(np.isnan(at.recompute), np.minimum(c.recompute, 1.0), at.recompute)
    passes = 2.0 + ops.trainable_fraction + repeated

    matmul: Array = np.zeros(())
    logits: Array = np.zeros(())
    for slot in range(ops.slot_count.shape[0]):
        split, count = ops.slot_split[slot], ops.slot_count[slot]
        column, row, routed = split == Split.COLUMN, split == Split.ROW, split == Split.EXPERT
        local = np.where(routed, ops.slot_experts[slot] / at.ep, 1.0)
        is_last = ops.slot_last[slot] > 0
        seconds = product_time(
            tokens * ops.slot_rows[slot] / np.where(routed, at.tp, 1.0),
            ops.slot_inner[slot] / np.where(row, at.tp, 1.0),
            ops.slot_outer[slot] / np.where(column, at.tp, 1.0),
            weights=local,
            flop_per_s=np.where(is_last, rate16, rate),
            bytes_per_s=bandwidth,
            activation_bytes=machine.element_bytes,
            weight_bytes=machine.element_bytes,
            call_s=c.call_s * (1.0 + EXPERT_CALL_SHARE * (local - 1.0)),
        )
        seconds = seconds * count * np.where(routed, c.imbalance, 1.0)
        matmul = matmul + np.where(is_last, 0.0, seconds)
        logits = logits + np.where(is_last, seconds, 0.0)
    matmul = matmul * passes / at.pp

    samples = at.micro_batch
    attention = _attention(ops, machine, at, c, repeated)

    traffic_passes = 1.0 + BACKWARD_TRAFFIC + repeated
    hidden_cut = np.where(at.sequence_parallel > 0, cut, cut * at.tp)
    cast = (
        machine.is_low_precision
        * c.cast_bytes
        * (ops.inner_traffic / CAST_INNER + ops.hidden_traffic / CAST_HIDDEN)
    )
    traffic = ops.hidden_traffic * hidden_cut + (ops.inner_traffic * width + cast) * cut
    elementwise = samples * traffic * c.elementwise * traffic_passes / bandwidth
    routed_elements = tokens / at.tp * ops.top_k * ops.routed_width * ops.moe_layers / at.pp
    elementwise = elementwise + routed_elements * c.routing_bytes / bandwidth

    other = roofline_time(
        samples * other_work(ops, machine, c) * cut,
        samples * ops.other_traffic * width * c.other_traffic * cut,
        flop_per_s=machine.peak_flop_per_s * c.other,
        bytes_per_s=bandwidth,
    ) * (3.0 + repeated)

    last = (
        logits * (2.0 + ops.trainable_fraction)
        + samples * ops.logit_elements / (at.cp * at.tp) * c.loss_bytes / bandwidth
    )
    host_passes = 1.0 + BACKWARD_HOST + repeated
    host = ops.kernels / at.pp * c.host_kernel_s * host_passes * (1.0 + TENSOR_HOST * np.log2(at.tp))
    pace = c.pace
    return MicroBatch(
        matmul * pace, attention * pace, elementwise * pace, other * pace, last * pace, host, repeated
    )


def other_work(ops: Operations, machine: Machine, c: Coefficients) -> Array:
    """FLOP that convolutions, recurrences and other counted arithmetic do forward, fewer where a fast algorithm runs."""
    fast = machine.fast_convolutions * np.minimum(c.winograd, 1.0) * ops.conv3x3_flop
    return np.asarray(ops.other_flop - fast * (1.0 - 1.0 / FAST_CONVOLUTION))


def score_bytes(machine: Machine, again: Array, per_score: tuple[float, float]) -> Array:
    """Bytes of one probability in a step, from those in 16 bit of a forward and a backward pass."""
    forward, backward = per_score
    return np.asarray((forward * (1.0 + again) + backward) * 0.5 * machine.element_bytes)


def _attention(ops: Operations, machine: Machine, at: Layouts, c: Coefficients, repeated: Array) -> Array:
    """Seconds of scores, softmax and weighted values, forward and backward; (2) of the theory page on the roofline.

    A fused kernel keeps the scores on the chip, skips what a causal mask hides and computes them again backward. Others
    compute all: two library products of few FLOP per byte, and kernels that do nothing but move the scores.
    """
    scale = at.micro_batch / (at.cp * at.tp * at.pp)
    again = np.maximum(repeated, at.selective)
    bandwidth = machine.memory_bytes_per_s * c.memory
    fused = (
        ops.attention_flop * (1.0 + ATTENTION_BACKWARD + again) / (machine.peak16_flop_per_s * c.attention)
    )
    products = roofline_time(
        ops.attention_flop * (1.0 + ops.masked) * (1.0 + PRODUCTS_BACKWARD + again),
        ops.score_elements * score_bytes(machine, again, PRODUCT_BYTES),
        flop_per_s=machine.peak16_flop_per_s * c.matmul,
        bytes_per_s=bandwidth,
    )
    softmax = ops.score_elements * score_bytes(machine, again, SOFTMAX_BYTES) / bandwidth
    share = np.minimum(c.unfused, 1.0)
    return np.asarray(scale * ((1.0 - share) * fused + c.unfused * (products + softmax)))


def logit_rate(ops: Operations, machine: Machine, at: Layouts, c: Coefficients) -> Array:
    """FLOP per second of the product that makes the logits: held to what loads of few elements can feed.

    The smooth least of the 16-bit rate and ``unaligned * g * unit_hz``, g the greatest power of two in a rank's logits
    (at most 8); loads of full width, or a clock that is unknown, change nothing.
    """
    rate = machine.peak16_flop_per_s * c.matmul
    loaded = np.gcd((ops.logit_width // at.tp).astype(np.int64), WIDEST_LOAD)
    held = (loaded < WIDEST_LOAD) & (machine.unit_hz > 0.0)
    if not np.any(held):
        return rate
    most = np.where(held, c.unaligned * loaded * machine.unit_hz, np.inf)
    return np.asarray((rate**-4.0 + most**-4.0) ** -0.25)


def host_stall(device_s: Array, host_s: Array) -> Array:
    """What a busy host adds to `device_s`: a rounded max(device, host) minus the device time."""
    return soft_max(device_s, host_s) - device_s
