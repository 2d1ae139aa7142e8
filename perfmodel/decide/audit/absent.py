"""What a claim does not say, and what that hides."""

from __future__ import annotations

from perfmodel.decide.audit.findings import Finding
from perfmodel.decide.audit.normalise import Series


def _absent(code: str, severity: str, what: str, hides: str) -> Finding:
    return Finding(code=code, severity=severity, claim="not stated", bound=what, evidence=hides)


def findings(claim: object, series: Series, regime: str | None) -> list[Finding]:
    """Notes for what would be good to know; suspicious where the experiment itself is hidden."""
    points = series.all
    measured = [point for point in points if point is not series.headline] or list(points)
    has_batch = any(point.global_batch is not None for point in points)
    # One measured K is no series: without a second one there is nothing that a speedup is measured from.
    has_baseline = series.baseline is not None or (series.reference is not None and len(series.points) > 1)
    found = []
    # A stated ratio compares two K also where only one of them is shown.
    ratios = any({"speedup", "efficiency"} & point.stated.keys() for point in points)
    several = len({point.k for point in points}) > 1 or series.headline is not None or ratios
    if regime is None and several:
        hides = (
            "With the batch per accelerator fixed, communication shrinks against compute; with the global batch fixed it grows. "
            "The same speedup means two different machines."
        )
        found.append(_absent("regime-missing", "suspicious", "strong or weak", hides))
    if not has_baseline and not has_batch:
        hides = "A speedup is a ratio: without T at the baseline or the batch, a slow baseline or a larger batch can make any ratio."
        severity = "suspicious" if series.headline is not None else "note"
        found.append(
            _absent("baseline-and-batch-missing", severity, "a baseline time or the global batch", hides)
        )
    elif not has_baseline and several:
        found.append(
            _absent(
                "baseline-missing",
                "note",
                "T at the smallest K",
                "A weak baseline raises every speedup after it.",
            )
        )
    elif not has_batch:
        hides = "Without the batch, times cannot be checked against the arithmetic, nor the memory against the device."
        found.append(_absent("batch-missing", "note", "the global batch", hides))
    if not any("efficiency" in point.stated for point in points) and several:
        hides = "A speedup grows long after the efficiency has gone: the bill follows the efficiency."
        found.append(_absent("efficiency-not-stated", "note", "E(K) = S(K) / K", hides))
    if not any(point.precision for point in points) and getattr(claim, "precision", None) is None:
        hides = (
            "Each halving of the bits doubles the peak: rates are checked against the fastest precision only."
        )
        found.append(_absent("precision-missing", "note", "the precision of the matrix products", hides))
    if getattr(claim, "cluster", None) is None:
        hides = "Links are not checked: nothing says how the accelerators are joined."
        found.append(_absent("cluster-missing", "note", "nodes and network", hides))
    for code, name, hides in (
        ("repeats-missing", "repeats", "One run may be the luckiest of many."),
        (
            "spread-missing",
            "spread",
            "Without a spread, differences between points cannot be told from noise.",
        ),
        (
            "quality-missing",
            "quality",
            "Fast steps that learn less are not fast: larger batches often need more of them.",
        ),
    ):
        if all(getattr(point, name) is None for point in measured):
            found.append(_absent(code, "note", name, hides))
    if getattr(claim, "price", None) is None:
        hides = "Fewer, cheaper or older accelerators may give the same result for less."
        found.append(_absent("price-missing", "note", "the price of an accelerator hour", hides))
    return found
