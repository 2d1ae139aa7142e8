"""Device and host time of one micro-batch on one pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.coefficients import Coefficients
from perfmodel.physics.constants import (
    ATTENTION_BACKWARD,
    ATTENTION_RAMP,
    BACKWARD_HOST,
    BACKWARD_TRAFFIC,
    CAST_READS,
    FAST_CONVOLUTION,
    HIDDEN_TRAFFIC,
    INNER_TRAFFIC,
    PRODUCT_BYTES,
    PRODUCTS_BACKWARD,
    SOFTMAX_BYTES,
    TENSOR_HOST,
)  # fmt: skip
from perfmodel.physics.fabric import soft_max
from perfmodel.physics.layouts import Layouts
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations
from perfmodel.physics.products import products
from perfmodel.physics.roofline import at_most_peak, roofline_time

Array = NDArray[np.float64]

LEAST_REPEATED = 1e-3  # of a forward pass, so that its logarithm is finite


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
    r"""The phases of the theory page on the roofline, cut by the layout; all arrays broadcast.

    With F and V the FLOP and bytes of a phase, P and B the rates, r the share recomputed:

    .. math:: t = \sum_{\mathrm{products}} t_{RIO} + t_{\mathrm{attention}}
        + (2.6 + r)\,V_{\mathrm{elementwise}}/B + (3 + r)\,(F/P \,|\, V/B)_{\mathrm{other}}                      (1)

    Reference: Korthikanti et al. 2022, arXiv:2205.05198 (element-wise traffic); Williams et al. 2009 (roofline).

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    machine : numbers of the cluster in SI units (`physics.machine`).
    at : layouts (`physics.layouts`).
    c : coefficients (`physics.coefficients`).

    Returns
    -------
    Seconds of each phase, forward plus backward, on an average stage.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8)
    >>> one = micro_batch(transformer(), node(), at, quiet())
    >>> flop = transformer().training_flop() - 3.5 * transformer().attention_flop
    >>> bool(one.matmul + one.last > flop / 1e14)  # never faster than the peak
    True
    """
    tokens = at.micro_batch * ops.tokens / at.cp
    bandwidth = machine.memory_bytes_per_s * c.memory
    cut = 1.0 / (at.cp * at.tp * at.pp)
    width = 0.5 * machine.element_bytes  # traffic is counted at 2 bytes per element
    repeated = repeated_share(at, c)

    matmul: Array = np.zeros(())
    logits: Array = np.zeros(())
    for product in products(ops, machine, at, c, repeated):
        matmul = matmul + np.where(product.is_logits, 0.0, product.seconds)
        logits = logits + np.where(product.is_logits, product.seconds, 0.0)

    samples = at.micro_batch
    attention = _attention(ops, machine, at, c, repeated)

    traffic_passes = 1.0 + BACKWARD_TRAFFIC + repeated
    hidden_cut = np.where(at.sequence_parallel > 0, cut, cut * at.tp)
    cast = (
        machine.is_low_precision
        * c.cast_bytes
        * (ops.inner_traffic / INNER_TRAFFIC + ops.hidden_traffic / (HIDDEN_TRAFFIC / CAST_READS))
    )
    traffic = ops.hidden_traffic * hidden_cut + (ops.inner_traffic * width + cast) * cut
    elementwise = samples * traffic * c.elementwise * traffic_passes / bandwidth
    routed_elements = tokens / at.tp * ops.top_k * ops.routed_width * ops.moe_layers / at.pp
    elementwise = elementwise + routed_elements * c.routing_bytes / bandwidth

    other = roofline_time(
        samples * other_work(ops, machine, c) * cut,
        samples * ops.other_traffic * width * c.other_traffic * cut,
        flop_per_s=machine.peak_flop_per_s * at_most_peak(c.other, c.pace),
        bytes_per_s=bandwidth,
    ) * (3.0 + repeated)

    loss = samples * ops.logit_elements / (at.cp * at.tp) * c.loss_bytes / bandwidth
    host_passes = 1.0 + BACKWARD_HOST + repeated
    host = ops.kernels / at.pp * c.host_kernel_s * host_passes * (1.0 + TENSOR_HOST * np.log2(at.tp))
    pace = c.pace
    return MicroBatch(
        matmul, attention * pace, elementwise * pace, other * pace, logits + loss * pace, host, repeated
    )


def repeated_share(at: Layouts, c: Coefficients) -> Array:
    r"""Share of a forward pass that is repeated: as the layout says, else what frees the memory that it lacks.

    .. math:: r = f^{\log_{1/2} h}                                                                                (1a)

    with f the share of the activations that has to go and h the share repeated to free half of them. What takes the
    most room for the least work is repeated first (norms and activation functions before products), so that h is well
    below one half.

    Reference: Korthikanti et al. 2022, arXiv:2205.05198, sec. 5 (70 % of the activations for 2.7 % of the FLOP).

    Parameters
    ----------
    at : layouts (`physics.layouts`).
    c : coefficients; `recompute` is h.

    Returns
    -------
    0 to 1.

    >>> from dataclasses import replace
    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8, recompute=[0.3, np.nan, np.nan], freed=[1.0, 0.5, 1.0])
    >>> repeated_share(at, replace(quiet(), recompute=np.asarray(0.25))).tolist()
    [0.3, 0.25, 1.0]
    """
    unsaid = np.isnan(at.recompute)
    if not unsaid.any():
        return at.recompute
    power = -np.log2(np.clip(c.recompute, LEAST_REPEATED, 1.0))
    return np.asarray(np.where(unsaid, np.power(at.freed, power), at.recompute))


def other_work(ops: Operations, machine: Machine, c: Coefficients) -> Array:
    r"""FLOP that convolutions, recurrences and other counted arithmetic do forward, fewer where a fast algorithm runs.

    .. math:: F = F_{\mathrm{other}} - w\,F_{3\times3}\,(1 - 1/2.25)                                              (2)

    Reference: Lavin & Gray 2016, arXiv:1509.09308, sec. 4.1.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    machine : numbers of the cluster in SI units (`physics.machine`).
    c : coefficients; `winograd` is the share of 3x3 convolutions that a fast algorithm runs.

    Returns
    -------
    FLOP of one sample, forward.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> float(other_work(transformer(), node(), quiet()))
    0.0
    """
    fast = machine.fast_convolutions * np.minimum(c.winograd, 1.0) * ops.conv3x3_flop
    return np.asarray(ops.other_flop - fast * (1.0 - 1.0 / FAST_CONVOLUTION))


def score_bytes(ops: Operations, machine: Machine, again: Array, per_score: tuple[float, float]) -> Array:
    r"""Bytes of one probability in a step, from those in 16 bit of a forward and a backward pass.

    .. math:: b = \big(b_f (1 + a) + b_b\big)\,\max(w, w_s)/2                                                      (3)

    with w the bytes of an element and w_s those that the workload keeps its scores in. Counted, no reference.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    machine : numbers of the cluster in SI units (`physics.machine`).
    again : share of the forward pass that is repeated, 0 to 1.
    per_score : bytes of one probability in 16 bit, (forward, backward).

    Returns
    -------
    Bytes of one probability in a step.

    >>> from perfmodel.physics.examples import node, transformer
    >>> float(score_bytes(transformer(), node(), np.asarray(1.0), (4.0, 8.0)))
    16.0
    """
    forward, backward = per_score
    width = 0.5 * np.maximum(machine.element_bytes, ops.least_score_bytes)
    return np.asarray((forward * (1.0 + again) + backward) * width)


def _attention(ops: Operations, machine: Machine, at: Layouts, c: Coefficients, repeated: Array) -> Array:
    """Seconds of scores, softmax and weighted values, forward and backward; (2) of the theory page on the roofline.

    A fused kernel keeps the scores on the chip, skips what a causal mask hides and computes them again backward. Others
    compute all: two library products of few FLOP per byte, and kernels that do nothing but move the scores.
    """
    scale = at.micro_batch / (at.cp * at.tp * at.pp)
    again = np.maximum(repeated, at.selective)
    bandwidth = machine.memory_bytes_per_s * c.memory
    short = 1.0 + ATTENTION_RAMP * (1.0 + ops.masked) * at.cp / np.maximum(ops.tokens, 1.0)
    rate = machine.peak16_flop_per_s * at_most_peak(c.attention, c.pace) / short
    fused = ops.attention_flop * (1.0 + ATTENTION_BACKWARD + again) / rate
    products = roofline_time(
        ops.attention_flop * (1.0 + ops.masked) * (1.0 + PRODUCTS_BACKWARD + again),
        ops.score_elements * score_bytes(ops, machine, again, PRODUCT_BYTES),
        flop_per_s=machine.peak16_flop_per_s * at_most_peak(c.matmul, c.pace),
        bytes_per_s=bandwidth,
    )
    softmax = ops.score_elements * score_bytes(ops, machine, again, SOFTMAX_BYTES) / bandwidth
    written = c.unfused * scores_fit(ops, machine, at, again)
    share = np.minimum(written, 1.0)
    return np.asarray(scale * ((1.0 - share) * fused + written * (products + softmax)))


def scores_fit(ops: Operations, machine: Machine, at: Layouts, again: Array) -> Array:
    r"""Whether the probabilities of attention without a fused kernel have room: one where they do, nothing where they do not.

    .. math:: w = \frac{1}{1 + (V/M)^8}, \qquad V = b\,s\,w_s\,\max(1 - a, 1/L)                                    (4)

    Such a kernel keeps the probabilities of every layer for the backward pass, or of one layer where they are made again. With
    long sequences they exceed the memory M, and whoever trains on them has a fused kernel. Counted, no reference.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    machine : numbers of the cluster in SI units (`physics.machine`).
    at : layouts (`physics.layouts`).
    again : share of the forward pass that is repeated, 0 to 1.

    Returns
    -------
    Share of the attention that may run without a fused kernel.

    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8)
    >>> float(scores_fit(transformer(), node(), at, np.asarray(0.0)).round(3))
    1.0
    """
    width = 0.5 * np.maximum(machine.element_bytes, ops.least_score_bytes)
    kept = np.maximum(1.0 - again, 1.0 / np.maximum(ops.layers, 1.0))
    alive = at.micro_batch / (at.cp * at.tp * at.pp) * ops.score_elements * 2.0 * width * kept
    return np.asarray(1.0 / (1.0 + (alive / machine.memory_bytes) ** 8))


def host_stall(device_s: Array, host_s: Array) -> Array:
    """What a busy host adds to `device_s`: a rounded max(device, host) minus the device time.

    .. math:: t = (d^4 + h^4)^{1/4} - d                                                                            (5)

    Parameters
    ----------
    device_s : time of the device [s].
    host_s : time in which the host issues its kernels [s].

    Returns
    -------
    Seconds added to `device_s`.

    >>> host_stall(np.asarray(1.0), np.asarray([0.0, 1.0])).round(3).tolist()
    [0.0, 0.189]
    """
    return soft_max(device_s, host_s) - device_s
