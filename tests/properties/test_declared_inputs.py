"""Laws of what a job declares beside its layout and of what was measured of its machine, whatever the coefficients."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide.metrics import efficiency, speedup
from perfmodel.physics.coefficients import MEDIANS, NAMES, Coefficients, from_logs
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import Layouts, Sharding, layouts
from perfmodel.physics.machine import Machine, machine
from perfmodel.physics.operations import Operations
from perfmodel.specs.catalog import Catalog
from perfmodel.training.step import step

WORKLOADS = ("llama3-8b", "mixtral-8x7b", "bert-large", "resnet50", "vgg16")
CLUSTERS = ("dgx-1v", "dgx-h100", "bm.gpu.mi300x.8", "nc96ads-a100-v4", "tpu-v4-pod", "g5.48xlarge",
            "gb200-nvl72")  # fmt: skip


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    return Catalog.default()


@cache
def work(name: str) -> Operations:
    return operations(catalog().get("workloads", name))


@cache
def hardware(name: str) -> Machine:
    return machine(catalog().cluster(name), "bf16")


@st.composite
def coefficients(draw: st.DrawFn) -> Coefficients:
    shifts = draw(st.lists(st.floats(-1.1, 1.1), min_size=len(NAMES), max_size=len(NAMES)).map(np.array))
    return from_logs(np.log(np.array([MEDIANS[name] for name in NAMES])) + shifts)


DECLARATIONS = st.fixed_dictionaries(
    {
        "gradient_bytes": st.sampled_from([0.0, 1.0, 2.0, 4.0]),
        "compression": st.floats(1.0, 100.0),
        "compression_s": st.sampled_from([0.0, 1e-3]),
        "sync_every": st.sampled_from([1.0, 2.0, 16.0]),
        "bucket_bytes": st.floats(1e5, 1e9),
        "first_bucket_bytes": st.floats(1e5, 1e8),
        "stall_s": st.sampled_from([0.0, 0.1]),
        "loader_bytes_per_s": st.sampled_from([np.inf, 1e9]),
        "storage_bytes_per_s": st.sampled_from([np.inf, 1e10]),
        "length_spread": st.floats(0.0, 1.0),
        "slow_share": st.floats(0.0, 0.1),
        "slowdown": st.floats(1.0, 2.0),
    }
)


MEASURED = st.fixed_dictionaries(
    {
        "crowd_ranks": st.sampled_from([2.0, 8.0]),
        "crowd_flop": st.floats(0.0, 3.0),
        "crowd_memory": st.floats(0.0, 3.0),
        "up_overlap": st.floats(0.0, 1.0),
        "out_overlap": st.floats(0.0, 1.0),
        "leaf_nodes": st.sampled_from([0.0, 2.0, 16.0]),
        "oversubscription": st.floats(1.0, 8.0),
        "in_network": st.sampled_from([0.0, 1.0]),
    }
)


def measured(found: Machine, values: dict[str, float]) -> Machine:
    return replace(found, **{name: np.asarray(value) for name, value in values.items()})


@st.composite
def points(draw: st.DrawFn) -> tuple[Operations, Machine, Layouts]:
    """Machines as the catalogue has them or measured; layouts that may leave open what runs of others leave open."""
    ops, found = work(draw(st.sampled_from(WORKLOADS))), hardware(draw(st.sampled_from(CLUSTERS)))
    tp = draw(st.sampled_from([1, 2, 4])) if float(ops.is_transformer) else 1
    pp = draw(st.sampled_from([1, 2, 8])) if float(ops.is_transformer) else 1
    vpp = draw(st.sampled_from([1.0, 2.0, np.nan])) if pp > 1 else 1.0
    recompute = draw(st.sampled_from([0.0, 0.05, 1.0, np.nan])) if float(ops.is_transformer) else 0.0
    dp, micro, m = draw(st.integers(1, 96)), draw(st.integers(1, 8)), draw(st.integers(1, 8))
    short = draw(st.integers(0, dp - 1))  # replicas that lack a sample
    at = layouts(
        float(dp * tp * pp), global_batch=float(dp * micro * m), accelerators_per_node=found.node, tp=tp, pp=pp,
        vpp=vpp, micro_batch=micro, recompute=recompute, sharding=float(draw(st.sampled_from(list(Sharding)))), declared=draw(DECLARATIONS),
    )  # fmt: skip
    hosts = measured(found, draw(MEASURED)) if draw(st.booleans()) else found
    return ops, hosts, replace(at, global_batch=at.global_batch - short)


def seconds(point: tuple[Operations, Machine, Layouts], c: Coefficients) -> float:
    ops, found, at = point
    return float(step(ops, found, at, c).time_s)


@given(points(), coefficients())
def test_parts_are_not_negative_and_sum_to_the_step(point: Any, c: Coefficients) -> None:
    ops, hosts, at = point
    found = step(ops, hosts, at, c)
    values = [float(part) for part in found.parts.values()]
    assert all(np.isfinite(values))
    assert min(values) >= -1e-12 * sum(values)
    assert float(found.hidden_s) >= -1e-12
    assert abs(sum(values) - float(found.time_s)) <= 1e-9 * float(found.time_s)


@given(
    points(),
    coefficients(),
    st.sampled_from(
        ["compression", "sync_every", "loader_bytes_per_s", "storage_bytes_per_s"],
    ),
    st.floats(1.0, 50.0),
)
def test_sending_less_and_feeding_faster_are_never_slower(
    point: Any, c: Coefficients, name: str, factor: float
) -> None:
    ops, found, at = point
    at = replace(at, compression_s=np.zeros(()))
    more = replace(at, **{name: getattr(at, name) * factor})
    assert seconds((ops, found, more), c) <= seconds((ops, found, at), c) * (1 + 1e-9)


@given(
    points(),
    coefficients(),
    st.sampled_from(["compression_s", "stall_s", "length_spread", "slow_share", "slowdown"]),
    st.floats(1.0, 5.0),
)
def test_more_of_what_costs_time_is_never_faster(
    point: Any, c: Coefficients, name: str, factor: float
) -> None:
    ops, found, at = point
    more = replace(at, **{name: getattr(at, name) * factor})
    assert seconds((ops, found, more), c) >= seconds((ops, found, at), c) * (1 - 1e-9)


RATES = ("up_bytes_per_s", "out_bytes_per_s", "memory_bytes_per_s", "host_link_bytes_per_s", "flop_per_s")


@given(points(), coefficients(), st.sampled_from(RATES), st.floats(1.0, 50.0))
def test_a_higher_rate_is_never_slower_with_any_bucket_wiring_and_neighbours(
    point: Any, c: Coefficients, name: str, factor: float
) -> None:
    ops, found, at = point
    names = ("peak_flop_per_s", "peak16_flop_per_s") if name == "flop_per_s" else (name,)
    more = replace(found, **{field: getattr(found, field) * factor for field in names})
    assert seconds((ops, more, at), c) <= seconds(point, c) * (1 + 1e-9)


@given(
    points(),
    coefficients(),
    st.sampled_from(["crowd_flop", "crowd_memory", "oversubscription"]),
    st.floats(1.0, 5.0),
)
def test_worse_neighbours_and_narrower_spines_are_never_faster(
    point: Any, c: Coefficients, name: str, factor: float
) -> None:
    ops, found, at = point
    more = replace(found, **{name: getattr(found, name) * factor})
    assert seconds((ops, more, at), c) >= seconds(point, c) * (1 - 1e-9)


@given(points(), coefficients(), st.sampled_from(["up_overlap", "out_overlap"]), st.floats(0.0, 1.0))
def test_hiding_less_is_never_faster(point: Any, c: Coefficients, name: str, share: float) -> None:
    ops, found, at = point
    less = replace(found, **{name: getattr(found, name) * share})
    assert seconds((ops, less, at), c) >= seconds(point, c) * (1 - 1e-9)


@given(points(), coefficients(), st.lists(MEASURED, min_size=2, max_size=4))
def test_machines_are_an_axis_like_any_other(point: Any, c: Coefficients, rows: list[Any]) -> None:
    ops, found, at = point
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    together = np.broadcast_to(step(ops, replace(found, **columns), at, c).time_s, (len(rows),))
    for i, row in enumerate(rows):
        assert np.isclose(together[i], seconds((ops, measured(found, row), at), c), rtol=1e-12, atol=0.0)


@given(points(), coefficients(), st.sampled_from(["strong", "weak"]))
def test_the_speedup_of_one_is_one_and_one_has_no_neighbours(
    point: Any, c: Coefficients, regime: Any
) -> None:
    ops, found, _ = point
    k = np.array([1.0, 2.0, 8.0, 64.0])
    batch = 4096.0 if regime == "strong" else 64.0 * k
    at = layouts(k, global_batch=batch, accelerators_per_node=found.node)
    time = step(ops, found, at, c).time_s
    assert speedup(k, time, regime=regime, baseline=0)[0] == 1.0
    assert efficiency(k, time, regime=regime, baseline=0)[0] == 1.0
    alone = replace(found, crowd_flop=np.zeros(()), crowd_memory=np.zeros(()))
    assert time[0] == step(ops, alone, at, c).time_s[0]


@given(points(), coefficients(), st.lists(DECLARATIONS, min_size=2, max_size=4))
def test_declared_inputs_are_an_axis_like_any_other(point: Any, c: Coefficients, rows: list[Any]) -> None:
    ops, found, at = point
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    together = step(ops, found, replace(at, **columns), c).time_s
    for i, row in enumerate(rows):
        alone = replace(at, **{name: np.asarray(value) for name, value in row.items()})
        assert np.isclose(together[i], seconds((ops, found, alone), c), rtol=1e-12, atol=0.0)
