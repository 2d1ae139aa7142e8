"""The layouts of a set-up that arithmetic and memory allow, before any physics.

They rest on the workload, the machine's memory and size, K and the batch; not on links, beliefs or jitter. One search
therefore serves every what-if that moves only those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.layouts import Layouts, pick, recompute_share
from perfmodel.physics.memory import memory
from perfmodel.training.declared import usable_shardings
from perfmodel.training.setup import Setup
from perfmodel.training.space import (
    PRECEDENCE,
    Refusal,
    Space,
    candidates,
    default_space,
    narrowed,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Search:
    """The allowed layouts in order of K, then one for each K to show where none is allowed."""

    at: Layouts
    count: int  # allowed layouts; the rest of `at` is one for each K
    k_index: NDArray[np.int64]  # position of each allowed layout's K
    simplicity: Array  # of each allowed layout; ties go to the smaller
    refusal: NDArray[np.int64]  # at each K; NONE where some layout is allowed

    @property
    def allowed(self) -> Layouts:
        """The allowed layouts alone."""
        found: Layouts = pick(self.at, slice(0, self.count))
        return found

    def best(self, seconds: Array) -> tuple[Layouts, NDArray[np.int64]]:
        """The fastest allowed layout at each K and its refusal, given the time of each allowed layout."""
        # Rounding must not choose a layout: times within a millionth are one time.
        value = np.round(np.log(seconds), 6)
        order = np.lexsort((self.simplicity, value, self.k_index))
        index = self.count + np.arange(self.refusal.size)
        ranked = self.k_index[order]
        first = np.flatnonzero(np.concatenate([[True], np.diff(ranked) > 0])) if order.size else order
        index[ranked[first]] = order[first]
        return pick(self.at, index), self.refusal


def search(setup: Setup, space: Space | None = None) -> Search:
    """Every layout of a space that can run and fits; what no space holds (replicas, schedule ...) is as the set-up says.

    By default the space is that of the given layout, else the usual one, less the layouts that cannot be best: where a
    layout fits without recomputation, the same one with it is slower whatever the links and beliefs are.
    """
    ops, machine, own = setup.operations, setup.machine, space is None
    if space is None and setup.layout is not None:
        space = narrowed(Space(), setup.layout, setup.default_sharding)
    elif space is None:
        space = default_space(setup.workload, machine, setup.seq_len, int(setup.k.max()))
        space = replace(space, sharding=usable_shardings(space.sharding, setup.declared))
    limit = setup.cluster.max_accelerators
    found = candidates(
        space,
        setup.k,
        setup.global_batch,
        setup.workload,
        machine,
        seq_len=setup.seq_len,
        dp=setup.layout.dp if setup.layout else None,
        accumulation=setup.layout.accumulation if setup.layout else None,
        shard_group=setup.layout.shard_group if setup.layout else None,
        sequence_parallel=_sequence_parallel(setup),
        max_accelerators=np.inf if limit is None else float(limit),
        declared=setup.declared,
    )
    worth = np.flatnonzero(found.refusal == Refusal.NONE)
    total = np.zeros(found.refusal.shape)
    with np.errstate(all="ignore"):
        total[worth] = memory(ops, machine, pick(found.at, worth), schedule=setup.schedule).total
    full = total > machine.memory_bytes
    refusal = np.where((found.refusal == Refusal.NONE) & full, int(Refusal.MEMORY), found.refusal)
    # Among the refused the one that needs least memory, or breaks least, so that the reason is the nearest.
    rank = np.where(refusal == Refusal.NONE, 0, np.where(refusal == Refusal.MEMORY, 1, 2))
    value = np.where(rank == 1, total, PRECEDENCE[refusal])
    order = np.lexsort((found.simplicity, value, rank, found.k_index))
    nearest = order[np.concatenate([[True], np.diff(found.k_index[order]) > 0])]
    allowed = np.flatnonzero((rank == 0) & _least_repeated(space, rank == 0) if own else rank == 0)
    return Search(
        at=pick(found.at, np.concatenate([allowed, nearest])),
        count=allowed.size,
        k_index=found.k_index[allowed],
        simplicity=found.simplicity[allowed],
        refusal=refusal[nearest],
    )


def _least_repeated(space: Space, fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each candidate repeats the least among those that fit and differ in recomputation alone."""
    shares = np.array([recompute_share(said) for said in space.recompute])
    # Recomputation is the last dimension of the product, so its choices stand side by side.
    repeated = np.where(fits.reshape(-1, shares.size), shares, np.inf)
    return np.asarray(repeated == repeated.min(axis=1, keepdims=True)).ravel()


def _sequence_parallel(setup: Setup) -> float:
    if setup.layout is not None and setup.layout.sequence_parallel is not None:
        return float(setup.layout.sequence_parallel)
    return 1.0
