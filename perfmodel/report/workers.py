"""Workers over some steps as SVG: a row for each rank, its work, and the band in which it idles until the slowest is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from perfmodel.report import text
from perfmodel.report.model import amount, listed
from perfmodel.report.svg import nice_ticks

_ROW, _LEFT = 15.0, 76.0
_WORK, _SLOWEST, _IDLE = "bar s0", "bar s5", "bar s7"


def draw(row: Mapping[str, object], width: int = 960, identity: str = "workers") -> str:
    """One run; nothing where it has no steps."""
    busy, idle, at = (listed(row.get(key)) for key in ("busy_s", "idle_s", "steps"))
    steps = len(busy[0]) if busy else 0
    if not steps:
        return ""
    length = [max(b[i] + w[i] for b, w in zip(busy, idle, strict=True)) for i in range(steps)]
    total = sum(length)
    right, top = width - 10.0, 8.0
    scale = (right - _LEFT) / total
    out: list[str] = []
    y = top
    for rank, work, waits in zip(listed(row["ranks"]), busy, idle, strict=True):
        out.append(f'<text x="4" y="{y + 10:.1f}" class="small">rank {rank}</text>')
        start = 0.0
        for i in range(steps):
            kind = _SLOWEST if rank == row.get("slowest_rank") else _WORK
            out.append(_bar(start, work[i], y, scale, kind, f"rank {rank}, step {at[i]}: works"))
            out.append(_bar(start + work[i], waits[i], y, scale, _IDLE, f"rank {rank}, step {at[i]}: idles"))
            start += length[i]
        y += _ROW
    edge = 0.0
    for seconds in [0.0, *length]:
        edge += seconds
        x = _LEFT + edge * scale
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{y:.1f}" class="grid"/>')
    factor, unit = text.scale([total], "s")
    for tick in nice_ticks(0.0, total * factor):
        x = _LEFT + tick / factor * scale
        out.append(f'<text x="{x:.1f}" y="{y + 13:.1f}" text-anchor="middle" class="tick">{tick:g}</text>')
    out.append(
        f'<text x="{right:.1f}" y="{y + 28:.1f}" text-anchor="end" class="axis-title">time [{unit}]</text>'
    )
    name = escape(identity, quote=True)
    return (
        f'<svg viewBox="0 0 {width} {y + 34:.0f}" role="img" aria-labelledby="{name}-t {name}-d" class="chart">'
        f'<title id="{name}-t">Workers step by step</title><desc id="{name}-d">{escape(_words(row))}</desc>{"".join(out)}</svg>'
    )


def figures(rows: Sequence[Mapping[str, object]]) -> str:
    """A figure for each run, with its legend, for a page."""
    made = []
    for number, row in enumerate(rows):
        picture = draw(row, identity=f"workers-{number}")
        if not picture:
            continue
        keys = (("s0", "works"), ("s5", "works, the slowest"), ("s7", "idles until the slowest is done"))
        legend = "".join(
            f'<span class="key"><span class="swatch {c} block"></span>{escape(n)}</span>' for c, n in keys
        )
        made.append(
            f"<figure><figcaption>Workers step by step <small>{escape(_words(row))}</small></figcaption>"
            f'<div class="legend">{legend}</div><div class="scroll">{picture}</div></figure>'
        )
    return "".join(made)


def _bar(start: float, seconds: float, y: float, scale: float, kind: str, label: str) -> str:
    faint = ' fill-opacity="0.35"' if kind == _IDLE else ""
    said = f"{label} {text.quantity(seconds, 's')}"
    return (
        f'<rect x="{_LEFT + start * scale:.2f}" y="{y:.1f}" width="{seconds * scale:.2f}" height="{_ROW - 3:.1f}" '
        f'class="{kind}"{faint}><title>{escape(said)}</title></rect>'
    )


def _words(row: Mapping[str, object]) -> str:
    steps = listed(row.get("steps"))
    if row.get("same_times"):
        return f"{row.get('file')}: all ranks report the same times, waiting included, so that nobody is seen to idle"
    return (
        f"{row.get('file')}, steps {steps[0]} to {steps[-1]}: {row.get('k')} workers idle {amount(row, 'idle_share') or 0.0:.1%} "
        f"of their time; rank {row.get('slowest_rank')} is the slowest in {amount(row, 'slowest_share') or 0.0:.0%} of the steps"
    )
