"""`perfmodel audit`: a claim in, a verdict with its evidence out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.decide.audit import absent, bounds, plausible, tricks
from perfmodel.decide.audit.findings import Finding, one_of_each, verdict
from perfmodel.decide.audit.normalise import Point, Series, series
from perfmodel.decide.audit.restate import advice, restated
from perfmodel.decide.audit.subject import Subject, load_of, machine_of
from perfmodel.decide.audit.versus import Compared, Side, compare
from perfmodel.decide.prediction import files_read
from perfmodel.results.envelope import Result
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import Claim
from perfmodel.specs.defaults import DEFAULT_SAMPLES_PER_ACCELERATOR, DEFAULT_TOKENS
from perfmodel.specs.hardware import Accelerator, Cluster
from perfmodel.specs.layout import Layout, Recompute
from perfmodel.training.setup import Setup

LADDER_TOP = 4096
REFUTES = frozenset(
    {
        "flop-above-peak",
        "mfu-above-ceiling",
        "links-too-slow",
        "efficiency-above-band",
        "mfu-above-band",
        "superlinear",
    }
)


def audit(
    claim: Claim,
    *,
    beliefs: Beliefs | None = None,
    goal: str = "efficiency",
    seed: int = 0,
    catalog: Catalog | None = None,
) -> Result:
    """Check a claim against physics, the rules of a chart and the beliefs; the `result` of an audit."""
    device = claim.device
    subject = None if device is None else _subject(claim, device)
    peak = None if subject is None else subject.machine.peak(claim.precision)[0]

    def model_flop(seq_len: float | None) -> float | None:
        load = subject.load_at(seq_len) if subject is not None else None
        return load.model_flop if load is not None else None

    read = series(claim, flop_per_sample=model_flop, peak_flop_per_s=peak)
    found: list[Finding] = [
        *(bounds.findings(read, subject) if subject is not None else ()),
        *tricks.findings(read, subject, claim.regime),
        *absent.findings(claim, read, claim.regime),
    ]
    notes: list[str] = []
    trusted = beliefs or shipped_beliefs()
    believed = _Believed()
    if subject is None:
        believed.findings.append(
            _not_checked("the machine", "Without one only the numbers themselves are read.")
        )
    else:
        believed = _believe(claim, read, subject, trusted, seed, catalog, notes)
    found += believed.findings
    versus = _versus(claim, read, trusted, seed, catalog or Catalog.default(), notes)
    if versus is not None:
        found += versus.findings
    listed = one_of_each(found)
    # Rates that physics or the beliefs refuse are not what advice may rest on.
    refuted = {finding.k for finding in found if finding.code in REFUTES and finding.k is not None}
    return Result(
        kind="audit",
        inputs=_inputs(claim, goal) | files_read(beliefs),
        result={
            "verdict": verdict(listed),
            "findings": [finding.mapping() for finding in listed],
            "restated": restated(read, believed.rungs),
            "advice": advice(read, believed.rungs, goal, claim.price, refuted),
            "points": _points(read, believed.expected),
            "ladder": [
                {"k": rung.k, "efficiency": rung.efficiency, "low": rung.low, "high": rung.high}
                for rung in believed.rungs
            ],
            "versus": None if versus is None else versus.shown,
            "notes": notes,
        },
        seed=seed,
    )


def _subject(claim: Claim, device: Accelerator) -> Subject:
    """Machine and loads, at every sequence length that the claim names."""
    machine = machine_of(device, claim.cluster)
    if claim.workload is None:
        return Subject(machine, None)
    given = (*claim.points, claim.baseline, claim.headline)
    lengths = {point.seq_len for point in given if point is not None and point.seq_len is not None}
    loads = {length: load_of(claim.workload, length) for length in sorted(lengths)}
    return Subject(
        machine,
        load_of(claim.workload, claim.seq_len),
        {length: load for length, load in loads.items() if load is not None},
    )


def _versus(
    claim: Claim, read: Series, beliefs: Beliefs, seed: int, catalog: Catalog, notes: list[str]
) -> Compared | None:
    """The claim's machine beside the one that it compares with, as many accelerators of each as it says."""
    other, device = claim.versus, claim.device
    if other is None or device is None or other.device is None:
        return None
    cluster = _connected(claim, catalog, notes)
    against = _connected(
        claim.model_copy(update={"cluster": other.cluster, "accelerator": other.device}), catalog, notes
    )
    loud = read.headline or (read.all[-1] if read.all else None)
    node = cluster.node.accelerators_per_node if cluster is not None else 8
    k = loud.k if loud is not None else node
    sides = []
    for place, machine, count, precision in (
        (cluster, machine_of(device, claim.cluster), k, claim.precision),
        (against, machine_of(other.device, other.cluster), other.k or k, other.precision or claim.precision),
    ):
        setup = None
        if claim.workload is not None and place is not None:
            batch = loud.global_batch if loud is not None and loud.global_batch else claim.global_batch
            if batch is None:
                batch = _usual_batch(claim, k)
            setup = Setup(
                workload=claim.workload,
                cluster=place,
                precision=precision or _precision(claim, None, place.accelerator),
                k=np.array([float(count)]),
                global_batch=np.array([float(batch)]),
                seq_len=claim.seq_len,
            )
        sides.append(Side(machine, setup, count, precision))
    factor = beliefs.factor("datasheet", claim.workload.kind) if claim.workload is not None else 1.0
    return compare(other.speedup, sides[0], sides[1], beliefs, factor, seed)


