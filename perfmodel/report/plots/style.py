"""One house style for every plot: safe for colour-blind eyes, readable in grey and from the back of a room.

Colours are those of Okabe and Ito (2008), ordered so that neighbours differ in lightness too; lines also differ in
dash and marker, stacked parts in hatching, so nothing is told by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from perfmodel.report import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from perfmodel.report.model import Envelope

    Plot = Callable[[Envelope], Figure]

BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, INK = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#222222",
)  # fmt: skip
GREY, PALE = "#767676", "#D9D9D9"
COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY)
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MOST_K_TICKS = 12
HATCHES = ("", "", "//", "", "..", "", "xx", "\\\\")

_SETTINGS: dict[str, object] = {
    "font.family": "DejaVu Sans",
    "font.size": 13,
    "axes.titlesize": 15,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.labelsize": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.4,
    "lines.markersize": 7,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "hatch.linewidth": 0.7,
    "svg.fonttype": "none",
    "svg.hashsalt": "perfmodel",
    "figure.dpi": 120,
}


def context() -> AbstractContextManager[None]:
    """The settings, for the time of drawing or saving only: global state stays as it was."""
    import matplotlib

    settings: dict[Any, object] = {
        key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"
    }
    return matplotlib.rc_context(settings | _SETTINGS)


def new(
    title: str, x_label: str, y_label: str, *, size: tuple[float, float] = (9.0, 5.2)
) -> tuple[Figure, Axes]:
    """An empty figure in the house style; call inside `context()`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(plain(title), wrap=True)
    axes.set_xlabel(plain(x_label))
    axes.set_ylabel(plain(y_label))
    return figure, axes


def plain(value: str) -> str:
    """Text that matplotlib does not read as mathematics, shortened to a line.

    >>> plain("cost $5 to $6")
    'cost \\\\$5 to \\\\$6'
    """
    value = " ".join("".join(c if c.isprintable() else " " for c in value).split())
    return (value if len(value) <= 90 else value[:87] + "...").replace("$", r"\$")


def k_axis(axes: Axes, k: Sequence[float], label: str = "accelerators K") -> None:
    """A log2 axis whose ticks are the K values themselves; powers of two where those are too many to stand apart."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    known = sorted({float(x) for x in k if x > 0})
    if not known:
        return
    axes.set_xscale("log", base=2)
    if len(known) > 2 * MOST_K_TICKS:
        first, last = math.ceil(math.log2(known[0])), math.floor(math.log2(known[-1]))
        known_ticks = [2.0**i for i in range(first, last + 1)]
    else:
        known_ticks = known
    ticks = known_ticks[::-1][:: -(-len(known_ticks) // MOST_K_TICKS)][::-1]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(known[0] / 1.15, known[-1] * 1.15)
    axes.set_xlabel(label)


def log2_y(axes: Axes) -> None:
    """A log2 y axis with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


WIDE = 8.0  # ends of an axis that are further apart, as a factor, stand on a log scale


def amount_axis(axes: Axes, which: str, values: Iterable[float | None], *, log: bool = False) -> None:
    """An axis of times or dollars: round decimal ticks, on a log scale where the ends are far apart, or always with `log`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    known = [value for value in values if value is not None and value > 0]
    span = max(known) / min(known) if known else 1.0
    if log or span > WIDE:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=10)
        subs = (1.0, 2.0, 5.0) if span < 2e3 else (1.0,)
        axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=MOST_K_TICKS))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text.number(value)))


def unit_axis(axes: Axes, which: str, values: Iterable[float | None], unit: str, label: str) -> float:
    """Label an axis with the unit that suits the values; returns the factor to divide them by."""
    factor, shown = text.scale(list(values), unit)
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(f"{label} [{shown}]" if shown else label)
    return factor


def legend(axes: Axes, **options: Any) -> None:
    """A legend where there is something to tell apart."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1:
        axes.legend(handles, labels, **{"loc": "best", **options})


def legend_below(figure: Figure, axes: Axes) -> None:
    """A legend under the axes, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=11)


def vertical(axes: Axes, x: float, label: str, *, top: bool = True) -> None:
    """A thin boundary with its name at the top or the bottom."""
    axes.axvline(x, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
    axes.annotate(
        plain(label), (x, 1.0 if top else 0.0), xycoords=("data", "axes fraction"), xytext=(3, -2 if top else 4),
        textcoords="offset points", va="top" if top else "bottom", ha="left", fontsize=10, color=GREY, rotation=90,
    )  # fmt: skip


def wrapped(value: str, width: int) -> str:
    """Text broken into lines of at most `width` characters."""
    import textwrap

    return "\n".join(textwrap.wrap(plain(value), width))
