"""Cost against time: the front, the budget, the deadline; and sensitivities as a tornado."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from perfmodel.report import text
from perfmodel.report.kinds import common, plan, study
from perfmodel.report.model import Envelope, amount, kind_of, mapping, mappings, result_of
from perfmodel.report.plots import data, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """A K or a candidate: time of its run or step, cost of its run, name and K."""

    time_s: float
    usd: float
    label: str
    k: float


MOST_BARS = 10  # of a tornado


def cost(envelope: Envelope) -> Figure:
    """Cost against time with a dot for each K (or candidate), the Pareto front, budget and deadline."""
    result = result_of(envelope)
    points = _candidates(envelope) if kind_of(envelope) == "plan" else _by_k(envelope)
    excluded = {float(k) for k in mapping(result.get("quality")).get("excluded_k") or ()}
    out = [p for p in points if p.k in excluded]
    front = _front([p for p in points if p not in out])
    basis = result.get("cost_basis")
    subject = plan.subject(envelope) if kind_of(envelope) == "plan" else common.subject(envelope)
    figure, axes = style.new(f"Cost against time{', ' + subject if subject else ''}", "", "")
    is_study = kind_of(envelope) == "study"
    spent = study.RUN_COST if is_study else "cost"
    whole = is_study or bool(_run_times(result)) or any(r.get("wall_s") for r in plan.candidates(result))
    factor = style.unit_axis(axes, "x", [p.time_s for p in front], "s", "run time" if whole else "step time")
    axes.set_ylabel(f"{spent} [USD]" + (f", {style.plain(str(basis))}" if basis else ""))
    rest = [p for p in points if p not in front and p not in out]
    for these, marker, told in ((rest, "o", "dominated"), (out, "X", "quality not held")):
        if these:
            axes.plot(
                [p.time_s / factor for p in these],
                [p.usd for p in these],
                marker,
                color=style.PALE,
                markeredgecolor=style.GREY,
                label=told,
            )
    labelled = points if kind_of(envelope) != "plan" and len(points) <= 14 else front[:14]
    places = {p.label.rpartition(" ")[0] for p in labelled}
    place = places.pop() if len(places) == 1 else ""  # named once where all labelled points share it
    axes.plot(
        [p.time_s / factor for p in front],
        [p.usd for p in front],
        "o-",
        color=style.BLUE,
        label=style.plain(f"Pareto front, {place}" if place else "Pareto front"),
    )
    for p in labelled:
        axes.annotate(
            style.plain(p.label.removeprefix(place).strip()),
            (p.time_s / factor, p.usd),
            # What is dominated lies above or to the right of the front.
            xytext=(-3, -6) if p in front else (7, 6),
            textcoords="offset points",
            ha="right" if p in front else "left",
            va="top" if p in front else "bottom",
            fontsize=10.5,
        )
    style.amount_axis(axes, "x", [p.time_s / factor for p in points])
    style.amount_axis(axes, "y", [p.usd for p in points])
    _limits(axes, envelope, factor)
    axes.margins(0.13)
    style.legend(axes, loc="best")
    return figure


def tornado(envelope: Envelope) -> Figure:
    """Sensitivities: the change of the step time when one input moves down and up, largest on top."""
    rows = mappings(result_of(envelope).get("sensitivity"))

    def reach(row: dict[str, object]) -> float:
        return max(abs(amount(row, end) or 0.0) for end in ("low", "high"))

    rows = sorted(rows, key=reach, reverse=True)[:MOST_BARS]
    names = [_input_label(row) for row in rows]
    lines = max((name.count("\n") + 1 for name in names), default=1)
    figure, axes = style.new(
        "What the answer is sensitive to",
        "change of the step time [%]",
        "",
        size=(9.0, max(3.0, 1.6 + (0.26 + 0.24 * lines) * len(rows))),
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
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.3)  # the figures beside the bars are as wide
    style.legend(axes, loc="lower right")
    return figure


def _input_label(row: dict[str, object]) -> str:
    name = str(row.get("meaning") or row.get("input") or row.get("name") or "").replace("_", " ")
    change = row.get("change")
    moved = f" ±{text.quantity(change, '%')}" if isinstance(change, (int, float)) else ""
    return text.lines(style.plain(name + moved), 40)


def _run_times(result: Mapping[str, Any]) -> data.Values:
    """Times of the whole run at each K of a prediction, where its length is known."""
    run = mapping(result.get("run"))
    return data.numbers(run, "time_s", len(result.get("k") or ())) if run.get("time_s") else []


def _by_k(envelope: Envelope) -> list[Point]:
    curve = data.scaling(envelope)
    rows = zip(curve.k, _run_times(result_of(envelope)) or curve.time, curve.cost, strict=True)
    return [
        Point(t, c, f"K={text.number(k).replace(',', '')}", k)
        for k, t, c in rows
        if t is not None and c is not None
    ]


def _candidates(envelope: Envelope) -> list[Point]:
    result = result_of(envelope)
    rows = [*plan.candidates(result), *mappings(result.get("by_k"))]
    rows = [r for r in rows if r.get("time_s") and r.get("cost_usd")]
    clusters = {r.get("cluster") for r in rows}
    prefix = len(clusters) > 1
    return [
        Point(
            float(r.get("wall_s") or r["time_s"]),
            float(r["cost_usd"]),
            (f"{r.get('cluster')} " if prefix else "") + f"K={r.get('k')}",
            float(r.get("k") or 0),
        )
        for r in rows
    ]


def _front(points: list[Point]) -> list[Point]:
    """The points that none beats in both, from fast to cheap."""
    front: list[Point] = []
    for point in sorted(points):
        if not front or point.usd < front[-1].usd:
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


PLOTS: dict[str, style.Plot] = {"cost": cost, "pareto": cost, "tornado": tornado}
