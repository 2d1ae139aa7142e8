"""What a textbook's study has: regimes, gap to ideal, idle dollars, honest baselines, checklist order, emissions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from perfmodel.cli.main import main
from perfmodel.errors import SpecError, UsageError
from perfmodel.study import textbook
from perfmodel.study.options import StudyOptions
from perfmodel.study.regimes import parse_regimes
from perfmodel.study.rubric import study, study_file
from perfmodel.study.table import parse_timings

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
TABLES = Path(__file__).resolve().parents[2] / "examples" / "textbook"
SUPERLINEAR = "k,time_s\n1,100\n2,45\n4,23\n8,12\n16,7\n32,5\n"
STRAIGHT = "k,time_s\n1,100\n2,50\n4,25\n8,12.5\n16,6.25\n"


def of_reference(name, **options):
    return study_file(TABLES / name, StudyOptions(**options)).result


def finding(result, code):
    return next(item for item in result["honesty"] if item["code"] == code)


def test_three_regimes_in_one_call():
    rows = of_reference("breakdown.csv", regimes=parse_regimes("on-demand=3.20,spot=30%,owned=60%@0.5"))[
        "regimes"
    ]
    assert [row["regime"] for row in rows] == ["on-demand", "spot", "owned"]
    assert [row["usd_per_working_h"] for row in rows] == pytest.approx([3.2, 0.96, 3.84])
    # No price that is linear in K moves p*: 800 s of one worker at 3.20 USD/h are 0.711 USD.
    assert [row["p_star"]["k"] for row in rows] == [1, 1, 1]
    assert [round(row["p_star"]["cost_usd"], 3) for row in rows] == [0.711, 0.213, 0.853]
    assert [round(row["fastest"]["cost_usd"], 3) for row in rows] == [1.465, 0.439, 1.758]
    assert "moves no optimum" in rows[1]["why"]
    assert "above 60% utilisation" in rows[2]["why"]


def test_regimes_from_a_price_file(tmp_path):
    (tmp_path / "prices.csv").write_text(
        "regime,price_usd_per_h,utilisation\non-demand,3.20 USD/h,\nowned,1.92,50%\n"
    )
    found = parse_regimes(str(tmp_path / "prices.csv"))
    assert [(r.name, r.usd_per_h) for r in found] == [("on-demand", 3.2), ("owned", 3.84)]
    (tmp_path / "bad.csv").write_text("regime,price_usd_per_h\na,1\nb,-2\n")
    with pytest.raises(SpecError, match=r"bad.csv:3.*zero or above"):
        parse_regimes(str(tmp_path / "bad.csv"))


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "nothing"), ("a", "cannot read"), ("a=30%", "not per cent"), ("a=1,a=2", "twice"), ("a=1@0", "utilisation"),
     ("a=1@1.5", "utilisation"), ("a=-1", "zero or above"), ("a=nan", "finite"), ("a=3 EUR/h", "EUR"), ("a=x", "not a number")],
)  # fmt: skip
def test_a_bad_regime_is_told(text, words):
    with pytest.raises(UsageError, match=words):
        parse_regimes(text)


def test_the_gap_goes_from_ideal_to_amdahl_to_measured():
    want = json.loads((REFERENCE / "rubric.expected.json").read_text())
    gap = of_reference("rubric.csv", regime="strong")["gap"]
    assert round(float(gap["amdahl"][-1]), 2) == want["amdahl_speedup_at_32"]
    np.testing.assert_allclose(gap["serial_gap"] + gap["rest_gap"], gap["ideal"] - gap["measured"])


def test_dollars_of_idle_time():
    result = of_reference("breakdown.csv", price_usd_per_s=3.2 / 3600)
    # 16 workers idle 90 s each at 3.20 USD/h.
    assert float(result["parts_usd"]["idle"][-1]) == pytest.approx(16 * 90 * 3.2 / 3600)


def test_superlinear_names_the_working_set_and_the_measurement_and_rebaselines():
    result = study(parse_timings(SUPERLINEAR), StudyOptions(regime="strong")).result
    found = finding(result, "superlinear")
    assert "working set that outgrew memory or cache" in found["advice"]
    assert "confirm it by one run" in found["advice"]
    assert "--baseline-k 2" in found["advice"]
    assert result["recommended_k"] not in (2, 4, 8)
    again = study(parse_timings(SUPERLINEAR), StudyOptions(regime="strong", baseline_k=2)).result
    assert again["baseline_k"] == 2
    assert not [item for item in again["honesty"] if item["code"] == "superlinear"]
    assert list(again["k"]) == [2, 4, 8, 16, 32]
    with pytest.raises(UsageError, match="no run at K = 3"):
        study(parse_timings(SUPERLINEAR), StudyOptions(baseline_k=3))


def test_perfectly_straight_names_two_mistakes_and_one_measurement():
    advice = finding(study(parse_timings(STRAIGHT), StudyOptions(regime="strong")).result, "too_straight")[
        "advice"
    ]
    assert "weak baseline" in advice
    assert "a problem that changed" in advice
    assert "time K = 1 once more" in advice


def test_the_checklist_begins_with_the_six_of_the_textbook():
    items = [row["item"] for row in of_reference("study.csv")["checklist"]]
    starts = [
        "baseline",
        "fixed workload",
        "warm-up and set-up",
        "repeats and variance",
        "regime",
        "efficiency beside speedup",
    ]
    assert [item.startswith(start) for item, start in zip(items[:6], starts, strict=True)] == [True] * 6
    assert len(items) == 9


def test_the_slowest_of_the_repeats_stands_beside_the_stretched_straggler():
    table = (TABLES / "study.csv").read_text()
    result = of_reference("study.csv", straggler=(1.0, 1.5))
    slowest = result["straggler"]["slowest_of_repeats"]
    rows = [line.split(",") for line in table.splitlines()[1:]]
    assert slowest["time_s"][-1] == max(float(t) for k, _, t in rows if k == "64")
    assert slowest["time_s"][0] == result["mean_s"][0]
    assert (np.asarray(slowest["over_mean"])[1:] > 1).all()
    assert slowest["bend_k"] == 8


def test_a_price_of_one_worker_is_told_from_the_numbers_and_by_flag():
    text = "k,time_s,price_usd_per_h\n1,3600,2\n2,1900,2\n4,1000,2\n"
    asked = study(parse_timings(text), StudyOptions(regime="strong")).result
    assert "--price-per worker" in finding(asked, "price_of_what")["advice"]
    assert asked["cost_usd"][-1] == pytest.approx(2 * 1000 / 3600)
    told = study(parse_timings(text), StudyOptions(regime="strong", price_per="worker")).result
    assert told["cost_usd"][-1] == pytest.approx(4 * 2 * 1000 / 3600)
    assert not [item for item in told["honesty"] if item["code"] == "price_of_what"]


@pytest.mark.parametrize(
    ("prices", "looks"),
    [((1, 2, 4), "cluster"), ((2, 2, 2), "worker"), ((2, 3, 9), "unclear"), ((1, 2.02, 3.95), "cluster")],
)
def test_what_a_price_is_of_is_read_from_the_numbers_or_asked(prices, looks):
    rows = "".join(f"{k},{1000 / k},{p}\n" for k, p in zip((1, 2, 4), prices, strict=True))
    timings = parse_timings("k,time_s,price_usd_per_h\n" + rows)
    assert textbook.price_reads_as(timings) == looks
    asked = [item["code"] for item in study(timings, StudyOptions(regime="strong")).result["honesty"]]
    assert ("price_of_what" in asked) == (looks != "cluster")
    said = study(timings, StudyOptions(regime="strong", price_per="cluster")).result["honesty"]
    assert "price_of_what" not in [item["code"] for item in said]


def test_quality_is_a_column_of_every_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(TABLES)
    assert main(["study", "rubric.csv", "--format", "csv"]) == 0
    assert "quality" in capsys.readouterr().out.splitlines()[0].split(",")
    assert main(["study", "rubric.csv", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["quality_by_k"] == [
        0.871,
        0.871,
        0.871,
        0.871,
        0.87,
        0.871,
    ]
    assert main(["study", "rubric.csv"]) == 0
    assert "quality" in capsys.readouterr().out


EMISSIONS = (
    "timestamp,project_name,run_id,duration,emissions,energy_consumed,gpu_count\n"
    "2026-01-01T00:00:00,train,a,3600,0.4,1.0,1\n2026-01-01T02:00:00,train,b,1900,0.44,1.1,2\n"
)


def test_codecarbon_emissions_are_a_study(tmp_path):
    (tmp_path / "emissions.csv").write_text(EMISSIONS)
    result = study_file(tmp_path / "emissions.csv").result
    assert list(result["k"]) == [1, 2]
    assert list(result["mean_s"]) == [3600, 1900]
    assert list(result["energy_j"]) == pytest.approx([3.6e6, 3.96e6])
    assert list(result["carbon_g"]) == pytest.approx([400, 440])
    named = study_file(tmp_path / "emissions.csv", StudyOptions(carbon_g_per_j=100 / 3.6e6)).result
    assert list(named["carbon_g"]) == pytest.approx([100, 110])


def test_a_bad_line_of_emissions_is_told(tmp_path):
    (tmp_path / "emissions.csv").write_text(EMISSIONS.replace("1900", "soon").replace(",1.1,2", ",1.1,"))
    with pytest.raises(SpecError, match=r"emissions.csv:3.*duration") as caught:
        study_file(tmp_path / "emissions.csv")
    assert any("how many workers" in problem.message for problem in caught.value.problems)


def test_grams_of_a_named_grid(tmp_path, monkeypatch, capsys):
    (tmp_path / "t.csv").write_text("k,time_s,energy_j\n1,10,3600000\n2,6,3600000\n")
    assert main(["study", str(tmp_path / "t.csv"), "--grid", "400 g/kWh", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["carbon_g"] == pytest.approx([400, 400])
    assert main(["study", str(tmp_path / "t.csv"), "--grid", "nowhere"]) == 2
