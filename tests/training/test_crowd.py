"""Ranks that take from each other, and links that compute cannot hide: both measured, both in the step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.physics.coefficients import textbook
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import machine
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.hardware import Crowd
from perfmodel.specs.layout import Layout
from perfmodel.training.curve import choose
from perfmodel.training.setup import Setup
from perfmodel.training.step import Step, step

K = np.array([1.0, 2.0, 4.0, 8.0])


def made(*, crowd: Crowd | None = None, overlap: float | None = None, workload: str = "resnet50") -> Step:
    catalog = Catalog.default()
    cluster = catalog.cluster("dgx-a100")
    node = cluster.node
    link = node.scale_up.model_copy(update={"overlap": overlap})
    device = node.accelerator.model_copy(update={"crowd": crowd})
    cluster = cluster.model_copy(
        update={"node": node.model_copy(update={"accelerator": device, "scale_up": link})}
    )
    setup = Setup(
        workload=catalog.get("workloads", workload),
        cluster=cluster,
        precision="fp16",
        k=K,
        global_batch=128.0 * K,
        layout=Layout(sharding="ddp"),
    )
    logs = np.log([float(getattr(textbook(), name)) for name in textbook().__dataclass_fields__])
    at, _ = choose(setup, logs)
    return step(operations(setup.workload, None), machine(cluster, "fp16"), at, textbook())


def test_neighbours_take_what_was_measured_at_their_number_and_less_below() -> None:
    plain, shared = made(), made(crowd=Crowd(ranks=8, matmul=0.5, memory=0.5))
    extra = shared.parts["contention"] - plain.parts["contention"]
    work = plain.parts["compute"] + plain.parts["optimizer"]
    # Everything at half its rate takes twice as long; calls keep their fixed time.
    assert extra[3] == pytest.approx(work[3], rel=0.02)
    assert extra / extra[3] == pytest.approx((K - 1.0) / 7.0, rel=1e-6)
    # Host and exchange hide behind compute, and more of them behind a slower one; the rest is as it was.
    for name in ("host", "data_parallel"):
        assert (shared.parts[name] <= plain.parts[name] * (1 + 1e-9)).all(), name
    assert shared.parts["host"][3] < plain.parts["host"][3]
    for name in set(plain.parts) - {"contention", "straggler", "input_stall", "host", "data_parallel"}:
        assert shared.parts[name] == pytest.approx(plain.parts[name]), name


def test_memory_and_compute_suffer_apart() -> None:
    flop, memory = (
        made(crowd=Crowd(ranks=8, matmul=m, memory=b)).parts["contention"][3]
        for m, b in ((0.5, 1.0), (1.0, 0.5))
    )
    both = made(crowd=Crowd(ranks=8, matmul=0.5, memory=0.5)).parts["contention"][3]
    none = made(crowd=Crowd(ranks=8, matmul=1.0, memory=1.0)).parts["contention"][3]
    assert none == pytest.approx(made().parts["contention"][3])
    assert none < min(flop, memory) < max(flop, memory) < both


def test_a_link_that_hides_nothing_shows_the_whole_exchange() -> None:
    plain, bare = made(), made(overlap=0.0)
    assert bare.parts["data_parallel"][1:] == pytest.approx(
        (plain.parts["data_parallel"] + plain.hidden_s)[1:]
    )
    assert bare.hidden_s == pytest.approx(np.zeros(4), abs=1e-12)
    ideal = made(overlap=1.0)
    assert ideal.parts["data_parallel"] == pytest.approx(plain.parts["data_parallel"])


def test_a_machine_nobody_measured_is_as_before() -> None:
    cluster = Catalog.default().cluster("dgx-a100")
    numbers = machine(cluster, "fp16")
    assert numbers.crowded(K) is None
    shared = replace(numbers, crowd_ranks=np.asarray(2.0), crowd_flop=np.asarray(1.0))
    slower = shared.crowded(K)
    assert slower is not None
    assert slower[0].tolist() == [1.0, 2.0, 4.0, 8.0]
    assert slower[1].tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("kept", "faster"),
    [((1.0, 0.5), ("peak_flop_per_s", "peak16_flop_per_s")), ((0.5, 1.0), ("memory_bytes_per_s",))],
)
def test_a_faster_device_among_neighbours_is_not_slower(
    kept: tuple[float, float], faster: tuple[str, ...]
) -> None:
    """What the host paces does not grow when neighbours take from the other side of the roof."""
    catalog = Catalog.default()
    plain = machine(catalog.cluster("dgx-a100"), "fp16")
    crowd = {"crowd_ranks": 8.0, "crowd_flop": 1.0 / kept[0] - 1.0, "crowd_memory": 1.0 / kept[1] - 1.0}
    shared = replace(plain, **{name: np.asarray(value) for name, value in crowd.items()})
    better = replace(shared, **{name: 2.0 * getattr(shared, name) for name in faster})
    ops = operations(catalog.get("workloads", "resnet50"), None)
    at = layouts(K, global_batch=16.0 * K, accelerators_per_node=8.0)
    host_bound = replace(textbook(), host_kernel_s=np.asarray(1e-3))
    before, after = (step(ops, one, at, host_bound).time_s for one in (shared, better))
    assert (after <= before * (1 + 1e-12)).all()


@pytest.mark.parametrize("workload", ["bert-large", "vit-b16"])
def test_attention_of_crowded_ranks_slows_as_their_products_do(workload: str) -> None:
    """All rates of a rank halve, that of fused attention too: its arithmetic takes twice as long."""
    plain, shared = (
        made(crowd=crowd, workload=workload) for crowd in (None, Crowd(ranks=8, matmul=0.5, memory=0.5))
    )
    extra = shared.parts["contention"] - plain.parts["contention"]
    work = plain.parts["compute"] + plain.parts["optimizer"]
    assert extra[3] == pytest.approx(work[3], rel=0.06)
