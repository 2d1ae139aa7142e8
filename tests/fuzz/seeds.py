"""Good inputs of each entry point, from which a fuzzer starts: what the repository shows its users, and small texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


def _files(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def jobs() -> list[bytes]:
    """Job files, a serving one and one with everything spelt out."""
    return [*_files("examples/*.yaml", "examples/ci/job.yaml", "examples/timings/*.yaml"), *_JOBS]


def clusters() -> list[bytes]:
    """Specs of clusters, nodes, accelerators and links."""
    return [_CLUSTER, *_files("hardware_specs/clusters/*.yaml", "hardware_specs/nodes/dgx-*.yaml")[:12]]


def gates() -> list[bytes]:
    """Policy files; their job stands in the file itself."""
    return [_GATE]


def claims() -> list[bytes]:
    """Claims of vendors."""
    return _files("tests/claims/*.yaml")


def timings() -> list[bytes]:
    """Tables of timings, of load and of parts."""
    return [b"k,time_s\n1,1\n2,0.6\n4,0.4\n8,0.3\n", *_files("examples/*.csv", "examples/t*/*.csv")]


def load_tests() -> list[bytes]:
    """Reports of load tools."""
    return [json.dumps(_VLLM).encode(), *_files("examples/load-curve.csv")]


def traces() -> list[bytes]:
    """Traces of a profiler and of Ray."""
    steps = [_event(f"ProfilerStep#{i}", "user_annotation", 1000 * i, 990, 1) for i in range(5)]
    kernels = [
        _event(name, "kernel", 1000 * i + at, 300, 0)
        for i in range(5)
        for name, at in (("gemm", 10), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200), ("relu", 600))
    ]
    info = {"rank": 0, "world_size": 8}
    whole = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": steps + kernels}
    ray = [
        {
            "cat": "task::train_step",
            "name": "train_step",
            "ph": "X",
            "pid": "node:1",
            "tid": "w:1",
            "ts": 1,
            "dur": 2,
        }
    ]
    return [json.dumps(whole).encode(), json.dumps(ray).encode()]


def _event(name: str, category: str, at: float, long: float, process: int) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": long, "pid": process, "tid": 7}


def results() -> list[bytes]:
    """Saved results of cheap verbs."""
    import contextlib
    import io

    from perfmodel.cli.main import main

    made = []
    for words in (
        ["predict", "-w", "resnet50", "-c", "dgx-a100", "-k", "1,8", "--draws", "20"],
        ["study", str(ROOT / "examples/textbook/rubric.csv")],
        ["audit", str(ROOT / "examples/vendor-slide.yaml")],
        ["law", "amdahl", "--serial", "0.05", "-k", "1..8"],
        ["collective", "all_reduce", "--bytes", "1 MB", "--ranks", "8", "-c", "dgx-a100"],
    ):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main([*words, "--format", "json"])
        made.append(out.getvalue().encode())
    return made


def imports() -> list[bytes]:
    """Configurations of every framework that is read."""
    yaml = YAML(typ="safe")
    found = []
    for path in sorted((ROOT / "tests/frameworks/cases").glob("*.yaml")):
        for case in yaml.load(path.read_text())[:3]:
            text = case.get("text")
            if isinstance(text, str):
                found.append(text.encode())
    return found


def models() -> list[bytes]:
    """Configurations of models from a hub."""
    known = json.loads((ROOT / "tests/workloads/hf_configs.json").read_text())
    return [json.dumps(item["config"]).encode() for item in known.values()]


def graphs() -> list[bytes]:
    """Graphs of operations."""
    return [
        b"digraph { a [time_s=1]; b; a -> b }",
        b"name,time_s,after\na,1,\nb,2,a\n",
        *_files("examples/textbook/*.dot"),
    ]


def beliefs() -> list[bytes]:
    """Beliefs after a calibration."""
    import contextlib
    import io
    import tempfile

    from perfmodel.cli.main import main

    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        table, target = Path(name, "t.csv"), Path(name, "b.json")
        table.write_text("k,time_s\n1,6\n2,3.1\n")
        main(
            [
                "calibrate",
                "-w",
                "resnet50",
                "-c",
                "dgx-a100",
                "--global-batch",
                "2048",
                "--timings",
                str(table),
                "-o",
                str(target),
            ]
        )
        return [target.read_bytes()]


UNITS = [
    b"80 GB",
    b"3 TB/s",
    b"2.5 us",
    b"400 Gb/s",
    b"2 USD/h",
    b"990 TFLOP/s",
    b"1e-3 s",
    b"50000 h",
    b"300 g/kWh",
]
POLICIES = [
    b"knee >= 64",
    b"efficiency(k=64) >= 0.7",
    b"time(k=128) <= 6 s",
    b"cost <= 150000 USD",
    b"memory <= 96 %",
    b"change(time, k=64) <= 5 %",
    b"change(knee) >= -1 step",
]
SWEEPS = [
    b"# nThread 1 nGpus 1\n# Rank  0 Pid 1 on a device 0 [0x07] X\n#  size count type redop root time algbw busbw #wrong\n"
    b"8 2 float sum -1 10.0 0.1 0.2 0 9.0 0.1 0.2 0\n1024 256 float sum -1 12.0 0.1 0.2 0 11.0 0.1 0.2 0\n",
    b"# OSU MPI Allreduce Latency Test v7.4\nmpirun -np 4 x\n# Size       Avg Latency(us)\n4   3.5\n1024   9.5\n",
    b"---- Performance of all_reduce on 8 devices ----\n4.0 MB 1048576x4 200.0 us 160.0 280.0\n",
    b"| payload | busbw | algbw |\n| 4KiB | 1GBps | 1GBps |\n",
    b"COMMS-RES-all_reduce-float 4 1 1 1 1 1 1 1 1\n",
    b"size(MB) avgbw(GB/sec) maxbw minbw\n8.0 1 1 1\n",
]
TRAINING = [
    b"using world size: 64, data-parallel size: 8\n"
    + b" [2025-04-13 23:41:12] iteration 1/ 9 | consumed samples: 256 | elapsed time per iteration (ms): 5.0 | global batch size: 256 |\n"
    * 4,
    b"[rank0]:[titan] 2025-04-13 23:40:01,001 - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [16, 4]\n"
    b"[rank0]:[titan] 2025-04-13 23:41:01,001 - root - INFO - step:  1  loss: 2  tps: 5,000  tflops: 1.0  mfu: 2.00%\n"
    b"[rank0]:[titan] 2025-04-13 23:41:11,001 - root - INFO - step:  2  loss: 2  tps: 5,000  tflops: 1.0  mfu: 2.00%\n",
    b"GPU available: True\nEpoch 0: 11%| 1/9 [00:01<00:08, 1.0it/s, train_step_timing in s=1.5]\n" * 3,
    b"***** Running training *****\n  Total train batch size (w. parallel) = 8\n 11%| 1/9 [00:01<00:08, 1.00s/it]\n",
]
DEVICES = [
    b"timestamp, index, power.draw [W]\n2024/01/01 00:00:00.0, 0, 5.00 W\n2024/01/01 00:00:01.0, 0, 6.00 W\n",
    b"#Entity   POWER\nID W\nGPU 0 6.5\nGPU 0 7.5\n",
    b"rank,step,time_s\n0,1,0.5\n1,1,0.6\n",
    b"step,rank0,rank1\n1,0.5,0.6\n",
    b'{"rank": 0, "step": 1, "time_s": 2}\n{"rank": 1, "step": 1, "time_s": 3}\n',
    b"JobID|JobName|Elapsed|NTasks|State\n1|a|00:01:00|4|COMPLETED\n2|a|1-00:01:00|8|COMPLETED\n",
]
TABLES = [
    b"0.5\n0.51\n0.49\n0.52\n0.5\n0.55\n0.5\n0.5\n",
    b"step,time_s\n1,0.5\n2,0.6\n3,0.55\n",
    b"regime,price_usd_per_h,utilisation\non-demand,3.20,\nowned,60%,0.5\n",
    b"timestamp,project_name,duration,emissions,energy_consumed,gpu_count\n2024-01-01,p,10,0.1,0.2,8\n",
]
ARGUMENTS = [
    b"--serial\n0.01,0.05\n-k\n1..512",
    b"price={per_accelerator: 2 USD/h}\nsteps=100",
    b"--bytes\n1 MB\n--ranks\n8\n-c\ndgx-a100",
    b"layout={tp: 2, pp: 4}\njitter={distribution: lognormal, spread: 0.02}",
    b"reliability={mtbf_per_accelerator: 50000 h, checkpoint: 60 s, restart: 300 s}",
]
BODIES = [
    b'{"workload": "resnet50", "cluster": "dgx-a100", "k": "1..64"}',
    b'{"workload": "llama3-8b", "cluster": "dgx-h100", "k": "8", "layout": {"tp": 2, "sharding": "zero1"}, "price": 2.1}',
    b'{"a": {"workload": "resnet50", "cluster": "dgx-a100"}, "b": {"workload": "resnet50", "cluster": "dgx-1v"}}',
    b'{"job": {"workload": "resnet50", "cluster": "dgx-a100"}, "timings": "k,time_s\\n1,5\\n8,0.9\\n"}',
    b'{"workload": "gpt2-xl", "cluster": "dgx-a100", "k": "8..64", "global_batch": 64, "jitter": 0.03, "steps": 10, "fixed": 12.5}',
]
NSYS = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'), (100, 'step 0'), (101, 'step 1'), (102, 'step 2');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, shortName INTEGER, globalPid INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 600000, 0, 7, 1, 1), (600000, 800000, 0, 7, 2, 1), (1000000, 1600000, 0, 7, 1, 1), (2000000, 2600000, 0, 7, 1, 1);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, copyKind INTEGER, bytes INTEGER, globalPid INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (10, 20000, 0, 1, 4096, 1);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
INSERT INTO NVTX_EVENTS VALUES (0, 900000, 59, NULL, 100, 8), (1000000, 1900000, 59, NULL, 101, 8), (2000000, 2900000, 59, 'step 2', NULL, 8);
"""
_VLLM = {
    "backend": "vllm", "model_id": "m", "request_rate": "inf", "max_concurrency": 16, "duration": 20.0, "completed": 100,
    "total_input_tokens": 50000, "total_output_tokens": 20000, "request_throughput": 5.0, "output_throughput": 1000.0,
    "mean_ttft_ms": 200.0, "median_ttft_ms": 150.0, "p99_ttft_ms": 900.0, "mean_tpot_ms": 12.0, "p99_tpot_ms": 20.0,
}  # fmt: skip
_CLUSTER = b"""node: hgx-a100
nics_per_node: 4
scale_out: {name: roce-100, latency: 3 us, bandwidth: 12.5 GB/s}
topology: {kind: rail, oversubscription: 1}
"""
_GATE = b"""jobs:
  a: {workload: resnet50, cluster: dgx-a100, global_batch: 2048, k: "8,64"}
policies:
  - knee >= 64
  - {expression: time(k=64) <= 6 s, reason: soon}
  - cost <= 150000 USD
"""
_JOBS = (
    b"workload: llama3-8b\ncluster: dgx-h100\nprecision: bf16\nseq_len: 8192\nregime: strong\nglobal_batch: 512\n"
    b"layout: {sharding: fsdp, tp: 2, recompute: full}\nk: 8..64\nsteps: 1000\nprice: {regime: on-demand, fixed: 12 USD/h}\n"
    b"grid: US-VA\njitter: {distribution: lognormal, spread: 0.02}\n"
    b"reliability: {mtbf_per_accelerator: 50000 h, checkpoint: 60 s, restart: 300 s}\n",
    b"workload: {flop_per_sample: 4e12, bytes_per_sample: 1 GB, params: 2.5e7, sample: image}\ncluster: dgx-a100\n"
    b"regime: weak\nbatch_per_accelerator: 32\nk: [1, 2, 4]\nprice: {per_accelerator: 2.10 USD/h}\n",
    b"workload: bert-large\ncluster:\n  node: hgx-a100\n  nics_per_node: 4\n"
    b"  scale_out: {name: roce-100, latency: 3 us, bandwidth: 12.5 GB/s}\nk: 1..16\nglobal_batch: 256\nstack: {attention: flash}\n",
)
