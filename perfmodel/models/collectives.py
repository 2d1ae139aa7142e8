"""Textbook cost of collectives: Hockney's alpha, beta and gamma, one function per algorithm.

Symbols, the same everywhere: `message_bytes` S is the full vector (all-gather and reduce-scatter: ranks x shard;
all-to-all: what each rank sends in total); `ranks` n; `alpha_s` latency of one message; `beta_s_per_byte` time of a byte
on one link; `gamma_s_per_byte` time to add up a byte locally. L = ceil(log2 n). Arrays broadcast; one rank costs 0 s.

These are the algorithms as published, each on a homogeneous network: they say what could be, and bound what a
measured sweep can show. What libraries reach on two tiers is `perfmodel.models.fabric`.

References
----------
.. [1] R. Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994) 389.
.. [2] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
   IJHPCA 19 (2005) 49.
.. [3] E. Chan et al., "Collective communication: theory, practice, and experience", CCPE 19 (2007) 1749.
.. [4] P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters", JPDC 69 (2009) 117.
.. [5] P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
   Parallel Computing 35 (2009) 581.
.. [6] J. Bruck et al., "Efficient algorithms for all-to-all communications", IEEE TPDS 8 (1997) 1143.
.. [7] R. Graham et al., "Scalable hierarchical aggregation protocol (SHArP)", COMHPC 2016.
.. [8] M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _numbers(*values: ArrayLike) -> tuple[Array, ...]:
    return tuple(np.asarray(value, float) for value in values)


def _rounds(ranks: Array) -> Array:
    """L = ceil(log2 n); the small shift keeps exact powers of two exact."""
    return np.ceil(np.log2(np.maximum(ranks, 1.0)) - 1e-12)


def _share(ranks: Array) -> Array:
    return (ranks - 1.0) / ranks


def point_to_point(message_bytes: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike) -> Array:
    """alpha + S beta [1].

    >>> float(point_to_point(1e6, 1e-6, 1e-9))
    0.001001
    """
    size, alpha, beta = _numbers(message_bytes, alpha_s, beta_s_per_byte)
    return alpha + size * beta


def ring_all_reduce(
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:
    """2(n-1) alpha + 2(n-1)/n S beta + (n-1)/n S gamma: reduce-scatter, then all-gather; bandwidth optimal [4].

    >>> round(float(ring_all_reduce(8e9, 8, 1e-6, 1e-11)), 9)
    0.140014
    """
    size, n, alpha, beta, gamma = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte, gamma_s_per_byte)
    return 2.0 * (n - 1.0) * alpha + _share(n) * size * (2.0 * beta + gamma)


def recursive_doubling_all_reduce(
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:
    """L (alpha + S beta + S gamma): the whole vector in every round; best for small messages [2]."""
    size, n, alpha, beta, gamma = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte, gamma_s_per_byte)
    return _rounds(n) * (alpha + size * (beta + gamma))


def halving_doubling_all_reduce(
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:
    """2 log2(n') alpha + 2(n'-1)/n' S beta + (n'-1)/n' S gamma on the largest power of two n' <= n [2].

    Ranks beyond n' fold their vector into a partner's first and receive the result last: 2 alpha + 2 S beta + S gamma
    more when n is no power of two.
    """
    size, n, alpha, beta, gamma = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte, gamma_s_per_byte)
    rounds = np.floor(np.log2(np.maximum(n, 1.0)) + 1e-12)
    core = np.exp2(rounds)
    fold = np.where(n > core, 2.0 * alpha + size * (2.0 * beta + gamma), 0.0)
    return np.asarray(2.0 * rounds * alpha + _share(core) * size * (2.0 * beta + gamma) + fold)


def double_tree_all_reduce(
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:
    """2 (sqrt(L alpha) + sqrt(S (beta + gamma/2)))^2: two complementary binary trees, optimally chunked [5].

    A pipeline of depth L moving m chunks takes (L + m)(alpha + S beta/m); the best m is sqrt(L S beta/alpha). Reduction
    and broadcast are one such pipeline each, at full bandwidth because a rank is interior in one tree only.
    """
    size, n, alpha, beta, gamma = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte, gamma_s_per_byte)
    several = np.where(n > 1.0, 2.0, 0.0)
    return np.asarray(several * np.square(np.sqrt(_rounds(n) * alpha) + np.sqrt(size * (beta + 0.5 * gamma))))


def in_network_all_reduce(
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    radix: ArrayLike = 32.0,
) -> Array:
    """2 ceil(log_radix n) alpha + S beta: switches add on the way up and multicast on the way down [7].

    S goes up and S comes down at the same time (full duplex), so the wire carries S instead of 2(n-1)/n S. NVLink SHARP
    is the case of one switch level, `radix` >= n.

    >>> gain = ring_all_reduce(1e9, 8, 0, 1e-11) / in_network_all_reduce(1e9, 8, 0, 1e-11)
    >>> round(float(gain), 9)
    1.75
    """
    size, n, alpha, beta, width = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte, radix)
    levels = np.ceil(np.log(np.maximum(n, 1.0)) / np.log(width) - 1e-12)
    return np.asarray(np.where(n > 1.0, 2.0 * levels * alpha + size * beta, 0.0))


def hierarchical_all_reduce(
    message_bytes: ArrayLike,
    ranks_per_node: ArrayLike,
    nodes: ArrayLike,
    alpha_in_s: ArrayLike,
    beta_in_s_per_byte: ArrayLike,
    alpha_out_s: ArrayLike,
    beta_out_s_per_byte: ArrayLike,
) -> Array:
    """Reduce-scatter in the node, ring all-reduce of 1/g among k nodes on every rail, all-gather in the node.

    2(g-1) a1 + 2(g-1)/g S b1 + 2(k-1) a2 + 2(k-1)/k (S/g) b2, with b2 the byte time of one rank's share of the NICs.
    The bytes add up to those of a flat ring: with b1 = b2 and no latency the two agree exactly,
    (g-1)/g + (k-1)/(g k) = (n-1)/n.

    >>> flat = ring_all_reduce(1e9, 32, 0, 1e-10)
    >>> bool(np.isclose(hierarchical_all_reduce(1e9, 8, 4, 0, 1e-10, 0, 1e-10), flat))
    True
    """
    size, g, k = _numbers(message_bytes, ranks_per_node, nodes)
    inside = ring_all_reduce(size, g, alpha_in_s, beta_in_s_per_byte)
    return inside + ring_all_reduce(size / g, k, alpha_out_s, beta_out_s_per_byte)


def ring_all_gather(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(n-1) alpha + (n-1)/n S beta [3]."""
    size, n, alpha, beta = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return (n - 1.0) * alpha + _share(n) * size * beta


