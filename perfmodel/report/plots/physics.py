"""Roofline, and the expected maximum of K workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report import text
from perfmodel.report.kinds import collective as collective_kind
from perfmodel.report.kinds import roofline as roofline_kind
from perfmodel.report.kinds import workdepth as workdepth_kind
from perfmodel.report.model import Envelope, listed, mapping, mappings, result_of
from perfmodel.report.plots import data, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def roofline(envelope: Envelope) -> Figure:
    """Each phase as a trail of dots under the roof, from the smallest K (large) to the largest (small)."""
    result = result_of(envelope)
    peak = float(result["peak_flop_per_s"])
    bandwidth = float(result["memory_bandwidth_bytes_per_s"])
    figure, axes = style.new(
        roofline_kind.title(envelope), "FLOP per byte of memory traffic", "", size=(9.0, 5.8)
    )
    phases = roofline_kind.phases(result)
    factor = style.unit_axis(axes, "y", [peak], "FLOP/s", "rate")
    ridge = peak / bandwidth
    trails = []
    for phase in phases:
        x, y = (listed(phase.get(key)) for key in ("intensity_flop_per_byte", "flop_per_s"))
        trails.append([(float(a), float(b)) for a, b in zip(x, y, strict=False) if a and b])
    xs = [a for trail in trails for a, _ in trail] or [ridge]
    low, high = min([*xs, ridge]) / 4, max([*xs, ridge]) * 4
    axes.plot(
        [low, ridge, high],
        [low * bandwidth / factor, peak / factor, peak / factor],
        color=style.INK,
        linewidth=2.2,
    )
    reach = (result.get("achievable_flop_per_s"), result.get("achievable_bytes_per_s"))
    if reach[0] and reach[1]:
        top, slope = float(reach[0]), float(reach[1])
        corner = top / slope
        axes.plot(
            [low, corner, high], [low * slope / factor, top / factor, top / factor], color=style.GREY,
            linewidth=1.2, linestyle="--", label="what kernels reach",
        )  # fmt: skip
    axes.annotate(
        f"peak {text.quantity(peak, 'FLOP/s')}", (high, peak / factor), xytext=(-4, 6), textcoords="offset points",
        ha="right", fontsize=11,
    )  # fmt: skip
    axes.axvline(ridge, color=style.GREY, linewidth=1, linestyle=":")
    axes.annotate(
        f"ridge {text.number(ridge)}", (ridge, 0.02), xycoords=("data", "axes fraction"), xytext=(5, 0),
        textcoords="offset points", fontsize=11, color=style.GREY,
    )  # fmt: skip
    for i, (phase, trail) in enumerate(zip(phases, trails, strict=True)):
        if not trail:
            continue
        color, marker = style.COLORS[i % 8], style.MARKERS[i % 8]
        axes.plot(
            [a for a, _ in trail],
            [b / factor for _, b in trail],
            color=color,
            linestyle=style.DASHES[i % 4],
            linewidth=1.3,
        )
        sizes = [110 - 80 * j / max(1, len(trail) - 1) for j in range(len(trail))]
        axes.scatter(
            [a for a, _ in trail], [b / factor for _, b in trail], s=sizes, color=color, marker=marker,
            edgecolor="white", zorder=4, label=style.plain(str(phase.get("name"))),
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    ks = [listed(phase.get("k")) for phase in phases]
    spans = [k for k in ks if len(k) > 1]
    if spans:
        axes.set_xlabel(
            f"FLOP per byte of memory traffic (large dot K = {spans[0][0]}, small dot K = {spans[0][-1]})"
        )
    style.legend(axes, loc="upper left")
    return figure


def straggler(envelope: Envelope) -> Figure:
    """E[max of K] over the mean against K, a line a distribution: what waiting for the slowest costs."""
    result = result_of(envelope)
    k = [float(x) for x in result.get("k") or ()]
    figure, axes = style.new("Waiting for the slowest of K", "", "E[max of K] / mean")
    curves = mapping(result.get("expected_max"))
    for i, name in enumerate(curves):
        x, y = data.points(k, data.numbers(curves, name, len(k)))
        axes.plot(
            x, y, color=style.COLORS[i % 8], linestyle=style.DASHES[i % 4], marker=style.MARKERS[i % 8],
            label=style.plain(str(name).replace("_", " ")),
        )  # fmt: skip
    measured = [p for p in mappings(result.get("measured")) if p.get("k") and p.get("ratio")]
    if measured:
        axes.plot(
            [p["k"] for p in measured], [p["ratio"] for p in measured], "D", color=style.RED, label="measured"
        )
    axes.axhline(1.0, color=style.INK, linewidth=1.2, linestyle="--", label="no wait")
    style.k_axis(axes, k)
    style.legend(axes, loc="upper left")
    return figure


def collective(envelope: Envelope) -> Figure:
    """Time of each algorithm against the size of the message, with what was measured and where they change places."""
    result = result_of(envelope)
    (chart,) = collective_kind.charts(envelope)
    figure, axes = style.new(chart.title, "", "")
    factor = style.unit_axis(axes, "y", [y for s in chart.series for y in s.y], "s", "time")
    wide = style.unit_axis(axes, "x", chart.series[0].x, "B", "message")
    for i, series in enumerate(chart.series):
        dots = series.style == "dots"
        axes.plot(
            [x / wide for x in series.x], [(y or 0.0) / factor for y in series.y],
            color=style.RED if dots else style.COLORS[i % 8], linestyle="" if dots else style.DASHES[i % 4],
            marker="D" if dots else "", label=series.name.replace("_", " "),
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    ranks = mapping(result.get("curves")).get("ranks")
    low, high = chart.series[0].x[0], chart.series[0].x[-1]
    for row in mappings(result.get("crossovers")):
        if row.get("ranks") == ranks and low < float(row["bytes"]) < high:
            style.vertical(axes, float(row["bytes"]) / wide, f"{row['to']} from here".replace("_", " "))
    style.legend(axes, loc="upper left")
    return figure


def admitted(envelope: Envelope) -> Figure:
    """Speedup of a greedy schedule on P workers, work over span, and the predicted speedup of a job."""
    (chart,) = workdepth_kind.charts(envelope)
    figure, axes = style.new(chart.title, "", "speedup")
    for i, series in enumerate(chart.series):
        x, y = data.points([float(k) for k in series.x], list(series.y))
        axes.plot(x, y, color=style.COLORS[i], linestyle=style.DASHES[i], marker=style.MARKERS[i] if i < 2 else "",
                  label=series.name)  # fmt: skip
    style.log2_y(axes)
    style.k_axis(axes, chart.series[0].x, "workers")
    style.legend(axes, loc="lower right")
    return figure


PLOTS: dict[str, style.Plot] = {
    "roofline": roofline,
    "straggler": straggler,
    "collective": collective,
    "admitted": admitted,
}
