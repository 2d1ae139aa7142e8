"""The claim restated honestly, and what to buy instead."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfmodel.decide.audit.normalise import Point, Series
from perfmodel.decide.audit.plausible import Rung
from perfmodel.decide.knee import DEFAULT_THRESHOLD

KEPT = 0.85  # the efficiency that the restated headline looks for first


def _subject(series: Series) -> Point | None:
    """What the claim shouts: its headline, else its largest K."""
    return series.headline or (series.all[-1] if series.all else None)


def efficiencies(
    series: Series, rungs: Sequence[Rung], refuted: Collection[int] = ()
) -> dict[int, tuple[float, bool]]:
    """E(K) with whether it is claimed (True) or predicted (False); at a `refuted` K only the model counts.

    What is claimed wins, also over the model's hope for a larger K: a predicted efficiency is capped by the claimed
    ones at smaller K.
    """
    claimed: dict[int, float] = {}
    for point in series.all:
        value = series.efficiency(point)
        if value is not None and point.k not in refuted:
            claimed[point.k] = value
    found = {k: (value, True) for k, value in claimed.items()}
    for rung in rungs:
        below = [value for k, value in claimed.items() if k <= rung.k]
        found.setdefault(rung.k, (min([rung.efficiency, *below]), False))
    return dict(sorted(found.items()))


def restated(series: Series, rungs: Sequence[Rung]) -> str:
    """`180x on 256 is E = 0.70; 64 keep 0.85.`"""
    loud = _subject(series)
    if loud is None:
        return "The claim has no number to restate."
    value = series.efficiency(loud)
    if series.reference is not None and loud.k == series.reference.k:
        return f"Every number is at K = {loud.k}: there is no speedup to restate."
    speedup = loud.stated.get("speedup", series.speedup(loud))
    if value is None or speedup is None:
        known = loud.rate
        rate = f"{known:,.4g} samples/s" if known else "a number"
        return f"{rate} on {loud.k}: without a baseline there is no speedup to restate."
    start = series.reference
    base = f" over K = {start.k}" if start is not None and start.k > 1 else ""
    words = [f"{speedup:.3g}x{base} on {loud.k} is E = {value:.2f}"]
    smaller = {
        k: item
        for k, item in efficiencies(series, rungs).items()
        if k < loud.k and (start is None or k > start.k)
    }
    for wanted in (KEPT, DEFAULT_THRESHOLD):
        keep = {k: item for k, item in smaller.items() if item[0] >= wanted > value}
        # The claim's own points come first: the model fills in only where the slide is silent.
        own = [k for k, (_, claimed) in keep.items() if claimed]
        if keep:
            k = max(own or keep)
            words.append(f"{k} keep {keep[k][0]:.2f}" + ("" if own else " by the model"))
            break
    return "; ".join(words) + "."


def advice(
    series: Series,
    rungs: Sequence[Rung],
    goal: str,
    price_usd_per_s: float | None,
    refuted: Collection[int] = (),
) -> str:
    """What to buy under a goal: the most accelerators worth their price, the cheapest work, or the shortest time."""
    known = efficiencies(series, rungs, refuted)
    loud = _subject(series)
    if not known or loud is None or loud.k not in known:
        return (
            "Ask for a baseline and a batch first: without them the gain of another accelerator is unknown."
        )
    claims_nothing = series.reference is not None and loud.k == series.reference.k
    if len(known) == 1 and (claims_nothing or not known[loud.k][1]):
        return f"Ask for a second K: {loud.k} alone says nothing about what an accelerator more is worth."
    own = known[loud.k][0]
    if goal == "time":
        fastest = max(known, key=lambda k: k * known[k][0])
        return f"For the shortest time take {fastest}: S = {fastest * known[fastest][0]:.3g}; each unit of work costs {1 / known[fastest][0]:.2f} times what it costs on the smallest machine."
    if goal == "cost":
        cheapest = max(known, key=lambda k: (known[k][0], -k))
        ratio = known[cheapest][0] / own
        bill = f" at {price_usd_per_s * 3600:.2f} USD/h each" if price_usd_per_s else ""
        return f"For the lowest cost of the same work take {cheapest}{bill}: on {loud.k} it costs {ratio:.2f} times as much."
    worth = [k for k, (value, _) in known.items() if value >= DEFAULT_THRESHOLD]
    if not worth:
        return f"No K of this claim keeps E >= {DEFAULT_THRESHOLD:g}: buy fewer, or faster links."
    best = max(worth)
    if best >= loud.k and loud.k in refuted:
        return (
            f"The model gives {best} accelerators E >= {DEFAULT_THRESHOLD:g}, but not at the claimed speed: "
            "measure before paying for it."
        )
    if best >= loud.k:
        return f"Up to {best} accelerators keep E >= {DEFAULT_THRESHOLD:g}: the claimed size is worth its price if the numbers hold."
    gain = loud.k * own / (best * known[best][0])
    return (
        f"Buy {best} instead of {loud.k}: they keep E = {known[best][0]:.2f}. The other {loud.k - best} make it "
        f"{gain:.2f} times as fast for {loud.k / best:.3g} times the rent."
    )
