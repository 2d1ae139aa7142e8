"""Nothing is predicted to compute faster than the datasheet's peak, whatever the beliefs, on any accelerator."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.features import features
from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.physics.coefficients import LIMITS, NAMES, from_logs
from perfmodel.physics.constants import ATTENTION_PASSES
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import machine
from perfmodel.specs.catalog import Catalog
from perfmodel.training.step import step

CATALOG = Catalog.default()
DRAWS, SEED, WIDE = 64, 20261119, 2.0
FRAMEWORKS = ("megatron_core", "xla", "pytorch_eager", "unknown")


def least(name: str, peak: float, k: float, batch: float) -> float:
    """Step time of what must be computed at the peak."""
    ops = operations(CATALOG.get("workloads", name))
    flop = float(ops.training_flop() - (ATTENTION_PASSES - 3.0) * ops.attention_flop)
    return flop * batch / (k * peak)


@pytest.mark.parametrize("workload", ["llama3-8b", "mixtral-8x7b"])
def test_no_draw_of_the_beliefs_computes_faster_than_the_peak(workload: str) -> None:
    rng = np.random.default_rng(SEED)
    model = CATALOG.get("workloads", workload)
    base = CATALOG.cluster("dgx-h100")
    at = layouts(8, global_batch=64, accelerators_per_node=8)
    tried = 0
    for name in CATALOG.names("accelerators"):
        device = CATALOG.get("accelerators", name)
        cluster = base.model_copy(update={"node": base.node.model_copy(update={"accelerator": device})})
        for precision in ("bf16", "fp8"):
            if not device.trains_in(precision):
                continue
            found = machine(cluster, precision)
            for stack in FRAMEWORKS:
                levels = features(
                    model, device, precision, framework=stack, scale_up="nvswitch-3", scale_out="ib-ndr"
                )
                belief = shipped_beliefs().belief(levels)
                wide = WIDE * np.hypot(belief.spread, np.sqrt(shipped_beliefs().scatter[: len(NAMES)]))
                logs = belief.median[:, None, None] + wide[:, None, None] * rng.normal(
                    size=(len(NAMES), DRAWS, 1)
                )
                time = step(operations(model), found, at, from_logs(logs)).time_s
                assert time.min() >= least(workload, float(found.peak_flop_per_s), 8, 64), (
                    name,
                    precision,
                    stack,
                )
                tried += 1
    assert tried > 200


def test_no_coefficient_leaves_its_limits() -> None:
    rng = np.random.default_rng(SEED)
    found = from_logs(rng.normal(scale=3.0, size=(len(NAMES), 500)))
    for name, (low, high) in LIMITS.items():
        values = getattr(found, name)
        assert low <= values.min()
        assert values.max() <= high
