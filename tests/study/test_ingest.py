"""Studies of what runs leave behind: traces, logs, power; each rejected line with its number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from perfmodel.errors import SpecError
from perfmodel.study.ingest import gather, joined
from perfmodel.study.rubric import study_file
from perfmodel.study.table import parse_timings


def write_trace(path: Path, rank: int, world: int | None, compute_ms: float, exposed_ms: float) -> Path:
    """Seven steps, the first three times as long: compute, exposed all-reduce, 2 ms of loading, 1 ms of nothing."""
    events: list[dict[str, object]] = []
    at = 0.0

    def span(cat: str, name: str, length_ms: float) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": name, "ts": at, "dur": 1e3 * length_ms, "pid": 0, "tid": 7}
        )

    for step in range(7):
        begin, factor = at, 3.0 if step == 0 else 1.0
        for cat, name, length in (
            ("user_annotation", "enumerate(DataLoader)#x.__next__", 2.0),
            ("kernel", "gemm", compute_ms * factor),
            ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", exposed_ms),
            ("", "", 1.0),
        ):
            if cat and length:
                span(cat, name, length)
            at += 1e3 * length
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin,
             "dur": at - begin, "pid": 0, "tid": 1}
        )  # fmt: skip
    data: dict[str, object] = {"traceEvents": events}
    if world is not None:
        data["distributedInfo"] = {"rank": rank, "world_size": world}
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """K = 1, 2 and 4: compute is divided, the exchange grows; rank 1 of K = 2 is 1 ms slower."""
    write_trace(tmp_path / "one.json", 0, 1, 80.0, 0.0)
    for rank in range(2):
        write_trace(tmp_path / f"two_rank{rank}.json", rank, 2, 40.0 + rank, 6.0 - rank)
    (tmp_path / "k4").mkdir()
    for rank in range(4):
        write_trace(tmp_path / "k4" / f"rank{rank}.json", rank, None, 20.0, 12.0)
    return tmp_path


def test_a_folder_of_traces_is_a_study_with_parts(traces: Path) -> None:
    found = study_file(traces).envelope()["result"]
    assert found["k"] == [1, 2, 4]
    assert found["repeats"] == [6, 6, 6]
    assert found["mean_s"] == pytest.approx([0.083, 0.049, 0.035], rel=1e-6)
    assert found["parts_s"]["compute"] == pytest.approx([0.080, 0.0405, 0.020])
    assert found["parts_s"]["communication"] == pytest.approx([0.0, 0.0055, 0.012])
    assert found["parts_s"]["io"] == pytest.approx([0.002] * 3)
    assert found["parts_s"]["idle"] == pytest.approx([0.001] * 3)
    assert found["bend"]["leading_loss"] == "communication"
    assert len(found["readings"]) == 7
    assert any("warm-up left out" in note for note in found["notes"])


def test_one_rank_of_unknown_many_is_refused_unless_its_name_tells(tmp_path: Path) -> None:
    lonely = write_trace(tmp_path / "rank0.json", 0, None, 20.0, 5.0)
    with pytest.raises(SpecError, match="with how many others"):
        gather([lonely])
    named = lonely.rename(tmp_path / "trace_k8.json")
    assert set(gather([named]).timings.k) == {8.0}
    alone = write_trace(tmp_path / "alone.json", 0, None, 20.0, 0.0)
    assert set(gather([alone]).timings.k) == {1.0}


def test_traces_and_tables_together_lose_what_one_of_them_lacks(traces: Path) -> None:
    (traces / "eight.csv").write_text("k,time_s,quality\n8,0.03,0.7\n8,0.031,0.7\n")
    found = gather([traces / "k4", traces / "one.json", traces / "eight.csv"]).timings
    assert sorted(set(found.k)) == [1.0, 4.0, 8.0]
    assert found.parts_s == {}
    assert np.isnan(found.columns["quality"]).sum() == 12
    with_parts = joined([gather([traces / "k4"]).timings, gather([traces / "one.json"]).timings])
    assert set(with_parts.parts_s) == {"compute", "communication", "idle", "io"}


def test_energy_from_power_logs(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,time_s\n1,100\n1,102\n4,30\n")
    for k, watts in ((1, 400.0), (4, 350.0)):
        rows = [f"{t}.0,{gpu},{watts}" for t in range(1_700_000_000, 1_700_000_030) for gpu in range(k)]
        rows[2] = "torn"
        (tmp_path / f"p{k}.csv").write_text("\n".join(["timestamp,gpu,power.draw [W]", *rows]) + "\n")
    found = study_file(tmp_path / "t.csv", power=[f"1={tmp_path}/p1.csv", f"4={tmp_path}/p4.csv"])
    result = found.envelope()["result"]
    assert result["energy_j"] == pytest.approx([400.0 * 101.0, 4 * 350.0 * 30.0])
    assert result["energy"]["mean_power_w"] == pytest.approx([400.0, 1400.0])
    assert [row["source"].endswith(f"p{row['k']}.csv") for row in result["power"]] == [True, True]
    assert [(row["rejected"], row["rejected_lines"]) for row in result["readings"]] == [(1, "4"), (1, "4")]
    assert [row["line"] for row in result["rejected"]] == [4, 4]


def test_energy_of_the_table_is_kept_and_a_foreign_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,time_s,energy_j\n1,10,5000\n2,6,\n")
    rows = [f"{t}.0,{gpu},300" for t in range(1_700_000_000, 1_700_000_030) for gpu in range(2)]
    (tmp_path / "p.csv").write_text("\n".join(["timestamp,gpu,power.draw [W]", *rows]) + "\n")
    found = gather([tmp_path / "t.csv"], power=[str(tmp_path / "p.csv")])
    assert found.timings.columns["energy_j"].tolist() == [5000.0, 2 * 300.0 * 6.0]
    with pytest.raises(SpecError, match="a power log of K=8, but the timings are of K=1, 2"):
        gather([tmp_path / "t.csv"], power=[f"8={tmp_path / 'p.csv'}"])


def test_every_rejected_line_has_its_number_however_many(tmp_path: Path) -> None:
    good = "iteration {i}/ 500 | consumed samples: 1 | elapsed time per iteration (ms): 100.0 | global batch size: 64 |"
    lines = ["world size: 8", *(good.format(i=i) for i in range(1, 50))]
    lines[5:5] = ["iteration 3/ 500 | elapsed time per iteration (ms): NaN | x"] * 300
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    found = gather([tmp_path / "run.log"])
    assert set(found.timings.k) == {8.0}
    (reading,) = found.as_json()["readings"]
    assert reading["rejected"] == 300
    assert reading["rejected_lines"] == "6-305"


def test_per_rank_times_are_runs_whose_slowest_rank_counts(tmp_path: Path) -> None:
    for k, base in ((2, 0.5), (4, 0.3)):
        rows = [f"{rank},{step},{base + 0.01 * rank}" for step in range(40) for rank in range(k)]
        (tmp_path / f"ranks{k}.txt").write_text("\n".join(["rank,step,time_s", *rows, "torn"]) + "\n")
    found = study_file(tmp_path).envelope()["result"]
    assert found["k"] == [2, 4]
    assert found["mean_s"] == pytest.approx([0.51, 0.33])
    assert found["repeats"] == [10, 10]
    assert [row["rejected_lines"] for row in found["readings"]] == ["82", "162"]


def test_a_plain_table_is_read_as_ever() -> None:
    table = parse_timings("k,time_s\n1,10\n")
    assert joined([table, table]).rows == 2
