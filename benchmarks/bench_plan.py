"""Speed of the search: layouts per second with memory check, a whole GPT-3 search, linear cost, peak memory.

`make bench` prints the timings; `extra_info` holds layouts per second, as `plan.result` counts them. The floors
are those that the tool promises on one core of a present-day server; a busy machine may miss them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.decide.plan.planner import Found, Request, search
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job

LAYOUTS_PER_S = 500_000
ENOUGH_LAYOUTS = 200_000
PEAK_BYTES = 2e9


def gpt3(k: str, global_batch: int = 1536) -> Job:
    words = {"workload": "gpt3-175b", "cluster": "dgx-a100", "k": k, "global_batch": global_batch}
    return load_job(None, overrides=words)


def rate(found: Found) -> float:
    return found.partial.evaluated / found.seconds


def test_layouts_per_second(benchmark: Any) -> None:
    job, beliefs = gpt3("512..4096:8", global_batch=34_560), shipped_beliefs()
    rates: list[float] = []

    def run() -> Found:
        found = search([job], Request(), beliefs)
        rates.append(rate(found))
        return found

    found = benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    benchmark.extra_info["layouts evaluated"] = found.partial.evaluated
    benchmark.extra_info["layouts per second"] = round(max(rates))
    assert found.partial.evaluated >= ENOUGH_LAYOUTS
    assert max(rates) >= LAYOUTS_PER_S


def test_gpt3_at_512_to_4096(benchmark: Any) -> None:
    job, beliefs = gpt3("512..4096"), shipped_beliefs()
    found = benchmark.pedantic(lambda: search([job], Request(), beliefs), rounds=5, warmup_rounds=1)
    benchmark.extra_info["layouts evaluated"] = found.partial.evaluated
    assert found.seconds < 5.0


def test_cost_is_linear_in_layouts(benchmark: Any) -> None:
    beliefs = shipped_beliefs()
    jobs = [gpt3("512..1024:8"), gpt3("512..4096:8")]

    def per_layout(job: Job) -> float:
        runs = [search([job], Request(), beliefs) for _ in range(5)]
        return min(run.seconds / (run.partial.evaluated + run.partial.pruned) for run in runs)

    small, large = benchmark.pedantic(lambda: [per_layout(job) for job in jobs], rounds=1)
    benchmark.extra_info["seconds per layout, large over small"] = round(large / small, 3)
    assert large < 1.5 * small


@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read from the resource module")
def test_peak_memory(benchmark: Any) -> None:
    code = (
        "import resource, sys; from perfmodel.cli.main import main; "
        "main(['plan', '-w', 'gpt3-175b', '-c', 'dgx-a100', '-k', '512..4096:8', '--global-batch', '1536', '--quiet']); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    started = time.perf_counter()
    done = benchmark.pedantic(
        lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True),
        rounds=1,
    )
    peak = float(done.stdout.split()[-1]) * 1024
    benchmark.extra_info["peak memory [MB]"] = round(peak / 1e6)
    benchmark.extra_info["whole command [s]"] = round(time.perf_counter() - started, 2)
    assert peak < PEAK_BYTES