def bruck_all_gather(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """L alpha + (n-1)/n S beta: recursive doubling for any n [6]."""
    size, n, alpha, beta = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return _rounds(n) * alpha + _share(n) * size * beta


def ring_reduce_scatter(
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:
    """(n-1) alpha + (n-1)/n S (beta + gamma) [3].

    >>> both = ring_reduce_scatter(1e9, 8, 1e-6, 1e-11) + ring_all_gather(1e9, 8, 1e-6, 1e-11)
    >>> bool(np.isclose(both, ring_all_reduce(1e9, 8, 1e-6, 1e-11)))
    True
    """
    size, n, alpha, beta, gamma = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte, gamma_s_per_byte)
    return (n - 1.0) * alpha + _share(n) * size * (beta + gamma)


def halving_reduce_scatter(
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:
    """L alpha + (n-1)/n S (beta + gamma): recursive halving [2]."""
    size, n, alpha, beta, gamma = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte, gamma_s_per_byte)
    return _rounds(n) * alpha + _share(n) * size * (beta + gamma)


def pairwise_all_to_all(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(n-1) alpha + (n-1)/n S beta: one partner a round [2]."""
    return ring_all_gather(message_bytes, ranks, alpha_s, beta_s_per_byte)


def bruck_all_to_all(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """L (alpha + S/2 beta): half of the data moves in each of L rounds; best for small messages [6]."""
    size, n, alpha, beta = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return _rounds(n) * (alpha + 0.5 * size * beta)


def hierarchical_all_to_all(
    message_bytes: ArrayLike,
    ranks_per_node: ArrayLike,
    nodes: ArrayLike,
    alpha_in_s: ArrayLike,
    beta_in_s_per_byte: ArrayLike,
    alpha_out_s: ArrayLike,
    beta_out_s_per_byte: ArrayLike,
) -> Array:
    """Regroup by rail inside the node, then exchange with the same rank of every other node.

    (g-1) a1 + (g-1)/g S b1 + (k-1) a2 + (k-1)/k S b2: fewer, larger messages on the network, one more pass inside.
    """
    inside = pairwise_all_to_all(message_bytes, ranks_per_node, alpha_in_s, beta_in_s_per_byte)
    return inside + pairwise_all_to_all(message_bytes, nodes, alpha_out_s, beta_out_s_per_byte)


def binomial_broadcast(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """L (alpha + S beta) [2]; the same for a reduction without its additions."""
    size, n, alpha, beta = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return _rounds(n) * (alpha + size * beta)


def scatter_gather_broadcast(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(L + n - 1) alpha + 2(n-1)/n S beta: binomial scatter, ring all-gather (van de Geijn) [3]."""
    size, n, alpha, beta = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return (_rounds(n) + n - 1.0) * alpha + 2.0 * _share(n) * size * beta


def chain_broadcast(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(sqrt((n-2) alpha) + sqrt(S beta))^2 + alpha: a pipelined chain with the best number of chunks.

    (n - 2 + m)(alpha + S beta/m) with m = max(1, sqrt((n-2) S beta/alpha)), which tends to S beta for large messages.
    """
    size, n, alpha, beta = _numbers(message_bytes, ranks, alpha_s, beta_s_per_byte)
    stages = np.maximum(n - 2.0, 0.0)
    work = size * beta
    chunks = np.maximum(np.sqrt(stages * work / np.maximum(alpha, np.finfo(float).tiny)), 1.0)
    return np.asarray(np.where(n > 1.0, (stages + chunks) * (alpha + work / chunks), 0.0))


def parameter_server(
    message_bytes: ArrayLike,
    workers: ArrayLike,
    servers: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:
    """Push gradients, add up, pull weights: 2 alpha + 2 S max(1, w/s) beta + (w/s) S gamma [8].

    The vector is spread over s servers; each receives w shares of S/s and sends as many, while a worker's own link
    carries S each way. Few servers are the bottleneck: the time grows with the number of workers.

    >>> slow, fast = parameter_server(1e8, 16, [1, 16], 0, 1e-9).tolist()
    >>> slow / fast
    16.0
    """
    size, w, s, alpha, beta, gamma = _numbers(
        message_bytes, workers, servers, alpha_s, beta_s_per_byte, gamma_s_per_byte
    )
    load = w / s
    busy = 2.0 * alpha + 2.0 * size * np.maximum(load, 1.0) * beta + load * size * gamma
    return np.asarray(np.where(w > 1.0, busy, 0.0))


Algorithm = Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike], Array]

#: Algorithms on a homogeneous network by operation and name.
ALGORITHMS: Final[dict[str, dict[str, Algorithm]]] = {
    "all_reduce": {
        "ring": ring_all_reduce,
        "recursive-doubling": recursive_doubling_all_reduce,
        "halving-doubling": halving_doubling_all_reduce,
        "double-tree": double_tree_all_reduce,
    },
    "all_gather": {"ring": ring_all_gather, "bruck": bruck_all_gather},
    "reduce_scatter": {"ring": ring_reduce_scatter, "recursive-halving": halving_reduce_scatter},
    "all_to_all": {"pairwise": pairwise_all_to_all, "bruck": bruck_all_to_all},
    "broadcast": {
        "binomial": binomial_broadcast,
        "scatter-gather": scatter_gather_broadcast,
        "chain": chain_broadcast,
    },
}


def best_algorithm(
    op: str, message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> tuple[Array, NDArray[np.str_]]:
    """The least time over the algorithms of `op` on a homogeneous network, and the algorithm that reaches it.

    >>> seconds, names = best_algorithm("all_reduce", [1e3, 1e9], 24, 5e-6, 1e-11)
    >>> names.tolist()
    ['recursive-doubling', 'ring']
    """
    if op not in ALGORITHMS:
        raise ValueError(f"unknown collective {op!r}; one of {', '.join(ALGORITHMS)}")
    names = list(ALGORITHMS[op])
    times = np.stack(
        np.broadcast_arrays(
            *(f(message_bytes, ranks, alpha_s, beta_s_per_byte) for f in ALGORITHMS[op].values())
        )
    )
    return np.asarray(times.min(axis=0)), np.asarray(names)[times.argmin(axis=0)]
