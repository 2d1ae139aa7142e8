"""Where the step time goes: stacked parts, shares, and the waterfall of lost accelerator time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perfmodel.report import text
from perfmodel.report.kinds import common, explanation
from perfmodel.report.model import Envelope, amount, mapping, result_of
from perfmodel.report.plots import data, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PARTS = 8
SMALL = 0.002  # share of the whole below which a loss has no bar of its own


def parts(envelope: Envelope) -> Figure:
    """Stacked step time over K, communication hidden behind compute hatched."""
    return _stack(envelope, shares=False)


def shares(envelope: Envelope) -> Figure:
    """The same as shares of the step: each bar is 100 %."""
    return _stack(envelope, shares=True)


def ledger(envelope: Envelope, k: float | None = None) -> Figure:
    """A waterfall from the baseline's accelerator time to the predicted one at one K (default: the fastest)."""
    result = result_of(envelope)
    curve = data.scaling(envelope)
    book = mapping(result.get("ledger_accelerator_s"))
    chosen = _ledger_k(result, curve) if k is None else k
    index = curve.k.index(chosen) if chosen in curve.k else len(curve.k) - 1
    n = len(curve.k)
    losses = [(str(name), data.numbers(book, name, n)[index] or 0.0) for name in book]
    total = (curve.time[index] or 0.0) * curve.k[index]
    small = sum(loss for _, loss in losses if abs(loss) < SMALL * total)
    losses = sorted(
        ((name, loss) for name, loss in losses if abs(loss) >= SMALL * total), key=lambda pair: -pair[1]
    )
    if abs(small) > 1e-9 * total:
        losses.append(("everything else", small))
    ideal = total - sum(loss for _, loss in losses)
    labels = ["ideal", *(name.replace("_", " ") for name, _ in losses), "predicted"]
    figure, axes = style.new(
        f"Where the accelerator time goes at K = {text.number(curve.k[index])}", "", "",
        size=(9.0, max(3.2, 1.6 + 0.48 * len(labels))),
    )  # fmt: skip
    factor = style.unit_axis(axes, "x", [total], "s", "accelerator time of a step")
    edge = ideal
    axes.barh(0, ideal / factor, color=style.GREEN, height=0.62)
    _end_label(axes, ideal / factor, 0, text.number(ideal / factor))
    for row, (_, loss) in enumerate(losses, start=1):
        start = edge if loss >= 0 else edge + loss
        axes.barh(
            row,
            abs(loss) / factor,
            left=start / factor,
            color=style.RED if loss >= 0 else style.SKY,
            height=0.62,
        )
        _end_label(
            axes,
            (start + abs(loss)) / factor,
            row,
            f"{'+' if loss >= 0 else '-'}{text.number(abs(loss) / factor)}",
        )
        axes.plot([edge / factor] * 2, [row - 1 + 0.31, row - 0.31], color=style.GREY, linewidth=1)
        edge += loss
    last = len(labels) - 1
    axes.barh(last, total / factor, color=style.BLUE, height=0.62)
    _end_label(axes, total / factor, last, text.number(total / factor))
    axes.set_yticks(range(len(labels)), [style.plain(label) for label in labels])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    return figure


def terms(envelope: Envelope) -> Figure:
    """The terms of one step as bars, largest first."""
    rows = [(time, row) for row in explanation.terms(result_of(envelope)) if (time := amount(row, "time_s"))]
    figure, axes = style.new(
        explanation.title(envelope), "", "", size=(9.0, max(3.0, 1.5 + 0.45 * len(rows)))
    )
    factor = style.unit_axis(axes, "x", [max((time for time, _ in rows), default=1.0)], "s", "time")
    for i, (time, row) in enumerate(rows):
        axes.barh(i, time / factor, color=style.BLUE, height=0.62)
        share = amount(row, "share")
        label = text.quantity(time, "s") + (f", {text.quantity(share, '%')}" if share is not None else "")
        _end_label(axes, time / factor, i, label)
    axes.set_yticks(
        range(len(rows)), [style.plain(str(row.get("name")).replace("_", " ")) for _, row in rows]
    )
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.22)
    return figure


def _stack(envelope: Envelope, *, shares: bool) -> Figure:
    curve = data.scaling(envelope)
    shown = [i for i, t in enumerate(curve.time) if t]
    found = common.largest(
        {name: [v[i] for i in shown] for name, v in curve.parts.items()}, len(shown), MOST_PARTS - 1
    )
    layers = {name: [v or 0.0 for v in values] for name, values in found.items()}
    totals = [sum(values[j] for values in layers.values()) for j in range(len(shown))]
    title = "Step time by part" + (", as shares" if shares else "")
    subject = f", {curve.subject}" if curve.subject else ""
    figure, axes = style.new(title + subject, "accelerators K", "", size=(9.0, 6.0))
    if shares:
        axes.set_ylabel("share of the step [%]")
        scales = [100 / t if t else 0.0 for t in totals]
    else:
        factor = style.unit_axis(axes, "y", totals, "s", "step time")
        scales = [1 / factor] * len(totals)
    bottom = [0.0] * len(shown)
    first_tops: list[float] = []
    for row, (name, values) in enumerate(layers.items()):
        heights = [v * s for v, s in zip(values, scales, strict=True)]
        color = style.COLORS[row % len(style.COLORS)]
        axes.bar(
            range(len(shown)), heights, bottom=bottom, width=0.72, label=style.plain(name.replace("_", " ")), color=color,
            edgecolor="white", linewidth=0.6, hatch=style.HATCHES[row % len(style.HATCHES)],
        )  # fmt: skip
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
        first_tops = first_tops or list(bottom)
    hidden = [sum((v[i] or 0.0) for v in curve.hidden.values()) for i in shown]
    if any(hidden):
        heights = [min(h * s, top) for h, s, top in zip(hidden, scales, first_tops, strict=True)]
        axes.bar(
            range(len(shown)), heights, bottom=[t - h for t, h in zip(first_tops, heights, strict=True)], width=0.72,
            facecolor=style.BLUE, edgecolor="white", hatch="///", linewidth=0, label="communication hidden behind compute",
        )  # fmt: skip
    axes.set_xticks(range(len(shown)), [text.number(curve.k[i]).replace(",", "") for i in shown])
    axes.grid(axis="x", visible=False)
    if shares:
        axes.set_ylim(0, 100)
    style.legend_below(figure, axes)
    return figure


def _ledger_k(result: Mapping[str, object], curve: data.Scaling) -> float:
    fastest = mapping(result.get("fastest")).get("k")
    known = [k for k, t in zip(curve.k, curve.time, strict=True) if t]
    return float(fastest) if fastest is not None else known[-1] if known else curve.k[-1]


def _end_label(axes: Axes, x: float, y: float, label: str) -> None:
    axes.annotate(label, (x, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=11)


PLOTS: dict[str, style.Plot] = {"parts": parts, "shares": shares, "ledger": ledger, "terms": terms}
