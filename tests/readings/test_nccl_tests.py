"""nccl-tests logs: written here as the tool writes them, then read back, whole, cut and damaged."""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from perfmodel.calibrate.sweep_fit import fit_sweep
from perfmodel.readings.nccl_tests import read_nccl_tests
from perfmodel.readings.sweeps import bus_factor

CORPUS = Path(__file__).parents[2] / "validation" / "measured" / "collectives.csv"
PROGRAM = {"all_to_all": "alltoall", "send_recv": "sendrecv"}
REDUCES = ("all_reduce", "reduce_scatter", "reduce")


def printed(value: float, width: int) -> str:
    """A number in at most `width` characters, as nccl-tests prints it."""
    for digits in (2, 1, 0):
        text = f"{value:{width}.{digits}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}"


def write_run(op, ranks, nodes, points, *, style="modern", prefix="", algorithm=None, in_place=1.0):
    """The lines of one run. Styles: modern (banner names the test), plain (2.10), old (no root), rccl."""
    program = f"{PROGRAM.get(op, op)}_perf"
    lines = []
    command = f"{f'NCCL_ALGO={algorithm} ' if algorithm else ''}mpirun -np {ranks} ./build/{program} -b 8 -e 8G -f 2 -g 1"
    if style == "modern":
        lines += [
            "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807",
            f"# Collective test starting: {program}",
        ]
    elif style == "rccl":
        lines += ["rccl-tests: Version develop:448c4c7", f"$ {command}"]
    else:
        lines += [f"$ {command}"]
    if algorithm and style == "modern":
        lines.insert(0, f"$ {command}")
    lines += [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1",
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        group = "Group  0 " if style == "modern" else ""
        host = f"node{rank * nodes // ranks:02d}"
        lines.append(
            f"#  Rank {rank:2d} {group}Pid {1000 + rank} on {host:>10} device {rank % 8:2d} [0x{7 + rank % 8:02x}] NVIDIA H100 80GB HBM3"
        )
    redop = "sum" if op in REDUCES else "none"
    has_root = style != "old"
    names = "type   redop    root" if has_root else ("type   redop" if redop == "sum" else "type")
    lines += [
        "#",
        "#                                                              out-of-place                       in-place          ",
        f"#       size         count      {names}     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    for size, time in points:
        middle = (
            f"float {redop:>7} {-1:7d}" if has_root else (f"float {redop:>7}" if redop == "sum" else "float")
        )
        groups = ""
        for scale in (1.0, in_place):
            rate = size / (time * scale) / 1e9
            bus = rate * bus_factor(op, ranks)
            wrong = "0e+00" if style == "old" else "0"
            groups += f"  {printed(time * scale * 1e6, 7)} {printed(rate, 6)} {printed(bus, 6)} {wrong:>6}"
        lines.append(f"{int(size):12d} {int(size) // 4:13d} {middle} {groups}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 41.1", "#"]
    if style == "modern":
        lines.append(f"# Collective test concluded: {program}")
    return [prefix + line for line in lines]


POINTS = [(2.0**n, 2.5e-5 + 2.0**n / 2e11) for n in range(3, 34)]


def save(tmp_path, lines, name="run.log"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def adds_up(reading):
    return reading.used + reading.ignored + reading.rejected_count == reading.lines


@pytest.mark.parametrize("style", ["modern", "plain", "old", "rccl"])
@pytest.mark.parametrize(
    "op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv"]
)
def test_every_collective_in_every_style(tmp_path, style, op):
    log = read_nccl_tests(save(tmp_path, write_run(op, 16, 2, POINTS, style=style, in_place=1.02)))
    out, inside = log.sweeps
    assert (out.op, out.ranks, out.nodes, out.placement, inside.placement) == (
        op,
        16,
        2,
        "out_of_place",
        "in_place",
    )
    assert out.bytes.tolist() == [size for size, _ in POINTS]
    np.testing.assert_allclose(out.time_s, [time for _, time in POINTS], rtol=3e-4)
    np.testing.assert_allclose(inside.time_s, [1.02 * time for _, time in POINTS], rtol=3e-4)
    assert out.device == "NVIDIA H100 80GB HBM3"
    assert log.rejected_count == 0
    assert adds_up(log)


def test_several_runs_warnings_and_launcher_prefixes(tmp_path):
    lines = write_run("all_reduce", 8, 1, POINTS, prefix="[1,0]<stdout>:")
    lines.insert(9, "[1,3]<stderr>:node00:123:456 [3] NCCL INFO NET/OFI Selected Provider is efa")
    lines.insert(
        12,
        "[1,3]<stderr>:node00:123:456 [3] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : port error",
    )
    lines += write_run("all_gather", 8, 1, POINTS[:20], prefix="[1,0]<stdout>:")
    lines += write_run("all_reduce", 16, 2, POINTS, style="plain", algorithm="Ring")
    log = read_nccl_tests(save(tmp_path, lines))
    seen = [(s.op, s.ranks, s.bytes.size) for s in log.sweeps if s.placement == "out_of_place"]
    assert seen == [("all_reduce", 8, 31), ("all_gather", 8, 20), ("all_reduce", 16, 31)]
    assert log.sweeps[-1].algorithm == "Ring"
    assert len(log.warnings) == 1
    assert log.warnings[0].startswith("13:")
    assert log.rejected_count == 0


def test_repeated_sizes_become_their_median(tmp_path):
    points = [(4096.0, 1e-5), (4096.0, 3e-5), (4096.0, 1.2e-5), (8192.0, 2e-5)]
    sweep = read_nccl_tests(save(tmp_path, write_run("all_reduce", 8, 1, points))).sweeps[0]
    np.testing.assert_allclose(sweep.time_s, [1.2e-5, 2e-5])
    assert sweep.repeats.tolist() == [3, 1]


def test_bad_rows_are_rejected_with_their_line_and_reason(tmp_path):
    lines = write_run("all_reduce", 8, 1, POINTS[:6])
    first = next(index for index, line in enumerate(lines) if line.lstrip()[:1].isdigit())
    lines[first] = lines[first].replace(" 0 ", " 7 ", 1)
    lines[first + 1] = lines[first + 1][:60]
    lines[first + 2] = lines[first + 2].replace("25.00", "N/A", 1)
    lines.insert(first + 4, "Segmentation fault (core dumped)")
    log = read_nccl_tests(save(tmp_path, lines))
    assert [(item.line - first, item.reason.split(":")[0]) for item in log.rejected] == [
        (1, "7 wrong elements"),
        (2, "the row has 6 of 13 columns"),
        (3, "time or bandwidth is not a number above zero"),
        (5, "not a line of nccl-tests"),
    ]
    assert log.sweeps[0].bytes.size == 3
    assert adds_up(log)


def test_a_log_without_names_is_settled_by_its_numbers_or_refused(tmp_path):
    rows = [line for line in write_run("all_reduce", 8, 1, POINTS) if line.lstrip()[:1].isdigit()]
    inferred = read_nccl_tests(save(tmp_path, rows), op="all_reduce")
    assert inferred.sweeps[0].ranks == 8
    assert "inferred" in inferred.notes[0]
    assert read_nccl_tests(save(tmp_path, rows), ranks=8).sweeps[0].op == "all_reduce"
    assert read_nccl_tests(save(tmp_path, rows, "all_reduce_perf.log")).sweeps[0].op == "all_reduce"
    alike = [line for line in write_run("all_gather", 8, 1, POINTS) if line.lstrip()[:1].isdigit()]
    refused = read_nccl_tests(save(tmp_path, alike), ranks=8)
    assert refused.sweeps == ()
    assert refused.rejected_count == len(alike)
    assert "give --nccl-op" in refused.rejected[0].reason


@pytest.mark.parametrize("seed", range(40))
def test_damage_never_crashes_and_every_line_is_accounted_for(tmp_path, seed):
    rng = random.Random(seed)
    lines = write_run("all_reduce", 8, 1, POINTS) + write_run("all_gather", 16, 2, POINTS, style="old")
    data = bytearray("\n".join(lines).encode())
    for _ in range(rng.randrange(1, 60)):
        at = rng.randrange(len(data))
        action = rng.randrange(3)
        if action == 0:
            data[at] = rng.randrange(256)
        elif action == 1:
            del data[at : at + rng.randrange(80)]
        else:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(20)))
    path = tmp_path / "damaged.log"
    path.write_bytes(bytes(data[: rng.randrange(len(data))]))
    log = read_nccl_tests(path)
    assert adds_up(log)
    for sweep in log.sweeps:
        assert np.all(sweep.time_s > 0)
        assert np.all(np.diff(sweep.bytes) > 0)


