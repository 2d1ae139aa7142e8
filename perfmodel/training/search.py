"""The layouts of a set-up that arithmetic and memory allow, before any physics.

They rest on the workload, the machine's memory and size, K and the batch; not on links, beliefs or jitter. One search
therefore serves every what-if that moves only those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.layouts import Layouts, pick, recompute_share
from perfmodel.physics.memory import Memory, memory, room
from perfmodel.specs.layout import Recompute
from perfmodel.training.declared import usable_shardings
from perfmodel.training.rules import Given, Refusal, Shape, shape_of
from perfmodel.training.setup import Setup
from perfmodel.training.space import (
    Bounds,
    Enumerated,
    Rows,
    Space,
    Told,
    as_layouts,
    enumerate_rows,
    picked_layouts,
    sharding_allowed,
    sharding_refused,
    simplicity,
    stated_space,
    usual_space,
)

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Times that agree to this many digits are a tie, which simplicity breaks: rounding must not choose a layout.
TIE_DIGITS = 10
LARGEST_GIVEN = 4096  # micro-batch that a given layout may turn out to have


@dataclass(frozen=True)
class Search:
    """The allowed layouts in order of K, then one for each K to show where none is allowed."""

    at: Layouts
    count: int  # allowed layouts; the rest of `at` is one for each K
    k_index: Ints  # position of each allowed layout's K
    simplicity: Array  # of each allowed layout; ties go to the smaller
    refusal: Ints  # at each K; NONE where some layout is allowed

    @property
    def allowed(self) -> Layouts:
        """The allowed layouts alone."""
        found: Layouts = pick(self.at, slice(0, self.count))
        return found

    def best(self, seconds: Array) -> tuple[Layouts, Ints]:
        """The fastest allowed layout at each K and its refusal, given the time of each allowed layout."""
        order = np.lexsort((self.simplicity, significant(seconds), self.k_index))
        index = self.count + np.arange(self.refusal.size)
        ranked = self.k_index[order]
        first = np.flatnonzero(np.concatenate([[True], np.diff(ranked) > 0])) if order.size else order
        index[ranked[first]] = order[first]
        return pick(self.at, index), self.refusal


def significant(values: Array) -> Array:
    """`values` to `TIE_DIGITS` significant digits, so that rounding errors do not order layouts.

    >>> significant(np.array([1.00000000001, 250.0])).tolist()
    [1.0, 250.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(values))) - (TIE_DIGITS - 1))
        return np.asarray(np.where(np.isfinite(unit) & (unit > 0), np.round(values / unit) * unit, values))


def search(
    setup: Setup,
    space: Space | None = None,
    *,
    bounds: Bounds | None = None,
    recompute: tuple[Recompute, ...] | None = None,
) -> Search:
    """Every layout of a space that can run and fits; what no space holds (replicas, schedule ...) is as the set-up says.

    By default the space is that of the given layout, else the usual one inside `bounds`, less the layouts that cannot be
    best: where a layout fits without recomputation, the same one with it is slower whatever the links and beliefs are.
    Where nothing usual fits at a K, the widened bounds are tried there. `recompute` holds the search to these levels.
    """
    shape = shape_of(setup.workload, setup.machine, setup.seq_len)
    edges, given, own = bounds or Bounds(), Given(), space is None
    if recompute is not None:
        edges = replace(edges, recompute=recompute)
    if setup.layout is not None:
        edges = replace(edges, max_micro_batch=LARGEST_GIVEN)
        stated, given = stated_space(setup.layout, setup.default_sharding)
        given = (
            given if own else replace(given, micro_batch=None)
        )  # of another space any of its micro-batches
        space = space or stated
    if space is not None:
        return _tried(setup, shape, edges, space, given, np.arange(setup.k.size), own)
    return _widened(setup, shape, edges)


def _widened(setup: Setup, shape: Shape, edges: Bounds) -> Search:
    """The usual space, and the widened one at the K where nothing usual fits."""
    space = usual_space(shape, edges, int(setup.k.max(initial=1)))
    found = _tried(setup, shape, edges, space, Given(), np.arange(setup.k.size), own=True)
    without = np.flatnonzero(~np.isin(found.refusal, (Refusal.NONE, Refusal.NODES)))
    shape = shape.cut()
    if not without.size or not shape.is_transformer:
        return found
    wide = edges.widened()
    space = usual_space(shape, wide, int(setup.k[without].max()))
    more = _tried(setup, shape, wide, space, Given(), without, own=True)
    if not more.count:
        return found
    # Allowed layouts stay in order of K.
    order = np.argsort(np.concatenate([found.k_index, more.k_index]), kind="stable")
    shown = np.arange(setup.k.size)
    at = _joined(found.allowed, more.allowed)
    return Search(
        at=_joined(pick(at, order), pick(found.at, found.count + shown)),
        count=order.size,
        k_index=np.concatenate([found.k_index, more.k_index])[order],
        simplicity=np.concatenate([found.simplicity, more.simplicity])[order],
        refusal=np.where(np.isin(shown, more.k_index), int(Refusal.NONE), found.refusal),
    )


