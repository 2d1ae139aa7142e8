"""A user's few measurements become beliefs about one job, with a fit report that admits trouble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.extrapolation import need_of_laws
from perfmodel.beliefs.population import DISCREPANCY_MEANINGS, EFFECTS, Beliefs, Calibration
from perfmodel.calibrate.mixed import LIMIT
from perfmodel.calibrate.observations import Observations
from perfmodel.calibrate.parts import SeenPart, Traced, condition_on_parts
from perfmodel.calibrate.population import population_logs
from perfmodel.calibrate.posterior import Posterior, condition_jobs
from perfmodel.physics.coefficients import MEANINGS, NAMES
from perfmodel.physics.layouts import Layouts
from perfmodel.physics.machine import stack as stack_machines
from perfmodel.physics.operations import stack
from perfmodel.training.curve import ShownLayout, centre, choose, coefficients, declares, describe
from perfmodel.training.curve import population_logs as declared_logs
from perfmodel.training.setup import Setup
from perfmodel.training.step import step

Array = NDArray[np.float64]

# A belief whose spread shrank by less than this was not identified by the measurements.
UNIDENTIFIED = 0.97
CONFLICT = 2.0  # prior standard deviations
DOUBTED = 0.5  # Student-t weight below which a row is doubted


@dataclass(frozen=True)
class Direct:
    """A measurement of a coefficient itself: a link's rate from a sweep, jitter from per-rank times."""

    name: str
    value: float
    spread: float  # log standard deviation
    source: str


def observe(setup: Setup, time_s: Array, beliefs: Beliefs) -> Observations:
    """Timings at the set-up's K as observations of one family, on the layouts that the set-up gives or chooses.

    A layout that the model refuses is observed all the same: whoever reads measurements says what cannot be.
    """
    _, logs = centre(setup, beliefs)
    at, _ = choose(setup, logs)
    n = setup.k.size
    return Observations(
        ops=stack([setup.operations] * n),
        machine=stack_machines([setup.machine] * n),
        at=at,
        target=np.log(time_s),
        family=np.zeros(n, dtype=np.intp),
        names=(setup.workload.name or "job",),
        features=(setup.features(),),
        kinds=(setup.workload.kind,),
        normalised=np.zeros(n, dtype=bool),
    )


class FittedPoint(TypedDict):
    """A measured step, what the fit makes of it, and the layout that it is taken to have."""

    k: int
    measured_s: float
    before_s: float
    fitted_s: float
    residual: float
    weight: float
    doubted: bool
    layout: ShownLayout


class Moved(TypedDict):
    """What the measurements did to one belief."""

    name: str
    factor: float
    step_change: float
    spread_before: float
    spread_after: float
    status: str
    meaning: str


class Report(TypedDict):
    """What a fit to one job did."""

    points: list[FittedPoint]
    parameters: list[Moved]
    direct: list[dict[str, object]]
    trace: list[SeenPart]
    trace_layout: ShownLayout | None
    mode: str


