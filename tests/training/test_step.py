"""The step model against closed forms and common sense; the laws are in tests/properties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.physics.coefficients import NAMES, from_logs, quiet, textbook
from perfmodel.physics.compute import ATTENTION_RAMP, micro_batch
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import Layouts, Sharding, layouts, pick
from perfmodel.physics.machine import machine, numbers
from perfmodel.physics.products import logit_rate
from perfmodel.physics.roofline import product_time
from perfmodel.specs.catalog import Catalog
from perfmodel.training.step import PARTS, interleaved, step

CATALOG = Catalog.default()


def ops_of(name, seq_len=None):
    return operations(CATALOG.get("workloads", name), seq_len)


def machine_of(name, precision="bf16"):
    return machine(CATALOG.cluster(name), precision)


LLAMA, RESNET, MIXTRAL = ops_of("llama3-8b"), ops_of("resnet50"), ops_of("mixtral-8x7b")
H100, A100 = machine_of("dgx-h100"), machine_of("dgx-a100")


def at(k, batch=512.0, **degrees) -> Layouts:
    return layouts(k, global_batch=batch, accelerators_per_node=8.0, **degrees)


def parts(ops, mach, layout, c=None):
    found = step(ops, mach, layout, c or textbook())
    shape = np.broadcast(found.time_s).shape
    return {name: np.broadcast_to(value, shape) for name, value in found.parts.items()}


def test_one_accelerator_talks_to_nobody():
    found = parts(LLAMA, H100, at(1.0, micro_batch=1))
    for name in ("tensor_parallel", "context_parallel", "expert_parallel", "pipeline_messages", "bubble",
                 "sharded_weights", "data_parallel", "straggler", "synchronisation"):  # fmt: skip
        assert found[name] == 0.0, name


def test_compute_is_flop_over_rate_on_an_ideal_machine():
    endless = replace(H100, memory_bytes_per_s=np.asarray(1e40))
    found = step(LLAMA, endless, at(1.0, batch=1.0), quiet())
    # Fused attention is charged three forward passes for its backward one, which computes 2.5.
    slots = float(LLAMA.training_flop() - 3.5 * LLAMA.attention_flop)
    short = 1.0 + 2.0 * ATTENTION_RAMP / float(LLAMA.tokens)
    ideal = (slots + 4.0 * short * float(LLAMA.attention_flop)) / float(H100.peak_flop_per_s)
    assert float(found.time_s) == pytest.approx(ideal, rel=1e-9)


def test_parts_switch_on_with_their_parallelism():
    for degrees, name in (
        ({"tp": 8}, "tensor_parallel"),
        ({"pp": 4}, "bubble"),
        ({"pp": 4}, "pipeline_messages"),
        ({"cp": 2}, "context_parallel"),
        ({"sharding": float(Sharding.FSDP)}, "sharded_weights"),
        ({}, "data_parallel"),
    ):
        found = parts(LLAMA, H100, at(64.0, micro_batch=1, **degrees))
        without = (
            parts(LLAMA, H100, at(64.0, micro_batch=1))
            if degrees
            else parts(LLAMA, H100, at(1.0, micro_batch=1))
        )
        assert found[name] > 0.0 == without[name], name
    routed = parts(MIXTRAL, H100, at(64.0, micro_batch=1, ep=8))
    assert routed["expert_parallel"] > 0.0


def test_a_latent_of_a_quarter_moves_a_quarter_to_the_experts():
    routed = [
        parts(
            replace(MIXTRAL, routed_width=MIXTRAL.hidden * share), H100, at(64.0, micro_batch=8, ep=8), ideal
        )
        for ideal in [replace(quiet(), ep_exposed=np.asarray(1.0))]
        for share in (1.0, 0.25)
    ]
    whole, quarter = (float(found["expert_parallel"]) for found in routed)
    assert quarter == pytest.approx(whole / 4, rel=0.03)


def test_an_odd_vocabulary_holds_up_fast_tensor_cores_only():
    """Element by element, 108 units of an A100 feed about 100 TFLOP/s: less than its 16-bit rate, more than tf32's."""
    odd = replace(LLAMA, logit_width=np.asarray(50257.0))
    last = {
        (name, precision): float(
            micro_batch(ops, machine_of("dgx-a100", precision), at(1.0, batch=1.0), textbook()).last
        )
        for name, ops in (("odd", odd), ("even", LLAMA))
        for precision in ("bf16", "fp32")
    }
    assert 1.5 < last["odd", "bf16"] / last["even", "bf16"] < 3.0
    assert last["odd", "fp32"] / last["even", "fp32"] == pytest.approx(1.0, rel=0.01)
    unknown = replace(A100, unit_hz=np.asarray(0.0))
    same = [float(micro_batch(ops, unknown, at(1.0, batch=1.0), textbook()).last) for ops in (odd, LLAMA)]
    assert same[0] == same[1] == last["even", "bf16"]


