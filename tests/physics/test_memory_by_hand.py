"""Bytes of a device counted by hand for one small model under every sharding, on both ends of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfmodel.physics.counting import operations
from perfmodel.physics.examples import node
from perfmodel.physics.layouts import Sharding, layouts
from perfmodel.physics.memory import FRAGMENTED, RESERVED_RANGE, Memory, memory
from perfmodel.physics.operations import Operations
from perfmodel.physics.state_bytes import RESERVED_BYTES
from perfmodel.specs.workload import Workload

S, H, A, F, V, L, W, E, TOP = 128, 256, 8, 1024, 4000, 10, 96, 16, 2
ATTENTION, DENSE, ROUTED = 4 * H * H, 2 * H * F, 2 * H * W
#: Ten layers, the first two without experts; words of their own on either end.
OPS: Operations = operations(
    Workload(
        name="x", kind="moe-transformer", layers=L, hidden=H, heads=A, ffn=F, vocab=V, seq_len=S, experts=E, top_k=TOP,
        moe_ffn=W, first_dense_layers=2, tied_embeddings=False,
    )
)  # fmt: skip
BLOCKS = L * ATTENTION + 2 * DENSE + (L - 2) * H * E
EXPERTS = (L - 2) * E * ROUTED
KEPT_HIDDEN = S * L * 5 * H
KEPT_INNER = S * (L * 4 * H + 2 * 2 * F + (L - 2) * TOP * (2 * H + 2 * W))
WIDEST = S * max(2 * F, TOP * (2 * H + 2 * W))
#: Of each shape that most layers have: attention, router and one expert of each matrix.
LAYER = ATTENTION + H * E + ROUTED


def held(k: float = 64.0, batch: float = 256.0, schedule: str | None = None, **more: Any) -> Memory:
    at = layouts(k, global_batch=batch, accelerators_per_node=8.0, **{"micro_batch": 2, **more})
    return memory(OPS, node(), at, schedule=schedule)


def parts(found: Memory) -> dict[str, float]:
    return {name: float(value) for name, value in found.parts.items()}


def test_a_replica_holds_all_states_and_what_its_passes_keep() -> None:
    found = parts(held())
    params = BLOCKS + EXPERTS + 2 * H * V
    assert float(OPS.params) == params
    assert found == pytest.approx({
        "weights": 2 * params, "gradients": 2 * params, "optimizer": 12 * params,
        "activations": 2 * 2 * (KEPT_HIDDEN + KEPT_INNER), "logits": 2 * S * V * 6,
        "buffers": 2 * WIDEST * 2 + LAYER * 2, "reserved": RESERVED_BYTES,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("sharding", "weights", "gradients", "optimizer"),
    [
        (Sharding.ZERO1, 1, 1, 64),
        (Sharding.ZERO2, 1, 64, 64),
        (Sharding.FSDP, 64, 64, 64),
        (Sharding.PARAMETER_SERVER, 1, 1, 1),
    ],
)
def test_states_are_cut_over_the_replicas(
    sharding: Sharding, weights: int, gradients: int, optimizer: int
) -> None:
    found, params = parts(held(sharding=sharding)), BLOCKS + EXPERTS + 2 * H * V
    assert found["weights"] == pytest.approx(2 * params / weights)
    assert found["gradients"] == pytest.approx(2 * params / gradients)
    assert found["optimizer"] == pytest.approx(12 * params / optimizer)
    if sharding == Sharding.FSDP:
        # Two layers whole at once, and the gradient of one in 32 bit.
        layer = (BLOCKS + EXPERTS) / L
        assert found["buffers"] == pytest.approx(2 * WIDEST * 2 + LAYER * 2 + layer * (2 * 2 + 4))


def test_shards_of_a_group_are_as_large_as_the_group_is_small() -> None:
    params = BLOCKS + EXPERTS + 2 * H * V
    found = parts(held(sharding=Sharding.HSDP, shard_group=8.0))
    experts = EXPERTS / 64  # its copies are cut over all ranks that hold them
    assert found["weights"] == pytest.approx(2 * ((params - EXPERTS) / 8 + experts))
    assert found["optimizer"] == pytest.approx(12 * ((params - EXPERTS) / 8 + experts))


def test_tensor_ranks_cut_products_and_with_sequences_norms_too() -> None:
    cut, whole = (parts(held(tp=4, sequence_parallel=flag)) for flag in (1.0, 0.0))
    assert cut["activations"] == pytest.approx(4 * (KEPT_HIDDEN + KEPT_INNER) / 4)
    assert whole["activations"] == pytest.approx(4 * (KEPT_HIDDEN + KEPT_INNER / 4))
    for found in (cut, whole):
        assert found["weights"] == pytest.approx(2 * (BLOCKS + EXPERTS + 2 * H * V) / 4)
        assert found["logits"] == pytest.approx(2 * S * V * 6 / 4)
        assert found["buffers"] == pytest.approx((2 * WIDEST * 2 + LAYER * 2) / 4)


def test_context_ranks_cut_samples_and_expert_ranks_experts() -> None:
    found = parts(held(cp=4, ep=8))
    assert found["activations"] == pytest.approx(4 * (KEPT_HIDDEN + KEPT_INNER) / 4)
    assert found["logits"] == pytest.approx(2 * S * V * 6 / 4)
    assert found["weights"] == pytest.approx(2 * (BLOCKS + 2 * H * V + EXPERTS / 8))


@pytest.mark.parametrize(("recompute", "selective"), [(1.0, 0.0), (0.25, 0.0), (np.nan, 0.0), (0.05, 1.0)])
def test_full_recomputation_keeps_inputs_of_layers_and_unfolds_one(
    recompute: float, selective: float
) -> None:
    found = parts(held(recompute=recompute, selective=selective))
    share = 0.0 if selective else 1.0 if np.isnan(recompute) else recompute
    kept = KEPT_HIDDEN + KEPT_INNER
    # The loss and its logits, which are larger here, are gone before the first layer is unfolded.
    after_the_loss = max(4 * share * kept / L - 2 * S * V * 6, 0.0)
    expected = 4 * ((1.0 - share) * kept + share * (S * H * L)) + after_the_loss
    assert found["activations"] == pytest.approx(expected)
    assert found["logits"] == pytest.approx(2 * S * V * 6)


@pytest.mark.parametrize("schedule", [None, "gpipe"])
def test_the_fuller_end_of_a_pipeline(schedule: str | None) -> None:
    """Ten layers on four stages: two of the first, three, three and two; no experts in the first two."""
    found = parts(held(batch=1024.0, pp=4, schedule=schedule))
    micro_batches = 1024 / 16 / 2
    blocks, words = BLOCKS * 2 / L, H * V
    first = 4 * (KEPT_HIDDEN + KEPT_INNER) * 2 / L * (4 if schedule is None else micro_batches)
    last = 4 * (KEPT_HIDDEN + KEPT_INNER) * 2 / L * (1 if schedule is None else micro_batches)
    states = {"first": 16 * (blocks + words), "last": 16 * (blocks + words + EXPERTS / 4)}
    whole = {"first": states["first"] + first, "last": states["last"] + last + 2 * S * V * 6}
    end = max(whole, key=lambda name: whole[name])
    assert found["activations"] == pytest.approx(first if end == "first" else last)
    assert found["weights"] == pytest.approx(states[end] / 8)
    assert found["logits"] == (0.0 if end == "first" else pytest.approx(2 * S * V * 6))


def test_weights_of_a_sharded_pipeline_stay_whole_for_the_step() -> None:
    found = parts(held(pp=2, sharding=Sharding.FSDP, batch=64.0))
    dense = BLOCKS / 2 + H * V
    experts = EXPERTS * 5 / 8 / 32  # of the last five layers, cut over the copies of the stage
    assert found["weights"] == pytest.approx(2 * (dense + experts))
    assert found["gradients"] == pytest.approx(4 * dense + 2 * experts)  # summed up whole in 32 bit
    assert found["optimizer"] == pytest.approx(12 * (dense / 32 + experts))


def test_the_host_takes_what_is_offloaded() -> None:
    plain = parts(held())
    for name, part, left in (
        ("offloaded_optimizer", "optimizer", 0.0),
        ("offloaded_parameters", "weights", 0.0),
    ):
        assert parts(held(declared={name: 1.0}))[part] == left
        assert parts(held(declared={name: 0.25}))[part] == pytest.approx(0.75 * plain[part])
    inputs = parts(held(recompute=1.0, declared={"offloaded_activations": 1.0}))["activations"]
    assert inputs == pytest.approx(max(4 * (KEPT_HIDDEN + KEPT_INNER) / L - 2 * S * V * 6, 0.0), abs=1e-6)


def test_what_may_not_be_there() -> None:
    found = held(
        declared={"open_gradient": 0.5, "logit_bytes": 14.0, "kept_factor": 1.25, "held_gradient_bytes": 4.0}
    )
    told = parts(found)
    assert told["gradients"] == pytest.approx(4 * (BLOCKS + EXPERTS + 2 * H * V))
    doubt = (
        told["activations"] * (1 - 1 / 1.25) + told["logits"] * (1 - 4 / 14) + told["gradients"] * 0.5 + told["buffers"]
        + RESERVED_BYTES - RESERVED_RANGE[0]
    )  # fmt: skip
    total = sum(told.values())
    assert float(found.total) == pytest.approx(total)
    assert float(found.low) == pytest.approx(total - doubt)
    assert float(found.allocated) == pytest.approx(total - RESERVED_BYTES)
    assert float(found.high) == pytest.approx((total - RESERVED_BYTES) * FRAGMENTED + RESERVED_RANGE[1])
    half = held(selective=1.0)
    gone = float(half.total - half.low) - float(held().total - held().low)
    assert gone == pytest.approx(0.5 * parts(half)["activations"])
    narrow = held(declared={"logit_bytes": 2.0})
    assert float(narrow.total - narrow.low) < float(narrow.total)


def test_tables_of_a_recommender_are_spread_and_its_activations_kept_by_the_layer() -> None:
    ops = operations(
        Workload(
            name="r", kind="recommendation", params=10**9, embedding_table_params=990_000_000, flop_per_sample=3e6,
            bytes_per_sample=3e5, activation_elements_per_sample=5000,
        )
    )  # fmt: skip
    at = layouts(16.0, global_batch=16 * 512.0, accelerators_per_node=8.0, micro_batch=512)
    found = parts(memory(ops, node(), at))
    assert found["weights"] == pytest.approx(2 * (1e7 + 9.9e8 / 16))
    assert found["activations"] == pytest.approx(512 * 5000 * 2.2 * 2)
    again = layouts(16.0, global_batch=16 * 512.0, accelerators_per_node=8.0, micro_batch=512, recompute=1.0)
    assert parts(memory(ops, node(), again))["activations"] == pytest.approx(512 * 5000 * 2.2 * 2 * 0.2)
