"""Every layout of a job on K accelerators, as a struct of arrays, and why the others are refused.

A layout is a row (tp, pp, cp, ep, vpp, micro-batch) times a way of sharding times a recompute level. Rows are
enumerated here by divisibility; sharding and recompute are axes that the search adds, because the step model
broadcasts over them. The order of rows is fixed, so that a position names a layout.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Repeating attention alone frees no memory where its scores are fused, and takes time: it is never the best.
RECOMPUTE = ("none", "full")
# From the simplest to the most involved: ties are broken in this order.
SHARDINGS = ("ddp", "zero1", "zero2", "hsdp", "fsdp")

K_DIVIDES = "K is not a multiple of tp*pp*cp"
BATCH_DIVIDES = "the global batch is not a multiple of dp"
HEADS = "tp does not divide the attention heads"
LAYERS = "pp does not divide the layers"
SEQUENCE = "cp does not divide the sequence"
EXPERTS = "ep divides neither the experts nor the ranks of a stage"
INTERLEAVE = "interleaving needs micro-batches in multiples of pp"
SHARDED_GRADIENTS = "sharded gradients do not go with a pipeline"
STEPS_ALONE = "replicas that step alone must hold the whole state"
SHARDED_PIPELINE = "sharded weights do not go with a pipeline"


@dataclass(frozen=True)
class Shape:
    """What the divisibility rules need to know of a job and its machine."""

    layers: int
    heads: int
    experts: int
    seq_len: int
    is_transformer: bool
    node: int
    domain: int


@dataclass(frozen=True)
class Bounds:
    """The edges of the search; it is exhaustive inside them.

    `shortest_sequence` is the smallest number of tokens that context parallelism may leave on a rank. A network that
    only data parallelism cuts also tries its whole share of the batch, and the halves of it, up to `max_share`.
    """

    max_tp: int = 16
    max_pp: int = 64
    max_cp: int = 32
    max_ep: int = 256
    max_vpp: int = 16
    max_micro_batch: int = 128
    max_share: int = 1 << 20
    shortest_sequence: int = 4096
    shardings: tuple[str, ...] = SHARDINGS
    recompute: tuple[str, ...] = RECOMPUTE

    def as_dict(self) -> dict[str, object]:
        """For the envelope, so that the answer states what was searched."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Rows:
    """Layout rows, grouped by K in ascending order. All arrays have one length and hold exact integers.

    `position` counts the rows of each K from 0: with K it names a row whatever else was enumerated.
    """

    k: Ints
    global_batch: Ints
    tp: Ints
    pp: Ints
    cp: Ints
    ep: Ints
    dp: Ints
    vpp: Ints
    micro_batch: Ints
    accumulation: Ints
    position: Ints

    def __len__(self) -> int:
        return int(self.tp.size)

    def take(self, index: npt.NDArray[np.intp]) -> Rows:
        """The rows at `index`."""
        return Rows(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


@lru_cache(maxsize=4096)
def divisors(n: int, most: int) -> tuple[int, ...]:
    """Divisors of `n` up to `most`, ascending.

    >>> divisors(96, 16)
    (1, 2, 3, 4, 6, 8, 12, 16)
    """
    return tuple(d for d in range(1, min(n, most) + 1) if n % d == 0)


def candidates(n: int, most: int) -> list[int]:
    """Degrees to try for something of size `n`: its divisors and the powers of two, up to `most`.

    >>> candidates(12, 16)
    [1, 2, 3, 4, 6, 8, 12, 16]
    """
    powers = {1 << i for i in range(most.bit_length()) if 1 << i <= most}
    return sorted(powers | set(divisors(n, most)))


def enumerate_rows(
    shape: Shape, global_batch: Mapping[int, int], bounds: Bounds
) -> tuple[Rows, Counter[str]]:
    """All rows of `shape` at each K of `global_batch` (K -> samples a step), and refusals by reason.

    Refusals of degrees (tp, pp, cp, ep) count once each, before micro-batches are chosen; refusals of
    interleaving count once per row.
    """
    refused: Counter[str] = Counter()
    ks = np.array(sorted(global_batch), dtype=np.int64)
    axes = np.meshgrid(ks, *_degrees(shape, bounds, int(ks.max(initial=1))), indexing="ij")
    k, tp, pp, cp, ep = (axis.ravel() for axis in axes)
    batch = np.repeat([global_batch[int(n)] for n in ks], k.size // max(ks.size, 1))
    ok = np.ones(k.size, dtype=bool)

    def refuse(bad: Mask, reason: str) -> None:
        nonlocal ok
        refused[reason] += int((bad & ok).sum())
        ok &= ~bad

    replica = tp * pp * cp
    refuse(k % replica != 0, K_DIVIDES)
    refuse((shape.heads % tp != 0) if shape.is_transformer else (tp > 1), HEADS)
    refuse(shape.layers % pp != 0, LAYERS)
    refuse(shape.seq_len % cp != 0, SEQUENCE)
    dp = np.maximum(k // replica, 1)
    refuse(batch % dp != 0, BATCH_DIVIDES)
    refuse((shape.experts % ep != 0) | ((dp * tp * cp) % ep != 0), EXPERTS)
    columns = [axis[ok] for axis in (k, batch, tp, pp, cp, ep, dp)]

    # Micro-batches: every divisor of what a replica has to do.
    share = columns[1] // columns[6]
    micro, at = _ragged(share, lambda n: _micro_batches(shape, n, bounds))
    columns = [axis[at] for axis in columns]
    steps = share[at] // micro

    # Interleaving: vpp = 1 always, more where the layers and the micro-batches allow it.
    vpp, at = _ragged(columns[3], lambda p: _interleave(shape, p, bounds))
    columns = [axis[at] for axis in (*columns, micro, steps)]
    keep = (vpp == 1) | (columns[8] % columns[3] == 0)
    refused[INTERLEAVE] += int((~keep).sum())
    k, batch, tp, pp, cp, ep, dp, micro, steps = (axis[keep] for axis in columns)
    first = np.searchsorted(k, k)  # rows are grouped by ascending K
    rows = Rows(k, batch, tp, pp, cp, ep, dp, vpp[keep], micro, steps, np.arange(k.size) - first)
    return rows, Counter({reason: count for reason, count in refused.items() if count})


def _micro_batches(shape: Shape, share: int, bounds: Bounds) -> list[int]:
    found = set(divisors(share, bounds.max_micro_batch))
    while not shape.is_transformer and share not in found:
        found |= {share} if share <= bounds.max_share else set()
        if share % 2:
            break
        share //= 2
    return sorted(found)


def combinations(shape: Shape, bounds: Bounds) -> int:
    """Degree combinations that are tried at each K."""
    return math.prod(len(axis) for axis in _degrees(shape, bounds, bounds.max_tp * bounds.max_pp))


def _ragged(keys: Ints, choices: Callable[[int], Sequence[int]]) -> tuple[Ints, npt.NDArray[np.intp]]:
    """For each key all its choices in order: the flat choices, and which key each belongs to."""
    unique, inverse = np.unique(keys, return_inverse=True)
    lists = [np.asarray(choices(int(n)), dtype=np.int64) for n in unique]
    sizes = np.array([found.size for found in lists], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    counts = sizes[inverse]
    owner = np.repeat(np.arange(keys.size), counts)
    offset = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
    flat = np.concatenate([*lists, np.zeros(0, dtype=np.int64)])
    return flat[starts[inverse][owner] + offset], owner


def _degrees(shape: Shape, bounds: Bounds, k: int) -> tuple[list[int], ...]:
    """Degrees to try, none beyond the largest K."""
    if not shape.is_transformer:
        return [1], [1], [1], [1]
    tp = candidates(shape.heads, min(bounds.max_tp, k))
    pp = candidates(shape.layers, min(bounds.max_pp, shape.layers, k))
    longest = max(shape.seq_len // bounds.shortest_sequence, 1)
    cp = candidates(1, min(bounds.max_cp, longest, k))
    ep = candidates(shape.experts, min(bounds.max_ep, shape.experts, k)) if shape.experts > 1 else [1]
    return tp, pp, cp, ep


def _interleave(shape: Shape, pp: int, bounds: Bounds) -> list[int]:
    return list(divisors(shape.layers // pp, bounds.max_vpp)) if pp > 1 else [1]


def shard_group(rows: Rows, sharding: str, node: int) -> Ints:
    """Ranks that share one copy of the weights: a node's for hsdp, all data-parallel ranks otherwise."""
    everyone = rows.dp * rows.cp
    if sharding != "hsdp":
        return everyone
    return np.asarray(np.minimum(everyone, np.maximum(node // rows.tp, 1)), dtype=np.int64)


def sharding_allowed(rows: Rows, sharding: str, node: int) -> Mask:
    """Rows for which a way of sharding exists and is not the same as a simpler one.

    Sharding needs data-parallel ranks; hsdp more of them than one node holds, in whole nodes.
    """
    ranks = rows.dp * rows.cp
    if sharding == "ddp":
        return np.ones(len(rows), dtype=bool)
    allowed = ranks > 1
    if sharding == "hsdp":
        group = shard_group(rows, sharding, node)
        allowed = allowed & (group > 1) & (ranks > group) & (ranks % group == 0)
    return np.asarray(allowed)


def sharding_refused(rows: Rows, sharding: str) -> tuple[Mask, str]:
    """Rows that frameworks refuse under a way of sharding, and why.

    zero2 leaves each rank its share of the summed gradient and therefore reduces those of every micro-batch; no
    framework does that in a pipeline. fsdp and hsdp there would gather every stage's weights for each micro-batch in
    flight; no measured run shows what that costs.
    """
    if sharding == "zero2":
        return rows.pp > 1, SHARDED_GRADIENTS
    if sharding in ("fsdp", "hsdp"):
        return rows.pp > 1, SHARDED_PIPELINE
    return np.zeros(len(rows), dtype=bool), ""


def simplicity(rows: Rows) -> npt.NDArray[np.float64]:
    """Smaller is simpler: fewer kinds of parallelism, then smaller degrees. Sharding adds its place in `SHARDINGS`."""
    kinds = np.sum([rows.tp > 1, rows.pp > 1, rows.cp > 1, rows.ep > 1], axis=0)
    degrees = np.log2(rows.tp * rows.pp * rows.cp * rows.ep * rows.vpp)
    return np.asarray(kinds * 1e4 + degrees * 1e2)
