"""Layouts of all kinds in one call of the step and of the memory give what each gives alone."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from perfmodel.physics.algorithms import CODES
from perfmodel.physics.coefficients import MEDIANS, NAMES, from_logs
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import Layouts, Sharding, layouts
from perfmodel.physics.machine import machine
from perfmodel.physics.memory import MEMORY_PARTS, memory
from perfmodel.physics.operations import stack
from perfmodel.specs.catalog import Catalog
from perfmodel.training.step import PARTS, step

CATALOG = Catalog.default()
LOGS = np.log([MEDIANS[name] for name in NAMES]) + np.random.default_rng(3).normal(0.0, 0.3, len(NAMES))
MACHINE = machine(CATALOG.cluster("dgx-h100"), "bf16")
OPS = [operations(CATALOG.get("workloads", name)) for name in ("llama3-8b", "mixtral-8x7b", "dlrm")]


def laid(k: float = 64.0, declared: dict[str, float] | None = None, **degrees: Any) -> Layouts:
    return layouts(
        k, global_batch=256.0, accelerators_per_node=8.0, declared=declared, **{"micro_batch": 1, **degrees}
    )


EACH = [
    laid(1.0),
    laid(8.0),
    laid(),
    laid(sharding=Sharding.ZERO1, shard_group=16.0),
    laid(sharding=Sharding.ZERO2),
    laid(sharding=Sharding.FSDP, recompute=1.0),
    laid(sharding=Sharding.HSDP, shard_group=8.0),
    laid(sharding=Sharding.PARAMETER_SERVER),
    laid(tp=4, recompute=np.nan),
    laid(cp=4, tp=2, recompute=0.05, selective=1.0),
    laid(pp=4, vpp=2),
    laid(pp=4, vpp=np.nan, sharding=Sharding.FSDP, sequence_parallel=0.0, tp=2),
    laid(ep=8, tp=2),
    laid(ep=4, etp=2, tp=4),
    *(
        laid(declared=said)
        for said in (
            {"bucket_bytes": 5e6}, {"first_bucket_bytes": 9e6}, {"sync_every": 4.0}, {"slow_share": 0.02, "slowdown": 1.5},
            {"loader_bytes_per_s": 1e6}, {"storage_bytes_per_s": 1e7}, {"compression": 4.0, "compression_s": 0.01},
            {"gradient_bytes": 4.0}, {"stall_s": 0.1}, {"run_steps": 10.0}, {"length_spread": 0.5}, {"frozen_bytes": 1.0},
            {"optimizer_bytes": 6.0}, {"offloaded_optimizer": 1.0}, {"held_gradient_bytes": 4.0},
        )
    ),
    *(laid(declared={"data_algorithm": float(CODES[name])}) for name in ("ring", "tree", "hierarchical")),
    laid(tp=8, declared={"tensor_algorithm": float(CODES["ring"])}),
    laid(tp=4, declared={"tp_hidden": 2.0}),
]  # fmt: skip


def joined(each: list[Layouts]) -> Layouts:
    return Layouts(**{f.name: np.array([float(getattr(at, f.name)) for at in each]) for f in fields(Layouts)})


@pytest.mark.parametrize("ops", OPS, ids=["dense", "mixture", "tables"])
def test_the_step_of_many_layouts_is_that_of_each(ops: Any) -> None:
    c = from_logs(LOGS)
    together, held = step(ops, MACHINE, joined(EACH), c), memory(ops, MACHINE, joined(EACH))
    for i, at in enumerate(EACH):
        alone, own = step(ops, MACHINE, at, c), memory(ops, MACHINE, at)
        time = float(alone.time_s)
        for name in PARTS:
            found = float(np.broadcast_to(together.parts[name], len(EACH))[i])
            assert found == pytest.approx(float(alone.parts[name]), rel=1e-9, abs=1e-12 * time), (i, name)
        hidden = float(np.broadcast_to(together.hidden_s, len(EACH))[i])
        assert hidden == pytest.approx(float(alone.hidden_s), rel=1e-9, abs=1e-12 * time), i
        for name in MEMORY_PARTS:
            found = float(np.broadcast_to(held.parts[name], len(EACH))[i])
            assert found == pytest.approx(float(own.parts[name]), rel=1e-9), (i, name)
        assert float(np.broadcast_to(held.doubt, len(EACH))[i]) == pytest.approx(float(own.doubt), rel=1e-9)


def test_workloads_stand_beside_each_other_too() -> None:
    c, at = from_logs(LOGS), laid(pp=2, tp=2)
    together = step(stack(OPS[:2]), MACHINE, joined([at, at]), c)
    for i, ops in enumerate(OPS[:2]):
        alone = step(ops, MACHINE, at, c)
        for name in PARTS:
            assert float(np.broadcast_to(together.parts[name], 2)[i]) == pytest.approx(
                float(alone.parts[name]), rel=1e-9, abs=1e-12 * float(alone.time_s)
            ), name


def test_a_bus_slows_those_alone_who_exchange_over_it() -> None:
    """Machines with and without a shared bus, and with hops through the host's memory, in one call."""
    c, each = from_logs(LOGS), [laid(4.0), laid(8.0), laid(8.0, tp=2)]
    for change in ({"shared_bus": 1.0}, {"staged": 1.0}, {"staged": 0.5}):
        on_bus = replace(MACHINE, **{name: np.asarray(value) for name, value in change.items()})
        together = step(OPS[0], on_bus, joined(each), c).time_s
        alone = [float(step(OPS[0], on_bus, at, c).time_s) for at in each]
        assert together.tolist() == pytest.approx(alone, rel=1e-9)
        plain = [float(step(OPS[0], MACHINE, at, c).time_s) for at in each]
        assert all(slow > quick for slow, quick in zip(alone, plain, strict=True))
