"""Speed of answers about services: configurations a second with the memory check, a load curve, a whole `predict`.

Floors are those that the tool promises on one core of a present-day server; a busy machine may miss them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.decide.serving import search
from perfmodel.physics.serving import OPEN, serving_answer
from perfmodel.serving.beliefs import shipped_beliefs
from perfmodel.serving.setup import service_of
from perfmodel.specs.jobs import load_any_job
from perfmodel.specs.serving import ServedLayout, ServingJob

CONFIGURATIONS_PER_S = 300_000
CURVE_S = 0.010
PREDICT_S = 1.0
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "serve-chat.yaml"


def job(**changed: object) -> ServingJob:
    found = load_any_job(EXAMPLE, overrides=changed)
    assert isinstance(found, ServingJob)
    return found


def test_configurations_per_second(benchmark: Any) -> None:
    wanted = job(**{"serving.precision": None, "serving.kv_precision": None})
    groups = search._groups(wanted, shipped_beliefs())
    limits = wanted.serving.slo.limits if wanted.serving.slo is not None else ()

    def run() -> float:
        tally, start = search._Tally(), time.perf_counter()
        for group in groups:
            search._searched(group, limits, tally)
        return tally.evaluated / (time.perf_counter() - start)

    run()
    rate = max(benchmark.pedantic(run, rounds=1) for _ in range(1))
    benchmark.extra_info["configurations_per_s"] = rate
    assert rate > CONFIGURATIONS_PER_S


def test_a_load_curve_of_fifty_points(benchmark: Any) -> None:
    service = service_of(job(), shipped_beliefs())
    at = service.deployment([ServedLayout(tp=2)])
    load = service.load(OPEN, rate_per_s=np.linspace(0.1, 8.0, 50))

    def run() -> None:
        serving_answer(service.shape, service.machine, at, load, service.coefficients)

    run()
    benchmark(run)
    assert benchmark.stats["min"] < CURVE_S


def test_a_whole_prediction(benchmark: Any) -> None:
    command = [sys.executable, "-m", "perfmodel", "predict", str(EXAMPLE), "--quiet"]

    def run() -> None:
        subprocess.run(command, check=True)

    benchmark.pedantic(run, rounds=3)
    assert benchmark.stats["min"] < PREDICT_S
