"""What traces and power logs of a job's own runs say, in the terms of its beliefs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

import numpy as np

from perfmodel.beliefs.population import Beliefs, MeasuredPower
from perfmodel.calibrate.job import Direct
from perfmodel.calibrate.parts import Traced
from perfmodel.decide.energy import SHARE_SPREAD, PowerModel, power_of, step_energy
from perfmodel.errors import Problem, SpecError
from perfmodel.physics.energy import power_w
from perfmodel.physics.layouts import ONE_BUCKET
from perfmodel.physics.straggler_fit import LEAST_SAMPLES
from perfmodel.readings.power_draw import Draw
from perfmodel.readings.rank_times import RankTimes
from perfmodel.readings.steps import TraceSummary
from perfmodel.specs.jobs import Job
from perfmodel.training.curve import curve
from perfmodel.training.setup import Setup, batch_of, setup_of

EXPOSED_SPREAD = 0.2  # of the exposed share read off a trace
JITTER_SPREAD = 0.3  # of a spread read off per-rank times
METER_SPREAD = 0.05  # nvidia-smi states +-5 W or 5 %; sampled once a second it misses what is shorter
LEAST_SHARE = 0.01  # of the range, for a log that shows devices at rest


def traced_parts(job: Job, summary: TraceSummary, source: str) -> Traced:
    """Mean seconds per step of what a trace measured, and how well its steps settle each mean."""
    k = summary.workers
    if k is None:
        raise SpecError(
            Problem(
                source,
                code="R003",
                message="one rank's trace that does not say with how many others it communicates",
                help="trace every rank, or with the process group set up (then the profiler records its size)",
            )
        )
    parts = summary.parts_s()
    shown = parts["exposed_communication"]
    hidden = float(np.mean([np.mean(rank.hidden_communication_s) for rank in summary.ranks]))
    beside = {"exposed_copy": (parts["exposed_copy"], "not used: copies are no part of the step model")}
    if summary.steps_from == "Ray tasks":
        seconds = {"execution": parts["compute"], "input_stall": parts["input_stall"]}
        beside["idle"] = (
            parts["idle"],
            "not used: between tasks Ray schedules, which is no part of the model",
        )
        beside["exposed_communication"] = (shown, "not used: storing a task's outputs is no exchange")
    else:
        seconds = {name: parts[name] for name in ("compute", "input_stall", "idle")}
        if data_parallel(job):
            seconds["communication"] = shown + hidden
            beside["exposed_communication"] = (shown, "used in the sum above and as the share that shows")
            beside["hidden_communication"] = (hidden, "used in the sum above and as the share that shows")
        else:
            seconds |= {"exposed_communication": shown, "hidden_communication": hidden}
    errors = {name: _relative_error(summary, name) for name in seconds}
    batch = float(batch_of(job, np.asarray(float(k))))
    return Traced(k, batch, float(np.mean(summary.step_s())), seconds, errors, source, beside)


def data_parallel(job: Job) -> bool:
    """Whether all communication of the job is the gradients' own, so that one share says how much of it shows."""
    return job.layout == "auto" or job.layout.model_parallel == 1


def _relative_error(summary: TraceSummary, name: str) -> float:
    """Standard error of a mean over all steps, relative to it."""
    columns = {
        "execution": ("compute",),
        "communication": ("exposed_communication", "hidden_communication"),
    }.get(name, (name,))
    values = np.concatenate(
        [
            sum(
                (
                    rank.hidden_communication_s if column == "hidden_communication" else rank.parts_s[column]
                    for column in columns
                ),
                np.zeros(()),
            )
            for rank in summary.ranks
        ]
    )
    mean = float(values.mean())
    if values.size < 2 or mean <= 0.0:
        return 0.0
    return float(values.std(ddof=1) / np.sqrt(values.size) / mean)


def traced_exposure(
    job: Job, setup: Setup, summary: TraceSummary, source: str, notes: list[str]
) -> list[Direct]:
    """Share of the gradient exchange that shows, from a trace in which nothing else travels.

    Of an exchange in one call all shows: a trace that saw some of it hidden contradicts the job, and a note says so.
    """
    hidden, workers = summary.hidden_fraction(), summary.workers
    if hidden is None or workers is None or not data_parallel(job) or summary.steps_from == "Ray tasks":
        return []
    if setup.declared.get("bucket_bytes", 0.0) >= ONE_BUCKET:
        if hidden > EXPOSED_SPREAD:
            notes.append(
                f"{source}: {hidden:.0%} of the exchange ran under compute, and {job.framework} in one call hides none:"
                " the trace informed nothing of it; give the job the `bucket` that its gradients go in"
            )
        return []
    name = "dp_exposed" if workers <= float(setup.machine.node) else "net_exposed"
    return [Direct(name, float(np.clip(1.0 - hidden, 0.01, 1.0)), EXPOSED_SPREAD, source)]


def traced_jitter(summary: TraceSummary, source: str) -> list[Direct]:
    """Spread of the ranks' own time, where several ranks were traced over enough steps."""
    spread = summary.spread_across_ranks()
    if spread is None:
        return []
    steps = min(rank.number.size for rank in summary.ranks)
    doubt = 1.0 / np.sqrt(2.0 * (len(summary.ranks) - 1) * steps)
    return [Direct("jitter", max(spread, 1e-4), float(max(JITTER_SPREAD, doubt)), source)]


