"""Textbook costs of collectives by algorithm, in Hockney's model.

A message of `S` bytes over one link takes ``alpha + S beta``: `alpha` [s] is the latency, `beta` [s/B] the inverse
bandwidth; reducing costs `gamma` [s/B] on top. A rank sends and receives at once, one message each. `n` is the number of
ranks and ``L = ceil(log2 n)``. `S` is the whole vector: n shards in an all-gather, reduce-scatter or all-to-all.

Each function states its closed form as a numbered equation, in seconds. All are pure, broadcast over their arguments, take any group size of one or more (one rank costs nothing) and
return seconds. These are lower envelopes of what libraries reach; `perfmodel.physics.fabric` holds the measured form.

References
----------
Hockney, Parallel Computing 20 (1994) 389. Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005) 49. Chan, Heimlich, Purkayastha,
van de Geijn, CCPE 19 (2007) 1749. Rabenseifner, ICCS 2004, LNCS 3036. Bruck et al., IEEE TPDS 8 (1997) 1143. Patarasuk,
Yuan, JPDC 69 (2009) 117. Sanders, Speck, Traeff, Parallel Computing 35 (2009) 581. Graham et al., COMHPC 2016 (SHARP).
Li et al., OSDI 2014 (parameter server).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Cost = Callable[..., Array]


def _levels(ranks: Array) -> Array:
    """ceil(log2 n), safe against rounding of exact powers."""
    return np.asarray(np.ceil(np.log2(np.maximum(ranks, 1.0)) - 1e-12))


def _group(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> tuple[Array, ...]:
    size, n = np.asarray(message_bytes, float), np.asarray(ranks, float)
    if (n < 1).any():
        raise ValueError("a group has at least one rank")
    if (size < 0).any():
        raise ValueError("a message has no fewer than 0 bytes")
    return size, n, np.asarray(alpha_s, float), np.asarray(beta_s_per_byte, float)


def _alone(n: Array, seconds: ArrayLike) -> Array:
    return np.asarray(np.where(n > 1, seconds, 0.0), float)


def all_reduce_ring(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:  # fmt: skip
    """(1) 2 (n-1) alpha + 2 (n-1)/n S beta + (n-1)/n S gamma (Patarasuk and Yuan 2009).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte, gamma_s_per_byte : of a message [s], a byte on a link and a byte added [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_reduce_ring(8.0, 4, 1.0, 1.0))
    18.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    share = (n - 1) / n
    return np.asarray(2 * (n - 1) * alpha + share * size * (2 * beta + np.asarray(gamma_s_per_byte, float)))