def calibrate(
    setup: Setup,
    time_s: Array,
    beliefs: Beliefs,
    direct: Sequence[Direct] = (),
    traced: Traced | None = None,
) -> tuple[Beliefs, Report]:
    """Beliefs given timings (may be empty), direct measurements and the parts of a trace; and the fit report."""
    n = len(NAMES)
    beliefs = replace(beliefs, calibration=None)
    belief = beliefs.belief(setup.features())
    prior = beliefs.scatter.copy()
    prior[:n] += np.square(belief.spread)
    prior[:n][declares(setup)] = 0.0  # what the job declares, timings do not move
    mean, variance = np.zeros(len(EFFECTS)), prior.copy()
    for item in direct:
        index = EFFECTS.index(item.name)
        gain = variance[index] / (variance[index] + item.spread**2)
        mean[index] += gain * (np.log(item.value) - belief.median[index] - mean[index])
        variance[index] *= 1.0 - gain
    covariance = np.diag(variance)
    seen: list[SeenPart] = []
    traced_layout: ShownLayout | None = None
    if traced is not None:
        parts = condition_on_parts(traced.place(setup), beliefs, traced, mean, covariance)
        mean, covariance, seen, traced_layout = parts.mean, parts.covariance, parts.rows, parts.layout
    anchor = mean[:n].copy()
    rows: list[FittedPoint] = []
    surprise, slopes = np.zeros(0), np.zeros(len(EFFECTS))
    if time_s.size:
        data = observe(setup, time_s, beliefs)
        unfitted = population_logs(beliefs, data, [0])
        before_s = _before(setup, data.at, declared_logs(setup, belief))
        # The job's declared jitter and schedule are in its prediction; observations of a population know neither.
        own = np.log(before_s) - data.model(unfitted, np.arange(time_s.size))
        data = replace(data, target=data.target - own - mean[n:] @ data.slopes)
        logs = unfitted + mean[:n, None]
        found = condition_jobs(
            beliefs, data, [0], [np.arange(time_s.size)], logs, covariances=covariance[None]
        )
        mean, covariance = mean + found.mean[0], found.covariance[0]
        slopes = found.slopes.mean(axis=1)
        rows = _rows(setup, time_s, before_s, found, data.at)
        surprise = np.log(time_s / before_s)
    mode, believed = "datasheet", np.zeros(time_s.size, dtype=bool)
    if time_s.size:
        # A law goes through every point that it is given: those in doubt are not among them, where two others are left.
        trusted = found.weight >= DOUBTED
        believed = trusted if trusted.sum() >= 2 else np.ones_like(trusted)
        mode = "one_node" if (setup.k <= setup.machine.node)[believed].all() else "two_point"
    k, batch = setup.k[believed], setup.global_batch[believed]
    sources = [f"{item.name} from {item.source}" for item in direct]
    if any(row["spread"] is not None for row in seen) and traced is not None:
        sources.append(f"parts of the step at K={traced.k} from {traced.source}")
    calibration = Calibration(
        mean=mean,
        covariance=covariance,
        mode=mode,
        points=int(believed.sum()),
        k=k,
        tau=time_s[believed] * k / (batch * float(setup.operations.tokens)),
        batch=batch / k,
        need=need_of_laws(surprise[believed], k),
        notes=tuple(sources),
        anchor=anchor,
    )
    return beliefs.calibrated(calibration), {
        "points": rows,
        "parameters": _parameters(prior, mean, covariance, slopes),
        "direct": [vars(item) for item in direct],
        "trace": seen,
        "trace_layout": traced_layout,
        "mode": calibration.mode,
    }


def _before(setup: Setup, at: Layouts, logs: Array) -> Array:
    """Seconds of a step before any measurement, as the curve of this job has them."""
    made = step(setup.operations, setup.machine, at, coefficients(setup, logs[:, None], setup.k))
    return np.asarray(np.broadcast_to(made.time_s, setup.k.shape))


def _rows(setup: Setup, time_s: Array, before_s: Array, found: Posterior, at: Layouts) -> list[FittedPoint]:
    return [
        {
            "k": int(k),
            "measured_s": float(t),
            "before_s": float(before),
            "fitted_s": float(t * np.exp(-r)),
            "residual": float(np.expm1(-r)),
            "weight": float(min(w, 1.0)),
            "doubted": bool(w < DOUBTED),
            "layout": describe(at, i),
        }
        for i, (k, t, before, r, w) in enumerate(
            zip(setup.k, time_s, before_s, found.residual, found.weight, strict=True)
        )
    ]


def _parameters(prior: Array, mean: Array, covariance: Array, slopes: Array) -> list[Moved]:
    """Every effect with what happened to it (at a bound, unidentified, in conflict with the prior, or fitted) and what its
    shift did to the measured steps by their `slopes`."""
    rows: list[Moved] = []
    for index, name in enumerate(EFFECTS):
        before, after = float(np.sqrt(prior[index])), float(np.sqrt(max(covariance[index, index], 0.0)))
        shift = float(mean[index])
        if before <= 0.0:
            continue
        if index < len(NAMES) and abs(shift) >= LIMIT * before * 0.999:
            status = "at a bound"
        elif after > UNIDENTIFIED * before and abs(shift) < 0.25 * before:
            status = "unidentified"
        elif abs(shift) > CONFLICT * before:
            status = "in conflict with the prior"
        else:
            status = "fitted"
        rows.append(
            {
                "name": name,
                "factor": float(np.exp(shift)),
                "step_change": float(np.expm1(slopes[index] * shift)),
                "spread_before": before,
                "spread_after": after,
                "status": status,
                "meaning": MEANINGS.get(name) or f"unexplained, {DISCREPANCY_MEANINGS[name]}",
            }
        )
    order = {"at a bound": 0, "in conflict with the prior": 1, "fitted": 2, "unidentified": 3}
    rows.sort(key=lambda row: (order[row["status"]], row["spread_after"] / row["spread_before"]))
    return rows