def _joined(first: Layouts, second: Layouts) -> Layouts:
    """The layouts of both, one after the other; scalars are those of the set-up and the same."""
    names = Layouts.__dataclass_fields__
    return Layouts(
        **{
            name: np.concatenate([a, b]) if a.ndim else a
            for name in names
            for a, b in [(np.asarray(getattr(first, name)), np.asarray(getattr(second, name)))]
        }
    )


def _tried(
    setup: Setup, shape: Shape, edges: Bounds, space: Space, given: Given, points: Ints, own: bool
) -> Search:
    """One space at some of the set-up's K; the result counts K as the set-up does."""
    is_stated = setup.layout is not None
    if not is_stated:
        space = replace(space, sharding=usable_shardings(space.sharding, setup.declared))
    limit = setup.cluster.max_accelerators
    made = enumerate_rows(
        shape,
        setup.k[points].astype(np.int64),
        setup.global_batch[points],
        edges,
        space=space,
        given=given,
        max_accelerators=np.inf if limit is None else float(limit),
    )
    rows, told = made.rows, told_of(setup)
    dims = (len(rows), len(space.sharding), len(space.recompute))
    at = as_layouts(rows, space.sharding, space.recompute, told)
    with np.errstate(all="ignore"):
        held = memory(setup.operations, setup.machine, at, schedule=setup.schedule)
    total = np.broadcast_to(held.total, dims)
    stated = (setup.layout.sharding or setup.default_sharding) if setup.layout is not None else None
    goes = np.stack([_goes_with(rows, name, shape.node, stated) for name in space.sharding], axis=1)
    fits = (total <= room(setup.machine, 0.0 if is_stated else setup.headroom)) & goes[:, :, None]
    if is_stated:
        fits |= _may_fit(setup, held, rows.point, fits) & goes[:, :, None]
    chosen = np.nonzero(fits & least_repeated(space.recompute, fits) if own else fits)
    nearest, refusal = _nearest(made, np.where(goes[:, :, None], total, np.inf), fits)
    names = (space.sharding, space.recompute, told)
    i, s, r = chosen
    return Search(
        at=_joined(picked_layouts(rows.take(i), s, r, *names), picked_layouts(*nearest, *names)),
        count=i.size,
        k_index=points[rows.point[i]],
        simplicity=simplicity(rows)[i] + s + r / len(space.recompute),
        refusal=refusal,
    )


def _may_fit(setup: Setup, held: Memory, point: Ints, fits: Mask) -> Mask:
    """What may have run although the count says no, by the least that it needs: rough counts are no reason to refuse.

    Where the count is close, that of a transformer, only as far as nothing that the layout leaves open fits by it.
    """
    settled = np.zeros(setup.k.size, dtype=bool)
    if float(setup.operations.is_transformer) > 0:
        np.logical_or.at(settled, point, fits.any(axis=(1, 2)))
    least = np.broadcast_to(held.low, fits.shape) <= room(setup.machine, 0.0)
    return np.asarray(least & ~settled[point][:, None, None])


def told_of(setup: Setup) -> Told:
    """What the set-up says of all its layouts alike."""
    layout, node = setup.layout, int(setup.machine.node)
    if layout is None:
        return Told(node, setup.declared, sequence_parallel=setup.sequence_parallel)
    return Told(node, setup.declared, layout.shard_group, setup.sequence_parallel, layout.etp)


def _goes_with(rows: Rows, sharding: str, node: int, stated: str | None) -> Mask:
    """Rows that a way of sharding goes with; the stated one goes with all."""
    if sharding == stated:
        return np.ones(len(rows), dtype=bool)
    return np.asarray(sharding_allowed(rows, sharding, node) & ~sharding_refused(rows, sharding)[0])


def _nearest(made: Enumerated, total: Array, fits: Mask) -> tuple[tuple[Rows, Ints, Ints], Ints]:
    """One layout for each K to show where none fits, and why: the one of least memory, else degrees that break least."""
    shown, refusal = made.nearest, made.refusal.copy()
    sharding, level = np.zeros_like(refusal), np.zeros_like(refusal)
    if len(made.rows):
        flat = total.reshape(len(made.rows), -1)
        order = np.lexsort((simplicity(made.rows), flat.min(axis=1), made.rows.point))
        ranked = made.rows.point[order]
        row = order[np.concatenate([[True], np.diff(ranked) > 0])]
        where = made.rows.point[row]
        shown = shown.replaced(where, made.rows.take(row))
        sharding[where], level[where] = np.unravel_index(flat[row].argmin(axis=1), total.shape[1:])
        refusal[where] = int(Refusal.MEMORY)
        refusal[made.rows.point[fits.any(axis=(1, 2))]] = int(Refusal.NONE)
    return (shown, sharding, level), refusal


def least_repeated(levels: tuple[Recompute, ...], fits: Mask) -> Mask:
    """Whether each candidate repeats the least among those that fit and differ in recomputation alone (the last axis).

    What is repeated without need is never the answer, also where a belief lets it hide more of an exchange than it costs.
    """
    shares = np.array([recompute_share(said) for said in levels])
    repeated = np.where(fits, shares, np.inf)
    return np.asarray(repeated == repeated.min(axis=2, keepdims=True))
