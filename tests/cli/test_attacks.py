"""Careless and hostile input to every verb: one clear error, exit code 2, nothing half-written, no warning, no absurd sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.cli.main import main

JOB = """\
name: small
workload: resnet50
cluster: dgx-a100
global_batch: 2048
k: 1..64
steps: 1000
price: {per_accelerator: 2 USD/h, fixed: 12 USD/h}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "folder").mkdir()
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error text of a command that must fail as bad input, without a word on stdout."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert "error[" in err
    return err


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return " ".join(out.split())


@pytest.mark.parametrize(
    "targets",
    [
        ("-o", "new.json", "--plot", "new.txt"),
        ("-o", "new.json", "--report", "missing/new.html"),
        ("-o", "new.json", "--report", "new.json"),
        ("--plot", "missing/new.svg", "--report", "new.html"),
        ("--report", "folder"),
        ("-o", "new.html"),
        ("-o", "new.json", "--report", "new.txt"),
    ],
)
def test_a_bad_target_is_refused_before_any_is_written(targets, folder, capsys):
    refused(capsys, "predict", "job.yaml", *targets)
    assert not list(folder.glob("new*"))


@pytest.mark.parametrize("text", ["[1, 2]", "null", "", '{"a":' * 20000, "\0", '{"shifts": {}}'])
def test_garbage_beliefs(text, folder, capsys):
    (folder / "beliefs.json").write_text(text)
    assert "holds no beliefs" in refused(capsys, "predict", "job.yaml", "--beliefs", "beliefs.json")


def test_a_mark_that_windows_puts_before_a_file_is_no_fault_of_beliefs(folder, capsys):
    (folder / "beliefs.json").write_text(json.dumps(calibrated()), encoding="utf-8-sig")
    answered(capsys, "predict", "job.yaml", "--beliefs", "beliefs.json", "--format", "json")


NAN = float("nan")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("noise", NAN, "noise is not a finite number"),
        ("noise", -1.0, "noise is -1"),
        ("noise", 1e200, "expected 0 to 20"),
        ("shifts.unfused", None, "it lacks unfused"),
        ("shifts.score_bytes", {"all": {"": [0, 0, 0]}}, "another version, or edited: it has score_bytes"),
        ("shifts.matmul.all", {"": [0, NAN, 0]}, "the spread is not a finite number"),
        ("shifts.matmul.all", {"": [1e4, 0.1, 0]}, "expected -50 to 50"),
        ("shifts.matmul.all", {"": [0, 0.1, float("inf")]}, "the count is not a finite number"),
        ("shifts.matmul.all", {"": [0, 0.1]}, "is not [shift, spread, count]"),
        ("shifts.matmul.colour", {"red": [0, 0, 0]}, "matmul has no such level"),
        ("scatter.matmul", 1e200, "scatter.matmul"),
        ("level_spreads.matmul", 1, "no level of a coefficient"),
        ("conformal", [], "conformal is not a mapping"),
        ("conformal.one_node", {"all": "x"}, "conformal.one_node.all is not a finite number"),
        ("bands.one_node", [1] * 9, "bands.one_node is not a list of 5 or 7 or 8 weights"),
        ("scales", [], "scales is not a mapping"),
        ("scales", {"one_node": 1}, "scales.one_node is not a mapping"),
        ("scales", {"one_node": {"levels": 1}}, "scales.one_node.levels is not a mapping"),
        (
            "scales",
            {"one_node": {"levels": {"tuning": {"tuned": 1e9}}}},
            "scales.one_node.levels.tuning.tuned",
        ),
        ("scales", {"one_node": {"levels": {"kind": {}}}}, "kind is not one of generation, tuning"),
        ("scales", {"one_node": {"slopes": {"thin": 1}}}, "thin has no meaning there"),
        ("scales", {"one_node": {"level": {}}}, "level is not one of slopes, levels"),
        ("scales", {"onenode": {}}, "onenode is not one of datasheet, one_node, two_point"),
        ("bands.ratio", [1] * 5, "ratio is not one of datasheet, one_node, two_point"),
        ("scales", {"datasheet": {"slopes": {"thin": NAN}}}, "scales.datasheet.slopes.thin"),
        ("groups", {"a": -1}, "groups.a is -1"),
        ("meta.knee", {"one_node": 7}, "meta.knee.one_node is 7"),
        ("meta.laws", {"reech": 1.0}, "reech is not one of"),
        ("calibration", [1], "calibration is not a mapping"),
        ("calibration.mode", "bogus", "calibration.mode"),
        ("calibration.mode", "ratio", "expected one_node or two_point with step times"),
        ("calibration.mode", "datasheet", "expected one_node or two_point with step times"),
        ("calibration.k", [1], "not lists of the same length"),
        ("calibration.k", [0, 2], "calibration.k.0 is 0"),
        ("calibration.tau", [0.0, 1.0], "calibration.tau.0 is 0"),
        ("calibration.batch", [8.0], "not lists of the same length"),
        ("calibration.batch", 0, "not lists of the same length"),
        ("calibration.batch", {}, "not lists of the same length"),
        ("calibration.batch", [8.0, -1.0], "calibration.batch.1 is -1"),
        ("calibration.batch", [8.0, 10**400], "calibration.batch.1 is absurd"),
        ("calibration.k", [1.5, 2.0], "calibration.k is not whole everywhere"),
        ("calibration.points", 7, "calibration.points is 7, but calibration.k has 2"),
        ("calibration.covariance", [[10**400]], "not a table of numbers"),
        ("groups", {"a": 10**400}, "groups.a is absurd"),
        ("bands.one_node", [1000.0] * 8, "bands.one_node.0 is 1000"),
        ("conformal.one_node", {"all": 1000}, "conformal.one_node.all is 1000"),
        ("meta.laws", {"doubt": -1}, "meta.laws.doubt is negative"),
        ("meta.laws", {"resized": 100}, "meta.laws.resized is 100"),
        ("calibration.mean.matmul", None, "it lacks matmul"),
        ("calibration.mean.matmul", 1e4, "calibration.mean.matmul"),
        ("calibration.anchor", {"bogus": 1}, "no coefficient"),
        ("calibration.notes", 3, "calibration.notes is not a list"),
        ("calibration.covariance", [[1.0]], "wrong shape"),
        ("calibration.covariance", "x", "not a table of numbers"),
        ("calibration.covariance.0.0", -1.0, "negative variance"),
        ("calibration.covariance.0.0", NAN, "no finite variance"),
        ("calibration.power", {"scale": 1, "spread": NAN, "idle_w": 1, "source": "x"}, "power.spread"),
        ("schema", "perfmodel/beliefs/2", "it is a perfmodel/beliefs/2"),
    ],
)
def test_beliefs_edited_by_hand_or_of_another_version(place, value, words, folder, capsys):
    data = calibrated()
    *above, last = (int(part) if part.isdigit() else part for part in place.split("."))
    inside = data
    for part in above:
        inside = inside[part]
    inside[last] = value
    if value is None:
        del inside[last]
    (folder / "beliefs.json").write_text(json.dumps(data))
    said = refused(capsys, "predict", "job.yaml", "--beliefs", "beliefs.json")
    assert said.startswith("beliefs.json: error[U015]: holds no beliefs: ")
    assert words in said


