"""Speedup, efficiency, weak scaling, and two jobs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report import text
from perfmodel.report.kinds import common, comparison, law
from perfmodel.report.model import Envelope, kind_of, mapping, result_of
from perfmodel.report.plots import data, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def speedup(envelope: Envelope) -> Figure:
    """Speedup against the ideal line: band, knee and p* with their reasons, boundaries, measured points.

    A law's every curve is drawn, and beside a study's the one with an injected straggler.
    """
    if kind_of(envelope) == "law":
        return _laws(envelope, "speedup", "speedup S(K)", 1.0)
    curve = data.scaling(envelope)
    figure, axes = style.new(f"Speedup{_of(curve)}", "", "speedup S(K)", size=(9.0, 5.8))
    _lines(axes, curve)
    _injected(axes, envelope, curve.k, "speedup", 1.0)
    style.k_axis(axes, curve.k)
    style.log2_y(axes)
    _boundaries(axes, envelope, top=True)
    _speedup_marks(axes, envelope, curve)
    style.legend(axes, loc="upper left")
    return figure


def efficiency(envelope: Envelope) -> Figure:
    """Efficiency with the zone under the threshold shaded and the last K above it named."""
    if kind_of(envelope) == "law":
        return _laws(envelope, "efficiency", "efficiency E(K) [%]", 100.0)
    curve = data.scaling(envelope)
    figure, axes = style.new(f"Efficiency{_of(curve)}", "", "efficiency E(K) [%]")
    x, y = data.points(curve.k, curve.efficiency)
    low = [None if s is None else s / k for s, k in zip(curve.speedup_low, curve.k, strict=True)]
    high = [None if s is None else s / k for s, k in zip(curve.speedup_high, curve.k, strict=True)]
    _band(axes, curve.k, low, high, 100)
    axes.plot(
        x,
        [v * 100 for v in y],
        color=style.BLUE,
        marker="o",
        label="measured" if curve.is_study else "predicted",
    )
    _not_held(axes, curve, curve.efficiency, 100.0)
    _injected(axes, envelope, curve.k, "efficiency", 100.0)
    top = max([105.0, *(v * 105 for v in y)])
    axes.set_ylim(0, top)
    limit = curve.threshold * 100
    axes.axhspan(0, limit, color=style.PALE, alpha=0.45, zorder=0, linewidth=0)
    axes.axhline(limit, color=style.GREY, linewidth=1.2, linestyle="--")
    axes.annotate(
        f"below {text.number(limit)} %", (0.01, limit), xycoords=("axes fraction", "data"), xytext=(0, -4),
        textcoords="offset points", ha="left", va="top", color=style.GREY, fontsize=11,
    )  # fmt: skip
    above = [(k, v) for k, v in zip(x, y, strict=True) if v >= curve.threshold and k not in curve.excluded]
    if above:
        k, value = above[-1]
        # Beside the last point there is no room on the right.
        right = k < x[-1] or len(x) == 1
        _point(
            axes, k, value * 100, f"K = {text.number(k)}: last at or above", ((8, 26) if right else (-8, -40))
        )
    style.k_axis(axes, curve.k)
    _boundaries(axes, envelope)
    style.legend(axes, loc="lower left")
    return figure


def weak(envelope: Envelope) -> Figure:
    """Weak scaling: T(K0)/T(K) against a flat 1.0, with the loss at each K in percent; of a law its every curve."""
    if kind_of(envelope) == "law":
        return _laws(envelope, "efficiency", "efficiency against a flat 1", 1.0)
    curve = data.scaling(envelope)
    figure, axes = style.new(f"Weak scaling{_of(curve)}", "", "T(K0) / T(K)")
    start = next((t for t in curve.time if t), None)

    def ratio(times: data.Values) -> data.Values:
        return [start / t if start and t else None for t in times]

    _band(axes, curve.k, ratio(curve.time_high), ratio(curve.time_low))
    x, y = data.points(curve.k, ratio(curve.time))
    axes.axhline(1.0, color=style.INK, linestyle="--", linewidth=1.6, label="ideal: flat")
    axes.plot(x, y, color=style.BLUE, marker="o", label="measured" if curve.is_study else "predicted")
    for k, value in zip(x[1:], y[1:], strict=True):
        axes.annotate(
            f"{text.number((value - 1) * 100, 2)} %", (k, value), xytext=(0, -18), textcoords="offset points",
            ha="center", fontsize=10.5, color=style.INK,
        )  # fmt: skip
    axes.set_ylim(0, max([1.1, *y]) * 1.05)
    style.k_axis(axes, curve.k)
    _boundaries(axes, envelope)
    style.legend(axes, loc="lower left")
    return figure


def compared(envelope: Envelope) -> Figure:
    """Time per sample of two jobs over K, with bands."""
    left, right = comparison.per_sample(result_of(envelope))
    names = comparison.names(envelope)
    figure, axes = style.new(f"{names[0]} against {names[1]}", "", "")
    times = [t for side in (left, right) for t in side.get("time_s") or () if t]
    factor = style.unit_axis(axes, "y", times, "s", "time per sample")
    all_k: list[float] = []
    for i, (name, side) in enumerate(zip(names, (left, right), strict=True)):
        k = [float(x) for x in side.get("k") or ()]
        all_k += k
        low, high = (data.numbers(side, key, len(k)) for key in ("time_s_low", "time_s_high"))
        _band(axes, k, low, high, 1 / factor, color=style.COLORS[i])
        x, y = data.points(k, data.numbers(side, "time_s", len(k)))
        axes.plot(
            x, [v / factor for v in y], color=style.COLORS[i], linestyle=style.DASHES[i], marker=style.MARKERS[i],
            label=style.plain(name),
        )  # fmt: skip
    style.k_axis(axes, all_k)
    style.amount_axis(axes, "y", [t / factor for t in times], log=True)
    style.legend(axes, loc="best")
    return figure


def _laws(envelope: Envelope, key: str, label: str, factor: float) -> Figure:
    """Every curve of a law, against the ideal."""
    result = result_of(envelope)
    k = [float(x) for x in result.get("k") or ()]
    figure, axes = style.new(law.title(envelope), "", label)
    ideal = [factor] * len(k) if key == "efficiency" else k
    axes.plot(k, ideal, color=style.INK, linestyle="--", linewidth=1.4, label="ideal")
    for i, curve in enumerate(law.curves(result)):
        x, y = data.points(k, data.numbers(curve, key, len(k)))
        axes.plot(
            x, [v * factor for v in y], color=style.COLORS[i % 8], linestyle=style.DASHES[i // 8 % 4],
            marker=style.MARKERS[i % 8], label=style.plain(law.label(curve)),
        )  # fmt: skip
    style.k_axis(axes, k, "workers K")
    if key == "speedup":
        style.log2_y(axes)
    else:
        axes.set_ylim(0, 1.05 * factor)
    style.legend(axes, loc="upper left" if key == "speedup" else "lower left")
    return figure


def _injected(axes: Axes, envelope: Envelope, k: list[float], key: str, factor: float) -> None:
    """A study's curve with one slow worker per point, and its bend."""
    found = mapping(result_of(envelope).get("straggler"))
    x, y = data.points(k, data.numbers(found, key, len(k)))
    if not x:
        return
    low, high = (f"{float(value):g}" for value in found.get("factors") or (1, 1))
    bend = f", bend at K = {found['bend_k']}" if found.get("bend_k") is not None else ""
    axes.plot(
        x, [v * factor for v in y], color=style.RED, linestyle="-.", marker="s", markersize=5, linewidth=1.8,
        label=f"with a straggler, {low} to {high} times{bend}",
    )  # fmt: skip