@pytest.mark.parametrize(
    ("vocab", "tp", "loaded"),
    [
        (50257, 1, 1),
        (30522, 1, 2),
        (50260, 1, 4),
        (50304, 1, 8),
        (50257, 2, 8),
        (50257, 4, 4),
        (50257, 8, 2),
        (0, 1, 8),
    ],
)
def test_a_load_takes_as_many_logits_as_divide_those_of_a_rank(vocab: int, tp: int, loaded: int) -> None:
    """vTrain's model gives each of tp ranks vocab // tp of 50,257 words: 25,128, 12,564 and 6,282."""
    ops = replace(LLAMA, logit_width=np.asarray(float(vocab)))
    layout = replace(at(float(tp), batch=1.0), tp=np.asarray(float(tp)))
    c = replace(textbook(), unaligned=np.asarray(1.0))  # so little that it is the whole limit
    free = A100.peak16_flop_per_s * c.matmul
    limit = free if loaded == 8 else loaded * A100.unit_hz
    assert float(logit_rate(ops, A100, layout, c)) == pytest.approx(float(limit), rel=1e-6)


@pytest.mark.parametrize(
    ("vocab", "is_left"), [(267735, True), (30522, False), (5124, False), (50304, False)]
)
def test_an_old_library_leaves_odd_logits_to_plain_cores(vocab, is_left):
    """DeepBench's products of 5,124 rows or depth 1,530, of which a load takes some, reach 97 TFLOP/s on a V100."""
    v100, a100 = (CATALOG.get("accelerators", name) for name in ("v100-sxm2-16gb", "a100-sxm4-80gb"))
    said = {
        "per_node": 8.0,
        "domain": 8.0,
        "scale_up": None,
        "network_bytes_per_s": 1e10,
        "network_latency_s": 1e-6,
    }
    old, new = (numbers(v100, "fp16", aligned_only=aligned, **said) for aligned in (True, False))
    ops = replace(LLAMA, logit_width=np.asarray(float(vocab)))
    then, now = (float(logit_rate(ops, one, at(1.0, batch=1.0), textbook())) for one in (old, new))
    plain = 15.7e12 * float(textbook().matmul)
    assert then == (pytest.approx(plain) if is_left else now)
    assert now > 3.0 * plain
    assert float(numbers(a100, "fp16", aligned_only=True, **said).plain_flop_per_s) == 0.0


def test_the_loss_moves_its_bytes_for_every_logit():
    lean, plain = (replace(textbook(), loss_bytes=np.asarray(float(b))) for b in (34, 52))
    layout = at(8.0, batch=8.0, tp=2)
    more = micro_batch(LLAMA, A100, layout, plain).last - micro_batch(LLAMA, A100, layout, lean).last
    samples = float(layout.micro_batch)
    bandwidth = float(A100.memory_bytes_per_s * textbook().memory)
    assert float(more) == pytest.approx(samples * 8192 * 128256 / 2 * 18 / bandwidth)


def test_recomputation_costs_a_third_more_at_most():
    none = parts(LLAMA, H100, at(8.0, micro_batch=1))["compute"]
    full = parts(LLAMA, H100, at(8.0, micro_batch=1, recompute=1.0))["compute"]
    assert 1.2 < full / none < 1.36


def test_a_share_of_the_layers_repeats_that_share_of_attention():
    """Selective recomputation repeats all of attention; a quarter of the layers, a quarter of everything."""

    def attention(share: float, selective: float = 0.0) -> float:
        where = at(8.0, micro_batch=1, recompute=share, selective=selective)
        return float(micro_batch(LLAMA, H100, where, quiet()).attention)

    whole = attention(1.0) - attention(0.0)
    assert attention(0.05, selective=1.0) - attention(0.0) == pytest.approx(whole)
    for share in (0.05, 0.25):
        assert attention(share) - attention(0.0) == pytest.approx(share * whole)


