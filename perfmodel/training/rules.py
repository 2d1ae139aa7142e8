"""What makes a layout impossible: one set of rules for layouts that are stated and for those that are searched."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import TRANSFORMER_KINDS
from perfmodel.specs.layout import MISSING_LAYERS
from perfmodel.specs.workload import Workload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
    MICRO_BATCHES = 10


REASONS: dict[Refusal, str] = {
    Refusal.NONE: "",
    Refusal.DIVISION: "K is not a multiple of tp*pp*cp",
    Refusal.BATCH: "the global batch is too small for the replicas",
    Refusal.HEADS: "tp does not divide the attention heads (a network without any cannot be cut by tp)",
    Refusal.LAYERS: "pp*vpp exceeds the layers",
    Refusal.EXPERTS: "ep does not divide the experts, or ep*etp not the ranks of a stage",
    Refusal.SEQUENCE: "cp does not divide the sequence",
    Refusal.NODES: "the cluster has fewer accelerators",
    Refusal.MEMORY: "does not fit in memory",
    Refusal.REPLICAS: "the layout's dp*tp*pp*cp is another number of accelerators",
    Refusal.MICRO_BATCHES: "micro_batch x accumulation does not make up the share of the batch that a replica has",
}


# A layout states the last of these that it breaks; it keeps all that follow. The reason shown at a K is therefore the
# earliest stated by any layout tried there: the others could be mended by a choice that was left open.
ORDER: tuple[Refusal, ...] = (
    Refusal.NONE,
    Refusal.MEMORY,
    Refusal.NODES,
    Refusal.EXPERTS,
    Refusal.SEQUENCE,
    Refusal.LAYERS,
    Refusal.HEADS,
    Refusal.MICRO_BATCHES,
    Refusal.BATCH,
    Refusal.DIVISION,
    Refusal.REPLICAS,
)
PRECEDENCE: Ints = np.array([ORDER.index(code) for code in Refusal])


@dataclass(frozen=True)
class Shape:
    """What the rules and the choices need to know of a job and its machine."""

    layers: int
    heads: int  # 0: nothing that tensor parallelism could cut
    experts: int
    seq_len: int
    is_transformer: (
        bool  # whether its matrix products are known, so that more than data parallelism is searched
    )
    node: int
    domain: int
    is_large: bool = True  # whether its states are worth sharding where nothing else cuts the network
    is_small: bool = False  # too small for a pipeline to be usual


# Parameters: from here on states are worth sharding in networks that are cut by nothing else.
LARGE_PARAMS = 1e9
# Below, a transformer is searched with a pipeline only where nothing else fits (assumed: such models are not pipelined).
SMALL_PARAMS = 3e9


def shape_of(workload: Workload, machine: Machine, seq_len: int | None) -> Shape:
    """The shape of a workload on a machine."""
    is_cut = workload.kind in TRANSFORMER_KINDS and bool(workload.layers)
    return Shape(
        layers=int(workload.layers or 1) if is_cut else 1,
        heads=int(workload.heads or max(1, (workload.hidden or 64) // 64)) if is_cut else 0,
        experts=int(workload.experts or 1) if is_cut else 1,
        seq_len=int(seq_len or workload.seq_len or 1),
        is_transformer=is_cut and workload.is_counted,
        node=int(machine.node),
        domain=int(machine.domain),
        is_large=float(workload.params or 0) >= LARGE_PARAMS,
        is_small=0.0 < float(workload.params or 0) < SMALL_PARAMS,
    )


def divides_layers(layers: ArrayLike, stages: ArrayLike) -> NDArray[np.bool_]:
    """Whether `layers` can be dealt evenly to `stages` (pp*vpp), first and last perhaps one short.

    >>> divides_layers(126, [7, 16, 32, 100]).tolist()
    [True, True, True, False]
    """
    total, count = np.asarray(layers, float), np.asarray(stages, float)
    missing = np.ceil(total / count) * count - total
    return np.asarray((missing <= np.where(count > 1, MISSING_LAYERS, 0)) & (count <= total + MISSING_LAYERS))


@dataclass(frozen=True)
class Given:
    """What a stated layout fixes beside the values that a search would try; None: left open."""

    dp: int | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    etp: int | None = None


def refusals(
    shape: Shape,
    k: Ints,
    batch: Floats,
    tp: Ints,
    pp: Ints,
    cp: Ints,
    ep: Ints,
    vpp: Ints | int = 1,
    given: Given | None = None,
    max_accelerators: float = np.inf,
) -> Ints:
    """The refusal of each combination of degrees, memory aside.

    Samples are whole and the fullest replica sets the pace, so that replicas need not get equal shares; stages may
    hold unequal numbers of layers, which the step model charges for.
    """
    fixed = given or Given()
    model = tp * pp * cp
    replicas = np.maximum(k // model, 1)
    share = batch / replicas
    experts_cut = ep * fixed.etp if fixed.etp else ep
    is_spread = (ep > 1) | (experts_cut > 1)
    stages = pp * vpp
    checks: tuple[tuple[Refusal, NDArray[np.bool_]], ...] = (
        (Refusal.NODES, k > max_accelerators),
        (
            Refusal.EXPERTS,
            is_spread & ((shape.experts % ep > 0) | ((tp * cp * replicas) % experts_cut > 0)),
        ),
        (Refusal.SEQUENCE, (cp > 1) & (shape.seq_len % cp > 0)),
        (
            Refusal.LAYERS,
            (pp > 1)
            & ((pp > shape.layers) | (stages > shape.layers + np.where(stages > pp, MISSING_LAYERS, 0))),
        ),
        (Refusal.HEADS, (tp > 1) & ((shape.heads == 0) | (shape.heads % tp > 0))),
        (Refusal.MICRO_BATCHES, ~_adds_up(fullest(share), fixed)),
        (Refusal.BATCH, share < 1.0 - 1e-9),
        (Refusal.DIVISION, k % model > 0),
        (Refusal.REPLICAS, np.full(k.shape, fixed.dp is not None) & (k != model * (fixed.dp or 1))),
    )
    code = np.zeros(k.shape, dtype=np.int64)
    for refusal, broken in checks:
        code = np.where(broken, int(refusal), code)
    return code


def fullest(share: Floats) -> Ints:
    """Samples of the fullest replica, from the mean share.

    >>> fullest(np.array([2.0, 2.67])).tolist()
    [2, 3]
    """
    return np.ceil(share - 1e-9).astype(np.int64)


def _adds_up(most: Ints, given: Given) -> NDArray[np.bool_]:
    """Whether micro-batches and their number make `most` samples, the last of them perhaps not full."""
    if given.accumulation is None:
        return np.asarray(most >= (given.micro_batch or 1))
    micro = given.micro_batch or -(-most // given.accumulation)
    return np.asarray((micro * given.accumulation >= most) & (micro * (given.accumulation - 1) < most))