def test_beliefs_at_the_edge_of_what_is_read_overflow_nothing(folder, capsys):
    data = calibrated()
    data["bands"]["one_node"] = [20.0] * 8
    data["scales"]["one_node"] = {"levels": {"generation": {"ampere": 5.0}, "tuning": {"stock": 5.0}}}
    data["conformal"]["one_node"] = {"all": 20.0}
    data["meta"] = dict(data["meta"]) | {"laws": {"reach": 20, "resized": 20, "disagreement": 20}}
    data["calibration"] |= {"batch": [1e-9, 1e12], "tau": [1e-15, 1e15]}
    (folder / "beliefs.json").write_text(json.dumps(data))
    out = answered(capsys, "predict", "job.yaml", "--beliefs", "beliefs.json", "--format", "json")
    result = json.loads(out)["result"]
    for low, time, high in zip(result["time_s_low"], result["time_s"], result["time_s_high"], strict=True):
        assert 0.0 <= low <= time <= high < float("inf")


def test_all_faults_of_beliefs_at_once(folder, capsys):
    data = calibrated() | {"noise": -1.0, "bands": 3}
    (folder / "beliefs.json").write_text(json.dumps(data))
    said = refused(capsys, "predict", "job.yaml", "--beliefs", "beliefs.json")
    assert "noise is -1" in said
    assert "bands is not a mapping" in said


