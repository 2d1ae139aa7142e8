"""What shows of the gradient exchange after the backward pass has hidden what it can.

A share n of the exchange C never hides; the rest R = (1 - n) C runs beside a window B of the backward pass, which hides
the lesser of the two, with a rounded corner:

.. math:: E = C - \\left(R^{-4} + B^{-4}\\right)^{-1/4}          (1)

More shows with a longer exchange, a larger n or a shorter window, never less.

n and B are beliefs about the usual buckets (1 MiB, then 25 MiB). Other buckets move them as the
recurrence of `tests/oracles/overlap.py` does: gradients of S bytes in buckets of b are ``1 + (S - first)/b`` calls, the
last of which, ``min(b, S)/S`` of the exchange, starts when the backward pass is over, and none before the first bucket
is full. One bucket as large as the gradient hides nothing; many small ones lengthen C by a call each, which the window
hides like the rest.

References: Li et al., VLDB 13 (2020) 3005 (buckets); Stich, arXiv:1805.09767 (synchronising every n steps); Agarwal et
al., arXiv:2103.00543 (compression takes the device's own time); Rajbhandari et al., arXiv:1910.02054 (ZeRO-2 reduces
the gradients of every micro-batch).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.constants import BUCKET_BYTES, FIRST_BUCKET_BYTES
from perfmodel.physics.exchanges import Exchange
from perfmodel.physics.fabric import soft_max
from perfmodel.physics.layouts import Layouts, Sharding, custom_buckets

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Exposed:
    """Seconds of a mean step: what shows of the exchange, the codec included, and what is hidden."""

    shown: Array
    hidden: Array


def exposed(
    exchange: Exchange, at: Layouts, window_s: Array, never: Array, unhidden: Array | float
) -> Exposed:
    """Equation (1) for the exchange at the end of a step and for those of its other micro-batches.

    No less shows than the share `unhidden` that a link was measured to leave.

    Parameters
    ----------
    exchange : seconds and bytes of the exchanges of a step.
    at : layouts (`physics.layouts`).
    window_s : backward pass behind which they may hide [s].
    never : share that never hides, 0 to 1.
    unhidden : share that the link was measured to leave, 0 to 1.

    Returns
    -------
    Seconds of a mean step.

    >>> from perfmodel.physics.layouts import layouts
    >>> at = layouts(8, global_batch=8, accelerators_per_node=8)
    >>> none = np.zeros(())
    >>> exchange = Exchange(np.asarray(2.0), none, none, none, none)
    >>> endless = exposed(exchange, at, np.asarray(1e9), np.asarray(0.1), 0.0)
    >>> round(float(endless.shown), 6), round(float(endless.hidden), 6)
    (0.2, 1.8)
    """
    seconds, window, share = exchange.gradients, window_s, never
    if custom_buckets(at):
        seconds, window, share = _bucketed(exchange, at, window_s, never)
    last = np.maximum(_shown(seconds, window, share * exchange.gradients), unhidden * exchange.gradients)
    shown, total = last, seconds
    if exchange.repeated.any():
        others = at.accumulation - 1.0
        again = _shown(exchange.repeated, window, share * exchange.repeated)
        shown = shown + others * np.maximum(again, unhidden * exchange.repeated)
        total = total + others * exchange.repeated
    codec = np.where(seconds > 0.0, at.compression_s, 0.0) if at.compression_s.any() else 0.0
    return Exposed(np.asarray((shown + codec) / at.sync_every), np.asarray((total - shown) / at.sync_every))


def _shown(seconds: Array, window: Array, least: Array) -> Array:
    """Seconds of an exchange that show; `least` of them never hide."""
    rest = np.maximum(seconds - least, 0.0)
    larger = soft_max(rest, window)
    hidden = np.divide(window, larger, out=np.zeros_like(larger), where=larger > 0.0)
    return np.asarray(least + rest * (1.0 - hidden))


def _bucketed(exchange: Exchange, at: Layouts, window_s: Array, never: Array) -> tuple[Array, Array, Array]:
    """(exchange, window, share never hidden) with the declared buckets in place of the usual ones."""
    # Sharded weights and a parameter server go layer by layer: buckets are no concern of theirs.
    has = (at.sharding <= Sharding.ZERO2) & (exchange.gradients > 0.0)
    size = np.maximum(exchange.gradient_bytes, 1.0)

    def calls(first: Array | float, width: Array | float) -> Array:
        return np.asarray(1.0 + np.maximum(size - first, 0.0) / width)

    def part(width: Array | float) -> Array:
        return np.asarray(np.minimum(width, size) / size)

    more = calls(at.first_bucket_bytes, at.bucket_bytes) - calls(FIRST_BUCKET_BYTES, BUCKET_BYTES)
    tail, usual = part(at.bucket_bytes), part(BUCKET_BYTES)
    later = np.maximum(part(at.first_bucket_bytes) - part(FIRST_BUCKET_BYTES), 0.0)
    # A smaller last bucket takes off what the usual one adds, and never more than its share of what never hides.
    share = np.clip(never + tail - usual, never * np.minimum(tail / usual, 1.0), 1.0)
    return (
        np.where(has, exchange.gradients + np.maximum(more, 0.0) * exchange.call_s, exchange.gradients),
        np.where(has, window_s * (1.0 - later), window_s),
        np.where(has, share, never),
    )
