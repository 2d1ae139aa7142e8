"""Jobs that serve, from the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from perfmodel.cli.main import main
from perfmodel.report.plots import NAMES, figure

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHAT, BATCH, BENCHMARK = (str(EXAMPLES / f"serve-{name}.yaml") for name in ("chat", "batch", "benchmark"))


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("job", [CHAT, BATCH, BENCHMARK])
def test_a_prediction_fits_a_screen_and_answers_first(capsys, monkeypatch, job):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "predict", job)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("llama3-")
    assert any(word in lines[1] for word in ("Keeps", "Makes", "Every load"))


def test_every_format_holds_the_same_curve(capsys, tmp_path):
    page, plot = tmp_path / "report.html", tmp_path / "plot.svg"
    _, whole, _ = run(capsys, "predict", BENCHMARK, "--format", "json", "--report", page, "--plot", plot)
    result = json.loads(whole)["result"]
    _, table, _ = run(capsys, "predict", BENCHMARK, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [float(row["concurrency"]) for row in rows] == result["load"]
    assert [float(row["tpot_p99_s"]) for row in rows] == result["tpot_s"]["p99"]
    _, text, _ = run(capsys, "predict", BENCHMARK, "--format", "md")
    assert "peak rate" in text
    assert "datasheet" in text
    assert "TTFT over load" in page.read_text(encoding="utf-8")
    assert plot.read_text(encoding="utf-8").startswith("<?xml")


def test_a_saved_answer_is_shown_again(capsys, tmp_path):
    saved = tmp_path / "chat.json"
    run(capsys, "predict", CHAT, "-o", saved)
    _, first, _ = run(capsys, "predict", CHAT)
    _, again, _ = run(capsys, "report", saved)
    assert again == first


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name.startswith("serving") and name != "serving_front"]
)
def test_each_plot_is_drawn(capsys, name):
    _, out, _ = run(capsys, "predict", CHAT, "--format", "json")
    axes = figure(json.loads(out), name).get_axes()
    assert axes
    assert all(one.get_ylabel() for one in axes)


def test_a_plan_meets_its_demand_or_fails(capsys, tmp_path):
    plot = tmp_path / "front.svg"
    code, out, _ = run(capsys, "plan", CHAT, "--top", "3", "--plot", plot)
    assert code == 0
    assert "Cheapest:" in out
    assert plot.is_file()
    code, out, _ = run(capsys, "plan", CHAT, "--max-k", "2")
    assert code == 1
    assert "No configuration" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", CHAT, "-k", "8", "--global-batch", "4"], '"k" is a key of training jobs'),
        (
            ["predict", CHAT, "--precision", "fp4"],
            "--precision: error[S010]: h100-sxm5-80gb has no fp4 arithmetic",
        ),
        (["predict", CHAT, "--timeline", "x.json"], "--timeline: of training jobs alone"),
        (["predict", CHAT, "--beliefs", CHAT], "holds no beliefs of serving"),
        (["plan", CHAT, "--budget", "500"], 'write --budget "100 USD/h"'),
        (["plan", CHAT, "--deadline", "3 day"], "--deadline: of training jobs alone"),
        (["plan", CHAT, "--clusters", "hgx-a100"], "a100-sxm4-80gb has no fp8 arithmetic"),
        (["compare", CHAT, str(EXAMPLES / "purchase.yaml")], "this job serves requests"),
        (["workdepth", CHAT], "this job serves requests"),
        (["calibrate", CHAT, "--timings", str(EXAMPLES / "load-curve.csv")], "which layout was measured"),
        (["calibrate", BENCHMARK, "--timings", str(EXAMPLES / "rented-node.csv")], "error"),
        (["calibrate", BENCHMARK, "--ranks", "x.csv"], "--ranks: of training jobs alone"),
        (["validate", CHAT, "--timings", str(EXAMPLES / "rented-node.csv")], "this job serves requests"),
    ],
)
def test_what_has_no_answer_is_refused_in_words(capsys, arguments, words):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert words in err


def test_measured_loads_narrow_a_prediction(capsys, tmp_path):
    beliefs = tmp_path / "beliefs.json"
    job = ["-w", "llama3-8b", "--set", "serving.layout={tp: 1}", "--set", "serving.precision=bf16"]
    code, out, _ = run(
        capsys, "calibrate", BENCHMARK, *job, "--timings", EXAMPLES / "load-curve.csv", "-o", beliefs
    )
    assert code == 0
    assert "5 measured loads" in out

    def width(*more):
        result = json.loads(run(capsys, "predict", BENCHMARK, *job, *more, "--format", "json")[1])["result"]
        return result["tpot_s"]["mean_high"][0] / result["tpot_s"]["mean_low"][0]

    assert width("--beliefs", beliefs) < width() or width() < 1.2


def test_verbs_in_python_answer_for_services():
    import perfmodel as pm

    found = pm.predict(CHAT, **{"serving.demand": "30 /s"})
    assert found["fleet"]["demand_per_s"] == 30.0
    assert pm.compare(CHAT, **{"serving.prefix_hit": 0.0}).kind == "service-comparison"
    assert pm.explain(BENCHMARK).kind == "service-explanation"
    fit = pm.calibrate(BENCHMARK, timings=EXAMPLES / "load-curve.csv")
    assert fit.kind == "serving-calibration"
    narrow, wide = (pm.predict(BENCHMARK, beliefs=known)["tpot_s"] for known in (fit, None))
    assert narrow["mean_high"][0] / narrow["mean_low"][0] < wide["mean_high"][0] / wide["mean_low"][0]
    assert pm.audit(EXAMPLES / "vendor-tokens.yaml")["verdict"] == "suspicious"
