"""The vectorised step against the same equations in plain arithmetic, part by part."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfmodel.physics.coefficients import MEDIANS, NAMES, from_logs
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import Sharding, layouts
from perfmodel.physics.machine import machine
from perfmodel.specs.catalog import Catalog
from perfmodel.training.step import PARTS, step

_PATH = Path(__file__).parents[1] / "oracles" / "scalar_step.py"
_SPEC = importlib.util.spec_from_file_location("scalar_step", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
oracle = importlib.util.module_from_spec(_SPEC)
sys.modules["scalar_step"] = oracle
_SPEC.loader.exec_module(oracle)

CATALOG = Catalog.default()
RNG = np.random.default_rng(11)
#: Coefficients away from their medians, none of them zero or one.
LOGS = np.log([MEDIANS[name] for name in NAMES]) + RNG.normal(0.0, 0.3, len(NAMES))
OPS = {name: operations(CATALOG.get("workloads", name)) for name in
       ("llama3-8b", "mixtral-8x7b", "gpt2-xl", "resnet50", "dlrm", "t5-large", "nemotron-h-56b")}  # fmt: skip
MACHINES = {
    name: machine(CATALOG.cluster(node), precision)
    for name, node, precision in (
        ("h100", "dgx-h100", "bf16"), ("h100-fp8", "dgx-h100", "fp8"), ("v100", "dgx-1v", "fp16"),
        ("a100-fp32", "dgx-a100", "fp32"), ("rack", "gb200-nvl72", "bf16"),
    )
}  # fmt: skip

LAYOUTS = [
    ("one", {"k": 1.0, "micro_batch": 2}),
    ("pair", {"k": 2.0, "micro_batch": 1}),
    ("node", {"k": 8.0, "sharding": Sharding.ZERO1}),
    ("nodes", {"k": 64.0, "micro_batch": 2, "sharding": Sharding.ZERO2}),
    ("fsdp", {"k": 64.0, "micro_batch": 1, "sharding": Sharding.FSDP, "recompute": 1.0}),
    ("hsdp", {"k": 64.0, "micro_batch": 1, "sharding": Sharding.HSDP, "shard_group": 8.0}),
    ("zero1 in groups", {"k": 64.0, "micro_batch": 4, "sharding": Sharding.ZERO1, "shard_group": 16.0}),
    ("server", {"k": 32.0, "sharding": Sharding.PARAMETER_SERVER}),
    ("tensor", {"k": 32.0, "tp": 4, "micro_batch": 1, "recompute": np.nan, "freed": 0.6}),
    ("context", {"k": 64.0, "tp": 2, "cp": 4, "micro_batch": 1, "recompute": 0.05, "selective": 1.0}),
    ("pipeline", {"k": 64.0, "tp": 2, "pp": 4, "micro_batch": 1, "vpp": 2}),
    ("believed stages", {"k": 64.0, "pp": 8, "micro_batch": 1, "vpp": np.nan, "sequence_parallel": 0.0}),
    ("fsdp pipeline", {"k": 64.0, "pp": 4, "micro_batch": 1, "sharding": Sharding.FSDP}),
    ("experts", {"k": 64.0, "ep": 8, "tp": 2, "micro_batch": 1, "sharding": Sharding.ZERO1}),
    ("uneven", {"k": 48.0, "micro_batch": 1, "accumulation": 6}),
]
DECLARED = {
    "gradient_bytes": 4.0, "compression": 2.0, "compression_s": 0.003, "sync_every": 3.0, "tp_hidden": 1.5, "stall_s": 0.02,
    "run_steps": 50.0, "loader_bytes_per_s": 2e9, "storage_bytes_per_s": 4e9, "length_spread": 0.4, "slow_share": 0.01,
    "slowdown": 1.2,
}  # fmt: skip


def compare(ops, mach, at, logs=LOGS):
    c = from_logs(logs)
    found, expected = step(ops, mach, at, c), oracle.step(ops, mach, at, c)
    time = float(found.time_s)
    for name in PARTS:
        assert float(found.parts[name]) == pytest.approx(expected[name], rel=1e-9, abs=1e-12 * time), name
    assert float(found.hidden_s) == pytest.approx(expected["hidden"], rel=1e-9, abs=1e-12 * time)


def laid(said, **more):
    given = {"global_batch": 256.0, "accelerators_per_node": 8.0, **said, **more}
    return layouts(given.pop("k"), **given)


@pytest.mark.parametrize(("name", "said"), LAYOUTS, ids=[name for name, _ in LAYOUTS])
@pytest.mark.parametrize("workload", OPS)
def test_every_layout(workload, name, said):
    compare(OPS[workload], MACHINES["h100"], laid(said))


@pytest.mark.parametrize("mach", MACHINES)
@pytest.mark.parametrize("workload", ["llama3-8b", "resnet50", "mixtral-8x7b"])
def test_every_machine(workload, mach):
    # The cube mesh has shares of its own (`physics.wiring`), for which one test is in its file.
    plain = replace(MACHINES[mach], up_share=MACHINES["h100"].up_share)
    for said in (LAYOUTS[3][1], LAYOUTS[10][1]):
        compare(OPS[workload], plain, laid(said, accelerators_per_node=float(plain.node)))


@pytest.mark.parametrize(
    "said", [LAYOUTS[3][1], LAYOUTS[10][1], LAYOUTS[2][1]], ids=["nodes", "pipeline", "node"]
)
def test_what_a_job_declares(said):
    compare(OPS["llama3-8b"], MACHINES["h100"], laid(said, declared=DECLARED))
    for name, value in DECLARED.items():
        compare(OPS["llama3-8b"], MACHINES["h100"], laid(said, declared={name: value}))


@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_experts_whose_exchange_is_stated(hidden):
    said = dict(LAYOUTS[13][1])
    compare(OPS["mixtral-8x7b"], MACHINES["h100"], laid(said, declared={"expert_hidden": hidden}))


@pytest.mark.parametrize(
    "change",
    [
        {"oversubscription": 3.0, "leaf_nodes": 2.0}, {"oversubscription": 3.0}, {"in_network": 1.0}, {"in_switch": 0.0},
        {"up_overlap": 0.4}, {"out_overlap": 0.3}, {"domain": 32.0}, {"units": 0.0}, {"unit_hz": 0.0},
        {"plain_flop_per_s": 1e13},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_machine_has(change):
    mach = replace(MACHINES["h100"], **{name: np.asarray(value) for name, value in change.items()})
    for said in (LAYOUTS[4][1], LAYOUTS[7][1], LAYOUTS[9][1]):
        compare(OPS["llama3-8b"], mach, laid(said))
        compare(replace(OPS["llama3-8b"], logit_width=np.asarray(50257.0)), mach, laid(said))


@pytest.mark.parametrize("name", NAMES)
def test_every_coefficient(name):
    logs = LOGS.copy()
    logs[NAMES.index(name)] += 1.3
    for workload, said in (("llama3-8b", LAYOUTS[10][1]), ("mixtral-8x7b", LAYOUTS[13][1])):
        compare(OPS[workload], MACHINES["h100-fp8"], laid(said), logs)
