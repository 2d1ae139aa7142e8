"""Communication that hides behind computation: buckets of gradients, prefetched shards, and what stays exposed.

Both patterns are max-plus recurrences, a queue with one server (the communication stream):

.. math:: \\phi_i = \\max(r_i, \\phi_{i-1}) + t_i                                                       (1)

with r the time at which message i is ready, t its duration and phi its end. Unrolled, the end of the last is
``max_j (r_j + t_j + ... + t_n)``. Where messages are equal and ready at equal intervals the term under the
maximum is linear in j, so only the ends of each run of equal messages can win: the closed forms are maxima of a
few terms and serve a model of thousands of buckets at the cost of one.

Kernels of communication take compute units and memory bandwidth: while a message is under way, computation
advances at the rate ``1/slowdown``.

The step model (`perfmodel.training.step`) uses smooth forms instead. What may hide of its gradient exchange shows the
hinge ``max(R - B, 0)`` with a rounded corner, the limit of equation (1) for many buckets of negligible latency when
the exchange R and the backward pass B differ widely; its sharded weights are a 4-norm of gathering and computing, the
limit of `prefetch_equal_s` for many layers when one of the two dominates. Near equality these are above (hinge:
by up to a tenth of the exchange; norm: 19 %), as no real schedule is perfect there.

References: Li et al., VLDB 13 (2020) 3005 (DDP buckets); Zhao et al., arXiv:2304.11277 (FSDP prefetch);
Rajbhandari et al., arXiv:1910.02054 (ZeRO); Baccelli et al., *Synchronization and Linearity* (1992), ch. 1
(max-plus); Stich, arXiv:1805.09767 (synchronising every n steps); Agarwal et al., arXiv:2103.00543 (when
compression pays).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.constants import BUCKET_BYTES, FIRST_BUCKET_BYTES

Array = NDArray[np.float64]

MIB: Final = 1024.0 * 1024.0


def bucket_sizes(
    gradient_bytes: float, *, first_bytes: float = FIRST_BUCKET_BYTES, bucket_bytes: float = BUCKET_BYTES
) -> Array:
    """Bytes of each bucket in the order of sending: a first one, full ones, and what remains.

    >>> (bucket_sizes(60 * MIB) / MIB).tolist()
    [1.0, 25.0, 25.0, 9.0]
    """
    first, full, rest = _runs(gradient_bytes, first_bytes, bucket_bytes)
    sizes = [float(first), *([float(bucket_bytes)] * int(full)), float(rest)]
    return np.array([size for size in sizes if size > 0.0])


def _runs(
    gradient_bytes: ArrayLike, first_bytes: ArrayLike, bucket_bytes: ArrayLike
) -> tuple[Array, Array, Array]:
    """Bytes of the first bucket, the number of full ones, bytes of the last."""
    total, width = np.asarray(gradient_bytes, float), np.asarray(bucket_bytes, float)
    first = np.minimum(np.asarray(first_bytes, float), total)
    full = np.floor((total - first) / width)
    return first, full, np.maximum(total - first - full * width, 0.0)


def queue_finish_s(ready_s: ArrayLike, duration_s: ArrayLike, slowdown: ArrayLike = 1.0) -> Array:
    """End of each message by equation (1), along the last axis; messages are sent in order.

    `ready_s` is when computation alone would have message i ready. With ``rho = 1/slowdown`` the *progress* of
    computation obeys equation (1) with durations ``rho t``, and the clock is ahead of it by ``(1 - rho)`` of all
    the time spent sending: exact, as computation never waits here.

    >>> queue_finish_s([1.0, 2.0, 9.0], [3.0, 3.0, 1.0]).tolist()
    [4.0, 7.0, 10.0]
    >>> queue_finish_s([1.0, 2.0], [1.0, 1.0], slowdown=2.0).tolist()    # half a second of work is lost
    [2.0, 3.5]
    """
    ready, duration = np.broadcast_arrays(np.asarray(ready_s, float), np.asarray(duration_s, float))
    rate = 1.0 / np.asarray(slowdown, float)[..., None]
    spent = np.cumsum(duration, axis=-1)
    before = rate * (spent - duration)
    progress = rate * spent + np.maximum.accumulate(ready - before, axis=-1)
    return np.asarray(progress + (1.0 - rate) * spent)


def ddp_backward_s(
    gradient_bytes: ArrayLike,
    backward_s: ArrayLike,
    *,
    latency_s: ArrayLike,
    bytes_per_s: ArrayLike,
    first_bytes: ArrayLike = FIRST_BUCKET_BYTES,
    bucket_bytes: ArrayLike = BUCKET_BYTES,
    slowdown: ArrayLike = 1.0,
) -> Array:
    """Seconds from the start of the backward pass until the last bucket is reduced; closed form, elementwise.

    Gradients appear evenly over `backward_s`; a bucket of s bytes takes ``latency_s + s / bytes_per_s``, the rate
    being bytes of gradient over time of the all-reduce. The largest of four terms, one for each end of a run of
    equal buckets, plus ``(1 - 1/slowdown)`` of the communication. Equals `queue_finish_s` on `bucket_sizes`.

    >>> t = ddp_backward_s(350e9, 10.0, latency_s=50e-6, bytes_per_s=[20e9, 50e9])
    >>> t.round(3).tolist()    # bound by the exchange; bound by the backward pass
    [18.168, 10.001]
    """
    total, backward, latency, rate, width = (
        np.asarray(v, float) for v in (gradient_bytes, backward_s, latency_s, bytes_per_s, bucket_bytes)
    )
    share = 1.0 / np.asarray(slowdown, float)
    first, full, rest = _runs(total, first_bytes, width)
    per_byte = backward / np.maximum(total, np.finfo(float).tiny)
    one = latency + width / rate
    start = np.where(first > 0.0, latency + first / rate, 0.0)
    end = np.where(rest > 0.0, latency + rest / rate, 0.0)
    everything = start + full * one + end
    several = full > 0.0
    progress = np.maximum(per_byte * first + share * everything, backward + share * end)
    head = per_byte * (first + width) + share * (full * one + end)
    tail = per_byte * (first + full * width) + share * (one + end)
    progress = np.where(several, np.maximum(progress, np.maximum(head, tail)), progress)
    return np.asarray(progress + (1.0 - share) * everything)


def prefetch_finish_s(
    gather_s: ArrayLike, compute_s: ArrayLike, scatter_s: ArrayLike = 0.0, *, ahead: int = 1
) -> Array:
    """Seconds of a pass over layers whose weights are gathered `ahead` layers before they are used.

    Layers lie along the last axis in the order of use. One communication stream keeps its order: the first
    ``ahead + 1`` gathers, then in turn the reduce-scatter of layer i (in a backward pass) and the gather of layer
    ``i + ahead + 1``, both once layer i is computed, since its buffer is needed. Layer i starts when it is
    gathered and layer i - 1 is done. ``ahead = 0`` is no prefetch: everything is exposed.

    >>> prefetch_finish_s([1.0, 1.0, 1.0], 2.0, ahead=0).item(), prefetch_finish_s([1.0, 1.0, 1.0], 2.0).item()
    (9.0, 7.0)
    """
    gather, compute, scatter = np.broadcast_arrays(
        *(np.asarray(v, float) for v in (gather_s, compute_s, scatter_s))
    )
    layers = gather.shape[-1]
    stream, done = np.zeros(gather.shape[:-1]), np.zeros(gather.shape[:-1])
    gathered = []
    for i in range(min(ahead + 1, layers)):
        stream = stream + gather[..., i]
        gathered.append(stream)
    for i in range(layers):
        done = np.maximum(done, gathered[i]) + compute[..., i]
        stream = np.maximum(stream, done) + scatter[..., i]
        if (after := i + ahead + 1) < layers:
            stream = stream + gather[..., after]
            gathered.append(stream)
    return np.asarray(np.maximum(stream, done))


def prefetch_equal_s(
    layers: ArrayLike,
    gather_s: ArrayLike,
    compute_s: ArrayLike,
    scatter_s: ArrayLike = 0.0,
    *,
    slowdown: ArrayLike = 1.0,
) -> Array:
    """`prefetch_finish_s` one layer ahead for L equal layers, in closed form.

    With g, c, r the times of one layer and ``o(x) = max(x, c + (1 - 1/slowdown) x)`` a layer computed while x seconds
    of communication pass,

    .. math:: T = g + o(g) + (L-2)\\, o(g+r) + o(r) + r \\qquad (L \\ge 2); \\qquad g + c + r \\quad (L = 1)   (2)

    A forward pass has r = 0: ``g + (L-1) o(g) + c``, and looking further ahead changes nothing for equal layers.

    >>> prefetch_equal_s([1, 3, 3], 1.0, [2.0, 2.0, 0.5]).tolist()
    [3.0, 7.0, 3.5]
    """
    count, g, c, r = (np.asarray(v, float) for v in (layers, gather_s, compute_s, scatter_s))
    lost = 1.0 - 1.0 / np.asarray(slowdown, float)

    def beside(x: Array) -> Array:
        return np.maximum(x, c + lost * x)

    many = g + beside(g) + np.maximum(count - 2.0, 0.0) * beside(g + r) + beside(r) + r
    return np.asarray(np.where(count > 1.0, many, np.where(count > 0.0, g + c + r, 0.0)))


def compressed_exchange_s(
    exchange_s: ArrayLike, gradient_bytes: ArrayLike, *, ratio: ArrayLike, codec_bytes_per_s: ArrayLike
) -> Array:
    """Seconds of an exchange whose gradient is made `ratio` times smaller first.

    ``T/ratio + S/codec``: the bytes of the wire shrink, and every byte of gradient passes the codec (compress and
    expand together) before and after. `exchange_s` is the part that scales with bytes. Sparse formats that cannot be
    added on the way need an all-gather, whose bytes grow with the ranks: give the ratio that remains at that size.

    >>> compressed_exchange_s(1.0, 1e10, ratio=[1.0, 4.0], codec_bytes_per_s=[np.inf, 1e11]).tolist()
    [1.0, 0.35]
    """
    wire = np.asarray(exchange_s, float) / np.asarray(ratio, float)
    return np.asarray(wire + np.asarray(gradient_bytes, float) / np.asarray(codec_bytes_per_s, float))


def codec_break_even_bytes_per_s(bytes_per_s: ArrayLike, ratio: ArrayLike) -> Array:
    """Rate that a codec must beat to pay on a link of `bytes_per_s`: ``B ratio/(ratio - 1)``; infinite at ratio 1.

    >>> float(codec_break_even_bytes_per_s(10e9, 2.0))
    20000000000.0
    """
    rate, factor = np.asarray(bytes_per_s, float), np.asarray(ratio, float)
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(factor > 1.0, rate / np.maximum(1.0 - 1.0 / factor, 0.0), np.inf))


def synchronised_every_s(compute_s: ArrayLike, exposed_s: ArrayLike, every: ArrayLike = 1.0) -> Array:
    """Mean seconds of a step when replicas exchange once in `every` steps (local SGD, gradient accumulation).

    ``compute + exposed / every``; only the step that exchanges hides anything, so `exposed_s` does not change.

    >>> synchronised_every_s(1.0, 0.4, [1, 4]).tolist()
    [1.4, 1.1]
    """
    return np.asarray(np.asarray(compute_s, float) + np.asarray(exposed_s, float) / np.asarray(every, float))
