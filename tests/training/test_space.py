"""Which layouts can run, and what is said of those that cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.physics.machine import machine
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.layout import Layout
from perfmodel.training.space import (
    ORDER,
    PRECEDENCE,
    REASONS,
    WHOLE,
    Candidates,
    Refusal,
    Space,
    candidates,
    default_space,
    divides_layers,
    narrowed,
)

CATALOG = Catalog.default()
LLAMA = CATALOG.get("workloads", "llama3-8b")  # 32 layers, 32 heads
MIXTRAL = CATALOG.get("workloads", "mixtral-8x7b")  # 8 experts
RESNET = CATALOG.get("workloads", "resnet50")
H100 = machine(CATALOG.cluster("dgx-h100"), "bf16")


def found(space: Space, k: int, batch: int, workload=LLAMA, **more) -> Candidates:
    return candidates(space, np.array([float(k)]), np.array([float(batch)]), workload, H100, **more)


def refusal(space: Space, k: int, batch: int = 512, workload=LLAMA, **more) -> Refusal:
    made = found(space, k, batch, workload, **more)
    assert made.refusal.size == 1
    return Refusal(int(made.refusal[0]))


@pytest.mark.parametrize(
    ("space", "k", "batch", "workload", "why"),
    [
        (Space(), 8, 512, LLAMA, Refusal.NONE),
        (Space(tp=(3,)), 8, 512, LLAMA, Refusal.DIVISION),
        (Space(tp=(16,)), 8, 512, LLAMA, Refusal.DIVISION),
        (Space(tp=(3,)), 6, 512, LLAMA, Refusal.HEADS),
        (Space(tp=(2,)), 8, 512, RESNET, Refusal.HEADS),
        (Space(pp=(2,)), 8, 512, RESNET, Refusal.LAYERS),
        (Space(cp=(2,)), 8, 512, RESNET, Refusal.SEQUENCE),
        (Space(pp=(5,)), 10, 512, LLAMA, Refusal.LAYERS),
        (Space(pp=(64,)), 64, 512, LLAMA, Refusal.LAYERS),
        (Space(cp=(3,)), 6, 512, LLAMA, Refusal.SEQUENCE),
        (Space(ep=(3,)), 6, 512, MIXTRAL, Refusal.EXPERTS),
        (Space(micro_batch=(128,)), 8, 512, LLAMA, Refusal.BATCH),
        (Space(), 1024, 512, LLAMA, Refusal.BATCH),
    ],
)
def test_reason(space, k, batch, workload, why):
    assert refusal(space, k, batch, workload) == why


def test_a_cluster_that_is_too_small():
    assert refusal(Space(), 64, max_accelerators=32.0) == Refusal.NODES


def test_the_given_number_of_replicas_is_kept():
    assert refusal(Space(tp=(2,)), 16, dp=8) == Refusal.NONE
    assert refusal(Space(tp=(2,)), 32, dp=8) == Refusal.REPLICAS


def test_accumulation_and_micro_batch_must_agree():
    assert refusal(Space(micro_batch=(WHOLE,)), 8, 512, accumulation=16) == Refusal.NONE
    assert refusal(Space(micro_batch=(4,)), 8, 512, accumulation=16) == Refusal.NONE
    assert refusal(Space(micro_batch=(8,)), 8, 512, accumulation=16) == Refusal.BATCH
    assert refusal(Space(micro_batch=(WHOLE,)), 8, 8, accumulation=16) == Refusal.BATCH


@pytest.mark.parametrize("k", [3, 6, 12, 24, 96])
def test_the_fullest_replica_runs_whole_samples(k):
    made = found(Space(micro_batch=(WHOLE, 1, 2, 4)), k, 512)
    at = made.at
    good = made.refusal == Refusal.NONE
    assert good.any()
    share = 512 / k
    total = (at.micro_batch * at.accumulation)[good]
    assert np.all(total >= share)
    assert np.all(total - share < at.micro_batch[good] + 1)
    assert np.all(at.micro_batch[good] == np.round(at.micro_batch[good]))
    assert np.all(at.dp[good] == k)


def test_the_first_and_last_stage_may_hold_one_layer_less():
    # Llama 3 405B: 126 layers on 16 stages.
    assert divides_layers(126, 16)
    assert not divides_layers(125, 16)
    assert divides_layers(32, [1, 2, 4, 8, 16, 32]).all()
    assert not divides_layers(4, 8)


def test_every_refusal_has_words_and_a_place():
    assert set(REASONS) == set(Refusal) == set(ORDER)
    assert sorted(PRECEDENCE.tolist()) == list(range(len(Refusal)))
    assert all(REASONS[code] for code in Refusal if code != Refusal.NONE)


def test_a_given_layout_leaves_only_the_micro_batch_open():
    usual = default_space(LLAMA, H100, 8192, 1024)
    made = narrowed(usual, Layout(tp=2, sharding="fsdp", recompute="full"), "zero1")
    assert (made.tp, made.pp, made.sharding, made.recompute) == ((2,), (1,), ("fsdp",), ("full",))
    assert len(made.micro_batch) > 1
    fixed = narrowed(usual, Layout(micro_batch=2), "zero1")
    assert fixed.micro_batch == (2,)
    assert fixed.sharding == ("zero1",)
    assert fixed.size == 1


def test_the_usual_space_fits_the_workload():
    for workload in (LLAMA, MIXTRAL):
        made = default_space(workload, H100, 8192, 1024)
        assert all(workload.heads % tp == 0 for tp in made.tp)
        assert all(divides_layers(workload.layers, pp) for pp in made.pp)
        assert max(made.tp) <= 16
    assert default_space(MIXTRAL, H100, 8192, 1024).ep == (1, 2, 4, 8)
    assert default_space(LLAMA, H100, 8192, 1024).ep == (1,)
    assert default_space(RESNET, H100, None, 1024).tp == (1,)


def test_the_size_is_the_product():
    space = Space(tp=(1, 2), pp=(1, 2, 4), sharding=("ddp", "zero1"))
    assert space.size == 12
    assert replace(space, vpp=(1, 2)).size == 24
    assert found(space, 16, 64).refusal.size == 12
