"""OSU, DeepSpeed, IBM, markdown and PARAM tables, written as those tools write them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from perfmodel.readings.comm_tables import read_comm_tables
from perfmodel.readings.osu import read_osu
from perfmodel.readings.sweeps import bus_factor

SIZES = [2.0**n for n in range(10, 28)]


def seconds(size: float) -> float:
    return 2e-5 + size / 8e10


def osu_table(title: str, sizes, *, full=True, version="v7.4", scale=1) -> list[str]:
    lines = [f"# OSU MPI {title} {version}", "# Datatype: MPI_CHAR."]
    if full:
        lines.append("# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations")
        lines += [
            f"{int(s):<8}{seconds(s * scale) * 1e6:22.2f}{seconds(s * scale) * 9e5:18.2f}{seconds(s * scale) * 1.1e6:18.2f}{100:12d}"
            for s in sizes
        ]
    else:
        lines.append("# Size       Avg Latency(us)")
        lines += [f"{int(s):<8}{seconds(s * scale) * 1e6:22.2f}" for s in sizes]
    return lines


def deepspeed_table(op: str, ranks: int, *, raw: bool) -> list[str]:
    lines = [
        "",
        f"---- Performance of {op} on {ranks} devices ---------------------------------------------------------",
        f"{'Size (Bytes)':20s} {'Description':25s} {'Duration' + (' (us)' if raw else ''):20s} {'Throughput (Gbps)':20s} {'BusBW (Gbps)':20s}",
        "-" * 100,
    ]
    for size in SIZES:
        whole = size * ranks if op == "all_gather" else size
        time = seconds(whole)
        duration = (
            f"{time * 1e6:.3f}"
            if raw
            else (f"{time * 1e6:.3f} us" if time < 1e-3 else f"{time * 1e3:.3f} ms")
        )
        shown = (
            str(int(size)) if raw else f"{size / 2**20:.2f} MB" if size >= 2**20 else f"{size / 2**10:.2f} KB"
        )
        lines.append(
            f"{shown:<20} {f'{int(size) // 4}x4':25s} {duration:20s} {size * 8e-9 / time:<20.3f} {size * 7e-9 / time:<20.3f}"
        )
    return lines


def write(tmp_path, lines, name="bench.log"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def adds_up(reading):
    return reading.used + reading.ignored + reading.rejected_count == reading.lines


@pytest.mark.parametrize(
    ("title", "op", "per_rank"),
    [
        ("Allreduce Latency Test", "all_reduce", False),
        ("Allgather Latency Test", "all_gather", True),
        ("All-to-All Personalized Exchange Latency Test", "all_to_all", True),
        ("Reduce_scatter Latency Test", "reduce_scatter", False),
        ("Broadcast Latency Test", "broadcast", False),
        ("Reduce Latency Test", "reduce", False),
    ],
)
@pytest.mark.parametrize("full", [True, False])
def test_osu_collectives_count_the_whole_vector(tmp_path, title, op, per_rank, full):
    scale = 16 if per_rank else 1
    lines = ["$ mpirun -np 16 --hostfile hosts ./osu_x", *osu_table(title, SIZES, full=full, scale=scale)]
    log = read_osu(write(tmp_path, lines))
    (sweep,) = log.sweeps
    assert (sweep.op, sweep.ranks) == (op, 16)
    np.testing.assert_allclose(sweep.bytes, np.array(SIZES) * scale)
    np.testing.assert_allclose(sweep.time_s, seconds(np.array(SIZES) * scale), rtol=1e-3)
    assert log.rejected_count == 0


def test_osu_point_to_point_and_what_cannot_be_used(tmp_path):
    lines = [
        "# OSU MPI-CUDA Latency Test v5.9",
        "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)",
        "# Size          Latency (us)",
        *(f"{int(s):<10}{seconds(s) * 1e6:18.2f}" for s in SIZES),
        "# OSU MPI Bandwidth Test v7.4",
        "# Size      Bandwidth (MB/s)",
        *(f"{int(s):<10}{s / seconds(s) / 1e6:18.2f}" for s in SIZES),
        "# OSU MPI Bi-Directional Bandwidth Test v7.4",
        "# Size      Bandwidth (MB/s)",
        "1024        99.0",
    ]
    log = read_osu(write(tmp_path, lines))
    assert [sweep.op for sweep in log.sweeps] == ["send_recv", "send_recv"]
    for sweep in log.sweeps:
        np.testing.assert_allclose(sweep.time_s, seconds(np.array(SIZES)), rtol=1e-3)
    assert [item.text for item in log.rejected] == ["1024        99.0"]
    assert adds_up(log)


def test_osu_without_ranks_says_what_to_pass(tmp_path):
    path = write(tmp_path, osu_table("Allreduce Latency Test", SIZES))
    log = read_osu(path)
    assert log.sweeps == ()
    assert log.rejected_count == len(SIZES)
    assert "give --nccl-ranks" in log.rejected[0].reason
    assert read_osu(path, ranks=4).sweeps[0].ranks == 4


@pytest.mark.parametrize("raw", [True, False])
def test_deepspeed_tables(tmp_path, raw):
    log = read_comm_tables(
        write(
            tmp_path, deepspeed_table("all_reduce", 16, raw=raw) + deepspeed_table("all_gather", 8, raw=raw)
        )
    )
    reduce, gather = log.sweeps
    assert (reduce.op, reduce.ranks, gather.op, gather.ranks) == ("all_reduce", 16, "all_gather", 8)
    np.testing.assert_allclose(reduce.bytes, SIZES)
    np.testing.assert_allclose(gather.bytes, np.array(SIZES) * 8)
    for sweep in log.sweeps:
        np.testing.assert_allclose(sweep.time_s, seconds(sweep.bytes), rtol=1e-3)
    assert log.rejected_count == 0


def ibm_table(ranks: int, op: str) -> list[str]:
    lines = ["NCCL version :  (2, 19, 3)", "size(MB)   avgbw(GB/sec)   maxbw(GB/sec)   minbw(GB/sec)"]
    for megabytes in (8.0, 31.6, 100.0, 1000.0, 10000.0):
        size = megabytes * 1e6
        bus = size * bus_factor(op, ranks) / seconds(size) / 1e9
        lines.append(f"{megabytes:7.1f}      {bus:6.1f}         {bus * 1.05:6.1f}          {bus * 0.9:6.1f}")
    return lines


def test_ibm_tables_take_operation_from_script_and_ranks_from_launch(tmp_path):
    lines = ["$ mpirun -np 64 helper.sh python reduce-scatter-loop.py", *ibm_table(64, "reduce_scatter")]
    (sweep,) = read_comm_tables(write(tmp_path, lines)).sweeps
    assert (sweep.op, sweep.ranks) == ("reduce_scatter", 64)
    np.testing.assert_allclose(sweep.time_s, seconds(sweep.bytes), rtol=2e-3)
    unnamed = read_comm_tables(write(tmp_path, ibm_table(64, "all_reduce")))
    assert unnamed.sweeps == ()
    assert unnamed.rejected_count == 5
    given = read_comm_tables(write(tmp_path, ibm_table(64, "all_reduce")), op="all_reduce", ranks=64)
    np.testing.assert_allclose(given.sweeps[0].time_s, seconds(given.sweeps[0].bytes), rtol=2e-3)


def test_markdown_and_param_tables(tmp_path):
    lines = [
        "The average bandwidth of all_reduce over 32 ranks (5 warmups / 20 trials):",
        "",
        "| payload |    busbw   |    algbw   |",
        "| ------: | ---------: | ---------: |",
    ]
    for exponent in range(15, 35):
        rate = 2.0**exponent / seconds(2.0**exponent) / 1e9
        unit = f"{2 ** (exponent % 10)}{'KMG'[exponent // 10 - 1]}iB"
        lines.append(f"| {unit:>7} | {rate * bus_factor('all_reduce', 32):6.2f}GBps | {rate:6.2f}GBps |")
    (sweep,) = read_comm_tables(write(tmp_path, lines)).sweeps
    assert (sweep.ranks, sweep.bytes[0], sweep.bytes[-1]) == (32, 2.0**15, 2.0**34)
    np.testing.assert_allclose(sweep.time_s, seconds(sweep.bytes), rtol=6e-3)

    lines = [
        "$ torchrun --nproc_per_node 8 comms.py",
        "\tCOMMS-RES\tsize (B)  nElementsPerRank  Latency(us):p50  p75  p95  Min  Max  AlgBW(GB/s)  BusBW(GB/s)",
    ]
    for size in SIZES:
        us = seconds(size) * 1e6
        lines.append(
            f"\tCOMMS-RES-all_reduce-float32 {int(size):12d}{int(size) // 4:12d}{us:14.2f}{us:9.2f}{us:9.2f}{us:9.2f}{us:9.2f}{size / us / 1e3:10.3f}{size / us / 571:10.3f}"
        )
    (sweep,) = read_comm_tables(write(tmp_path, lines)).sweeps
    assert (sweep.op, sweep.ranks) == ("all_reduce", 8)
    np.testing.assert_allclose(sweep.time_s, seconds(sweep.bytes), rtol=1e-3)


@pytest.mark.parametrize("seed", range(25))
def test_damaged_tables_are_counted_not_fatal(tmp_path, seed):
    rng = random.Random(seed)
    lines = [
        "$ mpirun -np 8 x",
        *deepspeed_table("all_reduce", 8, raw=False),
        *ibm_table(8, "all_reduce"),
        *osu_table("Allreduce Latency Test", SIZES),
    ]
    data = bytearray("\n".join(lines).encode())
    for _ in range(30):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path = tmp_path / "damaged.log"
    path.write_bytes(bytes(data[: rng.randrange(200, len(data))]))
    for read in (read_comm_tables, read_osu):
        log = read(path, op="all_reduce", ranks=8)
        assert adds_up(log)
        assert all(np.all(sweep.time_s > 0) for sweep in log.sweeps)
