"""A service: latency against throughput with knee and limits, latencies over load with bands, a step by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfmodel.report import text
from perfmodel.report.kinds import common
from perfmodel.report.kinds import serving as kind
from perfmodel.report.model import Envelope, listed, mapping, mappings, result_of
from perfmodel.report.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _known(*columns: Sequence[float | None]) -> list[list[float]]:
    rows = [
        known
        for row in zip(*columns, strict=True)
        if len(known := [v for v in row if v is not None]) == len(columns)
    ]
    return [[float(row[i]) for row in rows] for i in range(len(columns))]


def _open_above(highs: list[float | None], values: list[float | None]) -> list[float | None]:
    """High ends, far above the figure where a slow machine would be overrun: the band has no end there."""
    return [
        1e6 * value if high is None and value is not None else high
        for high, value in zip(highs, values, strict=True)
    ]


def _loads(result: Mapping[str, object]) -> list[float]:
    return listed(result.get("load"))


def exchange(envelope: Envelope) -> Figure:
    """Time per token (p99, or what the slo names) against output tokens per second, with the knee."""
    result = result_of(envelope)
    loads = _loads(result)
    limits = mappings(result.get("slo"))
    per_token = next((i for i in limits if i.get("quantity") == "tpot"), None)
    statistic = str(per_token["statistic"]) if per_token else "mean"
    out = common.array(result, "throughput_out_tokens_per_s", len(loads))
    figure, axes = style.new(
        f"Latency against throughput, {kind.title(envelope)}", "output tokens/s", "", size=(9.0, 5.6)
    )
    times = mapping(result.get("tpot_s"))
    values = common.array(times, statistic, len(loads))
    factor = style.unit_axis(axes, "y", values, "s", f"TPOT {statistic}")
    low, high = (common.array(times, f"{statistic}_{end}", len(loads)) for end in ("low", "high"))
    x, lower, upper = _known(out, low, _open_above(high, values))
    if x:
        axes.fill_between(
            x,
            [v / factor for v in lower],
            [v / factor for v in upper],
            color=style.BLUE,
            alpha=0.15,
            linewidth=0,
            label="90 % band",
        )
    x, y, shown = _known(out, values, loads)
    axes.plot(x, [v / factor for v in y], color=style.BLUE, marker="o", label=f"TPOT {statistic}")
    unit = "/s" if result.get("load_kind") == "rate" else " in flight"
    for px, py, load in zip(x, y, shown, strict=True):
        axes.annotate(
            f"{text.number(load)}{unit}",
            (px, py / factor),
            xytext=(6, -14),
            textcoords="offset points",
            fontsize=9,
            color=style.INK,
        )
    if per_token:
        _limit(
            axes, float(per_token["limit_s"]) / factor, f"limit {text.quantity(per_token['limit_s'], 's')}"
        )
    knee = mapping(mapping(result.get("knee")).get("slo"))
    at = knee.get("load")
    if at is not None and x:
        axes.axvline(
            _throughput(result, float(at), shown, x),
            color=style.RED,
            linewidth=1.4,
            linestyle="-.",
            label=f"knee: {text.number(float(at))}{unit}",
        )
    if x and y:
        axes.set_ylim(
            0,
            max([*(v / factor for v in y), *([float(per_token["limit_s"]) / factor] if per_token else [])])
            * 1.6,
        )
    axes.set_xlim(left=0)
    style.legend(axes, loc="upper left")
    return figure


def _throughput(result: dict[str, object], load: float, loads: list[float], out: list[float]) -> float:
    """Output tokens a second at a load: as many a request at any rate, between points in a closed loop."""
    if result.get("load_kind") == "rate":
        return load * out[0] / loads[0]
    import numpy as np

    return float(np.interp(load, loads, out))


def _limit(axes: Axes, y: float, label: str) -> None:
    axes.axhline(y, color=style.GREY, linewidth=1.2, linestyle="--")
    axes.annotate(style.plain(label), (0.99, y), xycoords=("axes fraction", "data"), xytext=(0, 4), textcoords="offset points",
                  ha="right", color=style.GREY, fontsize=10)  # fmt: skip


def over_load(envelope: Envelope) -> Figure:
    """TTFT and TPOT over the load, mean and p99 with bands, limits and knee."""
    result = result_of(envelope)
    loads = _loads(result)
    figure, first = style.new("", "", "", size=(9.0, 7.2))
    first.remove()
    grid = figure.subplots(2, 1, sharex=True)
    limits = mappings(result.get("slo"))
    knee = mapping(mapping(result.get("knee")).get("slo")).get("load")
    for axes, quantity in zip(grid, ("ttft", "tpot"), strict=True):
        times = mapping(result.get(f"{quantity}_s"))
        p99 = common.array(times, "p99", len(loads))
        factor = style.unit_axis(axes, "y", p99, "s", kind.NAMES[quantity])
        for row, statistic in enumerate(("p99", "mean")):
            values = common.array(times, statistic, len(loads))
            low, high = (common.array(times, f"{statistic}_{end}", len(loads)) for end in ("low", "high"))
            x, lower, upper = _known(loads, low, _open_above(high, values))
            color = style.COLORS[row]
            if x:
                axes.fill_between(
                    x,
                    [v / factor for v in lower],
                    [v / factor for v in upper],
                    color=color,
                    alpha=0.15,
                    linewidth=0,
                )
            x, y = _known(loads, values)
            axes.plot(
                x,
                [v / factor for v in y],
                color=color,
                linestyle=style.DASHES[row],
                marker=style.MARKERS[row],
                label=statistic,
            )
        for item in limits:
            if item.get("quantity") == quantity:
                _limit(axes, float(item["limit_s"]) / factor, f"limit of {item['statistic']}")
        if knee is not None:
            axes.axvline(float(knee), color=style.RED, linewidth=1.4, linestyle="-.", label="slo ends")
        shown = [v for v in [*p99, *common.array(times, "p99_high", len(loads))] if v is not None]
        shown += [float(item["limit_s"]) for item in limits if item.get("quantity") == quantity]
        low_ends = [v for v in common.array(times, "mean_low", len(loads)) if v is not None]
        axes.set_yscale("log")
        if shown and low_ends:
            axes.set_ylim(0.7 * min(low_ends) / factor, 1.6 * max(shown) / factor)
        from matplotlib.ticker import FuncFormatter, NullFormatter

        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        style.legend(axes, loc="upper left")
    steady = [load for load, good in zip(loads, result.get("stable") or (), strict=False) if good]
    style.k_axis(grid[1], steady or loads, kind.LOADS.get(str(result.get("load_kind")), "load"))
    grid[0].tick_params(labelbottom=False)
    grid[0].set_title(style.plain(f"Latencies over load, {kind.title(envelope)}"))
    return figure


def step(envelope: Envelope) -> Figure:
    """The mean step between two tokens by part, over the load."""
    result = result_of(envelope)
    loads = _loads(result)
    steps = common.array(result, "step_s", len(loads))
    shown = [i for i, value in enumerate(steps) if value]
    parts = mapping(result.get("parts_s"))
    layers = common.largest(
        {name: [common.array(parts, name, len(loads))[i] for i in shown] for name in parts}, len(shown)
    )
    figure, axes = style.new(
        f"The mean step by part, {kind.title(envelope)}",
        kind.LOADS.get(str(result.get("load_kind")), "load"),
        "",
        size=(9.0, 6.0),
    )
    factor = style.unit_axis(axes, "y", [steps[i] for i in shown], "s", "time of a step")
    bottom = [0.0] * len(shown)
    for row, (name, values) in enumerate(layers.items()):
        heights = [(v or 0.0) / factor for v in values]
        axes.bar(range(len(shown)), heights, bottom=bottom, width=0.72, label=style.plain(name.replace("_", " ")),
                 color=style.COLORS[row % len(style.COLORS)], edgecolor="white", linewidth=0.6, hatch=style.HATCHES[row % len(style.HATCHES)])  # fmt: skip
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes.set_xticks(range(len(shown)), [text.number(float(loads[i])) for i in shown])
    axes.grid(axis="x", visible=False)
    style.legend_below(figure, axes)
    return figure


def front(envelope: Envelope) -> Figure:
    """What a user sees against what an accelerator makes: configurations that no other beats in both."""
    points = mappings(result_of(envelope).get("pareto"))
    figure, axes = style.new(
        "Speed of a user against tokens of an accelerator",
        "output tokens/s of a user",
        "output tokens/s of an accelerator",
        size=(9.0, 5.8),
    )
    names = list(dict.fromkeys(f"{item.get('cluster')}, {item.get('precision')}" for item in points))
    for row, name in enumerate(names):
        own = [item for item in points if f"{item.get('cluster')}, {item.get('precision')}" == name]
        axes.plot(
            [item["tokens_per_s_per_user"] for item in own],
            [item["tokens_per_s_per_accelerator"] for item in own],
            linestyle="none",
            color=style.COLORS[row % len(style.COLORS)],
            marker=style.MARKERS[row % len(style.MARKERS)],
            label=style.plain(name),
        )
    x = [item["tokens_per_s_per_user"] for item in points]
    axes.plot(
        x,
        [item["tokens_per_s_per_accelerator"] for item in points],
        color=style.GREY,
        linewidth=0.9,
        zorder=0,
    )
    last = ""
    for item in points:
        label = kind.layout_text(mapping(item.get("layout")))
        if label != last:
            axes.annotate(
                label,
                (item["tokens_per_s_per_user"], item["tokens_per_s_per_accelerator"]),
                xytext=(6, 6),
                textcoords="offset points",
                fontsize=9,
            )
        last = label
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles, labels, loc="best")
    return figure


PLOTS: dict[str, object] = {
    "serving": exchange,
    "serving_load": over_load,
    "serving_step": step,
    "serving_front": front,
}
