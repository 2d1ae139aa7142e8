"""Speed of serving: configurations per second with the memory check, and a load curve with and without percentiles.

The floors are those that the tool promises on one core of a present-day server; a busy machine may miss them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.physics.examples import decoder, node
from perfmodel.physics.serving import OPEN, Load, serving_answer
from perfmodel.physics.serving_coefficients import textbook
from perfmodel.physics.serving_step import Deployment
from perfmodel.physics.serving_tail import serving_latency

CONFIGURATIONS_PER_S = 300_000
CURVE_S = 0.010
PREDICT_S = 1.0
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "serve-chat.yaml"
BLOCK = 4_000  # configurations at once: what stays in the caches of a core


def block() -> tuple[Deployment, Load]:
    """Layouts, precisions, limits and loads, all different."""
    rng = np.random.default_rng(1)
    at = Deployment(
        tensor=2.0 ** rng.integers(0, 4, BLOCK),
        weight_bytes=rng.choice([1.0, 2.0], BLOCK),
        cache_bytes=rng.choice([1.0, 2.0], BLOCK),
        max_sequences=rng.choice([64.0, 256.0, 1024.0], BLOCK),
        chunk_tokens=rng.choice([2048.0, 8192.0], BLOCK),
    )
    return at, Load(concurrency=np.geomspace(1.0, 512.0, BLOCK), input_tokens=1024.0, output_tokens=256.0)


def test_configurations_per_second(benchmark: Any) -> None:
    at, load = block()
    shape, machine, c = decoder(), node(), textbook()
    benchmark(lambda: serving_answer(shape, machine, at, load, c))
    rate = BLOCK / benchmark.stats["min"]
    benchmark.extra_info["configurations_per_s"] = rate
    assert rate > CONFIGURATIONS_PER_S


def test_a_curve_of_fifty_loads(benchmark: Any) -> None:
    load = Load(concurrency=np.geomspace(1.0, 256.0, 50))
    shape, machine, at, c = decoder(), node(), Deployment(tensor=2.0), textbook()
    benchmark(lambda: serving_answer(shape, machine, at, load, c))
    assert benchmark.stats["min"] < CURVE_S


def test_percentiles_of_fifty_loads(benchmark: Any) -> None:
    shape, machine, at, c = decoder(), node(), Deployment(tensor=2.0), textbook()
    most = serving_answer(shape, machine, at, Load(kind=OPEN, rate_per_s=1e9), c).saturation_requests_per_s
    load = Load(kind=OPEN, rate_per_s=np.linspace(0.02, 0.95, 50) * most)
    found = benchmark(lambda: serving_latency(shape, machine, at, load, c))
    assert found.answer.stable.all()


def test_a_whole_prediction(benchmark: Any) -> None:
    command = [sys.executable, "-m", "perfmodel", "predict", str(EXAMPLE), "--quiet"]
    benchmark.pedantic(lambda: subprocess.run(command, check=True), rounds=3)
    assert benchmark.stats["min"] < PREDICT_S
