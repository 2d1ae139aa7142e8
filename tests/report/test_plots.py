from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest

from perfmodel.errors import UsageError
from perfmodel.report import plots
from perfmodel.report.kinds import rendering_of
from perfmodel.report.plots import style

CASES = [
    ("prediction", name)
    for name in ("speedup", "efficiency", "weak", "parts", "shares", "ledger", "cost", "tornado")
]
CASES += [("study", name) for name in ("speedup", "efficiency", "weak", "parts", "shares", "cost")]
CASES += [
    ("plan", "pareto"),
    ("plan", "sweep"),
    ("comparison", "comparison"),
    ("explanation", "terms"),
    ("roofline", "roofline"),
]
CASES += [
    ("straggler", "straggler"),
    ("check", "policies"),
    ("calibration", "calibration"),
    ("calibration", "sweeps"),
]
CASES += [("validation", "validation"), ("validation", "error_by_k")]
CASES += [("collective", "collective"), ("workdepth", "admitted"), ("timings", "runs")]
CASES += [
    ("ranked", name) for name in ("workers", "speedup", "efficiency", "weak", "parts", "shares", "cost")
]
CASES += [("law", "speedup"), ("law", "efficiency")]
CASES += [("injected", name) for name in ("speedup", "efficiency", "parts", "shares", "cost")]
CASES += [("serving", name) for name in ("serving", "serving_load", "serving_step")]
CASES += [("serving-plan", "serving_front")]
RED = "#D55E00"  # of marks


def texts(svg):
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_plot_draws_with_title_and_labelled_axes(kind, name, make):
    figure = plots.figure(make[kind](), name)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert axes.get_title(loc="left")
    assert axes.get_xlabel() or axes.get_ylabel()
    assert axes.has_data()


def test_all_plots_are_tested():
    assert {name for _, name in CASES} | {"audit"} == set(plots.NAMES)


def test_audit_plot(make):
    envelope = make["audit"]()
    envelope["result"]["points"] = [
        {"k": 8, "claimed_s": 1.0, "predicted_s": 1.2, "low_s": 1.1, "high_s": 1.4},
        {"k": 64, "claimed_s": 0.12, "predicted_s": 0.2, "low_s": 0.18, "high_s": 0.24},
    ]
    words = texts(plots.svg(envelope))
    assert {"claimed", "predicted", "90 % band"} <= set(words)


def test_speedup_shows_ideal_band_reasons_boundaries_and_measured_dots(make):
    words = texts(plots.svg(make["prediction"](), "speedup"))
    assert {"ideal", "90 % band", "predicted", "measured", "node", "leaf"} <= set(words)
    together = " ".join(words)
    assert "knee: inter-node all-reduce" in together
    assert "p*: cheapest" in together
    assert "1024" in words


def test_band_marks_and_boundaries_stand_where_the_numbers_say(make):
    """Not the words alone: the shapes, at their places."""
    envelope = make["prediction"]()
    result = envelope["result"]
    axes = plots.figure(envelope, "speedup").axes[0]
    at = {k: s for k, s in zip(result["k"], result["speedup"], strict=True) if s is not None}
    wanted = {float(result["knee"]["threshold"]["k"]), float(result["p_star"]["k"])}
    assert rings(axes) == {k: pytest.approx(at[k]) for k in wanted}
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    low, high = band_of(result)
    assert {float(x) for x in corners[:, 0]} == {float(k) for k in at}
    for k in at:
        edges = corners[corners[:, 0] == k][:, 1]
        assert (edges.min(), edges.max()) == (pytest.approx(low[k]), pytest.approx(high[k]))
    boundaries = {float(mark["k"]) for mark in result["boundaries"]}
    assert boundaries <= {x[0] for x in verticals(axes)}


def rings(axes):
    """Where the open red circles are."""
    found = [line for line in axes.lines if line.get_marker() == "o" and line.get_markerfacecolor() == "none"]
    assert all(line.get_markeredgecolor() == RED for line in found)
    return {float(line.get_xdata()[0]): float(line.get_ydata()[0]) for line in found}


def verticals(axes):
    return [list(line.get_xdata()) for line in axes.lines if list(line.get_ydata()) == [0, 1]]


