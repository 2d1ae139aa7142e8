"""Matrix products of one micro-batch on one pipeline stage: their shapes as the layout cuts them, and their seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.coefficients import Coefficients
from perfmodel.physics.constants import EXPERT_CALL_SHARE, LEAST_ALIGNED, TILE_BYTES, WIDEST_LOAD
from perfmodel.physics.layouts import Layouts
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations, Split
from perfmodel.physics.roofline import at_most_peak, lost_waves, product_time

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Product:
    """Products of one shape, forward and backward, on an average stage (logits: on the last one).

    `repeats` counts the products of a micro-batch; seconds are of all of them. `compute_s` is what the arithmetic alone
    takes, `idle_s` what no roof explains: launches, and compute units that wait while others finish the last tiles.
    """

    slot: int
    is_logits: bool | Array
    is_routed: bool | Array
    rows: Array
    inner: Array
    outer: Array
    weights: Array
    repeats: Array
    seconds: Array
    idle_s: Array
    compute_s: Array

    @property
    def flop(self) -> Array:
        return self.repeats * 2.0 * self.rows * self.inner * self.outer

    @property
    def elements(self) -> Array:
        """Elements of operands and results."""
        area = self.inner * self.outer
        return self.repeats * (self.weights * area + self.rows * (self.inner + self.outer))


def products(
    ops: Operations, machine: Machine, at: Layouts, c: Coefficients, repeated: Array
) -> Iterator[Product]:
    r"""Each shape once; `repeated` is the share of a forward pass that is recomputed.

    .. math:: T = q\,\big[n_p\,t_{RIO} + n_p\,t_{\mathrm{call}} + \tau\,\textstyle\sum \ell\,(2RIO/P)\big]                  (1)

    q products of the shape, n_p passes (forward, two backward, recomputed), ell the waves lost by `lost_waves`.
    Reference: NVIDIA, Matrix Multiplication Background User's Guide (tiles and waves).

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    machine : numbers of the cluster in SI units (`physics.machine`).
    at : layouts (`physics.layouts`).
    c : coefficients.
    repeated : share of a forward pass that is recomputed, 0 to 1.

    Returns
    -------
    One `Product` for each shape; seconds of all its passes.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8, tp=2)
    >>> first = next(products(transformer(), node(), at, quiet(), np.asarray(0.0)))
    >>> float(first.rows), float(first.inner), float(first.outer)  # queries, keys and values, halved by tp
    (2048.0, 1024.0, 1536.0)
    """
    tokens = at.micro_batch * ops.tokens / at.cp
    layer_rate, rate16 = (
        machine.peak_flop_per_s * at_most_peak(c.matmul, c.pace),
        logit_rate(ops, machine, at, c),
    )
    bandwidth = machine.memory_bytes_per_s * c.memory
    wave = machine.units * TILE_BYTES / machine.element_bytes
    for slot in range(ops.slot_count.shape[0]):
        split, last = ops.slot_split[slot], ops.slot_last[slot] > 0
        column, row, routed = split == Split.COLUMN, split == Split.ROW, split == Split.EXPERT
        # Ranks that share an expert gather their tokens and cut its inner width, the second product's rows.
        cut = np.where(routed, at.expert_cut, 1.0)
        back = ops.slot_inner[slot] != ops.routed_width
        rows = tokens * ops.slot_rows[slot] / np.where(routed, at.tp / cut, 1.0)
        inner = ops.slot_inner[slot] / np.where(row, at.tp, np.where(back, cut, 1.0))
        outer = ops.slot_outer[slot] / np.where(column, at.tp, np.where(back, 1.0, cut))
        weights = np.where(routed, ops.slot_experts[slot] / at.ep, 1.0)
        rate = np.where(last, rate16, layer_rate)
        call = c.call_s * (1.0 + EXPERT_CALL_SHARE * (weights - 1.0))
        once = product_time(
            rows,
            inner,
            outer,
            weights=weights,
            flop_per_s=rate,
            bytes_per_s=bandwidth,
            activation_bytes=machine.element_bytes,
            weight_bytes=machine.element_bytes,
        )
        forward = 1.0 + np.where(last, 0.0, repeated)
        passes = forward + 1.0 + ops.trainable_fraction
        lost = (
            forward * lost_waves(rows * outer, wave)
            + lost_waves(rows * inner, wave)
            + ops.trainable_fraction * lost_waves(weights * inner * outer, wave)
        )
        compute = 2.0 * rows * inner * outer / rate
        idle = passes * call + c.tail * lost * compute
        count = ops.slot_count[slot] * c.pace / np.where(last, 1.0, at.pp)
        fullest = count * np.where(routed, c.imbalance, 1.0)
        yield Product(
            slot=slot,
            is_logits=last,
            is_routed=routed,
            rows=rows,
            inner=inner,
            outer=outer,
            weights=weights,
            repeats=count / c.pace * passes,
            seconds=fullest * (passes * once + idle),
            idle_s=fullest * idle,
            compute_s=fullest * passes * compute,
        )


def logit_rate(ops: Operations, machine: Machine, at: Layouts, c: Coefficients) -> Array:
    r"""FLOP per second of the product that makes the logits: held to what loads of few elements can feed.

    The smooth least of the 16-bit rate and ``unaligned * g * unit_hz``, g the greatest power of two in a rank's logits
    (at most 8); loads of full width, or a clock that is unknown, change nothing. Libraries that give tensor cores aligned
    operands only leave what loads less than `LEAST_ALIGNED` at once to plain cores.

    .. math:: P_l = \big(P^{-4} + (u\,g\,f)^{-4}\big)^{-1/4}                                                          (2)

    u the belief `unaligned`, g elements a load, f the clock of all units. Reference: NVIDIA, Deep Learning Performance
    Guide, section on alignment.

    Parameters
    ----------
    ops : operations of one sample (`physics.operations`).
    machine : numbers of the cluster in SI units (`physics.machine`).
    at : layouts (`physics.layouts`).
    c : coefficients.

    Returns
    -------
    FLOP per second.

    >>> from perfmodel.physics.coefficients import quiet
    >>> from perfmodel.physics.examples import node, transformer
    >>> from perfmodel.physics.layouts import layouts

    >>> at = layouts(8, global_batch=8, accelerators_per_node=8)
    >>> float(logit_rate(transformer(), node(), at, quiet()))  # 32,000 words are a multiple of eight
    100000000000000.0
    """
    share = at_most_peak(c.matmul, c.pace)
    rate = machine.peak16_flop_per_s * share
    loaded = np.gcd((ops.logit_width // at.tp).astype(np.int64), WIDEST_LOAD)
    left = (loaded < LEAST_ALIGNED) & (machine.plain_flop_per_s > 0.0)
    rate = np.where(left, machine.plain_flop_per_s * share, rate)
    held = (loaded < WIDEST_LOAD) & (machine.unit_hz > 0.0) & ~left
    if not np.any(held):
        return rate
    most = np.where(held, c.unaligned * loaded * machine.unit_hz, np.inf)
    return np.asarray((rate**-4.0 + most**-4.0) ** -0.25)
