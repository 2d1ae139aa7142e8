"""Messages and bytes of a collective by algorithm, on two tiers of links.

A group of `n` ranks spans `k` domains of ``g = n/k`` ranks. Inside a domain the ranks use the scale-up links; between
domains they use the NICs. An algorithm is what it sends: how many messages follow one another on each tier, and how
many bytes pass each link. `perfmodel.physics.fabric` turns that into seconds,

.. math:: T = s_1 \\alpha_1 + s_2 \\alpha_2 + b_1 \\beta_1 + b_2 \\beta_2                                      (1)

with a rounded knee between latency and bandwidth. In one domain (k = 1), for powers of two, the messages and bytes are
those of the closed forms in `perfmodel.physics.collectives`. Here `log2` is not rounded up and the folding step off
powers of two is left out, so that a step time is smooth and grows with the group.

References: as in `perfmodel.physics.collectives`; trees of gather and scatter with log2 n messages: Bruck et al., IEEE
TPDS 8 (1997) 1143.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

AUTO: Final = "auto"
#: What a job may choose. `auto` is what the library would take, as measured sweeps show it.
ALGORITHMS: Final = (
    AUTO,
    "ring",
    "tree",
    "halving_doubling",
    "in_switch",
    "hierarchical",
    "parameter_server",
)
CODES: Final = {name: float(index) for index, name in enumerate(ALGORITHMS)}

_HALVES: Final = ("all_gather", "reduce_scatter")


class Terms(NamedTuple):
    """What a collective sends, for vectors of `message_bytes`.

    `steps_up`, `steps_out`: messages that follow one another on a tier. `up_bytes`: over the scale-up link of one
    accelerator, each way; `out_bytes`: over the NICs of a domain, each way. `reduced_bytes`: added by one rank.
    `in_series`: one tier waits for the other. `in_switch`: `up_bytes` are reduced inside the scale-up switch.
    `is_scattered`: the vector is cut, and each rank copies the shard that is its own.
    """

    steps_up: Array
    steps_out: Array
    up_bytes: Array
    out_bytes: Array
    reduced_bytes: Array
    in_series: bool = False
    in_switch: bool = False
    is_scattered: bool = True


def has(op: str, algorithm: str) -> bool:
    """Whether an operation has an algorithm of that name; `auto` always.

    Parameters
    ----------
    op : operation of a library, `all_reduce` and so on.
    algorithm : name of `CODES`.

    Returns
    -------
    True where the operation can be done that way.

    >>> has("all_reduce", "tree"), has("all_to_all", "in_switch"), has("p2p", "ring")
    (True, False, False)
    """
    if algorithm == AUTO:
        return True
    if op == "all_to_all":
        return algorithm in ("ring", "halving_doubling", "hierarchical")
    return op in ("all_reduce", *_HALVES) and algorithm in ALGORITHMS


def terms(op: str, algorithm: str, message_bytes: ArrayLike, ranks: ArrayLike, nodes: ArrayLike) -> Terms:
    """Messages and bytes of `op` by `algorithm`; everything broadcasts.

    With S the message, ``r(x) = (x - 1)/x`` and c(x) = min(2, x/2) min(x - 1, 1), an all-reduce sends

    ==================  ========================  =================================  ==========================
    algorithm           messages (up, out)        bytes of a scale-up link           bytes of a domain's NICs
    ==================  ========================  =================================  ==========================
    ring                2 (n - k), 2 (k - 1)      2 (n - k)/n S                      2 r(n) S
    tree (two trees)    2 log2 g, 2 log2 k        c(g) S                             c(k) S
    halving_doubling    2 log2 g, 2 log2 k        2 r(g) S                           2 r(k) S, after the other
    hierarchical        2 (g - 1), 2 (k - 1)      2 r(g) S                           2 r(k) S, after the other
    in_switch           2, 2 log2 k               S, at the switch's rate            c(k) S
    parameter_server    2, 2                      2 g S/k (one server a domain)      2 g r(k) S
    ==================  ========================  =================================  ==========================

    A reduce-scatter or an all-gather is half of it (its tree and its way through the switch carry r(n) S), and so the
    three sum up. A ring of an all-to-all is the direct exchange, its halving and doubling Bruck's.

    Parameters
    ----------
    op : operation of a library, `p2p` excluded.
    algorithm : name of `CODES`, `auto` excluded.
    message_bytes : S, whole message [B].
    ranks : n, of the group.
    nodes : k, scale-up domains that the group spans.

    Returns
    -------
    Messages and bytes by tier, and the bytes that are added up.

    >>> found = terms("all_reduce", "ring", 8.0, 4, 1)
    >>> float(found.steps_up), float(found.up_bytes)
    (6.0, 12.0)
    >>> [float(terms("all_reduce", "tree", 8.0, n, 1).steps_up) for n in (2, 64)]
    [2.0, 12.0]
    """
    if not has(op, algorithm) or algorithm == AUTO:
        raise ValueError(f"{op} has no algorithm {algorithm!r}")
    size = np.asarray(message_bytes, float)
    n = np.maximum(np.asarray(ranks, float), 1.0)
    k = np.minimum(np.maximum(np.asarray(nodes, float), 1.0), n)
    g = n / k
    if op == "all_to_all":
        return _all_to_all(algorithm, size, g, k)
    whole = op == "all_reduce"
    passes = 2.0 if whole else 1.0
    outer, inner = np.minimum(k - 1.0, 1.0), np.minimum(g - 1.0, 1.0)
    ring_up, ring_out = passes * (1.0 - k / n) * size, passes * (1.0 - 1.0 / n) * outer * size
    split_up, split_out = passes * (1.0 - 1.0 / g) * size, passes * (1.0 - 1.0 / k) * size
    logs = passes * np.log2(g), passes * np.log2(k)
    added = (1.0 - 1.0 / n) * size if op != "all_gather" else np.zeros_like(n * size)
    tree_up = _two_trees(g) * size if whole else ring_up
    tree_out = _two_trees(k) * size if whole else ring_out
    if algorithm == "ring":
        return Terms(passes * (n - k), passes * (k - 1.0), ring_up, ring_out, added)
    if algorithm == "tree":
        all_added = size * np.minimum(n - 1.0, 1.0) if whole else added
        return Terms(*logs, tree_up, tree_out, all_added, is_scattered=not whole)
    if algorithm == "halving_doubling":
        return Terms(*logs, split_up, split_out, added, in_series=True)
    if algorithm == "hierarchical":
        steps = passes * (g - 1.0), passes * (k - 1.0)
        return Terms(*steps, split_up, split_out, added, in_series=True)
    if algorithm == "in_switch":
        up = inner * size if whole else ring_up
        return Terms(passes * inner, logs[1], up, tree_out, added * outer, in_switch=True)
    served_up, served_out = passes * g / k * inner * size, passes * g * (1.0 - 1.0 / k) * size
    return Terms(passes * inner, passes * outer, served_up, served_out, g * added)


def _two_trees(ranks: Array) -> Array:
    """Bytes of a link over the message: 1 between two ranks, 2 from four on (each is inside one tree of the two)."""
    return np.asarray(np.minimum(2.0, 0.5 * ranks) * np.minimum(ranks - 1.0, 1.0))


def _all_to_all(algorithm: str, size: Array, g: Array, k: Array) -> Terms:
    none = np.zeros_like(size * g)
    up, out = size * (1.0 - 1.0 / g), size * g * (1.0 - 1.0 / k)
    if algorithm == "ring":
        return Terms(g - 1.0, g * (k - 1.0), up, out, none)
    if algorithm == "hierarchical":
        return Terms(g - 1.0, k - 1.0, up, out, none, in_series=True)
    logs = np.log2(g), np.log2(k)
    return Terms(*logs, 0.5 * size * logs[0], 0.5 * size * g * logs[1], none, in_series=True)
