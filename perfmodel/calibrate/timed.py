"""Step times of a job's own runs: at which K and batch they were taken, and whether they can be what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.calibrate.job import FittedPoint
from perfmodel.decide.audit.bounds import ROUNDING, least_compute_s
from perfmodel.decide.audit.subject import load_of, machine_of
from perfmodel.errors import Problem, SpecError
from perfmodel.readings.timings import Timings
from perfmodel.specs.jobs import Job
from perfmodel.training.setup import Setup, batch_of
from perfmodel.units import format_quantity

Array = NDArray[np.float64]

UNSTEADY = 0.1  # standard deviation over mean of repeats at one K: beyond it they are hardly of one run
# Times the prediction before the fit. Milliseconds read as seconds are 1000 times too long, and the prediction itself may
# be off; a run that is really so slow exists (a debug build, a network file system): that is only doubted.
FAR_SLOWER = 100.0
NO_STEP = 300.0  # from here on a time is in another unit or of a whole job
OF_THE_RUN = 4.0  # a time within this factor of all steps of the job is the job's


def timed(job: Job, setup: Setup, path: Path, table: Timings, notes: list[str]) -> tuple[Setup, Array]:
    """The set-up at the K and batches of the timings."""
    k = table.k.astype(float)
    limit = setup.cluster.max_accelerators
    if limit is not None and k.max() > limit:
        message = f"K={int(k.max())} was measured, but the cluster has {limit} accelerators"
        raise SpecError(Problem(str(path), 1, 1, "R010", message))
    if np.isfinite(table.global_batch).any():
        notes.append("batches are those of the timings file")
    apart = [
        f"K = {at} by {deviation / mean:.0%}"
        for at, mean, deviation in zip(table.k, table.time_s, table.std_s, strict=True)
        if deviation > UNSTEADY * mean
    ]
    if apart:
        notes.append(
            f"repeats disagree, and only their mean is used: {', '.join(apart)} (standard deviation)"
        )
    return replace(setup, k=k, global_batch=batch_of_timings(job, k, table.global_batch)), table.time_s


def batch_of_timings(job: Job, k: Array, stated: Array) -> Array:
    """Samples of a step: as the timings state them, else the job's."""
    return np.where(np.isfinite(stated), stated, batch_of(job, k))


def refuse_faster_than_peak(job: Job, path: Path, table: Timings) -> None:
    """Raise a SpecError at every time that is shorter than the arithmetic of its step."""
    runs = table.runs
    batch = batch_of_timings(job, runs.k, runs.columns.get("global_batch", np.full(runs.k.size, np.nan)))
    problems: dict[str, Problem] = {}
    for row, message in faster_than_peak(job, runs.k, batch, runs.time_s).items():
        line, column, text = (runs.place(row) if table.written else None) or (None, None, None)
        help = (
            "time_s is in seconds and of a whole step: were milliseconds divided by 1000 twice, is it in hours, or of one "
            "micro-batch? Are batch, sequence length and precision those of the run?"
        )
        problem = Problem(str(path), line, column, "R013", message, text, help)
        problems.setdefault(problem.headline, problem)  # steps of a log without lines may say the same
    if problems:
        raise SpecError(problems.values())


def faster_than_peak(job: Job, k: Array, batch: Array, time_s: Array) -> dict[int, str]:
    """Runs whose time is below what the arithmetic of the step takes at the datasheet's peak: their index, and why.

    A workload whose FLOP are not counted has no such bound.
    """
    load = load_of(job.workload, job.seq_len)
    if load is None:
        return {}
    machine = machine_of(job.cluster.accelerator, job.cluster)
    peak, precision = machine.peak(job.precision)
    if job.precision == "fp32" and "tf32" in machine.peak_flop_per_s:
        # Libraries may round the inputs of 32-bit matrix products to tf32 without being asked.
        peak, precision = max((peak, precision), machine.peak("tf32"))
    least = np.array([least_compute_s(b, n, load, peak) for b, n in zip(batch, k, strict=True)])
    at_peak = (
        f"their arithmetic at the datasheet's peak ({format_quantity(peak, 'FLOP/s')} each in {precision})"
    )

    def why(row: int) -> str:
        taken, needed = (format_quantity(float(value[row]), "s") for value in (time_s, least))
        work = f"{batch[row]:g} {load.sample}s"
        return f"{taken} at K = {k[row]:g}, but {work} take at least {needed} there: {at_peak}"

    return {row: why(row) for row in map(int, np.flatnonzero(time_s * ROUNDING < least))}


def far_slower(job: Job, path: Path, points: Sequence[FittedPoint]) -> list[str]:
    """A warning where the measured times are so far above the prediction before the fit that the unit is in doubt.

    Times of whole jobs and of another unit are refused with a SpecError.
    """
    late = [row for row in points if row["measured_s"] > FAR_SLOWER * row["before_s"] > 0.0]
    if not late:
        return []
    ratio = {row["k"]: float(row["measured_s"] / row["before_s"]) for row in late}
    worst = max(late, key=lambda row: ratio[row["k"]])
    where = ", ".join(str(row["k"]) for row in late)
    words = (
        f"at K = {where} the times are more than {FAR_SLOWER:g} times what was predicted "
        f"({worst['measured_s']:.4g} s where {worst['before_s']:.4g} s was expected)"
    )
    steps = job.steps or 0
    of_run = all(steps / OF_THE_RUN < times < steps * OF_THE_RUN for times in ratio.values())
    if of_run or min(ratio.values()) > NO_STEP:
        hint = f"divide them by the {steps:,} steps" if of_run else "divide by the steps of the run"
        raise SpecError(
            Problem(
                str(path),
                code="R013",
                message=f"{words}: these are no times of one step",
                help=f"time_s is in seconds, of one step: milliseconds need dividing by 1000; times of a whole job: {hint}",
            )
        )
    return [f"{path.name}: {words}: time_s is in seconds, of one step: is it in ms, or of many steps?"]
