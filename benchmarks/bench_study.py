"""A study of a million runs: reading, statistics, fits, verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.study.rubric import study, study_file
from perfmodel.study.table import read_timings

ROWS = 1_000_000
LIMIT_S = 2.0


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten K, a hundred thousand repeats each, shuffled."""
    rng = np.random.default_rng(0)
    k = 2 ** rng.integers(0, 10, ROWS)
    time = (0.02 + 0.98 / k + 0.005 * np.log2(k)) * (1 + 0.02 * rng.standard_normal(ROWS))
    path = tmp_path_factory.mktemp("study") / "million.csv"
    columns = zip(k.tolist(), range(ROWS), time.tolist(), strict=True)
    path.write_text("k,repeat,time_s\n" + "".join(f"{a},{b},{c!r}\n" for a, b, c in columns))
    return path


def test_million_rows_from_file_to_verdict(benchmark: Any, million: Path) -> None:
    """The promise: under two seconds after import."""
    study_file(million)  # the first call imports scipy
    result = benchmark.pedantic(study_file, args=(million,), rounds=5)
    assert result.result["recommended_k"] is not None
    if benchmark.stats is not None:
        assert benchmark.stats.stats.median < LIMIT_S


def test_reading_a_million_rows(benchmark: Any, million: Path) -> None:
    """The reader alone."""
    assert benchmark.pedantic(read_timings, args=(million,), rounds=3).rows == ROWS


def test_statistics_of_a_million_rows(benchmark: Any, million: Path) -> None:
    """Everything after the reader."""
    timings = read_timings(million)
    benchmark.pedantic(study, args=(timings,), rounds=5)
