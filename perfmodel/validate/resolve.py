"""Measured runs resolved to operations, machines and layouts, with what their sources leave open filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.observations import Observations
from perfmodel.errors import did_you_mean
from perfmodel.physics.coefficients import NAMES
from perfmodel.physics.constants import ATTENTION_PASSES, FAST_CONVOLUTION
from perfmodel.physics.layouts import Layouts, joined, pick
from perfmodel.physics.machine import Machine
from perfmodel.physics.machine import stack as stack_machines
from perfmodel.physics.operations import Operations, stack, take
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.workload import Workload
from perfmodel.training.curve import stated
from perfmodel.training.given import as_run
from perfmodel.training.setup import Setup, setup_of
from perfmodel.validate.consistency import batchless_apart, contradiction, repeated
from perfmodel.validate.corpus import Corpus
from perfmodel.validate.jobs import OWN, Jobs
from perfmodel.validate.tables import Row

Array = NDArray[np.float64]
Index = NDArray[np.intp]

HARDWARE = {"accelerator": "accelerators", "scale_up": "links", "scale_out": "links"}  # column -> catalogue
MISPLACED = {"scale_up": ("scale-out",), "scale_out": ("scale-up", "switch", "pcie", "cpu")}  # kinds of links

COMPOSED = "composed by its source"  # in the note of a point that was not timed on its own
# What the columns of workloads.csv have no place for.
UNSTATED = (
    "conv3x3_share", "projected_vocab", "memory_len", "attention_window", "window_layers", "scores_in_fp32",
)  # fmt: skip


@dataclass(frozen=True)
class Resolved:
    """Observations, and what could not be resolved and why."""

    observations: Observations
    families: tuple[Row, ...]  # aligned with the observations' names
    points: tuple[Row, ...]  # aligned with the observations' points
    unresolved: tuple[tuple[Row, str], ...]  # families that could not be scored, with the reason
    contradicted: tuple[tuple[Row, str], ...]  # points that contradict themselves, with how
    batchless: Mapping[str, str]  # families made of points that lack their family's batch -> which, in words
    refusals: NDArray[
        np.int64
    ]  # why a prediction of each point's job would refuse its layout: a `space.Refusal`


def resolve(corpus: Corpus, catalog: Catalog, grades: str = "AB") -> Resolved:
    """Turn rows into observations. A family that lacks a catalogue entry is listed with the reason."""
    graded = [point for point in corpus.points if point.text["grade"] in ("", *grades)]
    contradicted = [
        (point, how)
        for point in graded
        if (how := contradiction(point, corpus.families[point.text["family"]]))
    ] + repeated(graded)
    known, workloads, unresolved = _known_families(corpus, catalog)
    contradicted += [
        (point, f"{column} is stated, and no attention of {name} is counted")
        for column in OWN
        for point in graded
        if point.number[column] is not None
        and point.text["family"] in known
        and not workloads[name := known[point.text["family"]].text["workload"]].is_counted
    ]
    refused = {point.line for point, _ in contradicted}
    scored = [point for point in graded if point.text["family"] in known and point.line not in refused]
    labelled, points, batchless = batchless_apart(known, scored)
    seen = {point.text["family"] for point in points}
    at_odds = {point.text["family"] for point, _ in contradicted}
    ungraded = f"no points of grade {' or '.join(grades)}"
    unresolved += [
        (row, ungraded + " that agree with themselves" * (name in at_odds))
        for name, row in labelled.items()
        if name not in seen
    ]
    families, jobs = tuple(labelled.values()), Jobs(catalog, corpus.jobs)
    observations, refusals = _observe(families, workloads, points, jobs)
    least = least_seconds(observations)
    too_fast = np.flatnonzero(~observations.normalised & (np.exp(observations.target) < least))
    if too_fast.size:
        contradicted += [(points[i], _above_peak(points[i], float(least[i]))) for i in too_fast]
        kept = np.setdiff1d(np.arange(len(points)), too_fast)
        points = [points[i] for i in kept]
        observations, refusals = _only(observations, kept), refusals[kept]
    return Resolved(
        observations, families, tuple(points), tuple(unresolved), tuple(contradicted), batchless, refusals
    )


def _only(data: Observations, kept: Index) -> Observations:
    """Some of the points; a family may be left without any."""
    return replace(
        data,
        ops=take(data.ops, kept),
        machine=pick(data.machine, kept),
        at=pick(data.at, kept),
        target=data.target[kept],
        family=data.family[kept],
        normalised=data.normalised[kept],
        stated=None if data.stated is None else data.stated[:, kept],
    )


def least_seconds(data: Observations) -> NDArray[np.float64]:
    """Step time of each point at the peak of its accelerators: nothing that was measured can be shorter.

    What a fast algorithm saves of 3x3 convolutions and what fused attention computes again are left out of the FLOP.
    """
    saved = 3.0 * data.machine.fast_convolutions * data.ops.conv3x3_flop * (1.0 - 1.0 / FAST_CONVOLUTION)
    saved = saved + (ATTENTION_PASSES - 3.0) * data.ops.attention_flop
    flop = (data.ops.training_flop() - saved) * data.at.global_batch
    return np.asarray(flop / (data.at.k * data.machine.peak_flop_per_s) + np.zeros_like(data.target))


def _above_peak(point: Row, least: float) -> str:
    return (
        f"its step of {point.get('step_s', 0.0):g} s is shorter than the {least:.3g} s that its FLOP take at the peak: "
        "step time, batch, sequence length, precision or FLOP of the workload is wrong"
    )


def _known_families(
    corpus: Corpus, catalog: Catalog
) -> tuple[dict[str, Row], dict[str, Workload], list[tuple[Row, str]]]:
    """Families that can be predicted, their workloads by name, and the other families with the reason."""
    known: dict[str, Row] = {}
    workloads: dict[str, Workload] = {}
    unresolved: list[tuple[Row, str]] = []
    largest: dict[str, float] = {}
    for point in corpus.points:
        family = point.text["family"]
        largest[family] = max(largest.get(family, 1.0), point.get("k", 1.0))
    for name, row in corpus.families.items():
        if name in corpus.jobs:  # its names were looked up when it was read
            known[name] = row
            workloads.setdefault(row.text["workload"], corpus.jobs[name].workload)
            continue
        workload = known_workload(row.text["workload"], corpus, catalog)
        reason = _missing(row, workload, catalog) or _too_large_a_group(row, largest.get(name, np.inf))
        if reason or workload is None:
            unresolved.append((row, reason or "no workload"))
        else:
            known[name], workloads[row.text["workload"]] = row, workload
    return known, workloads, unresolved


def known_workload(name: str, corpus: Corpus, catalog: Catalog) -> Workload | None:
    """As workloads.csv states it, with what that form has no column for taken from the zoo's model of the name."""
    stated = corpus.workloads.get(name)
    if name not in catalog.names("workloads"):
        return stated
    known: Workload = catalog.get("workloads", name)
    if stated is None:
        return known
    if stated.kind != known.kind or (stated.vocab or 0) < (known.projected_vocab or 0):
        return stated  # another model of that name
    unsaid = {field: getattr(known, field) for field in UNSTATED if getattr(stated, field) is None}
    return stated.model_copy(update=unsaid)


