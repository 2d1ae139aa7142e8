"""How much of the communication shows when it runs beside compute.

Buckets of gradients become ready while the backward pass runs, and one communication stream sends them in order.
With `ready_i` the moment when bucket i is complete and `t_i` its time on the wire, the stream is the max-plus
recurrence

.. math:: f_i = \\max(ready_i, f_{i-1}) + t_i,                                               (1)

whose solution needs no loop: ``f_last = max_i (ready_i + sum of t_j for j >= i)``. For equal buckets that become ready
at an even pace the maximum is at one of the ends, which gives the closed form of `bucketed_finish`: a 175B model has
thousands of buckets, and the step model millions of layouts.

References: Li et al., "PyTorch distributed", VLDB 13 (2020) 3005 (buckets of 25 MiB, the first of 1 MiB); Zhao et al.,
"PyTorch FSDP", VLDB 16 (2023) 3848 (prefetch); Baccelli et al., *Synchronization and Linearity* (1992) (max-plus).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

FIRST_BUCKET_BYTES: Final = float(2**20)
BUCKET_BYTES: Final = float(25 * 2**20)


def stream_finish(ready_s: ArrayLike, busy_s: ArrayLike) -> Array:
    """When a stream that serves its jobs in order has finished the last one; jobs along the last axis.

    Equation (1) for any `ready_s` and `busy_s` [s].

    >>> float(stream_finish([1.0, 2.0, 3.0], [0.5, 3.0, 0.5]))    # the second job holds up the third
    5.5
    """
    ready, busy = np.broadcast_arrays(np.asarray(ready_s, float), np.asarray(busy_s, float))
    rest = np.cumsum(busy[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray((ready + rest).max(axis=-1))


def bucket_sizes(
    gradient_bytes: float, first_bytes: float = FIRST_BUCKET_BYTES, bucket_bytes: float = BUCKET_BYTES
) -> Array:
    """Buckets of one model in the order in which they are sent [B]: a small first one, equal ones, a remainder.

    >>> bucket_sizes(60 * 2**20).tolist() == [2**20, 25 * 2**20, 25 * 2**20, 9 * 2**20]
    True
    """
    first = min(first_bytes, gradient_bytes)
    whole, rest = divmod(gradient_bytes - first, bucket_bytes)
    sizes = [first, *[bucket_bytes] * int(whole), rest]
    return np.array([size for size in sizes if size > 0.0] or [0.0])


def bucketed_finish(
    backward_s: ArrayLike,
    gradient_bytes: ArrayLike,
    fixed_s: ArrayLike,
    s_per_byte: ArrayLike,
    *,
    first_bytes: ArrayLike = FIRST_BUCKET_BYTES,
    bucket_bytes: ArrayLike = BUCKET_BYTES,
) -> Array:
    """When the last bucket has arrived, counted from the start of the backward pass [s]; closed form.

    Gradients appear at an even pace over the backward pass T_b. With a first bucket of share x0, then equal buckets,
    a bucket costs ``fixed_s + bytes * s_per_byte``. Equation (1) is linear in the bucket index between the second and
    the last, so the finish is the largest of three: the stream never idle since the first bucket, since the second, or
    the last bucket alone. The number of buckets is taken as real, so that the time is continuous in the model's size.

    >>> sizes = bucket_sizes(101 * 2**20)
    >>> ready = np.cumsum(sizes) / sizes.sum() * 0.1
    >>> exact = stream_finish(ready, 30e-6 + sizes * 1e-10)
    >>> bool(np.isclose(bucketed_finish(0.1, 101 * 2**20, 30e-6, 1e-10), exact))
    True
    """
    back, total = np.asarray(backward_s, float), np.asarray(gradient_bytes, float)
    fixed, rate = np.asarray(fixed_s, float), np.asarray(s_per_byte, float)
    first = np.minimum(np.asarray(first_bytes, float), total)
    bucket = np.asarray(bucket_bytes, float)
    others = (total - first) / bucket
    size = np.minimum(bucket, total - first)
    pace = back / np.maximum(total, np.finfo(float).tiny)
    wire = total * rate
    from_first = pace * first + fixed * (1.0 + others) + wire
    from_second = pace * (first + size) + fixed * others + wire - first * rate
    from_last = np.where(others > 0.0, back + fixed + size * rate, 0.0)
    return np.asarray(np.maximum(np.maximum(from_first, from_second), np.maximum(from_last, back)))


def exposed(
    backward_s: ArrayLike,
    gradient_bytes: ArrayLike,
    fixed_s: ArrayLike,
    s_per_byte: ArrayLike,
    *,
    first_bytes: ArrayLike = FIRST_BUCKET_BYTES,
    bucket_bytes: ArrayLike = BUCKET_BYTES,
    every: ArrayLike = 1.0,
) -> Array:
    """Communication that shows beyond the backward pass [s], per step, when gradients meet every `every` steps.

    The last bucket is never hidden: it is complete only when the backward pass ends.

    >>> hidden = exposed(1.0, 100e6, 20e-6, 1e-11)
    >>> bool(np.isclose(hidden, 20e-6 + BUCKET_BYTES * 1e-11))
    True
    >>> bool(np.isclose(exposed(1.0, 100e6, 20e-6, 1e-11, every=4), hidden / 4))
    True
    """
    finish = bucketed_finish(
        backward_s, gradient_bytes, fixed_s, s_per_byte, first_bytes=first_bytes, bucket_bytes=bucket_bytes
    )
    return np.asarray((finish - np.asarray(backward_s, float)) / np.maximum(np.asarray(every, float), 1.0))


def shared_chip(compute_s: ArrayLike, communication_s: ArrayLike, stolen: ArrayLike) -> Array:
    """Time of compute and communication side by side when communication takes the share `stolen` of the chip.

    Compute runs at 1 - stolen while bytes move, so both are over after ``max(B + stolen * C, C)``: communication kernels
    hold 16 to 32 of some 130 multiprocessors, a share of 0.05 to 0.2.

    >>> shared_chip([1.0, 1.0], [0.5, 4.0], 0.1).tolist()
    [1.05, 4.0]
    """
    compute, wire = np.asarray(compute_s, float), np.asarray(communication_s, float)
    return np.asarray(np.maximum(compute + np.asarray(stolen, float) * wire, wire))


def sharded_layers(
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    gather_s: ArrayLike,
    scatter_s: ArrayLike,
    layers: ArrayLike,
    *,
    prefetch: bool = True,
) -> Array:
    """Forward and backward pass of `layers` equal layers whose weights are gathered on the way (FSDP, ZeRO-3) [s].

    Times are per layer. With prefetch, the gather of the next layer runs beside the compute of this one; backward, the
    stream carries a gather and a reduce-scatter a layer. The first gather of each pass and the last scatter show:

    ``g + (N-1) max(f, g) + f + g + (N-1) max(b, g + r) + b + r``; without prefetch everything adds up.

    >>> sharded_layers(1.0, 2.0, 0.5, 0.5, 4).tolist()    # hidden but for the ends: 12 + 2 * 0.5 + 0.5
    13.5
    >>> sharded_layers(1.0, 2.0, 0.5, 0.5, 4, prefetch=False).tolist()
    18.0
    """
    f, b = np.asarray(forward_s, float), np.asarray(backward_s, float)
    g, r, n = np.asarray(gather_s, float), np.asarray(scatter_s, float), np.asarray(layers, float)
    if not prefetch:
        return np.asarray(n * (f + b + 2.0 * g + r))
    forward = g + (n - 1.0) * np.maximum(f, g) + f
    backward = g + (n - 1.0) * np.maximum(b, g + r) + b + r
    return np.asarray(forward + backward)


def compressed(
    message_bytes: ArrayLike, s_per_byte: ArrayLike, ratio: ArrayLike, compress_bytes_per_s: ArrayLike
) -> Array:
    """Seconds to send a message made `ratio` times smaller, compressing and restoring at the given rate.

    ``S / ratio * beta + 2 S / C``: it pays when ``C > 2 / (beta (1 - 1/ratio))``.

    >>> plain, smaller = compressed(1e9, 1e-9, [1.0, 4.0], [np.inf, 8e9]).tolist()
    >>> plain, smaller
    (1.0, 0.5)
    """
    size, beta = np.asarray(message_bytes, float), np.asarray(s_per_byte, float)
    wire = size * beta / np.asarray(ratio, float)
    return np.asarray(wire + 2.0 * size / np.asarray(compress_bytes_per_s, float))