def all_reduce_recursive_doubling(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:  # fmt: skip
    """(2) floor(log2 n) (alpha + S beta + S gamma), plus a fold and unfold step off powers of two (Thakur et al. 2005).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte, gamma_s_per_byte : of a message [s], a byte on a link and a byte added [s/B].

    Returns
    -------
    Seconds.

    >>> [float(all_reduce_recursive_doubling(8.0, n, 1.0, 1.0)) for n in (1, 4, 5)]
    [0.0, 18.0, 36.0]
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    gamma = np.asarray(gamma_s_per_byte, float)
    whole, extra = _power_of_two(n)
    step = alpha + size * (beta + gamma)
    return np.asarray(np.log2(whole) * step + extra * (step + alpha + size * beta))


def _power_of_two(n: Array) -> tuple[Array, Array]:
    """The largest power of two within n, and 1 where n is none itself."""
    whole = np.exp2(np.floor(np.log2(n) + 1e-12))
    return whole, np.asarray(n > whole, float)


def all_reduce_halving_doubling(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:  # fmt: skip
    """(3) 2 log2(m) alpha + 2 (m-1)/m S beta + (m-1)/m S gamma with m the power of two within n (Rabenseifner 2004).

    Off powers of two a fold and an unfold step add 2 alpha + 2 S beta + S gamma.

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte, gamma_s_per_byte : of a message [s], a byte on a link and a byte added [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_reduce_halving_doubling(8.0, 4, 1.0, 1.0))
    16.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    gamma = np.asarray(gamma_s_per_byte, float)
    m, extra = _power_of_two(n)
    main = 2 * np.log2(m) * alpha + (m - 1) / m * size * (2 * beta + gamma)
    return np.asarray(main + extra * (2 * alpha + size * (2 * beta + gamma)))


def all_reduce_double_binary_tree(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:  # fmt: skip
    """(4) 2 L alpha + 2 S beta + S gamma + 2 sqrt(2 L alpha S (2 beta + gamma)) (Sanders, Speck, Traeff 2009).

    Two trees carry half of the vector each; every rank is inside one and a leaf of the other, so both directions of
    its link are full. The square root is the price of pipelining with the best number of chunks. Two ranks only
    exchange halves and return the sums: a ring.

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte, gamma_s_per_byte : of a message [s], a byte on a link and a byte added [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_reduce_double_binary_tree(0.0, 8, 1.0, 1.0))
    6.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    work = size * (2 * beta + np.asarray(gamma_s_per_byte, float))
    steps = 2 * _levels(n) * alpha
    tree = steps + work + 2 * np.sqrt(steps * work)
    return np.asarray(np.where(n > 2, tree, all_reduce_ring(size, n, alpha, beta, gamma_s_per_byte)))


def all_reduce_binomial(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:  # fmt: skip
    """(5) 2 L (alpha + S beta) + L S gamma: one tree reduces, the same tree broadcasts, whole messages (Chan et al. 2007).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte, gamma_s_per_byte : of a message [s], a byte on a link and a byte added [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_reduce_binomial(8.0, 4, 1.0, 1.0))
    36.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    gamma = np.asarray(gamma_s_per_byte, float)
    return np.asarray(_levels(n) * (2.0 * (alpha + size * beta) + size * gamma))


def all_reduce_in_switch(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(6) 2 alpha + S beta: every rank sends S up and receives the sum, both directions at once (NVLS, SHARP).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_reduce_in_switch(8.0, 64, 1.0, 1.0))
    10.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return _alone(n, 2 * alpha + size * beta)


def all_reduce_hierarchical(
    message_bytes: ArrayLike,
    ranks_per_node: ArrayLike,
    nodes: ArrayLike,
    alpha_up_s: ArrayLike,
    beta_up_s_per_byte: ArrayLike,
    alpha_out_s: ArrayLike,
    beta_out_s_per_byte: ArrayLike,
) -> Array:
    """(7) Reduce-scatter in the node, all-reduce of S/g between nodes on every rail, all-gather in the node.

    2 (g-1) a1 + 2 (g-1)/g S b1 + 2 (k-1) a2 + 2 (k-1)/k (S/g) b2, with `beta_out` that of one rank's own card.
    With equal links the bytes sum to 2 (n-1)/n S, those of the flat ring, and only the steps differ.

    Parameters
    ----------
    message_bytes : S, the whole vector [B].
    ranks_per_node : g, of a node.
    nodes : k.
    alpha_up_s, beta_up_s_per_byte : a1 [s] and b1 [s/B], inside a node.
    alpha_out_s, beta_out_s_per_byte : a2 [s] and b2 [s/B], between nodes.

    Returns
    -------
    Seconds.

    >>> hierarchical = all_reduce_hierarchical(64.0, 4, 4, 0.0, 1.0, 0.0, 1.0)
    >>> bool(np.isclose(hierarchical, all_reduce_ring(64.0, 16, 0.0, 1.0)))
    True
    """
    inside = all_reduce_ring(message_bytes, ranks_per_node, alpha_up_s, beta_up_s_per_byte)
    shard = np.asarray(message_bytes, float) / np.asarray(ranks_per_node, float)
    return np.asarray(inside + all_reduce_ring(shard, nodes, alpha_out_s, beta_out_s_per_byte))


def all_gather_ring(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(8) (n-1) alpha + (n-1)/n S beta (Thakur et al. 2005).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_gather_ring(8.0, 4, 1.0, 1.0))
    9.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return np.asarray((n - 1) * alpha + (n - 1) / n * size * beta)


def all_gather_recursive_doubling(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(9) log2(n) alpha + (n-1)/n S beta for powers of two; 2 floor(log2 n) steps otherwise (Thakur et al. 2005).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> [float(all_gather_recursive_doubling(0.0, n, 1.0, 1.0)) for n in (4, 5)]
    [2.0, 4.0]
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    whole, extra = _power_of_two(n)
    return np.asarray(np.log2(whole) * (1 + extra) * alpha + (n - 1) / n * size * beta)


def all_gather_bruck(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(10) L alpha + (n-1)/n S beta for any n (Bruck et al. 1997); the local rotation is not counted.

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_gather_bruck(10.0, 5, 1.0, 1.0))
    11.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return np.asarray(_levels(n) * alpha + (n - 1) / n * size * beta)


def reduce_scatter_ring(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:  # fmt: skip
    """(11) (n-1) alpha + (n-1)/n S (beta + gamma) (Thakur et al. 2005).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte, gamma_s_per_byte : of a message [s], a byte on a link and a byte added [s/B].

    Returns
    -------
    Seconds.

    >>> float(reduce_scatter_ring(8.0, 4, 1.0, 1.0, 1.0))
    15.0
    """
    beta = np.asarray(beta_s_per_byte, float) + np.asarray(gamma_s_per_byte, float)
    return all_gather_ring(message_bytes, ranks, alpha_s, beta)


def reduce_scatter_recursive_halving(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike,
    gamma_s_per_byte: ArrayLike = 0.0,
) -> Array:  # fmt: skip
    """(12) log2(m) alpha + (m-1)/m S (beta + gamma), m the power of two within n (Thakur et al. 2005).

    Off powers of two the odd ranks first fold S into a neighbour and at last get their shard S/n back.

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte, gamma_s_per_byte : of a message [s], a byte on a link and a byte added [s/B].

    Returns
    -------
    Seconds.

    >>> float(reduce_scatter_recursive_halving(8.0, 4, 1.0, 1.0))
    8.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    both = beta + np.asarray(gamma_s_per_byte, float)
    m, extra = _power_of_two(n)
    fold = 2 * alpha + size * both + size / n * beta
    return np.asarray(np.log2(m) * alpha + (m - 1) / m * size * both + extra * fold)


def all_to_all_pairwise(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(13) (n-1) alpha + (n-1)/n S beta (Thakur et al. 2005); S is what each rank sends, its own part included.

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_to_all_pairwise(8.0, 4, 1.0, 1.0))
    9.0
    """
    return all_gather_ring(message_bytes, ranks, alpha_s, beta_s_per_byte)


def all_to_all_bruck(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(14) L alpha + L S/2 beta (Bruck et al. 1997): few steps, half of the vector in each.

    Off powers of two the last step carries the n - 2^(L-1) blocks that are left.

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> float(all_to_all_bruck(8.0, 4, 1.0, 1.0))
    10.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    levels = _levels(n)
    # Block i moves once per set bit of i; summed over a full power of two that is half of the blocks per step.
    last = np.exp2(np.maximum(levels - 1, 0))
    blocks = np.maximum(levels - 1, 0) * n / 2 + np.maximum(n - last, 0)
    return _alone(n, levels * alpha + blocks / n * size * beta)


def broadcast_binomial(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(15) L (alpha + S beta) (Chan et al. 2007).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> float(broadcast_binomial(8.0, 5, 1.0, 1.0))
    27.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return np.asarray(_levels(n) * (alpha + size * beta))


def broadcast_van_de_geijn(
    message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(16) Scatter and ring all-gather: (L + n-1) alpha + 2 (n-1)/n S beta (Chan et al. 2007).

    Parameters
    ----------
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> float(broadcast_van_de_geijn(8.0, 4, 1.0, 1.0))
    17.0
    """
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    return np.asarray((_levels(n) + n - 1) * alpha + 2 * (n - 1) / n * size * beta)


def parameter_server(
    message_bytes: ArrayLike,
    workers: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    servers: ArrayLike = 1,
) -> Array:
    """(17) Push and pull of S through `servers` shards: 2 (alpha + max(1, w/s) S beta) (Li et al. 2014).

    The servers' links carry w S / s bytes each way, a worker's own link S.

    Parameters
    ----------
    message_bytes : S, the whole vector [B].
    workers : w, that push and pull.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].
    servers : s, shards of the parameters on links of their own.

    Returns
    -------
    Seconds.

    >>> float(parameter_server(8.0, 4, 1.0, 1.0)), float(parameter_server(8.0, 4, 1.0, 1.0, servers=4))
    (66.0, 18.0)
    """
    size, n, alpha, beta = _group(message_bytes, workers, alpha_s, beta_s_per_byte)
    busiest = np.maximum(1.0, n / np.asarray(servers, float))
    return _alone(n, 2 * (alpha + busiest * size * beta))


ALGORITHMS: Final[Mapping[str, Mapping[str, Cost]]] = {
    "all_reduce": {
        "ring": all_reduce_ring,
        "recursive doubling": all_reduce_recursive_doubling,
        "halving-doubling": all_reduce_halving_doubling,
        "double binary tree": all_reduce_double_binary_tree,
    },
    "all_gather": {
        "ring": all_gather_ring,
        "recursive doubling": all_gather_recursive_doubling,
        "Bruck": all_gather_bruck,
    },
    "reduce_scatter": {"ring": reduce_scatter_ring, "recursive halving": reduce_scatter_recursive_halving},
    "all_to_all": {"pairwise": all_to_all_pairwise, "Bruck": all_to_all_bruck},
    "broadcast": {"binomial": broadcast_binomial, "van de Geijn": broadcast_van_de_geijn},
}


class Parts(NamedTuple):
    """What a cost is made of: messages one after another, bytes over a rank's link, bytes that it adds [B]."""

    steps: Array
    wire_bytes: Array
    reduced_bytes: Array


def parts(cost: Cost, message_bytes: ArrayLike, ranks: ArrayLike, **options: ArrayLike) -> Parts:
    """The factors of alpha, beta and gamma in a cost; what a pipelined tree adds for mixing them is in none.

    Parameters
    ----------
    cost : one of this module's functions.
    message_bytes, ranks : S, the whole vector [B], and n.
    options : its other arguments, such as `servers`.

    Returns
    -------
    Messages one after another, and bytes [B].

    >>> found = parts(all_reduce_ring, 8.0, 4)
    >>> float(found.steps), float(found.wire_bytes), float(found.reduced_bytes)
    (6.0, 12.0, 6.0)
    """
    adds = "gamma_s_per_byte" in inspect.signature(cost).parameters
    reduced = cost(message_bytes, ranks, 0.0, 0.0, 1.0, **options) if adds else 0.0
    return Parts(
        cost(message_bytes, ranks, 1.0, 0.0, **options),
        cost(message_bytes, ranks, 0.0, 1.0, **options),
        np.asarray(reduced, float),
    )


class Best(NamedTuple):
    """Least time [s] and the algorithm that gives it, element by element."""

    time_s: Array
    algorithm: NDArray[np.str_]


def best(
    op: str,
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    alpha_s: ArrayLike,
    beta_s_per_byte: ArrayLike,
    *,
    in_switch: bool = False,
) -> Best:
    """The fastest algorithm of `op` at every point; `in_switch` adds reduction in the switch.

    Parameters
    ----------
    op : name in `ALGORITHMS`.
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].
    in_switch : whether a switch reduces too.

    Returns
    -------
    Seconds, and the names of the algorithms.

    >>> best("all_reduce", [8.0, 1e9], 8, 1e-6, 1e-11).algorithm.tolist()
    ['recursive doubling', 'halving-doubling']
    """
    if op not in ALGORITHMS:
        raise ValueError(f"unknown collective {op!r}; one of {', '.join(ALGORITHMS)}")
    costs = dict(ALGORITHMS[op])
    if in_switch and op == "all_reduce":
        costs["in-switch"] = all_reduce_in_switch
    names = np.array(list(costs))
    times = np.stack(
        np.broadcast_arrays(*(c(message_bytes, ranks, alpha_s, beta_s_per_byte) for c in costs.values()))
    )
    return Best(np.asarray(times.min(axis=0)), np.asarray(names[times.argmin(axis=0)]))


def lower_bound(
    op: str, message_bytes: ArrayLike, ranks: ArrayLike, alpha_s: ArrayLike, beta_s_per_byte: ArrayLike
) -> Array:
    """(18) No algorithm without help from the network is faster: max(L alpha, least bytes per rank x beta) (Chan et al. 2007).

    Parameters
    ----------
    op : name in `ALGORITHMS`.
    message_bytes, ranks : S, the whole vector [B], and n.
    alpha_s, beta_s_per_byte : of a message [s] and of a byte on a link [s/B].

    Returns
    -------
    Seconds.

    >>> float(lower_bound("all_reduce", 8.0, 4, 1.0, 1.0))
    12.0
    """
    if op not in ALGORITHMS:
        raise ValueError(f"unknown collective {op!r}; one of {', '.join(ALGORITHMS)}")
    size, n, alpha, beta = _group(message_bytes, ranks, alpha_s, beta_s_per_byte)
    share = np.where(n > 1, 1.0, 0.0) if op == "broadcast" else (n - 1) / n * (2 if op == "all_reduce" else 1)
    return np.asarray(np.maximum(_levels(n) * alpha, share * size * beta))
