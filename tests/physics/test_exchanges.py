"""What each kind of exchange sends, against counts by hand, and over which links it goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.physics.coefficients import textbook
from perfmodel.physics.examples import node, transformer
from perfmodel.physics.exchanges import (
    Links,
    context_parallel,
    data_parallel,
    expert_parallel,
    local_parameters,
    pipeline_message,
    pipeline_messages,
    tensor_parallel,
)
from perfmodel.physics.layouts import Layouts, Sharding, layouts

OPS = transformer()
NONE = np.zeros(())


class Counting(Links):
    """Links that write down what they are asked for, and take a second for each byte."""

    def time(self, op, message_bytes, ranks, stride, algorithm=NONE):
        calls.append((op, float(message_bytes), float(ranks), float(stride)))
        return np.asarray(message_bytes, dtype=float)


calls: list[tuple[str, float, float, float]] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    calls.clear()


def laid(k: float, **degrees) -> Layouts:
    return layouts(k, **{"global_batch": 64.0, "accelerators_per_node": 8.0, "micro_batch": 2, **degrees})


def links(at: Layouts) -> Links:
    return Counting(node(), at, textbook())


def test_a_pipeline_message_is_the_activations_of_a_rank() -> None:
    at = laid(32.0, pp=4, tp=2, cp=2)
    pipeline_message(OPS, at, links(at))
    # 2 sequences of 1,024 tokens of 1,024 elements of 2 bytes, cut by tp and cp; neighbours lie 8 apart.
    assert calls == [("p2p", 2 * 1024 * 1024 * 2 / 4, 2.0, 2 * 2 * 2)]


def test_messages_of_a_pipeline_grow_with_its_virtual_stages() -> None:
    at = laid(8.0, pp=2, vpp=3)
    assert float(pipeline_messages(at, np.asarray(4.0), np.asarray(0.25))) == 2 * 3 * 4.0 * 0.25
    assert float(pipeline_message(OPS, laid(8.0), links(laid(8.0)))) == 0.0
    assert calls == []


@pytest.mark.parametrize(("repeated", "times"), [(0.0, 4.0), (0.5, 5.0), (1.0, 6.0)])
def test_tensor_parallelism_sends_four_messages_a_layer_and_two_again(repeated: float, times: float) -> None:
    at = laid(32.0, tp=4, pp=2, cp=2)
    shown = tensor_parallel(OPS, at, links(at), np.asarray(repeated))
    message = 2 * 1024 * 1024 * 2 / 2
    assert calls == [("all_reduce", message, 4.0, 1.0)]
    assert float(shown) == pytest.approx(times * message * 2 / 2 * float(textbook().tp_exposed))


def test_calls_that_are_known_to_be_hidden_show_nothing() -> None:
    at = laid(8.0, tp=4, declared={"tp_hidden": 1.5})
    shown = tensor_parallel(OPS, at, links(at), NONE)
    assert float(shown) == pytest.approx((4.0 - 1.5) * 2 * 1024 * 1024 * 2 * 2)


def test_context_parallelism_gathers_keys_and_values() -> None:
    at = laid(32.0, tp=2, cp=4)
    shown = context_parallel(OPS, at, links(at), np.asarray(1.0))
    message = 2 * 1024 * float(OPS.kv_width) / 2 * 2
    assert calls == [("all_gather", message, 4.0, 2.0)]
    assert float(shown) == pytest.approx(2 * 4.0 * message * float(textbook().cp_exposed))


def test_key_value_heads_below_the_tensor_ranks_are_copied() -> None:
    few = replace(OPS, kv_heads=np.asarray(2.0), kv_width=np.asarray(256.0))
    at = laid(32.0, tp=8, cp=2)
    context_parallel(few, at, links(at), NONE)
    assert calls[0][1] == 2 * 1024 * 256 / 8 * 2 * 4  # four ranks hold the same head
    plain, _ = local_parameters(replace(few, kv_heads=np.asarray(8.0)), at)
    copied, _ = local_parameters(few, at)
    assert float(copied - plain) == pytest.approx(1024 * 256 * 2 * 3 / 8)


def test_experts_send_tokens_out_and_back() -> None:
    mixture = replace(
        OPS, moe_layers=np.asarray(2.0), top_k=np.asarray(2.0), routed_width=np.asarray(512.0),
        expert_params=np.asarray(8e6),
    )  # fmt: skip
    at = laid(32.0, ep=4)
    shown = expert_parallel(mixture, at, links(at), np.asarray(1.0))
    message = 2 * 1024 * 2 * 512 * 2
    assert [call[:3] for call in calls] == [("all_to_all", message, 4.0)]
    assert float(shown) == pytest.approx(6.0 * message * 2 * float(textbook().ep_exposed))
    calls.clear()
    inside = laid(32.0, ep=4, tp=2, etp=2)
    expert_parallel(mixture, inside, links(inside), NONE)
    assert [(op, size) for op, size, _, _ in calls] == [("all_to_all", message / 2), ("all_gather", message)]
    assert float(local_parameters(mixture, inside)[1]) == 8e6 / 8
    assert float(local_parameters(mixture, laid(32.0, ep=2, tp=4))[1]) == 8e6 / 4  # the larger of both cuts


def test_words_lie_on_the_two_ends_of_a_pipeline() -> None:
    whole, _ = local_parameters(OPS, laid(8.0))
    half, _ = local_parameters(OPS, laid(8.0, pp=2))
    assert float(whole) == float(OPS.block_params + OPS.embedding_params)
    assert float(half) == float(OPS.block_params + OPS.embedding_params) / 2


def sent(sharding: Sharding, **degrees):
    at = laid(16.0, sharding=float(sharding), **degrees)
    calls.clear()
    return data_parallel(OPS, at, links(at)), at


N = float(OPS.params)


def test_replicas_reduce_their_gradients_in_the_declared_type() -> None:
    found, _ = sent(Sharding.DDP)
    assert calls == [("all_reduce", 2 * N, 16.0, 1.0)]
    assert float(found.gradients) == 2 * N
    declared, _ = sent(Sharding.DDP, declared={"gradient_bytes": 4.0, "compression": 8.0})
    assert float(declared.gradients) == N / 2
    assert float(declared.gradient_bytes) == 4 * N


@pytest.mark.parametrize(("accumulation", "again"), [(1, 0.0), (2, 2 * N)])
def test_sharded_states_scatter_and_gather_and_zero2_does_so_in_every_micro_batch(
    accumulation: int, again: float
) -> None:
    given = {"micro_batch": 1, "accumulation": accumulation, "global_batch": 16.0 * accumulation}
    one, _ = sent(Sharding.ZERO1, **given)
    assert [(op, size) for op, size, _, _ in calls[-2:]] == [("reduce_scatter", 2 * N), ("all_gather", 2 * N)]
    assert float(one.gradients) == 4 * N
    assert float(one.repeated) == 0.0
    two, _ = sent(Sharding.ZERO2, **given)
    assert float(two.gradients) == 4 * N
    assert float(two.repeated) == again


def test_groups_of_shards_sum_up_with_each_other() -> None:
    found, _ = sent(Sharding.ZERO1, shard_group=4.0)
    assert ("all_reduce", 2 * N / 4, 4.0, 4.0) in calls
    assert float(found.gradients) == 4 * N + 2 * N / 4


def test_sharded_weights_are_gathered_twice_and_their_gradients_scattered_once_a_micro_batch() -> None:
    found, _ = sent(Sharding.FSDP)
    assert float(found.shards) == pytest.approx(3 * 2 * N)
    assert float(found.gradients) == 0.0
    layer = 2 * N / float(OPS.layers)
    assert [(op, size) for op, size, _, _ in calls if op != "all_reduce"] == [
        ("all_gather", layer), ("reduce_scatter", layer),
    ]  # fmt: skip


def test_one_replica_sends_nothing() -> None:
    at = laid(8.0, tp=8)
    assert float(data_parallel(OPS, at, links(at)).gradients) == 0.0
    assert calls == []


def test_context_ranks_share_the_gradients_of_a_replica() -> None:
    sent(Sharding.DDP, cp=2, tp=2)
    assert calls[0] == ("all_reduce", 2 * float(local_parameters(OPS, laid(16.0, tp=2))[0]), 8.0, 2.0)


def test_heads_enough_for_every_rank_are_not_copied() -> None:
    for tp in (1, 2, 8, 16):
        dense, _ = local_parameters(OPS, laid(16.0, tp=tp))
        assert float(dense) == pytest.approx(N / tp)


def test_a_parameter_server_moves_gradients_and_weights_over_every_host() -> None:
    c, machine = textbook(), node()
    moved, per_host = 4 * N, 4 * N * 8
    host = per_host / (float(machine.host_link_bytes_per_s) * 2 * float(c.server))
    one, _ = sent(Sharding.PARAMETER_SERVER)
    network = moved / 2 / (float(machine.out_bytes_per_s) * 8 * float(c.out_efficiency) * float(c.server))
    assert float(one.gradients) == pytest.approx(host + network + float(c.base_s))
    calls.clear()
    at = laid(8.0, sharding=float(Sharding.PARAMETER_SERVER))
    alone = data_parallel(OPS, at, links(at))
    assert float(alone.gradients) == pytest.approx(
        host + float(c.base_s)
    )  # one node: nothing crosses the network