def test_a_longer_sequence_costs_more_than_in_proportion():
    one, two = (parts(ops_of("llama3-8b", n), H100, at(8.0, micro_batch=1))["compute"] for n in (8192, 16384))
    assert 2.0 < two / one < 4.0


def test_small_work_is_bound_by_the_host():
    c = textbook()
    small = parts(RESNET, A100, at(256.0, batch=256.0), c)
    large = parts(RESNET, A100, at(1.0, batch=256.0), c)
    assert small["host"] > 0.3 * small["compute"]
    assert large["host"] < 0.3 * large["compute"]


def test_crossing_the_node_costs_the_network():
    inside, across = (
        parts(LLAMA, A100, at(k, micro_batch=1), textbook())["data_parallel"] for k in (8.0, 16.0)
    )
    assert across > inside


def test_tensor_parallelism_across_nodes_is_dear():
    inside = parts(LLAMA, A100, at(16.0, micro_batch=1, tp=8))["tensor_parallel"]
    across = parts(LLAMA, A100, at(16.0, micro_batch=1, tp=16))["tensor_parallel"]
    assert across > 2.0 * inside


def test_interleaving_divides_the_bubble():
    plain, woven = (parts(LLAMA, H100, at(32.0, pp=4, vpp=v, micro_batch=1))["bubble"] for v in (1, 4))
    assert woven < 0.35 * plain


def test_jitter_waits_for_the_slowest():
    c = replace(textbook(), jitter=np.asarray(0.05))
    wait = parts(RESNET, A100, at(np.array([1.0, 8.0, 64.0, 512.0]), batch=4096.0), c)["straggler"]
    total = step(RESNET, A100, at(np.array([1.0, 8.0, 64.0, 512.0]), batch=4096.0), c).time_s
    share = wait / total
    assert share[0] == 0.0
    assert np.all(np.diff(share) > 0)
    assert 0.1 < share[-1] < 0.2  # E[max of 512 normals] is 3.0 standard deviations


def test_serial_time_is_paid_at_every_k():
    ops = replace(RESNET, serial_s=np.asarray(0.25))
    found = parts(ops, A100, at(np.array([1.0, 64.0]), batch=4096.0))
    assert found["serial"].tolist() == [0.25, 0.25]


def test_a_slow_loader_stalls_the_step():
    fast, slow = (
        parts(RESNET, A100, at(8.0, batch=4096.0), replace(textbook(), input_s=np.asarray(s)))["input_stall"]
        for s in (1e-9, 1e-2)
    )
    assert fast < 1e-6 < slow


def test_a_parameter_server_is_slower_than_a_ring():
    ring, server = (
        parts(RESNET, A100, at(64.0, batch=4096.0, sharding=float(kind)))["data_parallel"]
        for kind in (Sharding.DDP, Sharding.PARAMETER_SERVER)
    )
    assert server > ring


def test_draws_lead_the_shape():
    logs = np.log(np.array([float(getattr(textbook(), name)) for name in NAMES]))
    drawn = from_logs(np.repeat(logs[:, None, None], 7, axis=1))
    found = step(LLAMA, H100, at(np.array([8.0, 16.0, 32.0]), micro_batch=1), drawn)
    assert found.time_s.shape == (7, 3)
    assert np.allclose(found.time_s, found.time_s[0])


