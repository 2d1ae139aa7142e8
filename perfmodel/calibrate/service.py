"""Measured loads of a server narrow what is believed of its coefficients: maximum a posteriori, by Gauss and Newton.

The prior of a coefficient is its belief; what the model leaves unexplained of a stack is a prior too, on the coefficients
that carry it (`_CARRIES`), so that one load can move all of a curve. With residuals r in logarithms, slopes J and the
inverse of the prior's covariance P,

    (P + J^T W J) d = J^T W r + P (prior - x),    C = (P + J^T W J)^-1                                       (1)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import Problem, SpecError
from perfmodel.physics.serving import CLOSED, OFFLINE, OPEN, Load, serving_answer
from perfmodel.physics.serving_coefficients import MEANINGS, NAMES, from_logs
from perfmodel.readings.load import LoadPoint, read_load
from perfmodel.results.envelope import Result, fingerprint
from perfmodel.serving.beliefs import TEXTBOOK_NOISE, ServingBeliefs, serving_features, shipped_beliefs
from perfmodel.serving.calibrated import CalibratedBeliefs, calibrated, population_of, to_mapping
from perfmodel.serving.precision import FORMATS
from perfmodel.serving.setup import Service, service_of
from perfmodel.specs.serving import ServingJob

Array = NDArray[np.float64]

#: How well a mean is measured, as a standard deviation of its logarithm (assumed, from repeated public runs).
_MEASURED: Final = {"throughput": 0.04, "tpot": 0.04, "ttft": 0.10}
#: Coefficients that carry what the model leaves unexplained of a quantity, and what share of its variance.
_CARRIES: Final = {
    "pace": ("tpot", 1.0),
    "first_s": ("ttft", 1.0),
    "compute": ("ttft", 0.5),
    "line": ("ttft", 1.0),
}
_STEP: Final = 0.02
_ROUNDS: Final = 12
_LONGEST: Final = 0.7  # of a logarithm, by which a coefficient moves in a round
_FOLLOWED: Final = 0.95  # of an offered rate: below it the server was overrun


def calibrate_service(
    job: ServingJob, files: Sequence[Path], beliefs: ServingBeliefs | None = None, *, seed: int = 0
) -> Result:
    """Beliefs about one server given measured loads of it; `beliefs` of the result go where beliefs are asked for."""
    if job.serving.layout is None:
        raise job.error_at("serving", "S004", "which layout was measured? a calibration needs that of the server",
                           "write layout: {tp: 8}, and replicas where there were several")  # fmt: skip
    population = population_of(beliefs or shipped_beliefs())
    points = read_load(list(files))
    service = service_of(job, population)
    kept = [point for point in points if _is_usable(point)]
    if not kept:
        message = "no load states its requests in flight or rate, and a time or a throughput"
        raise SpecError(Problem(points[0].source if points else str(files[0]), code="T020", message=message))
    load = _loads(service, kept)
    names, seen = _observed(service, kept)
    weight = np.array([1.0 / _MEASURED[name] ** 2 for name in names])[:, None] * np.isfinite(seen)
    before = _answers(service, load, service.belief.median, names)
    median, covariance = _fit(service, load, names, seen, weight)
    after = _answers(service, load, median, names)
    root = np.asarray(np.linalg.cholesky(covariance + 1e-12 * np.eye(len(NAMES))), float)
    device = job.cluster.node.accelerator
    arithmetic = FORMATS[service.precision].arithmetic
    features = serving_features(
        device,
        arithmetic if arithmetic in device.peak else "bf16",
        service.engine.era,
        job.cluster.node.scale_up,
    )
    about = {
        "workload": job.workload.name,
        "cluster": job.cluster.name,
        "precision": service.precision,
        "loads": len(kept),
    }
    found = calibrated(population, median, root, features, about)
    return Result("serving-calibration", job.model_dump(mode="json", exclude_none=True) | {"files": [fingerprint(file) for file in files]},
                  _result(service, kept, points, names, seen, before, after, found), seed)  # fmt: skip


def _is_usable(point: LoadPoint) -> bool:
    known = point.throughput_out_tokens_per_s or point.requests_per_s or point.tpot_s or point.ttft_s
    return bool(known) and np.isfinite(point.load)


def _loads(service: Service, points: Sequence[LoadPoint]) -> Load:
    """One entry a point, of one replica."""
    replicas, said = float(service.job.replicas), service.job.serving
    kinds = {"concurrency": CLOSED, "rate": OPEN, "offline": OFFLINE}

    def column(values: list[float | None]) -> Array:
        return np.array([np.nan if value is None else value for value in values], float)

    kind = np.array([kinds[point.load_kind] for point in points])
    requests = column([point.requests for point in points]) / replicas
    inputs, outputs = (
        column([getattr(point, name) for point in points]) for name in ("input_tokens", "output_tokens")
    )
    return Load(
        kind=kind,
        concurrency=column([point.concurrency for point in points]) / replicas,
        rate_per_s=column([point.rate_per_s for point in points]) / replicas,
        requests=np.where(kind == OPEN, np.nan, requests),
        input_tokens=np.where(np.isfinite(inputs), inputs, said.input_tokens.mean),
        output_tokens=np.where(np.isfinite(outputs), outputs, said.output_tokens.mean),
        input_cv=said.input_tokens.spread,
        output_cv=said.output_tokens.spread,
        prefix_hit=said.prefix_hit,
    )


def _observed(service: Service, points: Sequence[LoadPoint]) -> tuple[tuple[str, ...], Array]:
    """Logarithms of what was measured, a quantity a row, of one replica; nan where nothing was, or nothing is told by it."""
    names = ("throughput", "tpot", "ttft")
    rows: list[list[float]] = []
    for point in points:
        out = point.throughput_out_tokens_per_s
        if out is None and point.requests_per_s is not None:
            out = point.requests_per_s * (point.output_tokens or service.job.serving.output_tokens.mean)
        tpot, ttft = (times.get("mean", times.get("p50")) for times in (point.tpot_s, point.ttft_s))
        if point.load_kind == "rate" and point.rate_per_s and point.requests_per_s:
            if point.requests_per_s >= _FOLLOWED * point.rate_per_s:
                out = None  # what was asked was answered
            else:
                ttft = None  # as long as the run lasted
        if point.load_kind == "offline":
            tpot = ttft = None
        rows.append(
            [
                np.nan if not value else float(value)
                for value in (out and out / service.job.replicas, tpot, ttft)
            ]
        )
    return names, np.log(np.array(rows, float).T)


def _answers(service: Service, load: Load, logs: Array, names: Sequence[str]) -> Array:
    """Logarithms of the model's answers; `logs` may carry more axes between coefficients and loads."""
    at = service.deployment([service.job.serving.layout or _never()])
    found = serving_answer(
        service.shape, service.machine, at, load, from_logs(logs if logs.ndim > 1 else logs[:, None])
    )
    known = {"throughput": found.throughput_out_tokens_per_s, "tpot": found.tpot_s, "ttft": found.ttft_s}
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([np.log(known[name]) for name in names])