def _usual_batch(claim: Claim, k: int) -> int:
    """Samples of a step where a claim names no batch."""
    if claim.workload is None:
        return k
    language = claim.workload.sample == "sequence" and (claim.seq_len or claim.workload.seq_len)
    if language:
        return DEFAULT_TOKENS // int(claim.seq_len or claim.workload.seq_len or 1)
    return DEFAULT_SAMPLES_PER_ACCELERATOR * k


class _Believed:
    """What the beliefs say about a claim."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.expected: list[plausible.Expected] = []
        self.rungs: list[plausible.Rung] = []


def _believe(
    claim: Claim,
    read: Series,
    subject: Subject,
    beliefs: Beliefs,
    seed: int,
    catalog: Catalog | None,
    notes: list[str],
) -> _Believed:
    told = _Believed()
    if claim.workload is None or subject.load is None:
        told.findings.append(_not_checked("the workload", "Without a workload nothing can be predicted."))
        return told
    cluster = _connected(claim, catalog or Catalog.default(), notes)
    if cluster is None:
        told.findings.append(
            _not_checked(
                "the cluster", "No catalogue node carries this accelerator, so nothing is predicted."
            )
        )
        return told
    factor = beliefs.factor(
        "datasheet" if beliefs.calibration is None else beliefs.calibration.mode, claim.workload.kind
    )
    told.expected = plausible.expect(_groups(claim, read, cluster), beliefs, seed)
    told.findings += plausible.rates_above_band(told.expected, subject)
    told.findings += plausible.efficiency_above_band(read, told.expected, beliefs, factor)
    told.findings += plausible.weak_baseline(read, told.expected, beliefs, factor)
    setup = _ladder_setup(claim, read, cluster, notes)
    if setup is not None:
        told.rungs = plausible.ladder(setup, beliefs, seed, recompute=_recompute_of_all(claim, read))
        if any(point.global_batch is not None for point in read.all):
            told.findings += plausible.knee_before_range(read, told.rungs)
    return told


def _not_checked(what: str, why: str) -> Finding:
    return Finding("not-checked", "note", "not stated", what, why)


def _connected(claim: Claim, catalog: Catalog, notes: list[str]) -> Cluster | None:
    """The claim's cluster; what it leaves open is read in its favour from the best connected one of its kind."""
    own = claim.cluster
    if own is not None and (own.scale_out or own.node.scale_out) is not None:
        return own
    usual = usual_cluster(claim.device, catalog)
    if own is None:
        if usual is not None:
            notes.append(f"The claim names no cluster: predictions assume {usual.name}.")
        return usual
    if usual is None or usual.scale_out is None:
        return own
    nics = (usual.nics_per_node or 1) / usual.node.accelerators_per_node * own.node.accelerators_per_node
    notes.append(f"The claim names no network: predictions assume that of {usual.name}.")
    return own.model_copy(update={"scale_out": usual.scale_out, "nics_per_node": max(1, round(nics))})


def usual_cluster(device: Accelerator | None, catalog: Catalog) -> Cluster | None:
    """The catalogue cluster that an accelerator usually sits in: the best connected node that carries it."""
    if device is None:
        return None
    found = []
    for name in catalog.mentioning("nodes", device.name):
        node = catalog.get("nodes", name)
        if node.accelerator.name == device.name and node.scale_out is not None:
            rate = node.scale_out.bandwidth * (node.nics_per_node or 1) / node.accelerators_per_node
            found.append((rate, name))
    # The kindest reading of a claim that does not say: the fastest network, the first name among equals.
    return catalog.cluster(min(found, key=lambda item: (-item[0], item[1]))[1]) if found else None


def _precision(claim: Claim, point: Point | None, device: Accelerator) -> str:
    """What the matmuls run in: stated, or the default of a job on this device."""
    stated = (point.precision if point else None) or claim.precision
    return stated or next(
        (name for name in ("bf16", "fp16", "fp32") if name in device.peak), next(iter(device.peak))
    )


def _stated(claim: Claim, point: Point, name: str) -> Any:
    """What a point says itself, else what another number at its K says; None where none of them does."""
    given = {f"points[{at}]": each for at, each in enumerate(claim.points)}
    named = {**given, "baseline": claim.baseline, "headline": claim.headline}
    same_k = [each for each in named.values() if each is not None and each.k == point.k]
    said = (getattr(each, name) for each in (named.get(point.label), *same_k) if each is not None)
    return next((value for value in said if value is not None), None)


def _layout(claim: Claim, point: Point, recompute: Recompute | None) -> Layout | None:
    """The layout of a point: its own, else the claim's, with what it recomputes; None lets the model choose the best."""
    layout: Layout | None = _stated(claim, point, "layout") or claim.layout
    if layout is None or point.k % layout.model_parallel:
        return None
    return layout if recompute is None else layout.model_copy(update={"recompute": recompute})


