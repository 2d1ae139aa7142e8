"""A claim in whatever numbers the slide uses, as one table of rates: samples per second at each K."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.decide.audit.subject import Split
from perfmodel.specs.layout import Recompute

MEASURES = (
    "time_s",
    "throughput",
    "tokens_per_s",
    "speedup",
    "efficiency",
    "mfu",
    "tflop_per_s_per_accelerator",
)


@dataclass(frozen=True)
class Point:
    """One K of a claim. `rate` is samples per second of all K accelerators; None where it cannot be derived."""

    label: str  # "points[2]", "baseline" or "headline"
    k: int
    stated: dict[str, float]  # the measures that the claim gives, in its own terms
    global_batch: float | None
    seq_len: float | None
    precision: str | None
    recompute: Recompute | None
    repeats: float | None
    spread: float | None
    quality: float | None
    energy_j: float | None
    split: Split
    rate: float | None = None
    rate_from: str | None = None

    @property
    def rate_per_accelerator(self) -> float | None:
        """Samples per second and accelerator."""
        return None if self.rate is None else self.rate / self.k

    @property
    def time_s(self) -> float | None:
        """Time of one step: stated, or batch over rate."""
        if "time_s" in self.stated:
            return self.stated["time_s"]
        if self.rate and self.global_batch:
            return self.global_batch / self.rate
        return None


@dataclass(frozen=True)
class Series:
    """All points of a claim, baseline first, in order of K; `reference` is what speedup is measured from."""

    points: tuple[Point, ...]
    headline: Point | None
    baseline: Point | None
    reference: Point | None
    one_based: bool  # speedup is stated so that S(K0) = K0 rather than 1
    weak: bool = False

    def speedup(self, point: Point) -> float | None:
        """S(K) in the sense S(K0) = K0: stated, or from the rates."""
        efficiency = self.efficiency(point)
        return None if efficiency is None else efficiency * point.k

    def efficiency(self, point: Point) -> float | None:
        """E(K): rate per accelerator over that of the reference; from times where no batch is known; else as stated.

        Without a batch, `E = K0*T(K0) / (K*T(K))` in the strong regime and `T(K0)/T(K)` in the weak one.
        """
        start = self.reference
        if start and start.rate_per_accelerator and point.rate_per_accelerator and not _is_relative(point):
            return point.rate_per_accelerator / start.rate_per_accelerator
        if start and "time_s" in start.stated and "time_s" in point.stated:
            work = 1.0 if self.weak else start.k / point.k
            return work * start.stated["time_s"] / point.stated["time_s"]
        if "speedup" in point.stated:
            return point.stated["speedup"] * self._from_k() / point.k
        return point.stated.get("efficiency")

    def _from_k(self) -> int:
        start = self.baseline or self.reference
        return start.k if start and not self.one_based else 1

    @property
    def all(self) -> tuple[Point, ...]:
        """Points and headline; the headline only where no point at its K says the same."""
        known = {point.k for point in self.points}
        extra = () if self.headline is None or self.headline.k in known else (self.headline,)
        return tuple(sorted(self.points + extra, key=lambda point: point.k))


def _is_relative(point: Point) -> bool:
    """Only a ratio is stated: the rate was derived from the baseline, so it must not prove itself."""
    return point.rate_from in (None, "speedup", "efficiency")


def _value(source: object, name: str) -> Any:
    return getattr(source, name, None)


def _point(source: object, label: str, claim: object) -> Point:
    k = int(_value(source, "k"))
    stated = {name: float(_value(source, name)) for name in MEASURES if _value(source, name) is not None}
    for name in ("throughput", "tokens_per_s"):
        each = _value(source, f"{name}_per_accelerator")
        if each is not None:
            stated.setdefault(name, float(each) * k)
    batch = _value(source, "global_batch")
    if batch is None:
        per_device = _value(source, "batch_per_accelerator") or _value(claim, "batch_per_accelerator")
        batch = per_device * k if per_device else _value(claim, "global_batch")
    layout = _value(source, "layout") or _value(claim, "layout")

    def number(name: str) -> float | None:
        value = _value(source, name)
        return None if value is None else float(value)

    return Point(
        label=label,
        k=k,
        stated=stated,
        global_batch=None if batch is None else float(batch),
        seq_len=_value(source, "seq_len") or _value(claim, "seq_len"),
        precision=_value(source, "precision") or _value(claim, "precision"),
        recompute=_value(source, "recompute") or _value(layout, "recompute"),
        repeats=number("repeats"),
        spread=number("spread"),
        quality=number("quality"),
        energy_j=number("energy_j"),
        split=_split(layout),
    )


def _split(layout: object) -> Split:
    """The degrees that a layout names; those that it leaves out are 1."""
    if layout is None:
        return Split()
    degree = {name: int(_value(layout, name) or 1) for name in ("tp", "pp", "cp", "ep")}
    return Split(known=True, sharding=_value(layout, "sharding"), **degree)


def _absolute_rate(point: Point, flop_per_sample: float | None, peak: float | None) -> Point:
    """The rate from a number that stands on its own, the most direct one first."""
    stated = point.stated
    if "throughput" in stated:
        return replace(point, rate=stated["throughput"], rate_from="throughput")
    if "tokens_per_s" in stated and point.seq_len:
        return replace(point, rate=stated["tokens_per_s"] / point.seq_len, rate_from="tokens_per_s")
    if "time_s" in stated and point.global_batch:
        return replace(point, rate=point.global_batch / stated["time_s"], rate_from="time_s")
    if "tflop_per_s_per_accelerator" in stated and flop_per_sample:
        rate = stated["tflop_per_s_per_accelerator"] * 1e12 * point.k / flop_per_sample
        return replace(point, rate=rate, rate_from="tflop_per_s_per_accelerator")
    if "mfu" in stated and flop_per_sample and peak:
        return replace(point, rate=stated["mfu"] * peak * point.k / flop_per_sample, rate_from="mfu")
    return point


def _relative_rate(point: Point, reference: Point | None, from_k: int) -> Point:
    """The rate from a ratio, where the reference has one."""
    if point.rate is not None or reference is None or reference.rate is None:
        return point
    if "speedup" in point.stated:
        scale = point.stated["speedup"] * from_k / reference.k
        return replace(point, rate=reference.rate * scale, rate_from="speedup")
    if "efficiency" in point.stated:
        scale = point.stated["efficiency"] * point.k / reference.k
        return replace(point, rate=reference.rate * scale, rate_from="efficiency")
    return point


def series(
    claim: object,
    *,
    flop_per_sample: Callable[[float | None], float | None] | None = None,
    peak_flop_per_s: float | None = None,
) -> Series:
    """Read a claim (a `perfmodel.specs` Claim, or anything with its attributes) into rates.

    A slide's speedup over a baseline at K0 > 1 is T(K0)/T(K), at most K/K0, unless the point at K0 itself says
    that its speedup is K0. Where no baseline is given, ratios are read as relative to one accelerator.
    `flop_per_sample` gives the model's FLOP at a sequence length.
    """

    def convert(point: Point) -> Point:
        count = flop_per_sample(point.seq_len) if flop_per_sample else None
        return _absolute_rate(point, count, peak_flop_per_s)

    given = [
        convert(_point(source, f"points[{at}]", claim))
        for at, source in enumerate(_value(claim, "points") or ())
    ]
    baseline, headline = (
        None if (source := _value(claim, name)) is None else convert(_point(source, name, claim))
        for name in ("baseline", "headline")
    )
    absolute = [point for point in given if point.rate is not None or "time_s" in point.stated]
    start = baseline or min(absolute, key=lambda point: point.k, default=None)
    one_based = start is None or any(
        point.k == start.k and math.isclose(point.stated.get("speedup", 0.0), start.k, rel_tol=0.02)
        for point in (*given, *((baseline,) if baseline else ()))
    )
    from_k = 1 if one_based or start is None else start.k
    points = [_relative_rate(point, start, from_k) for point in given]
    if baseline and all(point.k != baseline.k for point in points):
        points.append(baseline)
    if headline:
        headline = _relative_rate(headline, start, from_k)
    points.sort(key=lambda point: point.k)
    weak = _value(claim, "regime") == "weak"
    return Series(tuple(points), headline, baseline, start, one_based, weak)


def distinct_batches(points: Iterable[Point]) -> list[tuple[int, float]]:
    """(K, global batch) of the points that have one."""
    return [(point.k, point.global_batch) for point in points if point.global_batch is not None]