# Causal attention forward on an H100, head width 128, at 512 to 16,384 tokens [TFLOP/s]: Shah 2024, arXiv:2407.08608, fig. 5.
KERNELS = {
    "cuDNN": (315, 410, 484, 518, 529, 539),
    "FlashAttention-2": (191, 260, 298, 319, 333, 335),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_short_sequences_slow_attention_as_measured(kernel):
    lengths = (512, 1024, 2048, 4096, 8192, 16384)
    c = replace(quiet(), unfused=np.zeros(()))
    works = [ops_of("llama3-8b", length) for length in lengths]
    rate = np.array(
        [float(ops.attention_flop / micro_batch(ops, H100, at(1.0, batch=1.0), c).attention) for ops in works]
    )
    measured = np.array(KERNELS[kernel], float)
    assert np.abs((rate / rate[-1]) / (measured / measured[-1]) - 1.0).max() < 0.06


def test_part_full_waves_slow_small_products_most():
    """A batch cut in two leaves more than half the time, by the wave that each product loses."""
    c = replace(quiet(), tail=np.asarray(0.3))
    plain, slow = ({mb: float(micro_batch(LLAMA, H100, at(1.0, batch=mb), known).matmul) for mb in (1.0, 2.0)}
                   for known in (quiet(), c))  # fmt: skip
    added = {mb: slow[mb] - plain[mb] for mb in plain}
    assert 0.01 < added[1.0] / plain[1.0] < 0.1
    assert added[2.0] / plain[2.0] < added[1.0] / plain[1.0]
    # Products of the weights' gradient gain depth, the others width: the wave lost costs at most twice as much.
    assert added[1.0] < added[2.0] < 2.0 * added[1.0]
    unknown = replace(H100, units=np.asarray(0.0))
    assert float(micro_batch(LLAMA, unknown, at(1.0, batch=1.0), c).matmul) == plain[1.0]


def test_a_larger_product_never_takes_less():
    rows = np.logspace(0, 6, 400)
    time = product_time(rows, 4096, 4096, flop_per_s=3e14, bytes_per_s=1.6e12)
    assert np.all(np.diff(time) >= 0)
    # No steps: doubling the work never more than doubles the time.
    double = product_time(2 * rows, 4096, 4096, flop_per_s=3e14, bytes_per_s=1.6e12)
    assert np.all(double <= 2 * time * (1 + 1e-12))


def test_what_nobody_said_of_recomputation_is_a_belief():
    c = replace(textbook(), recompute=np.asarray(0.3))

    def repeated(freed: float) -> float:
        return float(
            micro_batch(LLAMA, H100, at(8.0, micro_batch=1, recompute=np.nan, freed=freed), c).repeated
        )

    assert repeated(0.5) == pytest.approx(0.3)
    assert (repeated(0.0), repeated(1.0)) == (0.0, 1.0)
    # Whoever lacks little repeats what is cheap: less than in proportion.
    assert repeated(0.25) < 0.25
    assert float(micro_batch(LLAMA, H100, at(8.0, micro_batch=1), c).repeated) == 0.0


def test_every_part_is_named_once():
    assert len(set(PARTS)) == len(PARTS)
    assert tuple(step(LLAMA, H100, at(8.0, micro_batch=1), textbook()).parts) == PARTS


def test_pick_takes_columns():
    many = at(np.array([8.0, 16.0, 32.0]), micro_batch=1, tp=2)
    one = pick(many, slice(1, 2))
    assert one.k.tolist() == [16.0]
    assert float(one.tp) == 2.0


def with_value(name, value):
    return replace(textbook(), **{name: np.asarray(value)})


def test_attention_without_a_fused_kernel_reads_and_writes_every_probability():
    long = ops_of("llama3-8b", 1024)
    layout = at(8.0, batch=8.0, micro_batch=1)
    fused = micro_batch(long, A100, layout, with_value("unfused", 0.0))
    unfused = micro_batch(long, A100, layout, with_value("unfused", 1.0))
    c = textbook()
    bandwidth = A100.memory_bytes_per_s * c.memory
    # A causal mask hides half of the arithmetic from a fused kernel only, which in turn computes scores again backward.
    flop_s = 2.0 * 3.0 * long.attention_flop / (A100.peak16_flop_per_s * c.matmul)
    product_s = (flop_s**4 + (12.0 * long.score_elements / bandwidth) ** 4) ** 0.25
    assert unfused.attention == pytest.approx(product_s + 20.0 * long.score_elements / bandwidth)
    assert unfused.matmul == fused.matmul


def test_scores_in_32_bit_move_twice_the_bytes_where_they_are_written_out():
    neo = ops_of("gpt-neo-125m")
    narrow = replace(neo, least_score_bytes=np.zeros(()))
    layout = at(1.0, batch=2.0)
    for share, ratio in ((0.0, 1.0), (1.0, 2.0)):
        # A peak so high that nothing but bytes counts; the fused kernel keeps its own.
        c = with_value("unfused", share)
        quick = replace(A100, peak16_flop_per_s=A100.peak16_flop_per_s * (1e9 if share else 1.0))
        wide, usual = (float(micro_batch(ops, quick, layout, c).attention) for ops in (neo, narrow))
        assert wide == pytest.approx(ratio * usual)
    fp32 = machine_of("dgx-a100", "fp32")
    assert micro_batch(neo, fp32, layout, c).attention == micro_batch(narrow, fp32, layout, c).attention


def test_products_of_unfused_attention_hide_their_arithmetic_behind_their_bytes():
    short = ops_of("gpt2-small", 1024)  # heads of 64: 64 FLOP per byte, half the ridge
    layout = at(8.0, batch=8.0, micro_batch=1)
    slow, fast = (
        micro_batch(short, A100, layout, replace(with_value("unfused", 1.0), attention=np.asarray(rate)))
        for rate in (0.3, 0.9)
    )
    assert slow.attention == fast.attention  # the rate of a fused kernel says nothing of library products
    bytes_s = 32.0 * short.score_elements / (A100.memory_bytes_per_s * textbook().memory)
    assert bytes_s <= slow.attention < 1.03 * bytes_s


def test_virtual_stages_that_nobody_stated_are_a_belief():
    degrees = {"tp": 4, "pp": 8, "micro_batch": 1}
    plain = parts(LLAMA, H100, at(64.0, vpp=1, **degrees), with_value("interleave", 1.0))["bubble"]
    deep = parts(LLAMA, H100, at(64.0, vpp=4, **degrees), with_value("interleave", 0.0))["bubble"]
    unsaid = at(64.0, vpp=np.nan, **degrees)
    assert parts(LLAMA, H100, unsaid, with_value("interleave", 0.0))["bubble"] == pytest.approx(plain)
    # 32 layers on 8 stages: four of a stage, as deep as layers allow.
    assert parts(LLAMA, H100, unsaid, with_value("interleave", 1.0))["bubble"] == pytest.approx(deep)


def test_stages_send_their_share_of_an_activation():
    c = with_value("base_s", 0.0)
    layout = {"pp": 2, "micro_batch": 4}
    one, eight = at(16.0, **layout), at(16.0, tp=8, **layout)
    whole = parts(LLAMA, H100, one, c)["pipeline_messages"] / one.accumulation
    cut = parts(LLAMA, H100, eight, c)["pipeline_messages"] / eight.accumulation
    assert whole / 8.0 < cut < whole / 4.0  # an eighth of the bytes, the same latency


def test_a_rack_of_scale_up_links_is_no_network_to_cross():
    rack = machine_of("p6e-gb200.36xlarge")
    assert rack.domain == 72.0
    assert rack.node == 4.0
    c = with_value("crossing", 0.5)
    inside = parts(LLAMA, rack, layouts(64.0, global_batch=512.0, accelerators_per_node=4.0), c)["contention"]
    inside_free = parts(
        LLAMA, rack, layouts(64.0, global_batch=512.0, accelerators_per_node=4.0), with_value("crossing", 0.0)
    )["contention"]
    assert inside == inside_free
    beyond = layouts(144.0, global_batch=576.0, accelerators_per_node=4.0)
    free = parts(LLAMA, rack, beyond, with_value("crossing", 0.0))["contention"]
    assert parts(LLAMA, rack, beyond, c)["contention"] > free


def test_states_sharded_in_a_node_cross_the_network_as_replicas_do():
    whole, copies, replicas = (
        at(4096.0, batch=4096.0, sharding=float(sharding), shard_group=group)
        for sharding, group in ((Sharding.ZERO1, None), (Sharding.ZERO1, 8.0), (Sharding.DDP, None))
    )
    one, node, none = (parts(ops_of("bert-large"), A100, layout) for layout in (whole, copies, replicas))
    # A ring of all ranks has 4,095 steps; in a node it has seven, and a tree joins the nodes.
    assert node["data_parallel"] < 0.7 * one["data_parallel"]
    assert none["data_parallel"] < node["data_parallel"] < 2.0 * none["data_parallel"]
    assert one["optimizer"] * 512 == pytest.approx(node["optimizer"]) == none["optimizer"] / 8


def test_a_shard_group_of_all_ranks_is_no_group():
    for sharding in (Sharding.ZERO1, Sharding.ZERO2, Sharding.FSDP):
        said = at(64.0, micro_batch=1, sharding=float(sharding), shard_group=64.0)
        unsaid = at(64.0, micro_batch=1, sharding=float(sharding))
        assert step(LLAMA, H100, said, textbook()).time_s == step(LLAMA, H100, unsaid, textbook()).time_s


@pytest.mark.parametrize(
    ("cluster", "precision", "factor"),
    [
        ("dgx-a100", "fp32", 1 - 0.992 * (1 - 16 / 36)),  # plain cores: Winograd
        ("dgx-a100", "tf32", 1.0),  # tensor cores multiply directly
        ("dgx-a100", "bf16", 1.0),
        ("tpu-v4-pod", "fp32", 1.0),  # no such library known
    ],
)
def test_3x3_convolutions_need_fewer_multiplications_in_32_bit(cluster, precision, factor):
    """A quiet machine without memory limits takes the time of the multiplications that are left."""
    ops = replace(ops_of("vgg16"), other_traffic=np.zeros(()))
    mach, one = machine_of(cluster, precision), at(1.0, batch=8.0)
    direct = float(ops.other_flop) * 3 * 8 / float(mach.peak_flop_per_s)
    assert float(micro_batch(ops, mach, one, quiet()).other) == pytest.approx(direct * factor)


def test_a_share_of_a_whole_run_carries_a_share_of_its_start():
    steady = step(LLAMA, H100, at(8.0), textbook())
    averaged = step(LLAMA, H100, at(8.0, declared={"run_steps": 20.0}), textbook())
    assert float(steady.parts["serial"]) == 0.0
    assert float(averaged.time_s - steady.time_s) == pytest.approx(float(textbook().start_s) / 20.0)


@pytest.mark.parametrize(
    ("recompute", "hidden", "calls"), [(0.0, 0.0, 4.0), (0.0, 2.0, 2.0), (1.0, 2.0, 4.0)]
)
def test_tensor_parallel_calls_that_are_known_to_hide_do_not_show(recompute, hidden, calls):
    """Of two forward and two backward, and two more where the forward pass is repeated, all others wait."""
    c = replace(textbook(), tp_exposed=np.asarray(0.25))
    believed = parts(LLAMA, H100, at(8.0, tp=8), c)["tensor_parallel"]
    stated = parts(LLAMA, H100, at(8.0, tp=8, recompute=recompute, declared={"tp_hidden": hidden}), c)[
        "tensor_parallel"
    ]
    assert float(stated) == pytest.approx(float(believed) * calls)


@pytest.mark.parametrize(
    "declared",
    [{"loader_bytes_per_s": 1e7}, {"storage_bytes_per_s": 1e8}, {"loader_bytes_per_s": 1e7, "storage_bytes_per_s": 3e7}],
)  # fmt: skip
def test_a_declared_rate_of_the_input_bounds_the_step_by_itself(declared):
    """Every host loads its own share; storage is one for all."""
    layout = at(16.0, batch=2048.0, declared=declared)
    total = float(RESNET.input_bytes) * 2048.0
    slowest = max(
        total / 2 / declared.get("loader_bytes_per_s", np.inf),
        total / declared.get("storage_bytes_per_s", np.inf),
    )
    found = step(RESNET, A100, layout, textbook())
    without = step(RESNET, A100, at(16.0, batch=2048.0), textbook())
    assert slowest > 20 * float(without.time_s)
    assert float(found.time_s) == pytest.approx(slowest, rel=0.01)


@pytest.mark.parametrize(("belief", "stages"), [(0.0, 1.0), (0.5, 8.0**0.5), (1.0, 8.0), (1.4, 8.0)])
def test_believed_virtual_stages_are_a_power_of_the_layers_of_a_stage(belief, stages):
    """32 layers on 4 stages: 8 layers each, and never more virtual stages than layers."""
    c = replace(textbook(), interleave=np.asarray(belief))
    found = interleaved(LLAMA, at(64.0, pp=4, vpp=np.array([np.nan, 2.0])), c)
    assert found.vpp.tolist() == pytest.approx([stages, 2.0])
