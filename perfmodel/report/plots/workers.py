"""Workers over some steps: the work of each rank, and the band in which it idles until the slowest is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report.model import Envelope, mappings, result_of
from perfmodel.report.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def workers(envelope: Envelope) -> Figure:
    """The run with the most workers."""
    row = max(mappings(result_of(envelope).get("workers")), key=lambda item: int(item.get("k") or 0))
    ranks, busy, idle = row["ranks"], row["busy_s"], row["idle_s"]
    steps = len(busy[0])
    length = [max(b[i] + w[i] for b, w in zip(busy, idle, strict=True)) for i in range(steps)]
    share = f"{float(row['idle_share']):.1%}"
    figure, axes = style.new(
        f"{row['k']} workers step by step: {share} of their time idle", "", "rank",
        size=(9.0, max(2.6, 1.6 + 0.28 * len(ranks))),
    )  # fmt: skip
    factor = style.unit_axis(axes, "x", [sum(length)], "s", "time")
    for at, (rank, work, waits) in enumerate(zip(ranks, busy, idle, strict=True)):
        start = 0.0
        colour = style.RED if rank == row["slowest_rank"] else style.BLUE
        for i in range(steps):
            axes.barh(at, work[i] / factor, left=start / factor, height=0.72, color=colour)
            axes.barh(
                at, waits[i] / factor, left=(start + work[i]) / factor, height=0.72, color="none", edgecolor=style.GREY,
                hatch="////", linewidth=0.0,
            )  # fmt: skip
            start += length[i]
    edge = 0.0
    for seconds in length:
        edge += seconds
        axes.axvline(edge / factor, color=style.GREY, linewidth=0.8)
    axes.set_yticks(range(len(ranks)), [str(rank) for rank in ranks])
    axes.invert_yaxis()
    axes.margins(x=0.0)
    return figure


PLOTS = {"workers": workers}
