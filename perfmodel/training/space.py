"""The layouts that a job could take, as one struct of arrays, with the reason why each impossible one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.layouts import SHARDING_CODES, Layouts, layouts, recompute_share
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import TRANSFORMER_KINDS
from perfmodel.specs.layout import Layout, Recompute
from perfmodel.specs.workload import Workload

Array = NDArray[np.float64]

WHOLE = 0  # micro-batch: the whole share of a replica at once
LARGEST_DEGREE = 64
LARGE_PARAMS = 1e9  # from here on states are worth sharding in networks that are cut by nothing else
# The first and the last stage may each hold one layer less, in place of embeddings and logits (Llama 3, section 3.3.2).
MISSING_LAYERS = 2


class Refusal(IntEnum):
    """Why a layout cannot run; 0 is none."""

    NONE = 0
    DIVISION = 1
    BATCH = 2
    HEADS = 3
    LAYERS = 4
    EXPERTS = 5
    SEQUENCE = 6
    NODES = 7
    MEMORY = 8
    REPLICAS = 9


REASONS: dict[Refusal, str] = {
    Refusal.NONE: "",
    Refusal.DIVISION: "K is not a multiple of tp*pp*cp",
    Refusal.BATCH: "the global batch is too small for the replicas, or not dp x micro_batch x accumulation",
    Refusal.HEADS: "tp does not divide the attention heads (a network without any cannot be cut by tp)",
    Refusal.LAYERS: "pp*vpp does not divide the layers evenly",
    Refusal.EXPERTS: "ep divides neither the experts nor the ranks",
    Refusal.SEQUENCE: "cp does not divide the sequence",
    Refusal.NODES: "the cluster has fewer accelerators",
    Refusal.MEMORY: "does not fit in memory",
    Refusal.REPLICAS: "the layout's dp*tp*pp*cp is another number of accelerators",
}


# A candidate states the last of these that it breaks; it keeps all that follow. The reason told is therefore the
# earliest stated by any candidate: the others could be mended by a choice that was left open.
ORDER: tuple[Refusal, ...] = (
    Refusal.NONE,
    Refusal.MEMORY,
    Refusal.NODES,
    Refusal.EXPERTS,
    Refusal.SEQUENCE,
    Refusal.LAYERS,
    Refusal.HEADS,
    Refusal.BATCH,
    Refusal.DIVISION,
    Refusal.REPLICAS,
)
PRECEDENCE: NDArray[np.int64] = np.array([ORDER.index(code) for code in Refusal])


@dataclass(frozen=True)
class Space:
    """Candidate values of each dimension; their product is the space."""

    tp: tuple[int, ...] = (1,)
    pp: tuple[int, ...] = (1,)
    cp: tuple[int, ...] = (1,)
    ep: tuple[int, ...] = (1,)
    vpp: tuple[int, ...] = (1,)
    micro_batch: tuple[int, ...] = (WHOLE,)
    sharding: tuple[str, ...] = ("ddp",)
    recompute: tuple[Recompute, ...] = ("none",)

    @property
    def size(self) -> int:
        """Layouts per K."""
        return int(np.prod([len(getattr(self, f.name)) for f in fields(self)]))


def powers_of_two(most: float) -> tuple[int, ...]:
    """1, 2, 4 ... up to `most`.

    >>> powers_of_two(9)
    (1, 2, 4, 8)
    """
    return tuple(1 << i for i in range(max(1, int(most)).bit_length()))


def divides_layers(layers: ArrayLike, stages: ArrayLike) -> NDArray[np.bool_]:
    """Whether `layers` can be dealt evenly to `stages` (pp*vpp), first and last perhaps one short.

    >>> divides_layers(126, [7, 16, 32, 100]).tolist()
    [True, True, True, False]
    """
    total, count = np.asarray(layers, float), np.asarray(stages, float)
    missing = np.ceil(total / count) * count - total
    return np.asarray((missing <= np.where(count > 1, MISSING_LAYERS, 0)) & (count <= total))


def default_space(workload: Workload, machine: Machine, seq_len: int | None, k_most: int) -> Space:
    """What `layout: auto` searches: small, and wide enough to fit any zoo model on its usual hardware."""
    if workload.kind not in TRANSFORMER_KINDS or not workload.layers:
        whole = Space(micro_batch=(WHOLE, *powers_of_two(256)))
        if (workload.params or 0) < LARGE_PARAMS:
            return whole
        return replace(whole, sharding=("ddp", "zero1", "fsdp"), recompute=("none", "full"))
    heads = int(workload.heads or 1)
    layers = int(workload.layers)
    limit = min(int(machine.domain), 16, k_most)
    tp = tuple(t for t in powers_of_two(limit) if heads % t == 0)
    stages = np.arange(1, min(LARGEST_DEGREE, layers, k_most) + 1)
    pp = tuple(int(p) for p in stages[divides_layers(layers, stages)])
    small = (workload.params or 0) < 3e9
    if small:
        pp = (1,)
    tokens = int(seq_len or workload.seq_len or 512)
    experts = int(workload.experts or 0)
    return Space(
        tp=tp,
        pp=pp,
        cp=tuple(c for c in powers_of_two(min(tokens // 8192, 16)) if c <= k_most),
        ep=tuple(e for e in powers_of_two(min(experts, 64, k_most)) if experts % e == 0)
        if experts > 1
        else (1,),
        micro_batch=(1, 2, 4, 8, 16, 32) if not small else (1, 2, 4, 8, 16, 32, 64, 128, 256),
        sharding=("zero1", "fsdp"),
        recompute=("none", "full"),
    )


def narrowed(space: Space, layout: Layout, default_sharding: str) -> Space:
    """The part of the space that a given layout leaves open (its micro-batch, when not given)."""
    return replace(
        space,
        tp=(layout.tp,),
        pp=(layout.pp,),
        cp=(layout.cp,),
        ep=(layout.ep,),
        vpp=(layout.vpp,),
        micro_batch=_micro_batches(layout),
        sharding=(layout.sharding or default_sharding,),
        recompute=(layout.recompute,),
    )


def _micro_batches(layout: Layout) -> tuple[int, ...]:
    if layout.micro_batch:
        return (layout.micro_batch,)
    return (WHOLE,) if layout.accumulation else (WHOLE, *powers_of_two(256))


@dataclass(frozen=True)
class Candidates:
    """All layouts of a space at several K, and which of them are refused before any physics."""

    at: Layouts
    refusal: NDArray[np.int64]
    k_index: NDArray[np.int64]  # position of each candidate's K
    simplicity: Array  # ties go to the smaller


def candidates(
    space: Space,
    k: NDArray[np.float64],
    global_batch: NDArray[np.float64],
    workload: Workload,
    machine: Machine,
    *,
    seq_len: int | None = None,
    dp: int | None = None,
    accumulation: int | None = None,
    shard_group: int | None = None,
    sequence_parallel: float = 1.0,
    max_accelerators: float = np.inf,
    declared: Mapping[str, float] | None = None,
) -> Candidates:
    """The product of `space` with the values of `k`; `declared` holds values of `layouts.DECLARED`, the same for all."""
    sizes = [len(k), *(len(getattr(space, f.name)) for f in fields(space))]
    index = np.unravel_index(np.arange(int(np.prod(sizes)), dtype=np.int64), sizes)
    columns = {
        f.name: np.array(getattr(space, f.name))[index[i + 1]]
        for i, f in enumerate(fields(space))
        if f.name not in ("sharding", "recompute")
    }
    ki, sharding_index, recompute_index = index[0], index[-2], index[-1]
    k_, batch = k[ki], global_batch[ki]
    tp, pp, cp, ep, vpp = (columns[name].astype(float) for name in ("tp", "pp", "cp", "ep", "vpp"))
    model = tp * pp * cp
    replicas = np.maximum(np.floor(k_ / model), 1.0)
    share = batch / replicas
    # Samples are whole: the fullest replica sets the pace.
    fullest = np.ceil(share - 1e-9)
    asked = columns["micro_batch"].astype(float)
    if accumulation is None:
        micro = np.where(asked == WHOLE, fullest, asked)
        steps = np.ceil(fullest / micro - 1e-9)
    else:
        steps = np.full_like(share, float(accumulation))
        micro = np.ceil(fullest / steps - 1e-9)
    uneven = (micro * steps >= fullest + micro) | ((asked != WHOLE) & (asked != micro))
    is_cut = workload.kind in TRANSFORMER_KINDS and bool(workload.layers)
    heads = float(workload.heads or max(1, (workload.hidden or 64) // 64)) if is_cut else 0.0
    layers = float(workload.layers or 1)
    experts = float(workload.experts or 1)
    tokens = float(seq_len or workload.seq_len or 1)
    refusal = np.zeros(k_.shape, dtype=np.int64)
    checks: Sequence[tuple[Refusal, Any]] = (
        (Refusal.NODES, k_ > max_accelerators),
        (Refusal.EXPERTS, (ep > 1) & ((experts % ep > 0) | ((tp * cp * replicas) % ep > 0))),
        (Refusal.SEQUENCE, (cp > 1) & (tokens % cp > 0)),
        (Refusal.LAYERS, (pp > 1) & ~divides_layers(layers, pp * vpp)),
        (Refusal.HEADS, (tp > 1) & ((heads == 0) | (heads % tp > 0))),
        (Refusal.BATCH, uneven | (micro > fullest) | (share < 1.0 - 1e-9)),
        (Refusal.DIVISION, (k_ % model > 0) | (model > k_)),
        (Refusal.REPLICAS, np.full(k_.shape, dp is not None) & (k_ != model * float(dp or 1))),
    )
    for code, broken in checks:
        refusal = np.where(broken, int(code), refusal)
    codes = np.array([float(SHARDING_CODES[name]) for name in space.sharding])
    shares = np.array([recompute_share(said) for said in space.recompute])
    # A share of a pass repeats that share of attention, the word all of it: they differ even where the shares agree.
    selective = np.array([float(said == "selective") for said in space.recompute])
    at = layouts(
        np.where(refusal == Refusal.DIVISION, model * replicas, k_),
        global_batch=batch,
        accelerators_per_node=machine.node,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        vpp=vpp,
        accumulation=steps,
        sharding=codes[sharding_index],
        shard_group=None if shard_group is None else float(shard_group),
        recompute=shares[recompute_index],
        selective=selective[recompute_index],
        sequence_parallel=np.where(tp > 1, sequence_parallel, 0.0),
        declared=declared,
    )
    at = replace(at, micro_batch=np.minimum(micro, np.maximum(fullest, 1.0)), dp=replicas)
    simplicity = np.log2(tp) + np.log2(pp) + 1.1 * np.log2(cp) + 0.6 * np.log2(ep) + np.log2(vpp)
    simplicity = simplicity + 0.01 * sharding_index + 0.02 * recompute_index
    return Candidates(at, refusal, ki, simplicity)