def _never() -> NoReturn:
    raise AssertionError("a calibration has a layout")


def _fit(
    service: Service, load: Load, names: Sequence[str], seen: Array, weight: Array
) -> tuple[Array, Array]:
    """The maximum and the covariance about it: equation (1)."""
    prior = service.belief.median
    variance = service.belief.spread**2
    for name, (quantity, share) in _CARRIES.items():
        given = service.beliefs.bands.get(quantity, {})
        variance[NAMES.index(name)] += share * given.get("noise", TEXTBOOK_NOISE[quantity]) ** 2
    inverse = np.diag(1.0 / np.maximum(variance, 1e-8))
    x = prior.copy()
    hessian = inverse
    steps = np.concatenate([np.zeros((len(NAMES), 1)), np.diag(np.full(len(NAMES), _STEP))], axis=1)
    for _ in range(_ROUNDS):
        all_of = _answers(service, load, (x[:, None] + steps)[:, :, None], names)  # quantity, move, load
        residual = np.where(weight > 0.0, seen - all_of[:, 0, :], 0.0)
        usable = np.isfinite(residual) & np.isfinite(all_of).all(axis=1)
        w = np.where(usable, weight, 0.0).ravel()
        slopes = np.where(usable[:, None, :], (all_of[:, 1:, :] - all_of[:, :1, :]) / _STEP, 0.0)
        jacobian = slopes.transpose(1, 0, 2).reshape(len(NAMES), -1)
        hessian = inverse + (jacobian * w) @ jacobian.T
        move = np.linalg.solve(
            hessian, jacobian @ (w * np.where(usable, residual, 0.0).ravel()) + inverse @ (prior - x)
        )
        x = x + move * min(1.0, _LONGEST / max(float(np.abs(move).max()), 1e-12))
        if np.abs(move).max() < 1e-4:
            break
    return x, np.asarray(np.linalg.inv(hessian), float)


def _result(
    service: Service,
    kept: Sequence[LoadPoint],
    points: Sequence[LoadPoint],
    names: Sequence[str],
    seen: Array,
    before: Array,
    after: Array,
    found: CalibratedBeliefs,
) -> dict[str, object]:
    keys = {"throughput": "throughput_out_tokens_per_s", "tpot": "tpot_s", "ttft": "ttft_s"}
    rows: list[dict[str, object]] = []
    for i, point in enumerate(kept):
        row: dict[str, object] = {"load_kind": point.load_kind, "load": point.load, "source": point.source}
        for j, name in enumerate(names):
            factor = service.job.replicas if name == "throughput" else 1
            for word, values in (("measured", seen), ("before", before), ("after", after)):
                row[f"{keys[name]}_{word}"] = float(np.exp(values[j, i])) * factor
        rows.append(row)

    def errors(values: Array) -> dict[str, float | None]:
        off = np.abs(np.expm1(values - seen))
        return {
            name: float(np.median(off[j][np.isfinite(off[j])])) if np.isfinite(off[j]).any() else None
            for j, name in enumerate(names)
        }

    first, last = errors(before), errors(after)
    prior, posterior = service.belief, found.posterior()

    def shift(i: int) -> float:
        return abs(float(np.log(np.exp(found.median[i]) / np.exp(prior.median[i]))))

    moved: list[dict[str, object]] = [
        {"name": name, "meaning": MEANINGS[name], "prior": float(np.exp(prior.median[i])), "value": float(np.exp(found.median[i])),
         "log_spread_before": float(prior.spread[i]), "log_spread": float(posterior.spread[i])}
        for i, name in sorted(enumerate(NAMES), key=lambda item: -shift(item[0]))
        if abs(found.median[i] - prior.median[i]) > 0.01 or posterior.spread[i] < 0.95 * prior.spread[i]
    ]  # fmt: skip
    told = ", ".join(
        f"{name} from {100 * early:.0f} to {100 * late:.0f} %"
        for name in names
        if (early := first[name]) is not None and (late := last[name]) is not None
    )
    left = len(points) - len(kept)
    return {
        "answer": f"{len(kept)} measured loads: median error of {told}.",
        "points": rows,
        "error_before": first,
        "error_after": last,
        "coefficients": moved,
        "beliefs": to_mapping(found),
        "notes": [
            *service.job.notes,
            *([f"{left} loads left out: they state no load or nothing measured"] if left else []),
        ],
    }
