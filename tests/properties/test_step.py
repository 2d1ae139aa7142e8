"""Laws that the step model keeps whatever the workload, the machine, the layout and the coefficients."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.decide.knee_causes import ledger
from perfmodel.physics.coefficients import MEDIANS, NAMES, Coefficients, from_logs, quiet
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import Layouts, Sharding, layouts, pick
from perfmodel.physics.machine import Machine, machine
from perfmodel.physics.operations import Operations
from perfmodel.specs.catalog import Catalog
from perfmodel.training.step import PARTS, Step, step

WORKLOADS = ("llama3-8b", "gpt3-175b", "mixtral-8x7b", "bert-large", "resnet50", "dlrm-dcnv2", "rnnt")
NO_TRANSFORMERS = ("resnet50", "dlrm-dcnv2", "rnnt")
CLUSTERS = ("dgx-1v", "dgx-a100", "dgx-h100", "gb200-nvl72", "p4d.24xlarge")


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    return Catalog.default()


@cache
def work(name: str) -> Operations:
    return operations(catalog().get("workloads", name))


@cache
def hardware(name: str) -> Machine:
    found = catalog().cluster(name)
    precision = "bf16" if "bf16" in found.node.accelerator.peak else "fp16"
    return machine(found, precision)


powers = st.sampled_from([1, 2, 4, 8])


@st.composite
def coefficients(draw: st.DrawFn) -> Coefficients:
    """Anything within a factor of about three of the textbook, each coefficient by itself."""
    shifts = draw(st.lists(st.floats(-1.1, 1.1), min_size=len(NAMES), max_size=len(NAMES)).map(np.array))
    return from_logs(np.log(np.array([MEDIANS[name] for name in NAMES])) + shifts)


@st.composite
def points(draw: st.DrawFn, workloads: tuple[str, ...] = WORKLOADS) -> tuple[Operations, Machine, Layouts]:
    """A workload on a machine with a layout that divides K; transformers get every kind of parallelism."""
    name = draw(st.sampled_from(workloads))
    ops, mach = work(name), hardware(draw(st.sampled_from(CLUSTERS)))
    tp = pp = cp = ep = vpp = 1
    if float(ops.is_transformer):
        tp, pp, cp = draw(powers), draw(powers), draw(st.sampled_from([1, 2]))
        vpp = draw(st.sampled_from([1, 2])) if pp > 1 else 1
        ep = draw(st.sampled_from([1, 2, 4, 8])) if float(ops.experts) > 1 else 1
    dp = draw(st.integers(1, 96))
    micro, m = draw(powers), draw(st.integers(1, 16)) * (pp if vpp > 1 else 1)
    if tp * cp * dp % ep:
        ep = 1
    k = dp * tp * pp * cp
    at = layouts(
        float(k), global_batch=float(dp * micro * m), accelerators_per_node=mach.node, tp=tp, pp=pp, cp=cp, ep=ep,
        vpp=vpp, micro_batch=micro, sharding=float(draw(st.sampled_from(list(Sharding)))),
        recompute=draw(st.sampled_from([0.0, 0.05, 1.0])),
        selective=draw(st.sampled_from([0.0, 1.0])),
    )  # fmt: skip
    return ops, mach, at


def seconds(ops: Operations, mach: Machine, at: Layouts, c: Coefficients) -> float:
    return float(step(ops, mach, at, c).time_s)


@given(points(), coefficients())
def test_parts_are_not_negative_and_sum_to_the_step(point: Any, c: Coefficients) -> None:
    found = step(*point, c)
    values = [float(found.parts[name]) for name in PARTS]
    assert set(found.parts) == set(PARTS)
    assert all(np.isfinite(values))
    assert min(values) >= -1e-12 * sum(values)
    assert float(found.hidden_s) >= -1e-12
    assert abs(sum(values) - float(found.time_s)) <= 1e-9 * float(found.time_s)
    assert float(found.time_s) > 0


@given(
    points(),
    coefficients(),
    st.sampled_from(["up_bytes_per_s", "out_bytes_per_s", "memory_bytes_per_s", "host_link_bytes_per_s"]),
    st.floats(1.0, 50.0),
)
def test_more_bandwidth_is_never_slower(point: Any, c: Coefficients, field: str, factor: float) -> None:
    ops, mach, at = point
    more = replace(mach, **{field: getattr(mach, field) * factor})
    assert seconds(ops, more, at, c) <= seconds(ops, mach, at, c) * (1 + 1e-9)


@given(points(), coefficients(), st.floats(1.0, 10.0))
def test_more_arithmetic_is_never_slower(point: Any, c: Coefficients, factor: float) -> None:
    ops, mach, at = point
    more = replace(
        mach,
        peak_flop_per_s=mach.peak_flop_per_s * factor,
        peak16_flop_per_s=mach.peak16_flop_per_s * factor,
    )
    assert seconds(ops, more, at, c) <= seconds(ops, mach, at, c) * (1 + 1e-9)


@given(
    points(),
    coefficients(),
    st.sampled_from(["base_s", "up_step_s", "out_step_s", "call_s", "host_kernel_s", "jitter", "sync_s"]),
    st.floats(0.0, 1.0),
)
def test_less_latency_is_never_slower(point: Any, c: Coefficients, name: str, factor: float) -> None:
    less = replace(c, **{name: getattr(c, name) * factor})
    assert seconds(*point, less) <= seconds(*point, c) * (1 + 1e-9)


@given(points(), coefficients(), st.sampled_from(["up_latency_s", "out_latency_s"]), st.floats(0.0, 1.0))
def test_a_nearer_link_is_never_slower(point: Any, c: Coefficients, field: str, factor: float) -> None:
    ops, mach, at = point
    near = replace(mach, **{field: getattr(mach, field) * factor})
    assert seconds(ops, near, at, c) <= seconds(ops, mach, at, c) * (1 + 1e-9)


@given(st.lists(points(), min_size=2, max_size=6), coefficients())
def test_an_element_does_not_depend_on_its_neighbours(many: list[Any], c: Coefficients) -> None:
    ops, mach, _ = many[0]
    together = Layouts(
        **{f.name: np.array([float(getattr(at, f.name)) for _, _, at in many]) for f in fields(Layouts)}
    )
    whole = step(ops, mach, together, c)
    for index in range(len(many)):
        alone = step(ops, mach, pick(together, slice(index, index + 1)), c)
        for name in PARTS:
            both = np.broadcast_to(whole.parts[name], (len(many),))[index], np.ravel(alone.parts[name])[0]
            assert both[0] == both[1] or abs(both[0] - both[1]) <= 1e-12 * abs(both[1]), name


@given(points(), st.lists(coefficients(), min_size=2, max_size=4))
def test_a_draw_does_not_depend_on_the_others(point: Any, draws: list[Coefficients]) -> None:
    ops, mach, at = point
    line = Layouts(**{f.name: np.atleast_1d(getattr(at, f.name)) for f in fields(Layouts)})
    stacked = Coefficients(**{name: np.array([[float(getattr(c, name))] for c in draws]) for name in NAMES})
    together = step(ops, mach, line, stacked).time_s
    assert together.shape == (len(draws), 1)
    for row, c in zip(together, draws, strict=True):
        assert np.isclose(row[0], seconds(ops, mach, at, c), rtol=1e-12)


def boundless(mach: Machine) -> Machine:
    """Links, memory and host that cost nothing."""
    endless = dict.fromkeys(
        ("memory_bytes_per_s", "up_bytes_per_s", "out_bytes_per_s", "host_link_bytes_per_s"), np.asarray(1e40)
    )
    instant = dict.fromkeys(("up_latency_s", "out_latency_s"), np.zeros(()))
    return replace(mach, **endless, **instant)


@given(st.sampled_from(WORKLOADS), st.sampled_from(CLUSTERS), st.integers(1, 500), st.integers(1, 64))
def test_without_overheads_the_line_is_ideal(name: str, cluster: str, k: int, per_worker: int) -> None:
    mach = boundless(hardware(cluster))
    batch = float(per_worker * 500 * 499)
    at = layouts(np.array([1.0, float(k)]), global_batch=batch, accelerators_per_node=mach.node)
    time = step(replace(work(name), serial_s=np.zeros(())), mach, at, quiet()).time_s
    assert np.isclose(time[0] / time[1], k, rtol=1e-9)


@given(st.integers(2, 64), st.integers(1, 200), st.sampled_from(CLUSTERS))
def test_the_bubble_of_a_textbook_pipeline(p: int, m: int, cluster: str) -> None:
    ops = work("gpt3-175b")
    # Equal stages: one layer each, and no logits beside the last of them.
    ops = replace(ops, layers=np.asarray(float(p)))
    ops = replace(ops, slot_count=ops.slot_count * (1.0 - ops.slot_last), logit_elements=np.zeros(()))
    mach = boundless(hardware(cluster))
    at = layouts(float(p), global_batch=float(m), accelerators_per_node=mach.node, pp=p, micro_batch=1)
    found = step(ops, mach, at, quiet())
    share = float(found.parts["bubble"]) / float(found.time_s)
    assert np.isclose(share, (p - 1) / (m + p - 1), rtol=1e-9)


@given(
    st.sampled_from(WORKLOADS),
    st.sampled_from(CLUSTERS),
    st.sets(st.integers(1, 2000), min_size=2, max_size=8),
    coefficients(),
    st.sampled_from(["strong", "weak"]),
    st.data(),
)
@settings(max_examples=60)
def test_the_ledger_sums_to_the_loss(
    name: str, cluster: str, ks: set[int], c: Coefficients, regime: str, data: Any
) -> None:
    k = np.array(sorted(ks), dtype=float)
    mach = hardware(cluster)
    batch = 4096.0 if regime == "strong" else 16.0 * k
    found: Step = step(work(name), mach, layouts(k, global_batch=batch, accelerators_per_node=mach.node), c)
    base = data.draw(st.integers(0, k.size - 1))
    parts = {part: np.broadcast_to(value, k.shape) for part, value in found.parts.items()}
    time = found.time_s
    entries = sum(ledger(k, parts, regime, base).values())
    lost = k * time - k[base] * time[base] if regime == "strong" else k * (time - time[base])
    scale = np.maximum(k * time, k[base] * time[base])
    assert np.all(np.abs(entries - lost) <= 1e-9 * scale)


@given(points(NO_TRANSFORMERS), coefficients(), st.floats(1.0, 20.0))
def test_more_work_is_never_faster(point: Any, c: Coefficients, factor: float) -> None:
    ops, mach, at = point
    assert float(ops.is_transformer) == 0.0
    more = replace(ops, other_flop=ops.other_flop * factor, other_traffic=ops.other_traffic * factor)
    assert seconds(more, mach, at, c) >= seconds(ops, mach, at, c) * (1 - 1e-9)