def _lines(axes: Axes, curve: data.Scaling) -> None:
    _band(
        axes,
        curve.k,
        curve.speedup_low,
        curve.speedup_high,
        label="95 % interval" if curve.is_study else "90 % band",
    )
    axes.plot(curve.k, curve.k, color=style.INK, linestyle="--", linewidth=1.4, label="ideal")
    x, y = data.points(curve.k, curve.speedup)
    axes.plot(x, y, color=style.BLUE, marker="o", label="measured" if curve.is_study else "predicted")
    _not_held(axes, curve, curve.speedup, 1.0)
    start = curve.at(curve.time, curve.baseline)
    if curve.measured and start:
        weak_run = curve.regime == "weak"
        pairs = [(k, (k if weak_run else curve.baseline) * start / t) for k, t in curve.measured]
        axes.plot(
            [k for k, _ in pairs], [s for _, s in pairs], "D", color=style.RED, markeredgecolor="white", label="measured",
            zorder=5,
        )  # fmt: skip


def _not_held(axes: Axes, curve: data.Scaling, values: data.Values, factor: float) -> None:
    """A cross over each point that the quality gate took out."""
    x, y = data.points(curve.k, values)
    out = [(k, v * factor) for k, v in zip(x, y, strict=True) if k in curve.excluded]
    if out:
        axes.plot(
            [k for k, _ in out], [v for _, v in out], "X", color=style.PALE, markeredgecolor=style.GREY, markersize=10,
            zorder=5, label="quality not held",
        )  # fmt: skip


