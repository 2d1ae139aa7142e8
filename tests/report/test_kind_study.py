"""The rendering of a study: charts, tables and notes hold what the result holds."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.report import html, markdown, tables
from perfmodel.report import text as words
from perfmodel.report.kinds import study as kind
from perfmodel.report.plots import figure
from perfmodel.study.options import StudyOptions
from perfmodel.study.rubric import study
from perfmodel.study.table import parse_timings

FULL = (
    "k,compute_s,communication_s,idle_s,quality,energy_j,throughput,latency_p99_s,setup_s\n"
    "1,800,0,0,0.9,1000,10,0.1,30\n1,801,0,0,0.9,1001,10,0.1,30\n2,400,18,12,0.9,1100,19,0.12,31\n"
    "2,401,18,13,0.9,1100,19,0.12,31\n4,200,34,26,0.9,1300,33,0.2,33\n4,199,34,26,0.9,1300,33,0.2,33\n"
    "8,100,58,48,0.9,1900,40,0.5,35\n8,100,57,49,0.9,1900,40,0.5,35\n16,50,95,90,0.8,3000,38,0.9,39\n"
)


def envelope(text: str = FULL, **options: Any) -> dict[str, Any]:
    given = {"regime": "strong", "price_usd_per_s": 0.001, "straggler": (1.0, 1.5), **options}
    return study(parse_timings(text, "runs.csv"), StudyOptions(**given)).envelope()


def test_title_and_answer():
    found = envelope()
    assert kind.title(found) == "Study of runs.csv, strong scaling, 9 runs"
    assert kind.answer(found) == found["result"]["verdict"]


def test_a_regime_that_nobody_stated_shows_in_the_title():
    assert "strong scaling (assumed; pass --regime), 9 runs" in kind.title(envelope(regime=None))
    flat = envelope("k,time_s\n1,8\n2,8\n4,8\n", regime=None, straggler=None)
    assert "regime uncertain (read as strong, looks weak; pass --regime), 3 runs" in kind.title(flat)


@pytest.mark.parametrize(
    ("options", "unit"),
    [
        ({}, "A run is the unit of work."),
        ({"work": 640.0}, "A run has 640 units of work."),
        ({"regime": "weak"}, "A run at K = 1 is the unit of work."),
    ],
)
def test_no_two_costs_share_a_name(options, unit):
    found = {table.title: table for table in kind.tables(envelope(**options))}
    named = {head.key: head.title for head in found["Curve"].heads}
    assert named["cost_usd"] == "run cost"
    assert named["cost_per_work"] == "cost per unit of work"
    assert found["Curve"].note.endswith(unit)
    assert "run cost" in [head.title for head in found["Decision"].heads]
    assert "more cost, same work" in [head.title for head in found["Marginal ladder"].heads]


def test_a_bend_that_was_not_reached_is_no_first_k():
    flat = envelope("k,time_s\n1,8\n2,4.1\n4,2.1\n8,1.1\n", straggler=None)
    decision = next(table for table in tables.tables(flat) if table.title == "Decision")
    bend = next(row for row in decision.rows if row[0] == "bend")
    assert str(bend[-1]).startswith("not reached: ")


def test_tables_hold_everything():
    titles = {table.title for table in tables.tables(envelope())}
    assert titles >= {
        "Decision", "Curve", "Time by part", "Marginal ladder", "Fits", "Checklist", "Laws that were tried",
        "Throughput against p99 latency", "With one slow worker per point, factor 1 to 1.50", "Honesty checks",
    }  # fmt: skip


def test_excluded_k_says_why_in_the_curve():
    curve = next(table for table in kind.tables(envelope()) if table.title == "Curve")
    reasons = curve.values([head.title for head in curve.heads].index("excluded"))
    assert reasons[:4] == [None] * 4
    assert "drifts" in str(reasons[4])


def test_notes_hold_remedy_setup_and_warnings():
    text = " ".join(kind.notes(envelope()))
    assert "remedy for communication" in text
    assert "set-up time is apart" in text
    assert "single runs at K = 16" in text


@pytest.mark.parametrize("regime", ["strong", "weak"])
def test_every_figure_it_names_can_be_drawn(regime):
    found = envelope(regime=regime)
    names = kind.figures(found)
    assert set(names) >= {"speedup", "efficiency", "parts", "cost"}
    assert ("weak" in names) == (regime == "weak")
    for name in names:
        drawn = figure(found, name)
        assert drawn.axes


def test_charts_show_bend_threshold_and_straggler():
    charts = {chart.title: chart for chart in kind.charts(envelope())}
    assert [mark.label for mark in charts["Speedup"].marks] == ["bend", "recommended"]
    assert charts["Efficiency"].floor == 0.70
    assert [series.name for series in charts["Speedup"].series] == ["measured", "ideal", "with a straggler"]


def test_weak_scaling_is_drawn_against_a_flat_one_and_nothing_else():
    charts = {chart.title: chart for chart in kind.charts(envelope(regime="weak"))}
    assert "Speedup" not in charts  # only on request, by `report --figure speedup`
    weak = charts["Weak scaling"]
    assert [series.name for series in weak.series] == ["measured", "with a straggler", "ideal: flat"]
    assert set(weak.series[-1].y) == {1.0}
    assert weak.floor == 0.70


def test_parts_of_a_run_share_one_unit():
    table = (
        "k,compute_s,communication_s,idle_s\n1,800,0,0\n2,400,18,12\n4,200,34,26\n8,100,58,48\n16,50,95,90\n"
    )
    found = study(parse_timings(table)).envelope()
    (parts,) = [one for one in kind.tables(found) if one.title == "Time by part"]
    headings = [heading for heading, _ in words.table_text(parts)]
    assert headings[1:4] == ["compute [s]", "communication [s]", "idle [s]"]


@pytest.mark.parametrize(
    "text", ["k,time_s\n8,3\n", "k,time_s\n1,3\n2,2\n", "k,time_s\n1,4\n2,1.9\n4,1\n8,0.5\n"]
)
def test_thin_studies_render_everywhere(text):
    found = study(parse_timings(text)).envelope()
    assert markdown.render(found)
    assert html.render(found)
    assert tables.to_csv(found)
    assert figure(found).axes


def test_an_empty_result_does_not_break_the_rendering():
    bare = {"schema": "perfmodel/study/1", "inputs": {}, "result": {}}
    assert kind.title(bare)
    assert kind.answer(bare) == ""
    assert kind.charts(bare) == []
    assert kind.tables(bare)
