"""The measured form of a collective on a two-tier fabric, fast enough for millions of layouts.

A *domain* is a set of accelerators joined by the scale-up link (a node, an NVL72 rack); domains are joined by
NICs. The time of one collective is

.. math:: T = A + W + (2^{1/p} - 2)\\sqrt{A W}                              (1)

with `A` the latency of all steps and `W` the time of all bytes. Equation (1) is homogeneous of degree one and
monotone in both terms. At `p = 1` it is Hockney's alpha + beta law, at `p = 1/2` exactly the p-norm
(A^p + W^p)^(1/p), and in between it agrees with that norm at A = 0, W = 0 and A = W and stays within 3 % of it
elsewhere, for one square root instead of three powers. Measured sweeps need p of 0.6 to 0.7: the knee between
latency and bandwidth is wider than a sum, because libraries switch protocol and open channels on the way.

`W` takes both tiers as pipelined: a q-norm (q = 4) of scale-up and NIC time, each the least over the algorithms
that a library would choose.

References: Hockney, Parallel Computing 20 (1994) 389; Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005) 49;
Sanders, Speck, Traeff, Parallel Computing 35 (2009) 581 (two-tree); Patarasuk, Yuan, JPDC 69 (2009) 117 (ring).

Cost: about 20 element-wise operations, no power or logarithm per element beyond one `log2` of the number of
domains: some 30 ns per element and collective on one core.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.algorithms import AUTO, has, terms
from perfmodel.physics.constants import (
    HOPS_PER_DOUBLING,
    IN_SWITCH_RANKS,
    OWN_SHARD_COPY,
    PCIE_TREE_LOSS,
    RING_RANKS,
    STAGED_SHARE,
)  # fmt: skip

Array = NDArray[np.float64]

OPERATIONS: Final = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "p2p",
)


def knee_sum(latency_s: ArrayLike, bandwidth_s: ArrayLike, p: ArrayLike = 1.0) -> Array:
    """Join latency and bandwidth time by equation (1) of this module.

    `p = 1` is Hockney's sum, `p < 1` a wider knee. Seconds in, seconds out.

    Parameters
    ----------
    latency_s : time of all steps [s].
    bandwidth_s : time of all bytes [s].
    p : width of the knee; 1 is Hockney's sum.

    Returns
    -------
    Seconds.

    >>> float(knee_sum(3.0, 4.0)), float(knee_sum(4.0, 9.0, p=0.5))
    (7.0, 25.0)
    """
    a, w = np.asarray(latency_s, float), np.asarray(bandwidth_s, float)
    width = np.exp2(1.0 / np.asarray(p, float)) - 2.0
    return np.asarray(a + w + width * np.sqrt(a * w))


def soft_max(x: ArrayLike, y: ArrayLike) -> Array:
    """The 4-norm of two non-negative terms, ``(x^4 + y^4)^(1/4)``: a maximum with a rounded corner.

    Parameters
    ----------
    x, y : non-negative, of one unit.

    Returns
    -------
    In the unit of the arguments.

    >>> float(soft_max(1.0, 0.0)), round(float(soft_max(1.0, 1.0)), 3)
    (1.0, 1.189)
    """
    x2, y2 = np.square(np.asarray(x, float)), np.square(np.asarray(y, float))
    return np.asarray(np.sqrt(np.sqrt(x2 * x2 + y2 * y2)))


def soft_share(x: ArrayLike) -> Array:
    """A share that nears 1 as x grows, ``x / (1 + x^8)^(1/8)``: the lesser of x and 1 with a rounded corner.

    Parameters
    ----------
    x : non-negative, a plain number.

    Returns
    -------
    Between 0 and 1.

    >>> round(float(soft_share(0.6)), 3), round(float(soft_share(1.0)), 3), round(float(soft_share(1e200)), 12)
    (0.599, 0.917, 1.0)
    """
    share = np.minimum(np.asarray(x, float), 1e3)  # 1 already: the eighth power of more may overflow
    return np.asarray(share * (1.0 + share**8) ** -0.125)


def collective_time(
    op: str,
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    nodes: ArrayLike,
    *,
    base_s: ArrayLike,
    step_up_s: ArrayLike,
    step_out_s: ArrayLike,
    up_bytes_per_s: ArrayLike,
    out_bytes_per_s_per_node: ArrayLike,
    in_switch_bytes_per_s: ArrayLike = 0.0,
    in_network_bytes_per_s: ArrayLike = 0.0,
    p: ArrayLike = 1.0,
    algorithm: str = AUTO,
) -> Array:
    """Seconds that `op` takes on `message_bytes` among `ranks` accelerators spread over `nodes` domains.

    All arguments broadcast; a leading axis of coefficient draws is as good as an axis of layouts.

    Parameters
    ----------
    op : one of `OPERATIONS`.
    message_bytes : S. The full vector for all-reduce, all-gather and reduce-scatter (ranks x shard, as nccl-tests
        counts it); what each rank sends in total for all-to-all.
    ranks : n, the group size; 1 gives 0 s. Need not be an integer or a power of two.
    nodes : k, the number of scale-up domains that the group spans, 1 <= k <= n.
    base_s : launch and synchronisation of one collective call [s].
    step_up_s, step_out_s : latency of one step over the scale-up link and over the network [s].
    up_bytes_per_s : usable scale-up rate per accelerator and direction for a group of n/k ranks (see
        `physics.wiring` for irregular ones; `group_link_share` is the plain form that sweeps are fitted with).
    out_bytes_per_s_per_node : usable network rate per domain and direction that this group gets, that is after
        sharing the NICs with the other groups of the node.
    in_switch_bytes_per_s : rate of reduction inside the scale-up switch (NVLS); 0 when there is none.
    in_network_bytes_per_s : rate per domain of reduction inside the network (SHARP); 0 when there is none.
    p : width of the knee, equation (1); 1 is Hockney.
    algorithm : one of `physics.algorithms.ALGORITHMS`; `auto`, tabulated below, is what libraries were measured to do.
        An operation that has no such algorithm is done as with `auto`.

    Returns
    -------
    Seconds; 0 for one rank.

    Steps (A = base + s1 * step_up + s2 * step_out; g = n/k):

    ==================  ===========  ===============
    op                  s1           s2
    ==================  ===========  ===============
    all_reduce          2 hops(g)    2 log2 k
    all_gather, r.-s.   n - k        k - 1
    all_to_all          log2 g       k - 1
    broadcast, reduce   g - 1        log2 k
    p2p                 1 if k = 1   1 if k > 1
    ==================  ===========  ===============

    hops(g) = g - 1 up to 16 ranks, 15 + 8 log2(g/16) beyond: one ring is too long for a rack or a torus.

    Bytes over each scale-up link and over the NICs of a domain: ring 2(n-k)/n S (all-reduce), (n-k)/n S
    (gather, scatter); NICs 2(n-1)/n S or, by a tree, min(2, k/2) S.

    The ring in one domain, without its copy of the own shard, is Hockney's closed form:

    >>> s, n, alpha, rate = 1e9, 8, 1e-6, 1e11
    >>> t = collective_time("all_reduce", s, n, 1, base_s=0, step_up_s=alpha, step_out_s=0,
    ...                     up_bytes_per_s=rate, out_bytes_per_s_per_node=1.0)
    >>> hockney = 2 * (n - 1) * alpha + (2 * (n - 1) + OWN_SHARD_COPY) / n * s / rate
    >>> bool(np.isclose(t, hockney))
    True
    """
    if op not in OPERATIONS:
        raise ValueError(f"unknown collective {op!r}; one of {', '.join(OPERATIONS)}")
    size = np.asarray(message_bytes, float)
    n = np.maximum(np.asarray(ranks, float), 1.0)
    k = np.minimum(np.maximum(np.asarray(nodes, float), 1.0), n)
    g = n / k
    up_rate = np.asarray(up_bytes_per_s, float)
    out_rate = np.asarray(out_bytes_per_s_per_node, float)
    copy = OWN_SHARD_COPY / n
    if algorithm != AUTO and has(op, algorithm):
        chosen = terms(op, algorithm, size, n, k)
        up = (chosen.up_bytes + (size * copy if chosen.is_scattered else 0.0)) / up_rate
        out = chosen.out_bytes / out_rate
        if chosen.in_switch:
            # Where only one of the tiers reduces, the other goes by the ring.
            ring = (terms(op, "ring", size, n, k).up_bytes + size * copy) / up_rate
            up = _instead(ring, chosen.up_bytes, in_switch_bytes_per_s)
            out = _instead(out, size * np.minimum(k - 1.0, 1.0), in_network_bytes_per_s)
        latency = np.asarray(base_s, float) + chosen.steps_up * np.asarray(step_up_s, float)
        latency = latency + chosen.steps_out * np.asarray(step_out_s, float)
        moved = up + out if chosen.in_series else soft_max(up, out)
        return np.asarray(np.where(n > 1.0, knee_sum(latency, moved, p), 0.0))
    inner = 1.0 - k / n  # share of a ring's hops that stay inside a domain, times (n-1)/n
    outer = np.minimum(k - 1.0, 1.0)  # 0 inside one domain, 1 across several
    steps_up: Array
    steps_out: Array
    if op == "all_reduce":
        steps_up, steps_out = 2.0 * _hops(g), 2.0 * np.log2(k)
        up = size * (2.0 * inner + copy) / up_rate
        ratio = np.square(IN_SWITCH_RANKS / g)
        up = _best(up, size * (1.0 + np.square(ratio * ratio * ratio)), in_switch_bytes_per_s)
        out = size * outer * np.minimum(2.0 - 2.0 / n, np.minimum(2.0, 0.5 * k)) / out_rate
        out = _best(out, size * outer, in_network_bytes_per_s)
    elif op in ("all_gather", "reduce_scatter"):
        steps_up, steps_out = n - k, k - 1.0
        up = size * (inner + copy) / up_rate
        out = size * outer * (1.0 - 1.0 / n) / out_rate
    elif op == "all_to_all":
        # Bytes for other domains cross the scale-up link once to reach the NIC of their rail.
        steps_up, steps_out = np.log2(g), k - 1.0
        up = size * (1.0 - 1.0 / g + copy) / up_rate
        out = size * (g - g / k) / out_rate
    elif op == "p2p":
        steps_up, steps_out = 1.0 - outer, outer
        up = size * (1.0 - outer) / up_rate
        out = size * outer / out_rate
    else:
        steps_up, steps_out = g - 1.0, np.log2(k)
        up = size * np.minimum(g - 1.0, 1.0) / up_rate
        out = size * outer / out_rate
    latency = np.asarray(base_s, float) + steps_up * np.asarray(step_up_s, float)
    latency = latency + steps_out * np.asarray(step_out_s, float)
    return np.asarray(np.where(n > 1.0, knee_sum(latency, soft_max(up, out), p), 0.0))


def _hops(g: Array) -> Array:
    """Steps of a ring among few ranks; among many, of the rings and trees that libraries build from rings of 16."""
    return np.asarray(
        np.minimum(
            g - 1.0, RING_RANKS - 1.0 + HOPS_PER_DOUBLING * np.log2(np.maximum(g, RING_RANKS) / RING_RANKS)
        )
    )


def _best(seconds: Array, size: Array, rate: ArrayLike) -> Array:
    """The least of `seconds` and `size / rate`; a rate of 0 means that the way does not exist."""
    r = np.asarray(rate, float)
    if not r.any():
        return seconds
    with np.errstate(divide="ignore", invalid="ignore"):
        other = np.where(r > 0.0, size / r, np.inf)
    return np.asarray(np.minimum(seconds, other))


def _instead(seconds: Array, size: Array, rate: ArrayLike) -> Array:
    """`size / rate` where there is such a way, else `seconds`."""
    r = np.asarray(rate, float)
    return np.asarray(np.where(r > 0.0, size / np.where(r > 0.0, r, 1.0), seconds))


_CUBE_MESH: Final = np.array([0.0, 6.0, 1.0, 2.0, 4.0, 2.0, 2.0, 4.0, 6.0])


def group_link_share(topology: str, ranks_in_domain: ArrayLike, domain: ArrayLike = 8) -> Array:
    """Share of an accelerator's scale-up bandwidth that a group of `ranks_in_domain` can use.

    ================  =======================================================================================
    topology          share
    ================  =======================================================================================
    nvswitch, torus,  1: any pair gets the full rate
    ring
    cube-mesh         links that rings can use of 6: 1, 2, 4, 2, 2, 4, 6 for n = 2..8 (NCCL's ring search on the
                      hybrid cube mesh of DGX-1)
    fully-connected   (g - 1)/(domain - 1): a direct link per peer (xGMI, Gaudi, HCCS)
    pcie-tree         1 for a pair, 0.54 beyond: the root complex or host bridge is shared
    pcie-no-peer      0.36: every byte is staged through host memory
    bridge-pairs      1 for a pair; beyond, the caller should pass the PCIe link instead
    ================  =======================================================================================

    Values between integers are interpolated, so that the share is continuous.

    Parameters
    ----------
    topology : how the accelerators of a node are joined.
    ranks_in_domain : ranks g of the group in one domain.
    domain : accelerators of the domain.

    Returns
    -------
    Share of the link, 0 to 1.

    >>> group_link_share("cube-mesh", [2, 4, 8]).round(3).tolist()
    [0.167, 0.667, 1.0]
    >>> group_link_share("fully-connected", [2, 8]).round(3).tolist()
    [0.143, 1.0]
    """
    g = np.maximum(np.asarray(ranks_in_domain, float), 1.0)
    if topology == "cube-mesh":
        return np.asarray(np.interp(g, np.arange(_CUBE_MESH.size), _CUBE_MESH / 6.0))
    if topology == "fully-connected":
        peers = np.maximum(np.asarray(domain, float) - 1.0, 1.0)
        return np.asarray(np.clip((g - 1.0) / peers, 1.0 / peers, 1.0))
    if topology == "pcie-tree":
        return np.asarray(1.0 - PCIE_TREE_LOSS * np.clip(g - 2.0, 0.0, 1.0))
    if topology == "pcie-no-peer":
        return np.full_like(g, STAGED_SHARE)
    return np.ones_like(g)
