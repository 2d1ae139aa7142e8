"""Speed of the step model: a curve of 20 K, the same with 200 draws, a million layouts with memory, linear cost.

Times are those of the processor, so that other work on the machine does not count. `make bench` prints them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.physics.coefficients import from_logs
from perfmodel.physics.layouts import layouts
from perfmodel.physics.memory import memory
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import centre, curve
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.step import step

CURVE_S = 5e-3
DRAWN_S = 15e-3
MILLION_S = 2.0
PEAK_BYTES = 2e9
CHUNK = 1 << 13  # arrays of this length stay in the cache of a core

pytestmark = pytest.mark.benchmark(timer=time.process_time)


def gpt3(k: str = "64..1280:64", **more: Any) -> Setup:
    words = {"workload": "gpt3-175b", "cluster": "dgx-a100", "k": k, "global_batch": 1280, **more}
    return setup_of(load_job(None, overrides=words))


def evaluate(setup: Setup, count: int) -> int:
    """Step time and memory of `count` layouts of a transformer, chunk by chunk; how many of them fit."""
    _, logs = centre(setup, shipped_beliefs())
    ops, machine, c = setup.operations, setup.machine, from_logs(logs[:, None])
    rng = np.random.default_rng(0)
    fit = 0
    for start in range(0, count, CHUNK):
        n = min(CHUNK, count - start)
        tp, pp, dp = (2.0 ** rng.integers(0, most, n) for most in (4, 5, 7))
        at = layouts(
            dp * tp * pp, global_batch=16.0 * dp, accelerators_per_node=machine.node, tp=tp, pp=pp,
            micro_batch=2.0 ** rng.integers(0, 4, n), sharding=rng.integers(0, 5, n).astype(float),
            recompute=rng.choice([0.0, 0.05, 1.0], n),
        )  # fmt: skip
        seconds = step(ops, machine, at, c).time_s
        fit += int(np.count_nonzero((memory(ops, machine, at).total < machine.memory_bytes) & (seconds > 0)))
    return fit


@pytest.mark.parametrize("name", ["gpt3-175b", "resnet50"])
def test_curve_of_twenty_k(benchmark: Any, name: str) -> None:
    layout = {"tp": 8, "pp": 8, "micro_batch": 1} if name == "gpt3-175b" else {"sharding": "ddp"}
    setup, beliefs = gpt3(workload=name, layout=layout), shipped_beliefs()
    assert setup.k.size == 20
    benchmark(curve, setup, beliefs, draws=0)
    assert benchmark.stats.stats.min < CURVE_S


def test_curve_of_twenty_k_with_two_hundred_draws(benchmark: Any) -> None:
    setup, beliefs = gpt3(layout={"tp": 8, "pp": 8, "micro_batch": 1}), shipped_beliefs()
    benchmark(curve, setup, beliefs, draws=200)
    assert benchmark.stats.stats.min < DRAWN_S


def test_a_million_layouts(benchmark: Any) -> None:
    setup = gpt3("64")
    fit = benchmark.pedantic(evaluate, (setup, 10**6), rounds=3, warmup_rounds=1)
    benchmark.extra_info["layouts per second"] = round(1e6 / benchmark.stats.stats.min)
    assert 0 < fit < 10**6
    assert benchmark.stats.stats.min < MILLION_S


def test_cost_is_linear_in_layouts(benchmark: Any) -> None:
    setup = gpt3("64")

    def per_layout(count: int) -> float:
        times = []
        for _ in range(3):
            started = time.process_time()
            evaluate(setup, count)
            times.append((time.process_time() - started) / count)
        return min(times)

    small, large = benchmark.pedantic(lambda: (per_layout(10**5), per_layout(10**6)), rounds=1)
    benchmark.extra_info["seconds per layout, large over small"] = round(large / small, 3)
    assert large < 1.3 * small


@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read from the resource module")
def test_peak_memory(benchmark: Any) -> None:
    code = (
        "import resource, sys; sys.path.insert(0, 'benchmarks'); import bench_step; "
        "bench_step.evaluate(bench_step.gpt3('64'), 10**6); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = benchmark.pedantic(
        lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True),
        rounds=1,
    )
    peak = float(done.stdout.split()[-1]) * 1024
    benchmark.extra_info["peak memory [MB]"] = round(peak / 1e6)
    assert peak < PEAK_BYTES