def band_of(result):
    """The speedup band: given, or carried over from that of the time."""
    low, high = {}, {}
    for i, k in enumerate(result["k"]):
        if result["time_s"][i] is not None:
            product = result["speedup"][i] * result["time_s"][i]
            low[k], high[k] = product / result["time_s_high"][i], product / result["time_s_low"][i]
    return low, high


def test_efficiency_has_the_zone_the_ring_and_the_boundaries(make):
    envelope = make["prediction"]()
    result = envelope["result"]
    axes = plots.figure(envelope, "efficiency").axes[0]
    knee = float(result["knee"]["threshold"]["k"])
    assert rings(axes) == {knee: pytest.approx(100 * result["efficiency"][result["k"].index(int(knee))])}
    zone = next(patch for patch in axes.patches if patch.get_height() == pytest.approx(70.0))
    assert zone.get_y() == 0
    assert {float(mark["k"]) for mark in result["boundaries"]} <= {x[0] for x in verticals(axes)}
    assert axes.collections  # the band


def test_a_law_shows_all_its_curves(make):
    envelope = make["law"]()
    for name, key, factor in (("speedup", "speedup", 1), ("efficiency", "efficiency", 100)):
        axes = plots.figure(envelope, name).axes[0]
        drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
        for curve in envelope["result"]["curves"]:
            values = drawn[f"s = {curve['serial_fraction']:g}"]
            assert values == [pytest.approx(factor * v) for v in curve[key]]


def test_an_injected_straggler_is_drawn_beside_the_measured_curve(make):
    envelope = make["injected"]()
    result = envelope["result"]
    axes = plots.figure(envelope, "speedup").axes[0]
    drawn = {line.get_label(): line for line in axes.lines}
    assert (
        list(drawn["with a straggler, 1 to 1.5 times, bend at K = 8"].get_ydata())
        == result["straggler"]["speedup"]
    )
    assert list(drawn["measured"].get_ydata()) == result["speedup"]
    without = plots.figure(make["study"](), "speedup").axes[0]
    assert "with a straggler" not in " ".join(str(line.get_label()) for line in without.lines)


def test_efficiency_names_the_last_k_above_the_threshold(make):
    envelope = make["prediction"]()
    knee = envelope["result"]["knee"]["threshold"]["k"]
    words = texts(plots.svg(envelope, "efficiency"))
    assert f"K = {knee}: last at or above" in words
    assert "below 70 %" in words


def test_stacks_have_a_bar_for_each_feasible_k_and_hatch_what_is_hidden(make):
    envelope = make["prediction"]()
    figure = plots.figure(envelope, "shares")
    axes = figure.axes[0]
    feasible = sum(envelope["result"]["feasible"])
    heights = [0.0] * feasible
    for container in axes.containers[:-1]:
        assert len(container) == feasible
        for i, bar in enumerate(container):
            heights[i] += bar.get_height()
    assert heights == pytest.approx([100.0] * feasible)
    assert axes.containers[-1][0].get_hatch() == "///"


def test_the_waterfall_ends_at_the_predicted_time(make):
    envelope = make["prediction"]()
    result = envelope["result"]
    axes = plots.figure(envelope, "ledger").axes[0]
    bars = axes.patches
    k = result["fastest"]["k"]
    seconds = k * result["time_s"][result["k"].index(k)]
    assert bars[-1].get_width() * 60 == pytest.approx(seconds)  # shown in minutes
    assert axes.get_xlabel().endswith("[min]")
    losses = sum(bar.get_width() for bar in bars[1:-1])
    assert bars[0].get_width() + losses == pytest.approx(bars[-1].get_width())


def test_cost_front_is_the_undominated_points(make):
    envelope = make["prediction"]()
    result = envelope["result"]
    front = next(
        line for line in plots.figure(envelope, "cost").axes[0].lines if line.get_label() == "Pareto front"
    )
    pairs = [(t, c) for t, c in zip(result["time_s"], result["cost_usd"], strict=True) if t is not None]
    shown = 1e-3  # of milliseconds, as the front's times are
    pairs = [(t / shown, c) for t, c in pairs]
    expected = sorted(p for p in pairs if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in pairs))
    assert list(zip(front.get_xdata(), front.get_ydata(), strict=True)) == [
        pytest.approx(p) for p in expected
    ]