def _recompute_of_all(claim: Claim, read: Series) -> Recompute | None:
    """What every point says that it recomputes; None where they differ, or some do not say."""
    said = {_stated(claim, point, "recompute") for point in read.all}
    return said.pop() if len(said) == 1 else None


def _groups(claim: Claim, read: Series, cluster: Cluster) -> list[plausible.Group]:
    """Points that share a layout, a precision and a length are predicted together."""
    workload = claim.workload
    if workload is None:
        return []
    grouped: dict[str, tuple[list[Point], Layout | None, Recompute | None, str, int | None]] = {}
    for point in read.all:
        if point.global_batch is None:
            continue
        recompute = _stated(claim, point, "recompute")
        layout = _layout(claim, point, recompute)
        precision = _precision(claim, point, cluster.accelerator)
        length = None if point.seq_len is None else int(point.seq_len)
        key = repr((None if layout is None else layout.model_dump(), recompute, precision, length))
        grouped.setdefault(key, ([], layout, recompute, precision, length))[0].append(point)
    return [
        plausible.Group(
            points,
            Setup(
                workload=workload,
                cluster=cluster,
                precision=precision,
                k=np.array([float(point.k) for point in points]),
                global_batch=np.array([float(point.global_batch or 1.0) for point in points]),
                layout=layout,
                seq_len=length,
            ),
            recompute,
        )
        for points, layout, recompute, precision, length in grouped.values()
    ]


def _ladder_setup(claim: Claim, read: Series, cluster: Cluster, notes: list[str]) -> Setup | None:
    """Doublings of K from the claim's smallest to its largest, at the batch that the claim's regime implies."""
    points = read.all
    if claim.workload is None or not points:
        return None
    first, last = (read.reference or points[0]).k, min(points[-1].k, LADDER_TOP)
    first = min(first, 8) if read.reference is None else first
    rungs = sorted({*_doublings(first, last), *(point.k for point in points if first <= point.k <= last)})
    batches = {point.k: point.global_batch for point in points if point.global_batch is not None}
    if batches:
        k0 = min(batches)
        each = batches[k0] / k0
        fixed = claim.regime == "strong" or (claim.regime is None and len(set(batches.values())) == 1)
        total = [float(claim.global_batch or batches[k0]) if fixed else each * k for k in rungs]
    else:
        fixed_batch = _usual_batch(claim, last)
        notes.append(
            f"The claim names no batch: the ladder assumes a global batch of {fixed_batch} {claim.workload.sample}s."
        )
        total = [float(fixed_batch)] * len(rungs)
    layout, recompute = claim.layout, _recompute_of_all(claim, read)
    if layout is not None and any(k % layout.model_parallel for k in rungs):
        layout = None
    if layout is not None and recompute is not None:
        layout = layout.model_copy(update={"recompute": recompute})
    return Setup(
        workload=claim.workload,
        cluster=cluster,
        precision=_precision(claim, None, cluster.accelerator),
        k=np.array(rungs, dtype=float),
        global_batch=np.array(total, dtype=float),
        layout=layout,
        seq_len=claim.seq_len,
    )


def _doublings(first: int, last: int) -> Iterable[int]:
    k = first
    while k < last:
        yield k
        k *= 2
    yield last


def _points(read: Series, expected: list[plausible.Expected]) -> list[dict[str, object]]:
    """Claimed beside predicted, 90 % bands as everywhere else."""
    by_label = {item.point.label: item for item in expected}
    is_series = len({point.k for point in read.all}) > 1
    rows: list[dict[str, object]] = []
    for point in read.all:
        # A rate at the only K is its own reference: it claims no speedup, unless one is stated.
        scales = is_series or not point.stated.keys().isdisjoint(("speedup", "efficiency"))
        item = by_label.get(point.label)
        rows.append(
            {
                "k": point.k,
                "global_batch": point.global_batch,
                "claimed_s": point.time_s,
                "predicted_s": item.time_s if item else None,
                "low_s": _narrowed(item.time_s, item.low_s) if item else None,
                "high_s": _narrowed(item.time_s, item.high_s) if item else None,
                "throughput": point.rate,
                "speedup": read.speedup(point) if scales else None,
                "efficiency": read.efficiency(point) if scales else None,
            }
        )
    return rows


def _narrowed(middle: float, edge: float) -> float:
    """The edge of a 95 % band as that of a 90 % one."""
    return float(middle * (edge / middle) ** (1.0 / plausible.WIDEN))


def _inputs(claim: Claim, goal: str) -> dict[str, object]:
    """Enough to say whose claim it is and to run it again."""
    given = claim.model_dump(mode="json", exclude_none=True, exclude={"workload", "cluster", "accelerator"})
    names = {
        "workload": claim.workload.name if claim.workload else None,
        "cluster": claim.cluster.name if claim.cluster else None,
        "accelerator": claim.device.name if claim.device else None,
    }
    return {"claim": given, **names, "vendor": claim.vendor, "goal": goal}
