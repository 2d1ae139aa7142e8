"""Sweeps of a user's log in the fit report: latency, bandwidth, efficiency, and where algorithms change places."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from perfmodel.calibrate.readers.sweeps import Sweep, make_sweep
from perfmodel.decide.sweeps import crossovers, sweeps_json
from perfmodel.predict.machine import machine
from perfmodel.specs.catalog import Catalog

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


def test_the_crossover_of_two_algorithms_is_where_their_times_meet() -> None:
    numbers = machine(Catalog.default().cluster("dgx-a100"), "bf16")
    tree, ring = sweep(15e-6, 120e9, "Tree"), sweep(60e-6, 230e9, "Ring")
    (found,) = crossovers([tree, ring], numbers)
    assert (found["from"], found["to"]) == ("Tree", "Ring")
    behind = np.flatnonzero(tree.time_s > ring.time_s)[0]
    assert SIZES[behind - 1] < found["bytes"] < SIZES[behind] * 1.1
    assert crossovers([tree, sweep(60e-6, 230e9)], numbers) == []