def calibrated() -> dict[str, Any]:
    """A good beliefs file with a calibration."""
    import numpy as np

    from perfmodel.beliefs.population import EFFECTS, Calibration, shipped_beliefs, to_mapping

    count = len(EFFECTS)
    known = Calibration(np.zeros(count), 0.01 * np.eye(count), "one_node", 2, np.array([1.0, 2]), np.ones(2))
    return to_mapping(shipped_beliefs().calibrated(known))


def test_good_beliefs_have_no_faults():
    from perfmodel.beliefs.checking import faults
    from perfmodel.beliefs.population import textbook_beliefs, to_mapping

    assert faults(json.loads(json.dumps(calibrated()))) == []
    assert faults(to_mapping(textbook_beliefs())) == []


def test_a_line_without_end_is_not_printed_whole(folder, capsys):
    (folder / "long.yaml").write_text("workload: resnet50\ncluster: " + "x" * 100_000 + "\n")
    assert len(refused(capsys, "predict", "long.yaml")) < 3000


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("reliability={mtbf_per_accelerator: 0 h}", "too small to be real"),
        ("reliability={mtbf_per_accelerator: 10 h, interval: 0 s}", "too small to be real"),
        ("reliability={mtbf_per_accelerator: 10 h, interval: 1000 day}", "no run would finish"),
        ("price={per_accelerator: 2 USD/h, regime: spot, preemption_interval: 0 s}", "too small to be real"),
        ("cluster.scale_out.bandwidth=.nan", "not a finite number"),
        ("cluster.scale_out.bandwidth=25", "a number without a unit"),
    ],
)
def test_impossible_values(value, words, capsys):
    assert words in refused(capsys, "predict", "job.yaml", "--set", value)


def test_runs_that_never_finish_cost_null(capsys):
    change = "reliability={mtbf_per_accelerator: 1 min, checkpoint: 60 s, restart: 300 s}"
    assert main(["predict", "job.yaml", "--set", change, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["cost_usd"][0] > 0
    assert result["cost_usd"][-1] is None


def test_a_given_dp_names_the_k_it_needs(capsys):
    assert "K must be 1000" in refused(capsys, "predict", "job.yaml", "--layout", "dp=1000")


def test_a_price_of_zero_is_known(capsys):
    said = answered(capsys, "predict", "job.yaml", "--set", "price={per_accelerator: 0 USD/h}")
    assert "price unknown" not in said


def test_weak_scaling_never_pays_for_less_speed(capsys):
    said = answered(capsys, "predict", "-w", "llama3-8b", "-c", "dgx-h100", "--regime", "weak", "-k", "8..64")
    assert "x the speed" in said
    assert float(said.split("x the cost for ")[1].split("x")[0]) > 1


CLAIM = """\
workload: resnet50
cluster: dgx-a100
precision: fp16
global_batch: 2048
"""


def audited(text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    Path("claim.yaml").write_text(CLAIM + text)
    main(["audit", "claim.yaml", "--format", "json"])
    out, err = capsys.readouterr()
    assert err == ""
    return dict(json.loads(out)["result"])


def test_what_is_impossible_is_not_worth_its_price(capsys):
    result = audited(
        "regime: strong\nheadline: {k: 8, speedup: 100}\nbaseline: {k: 1, throughput: 2470}\n"
        "points: [{k: 8, throughput: 247000}]\n",
        capsys,
    )
    assert result["verdict"] == "impossible"
    assert "worth its price" not in result["advice"]
    assert "measure before paying" in result["advice"]


def test_two_numbers_at_one_k_are_no_speedup(capsys):
    result = audited("points: [{k: 8, throughput: 5000}, {k: 8, throughput: 9000}]\n", capsys)
    assert "superlinear" not in {finding["code"] for finding in result["findings"]}
    assert "no speedup" in result["restated"]
    assert "worth its price" not in result["advice"]


def test_a_ratio_without_a_regime_is_suspicious(capsys):
    result = audited("points: [{k: 8, efficiency: 0.9}]\n", capsys)
    assert "regime-missing" in {finding["code"] for finding in result["findings"]}
    assert result["verdict"] == "suspicious"


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "job.yaml", "--deadline", "0 s"),
        ("plan", "job.yaml", "--deadline", "-3 day"),
        ("plan", "job.yaml", "--budget", "0 USD"),
        ("plan", "job.yaml", "--clusters", ","),
        ("law", "usl", "--kappa", "1e300"),
        ("law", "communication", "--alpha", "1e300 s"),
        ("law", "communication", "--message", "1 GB"),
    ],
)
def test_flags_beyond_reason(arguments, capsys):
    assert arguments[-2] in refused(capsys, *arguments)


