"""Measured families as claims, and the tricks that a slide might play on them: how well does the audit see?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError

from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import Claim
from perfmodel.specs.claims import Point as ClaimPoint
from perfmodel.specs.hardware import Cluster
from perfmodel.specs.layout import Layout, Sharding
from perfmodel.validate.corpus import Corpus, recomputed
from perfmodel.validate.jobs import Jobs, cluster_words
from perfmodel.validate.resolve import known_workload
from perfmodel.validate.tables import Row

_SHARDINGS = frozenset(get_args(Sharding))


def cluster_of(row: Row, catalog: Catalog) -> Cluster:
    """The machine on which validation predicts a family, as a person would declare it.

    A network that nobody states or names is left out: the audit reads such a claim as kindly as it can, and a bound on a
    network that we assumed would accuse the authors of our guess.
    """
    found = Jobs(catalog).cluster(cluster_words(row))
    if row.text["scale_out"] or row.number["network_gbit_per_s_per_node"] is not None:
        return found
    return found.model_copy(update={"network_per_node": None})


def series_of(points: list[Row], regime: str) -> list[Row]:
    """One honest series: the largest set of points with one batch (strong) or one batch per accelerator (weak).

    At each K the fastest point is shown, as everybody would. Points tuned at each K are no series: the largest K
    stands alone.
    """
    best: dict[float, Row] = {}

    def keep(row: Row) -> None:
        k = row.get("k", 1.0)
        if k not in best or row.get("step_s", 1.0) < best[k].get("step_s", 1.0):
            best[k] = row

    if regime == "tuned":
        largest = max(points, key=lambda row: row.get("k", 1.0))
        keep(largest)
        return list(best.values())
    groups: dict[tuple[float, float], list[Row]] = {}
    for row in points:
        batch = row.get("global_batch", 0.0)
        key = batch if regime == "strong" else round(batch / row.get("k", 1.0), 3)
        groups.setdefault((key, row.get("seq_len", 0.0)), []).append(row)
    chosen = max(
        groups.values(), key=lambda rows: (len({row.get("k", 1.0) for row in rows}), -groups_order(rows))
    )
    for row in chosen:
        keep(row)
    return [best[k] for k in sorted(best)]


def groups_order(rows: list[Row]) -> int:
    """Files keep their order; the first group wins among equals."""
    return rows[0].line


def layout_of(row: Row, point: Row, transformer: bool) -> Layout | None:
    """The recorded layout, or None where the source is silent or the words have no layout."""
    sharding = row.text["sharding"]
    if not transformer or point.number["tp"] is None or point.number["pp"] is None:
        return None
    values: dict[str, Any] = {
        name: int(point.get(name, 1.0))
        for name in ("tp", "pp", "cp", "ep", "vpp")
        if point.number[name] is not None
    }
    if values.get("pp", 1) == 1:
        values.pop("vpp", None)
    if sharding not in _SHARDINGS - {"ddp"} and max(values.values()) == 1:
        return None  # plain replicas are what a table says when nobody wrote the layout down
    try:
        return Layout(
            **values,
            sharding=sharding if sharding in _SHARDINGS else None,
            recompute=recomputed(point.text["recompute"]) or "none",
        )
    except ValidationError:
        return None


def claim_of(corpus: Corpus, family: str, catalog: Catalog) -> Claim | None:
    """A measured family as its authors would claim it; None where it has no workload, device or usable point."""
    row = corpus.families[family]
    workload = known_workload(row.text["workload"], corpus, catalog)
    points = [
        point for point in corpus.points if point.text["family"] == family and point.text["grade"] in "AB"
    ]
    if workload is None or not points or row.text["accelerator"] not in catalog.names("accelerators"):
        return None
    regime = row.text["regime"]
    transformer = "transformer" in workload.kind
    shown = series_of(points, regime)
    # Without a batch the corpus holds a time per unit of work and accelerator: only ratios can be claimed.
    relative = any(point.number["global_batch"] is None for point in shown)
    if relative and len(shown) < 2:
        return None
    given = tuple(_claimed(row, point, shown[0] if relative else None, transformer) for point in shown)
    return Claim(
        name=family,
        vendor=row.text["source"],
        workload=workload,
        cluster=cluster_of(row, catalog),
        precision=row.text["precision"],
        regime=regime if regime in ("strong", "weak") else None,
        baseline=given[0] if relative else None,
        points=given[1:] if relative else given,
    )


def _claimed(row: Row, point: Row, first: Row | None, transformer: bool) -> ClaimPoint:
    """One row as a point of a chart; with `first`, as a speedup over it."""
    k, seconds, batch = int(point.get("k", 1.0)), point.get("step_s", 1.0), point.number["global_batch"]
    ratio = None
    if first is not None:
        ratio = k / first.get("k", 1.0) * first.get("step_s", 1.0) / seconds
    return ClaimPoint(
        k=k,
        time_s=seconds if first is None else None,
        speedup=ratio,
        global_batch=int(batch) if batch is not None and first is None else None,
        seq_len=None if point.number["seq_len"] is None else int(point.get("seq_len", 1.0)),
        layout=layout_of(row, point, transformer),
        recompute=recomputed(point.text["recompute"]),
        repeats=None if point.number["repeats"] is None else int(point.get("repeats", 1.0)),
    )


@dataclass(frozen=True)
class Trick:
    """A way to make a series look better, of adjustable size (1 is honest), and the code that should see it."""

    code: str
    words: str
    apply: Callable[[Claim, float], Claim]


def _points(claim: Claim, change: Callable[[int, ClaimPoint], dict[str, Any]]) -> Claim:
    changed = tuple(point.model_copy(update=change(at, point)) for at, point in enumerate(claim.points))
    return claim.model_copy(update={"points": changed})


def _faster(point: ClaimPoint, factor: float) -> dict[str, Any]:
    if point.time_s is not None:
        return {"time_s": point.time_s / factor}
    return {"speedup": (point.speedup or 1.0) * factor}


def _all_faster(claim: Claim, size: float) -> Claim:
    """Every rate times `size`: utilisation that nobody reached."""
    return _points(claim, lambda _, point: _faster(point, size))


def _last_faster(claim: Claim, size: float) -> Claim:
    """The largest K times `size`: scaling that nobody saw."""
    last = len(claim.points) - 1
    return _points(claim, lambda at, point: _faster(point, size) if at == last and last > 0 else {})


def _slow_baseline(claim: Claim, size: float) -> Claim:
    """The smallest K slower by `size`: every speedup grows."""
    return _points(
        claim, lambda at, point: _faster(point, 1.0 / size) if at == 0 and len(claim.points) > 1 else {}
    )


def _bigger_batch(claim: Claim, size: float) -> Claim:
    """A strong-scaling chart whose batch grows by `size` from the first to the last K, at the same rate."""
    first, last = claim.points[0].k, claim.points[-1].k
    fixed = claim.points[-1].global_batch or 1

    def change(_: int, point: ClaimPoint) -> dict[str, Any]:
        share = 0.0 if last == first else (point.k - first) / (last - first)
        batch = max(1, round(fixed * (1.0 + (size - 1.0) * share)))
        rate = (point.global_batch or 1) / (point.time_s or 1.0)
        return {"global_batch": batch, "time_s": batch / rate}

    return _points(claim.model_copy(update={"regime": "strong"}), change)


def _straightened(claim: Claim, size: float) -> Claim:
    """Efficiencies pulled to the first one: `size` 1 leaves them, larger ones leave `1/size` of the scatter."""
    first = claim.points[0]
    if first.time_s is None or first.global_batch is None:
        return claim
    best = first.global_batch / first.time_s / first.k

    def change(_: int, point: ClaimPoint) -> dict[str, Any]:
        if point.time_s is None or point.global_batch is None:
            return {}
        own = point.global_batch / point.time_s / point.k
        rate = best * (own / best) ** (1.0 / size) * point.k
        return {"time_s": point.global_batch / rate}

    return _points(claim, change)


TRICKS: dict[str, Trick] = {
    "rates": Trick("mfu-above-band", "all rates multiplied", _all_faster),
    "peak": Trick("flop-above-peak", "all rates multiplied, until physics forbids it", _all_faster),
    "scaling": Trick("efficiency-above-band", "the largest K faster", _last_faster),
    "superlinear": Trick("superlinear", "the largest K faster, until E > 1.05", _last_faster),
    "baseline": Trick("weak-baseline", "the smallest K slower", _slow_baseline),
    "batch": Trick("batch-grows-with-k", "a strong chart whose batch grows", _bigger_batch),
    "straight": Trick("too-straight", "scatter divided", _straightened),
}
