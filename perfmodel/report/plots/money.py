"""Cost against time: the front, the budget, the deadline; and sensitivities as a tornado."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report import text
from perfmodel.report.kinds import common, plan, study
from perfmodel.report.model import Envelope, amount, kind_of, mappings, result_of
from perfmodel.report.plots import data, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float, str]


def cost(envelope: Envelope) -> Figure:
    """Cost against time with a dot for each K (or candidate), the Pareto front, budget and deadline."""
    result = result_of(envelope)
    points = _candidates(envelope) if kind_of(envelope) == "plan" else _by_k(envelope)
    front = _front(points)
    basis = result.get("cost_basis")
    subject = plan.subject(envelope) if kind_of(envelope) == "plan" else common.subject(envelope)
    figure, axes = style.new(f"Cost against time{', ' + subject if subject else ''}", "", "")
    is_study = kind_of(envelope) == "study"
    spent = study.RUN_COST if is_study else "cost"
    whole = is_study or any(r.get("wall_s") for r in plan.candidates(result))
    factor = style.unit_axis(axes, "x", [t for t, _, _ in points], "s", "run time" if whole else "step time")
    axes.set_ylabel(f"{spent} [USD]" + (f", {style.plain(str(basis))}" if basis else ""))
    rest = [p for p in points if p not in front]
    if rest:
        axes.plot(
            [t / factor for t, _, _ in rest],
            [c for _, c, _ in rest],
            "o",
            color=style.PALE,
            markeredgecolor=style.GREY,
            label="dominated",
        )
    labelled = points if kind_of(envelope) != "plan" and len(points) <= 14 else front[:14]
    places = {label.rpartition(" ")[0] for _, _, label in labelled}
    place = places.pop() if len(places) == 1 else ""  # named once where all labelled points share it
    axes.plot(
        [t / factor for t, _, _ in front],
        [c for _, c, _ in front],
        "o-",
        color=style.BLUE,
        label=style.plain(f"Pareto front, {place}" if place else "Pareto front"),
    )
    for t, c, label in labelled:
        axes.annotate(
            style.plain(label.removeprefix(place).strip()),
            (t / factor, c),
            xytext=(7, 6),
            textcoords="offset points",
            fontsize=10.5,
        )
    _plain_ticks(axes, "y")
    if len(points) > 1 and max(t for t, _, _ in points) > 8 * min(t for t, _, _ in points):
        axes.set_xscale("log", base=2)
        _plain_ticks(axes, "x")
    if len(points) > 1 and max(c for _, c, _ in points) > 8 * min(c for _, c, _ in points):
        axes.set_yscale("log", base=2)
        _plain_ticks(axes, "y")
    _limits(axes, envelope, factor)
    axes.margins(0.1)
    style.legend(axes, loc="best")
    return figure


def tornado(envelope: Envelope) -> Figure:
    """Sensitivities: the change of the step time when one input moves down and up, largest on top."""
    rows = mappings(result_of(envelope).get("sensitivity"))

    def reach(row: dict[str, object]) -> float:
        return max(abs(amount(row, end) or 0.0) for end in ("low", "high"))

    rows = sorted(rows, key=reach, reverse=True)[:14]
    figure, axes = style.new(
        "What the answer is sensitive to",
        "change of the step time [%]",
        "",
        size=(9.0, max(3.0, 1.6 + 0.5 * len(rows))),
    )
    for i, row in enumerate(rows):
        for key, color, hatch, label in (
            ("low", style.SKY, "", "input lower"),
            ("high", style.ORANGE, "//", "input higher"),
        ):
            value = (row.get(key) or 0.0) * 100
            axes.barh(
                i,
                value,
                color=color,
                hatch=hatch,
                edgecolor="white",
                height=0.62,
                label=label if i == 0 else None,
            )
            axes.annotate(
                f"{value:+.3g} %", (value, i), xytext=(5 if value >= 0 else -5, 0), textcoords="offset points",
                va="center", ha="left" if value >= 0 else "right", fontsize=10.5,
            )  # fmt: skip
    axes.axvline(0, color=style.INK, linewidth=1)
    names = [_input_label(row) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.18)
    style.legend(axes, loc="lower right")
    return figure


def _input_label(row: dict[str, object]) -> str:
    name = str(row.get("meaning") or row.get("input") or row.get("name") or "").replace("_", " ")
    change = row.get("change")
    moved = f" ±{text.quantity(change, '%')}" if isinstance(change, (int, float)) else ""
    return text.lines(style.plain(name + moved), 40)


def _by_k(envelope: Envelope) -> list[Point]:
    curve = data.scaling(envelope)
    rows = zip(curve.k, curve.time, curve.cost, strict=True)
    return [
        (t, c, f"K={text.number(k).replace(',', '')}") for k, t, c in rows if t is not None and c is not None
    ]


def _candidates(envelope: Envelope) -> list[Point]:
    result = result_of(envelope)
    rows = [*plan.candidates(result), *mappings(result.get("by_k"))]
    rows = [r for r in rows if r.get("time_s") and r.get("cost_usd")]
    clusters = {r.get("cluster") for r in rows}
    prefix = len(clusters) > 1
    return [
        (
            float(r.get("wall_s") or r["time_s"]),
            float(r["cost_usd"]),
            (f"{r.get('cluster')} " if prefix else "") + f"K={r.get('k')}",
        )
        for r in rows
    ]


def _front(points: list[Point]) -> list[Point]:
    """The points that none beats in both, from fast to cheap."""
    front: list[Point] = []
    for point in sorted(points):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _limits(axes: Axes, envelope: Envelope, factor: float) -> None:
    budget = common.setting(envelope, "budget_usd")
    deadline = common.setting(envelope, "deadline_s")
    if isinstance(budget, (int, float)):
        axes.axhline(
            budget,
            color=style.RED,
            linestyle="--",
            linewidth=1.4,
            label=f"budget {text.quantity(budget, 'USD')}",
        )
    if isinstance(deadline, (int, float)):
        axes.axvline(
            deadline / factor,
            color=style.RED,
            linestyle=":",
            linewidth=1.8,
            label=f"deadline {text.quantity(deadline, 's')}",
        )


def _plain_ticks(axes: Axes, which: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: text.number(value)))
    axis.set_minor_locator(NullLocator())


PLOTS: dict[str, style.Plot] = {"cost": cost, "pareto": cost, "tornado": tornado}
