"""Sweeps of a user's log in the fit report: latency, bandwidth, efficiency, and where algorithms change places."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.sweeps import crossovers, informed, refuse_foreign, sweeps_json
from perfmodel.errors import SpecError
from perfmodel.physics.coefficients import NAMES, from_logs
from perfmodel.physics.exchanges import Links
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import machine
from perfmodel.readings.sweeps import Sweep, make_sweep
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.training.setup import setup_of

SIZES = 2.0 ** np.arange(10, 31)


def sweep(alpha_s: float, rate: float, algorithm: str | None = None, p: float = 0.8) -> Sweep:
    """An all-reduce of 8 ranks after the law that is fitted."""
    work = 1.75 * SIZES / rate
    time = (alpha_s**p + work**p) ** (1.0 / p)
    points = list(zip(SIZES.tolist(), time.tolist(), strict=True))
    return make_sweep("all_reduce", 8, points, nodes=1, algorithm=algorithm)


def test_the_law_is_found_again_and_efficiency_is_of_the_link() -> None:
    numbers = machine(Catalog.default().cluster("dgx-a100"), "bf16")
    found = sweeps_json([sweep(25e-6, 230e9)], numbers)
    (row,) = found["sweeps"]
    assert row["alpha_s"] == pytest.approx(25e-6, rel=0.05)
    assert row["bus_bandwidth_bytes_per_s"] == pytest.approx(230e9, rel=0.05)
    assert row["knee"] == pytest.approx(0.8, rel=0.05)
    assert row["median_error"] < 0.01
    # Latency and bytes take the same time at alpha B / f.
    assert row["latency_bound_below_bytes"] == pytest.approx(25e-6 * 230e9 / 1.75, rel=0.1)
    points = found["sweep_points"]
    assert len(points) == SIZES.size
    assert points[-1]["efficiency"] == pytest.approx(
        points[-1]["bus_bandwidth_bytes_per_s"] / float(numbers.up_bytes_per_s)
    )
    assert all(a["efficiency"] < b["efficiency"] for a, b in pairwise(points))
    assert found["crossovers"] == []


@pytest.mark.parametrize(
    ("op", "ranks", "nodes", "moved"),
    [
        ("all_gather", 8, 1, {"up_efficiency": 0.6, "base_s": 2.0, "up_step_s": 0.5}),
        ("all_reduce", 8, 1, {"up_efficiency": 0.8, "base_s": 0.7, "up_step_s": 0.7}),
        ("all_reduce", 32, 4, {"out_efficiency": 0.5, "out_step_s": 1.5}),
    ],
)
def test_a_sweep_gives_the_coefficients_under_which_the_model_takes_its_times(
    op: str, ranks: int, nodes: int, moved: dict[str, float]
) -> None:
    job = load_job(None, overrides={"workload": "resnet50", "cluster": "dgx-a100", "global_batch": 1024})
    setup, beliefs = setup_of(job), shipped_beliefs()
    n = np.asarray(float(ranks))
    group = layouts(n, global_batch=n, accelerators_per_node=8, per_node=n / nodes)

    def seconds(factors: dict[str, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        logs = beliefs.belief(setup.features()).median.copy()
        for name, factor in factors.items():
            logs[NAMES.index(name)] += np.log(factor)
        return np.asarray(
            Links(setup.machine, group, from_logs(logs)).time(op, SIZES, n, np.ones(())), np.float64
        )

    measured = seconds(moved)
    spiked = measured * np.where(SIZES[7] == SIZES, 3.0, 1.0)  # one bad size must not move the rest
    points = list(zip(SIZES.tolist(), spiked.tolist(), strict=True))
    notes: list[str] = []
    found = informed(setup, beliefs, make_sweep(op, ranks, points, nodes=nodes), "x.log", notes)
    assert notes == []
    medians = dict(zip(NAMES, np.exp(beliefs.belief(setup.features()).median), strict=True))
    again = seconds({item.name: item.value / medians[item.name] for item in found})
    assert np.median(np.abs(again / measured - 1.0)) < 0.02
    rate = found[0]
    assert rate.value == pytest.approx(medians[rate.name] * moved[rate.name], rel=0.05)


def test_large_messages_alone_tell_no_latency_and_odd_operations_nothing() -> None:
    job = load_job(None, overrides={"workload": "resnet50", "cluster": "dgx-a100", "global_batch": 1024})
    setup, notes = setup_of(job), []
    points = [(2.0**27, 1e-3), (2.0**28, 2e-3)]
    found = informed(setup, shipped_beliefs(), make_sweep("all_gather", 8, points, nodes=1), "x.log", notes)
    assert [item.name for item in found] == ["up_efficiency"]
    assert informed(setup, shipped_beliefs(), make_sweep("scatter", 8, points, nodes=1), "x.log", notes) == []
    assert "informs no belief" in notes[-1]


def test_the_crossover_of_two_algorithms_is_where_their_times_meet() -> None:
    numbers = machine(Catalog.default().cluster("dgx-a100"), "bf16")
    tree, ring = sweep(15e-6, 120e9, "Tree"), sweep(60e-6, 230e9, "Ring")
    (found,) = crossovers([tree, ring], numbers)
    assert (found["from"], found["to"]) == ("Tree", "Ring")
    behind = np.flatnonzero(tree.time_s > ring.time_s)[0]
    assert SIZES[behind - 1] < found["bytes"] < SIZES[behind] * 1.1
    assert crossovers([tree, sweep(60e-6, 230e9)], numbers) == []


@pytest.mark.parametrize(
    ("confidence", "times", "refused"),
    [("vendor", 1.4, True), ("measured", 1.4, False), ("measured", 2.2, True)],
)
def test_a_rate_that_was_timed_may_be_passed_by_more_than_a_datasheet(
    confidence: str, times: float, refused: bool
) -> None:
    job = load_job(
        None, overrides={"workload": "gpt2-xl", "cluster": "dgx-h100", "k": [8], "global_batch": 64}
    )
    up = job.cluster.node.scale_up
    assert up is not None
    node = job.cluster.node.model_copy(update={"scale_up": up.model_copy(update={"confidence": confidence})})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node})})
    found = sweep(20e-6, times * up.bandwidth)
    if refused:
        with pytest.raises(SpecError, match="no sweep of dgx-h100"):
            refuse_foreign(job, machine(job.cluster, "bf16"), [found], Path("s.log"))
    else:
        refuse_foreign(job, machine(job.cluster, "bf16"), [found], Path("s.log"))
