"""What-if of a plan: where knee, p* and the fastest K go when one value of the job is swept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report import text
from perfmodel.report.model import Envelope, result_of
from perfmodel.report.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = (("knee_k", "knee"), ("p_star_k", "p*"), ("fastest_k", "fastest"))


def sweep(envelope: Envelope) -> Figure:
    """Knee, p* and fastest K over the swept value, on log2 axes where the values allow it."""
    table = dict(result_of(envelope).get("sweep") or {})
    values = [float(v) for v in table.get("value") or ()]
    path, unit = str(table.get("path") or "value"), str(table.get("unit") or "")
    figure, axes = style.new(f"What if {path} were different", f"{path}{f' [{unit}]' if unit else ''}", "K")
    for i, (key, label) in enumerate(_LINES):
        known = [(x, y) for x, y in zip(values, table.get(key) or (), strict=False) if y is not None]
        if known:
            axes.plot(
                [x for x, _ in known],
                [y for _, y in known],
                color=style.COLORS[i],
                linestyle=style.DASHES[i],
                marker=style.MARKERS[i],
                label=label,
            )
    if values and min(values) > 0:
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [text.number(v) for v in values])
        axes.minorticks_off()
    style.log2_y(axes)
    axes.margins(0.08)
    style.legend(axes)
    return figure


PLOTS: dict[str, style.Plot] = {"sweep": sweep}
