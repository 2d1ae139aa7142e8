"""Curves made of characters: a one-line sparkline and a small chart with the ideal line, for terminals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from perfmodel.report import text

_BARS = "▁▂▃▄▅▆▇█"
NARROWEST_MARGIN = 7  # left of the axis: charts of few accelerators line up with each other


def sparkline(values: Sequence[float | None]) -> str:
    """One character a value, from the smallest to the largest; a space where there is no value.

    >>> sparkline([1, 2, None, 8])
    '▁▂ █'
    """
    known = [v for v in values if v is not None and math.isfinite(v)]
    if not known:
        return ""
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    return "".join(
        " " if v is None or not math.isfinite(v) else _BARS[round((v - low) / span * (len(_BARS) - 1))]
        for v in values
    )


def curve(
    k: Sequence[float],
    speedup: Sequence[float | None],
    *,
    low: Sequence[float | None] = (),
    high: Sequence[float | None] = (),
    marks: Sequence[tuple[str, float]] = (),
    width: int = 72,
    height: int = 9,
    ascii_only: bool = False,
    is_flat: bool = False,
) -> list[str]:
    """Speedup over K on log2 axes as lines of text: `●` the curve, `·` the ideal line, `░` the band.

    With `is_flat` the values are T(K0)/T(K) of weak scaling on a plain axis from zero, whose ideal is a flat 1.
    `marks` are (letter, K) pairs set under the axis. Fewer than two points, or one value of K, give nothing.
    """
    points = [
        (float(x), float(y)) for x, y in zip(k, speedup, strict=True) if y is not None and y > 0 and x > 0
    ]
    if len(points) < 2 or points[0][0] == points[-1][0]:
        return []
    dot, ideal, shade = ("o", ".", ":") if ascii_only else ("●", "·", "░")
    x_low, x_high = math.log2(min(x for x, _ in points)), math.log2(max(x for x, _ in points))
    rise: Callable[[float], float] = float if is_flat else math.log2
    value: Callable[[float], float] = float if is_flat else math.exp2
    best = [1.0, 1.0] if is_flat else [2**x_low, 2**x_high]
    y_low = 0.0 if is_flat else rise(min(min(y for _, y in points), best[0]))
    y_high = rise(max(max(y for _, y in points), best[1]))
    labels = {
        r: text.number(value(y_high - r / (height - 1) * (y_high - y_low)))
        for r in (0, height // 2, height - 1)
    }
    margin = max(NARROWEST_MARGIN, 2 + max(map(len, labels.values())))
    columns = width - margin

    def column(x: float) -> int:
        return round((math.log2(x) - x_low) / (x_high - x_low) * (columns - 1))

    def row(y: float) -> int:
        share = (rise(y) - y_low) / ((y_high - y_low) or 1.0)
        return (height - 1) - min(height - 1, max(0, round(share * (height - 1))))

    grid = [[" "] * columns for _ in range(height)]
    for c in range(columns):
        grid[row(1.0 if is_flat else 2 ** (x_low + c / (columns - 1) * (x_high - x_low)))][c] = ideal
    if low and high:
        for x, a, b in zip(k, low, high, strict=True):
            if a and b and a > 0 and b > 0:
                for r in range(row(b), row(a) + 1):
                    grid[r][column(x)] = shade
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        for c in range(column(x0), column(x1) + 1):
            part = (c - column(x0)) / max(1, column(x1) - column(x0))
            grid[row(value(rise(y0) + part * (rise(y1) - rise(y0))))][c] = dot
    lines = []
    for r, cells in enumerate(grid):
        lines.append(f"{labels.get(r, ''):>{margin - 2}} |" + "".join(cells).rstrip())
    axis = ["-"] * columns
    for letter, x in marks:
        if 2**x_low <= x <= 2**x_high:
            axis[_free(axis, column(x))] = letter[:1]
    lines.append(" " * (margin - 1) + "+" + "".join(axis))
    ticks = f"K={text.number(2**x_low)}"
    end = text.number(2**x_high)
    lines.append(" " * (margin - 1) + ticks + " " * max(1, columns - len(ticks) - len(end) + 1) + end)
    return lines


def _free(axis: Sequence[str], wanted: int) -> int:
    """The unmarked place nearest to the wanted one: choices often share their K, and each has its letter."""
    open_ones = [place for place, sign in enumerate(axis) if sign == "-"]
    return min(open_ones or [wanted], key=lambda place: abs(place - wanted))