@pytest.mark.parametrize(("row", "words"), [("1,1e-300", "too small"), ("1,1e300", "too large")])
def test_times_beyond_reason(row, words, folder, capsys):
    (folder / "timings.csv").write_text(f"k,time_s\n{row}\n2,50\n")
    assert words in refused(capsys, "study", "timings.csv")
    assert words in refused(capsys, "calibrate", "job.yaml", "--timings", "timings.csv")


def test_a_config_without_bottom(folder, capsys):
    (folder / "config.json").write_text('{"a":' * 20000)
    assert "nested too deeply" in refused(capsys, "workload", "from-hf", "config.json")


def test_what_was_read_does_not_steer_the_terminal(folder, capsys):
    (folder / "ranks.txt").write_text("\x1b[2Jgone\x07\n")
    assert "\x1b" not in refused(capsys, "calibrate", "job.yaml", "--ranks", "ranks.txt")


def test_a_result_without_a_plot_writes_nothing(folder, capsys):
    job = ("plan", "-w", "llama3-70b", "-c", "dgx-1v", "-k", "1..8")
    assert "has no plot" in refused(capsys, *job, "--plot", "new.svg", "-o", "new.json")
    assert not list(folder.glob("new*"))


def test_the_baseline_is_not_touched_when_a_target_is_bad(folder, capsys):
    (folder / "perfmodel.yaml").write_text("jobs: {small: job.yaml}\npolicies: [efficiency(k=8) >= 0.1]\n")
    refused(capsys, "check", "--update-baseline", "--plot", "new.txt")
    refused(capsys, "check", "--update-baseline", "--write", "sarif=missing/x")
    assert not (folder / "perfmodel.lock.json").exists()


@pytest.mark.parametrize("columns", ["0", "1", "10", "30", "-5", "wide"])
def test_any_width_of_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert "K = " in answered(capsys, "predict", "job.yaml")


def test_a_reader_that_goes_away_is_no_failure():
    run = f"{sys.executable} -m perfmodel catalog list grids | head -n 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", run], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("format", ["table", "json"])
