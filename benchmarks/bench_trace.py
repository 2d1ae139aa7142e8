"""A 500 MB profiler trace: under 60 s and under 1 GB of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TARGET_BYTES = 500_000_000
CODE = """
import resource, sys, time
from perfmodel.readings.chrome_trace import read_chrome_trace
begin = time.perf_counter()
summary = read_chrome_trace(sys.argv[1])
print(time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, summary.lines, len(summary.ranks))
"""


def _events(at: float, step: int) -> list[dict[str, Any]]:
    """One step of 1000 operators as Kineto writes them: operator, launch, flow, kernel; every 50th all-reduces."""
    found: list[dict[str, Any]] = []
    for i in range(1000):
        common = {"pid": 2211, "tid": 2211}
        dims = {
            "External id": i,
            "Input Dims": [[4096, 4096], [4096, 4096], []],
            "Input type": ["float", "float", ""],
        }
        found.append(
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", **common, "ts": at, "dur": 12.5, "args": dims}
        )
        launch = {"cbid": 211, "correlation": i, "External id": i}
        found.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                **common,
                "ts": at,
                "dur": 4.2,
                "args": launch,
            }
        )
        found.append({"ph": "s", "id": i, **common, "ts": at, "cat": "ac2g", "name": "ac2g"})
        kernel = {
            "External id": i,
            "device": 0,
            "context": 1,
            "stream": 7,
            "grid": [32, 1, 1],
            "block": [384, 1, 1],
            "correlation": i,
        }
        found.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": "sm90_xmma_gemm_tn_n_tilesize128x128x32_cublas",
                "pid": 0,
                "tid": 7,
                "ts": at + 50,
                "dur": 25.0,
                "args": kernel,
            }
        )
        if i % 50 == 0:
            facts = {
                **kernel,
                "stream": 20,
                "Collective name": "allreduce",
                "dtype": "Float",
                "In msg nelems": 6553600,
                "Out msg nelems": 6553600,
                "Group size": 8,
            }
            found.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    "pid": 0,
                    "tid": 20,
                    "ts": at + 100,
                    "dur": 400.0,
                    "args": facts,
                }
            )
        at += 31.0
    mark = {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{step}",
        "pid": 2211,
        "tid": 2211,
        "ts": at - 31000.0,
        "dur": 31000.0,
    }
    return [*found, mark]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "rank0.json"
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 8}, "traceEvents": [\n')
        step = 0
        while file.tell() < TARGET_BYTES:
            begin = "" if step == 0 else ",\n"
            file.write(begin + ",\n".join(json.dumps(event) for event in _events(step * 31000.0, step)))
            step += 1
        file.write("\n]}\n")
    return path


def test_half_a_gigabyte_of_trace(benchmark: Any, trace: Path) -> None:
    def read() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(trace)], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    seconds, peak_bytes, events, ranks = benchmark.pedantic(read, rounds=1, iterations=1)
    benchmark.extra_info |= {
        "seconds": float(seconds),
        "peak_bytes": float(peak_bytes),
        "events": int(events),
    }
    assert int(ranks) == 1
    assert float(seconds) < 60.0
    assert float(peak_bytes) < 1e9
