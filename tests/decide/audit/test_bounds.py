"""Physical bounds: nothing honest is refused, everything beyond is, with the arithmetic in the evidence."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide.audit import bounds
from perfmodel.decide.audit.bounds import exchange_bytes, state_bytes
from perfmodel.decide.audit.normalise import Series, series
from perfmodel.decide.audit.subject import Load, Machine, Split, Subject

A100 = Machine(
    name="A100",
    peak_flop_per_s={"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12},
    memory_bytes=80e9,
    tdp_w=400,
    idle_w=50,
    per_node=8,
    domain=8,
    up_bytes_per_s=300e9,
    up_reduces=False,
    node_bytes_per_s=200e9,
    out_reduces=False,
)
RESNET = Load("ResNet-50", "image", 24.6e9, 24.6e9 / 2.25, "3 x forward / 2.25", 25.6e6, 25.6e6, 1.0, False)
GPT = Load("GPT 175B", "sequence", 2.15e15, 2.15e15, "3 x forward", 175e9, 175e9, 1.0, True)


def read(points: list[dict[str, Any]], **claim: Any) -> Series:
    given_points = [SimpleNamespace(**point) for point in points]
    named = {"precision": "fp16", "regime": "weak", "baseline": None, "headline": None, **claim}
    return series(
        SimpleNamespace(points=given_points, **named),
        flop_per_sample=lambda _: 24.6e9,
        peak_flop_per_s=312e12,
    )


def codes(points: list[dict[str, Any]], subject: Subject, **claim: Any) -> list[str]:
    return [finding.code for finding in bounds.findings(read(points, **claim), subject)]


CONV = Subject(A100, RESNET)


def test_an_honest_rate_passes() -> None:
    assert codes([{"k": 8, "throughput": 16621, "global_batch": 2048}], CONV) == []


def test_fast_convolutions_may_pass_the_direct_count_but_not_their_own() -> None:
    direct = 312e12 / 24.6e9  # images per second and accelerator if every FLOP of the direct count were done
    assert codes([{"k": 1, "throughput": 2.2 * direct}], CONV) == []
    found = bounds.findings(read([{"k": 1, "throughput": 2.4 * direct}]), CONV)
    assert [finding.code for finding in found] == ["flop-above-peak"]
    assert "2.25" in found[0].evidence
    assert found[0].severity == "impossible"
    assert found[0].weight == pytest.approx(2.4 / 2.25, rel=1e-6)


def test_the_peak_is_that_of_the_precision() -> None:
    rate = 0.5 * 312e12 / RESNET.minimum_flop
    assert codes([{"k": 1, "throughput": rate}], CONV, precision="fp16") == []
    found = bounds.findings(read([{"k": 1, "throughput": rate}], precision="fp32"), CONV)
    assert [finding.code for finding in found] == ["flop-above-peak"]
    assert "bf16 or fp16 or tf32" in found[0].evidence
    # Unnamed precision: only the fastest peak refuses.
    assert codes([{"k": 1, "throughput": rate}], CONV, precision=None) == []


def test_mfu_and_stated_flops() -> None:
    assert codes([{"k": 8, "mfu": 0.99}], CONV) == []
    assert codes([{"k": 8, "mfu": 1.05}], CONV) == ["mfu-above-ceiling"]
    full = SimpleNamespace(recompute="full")
    assert codes([{"k": 8, "mfu": 0.74}], CONV, layout=full) == []
    assert codes([{"k": 8, "mfu": 0.8}], CONV, layout=full) == ["mfu-above-ceiling"]
    assert codes([{"k": 8, "tflop_per_s_per_accelerator": 300}], CONV) == []
    found = bounds.findings(read([{"k": 8, "tflop_per_s_per_accelerator": 500}]), CONV)
    assert [finding.code for finding in found] == ["mfu-above-ceiling"]
    assert "sparse" in found[0].evidence


def test_the_mfu_ceiling_falls_with_the_share_that_is_repeated() -> None:
    assert codes([{"k": 8, "mfu": 0.9, "recompute": 0.99}], CONV) == ["mfu-above-ceiling"]
    assert codes([{"k": 8, "mfu": 0.9, "recompute": 0.3}], CONV) == []  # 3 / 3.3
    found = bounds.findings(read([{"k": 8, "mfu": 0.95, "recompute": 0.3}]), CONV)
    assert found[0].bound == "MFU 0.9091"
    assert "recompute 0.3 executes 3.3 passes where the model needs 3" in found[0].evidence
    # A slide does not say how large attention is, so the word refuses nothing.
    assert codes([{"k": 8, "mfu": 1.0, "recompute": "selective"}], CONV) == []


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_recomputation_never_raises_the_mfu_ceiling(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert bounds.mfu_ceiling("full") <= bounds.mfu_ceiling(more) <= bounds.mfu_ceiling(less) <= 1.0


def test_exchange_is_the_ring_bound_or_one_vector() -> None:
    assert exchange_bytes(8.0, 2, reduces=False) == 8.0
    assert exchange_bytes(8.0, 8, reduces=False) == 14.0
    assert exchange_bytes(8.0, 8, reduces=True) == 8.0


def test_links_bound_the_step_of_data_parallel_training() -> None:
    vgg = replace(RESNET, params=138e6, synchronised_params=138e6)
    slow = replace(A100, node_bytes_per_s=1.25e9)
    # 276 MB of 16-bit gradients, 2 nodes: at least 276 MB / 1.25 GB/s = 0.2208 s.
    point = {"k": 16, "time_s": 0.23, "global_batch": 1024}
    assert codes([point], Subject(slow, vgg)) == []
    found = bounds.findings(read([{**point, "time_s": 0.2}]), Subject(slow, vgg))
    assert [finding.code for finding in found] == ["links-too-slow"]
    assert found[0].bound == "at least 220.8 ms"
    # Switches that add on the way halve the bound of many nodes.
    many = {"k": 128, "time_s": 0.3, "global_batch": 8192}
    assert codes([many], Subject(slow, vgg)) == ["links-too-slow"]
    assert codes([many], Subject(replace(slow, out_reduces=True), vgg)) == []


def test_links_inside_a_node() -> None:
    big = replace(RESNET, params=1e9, synchronised_params=1e9)
    pcie = replace(A100, up_bytes_per_s=12e9)
    assert codes([{"k": 8, "time_s": 0.28, "global_batch": 512}], Subject(pcie, big)) == ["links-too-slow"]
    assert codes([{"k": 8, "time_s": 0.30, "global_batch": 512}], Subject(pcie, big)) == []


def test_a_transformer_without_a_layout_is_not_held_to_data_parallelism() -> None:
    slow = replace(A100, node_bytes_per_s=1e9)
    small = replace(GPT, params=10e9, synchronised_params=10e9)
    point = {"k": 64, "time_s": 9.0, "global_batch": 64}
    assert "links-too-slow" not in codes([point], Subject(slow, small))
    # 2.5 GB of gradients per slice, 8 replicas: all of them fit one domain in the kindest placement.
    cut = SimpleNamespace(tp=8, pp=1, sharding="zero1")
    assert "links-too-slow" not in codes([point], Subject(slow, small), layout=cut)
    flat = SimpleNamespace(sharding="fsdp")
    assert "links-too-slow" in codes([point], Subject(slow, small), layout=flat)


def test_memory() -> None:
    point = {"k": 64, "mfu": 0.4}
    cut = SimpleNamespace(tp=8, sharding="zero1")
    assert codes([point], Subject(A100, GPT), layout=cut) == ["memory-does-not-fit"]
    assert codes([{**point, "layout": cut}], Subject(A100, GPT)) == ["memory-does-not-fit"]
    assert codes([point], Subject(A100, GPT), layout=SimpleNamespace(sharding="fsdp")) == []
    assert codes([{"k": 4, "mfu": 0.4}], Subject(A100, GPT)) == ["memory-does-not-fit"]
    tight = bounds.findings(read([{"k": 16, "mfu": 0.4}]), Subject(A100, GPT))
    assert [(finding.code, finding.severity) for finding in tight] == [("memory-is-tight", "suspicious")]


@given(st.integers(1, 4096), st.sampled_from(["ddp", "zero1", "zero2", "zero3", "fsdp", None]), st.booleans())
def test_more_sharding_never_needs_more_memory(k: int, sharding: str | None, optimizer: bool) -> None:
    ddp = state_bytes(GPT, Split(known=True, sharding="ddp"), k, "bf16", optimizer=optimizer)
    own = state_bytes(GPT, Split(known=True, sharding=sharding), k, "bf16", optimizer=optimizer)
    free = state_bytes(GPT, Split(), k, "bf16", optimizer=optimizer)
    assert free <= own <= ddp * (1 + 1e-12)


def test_energy() -> None:
    # 1024 images x 10.9 GFLOP at 0.4 of (350 W / 312 TFLOP/s), and 8 x 50 W over 0.1 s.
    least = 1024 * RESNET.minimum_flop / 312e12 * 350 * 0.4 + 8 * 0.1 * 50
    point = {"k": 8, "time_s": 0.1, "global_batch": 1024}
    assert codes([{**point, "energy_j": least * 1.02}], CONV) == []
    assert codes([{**point, "energy_j": least * 0.97}], CONV) == ["energy-below-arithmetic"]
    assert codes([{**point, "energy_j": 1.0}], Subject(replace(A100, tdp_w=None), RESNET)) == []


@given(
    st.floats(0.01, 0.99),
    st.sampled_from(["throughput", "mfu", "tflop_per_s_per_accelerator"]),
    st.integers(1, 64),
)
def test_no_rate_below_the_peak_is_impossible(share: float, measure: str, k: int) -> None:
    rate = {
        "throughput": share * 312e12 / 24.6e9 * k,
        "mfu": share,
        "tflop_per_s_per_accelerator": share * 312,
    }
    assert codes([{"k": k, measure: rate[measure]}], CONV) == []