def _missing(row: Row, workload: Workload | None, catalog: Catalog) -> str | None:
    if workload is None:
        name = row.text["workload"]
        guess = did_you_mean(name, catalog.names("workloads"))
        return f'workload "{name}" is neither in workloads.csv nor in the zoo{guess}'
    unknown = _unknown_hardware(row, catalog, may_be_blank=("scale_up", "scale_out"))
    if unknown:
        return unknown
    device, precision = catalog.get("accelerators", row.text["accelerator"]), row.text["precision"]
    if not device.trains_in(precision):
        return f"{device.name} has no {precision}; it has {', '.join(device.peak)}"
    has_work = (
        workload.flop_per_sample_forward or workload.flop_per_sample or (workload.layers and workload.hidden)
    )
    return None if has_work else "the workload has neither FLOP nor dimensions"


def _too_large_a_group(row: Row, largest_k: float) -> str | None:
    group = row.get("shard_group", 1.0)
    return f"shard_group is {group:g}, its largest k {largest_k:g}" if group > largest_k else None


def _unknown_hardware(row: Row, catalog: Catalog, may_be_blank: Container[str]) -> str | None:
    """The first device or link of a row that the catalogue lacks or has for another place, in words."""
    for column, kind in HARDWARE.items():
        name, known = row.text.get(column, ""), catalog.names(kind)
        if name not in known and (name or column not in may_be_blank):
            return f'{kind[:-1]} "{name}" is not in the catalogue{did_you_mean(name, known)}'
        if name and column in MISPLACED and catalog.get("links", name).kind in MISPLACED[column]:
            where = "between nodes" if column == "scale_up" else "within a node"
            return f'{column} is "{name}", a link {where}'
    return None


