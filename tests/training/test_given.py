"""What a stated layout leaves open, as runs mostly have it."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics.layouts import layouts
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.layout import Layout
from perfmodel.training.given import as_run, laid_out, preference
from perfmodel.training.rules import Refusal
from perfmodel.training.setup import Setup

CATALOG = Catalog.default()


def setup(workload="llama3-8b", cluster="dgx-h100", k=(8, 16), batch=512.0, **more) -> Setup:
    ks = np.array(k, dtype=float)
    return Setup(
        CATALOG.get("workloads", workload),
        CATALOG.cluster(cluster),
        "bf16",
        ks,
        np.full(ks.shape, batch),
        **more,
    )


def test_the_usual_way_repeats_nothing_and_fills_every_micro_batch() -> None:
    at = layouts(
        8.0, global_batch=64.0, accelerators_per_node=8.0,
        micro_batch=np.array([8.0, 8.0, 4.0, 16.0]), accumulation=np.array([1.0, 1.0, 2.0, 1.0]),
        recompute=np.array([0.0, 1.0, 0.0, 0.0]),
    )  # fmt: skip
    order = preference(at)
    assert order[1] > order[0]  # recomputation
    assert order[2] > order[0]  # a smaller micro-batch, outside a pipeline
    assert order[3] > order[0]  # 16 samples where a replica has 8: half of it is empty
    staged = preference(
        layouts(8.0, global_batch=64.0, accelerators_per_node=8.0, pp=2, micro_batch=np.array([1.0, 4.0]))
    )
    assert staged[0] < staged[1]  # in a pipeline the least micro-batch


def test_a_layout_that_fits_is_filled_in_as_it_is() -> None:
    job = setup(layout=Layout(tp=2, pp=2, sharding="zero1"))
    at, refusals = as_run(job)
    assert refusals.tolist() == [Refusal.NONE, Refusal.NONE]
    plain, _ = laid_out(job)
    assert at.micro_batch.tolist() == plain.micro_batch.tolist() == [1.0, 1.0]
    assert np.isnan(at.vpp).all()  # nobody stated virtual stages: a belief


def test_without_a_layout_the_search_decides() -> None:
    job = setup(k=(1, 8))
    at, refusals = as_run(job)
    assert refusals.tolist() == [Refusal.MEMORY, Refusal.NONE]
    assert at.k.tolist() == [1.0, 8.0]


@pytest.mark.parametrize(("recompute", "repeated"), [(None, 1.0), ("none", 0.0)])
def test_a_run_that_would_not_fit_took_place_all_the_same(recompute: str | None, repeated: float) -> None:
    """It is recomputed where it does not say otherwise, and keeps its refusal."""
    job = setup(k=(8,), layout=Layout(sharding="ddp", micro_batch=8, recompute=recompute))
    at, refusals = as_run(job)
    assert refusals.tolist() == [Refusal.MEMORY]
    assert float(at.micro_batch[0]) == 8.0
    assert float(at.recompute[0]) == repeated
