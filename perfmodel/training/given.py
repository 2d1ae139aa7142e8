"""What a given layout leaves open, filled in as runs mostly have it: one rule for predictions and for measured runs.

No time decides, so that the layout of a measured run does not depend on the beliefs that it is to test. The rule was
read off the 3,706 measured runs of transformers whose micro-batch and recomputation are known:

- nothing is recomputed where that fits in memory, else what frees the memory that lacks, whose cost is a belief
  (`physics.compute.repeated_share`). Of 224 runs that would not fit whole, by this count, and whose tables leave
  recomputation open, the scripts of those that lack less than half of the activations mostly repeat nothing to a tenth of
  a forward pass, of those that lack nine tenths mostly all of it;
- the micro-batch in a pipeline is one sample, elsewhere the largest that fits. Hiding the true one changes the predicted
  time by 3 % in pipelines and 4 % elsewhere, mean over families; the fastest would be 4.5 % too fast in pipelines;
- virtual stages stay a belief: guessing none makes Llama 3 405B on 16,384 accelerators 40 % too slow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.layouts import Layouts, chosen
from perfmodel.physics.memory import memory, room
from perfmodel.specs.workload import TRANSFORMER_KINDS
from perfmodel.training.rules import Refusal
from perfmodel.training.search import Search, search
from perfmodel.training.setup import Setup

Array = NDArray[np.float64]

# Share of its micro-batches that a step fills, from which an uneven last one is no objection (assumed).
FULL = 0.8
REPEATING, UNEVEN = (
    8.0,
    2.0,
)  # what weighs more than the size of a micro-batch, of which the largest weighs one
ENDLESS_BYTES = 1e18


def laid_out(setup: Setup, found: Search | None = None) -> tuple[Layouts, NDArray[np.int64]]:
    """The given layout of a set-up with what it leaves open, at each K, and its refusal there; `found` is its search."""
    found = found or search(setup)
    at, refusals = found.best(np.exp(preference(found.allowed)))
    if setup.layout is not None and setup.layout.interleaving_unsaid:
        at = replace(at, vpp=np.full_like(at.k, np.nan))
    return believed_recompute(setup, at), refusals


def believed_recompute(setup: Setup, at: Layouts) -> Layouts:
    """The layout with what it has to free of its activations where nobody states recomputation and not all fits without."""
    if setup.layout is None or setup.layout.recompute is not None:
        return at
    none = np.zeros_like(at.k)
    whole, bare = (
        memory(
            setup.operations,
            setup.machine,
            replace(at, recompute=share, selective=none),
            schedule=setup.schedule,
        ).total
        for share in (none, none + 1.0)
    )
    lacking = (whole - room(setup.machine, 0.0)) / np.maximum(whole - bare, 1.0)
    unsaid = at.recompute > 0.0
    return replace(
        at,
        recompute=np.where(unsaid, np.nan, at.recompute),
        freed=np.where(unsaid, np.clip(lacking, 0.0, 1.0), 1.0),
    )


def preference(at: Layouts) -> Array:
    """The less the more usual: what orders the ways to fill in a given layout."""
    full = at.global_batch >= FULL * at.dp * at.micro_batch * at.accumulation
    size = at.micro_batch / np.maximum(at.micro_batch.max(initial=1.0), 1.0)
    by_size = np.where(at.pp > 1.0, size, -size)
    return np.asarray(REPEATING * at.recompute + np.where(full, 0.0, UNEVEN) + by_size)


def as_run(setup: Setup) -> tuple[Layouts, NDArray[np.int64]]:
    """The layout of runs that took place, at each K, and why a prediction would refuse it there.

    Where it would, what the layout leaves open is filled in as if that rule did not hold; a transformer that fits in
    memory by no means is recomputed.
    """
    at, refusals = laid_out(setup)
    given = setup.layout
    if not refusals.any() or given is None:
        return at, refusals
    lean = given
    if setup.workload.kind in TRANSFORMER_KINDS and given.recompute is None:
        lean = given.model_copy(update={"recompute": "full"})
    device = setup.cluster.node.accelerator.model_copy(update={"memory": ENDLESS_BYTES})
    node = setup.cluster.node.model_copy(update={"accelerator": device})
    cluster = setup.cluster.model_copy(update={"node": node})
    roomy, still = laid_out(replace(setup, cluster=cluster, layout=lean))
    at = chosen(refusals == Refusal.MEMORY, roomy, at)
    share = at.global_batch / at.dp
    usual = np.ones_like(share) if given.pp > 1 else share
    micro = np.minimum(float(given.micro_batch) if given.micro_batch else usual, share)
    steps = np.full_like(share, float(given.accumulation)) if given.accumulation else share / micro
    as_stated = replace(at, micro_batch=share / steps, accumulation=steps)
    return chosen(still > 0, as_stated, at), refusals
