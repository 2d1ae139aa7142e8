"""What follows from the degrees of a layout: replicas, accumulation, ranks of experts, buckets."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics.layouts import layouts


def laid(k: float = 64.0, batch: float = 256.0, **degrees):
    return layouts(k, global_batch=batch, accelerators_per_node=8.0, **degrees)


def test_replicas_are_what_the_other_degrees_leave() -> None:
    assert float(laid(tp=2, pp=4, cp=2).dp) == 64 / 16
    assert float(laid(tp=2, dp=3).dp) == 3.0
    assert laid(np.array([8.0, 64.0])).dp.tolist() == [8.0, 64.0]


@pytest.mark.parametrize(
    ("given", "micro", "steps"),
    [({}, 16.0, 1.0), ({"micro_batch": 4}, 4.0, 4.0), ({"accumulation": 8}, 2.0, 8.0)],
)
def test_micro_batch_and_accumulation_make_the_batch_of_a_replica(
    given: dict, micro: float, steps: float
) -> None:
    at = laid(tp=4, **given)
    assert (float(at.micro_batch), float(at.accumulation)) == (micro, steps)
    assert float(at.micro_batch * at.accumulation * at.dp) == 256.0


def test_nodes_hold_no_more_accelerators_than_the_job_has() -> None:
    assert float(laid(4.0).per_node) == 4.0
    assert float(laid(64.0).per_node) == 8.0


def test_experts_are_cut_by_the_larger_degree_unless_they_have_one_of_their_own() -> None:
    assert float(laid(tp=8, ep=2).expert_ranks) == 8.0
    assert float(laid(tp=2, ep=8).expert_ranks) == 8.0
    assert float(laid(tp=8, ep=2, etp=2).expert_ranks) == 4.0
    assert float(laid(tp=8, ep=2, etp=1).expert_ranks) == 2.0