def test_a_full_disk(format):
    run = f"{sys.executable} -m perfmodel law amdahl --format {format} > /dev/full"
    done = subprocess.run(["bash", "-c", run], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_name_that_is_too_long(capsys):
    assert "File name too long" in refused(capsys, "predict", "job.yaml", "--plot", "x" * 300 + ".svg")


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("k", "1.5"),
        ("k", "0"),
        ("step_s", "1e300"),
        ("step_s", "1e-300"),
        ("step_s", "nan"),
        ("global_batch", "0"),
        ("tp", "0"),
        ("tp", "1.5"),
        ("pp", "64"),  # more than k
        ("vpp", "0"),
        ("accelerators_per_node", "0"),
        ("network_gbit_per_s_per_node", "0"),
        ("params", "nan"),
    ],
)
def test_measured_points_beyond_reason(column, cell, folder, capsys):
    import csv

    measured = Path(__file__).parents[2] / "validation" / "measured"
    tables = {
        name: list(csv.DictReader((measured / name).read_text().splitlines()))
        for name in ("families.csv", "points.csv", "workloads.csv")
    }
    family = tables["families.csv"][0]["family"]
    points = [row for row in tables["points.csv"] if row["family"] == family]
    for rows in (points, tables["families.csv"], tables["workloads.csv"]):
        if column in rows[0]:
            rows[0][column] = cell
    for name, rows in (tables | {"points.csv": points, "families.csv": tables["families.csv"][:1]}).items():
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    said = refused(capsys, "validate", "--data", ".")
    assert f'{column} is "{cell}"' in said or (column == "pp" and "is 64, more than k" in said)


@pytest.mark.parametrize(
    ("part", "value"),
    [("parts_s", {"compute": ["x"] * 7}), ("k", [[]] * 7), ("k", None)],
)
def test_a_saved_result_that_was_edited(part, value, folder, capsys):
    assert main(["predict", "job.yaml", "-o", "result.json"]) == 0
    data = json.loads((folder / "result.json").read_text())
    data["result"][part] = value
    (folder / "result.json").write_text(json.dumps(data))
    capsys.readouterr()
    assert refused(capsys, "report", "result.json").startswith("result.json: error[R007]")


@pytest.mark.parametrize("format", ["table", "md", "csv"])
def test_a_saved_result_does_not_steer_the_terminal(format, folder, capsys):
    assert main(["predict", "job.yaml", "-o", "result.json"]) == 0
    data = json.loads((folder / "result.json").read_text())
    data["result"]["knee"]["threshold"]["cause"] = data["inputs"]["name"] = "\x1b]0;mine\x07"
    (folder / "result.json").write_text(json.dumps(data))
    assert main(["report", "result.json", "--format", format]) == 0
    assert "\x1b]0" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "value",
    [
        "cluster.node.accelerator.crowd={ranks: 8, matmul: 1e-300, memory: 0.5}",
        "cluster.node.accelerator.matmul_fraction=1e-300",
        "cluster.scale_out.efficiency=1e-9",
    ],
)
def test_efficiencies_that_nothing_has(value, capsys):
    assert "must be at least 0.0001" in refused(capsys, "predict", "job.yaml", "--set", value)


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "job.yaml", "-o", "job.yaml"),
        ("predict", "job.yaml", "-o", "folder/../job.yaml"),
        ("plan", "job.yaml", "--report", "job.yaml"),
        ("calibrate", "job.yaml", "--timings", "timings.csv", "-o", "timings.csv"),
        ("study", "timings.csv", "-o", "timings.csv"),
        ("validate", "--data", "folder", "-o", "folder/points.csv"),
    ],
)
def test_no_output_takes_the_place_of_an_input(
    capsys: pytest.CaptureFixture[str], folder: Path, command: tuple[str, ...]
) -> None:
    (folder / "timings.csv").write_text("k,time_s\n8,0.9\n16,0.5\n32,0.3\n")
    (folder / "folder" / "points.csv").write_text("family,k\n")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "input of this very command" in refused(capsys, *command)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "job.yaml", "-o", "folder/model.yaml"),
        ("predict", "job.yaml", "--report=folder/model.yaml"),
        ("check", "gate.yaml", "-o", "gate.lock.json"),
    ],
)
def test_no_result_takes_the_place_of_a_spec_or_a_baseline(
    capsys: pytest.CaptureFixture[str], folder: Path, command: tuple[str, ...]
) -> None:
    """A job names its workload, a gate its jobs and its baseline: no argument does."""
    for name in ("folder/model.yaml", "gate.yaml", "gate.lock.json"):
        (folder / name).write_text("kept\n")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "a spec or a baseline stands there" in refused(capsys, *command)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