def _speedup_marks(axes: Axes, envelope: Envelope, curve: data.Scaling) -> None:
    result = result_of(envelope)
    knee = mapping(mapping(result.get("knee")).get("threshold"))
    marks: dict[float, list[str]] = {}
    if knee.get("k") is not None:
        marks.setdefault(float(knee["k"]), []).append(f"knee: {knee.get('cause') or 'efficiency threshold'}")
    star = mapping(result.get("p_star"))
    if star.get("k") is not None:
        marks.setdefault(float(star["k"]), []).append(
            f"p*: cheapest, {text.quantity(star.get('cost_usd'), 'USD')}"
        )
    bend = mapping(result.get("bend"))
    if bend.get("k") is not None:
        marks.setdefault(float(bend["k"]), []).append(f"bend: {bend.get('cause') or ''}")
    if result.get("recommended_k") is not None:
        marks.setdefault(float(result["recommended_k"]), []).append("recommended")
    placed = 0
    for k in sorted(marks):
        value = curve.at(curve.speedup, k)
        if value is None:
            continue
        # The corner under the curve is empty: reasons stand there, and an elbow drops from K to each.
        axes.plot(
            [k],
            [value],
            "o",
            color=style.RED,
            markersize=11,
            markerfacecolor="none",
            markeredgewidth=2.2,
            zorder=6,
        )
        axes.annotate(
            style.wrapped("; ".join(marks[k]), 38), (k, value), xytext=(0.985, 0.05 + 0.16 * placed),
            textcoords="axes fraction", ha="right", va="bottom", fontsize=11, color=style.INK, zorder=7,
            arrowprops={
                "arrowstyle": "-", "color": style.GREY, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 7,
                "relpos": (0.0, 0.5), "connectionstyle": "angle,angleA=0,angleB=90,rad=0",
            },
            bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": style.PALE},
        )  # fmt: skip
        placed += 1


def _boundaries(axes: Axes, envelope: Envelope, *, top: bool = False) -> None:
    low, high = axes.get_xlim()
    for mark in common.boundaries(result_of(envelope)):
        if low < mark.x < high:
            style.vertical(axes, mark.x, mark.label, top=top)


def _band(
    axes: Axes, k: list[float], low: data.Values, high: data.Values, factor: float = 1.0, *, label: str = "",
    color: str = style.BLUE,
) -> None:  # fmt: skip
    rows = [
        (a, b * factor, c * factor)
        for a, b, c in zip(k, low, high, strict=True)
        if b is not None and c is not None
    ]
    if len(rows) > 1:
        x, y0, y1 = zip(*rows, strict=True)
        axes.fill_between(x, y0, y1, color=color, alpha=0.18, linewidth=0, label=label or None)


def _point(axes: Axes, x: float, y: float, label: str, offset: tuple[int, int]) -> None:
    axes.plot(
        [x], [y], "o", color=style.RED, markersize=11, markerfacecolor="none", markeredgewidth=2.2, zorder=6
    )
    axes.annotate(
        style.plain(label), (x, y), xytext=offset, textcoords="offset points", ha="left" if offset[0] > 0 else "right",
        fontsize=11, arrowprops={"arrowstyle": "-", "color": style.GREY},
    )  # fmt: skip


def _of(curve: data.Scaling) -> str:
    return f" of {curve.subject}" if curve.subject else ""


PLOTS: dict[str, style.Plot] = {
    "speedup": speedup,
    "efficiency": efficiency,
    "weak": weak,
    "comparison": compared,
}