def jitter_of_ranks(
    times: RankTimes, source: str, seed: int
) -> tuple[list[Direct], list[dict[str, object]], list[str]]:
    """The spread of per-rank times for the beliefs, the families that were fitted, and what to know of their tail."""
    jitter = times.jitter()
    if jitter.size == 0:
        return (
            [],
            [],
            [f"{source}: one step a rank says nothing of jitter: it needs two or more, and informed nothing"],
        )
    spread = float(np.std(jitter))
    direct = [Direct("jitter", max(spread, 1e-4), JITTER_SPREAD, source)]
    if jitter.size < LEAST_SAMPLES:
        return direct, [], [f"{source}: too few step times for a distribution: the spread alone was used"]
    found = times.fit(seed=seed)
    rows = [
        {"family": item.family, "spread": item.spread, "tail": item.tail, "aic": item.aic}
        for item in found.candidates
    ]
    check = f"samples beyond the 90 % quantile exceed it {found.excess_ratio:.2f} times as far as the fit says, p = {found.p_value:.2g}"
    words = [
        f"{source}: step times are {found.best.family} with spread {found.best.spread:.3g}; its tail "
        f"{'may be trusted' if found.tail_is_trusted else 'must not be trusted beyond these samples'} ({check})",
        f"{source}: rank {found.slowest_rank} takes {found.slowest_factor:.3f} times as long as the median rank",
    ]
    return direct, rows, words


def trace_notes(summary: TraceSummary) -> list[str]:
    """What a trace shows in words, the slowest ranks and what travelled included."""
    parts = summary.parts_s()
    total = sum(parts.values())
    shares = ", ".join(
        f"{name.replace('_', ' ')} {value / total:.0%}" for name, value in parts.items() if total > 0
    )
    words = [
        f"trace: {summary.workers} workers, {len(summary.ranks)} traced, steps from {summary.steps_from}; "
        f"a step of {float(np.mean(summary.step_s())):.4g} s: {shares}"
    ]
    hidden = summary.hidden_fraction()
    if hidden is not None:
        words.append(f"trace: {hidden:.0%} of the communication ran under compute")
    imbalance = summary.imbalance()
    if imbalance is not None:
        late = f"; ranks {', '.join(map(str, imbalance.stragglers))} are slow" if imbalance.stragglers else ""
        words.append(
            f"trace: the slowest rank computes {imbalance.spread:.1%} longer than the mean, rank "
            f"{imbalance.slowest_rank} in {imbalance.slowest_share:.0%} of the steps{late}"
        )
    if summary.collectives:
        kinds = ", ".join(
            f"{item.kind} {item.count}x {item.time_s:.3g} s" + (f" {item.bytes:.3g} B" if item.bytes else "")
            for item in summary.collectives
        )
        words.append(f"trace: communication by kind, all ranks and steps: {kinds}")
    return words


class Drawn(TypedDict):
    """A power reading, and what was predicted before and after it."""

    k: int
    measured_w: float
    before_w: float
    after_w: float
    idle_w: float | None
    devices: int
    seconds: float
    source: str


def power_from_draws(job: Job, beliefs: Beliefs, draws: Sequence[Draw]) -> tuple[MeasuredPower, list[Drawn]]:
    """The power range that explains the draws, and a row for each K.

    An accelerator draws `P = idle + f a (rated - idle)`, where a is the mean share of the range over the parts of the
    predicted step and f what is to be found; log f has the prior N(0, SHARE_SPREAD) and one reading a K.
    """
    idles = [draw.idle_watts for draw in draws if draw.idle_watts is not None]
    idle = float(np.median(idles)) if idles else None
    plain = power_of(job)
    start = replace(plain, idle_w=min(plain.idle_w if idle is None else idle, 0.95 * plain.rated_w))
    k = np.array([float(draw.k) for draw in draws])
    found = curve(replace(setup_of(job), k=k, global_batch=batch_of(job, k)), beliefs, draws=0)
    parts = {name: np.nan_to_num(value) for name, value in found.parts.items()}
    bare = PowerModel(start.rated_w, start.idle_w, shares=start.shares)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = step_energy(np.ones_like(k), parts, bare).power_w
    # Where the layout does not fit, no parts are known: compute is taken to fill the step.
    full = power_w(start.shares.compute, rated_w=start.rated_w, idle_w=start.idle_w)
    expected = np.where(np.isfinite(expected), expected, full)
    measured = np.array([draw.watts for draw in draws])
    span = np.maximum(measured - start.idle_w, LEAST_SHARE * (start.rated_w - start.idle_w))
    ratio = np.log(span / (expected - start.idle_w))
    doubt = METER_SPREAD * measured / span  # an error of the meter weighs more where little is above idle
    precision = 1.0 / SHARE_SPREAD**2 + float(np.sum(1.0 / doubt**2))
    log_scale = float(np.sum(ratio / doubt**2)) / precision
    power = MeasuredPower(
        scale=float(np.exp(log_scale)),
        spread=float(precision**-0.5),
        idle_w=start.idle_w if idle is not None else None,
        source=", ".join(draw.source for draw in draws),
    )
    after = start.idle_w + power.scale * (expected - start.idle_w)
    rows: list[Drawn] = [
        {
            "k": draw.k,
            "measured_w": draw.watts,
            "before_w": float(expected[i]),
            "after_w": float(after[i]),
            "idle_w": draw.idle_watts,
            "devices": draw.devices,
            "seconds": draw.seconds,
            "source": draw.source,
        }
        for i, draw in enumerate(draws)
    ]
    return power, rows
