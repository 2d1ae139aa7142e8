"""Every layout of a job on K accelerators, as a struct of arrays, and why the others are refused.

Predictions with `layout: auto`, plans and audits search this one space. A layout is a row (tp, pp, cp, ep, vpp,
micro-batch) times a way of sharding times a recompute level. Rows are enumerated here; sharding and recompute are axes
that a search adds, because the step model broadcasts over them. The order of rows is fixed, so that a position names a
layout. What is impossible is in `rules`; the choices here are those that a framework would be run with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.layouts import SHARDING_CODES, Index, Layouts, layouts, recompute_share
from perfmodel.specs.layout import MISSING_LAYERS, Layout, Recompute
from perfmodel.training.rules import (
    PRECEDENCE,
    REASONS,
    Given,
    Refusal,
    Shape,
    divides_layers,
    fullest,
    refusals,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Repeating attention alone frees no memory where its scores are fused, and takes time: it is never the best.
RECOMPUTE: tuple[Recompute, ...] = ("none", "full")
# From the simplest to the most involved: ties are broken in this order.
SHARDINGS = ("ddp", "zero1", "zero2", "hsdp", "fsdp")

INTERLEAVE = "interleaving needs micro-batches in multiples of pp"
SHARDED_GRADIENTS = "sharded gradients do not go with a pipeline"
SHARDED_PIPELINE = "sharded weights do not go with a pipeline"
STEPS_ALONE = "replicas that step alone must hold the whole state"


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
    recompute: tuple[Recompute, ...] = RECOMPUTE

    def as_dict(self) -> dict[str, object]:
        """For the envelope, so that the answer states what was searched."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def widened(self) -> Bounds:
        """What is tried at a K where nothing inside the edges fits; an edge that was moved stays where it is."""
        usual = Bounds()
        return replace(
            self,
            max_tp=128 if self.max_tp == usual.max_tp else self.max_tp,
            max_pp=256 if self.max_pp == usual.max_pp else self.max_pp,
            max_cp=128 if self.max_cp == usual.max_cp else self.max_cp,
            shortest_sequence=256
            if self.shortest_sequence == usual.shortest_sequence
            else self.shortest_sequence,
        )


@dataclass(frozen=True)
class Space:
    """Values to try of each dimension. Of virtual stages and micro-batches None means what `Bounds` and the rows allow."""

    tp: tuple[int, ...] = (1,)
    pp: tuple[int, ...] = (1,)
    cp: tuple[int, ...] = (1,)
    ep: tuple[int, ...] = (1,)
    vpp: tuple[int, ...] | None = None
    micro_batch: tuple[int, ...] | None = None
    sharding: tuple[str, ...] = SHARDINGS
    recompute: tuple[Recompute, ...] = RECOMPUTE