def test_a_point_without_quality_is_on_no_front_and_crossed_out(make):
    told = make["study"]()
    k = told["result"]["k"]
    told["result"]["quality"] = {"excluded_k": [k[1]]}
    cost = plots.figure(told, "cost").axes[0]
    lines = {line.get_label(): line for line in cost.lines}
    assert len(lines["quality not held"].get_xdata()) == 1
    front = set(lines["Pareto front"].get_xdata())
    assert not front & set(lines["quality not held"].get_xdata())
    for name in ("speedup", "efficiency"):
        axes = plots.figure(told, name).axes[0]
        (crossed,) = (line for line in axes.lines if line.get_label() == "quality not held")
        assert list(crossed.get_xdata()) == [k[1]]


def test_money_stands_on_round_decimal_ticks(make):
    figure = plots.figure(make["prediction"](), "cost")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        ticks = [tick for tick in axis.get_majorticklocs() if tick > 0]
        assert {f"{tick:.6e}"[:4] for tick in ticks} <= {f"{n / 100:.2f}" for n in range(100, 1000, 5)}


def test_the_figure_that_shows_more_comes_first(make):
    told = make["prediction"]()
    for share, first in ((0.9, "efficiency"), (0.2, "speedup")):
        told["result"]["efficiency"] = [1.0, *[share] * (len(told["result"]["k"]) - 1)]
        assert rendering_of(told).figures(told)[0] == first


def test_plan_shows_budget_and_deadline(make):
    words = texts(plots.svg(make["plan"](), "pareto"))
    assert "budget 1,500 USD" in words
    assert "deadline 60 s" in words


def test_svg_bytes_repeat_and_hold_no_date(make):
    first, second = (plots.svg(make["prediction"](), "speedup") for _ in range(2))
    assert first == second
    assert "<dc:date>" not in first
    assert "/home/" not in first


@pytest.mark.parametrize("form", ["png", "pdf"])
def test_other_formats_repeat_too(form, make):
    outputs = []
    for _ in range(2):
        out = io.BytesIO()
        plots.save(plots.figure(make["check"]()), out, form)
        outputs.append(out.getvalue())
    assert outputs[0] == outputs[1]
    assert outputs[0][:4] in (b"\x89PNG", b"%PDF")


def test_global_matplotlib_state_is_left_alone(make):
    with mpl.rc_context({"font.size": 7.25, "axes.grid": False}):
        plots.figure(make["check"]())
        assert mpl.rcParams["font.size"] == 7.25
        assert mpl.rcParams["axes.grid"] is False


def test_unknown_plot_names_the_ones_there_are(make):
    with pytest.raises(UsageError, match="speedup, efficiency"):
        plots.figure(make["prediction"](), "nonsense")
    with pytest.raises(UsageError, match="has no plot"):
        plots.figure({"schema": "perfmodel/mystery/1", "inputs": {}, "result": {}})
    with pytest.raises(UsageError, match="svg, png, pdf"):
        plots.save(plots.figure(make["check"]()), "x.gif")


def test_hostile_names_do_not_break_a_plot(make):
    envelope = make["prediction"]()
    envelope["inputs"]["workload"]["name"] = "$\\frac{<script>&$ " + "x" * 300 + "\x00\n"
    words = " ".join(texts(plots.svg(envelope, "efficiency")))
    assert re.search(r"\\frac\{<script>", words)


def test_every_figure_a_kind_offers_can_be_drawn(make):
    for kind, build in make.items():
        envelope = build()
        for name in rendering_of(envelope).figures(envelope):
            assert (kind, name) in CASES


def test_k_ticks_stand_apart_however_many_k_there_are():
    _, axes = style.new("t", "", "y")
    style.k_axis(axes, [1, 2, 3, *range(4, 4096, 96), 16384])
    ticks = [float(x) for x in axes.get_xticks()]
    assert len(ticks) <= style.MOST_K_TICKS
    assert ticks[-1] == 16384
    assert {b / a for a, b in itertools.pairwise(ticks)} == {4.0}
    style.k_axis(axes, [1, 3, 12])
    assert list(axes.get_xticks()) == [1, 3, 12]


def test_a_weak_law_is_drawn_around_its_flat_one():
    from perfmodel.study.lawtable import LawOptions, tabulate

    law = tabulate(LawOptions("gustafson", (1, 2, 4, 8), serial=(0.05,))).envelope()
    (axes,) = plots.figure(law).axes
    assert axes.get_ylim()[1] == pytest.approx(1.05)
    assert set(axes.lines[0].get_ydata()) == {1.0}