def corpus_sweeps():
    groups = defaultdict(list)
    with CORPUS.open() as file:
        for row in csv.DictReader(file):
            groups[row["sweep"], row["op"], int(row["ranks"]), int(row["nodes"] or 1)].append(
                (float(row["bytes"]), float(row["time_s"]))
            )
    return groups


def test_the_measured_corpus_survives_the_round_trip(tmp_path):
    for (name, op, ranks, nodes), points in corpus_sweeps().items():
        log = read_nccl_tests(save(tmp_path, write_run(op, ranks, nodes, points)))
        expected = defaultdict(list)
        for size, time in points:
            expected[size].append(time)
        sweep = log.sweeps[0]
        assert (sweep.op, sweep.ranks) == (op, ranks), name
        np.testing.assert_allclose(sweep.bytes, sorted(expected))
        np.testing.assert_allclose(
            sweep.time_s, [np.median(expected[size]) for size in sorted(expected)], rtol=2e-3
        )


def test_sweeps_read_from_logs_are_fitted_within_eight_percent(tmp_path):
    """Median error of the fit over every point of 8 KiB and more, all sweeps of the corpus."""
    errors = []
    for (_, op, ranks, nodes), points in corpus_sweeps().items():
        sweep = read_nccl_tests(save(tmp_path, write_run(op, ranks, nodes, points))).sweeps[0]
        found = fit_sweep(sweep.op, sweep.bytes, sweep.time_s, sweep.ranks, sweep.nodes)
        large = sweep.bytes >= 8192
        errors.append(np.abs(found.time_s(sweep.bytes[large]) / sweep.time_s[large] - 1.0))
    errors = np.concatenate(errors)
    assert errors.size > 1800
    assert np.median(errors) <= 0.08


@pytest.mark.parametrize(
    ("size", "seconds", "why"),
    [(1e30, 1.0, "a message of 1e+30 bytes"), (2.0**20, 1e9, "a call of 1e+09 s"), (2.0**30, 2e-6, "B/s")],
)
def test_a_timing_that_no_collective_can_have_is_rejected_by_its_line(tmp_path, size, seconds, why):
    good = [(2.0**power, 2e-5 + 2.0**power / 1e11) for power in range(13, 20)]
    text = "\n".join(write_run("all_reduce", 8, 1, good))
    row = (
        f"  {size:.0f}  4  float  sum  -1  {seconds * 1e6:.2f}  1.0  1.0  0  {seconds * 1e6:.2f}  1.0  1.0  0"
    )
    found = read_nccl_tests(save(tmp_path, [*text.split("\n"), row], "all_reduce_perf.log"))
    assert len(found.sweeps[0].bytes) == len(good)
    assert any(why in one.reason for one in found.rejected)
