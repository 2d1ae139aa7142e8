"""Predictions held against measurements and limits: validation, error by K, calibration fits, policies, claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.report import text
from perfmodel.report.kinds import audit as audit_kind
from perfmodel.report.kinds import timings as timings_kind
from perfmodel.report.model import Envelope, mappings, result_of
from perfmodel.report.plots import data, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pair = tuple[float, float]
FEWEST = 5  # points of an octave of which a middle is drawn


def validation(envelope: Envelope) -> Figure:
    """Predicted against measured time on log axes, one marker a mode, the lines of a factor 1.2 around exact."""
    groups = {mode: [(m, p) for m, p, _ in rows] for mode, rows in _by_mode(envelope).items()}
    figure, axes = style.new("Predicted against measured", "measured [s]", "predicted [s]", size=(7.4, 6.6))
    _diagonal(axes, groups)
    return figure


def error_by_k(envelope: Envelope) -> Figure:
    """Predicted over measured time by K: every point, and for each octave of K the middle and the inner 80 % of a mode.

    A bias that grows with K shows as a slope of the middles.
    """
    figure, axes = style.new("Error by K", "", "predicted / measured")
    ks: list[float] = []
    for i, (mode, rows) in enumerate(_by_mode(envelope).items()):
        ks += [k for _, _, k in rows]
        aside, color, marker = 2.0 ** (0.22 * (i - 1)), style.COLORS[i % 8], style.MARKERS[i % 8]
        axes.plot(
            [k * aside for _, _, k in rows], [p / m for m, p, _ in rows], marker, color=color, alpha=0.18,
            markersize=3, markeredgewidth=0, zorder=1,
        )  # fmt: skip
        octaves = _octaves(rows)
        middle = [median for _, _, median, _ in octaves]
        axes.errorbar(
            [k * aside for k, *_ in octaves], middle,
            yerr=[[mid - low for _, low, mid, _ in octaves], [high - mid for _, _, mid, high in octaves]],
            fmt=marker, color=color, markersize=5.5, elinewidth=2.2, label=style.plain(mode.replace("_", " ")),
        )  # fmt: skip
    axes.axhline(1, color=style.INK, linewidth=1.2)
    style.k_axis(axes, ks)
    axes.set_xlim(axes.get_xlim()[0] / 1.2, axes.get_xlim()[1] * 1.2)  # the modes stand side by side
    _ratio_axis(axes)
    style.legend_below(figure, axes)
    return figure


def _octaves(rows: list[tuple[float, float, float]]) -> list[tuple[float, float, float, float]]:
    """For each octave of K with `FEWEST` points or more: K, and the 10th, 50th and 90th percentile of predicted / measured."""
    import numpy as np

    found: dict[int, list[float]] = {}
    for measured, predicted, k in rows:
        found.setdefault(round(math.log2(k)), []).append(predicted / measured)
    drawn: list[tuple[float, float, float, float]] = []
    for octave, ratios in sorted(found.items()):
        if len(ratios) >= FEWEST:
            low, middle, high = (float(q) for q in np.quantile(ratios, (0.1, 0.5, 0.9)))
            drawn.append((2.0**octave, low, middle, high))
    return drawn


def _ratio_axis(axes: Axes) -> None:
    """Ratios on a log axis, as wide to both sides of 1, with plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_ylim()
    far = min(max(high, 1.0 / max(low, 1e-3), 1.6), 12.0)
    axes.set_yscale("log")
    axes.set_ylim(1.0 / far, far)
    axes.yaxis.set_major_locator(FixedLocator([t for r in (1.0, 1.4, 2, 3, 5, 10) for t in (r, 1 / r)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2g}"))


def calibration(envelope: Envelope) -> Figure:
    """Fitted against measured points."""
    rows = mappings(result_of(envelope).get("points"))
    pairs = [
        (float(r["measured_s"]), float(r["fitted_s"]))
        for r in rows
        if r.get("measured_s") and r.get("fitted_s")
    ]
    figure, axes = style.new("Fit against the measurements", "measured [s]", "fitted [s]", size=(7.4, 6.6))
    _diagonal(axes, {"points": pairs})
    return figure


def sweeps(envelope: Envelope) -> Figure:
    """Bus bandwidth of each collective sweep against its bytes: measured points, and the fit through them."""
    result = result_of(envelope)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in mappings(result.get("sweep_points")):
        groups.setdefault(str(row["sweep"]), []).append(row)
    figure, axes = style.new("Collective sweeps and their fits", "message [B]", "")
    rates = [float(row["bus_bandwidth_bytes_per_s"]) for rows in groups.values() for row in rows]
    factor = style.unit_axis(axes, "y", rates, "B/s", "bus bandwidth")
    for i, (name, rows) in enumerate(groups.items()):
        size = [float(row["bytes"]) for row in rows]
        color = style.COLORS[i % 8]
        axes.plot(
            size, [float(row["bus_bandwidth_bytes_per_s"]) / factor for row in rows], style.MARKERS[i % 8],
            color=color, label=style.plain(name.replace("_", " ")),
        )  # fmt: skip
        fit = [float(row["fitted_bus_bandwidth_bytes_per_s"]) / factor for row in rows]
        axes.plot(size, fit, color=color, linestyle=style.DASHES[i % 4])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _plain_log_axes(axes)
    for item in mappings(result.get("crossovers")):
        style.vertical(axes, float(item["bytes"]), f"{item['from']} to {item['to']}")
    style.legend_below(figure, axes)
    return figure


def policies(envelope: Envelope) -> Figure:
    """Each policy's value and band as a share of its limit: the line at 1 is the limit."""
    rows = [
        r
        for r in mappings(result_of(envelope).get("policies"))
        if _number(r.get("limit")) and _number(r.get("value"))
    ]
    figure, axes = style.new("Policies", "value / limit", "", size=(9.0, max(3.2, 2.0 + 0.6 * len(rows))))
    looks = {"pass": (style.BLUE, "o"), "fail": (style.RED, "X"), "undecided": (style.ORANGE, "s")}
    seen: set[str] = set()
    for i, row in enumerate(rows):
        limit, verdict = float(row["limit"]) or 1.0, str(row.get("verdict"))
        color, marker = looks.get(verdict, (style.GREY, "o"))
        if _number(row.get("low")) and _number(row.get("high")):
            axes.plot([row["low"] / limit, row["high"] / limit], [i, i], color=color, linewidth=6, alpha=0.35)
        axes.plot(
            [row["value"] / limit], [i], marker, color=color, markersize=11, label=None if verdict in seen else verdict,
            linestyle="none",
        )  # fmt: skip
        seen.add(verdict)
    axes.axvline(1.0, color=style.INK, linewidth=1.6)
    axes.set_yticks(range(len(rows)), [style.plain(str(row.get("expression"))) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    style.legend_below(figure, axes)
    return figure


def audit(envelope: Envelope) -> Figure:
    """Claimed against predicted values over K, with the band."""
    result = result_of(envelope)
    rows = [r for r in mappings(result.get("points")) if r.get("k")]
    if not any(_number(r.get(key)) for r in rows for key in ("claimed_s", "predicted_s")):
        return _audited_efficiency(envelope, rows)
    figure, axes = style.new(audit_kind.title(envelope), "", "time of a step [s]")
    k = [float(r["k"]) for r in rows]
    columns = {
        key: [float(r[key]) if _number(r.get(key)) else None for r in rows]
        for key in ("claimed_s", "predicted_s", "low_s", "high_s")
    }
    band = [
        (a, lo, hi) for a, lo, hi in zip(k, columns["low_s"], columns["high_s"], strict=True) if lo and hi
    ]
    if len(band) > 1:
        axes.fill_between(
            [b[0] for b in band],
            [b[1] for b in band],
            [b[2] for b in band],
            color=style.BLUE,
            alpha=0.18,
            linewidth=0,
            label="90 % band",
        )
    x, y = data.points(k, columns["predicted_s"])
    axes.plot(x, y, color=style.BLUE, marker="o", label="predicted")
    x, y = data.points(k, columns["claimed_s"])
    axes.plot(x, y, "D", color=style.RED, label="claimed", zorder=5)
    style.k_axis(axes, k)
    style.log2_y(axes)
    style.legend(axes, loc="best")
    return figure


def _audited_efficiency(envelope: Envelope, rows: Sequence[Mapping[str, object]]) -> Figure:
    """Claimed against predicted efficiency, of a claim that names neither times nor a batch to make them from."""
    figure, axes = style.new(audit_kind.title(envelope), "", "efficiency E = S / K")
    ladder = [r for r in mappings(result_of(envelope).get("ladder")) if _number(r.get("efficiency"))]
    k = [float(r["k"]) for r in ladder]
    if len(k) > 1:
        low, high = ([float(r[key]) for r in ladder] for key in ("low", "high"))
        axes.fill_between(k, low, high, color=style.BLUE, alpha=0.18, linewidth=0, label="95 % band")
    axes.plot(k, [float(r["efficiency"]) for r in ladder], color=style.BLUE, marker="o", label="predicted")
    claimed = [
        (float(r["k"]), float(r["efficiency"])) for r in mappings(rows) if _number(r.get("efficiency"))
    ]
    axes.plot(
        [x for x, _ in claimed], [y for _, y in claimed], "D", color=style.RED, label="claimed", zorder=5
    )
    style.k_axis(axes, sorted({*k, *(x for x, _ in claimed)}))
    axes.set_ylim(bottom=0.0)
    style.legend(axes, loc="best")
    return figure


def _plain_log_axes(axes: Axes) -> None:
    """Message sizes as people say them, rates as plain numbers: powers beside a tick are hard to compare."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    def size(value: float, _: int) -> str:
        for step, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if value >= step:
                return f"{value / step:g} {name}"
        return f"{value:g} B"

    axes.set_xlabel("message")
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=10))
    axes.xaxis.set_major_formatter(FuncFormatter(size))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    wide = high > 20 * low
    axes.yaxis.set_major_locator(
        LogLocator(base=10, subs=(1, 2, 5) if wide else tuple(i / 2 for i in range(2, 20)))
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _by_mode(envelope: Envelope) -> dict[str, list[tuple[float, float, float]]]:
    groups: dict[str, list[tuple[float, float, float]]] = {}
    for family in mappings(result_of(envelope).get("families")):
        rows = groups.setdefault(str(family.get("mode")), [])
        for point in mappings(family.get("points")):
            if point.get("measured_s") and point.get("predicted_s"):
                rows.append(
                    (float(point["measured_s"]), float(point["predicted_s"]), float(point.get("k") or 1))
                )
    return groups


def _diagonal(axes: Axes, groups: dict[str, list[Pair]]) -> None:
    values = [v for pairs in groups.values() for pair in pairs for v in pair]
    if not values:
        return
    low, high = min(values) / 1.4, max(values) * 1.4
    axes.fill_between(
        [low, high], [low / 1.2, high / 1.2], [low * 1.2, high * 1.2], color=style.PALE, alpha=0.6, linewidth=0,
        label="within a factor of 1.2",
    )  # fmt: skip
    axes.plot([low, high], [low, high], color=style.INK, linewidth=1.4, linestyle="--", label="exact")
    for i, (name, pairs) in enumerate(groups.items()):
        axes.plot(
            [m for m, _ in pairs], [p for _, p in pairs], style.MARKERS[i % 8], color=style.COLORS[i % 8], alpha=0.65,
            markersize=5.5, label=style.plain(f"{name.replace('_', ' ')} ({text.number(len(pairs))})"),
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    style.legend(axes, loc="upper left")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def runs(envelope: Envelope) -> Figure:
    """One's own runs as dots on the prediction with its band, as accelerator time: a perfect job is a flat line."""
    (chart,) = timings_kind.charts(envelope)
    predicted, measured = chart.series
    figure, axes = style.new(timings_kind.title(envelope), "", "")
    spent = [k * t for k, t in zip(predicted.x, predicted.y, strict=True) if t is not None]
    factor = style.unit_axis(axes, "y", spent, "s", "accelerators x step time")
    rows = [
        (k, k * y / factor, k * low / factor, k * high / factor)
        for k, y, low, high in zip(predicted.x, predicted.y, predicted.low, predicted.high, strict=True)
        if y is not None and low is not None and high is not None
    ]
    x, y, low, high = zip(*rows, strict=True)
    axes.fill_between(x, low, high, color=style.BLUE, alpha=0.18, label="90 % band")
    axes.plot(x, y, color=style.BLUE, marker="o", label="predicted")
    seen = [(k, k * t / factor) for k, t in zip(measured.x, measured.y, strict=True) if t is not None]
    axes.plot([k for k, _ in seen], [t for _, t in seen], "D", color=style.RED, label="measured")
    style.k_axis(axes, predicted.x)
    axes.set_ylim(bottom=0)
    style.legend(axes)
    return figure


PLOTS: dict[str, style.Plot] = {
    "validation": validation,
    "runs": runs,
    "error_by_k": error_by_k,
    "calibration": calibration,
    "sweeps": sweeps,
    "policies": policies,
    "audit": audit,
}