def usual_space(shape: Shape, bounds: Bounds, k_most: int) -> Space:
    """What is searched where no layout is stated; no degree is beyond the largest K."""
    if not shape.is_transformer:
        return Space(
            sharding=bounds.shardings if shape.is_large else bounds.shardings[:1],
            recompute=bounds.recompute if shape.is_large else bounds.recompute[:1],
        )
    layers = shape.layers
    stages = np.arange(1, min(bounds.max_pp, layers, k_most) + 1)
    unpiped = shape.is_small and bounds.max_pp == Bounds().max_pp
    pp = (
        {1}
        if unpiped
        else {
            *candidates(layers, min(bounds.max_pp, layers, k_most)),
            *stages[divides_layers(layers, stages)],
        }
    )
    longest = max(shape.seq_len // bounds.shortest_sequence, 1)
    most_ep = min(bounds.max_ep, shape.experts, k_most)
    return Space(
        tp=tuple(t for t in candidates(shape.heads, min(bounds.max_tp, k_most)) if shape.heads % t == 0),
        pp=tuple(sorted(int(p) for p in pp)),
        cp=tuple(candidates(1, min(bounds.max_cp, longest, k_most))),
        ep=divisors(shape.experts, most_ep) if shape.experts > 1 else (1,),
        sharding=bounds.shardings,
        recompute=bounds.recompute,
    )


def stated_space(layout: Layout, default_sharding: str) -> tuple[Space, Given]:
    """The part of the space that a given layout leaves open (its micro-batch, when not given)."""
    space = Space(
        tp=(layout.tp,),
        pp=(layout.pp,),
        cp=(layout.cp,),
        ep=(layout.ep,),
        vpp=(layout.vpp or 1,),
        micro_batch=(layout.micro_batch,) if layout.micro_batch else None,
        sharding=(layout.sharding or default_sharding,),
        recompute=RECOMPUTE if layout.recompute is None else (layout.recompute,),
    )
    return space, Given(layout.dp, layout.micro_batch, layout.accumulation, layout.etp)


@dataclass(frozen=True)
class Rows:
    """Layout rows, grouped by point (a K and its batch) in ascending order. All arrays have one length.

    `position` counts the rows of each point from 0: with the point it names a row whatever else was enumerated.
    """

    point: Ints
    k: Ints
    global_batch: Floats
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

    def take(self, index: NDArray[np.intp]) -> Rows:
        """The rows at `index`."""
        return Rows(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def replaced(self, index: NDArray[np.intp], other: Rows) -> Rows:
        """These rows with those of `other` at `index`."""
        values = {f.name: getattr(self, f.name).copy() for f in fields(self)}
        for name, value in values.items():
            value[index] = getattr(other, name)
        return Rows(**values)


@dataclass(frozen=True)
class Enumerated:
    """The rows of a space, the combinations of degrees refused by reason, and what stands in where there is no row."""

    rows: Rows
    refused: Counter[str]
    nearest: Rows  # one for each point: a row, or degrees that break the least
    refusal: Ints  # of `nearest`; NONE where the point has rows


@lru_cache(maxsize=4096)
def divisors(n: int, most: int) -> tuple[int, ...]:
    """Divisors of `n` up to `most`, ascending.

    >>> divisors(96, 16)
    (1, 2, 3, 4, 6, 8, 12, 16)
    """
    return tuple(d for d in range(1, min(n, most) + 1) if n % d == 0)


def powers_of_two(most: float) -> tuple[int, ...]:
    """1, 2, 4 ... up to `most`.

    >>> powers_of_two(9)
    (1, 2, 4, 8)
    """
    return tuple(1 << i for i in range(max(1, int(most)).bit_length()))


def candidates(n: int, most: int) -> list[int]:
    """Degrees to try for something of size `n`: its divisors and the powers of two, up to `most`.

    >>> candidates(12, 16)
    [1, 2, 3, 4, 6, 8, 12, 16]
    """
    return sorted({*powers_of_two(most), *divisors(n, most)})


def enumerate_rows(
    shape: Shape,
    k: Sequence[int] | Ints,
    global_batch: Sequence[float] | Floats,
    bounds: Bounds | None = None,
    *,
    space: Space | None = None,
    given: Given | None = None,
    max_accelerators: float = math.inf,
) -> Enumerated:
    """All rows of `shape` at each K with its batch, by default of the usual space inside `bounds`.

    Refusals of degrees (tp, pp, cp, ep) count once each, before micro-batches are chosen; refusals of
    interleaving count once per row.
    """
    edges, ks = bounds or Bounds(), np.asarray(k, dtype=np.int64)
    tried = space or usual_space(shape, edges, int(ks.max(initial=1)))
    fixed = given or Given()
    axes = np.meshgrid(np.arange(ks.size), tried.tp, tried.pp, tried.cp, tried.ep, indexing="ij")
    point, tp, pp, cp, ep = (axis.ravel() for axis in axes)
    n, batch = ks[point], np.asarray(global_batch, dtype=float)[point]
    least_vpp = min(tried.vpp) if tried.vpp else 1
    code = refusals(shape, n, batch, tp, pp, cp, ep, least_vpp, fixed, max_accelerators)
    counts = np.bincount(code, minlength=len(Refusal))
    refused = Counter({REASONS[Refusal(i)]: int(c) for i, c in enumerate(counts) if i and c})
    dp = np.maximum(n // (tp * pp * cp), 1)
    share = fullest(batch / dp)

    ok = np.flatnonzero(code == Refusal.NONE)
    columns = [axis[ok] for axis in (point, n, tp, pp, cp, ep, dp, share)]
    # Micro-batches: every divisor of what the fullest replica has to do, and the powers of two.
    micro, at = _ragged(columns[7], lambda most: _micro_batches(shape, most, edges, tried, fixed))
    columns = [axis[at] for axis in columns]
    steps = -(-columns[7] // micro) if fixed.accumulation is None else np.full_like(micro, fixed.accumulation)
    # Interleaving: vpp = 1 always, more where the layers and the micro-batches allow it.
    vpp, at = _ragged(columns[3], lambda p: _interleave(shape, p, edges, tried))
    columns = [axis[at] for axis in (*columns[:7], micro, steps)]
    if tried.vpp is None:
        keep = (vpp == 1) | (columns[8] % columns[3] == 0)
        if not keep.all():
            refused[INTERLEAVE] += int((~keep).sum())
            columns, vpp = [axis[keep] for axis in columns], vpp[keep]
    point_, n_, tp_, pp_, cp_, ep_, dp_, micro, steps = columns
    first = np.searchsorted(point_, point_)  # rows are grouped by ascending point
    place = np.arange(n_.size) - first
    samples = np.asarray(global_batch, dtype=float)
    rows = Rows(point_, n_, samples[point_], tp_, pp_, cp_, ep_, dp_, vpp, micro, steps, place)

    # Where a point has no row: the degrees that break the least, the simplest of them.
    order = np.lexsort((_simplicity(tp, pp, cp, ep, 1), PRECEDENCE[code], point))
    best = order[np.searchsorted(point[order], np.arange(ks.size))]
    ones = np.ones(best.size, dtype=np.int64)
    most = np.maximum(share[best], 1)
    nearest = Rows(
        point[best], np.maximum(n[best], 1), batch[best], tp[best], pp[best], cp[best], ep[best], dp[best],
        ones * least_vpp, ones, most, ones * 0,
    )  # fmt: skip
    return Enumerated(rows, refused, nearest, code[best])


def _micro_batches(
    shape: Shape, share: int, bounds: Bounds, space: Space, given: Given
) -> tuple[int, ...] | list[int]:
    if given.micro_batch is not None:
        return (given.micro_batch,)
    if given.accumulation is not None:
        return (-(-share // given.accumulation),)
    if space.micro_batch is not None:
        return [size for size in space.micro_batch if size <= share]
    most = min(bounds.max_micro_batch, share)
    found = set(divisors(share, most))
    # A power of two, its last micro-batch partly empty, where no divisor is near.
    found |= {p for p in powers_of_two(most) if not any(p < 2 * size <= 2 * p for size in found)}
    while not shape.is_transformer and share not in found:
        found |= {share} if share <= bounds.max_share else set()
        if share % 2:
            break
        share //= 2
    return sorted(found)


def combinations(shape: Shape, bounds: Bounds) -> int:
    """Degree combinations that are tried at each K."""
    space = usual_space(shape, bounds, bounds.max_tp * bounds.max_pp)
    return math.prod(len(axis) for axis in (space.tp, space.pp, space.cp, space.ep))


def _ragged(keys: Ints, choices: Callable[[int], Sequence[int]]) -> tuple[Ints, NDArray[np.intp]]:
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


def _interleave(shape: Shape, pp: int, bounds: Bounds, space: Space) -> Sequence[int]:
    if space.vpp is not None:
        return [v for v in space.vpp if len(space.vpp) == 1 or pp * v <= shape.layers + MISSING_LAYERS]
    if pp == 1 or bounds.max_vpp == 1:
        return (1,)
    deep = np.arange(2, bounds.max_vpp + 1)
    return [1, *deep[divides_layers(shape.layers, pp * deep)].tolist()]


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


def simplicity(rows: Rows) -> Floats:
    """Smaller is simpler: fewer kinds of parallelism, then smaller degrees. Sharding adds its place in `SHARDINGS`."""
    return _simplicity(rows.tp, rows.pp, rows.cp, rows.ep, rows.vpp)


def _simplicity(tp: Ints, pp: Ints, cp: Ints, ep: Ints, vpp: Ints | int) -> Floats:
    kinds = np.sum([tp > 1, pp > 1, cp > 1, ep > 1], axis=0)
    return np.asarray(kinds * 1e4 + np.log2(tp * pp * cp * ep * vpp) * 1e2)


@dataclass(frozen=True)
class Told:
    """What a job says of all its layouts alike: declared facts, and what a stated layout has beside its degrees."""

    node: int
    declared: Mapping[str, float]
    shard_group: int | None = None
    sequence_parallel: float = 1.0
    etp: int | None = None


def as_layouts(rows: Rows, shardings: Sequence[str], recompute: Sequence[Recompute], told: Told) -> Layouts:
    """Rows as the step model's struct of shape (rows, shardings, recompute levels), axes kept apart."""
    groups = np.stack([shard_group(rows, name, told.node) for name in shardings], axis=1)[:, :, None]
    codes = np.array([float(SHARDING_CODES[name]) for name in shardings])[:, None]
    return _layouts(rows, (slice(None), None, None), codes, groups, recompute, slice(None), told)


def picked_layouts(
    rows: Rows,
    sharding: Ints,
    level: Ints,
    shardings: Sequence[str],
    recompute: Sequence[Recompute],
    told: Told,
) -> Layouts:
    """One layout of each row: `sharding` and `level` are positions in `shardings` and `recompute`."""
    codes = np.array([float(SHARDING_CODES[name]) for name in shardings])[sharding]
    groups = np.zeros(len(rows))
    for i, name in enumerate(shardings):
        groups = np.where(sharding == i, shard_group(rows, name, told.node), groups)
    return _layouts(rows, slice(None), codes, groups, recompute, level, told)


_COLUMNS = ("global_batch", "tp", "pp", "cp", "ep", "dp", "vpp", "micro_batch", "accumulation")


def _layouts(
    rows: Rows,
    axes: Index | tuple[Index | None, ...],
    codes: Floats,
    groups: Floats | NDArray[np.int64],
    recompute: Sequence[Recompute],
    level: Index,
    told: Told,
) -> Layouts:
    return layouts(
        rows.k.astype(float)[axes],
        accelerators_per_node=float(told.node),
        sharding=codes,
        shard_group=groups.astype(float) if told.shard_group is None else float(told.shard_group),
        recompute=np.array([recompute_share(name) for name in recompute])[level],
        selective=np.array([float(name == "selective") for name in recompute])[level],
        sequence_parallel=told.sequence_parallel,
        etp=float(told.etp or 0),
        declared=told.declared,
        **{name: getattr(rows, name).astype(float)[axes] for name in _COLUMNS},
    )
