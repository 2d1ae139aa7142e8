"""Charts as SVG text: no library, no fonts, no script needed to read them.

Colours are CSS classes (`s0` to `s7`), so that the page decides them for light, dark and print. Every value carries
a `<title>`: a browser shows it on hover, and the report's script turns it into a better tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from perfmodel.report import text
from perfmodel.report.model import Chart, Series

WIDE_SPAN = 1e6  # of a log axis: powers of two beyond it are hard to read
MOST_DOTS = 600  # a series beyond it is thinned evenly: the page must stay small
_Scale = Callable[[float], float]


@dataclass(frozen=True)
class _Frame:
    """The plotting area in pixels and the scales into it."""

    left: float
    top: float
    right: float
    bottom: float
    x: _Scale
    y: _Scale


def draw(chart: Chart, *, width: int = 720, height: int = 380, identity: str = "chart") -> str:
    """One chart as an `<svg>` element that scales with its place on the page."""
    body = _stack(chart, width, height) if chart.kind == "stack" else _lines(chart, width, height)
    name = escape(identity, quote=True)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-t {name}-d" class="chart" '
        f'preserveAspectRatio="xMidYMid meet"><title id="{name}-t">{escape(chart.title)}</title>'
        f'<desc id="{name}-d">{escape(chart.alt)}</desc>{body}</svg>'
    )


def legend(chart: Chart) -> str:
    """The legend as HTML buttons: the script toggles the series they name."""
    items = []
    for i, series in enumerate(chart.series):
        style = series.style if chart.kind != "stack" else "block"
        items.append(
            f'<button type="button" class="key" data-series="{i % 8}" aria-pressed="true">'
            f'<span class="swatch s{i % 8} {style}"></span>{escape(series.name.replace("_", " "))}</button>'
        )
    return f'<div class="legend">{"".join(items)}</div>' if len(items) > 1 else ""


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers that cover a span.

    >>> nice_ticks(0, 97)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Powers of two that cover a span, thinned to what fits; of ten where the span is too wide for readable ones.

    >>> log_ticks(1, 1024, 6), log_ticks(2e-6, 3000, 6)
    ([1.0, 4.0, 16.0, 64.0, 256.0, 1024.0], [1e-05, 0.001, 0.1, 10.0, 1000.0])
    """
    if high > WIDE_SPAN * low:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        return [float(f"1e{i}") for i in range(first, last + 1, -(-(last - first + 1) // most) or 1)]
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    if last < first:
        return [low]
    step = -(-(last - first + 1) // most) or 1
    return [2.0**i for i in range(first, last + 1, step)]


def amount_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round decimal numbers over a log axis: 1, 2 and 5 of each power of ten, powers alone where these are too many.

    >>> amount_ticks(1.7, 184, 8), amount_ticks(3, 3e6, 6)
    ([2.0, 5.0, 10.0, 20.0, 50.0, 100.0], [10.0, 100.0, 1000.0, 10000.0, 100000.0, 1000000.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{m}e{i}") for i in range(first, last + 1) for m in steps]
        inside = [tick for tick in ticks if low * (1.0 - 1e-9) <= tick <= high * (1.0 + 1e-9)]
        if 2 <= len(inside) <= most:
            return inside
    return nice_ticks(low, high, most) if high < 10.0 * low else log_ticks(low, high, most)


AMOUNTS = ("s", "USD", "J", "Wh", "g", "us", "ms")  # stand on round decimal ticks


def _lines(chart: Chart, width: int, height: int) -> str:
    xs = [x for s in chart.series for x in s.x]
    ys = [
        y for s in chart.series for v in (s.y, s.low, s.high) for y in v if y is not None and math.isfinite(y)
    ]
    if chart.y_log:
        ys = [y for y in ys if y > 0]
    if not xs or not ys:
        return f'<text x="{width / 2}" y="{height / 2}" text-anchor="middle">no values</text>'
    x_log = chart.x_log and min(xs) > 0
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = (min(ys), max(ys)) if chart.y_log else (min(0.0, *ys), max(ys) * 1.06)
    if chart.floor is not None:
        y_high = max(y_high, chart.floor)
    factor, unit = text.scale(ys if chart.y_log else [y_high], chart.y_quantity)
    y_label = f"{chart.y_title} [{unit}]" if unit else chart.y_title
    left, top, right, bottom = 54.0, 26.0, width - 14.0, height - 42.0
    frame = _Frame(
        left, top, right, bottom,
        _scale(x_low, x_high, left + 8, right - 8, log=x_log), _scale(y_low, y_high, bottom - 4, top + 4, log=chart.y_log),
    )  # fmt: skip
    out = [_axes(frame, chart.x_title, y_label)]
    narrow = width < 500
    x_ticks = (
        (amount_ticks if chart.x_amount else log_ticks)(x_low, x_high, 6 if narrow else 11)
        if x_log
        else nice_ticks(x_low, x_high, 4 if narrow else 7)
    )
    logs = amount_ticks if chart.y_quantity in AMOUNTS else log_ticks
    y_ticks = (logs if chart.y_log else nice_ticks)(y_low / factor, y_high / factor, 7 if chart.y_log else 6)
    out += [_x_tick(frame, x) for x in x_ticks]
    out += [_y_tick(frame, y * factor, y) for y in y_ticks]
    if chart.floor is not None:
        y = frame.y(chart.floor)
        out.append(
            f'<rect class="zone" x="{left:g}" y="{y:.1f}" width="{right - left:.1f}" height="{bottom - y:.1f}"/>'
        )
        out.append(f'<line class="limit" x1="{left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
    out += _boundary_marks(frame, chart)
    for i, series in enumerate(chart.series):
        out.append(_series(frame, series, i))
    out += _point_marks(frame, chart, narrow)
    out.append(_hits(frame, chart))
    return "".join(out)


def _series(frame: _Frame, series: Series, index: int) -> str:
    color = f"s{index % 8}"
    out = [f'<g class="series {color} {series.style}" data-series="{index % 8}">']
    if series.low and series.high:
        edge = [
            (x, lo, hi)
            for x, lo, hi in zip(series.x, series.low, series.high, strict=False)
            if lo is not None and hi is not None and lo > 0
        ]
        if len(edge) > 1:
            upper = [f"{frame.x(x):.1f},{frame.y(hi):.1f}" for x, _, hi in edge]
            lower = [f"{frame.x(x):.1f},{frame.y(lo):.1f}" for x, lo, _ in reversed(edge)]
            out.append(f'<polygon class="band" points="{" ".join(upper + lower)}"/>')
    points = [(x, y) for x, y in zip(series.x, series.y, strict=False) if y is not None and math.isfinite(y)]
    if series.style != "dots" and len(points) > 1:
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        out.append(f'<polyline class="line" points="{path}"/>')
    if series.style in ("line", "dots"):
        stride = -(-len(points) // MOST_DOTS) or 1
        radius = 3.6 if len(points) < 60 else 2.2
        for x, y in points[::stride]:
            out.append(f'<circle class="dot" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="{radius}"/>')
    return "".join([*out, "</g>"])


def _stack(chart: Chart, width: int, height: int) -> str:
    xs = list(chart.series[0].x)
    keep = [i for i in range(len(xs)) if any(i < len(s.y) and s.y[i] for s in chart.series)]
    if not keep:
        return f'<text x="{width / 2}" y="{height / 2}" text-anchor="middle">no values</text>'
    left, top, right, bottom = 54.0, 26.0, width - 14.0, height - 42.0
    frame = _Frame(left, top, right, bottom, lambda v: v, _scale(0, 1.0, bottom, top + 4, log=False))
    out = [_axes(frame, chart.x_title, f"share of {chart.y_title} [%]")]
    out += [_y_tick(frame, share, share * 100) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    slot = (right - left) / len(keep)
    skip = -(-len(keep) // max(1, int((right - left) // 34)))
    for place, i in enumerate(keep):
        values = [max(0.0, s.y[i] or 0.0) for s in chart.series]
        total = sum(values) or 1.0
        edge = bottom
        lines = [f"{chart.x_title} = {text.number(xs[i])}: {text.quantity(total, chart.y_quantity)}"]
        bars = []
        for j, value in enumerate(values):
            tall = value / total * (bottom - top - 4)
            edge -= tall
            bars.append(
                f'<rect class="bar s{j % 8}" data-series="{j % 8}" x="{left + slot * (place + 0.12):.1f}" y="{edge:.1f}" '
                f'width="{slot * 0.76:.1f}" height="{tall:.1f}"/>'
            )
            if value:
                name = chart.series[j].name.replace("_", " ")
                lines.append(
                    f"{name} {text.quantity(value, chart.y_quantity)}, {text.quantity(value / total, '%')}"
                )
        out += bars
        middle = left + slot * (place + 0.5)
        if place % skip == 0:
            out.append(
                f'<text class="tick" x="{middle:.1f}" y="{bottom + 16:g}" text-anchor="middle">{_tick(xs[i])}</text>'
            )
        out.append(_hit(left + slot * place, top, slot, bottom - top, middle, lines))
    return "".join(out)


def _hits(frame: _Frame, chart: Chart) -> str:
    """Invisible strips, one for each x, that carry all values there."""
    xs = sorted({x for s in chart.series if s.style != "dots" or len(chart.series) == 1 for x in s.x})
    xs = xs or sorted({x for s in chart.series for x in s.x})
    if len(xs) > MOST_DOTS:
        return ""
    pixels = [frame.x(x) for x in xs]
    out = []
    for i, x in enumerate(xs):
        start = frame.left if i == 0 else (pixels[i - 1] + pixels[i]) / 2
        end = frame.right if i == len(xs) - 1 else (pixels[i] + pixels[i + 1]) / 2
        lines = [f"{chart.x_title} = {text.number(x)}"]
        for series in chart.series:
            for j, at in enumerate(series.x):
                if at != x or j >= len(series.y) or series.y[j] is None:
                    continue
                line = f"{series.name.replace('_', ' ')} {text.quantity(series.y[j], chart.y_quantity)}"
                if j < len(series.low) and j < len(series.high) and series.low[j] is not None:
                    low, high = (
                        text.quantity(v, chart.y_quantity, series.y[j])
                        for v in (series.low[j], series.high[j])
                    )
                    line += f" ({low} to {high})"
                lines.append(line)
        lines += [m.label for m in chart.marks if m.x == x]
        out.append(_hit(start, frame.top, end - start, frame.bottom - frame.top, pixels[i], lines))
    return "".join(out)


def _hit(x: float, y: float, width: float, height: float, middle: float, lines: Sequence[str]) -> str:
    title = escape("\n".join(lines))
    return (
        f'<rect class="hit" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" data-x="{middle:.1f}">'
        f"<title>{title}</title></rect>"
    )


def _boundary_marks(frame: _Frame, chart: Chart) -> list[str]:
    out = []
    for mark in chart.marks:
        if mark.style == "boundary" and frame.left <= (x := frame.x(mark.x)) <= frame.right:
            out.append(
                f'<line class="boundary" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top:g}" y2="{frame.bottom:g}"/>'
            )
            out.append(
                f'<text class="small" x="{x + 4:.1f}" y="{frame.bottom - 6:g}">{escape(mark.label)}</text>'
            )
    return out


def _point_marks(frame: _Frame, chart: Chart, narrow: bool) -> list[str]:
    """Ringed points; labels of one K share a line, and labels too close to each other step down."""
    together: dict[float, list[str]] = {}
    for mark in chart.marks:
        if mark.style != "boundary":
            together.setdefault(mark.x, []).append(mark.label)
    out = []
    main = chart.series[0]
    last_x, last_y = -1e9, -1e9
    for x_value in sorted(together):
        y_value = next((y for x, y in zip(main.x, main.y, strict=False) if x == x_value), None)
        if y_value is None:
            continue
        x, y = frame.x(x_value), frame.y(y_value)
        label = ", ".join(together[x_value])
        wide = 8.0 * len(label)
        anchor = "end" if x + wide > frame.right else "start"
        label_y = min(frame.bottom - 8, y + 24)
        if x - last_x < (90 if narrow else 110) and abs(label_y - last_y) < 18:
            label_y = last_y + 18
        last_x, last_y = x, label_y
        out.append(f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="7"/>')
        shift = -4 if anchor == "end" else 4
        out.append(
            f'<text class="mark" x="{x + shift:.1f}" y="{label_y:.1f}" text-anchor="{anchor}">{escape(label)}</text>'
        )
    return out


def _axes(frame: _Frame, x_title: str, y_title: str) -> str:
    return (
        f'<line class="axis" x1="{frame.left:g}" x2="{frame.right:g}" y1="{frame.bottom:g}" y2="{frame.bottom:g}"/>'
        f'<text class="axis-title" x="{(frame.left + frame.right) / 2:g}" y="{frame.bottom + 36:g}" text-anchor="middle">'
        f"{escape(x_title)}</text>"
        f'<text class="axis-title" x="4" y="14">{escape(y_title)}</text>'
    )


def _x_tick(frame: _Frame, value: float) -> str:
    x = frame.x(value)
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top:g}" y2="{frame.bottom:g}"/>'
        f'<text class="tick" x="{x:.1f}" y="{frame.bottom + 16:g}" text-anchor="middle">{_tick(value)}</text>'
    )


def _y_tick(frame: _Frame, value: float, shown: float) -> str:
    y = frame.y(value)
    return (
        f'<line class="grid" x1="{frame.left:g}" x2="{frame.right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{frame.left - 6:g}" y="{y + 4:.1f}" text-anchor="end">{_tick(shown)}</text>'
    )


def _tick(value: float) -> str:
    """A short tick label.

    >>> _tick(1024.0), _tick(0.25), _tick(2e6), _tick(15000)
    ('1024', '0.25', '2M', '15k')
    """
    for size, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if sign == 'k' else size):.4g}{sign}"
    return f"{value:.4g}"


def _scale(low: float, high: float, start: float, end: float, *, log: bool) -> _Scale:
    if log:
        a, b = math.log2(low), math.log2(high)
    else:
        a, b = low, high
    span = (b - a) or 1.0

    def place(value: float) -> float:
        v = math.log2(max(value, 1e-300)) if log else value
        return start + (v - a) / span * (end - start)

    return place
