"""`perfmodel plan` from the shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.cli.main import main
from perfmodel.decide.plan import backends as runners
from perfmodel.decide.plan import search

BASE = ("-w", "llama3-8b", "-c", "dgx-h100", "-k", "8..64", "--global-batch", "128")
QUICK = ("--set", "steps=1000", "--bounds", "max_tp=4,max_pp=4,max_vpp=2,max_micro_batch=8")


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["plan", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def result(out: str) -> dict[str, Any]:
    return dict(json.loads(out)["result"])


def test_table_says_the_answer_first_and_ticks_the_choice(plan: Any) -> None:
    code, out, err = plan(*BASE, *QUICK, "--deadline", "1 day", "--full")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert words.startswith("Plan: llama3-8b on dgx-h100, least cost Cheapest: K = ")
    for text in ("✓ 1", "Pareto front", "Ways to pay", "Goals", "Refused", "layouts evaluated"):
        assert text in words


def test_json_is_the_contract_and_repeats(plan: Any) -> None:
    code, out, _ = plan(*BASE, *QUICK, "--objective", "time", "--format", "json")
    again = plan(*BASE, *QUICK, "--objective", "time", "--format", "json")[1]
    assert code == 0
    first, second = result(out), result(again)
    assert first.pop("seconds") > 0
    second.pop("seconds")
    assert first == second
    assert {"evaluated", "pruned", "feasible", "candidates", "pareto", "refused"} <= set(first)
    assert first["candidates"][0]["k"] == 64


def test_workers_change_nothing(plan: Any) -> None:
    alone = result(plan(*BASE, *QUICK, "--format", "json")[1])
    shared = result(plan(*BASE, *QUICK, "--format", "json", "--workers", "2")[1])
    alone.pop("seconds")
    shared.pop("seconds")
    assert alone == shared


@pytest.mark.parametrize(
    ("limit", "relaxed"),
    [
        (("--deadline", "1 s"), "relax the deadline from 1 s to"),
        (("--budget", "1 USD"), "relax the budget from 1 USD to"),
        (("--max-k", "4"), "raise --max-k"),
    ],
)
def test_what_cannot_be_met_exits_1_with_the_nearest_answer(
    plan: Any, limit: tuple[str, str], relaxed: str
) -> None:
    code, out, _ = plan(*BASE, *QUICK, *limit)
    assert code == 1
    assert relaxed in " ".join(out.split())


def test_no_layout_that_fits_exits_1(plan: Any) -> None:
    code, out, _ = plan("-w", "gpt3-175b", "-c", "dgx-h100", "-k", "8", "--format", "json")
    assert code == 1
    assert "no layout fits in memory" in result(out)["reason"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--deadline", "soon"), "--deadline"),
        (("--budget", "5"), "--budget"),
        (("--sweep", "nonsense"), "--sweep"),
        (("--bounds", "max_tq=3"), "--bounds"),
        (("--jobs", "no-such-folder"), "--jobs: no folder"),
        (("--clusters", "dgx-h1000"), '--clusters: error[S008]: no cluster named "dgx-h1000"'),
        (("--clusters", "dgx-h1000,dgx-h100,dgx-b9"), '--clusters: error[S008]: no cluster named "dgx-b9"'),
        (("--set", "precision=bf17"), '--set precision: error[S011]: "bf17"'),
        (("--precision", "bf17"), '--precision: error[S011]: "bf17"'),
        (("--objective", "fun"), "objective"),
        (("--sweep", "cluster.scale_out.bandwith=1..2 GB/s:2"), "--sweep cluster.scale_out.bandwith: error"),
        (("--sweep", "cluster.scale_out.bandwidth=1..1e400 GB/s:2"), "--sweep: 2 points from 1 to inf"),
    ],
)
def test_bad_usage_exits_2_and_names_the_flag(plan: Any, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = plan(*BASE, *QUICK, *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_all_bad_jobs_of_a_fleet_are_told_at_once(plan: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("workload: llama3-8b\ncluster: dgx-h100\nk: 0\n")
    code, _, err = plan("--jobs", str(tmp_path), "--accelerators", "72")
    assert code == 2
    assert [name for name in ("a", "b") if f"{name}.yaml:3:4: error" in err] == ["a", "b"]


def test_clusters_are_compared(plan: Any) -> None:
    code, out, _ = plan(*BASE, *QUICK, "--clusters", "dgx-h100,dgx-a100", "--format", "json", "--top", "3")
    found = result(out)
    assert code == 0
    assert {row["cluster"] for row in found["by_k"]} == {"dgx-h100", "dgx-a100"}
    assert found["candidates"][0]["cluster"] == "dgx-h100"
    assert len(found["candidates"]) == 3
    assert [(row["cluster"], row["k"]) for row in found["baselines"]] == [("dgx-h100", 8), ("dgx-a100", 8)]


def test_every_cluster_has_its_best_row_or_the_reason_why_not(plan: Any) -> None:
    _, out, _ = plan(
        *BASE, *QUICK, "--clusters", "dgx-h100,dgx-a100", "--format", "json", "--objective", "cost"
    )
    both = result(out)["by_cluster"]
    assert [row["cluster"] for row in both] == ["dgx-h100", "dgx-a100"]
    assert both[0]["cost_usd"] == result(out)["candidates"][0]["cost_usd"] < both[1]["cost_usd"]
    assert all(row["cost_usd_low"] < row["cost_usd"] < row["cost_usd_high"] for row in both)
    budget = f"{(both[0]['cost_usd'] + both[1]['cost_usd']) / 2} USD"
    limited = (*BASE, *QUICK, "--clusters", "dgx-h100,dgx-a100", "--budget", budget)
    _, out, _ = plan(*limited, "--format", "json")
    assert result(out)["by_cluster"][1] == {
        "cluster": "dgx-a100",
        "k": None,
        "reason": "no K keeps the budget",
    }
    assert "Limits aside: some may miss the budget." in plan(*limited, "--full")[1]


def test_a_front_over_clusters_names_them(plan: Any) -> None:
    prices = ("--clusters", "dgx-h100,dgx-b200,standard-nd96isr-mi300x-v5")
    _, out, _ = plan(*BASE, *QUICK, *prices, "--objective", "cost", "--full")
    front = out[out.index("Pareto front") : out.index("Ways to pay")]
    assert "dgx-b200" in front


def test_a_deadline_within_the_band_and_the_k_between_are_told(plan: Any) -> None:
    few = [word.replace("8..64", "8..32") for word in BASE]
    _, out, _ = plan(*few, *QUICK, "--format", "json")
    wall = {row["k"]: row["wall_s"] for row in result(out)["by_k"]}
    _, out, _ = plan(*few, *QUICK, "--deadline", f"{1.01 * wall[32]} s", "--format", "json")
    found = result(out)
    assert found["candidates"][0]["k"] == 32
    assert "The chance to keep the deadline is" in found["answer"]
    assert 0.5 < found["candidates"][0]["deadline_probability"] < 0.95
    assert any(note.endswith("-k 16..32:8") for note in found["notes"])


def test_a_folder_of_jobs_is_a_fleet(plan: Any, tmp_path: Path) -> None:
    for name, steps in (("short", 100), ("long", 1000)):
        text = f"workload: llama3-8b\ncluster: dgx-h100\nk: 8..64\nglobal_batch: 128\nsteps: {steps}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    code, out, _ = plan("--jobs", str(tmp_path), "--accelerators", "72", "--format", "json", *QUICK[2:])
    found = result(out)
    assert code == 0
    assert [row["job"] for row in found["candidates"]] == ["long", "short"]
    assert found["fleet"]["used"] <= 72
    assert plan("--jobs", str(tmp_path), "--accelerators", "72", *QUICK[2:])[0] == 0
    assert plan("--jobs", str(tmp_path), "--accelerators", "8", "--quiet", *QUICK[2:])[0] == 1


def test_sweep_writes_table_plot_and_report(plan: Any, tmp_path: Path) -> None:
    plot, report = tmp_path / "sweep.svg", tmp_path / "plan.html"
    flags = (
        "--sweep",
        "cluster.scale_out.bandwidth=100..400 Gbit/s:3",
        "--plot",
        str(plot),
        "--report",
        str(report),
    )
    code, out, _ = plan(*BASE, *QUICK, *flags)
    assert code == 0
    assert "What if" in out
    assert "cluster.scale_out.bandwidth" in plot.read_text()
    assert "<svg" in report.read_text()


def test_an_interrupt_prints_what_is_finished_and_exits_130(
    plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(targets: Any, tasks: Any) -> Any:
        yield search.run_task(targets[0], tasks[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(runners, "run_here", stops)
    code, out, _ = plan(*BASE, *QUICK, "--format", "json")
    assert code == 130
    found = result(out)
    assert found["interrupted"] is True
    assert found["candidates"]


def test_importing_the_verb_stays_light() -> None:
    heavy = "scipy matplotlib pandas networkx distributed"
    code = (
        "import sys, perfmodel.cli.plan; "
        f"sys.exit(','.join(m for m in '{heavy}'.split() if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


UNPRICED = """\
workload: {name: tiny, flop_per_sample: 8 GFLOP, bytes_per_sample: 1 MB, params: 25 M, sample: image}
cluster:
  node:
    name: box
    accelerators_per_node: 1
    accelerator: {name: cpu, memory: 64 GB, memory_bandwidth: 100 GB/s, peak: {fp32: 2 TFLOP/s}}
  scale_out: {name: eth, latency: 20 us, bandwidth: 1.25 GB/s}
global_batch: 256
k: 1..8
"""


def test_without_a_price_a_deadline_is_met_in_the_least_time(tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(UNPRICED)
    assert main(["plan", str(tmp_path / "job.yaml"), "--deadline", "10 s"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Fastest: K = 8" in shown
    assert "no price is known for box: the least time is sought" in shown
    assert "pipeline 0" not in shown  # reasons for which nothing was refused


@pytest.mark.parametrize("flags", [["--budget", "5 USD"], ["--objective", "cost"]])
def test_without_a_price_nothing_is_said_of_costs(flags, tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(UNPRICED)
    assert main(["plan", str(tmp_path / "job.yaml"), *flags]) == 2
    assert f"{flags[0]}" in (said := capsys.readouterr().err)
    assert "no price of box is known" in said
