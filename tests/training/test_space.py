"""Which layouts can run, and what is said of those that cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.physics.machine import machine
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.layout import Layout
from perfmodel.training.rules import ORDER, PRECEDENCE, REASONS, Given, Refusal, divides_layers, shape_of
from perfmodel.training.space import Bounds, Enumerated, Space, enumerate_rows, stated_space, usual_space

CATALOG = Catalog.default()
LLAMA = CATALOG.get("workloads", "llama3-8b")  # 32 layers, 32 heads
MIXTRAL = CATALOG.get("workloads", "mixtral-8x7b")  # 8 experts
DEEPSEEK = CATALOG.get("workloads", "deepseek-v3")  # 61 layers, 256 experts
LLAMA_405B = CATALOG.get("workloads", "llama3-405b")  # 126 layers
RESNET = CATALOG.get("workloads", "resnet50")
H100 = machine(CATALOG.cluster("dgx-h100"), "bf16")


def found(space: Space, k: int, batch: int, workload=LLAMA, given=None, **more) -> Enumerated:
    shape = shape_of(workload, H100, None)
    return enumerate_rows(shape, [k], [batch], space=space, given=given, **more)


def refusal(space: Space, k: int, batch: int = 512, workload=LLAMA, **more) -> Refusal:
    made = found(space, k, batch, workload, **more)
    assert made.refusal.size == 1
    assert (made.refusal[0] == Refusal.NONE) == (len(made.rows) > 0)
    return Refusal(int(made.refusal[0]))


def stated(k: int, batch: int, workload, **layout) -> Refusal:
    space, given = stated_space(Layout(**layout), "zero1")
    return refusal(space, k, batch, workload, given=given)


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
        (Space(pp=(5,)), 10, 512, LLAMA, Refusal.NONE),
        (Space(pp=(64,)), 64, 512, LLAMA, Refusal.LAYERS),
        (Space(cp=(3,)), 6, 512, LLAMA, Refusal.SEQUENCE),
        (Space(ep=(3,)), 6, 512, MIXTRAL, Refusal.EXPERTS),
        (Space(pp=(8,), vpp=(5,)), 8, 512, LLAMA, Refusal.LAYERS),
        (Space(), 1024, 512, LLAMA, Refusal.BATCH),
    ],
)
def test_reason(space, k, batch, workload, why):
    assert refusal(space, k, batch, workload) == why


def test_a_cluster_that_is_too_small():
    assert refusal(Space(), 64, max_accelerators=32.0) == Refusal.NODES


def test_the_given_number_of_replicas_is_kept():
    assert stated(16, 512, LLAMA, tp=2, dp=8) == Refusal.NONE
    assert stated(32, 512, LLAMA, tp=2, dp=8) == Refusal.REPLICAS


def test_accumulation_and_micro_batch_must_agree():
    assert stated(8, 512, LLAMA, accumulation=16) == Refusal.NONE
    assert stated(8, 512, LLAMA, accumulation=16, micro_batch=4) == Refusal.NONE
    assert stated(8, 512, LLAMA, accumulation=16, micro_batch=8) == Refusal.MICRO_BATCHES
    assert stated(8, 8, LLAMA, accumulation=16) == Refusal.MICRO_BATCHES
    assert stated(8, 512, LLAMA, micro_batch=128) == Refusal.MICRO_BATCHES
    # Five samples as four and one.
    assert stated(8, 40, LLAMA, accumulation=2, micro_batch=4) == Refusal.NONE
    assert stated(8, 40, LLAMA, accumulation=3, micro_batch=4) == Refusal.MICRO_BATCHES


@pytest.mark.parametrize("k", [3, 6, 12, 24, 96, 192])
def test_the_fullest_replica_runs_whole_samples(k):
    rows = found(Space(), k, 512).rows
    assert len(rows) > 0
    share = 512 / k
    total = rows.micro_batch * rows.accumulation
    assert np.all(total >= share)
    assert np.all(total - share < rows.micro_batch + 1)
    assert np.all(rows.dp == k)


@pytest.mark.parametrize(
    ("workload", "k", "batch", "layout"),
    [
        # DeepSeek-V3 on 2,048 H800 (arXiv:2412.19437, section 3.2): 61 layers on 16 stages, experts over 8 nodes.
        (DEEPSEEK, 2048, 15360, {"pp": 16, "ep": 64, "sharding": "zero1"}),
        # Llama 3 405B on 16,384 H100 (arXiv:2407.21783, table 4), one layer to a virtual stage.
        (LLAMA_405B, 16384, 2048, {"tp": 8, "pp": 16, "vpp": 8}),
        (LLAMA_405B, 16384, 2048, {"tp": 8, "pp": 16, "vpp": 7}),
        (LLAMA_405B, 16384, 128, {"tp": 8, "cp": 16, "pp": 16, "micro_batch": 1}),
        # Experts that are cut apart from the rest, and more ranks than key-value heads.
        (MIXTRAL, 64, 256, {"tp": 4, "pp": 2, "ep": 4, "etp": 2}),
        (MIXTRAL, 64, 256, {"tp": 16, "ep": 8, "etp": 1}),
    ],
)
def test_layouts_that_ran_can_be_stated(workload, k, batch, layout):
    assert stated(k, batch, workload, **layout) == Refusal.NONE


def test_experts_need_ranks_to_lie_on():
    assert stated(16, 256, MIXTRAL, pp=4, ep=4, etp=2) == Refusal.EXPERTS
    assert refusal(Space(), 8, given=Given(etp=3), workload=MIXTRAL) == Refusal.EXPERTS


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
    made, given = stated_space(Layout(tp=2, sharding="fsdp", recompute="full"), "zero1")
    assert (made.tp, made.pp, made.sharding, made.recompute) == ((2,), (1,), ("fsdp",), ("full",))
    assert made.micro_batch is None
    assert given == Given()
    assert stated_space(Layout(), "zero1")[0].recompute == ("none", "full")
    fixed, given = stated_space(Layout(micro_batch=2), "zero1")
    assert len(found(fixed, 8, 512, given=given).rows) == 1
    assert fixed.sharding == ("zero1",)


def test_the_usual_space_fits_the_workload():
    for workload in (LLAMA, MIXTRAL):
        made = usual_space(shape_of(workload, H100, 8192), Bounds(), 1024)
        assert all(workload.heads % tp == 0 for tp in made.tp)
        assert all(divides_layers(workload.layers, pp) or pp & (pp - 1) == 0 for pp in made.pp)
        assert max(made.tp) <= 16
    assert usual_space(shape_of(MIXTRAL, H100, 8192), Bounds(), 1024).ep == (1, 2, 4, 8)
    assert usual_space(shape_of(LLAMA, H100, 8192), Bounds(), 1024).ep == (1,)
    assert usual_space(shape_of(RESNET, H100, None), Bounds(), 1024).tp == (1,)
    assert 16 in usual_space(shape_of(DEEPSEEK, H100, None), Bounds(), 1024).pp


def test_a_moved_edge_stays_where_nothing_fits():
    wide = Bounds(max_tp=4).widened()
    assert wide.max_tp == 4
    assert wide.max_pp > Bounds().max_pp
    assert replace(wide, max_tp=16).max_cp > Bounds().max_cp


@pytest.mark.parametrize(
    ("k", "degrees", "why"),
    [
        (
            16,
            {"ep": (8,), "tp": (8,), "cp": (1,)},
            Refusal.NONE,
        ),  # 8 tensor ranks and 2 replicas hold 8 experts
        (16, {"ep": (8,), "tp": (2,), "cp": (8,)}, Refusal.NONE),  # so do 2 and 8 context ranks
        (4, {"ep": (8,), "tp": (2,), "cp": (2,)}, Refusal.EXPERTS),
    ],
)
def test_experts_spread_over_tensor_and_context_ranks_and_replicas(k, degrees, why):
    assert refusal(Space(**degrees), k, 64, MIXTRAL) == why


def test_experts_of_a_search_are_cut_as_those_of_a_layout_that_states_nothing():
    """Tensor ranks beyond the expert ranks cut the experts, as Megatron does."""
    from perfmodel.beliefs.population import shipped_beliefs
    from perfmodel.training.curve import centre, choose
    from perfmodel.training.setup import Setup

    k = np.array([16.0])
    job = Setup(MIXTRAL, CATALOG.cluster("dgx-h100"), "bf16", k, np.array([64.0]), layout=Layout(tp=8, ep=1))
    at, _ = choose(job, centre(job, shipped_beliefs())[1])
    assert float(at.expert_ranks[0]) == 8.0


def test_a_search_tries_one_stage_up_to_as_many_as_there_are_accelerators():
    shape = shape_of(LLAMA, H100, None)
    for most in (1, 2, 8):
        space = usual_space(shape, Bounds(), most)
        assert min(space.pp) == 1
        assert max((*space.pp, *space.tp, *space.cp)) <= most
        assert space.tp[0] == 1
    assert {1, 2, 4, 8} <= set(usual_space(shape, Bounds(), 8).pp)


def test_heads_that_nobody_states_are_of_64_elements() -> None:
    """A network that is cut by nothing has one layer, no heads and one expert for the rules."""
    known = CATALOG.get("workloads", "llama3-8b")
    on = machine(CATALOG.cluster("dgx-h100"), "bf16")
    said = shape_of(known, on, None)
    assert (said.layers, said.heads, said.experts, said.seq_len) == (32, 32, 1, known.seq_len)
    assert (said.node, said.domain, said.is_transformer, said.is_large, said.is_small) == (
        8,
        8,
        True,
        True,
        False,
    )
    without = known.model_copy(update={"heads": None, "hidden": 1600, "params": 2_999_999_999})
    assert shape_of(without, on, 77).heads == 25
    assert shape_of(without, on, 77).seq_len == 77
    assert shape_of(without, on, None).is_small
    assert shape_of(known.model_copy(update={"heads": None, "hidden": 32}), on, None).heads == 1
    assert not shape_of(known.model_copy(update={"params": 999_999_999}), on, None).is_large
    other = shape_of(CATALOG.get("workloads", "resnet50"), on, None)
    assert (other.layers, other.heads, other.experts, other.is_transformer) == (1, 0, 1, False)
    assert shape_of(CATALOG.get("workloads", "mixtral-8x7b"), on, None).experts == 8