def known_sweeps(corpus: Corpus, catalog: Catalog) -> tuple[list[Row], list[tuple[Row, str]]]:
    """Timings whose hardware is blank or in the catalogue; of the other sweeps the first row, with the reason."""
    kept: list[Row] = []
    unresolved: dict[tuple[str, str], Row] = {}
    for row in corpus.collectives:
        unknown = _unknown_hardware(row, catalog, may_be_blank=HARDWARE)
        if unknown is None:
            kept.append(row)
        else:
            unresolved.setdefault((row.text["sweep"], f"collectives: {unknown}"), row)
    return kept, [(row, reason) for (_, reason), row in unresolved.items()]


def _observe(
    families: tuple[Row, ...],
    workloads: Mapping[str, Workload],
    points: Sequence[Row],
    jobs: Jobs,
) -> tuple[Observations, NDArray[np.int64]]:
    """What the set-ups of all points give, stacked; and why a prediction of each point's job would refuse its layout."""
    position = {row.text["family"]: i for i, row in enumerate(families)}
    family = np.array([position[point.text["family"]] for point in points], dtype=np.intp)
    curves: dict[tuple[object, ...], tuple[Job, list[int]]] = {}
    k, batch, target = (np.empty(len(points)) for _ in range(3))
    normalised = np.array([point.number["global_batch"] is None for point in points], dtype=bool)
    for i, (point, index) in enumerate(zip(points, family, strict=True)):
        row = families[index]
        job = jobs.job(row, point, workloads[row.text["workload"]])
        k[i], batch[i] = job.k[0], job.global_batch or 1
        seconds = point.get("step_s", 1.0)
        target[i] = np.log(seconds * batch[i] / k[i] if normalised[i] else seconds)
        # Points that differ in nothing but K and batch are one curve.
        facts = (job.seq_len, job.timed_steps, job.stack, *(point.number.get(name) for name in OWN))
        curves.setdefault((index, id(job.layout), id(job.cluster), *facts), (job, []))[1].append(i)
    stacked = _Stacked(len(points))
    features: dict[int, dict[str, str]] = {}
    coefficients = np.full((len(NAMES), len(points)), np.nan)
    for job, rows in curves.values():
        setup = replace(setup_of(job), k=k[rows], global_batch=batch[rows])
        features.setdefault(int(family[rows[0]]), setup.features())
        for name, value in stated(setup).items():
            coefficients[NAMES.index(name), rows] = np.log(value)
        stacked.add(setup, np.array(rows, dtype=np.intp))
    observations = Observations(
        ops=stacked.operations(),
        machine=stacked.machine(),
        at=stacked.layouts(),
        target=target,
        family=family,
        names=tuple(row.text["family"] for row in families),
        features=tuple(features.get(index, {}) for index in range(len(families))),  # none without points
        kinds=tuple(workloads[row.text["workload"]].kind for row in families),
        normalised=normalised,
        weights=_weights(families, points, family),
        stated=None if np.isnan(coefficients).all() else coefficients,
    )
    return observations, stacked.refusals


class _Stacked:
    """Operations, machines and layouts of many set-ups along one axis of points."""

    def __init__(self, count: int) -> None:
        self.refusals = np.zeros(count, dtype=np.int64)
        self._operations: list[Operations] = []
        self._machines: list[Machine] = []
        self._layouts: list[Layouts] = []
        self._order: list[Index] = []
        self._of = np.zeros(count, dtype=np.intp)  # set-up of each point

    def add(self, setup: Setup, rows: Index) -> None:
        """The points `rows` are those of a set-up, in its order."""
        at, self.refusals[rows] = as_run(setup)
        self._of[rows] = len(self._operations)
        self._operations.append(setup.operations)
        self._machines.append(setup.machine)
        self._layouts.append(at)
        self._order.append(rows)

    def operations(self) -> Operations:
        return take(stack(self._operations), self._of)

    def machine(self) -> Machine:
        found: Machine = pick(stack_machines(self._machines), self._of)
        return found

    def layouts(self) -> Layouts:
        order = np.concatenate([np.zeros(0, dtype=np.intp), *self._order])
        found: Layouts = pick(joined(self._layouts), np.argsort(order))
        return found


def _weights(families: tuple[Row, ...], points: Sequence[Row], family: NDArray[np.intp]) -> tuple[float, ...]:
    """Families of a group that their source made up of the same timings count together as one."""
    composed = {
        int(index)
        for index, point in zip(family, points, strict=True)
        if COMPOSED in point.text.get("note", "")
    }
    counts = Counter(families[index].text["group"] for index in composed)
    return tuple(
        1.0 / counts[row.text["group"]] if index in composed else 1.0 for index, row in enumerate(families)
    )
