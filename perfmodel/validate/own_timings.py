"""`perfmodel validate JOB.yaml --timings FILE`: one's own runs against the prediction that has not seen them.

The prediction is that of `predict` with its own defaults, at the K and batch of each run. The laws beside it are fitted to
the runs at the two smallest K, so only the points beyond those compare them fairly. Where the prediction is off, the
advice names what the job leaves to defaults, and the coefficients that would explain the errors with the least movement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.decide.facts import foreign, unmeasured
from perfmodel.decide.prediction import inputs_of
from perfmodel.errors import Problem, SpecError
from perfmodel.physics.coefficients import MEANINGS, NAMES
from perfmodel.readings.timings import group_by_k
from perfmodel.results.envelope import Result
from perfmodel.specs.jobs import Job
from perfmodel.study.table import read_timings
from perfmodel.training.curve import Curve, curve
from perfmodel.training.setup import setup_of
from perfmodel.validate import baselines

Array = NDArray[np.float64]

CLOSE: Final = 0.05  # median error below which there is nothing to declare
MOST_ADVICE: Final = 3  # coefficients named
LEAST_EXPLAINED: Final = 0.3  # of the squared errors, for a coefficient to be named
WHOLE_RUN: Final = 30.0  # times the prediction from which the times look like those of whole runs
POINT_NOISE: Final = 0.03  # log spread of one measured time
LAW_POINTS: Final = 2  # different K that the laws are fitted to

# What a user can state or measure where a coefficient is the likeliest reason.
_DECLARE: Final = {
    "matmul": "time a matrix product with `perfmodel measure` and state matmul_fraction of the accelerator",
    "memory": "time memory with `perfmodel measure` and state memory_fraction of the accelerator",
    "up_efficiency": "run nccl-tests in one node and calibrate with --nccl",
    "up_step_s": "run nccl-tests in one node and calibrate with --nccl",
    "base_s": "run nccl-tests and calibrate with --nccl",
    "out_efficiency": "run nccl-tests across nodes and calibrate with --nccl; check nics_per_node",
    "out_step_s": "run nccl-tests across nodes and calibrate with --nccl; check nics_per_node",
    "jitter": "declare jitter: {spread: ...}, from the step times of each rank (calibrate --ranks)",
    "host_kernel_s": "declare the framework, and whether the step is compiled or captured",
    "step_s": "declare stalls and serial_time: logging, evaluation, the data pipeline",
    "micro_s": "declare layout.micro_batch, and the framework",
    "input_s": "declare input: {loader: ..., storage: ...}",
    "recompute": "declare layout.recompute",
    "dp_exposed": "declare bucket, gradient_dtype, or trace one step (calibrate --trace)",
    "net_exposed": "declare bucket, gradient_dtype, or trace one step (calibrate --trace)",
    "dp_overlap": "trace one step (calibrate --trace)",
    "bubble": "declare layout.schedule and vpp",
    "interleave": "declare layout.vpp",
    "optimizer": "declare layout.sharding",
}
_USUAL: Final = "calibrate with these timings: `perfmodel calibrate JOB --timings FILE -o beliefs.json`"


def validate_job(job: Job, timings: Path, beliefs: Beliefs | None = None, *, seed: int = 0) -> Result:
    """Error and band by K, the laws, and what to declare."""
    known = beliefs or shipped_beliefs()
    found = read_timings(timings)
    table = group_by_k(found, written=True)
    k, measured = table.k.astype(float), table.time_s
    setup = setup_of(job)
    batch = np.where(np.isfinite(table.global_batch), table.global_batch, _batch(job, k))
    made = curve(replace(setup, k=k, global_batch=batch), known, draws=0, seed=seed)
    good = made.feasible
    if not good.any():
        reason = next((reason for reason in made.reasons if reason), "nothing fits")
        raise SpecError(
            Problem(
                str(timings),
                code="D008",
                message=f"the job runs at none of these K: {reason}",
                help="check the layout",
            )
        )
    predicted = made.time_s
    error = predicted / measured - 1.0
    in_band = (made.low_s <= measured) & (measured <= made.high_s)
    beyond, laws = _laws(k, measured, batch, good)
    if beyond is not None:
        rows = np.isin(k, beyond["k"]) & good
        beyond["median_ape"] = float(np.median(np.abs(error[rows])))
    scores = _scores(error[good], in_band[good])
    advice = _advice(
        job, known, made, measured, scores["median_ape"], bool(np.isfinite(table.global_batch).all())
    )
    result: dict[str, object] = {
        "k": k.astype(int),
        "global_batch": batch,
        "repeats": table.repeats,
        "measured_s": measured,
        "predicted_s": predicted,
        "low_s": made.low_s,
        "high_s": made.high_s,
        "error": error,
        "in_band": [bool(b) if ok else None for b, ok in zip(in_band, good, strict=True)],
        "reason": list(made.reasons),
        "layout": [name if ok else None for name, ok in zip(made.names, good, strict=True)],
        **scores,
        "beyond": beyond,
        "laws": laws,
        "advice": advice,
    }
    result["answer"] = _sentence(scores, in_band & good, beyond, laws, good)
    result["notes"] = [
        *foreign(job, known),
        *unmeasured(job, known),
        *(
            note
            for note in job.notes
            if not note.startswith("price")
            and not ("batch" in note and np.isfinite(table.global_batch).all())
        ),
        *(
            []
            if beyond is not None
            else ["Laws need runs at three different K: two to be fitted to, one to be scored at."]
        ),
    ]
    return Result("timings", {**inputs_of(job, known), "timings": found.sha256}, result, seed)


def _batch(job: Job, k: Array) -> Array:
    if job.regime == "weak":
        return k * float(job.batch_per_accelerator or 1)
    return np.full_like(k, float(job.global_batch or 1))


def _scores(error: Array, in_band: NDArray[np.bool_]) -> dict[str, float]:
    size = np.abs(error)
    return {
        "points": int(size.size),
        "median_ape": float(np.median(size)),
        "mean_ape": float(size.mean()),
        "bias": float(np.median(error)),
        "coverage_90": float(in_band.mean()),
    }


class Beyond(TypedDict, total=False):
    """The K at which laws are scored, those through which they go, and the error of the prediction there."""

    k: list[int]
    fitted_to: list[int]
    median_ape: float


class LawError(TypedDict):
    """A law through the smallest K, and its errors beyond."""

    predicted_s: Array
    median_ape: float
    mean_ape: float


def _laws(
    k: Array, measured: Array, batch: Array, good: NDArray[np.bool_]
) -> tuple[Beyond | None, dict[str, LawError]]:
    """Each law through the two smallest K, scored beyond them."""
    if k.size <= LAW_POINTS:
        return None, {}
    tau = k * measured / batch
    seen = np.arange(k.size) < LAW_POINTS
    rows = ~seen & good
    if not rows.any():
        return None, {}
    found: dict[str, LawError] = {}
    for name in baselines.NAMES:
        time = baselines.predict(name, k[seen], tau[seen], k) * batch / k
        ape = np.abs(time[rows] / measured[rows] - 1.0)
        found[name] = {
            "predicted_s": time,
            "median_ape": float(np.median(ape)),
            "mean_ape": float(ape.mean()),
        }
    return {"k": k[rows].astype(int).tolist(), "fitted_to": k[seen].astype(int).tolist()}, found


def _advice(
    job: Job, beliefs: Beliefs, made: Curve, measured: Array, median: float, batches_given: bool
) -> list[dict[str, object]]:
    """What to look at first: the kind of time, the defaults, then the coefficients."""
    good = made.feasible
    if median <= CLOSE:
        return []
    found: list[dict[str, object]] = []
    ratio = float(np.median(measured[good] / made.time_s[good]))
    if ratio > WHOLE_RUN or ratio < 1.0 / WHOLE_RUN:
        steps = f", and the job states {job.steps} steps" if job.steps else ""
        found.append(
            {
                "about": "time_s",
                "what": f"the times are {ratio:.3g} times the prediction{steps}: time_s must be that of one optimizer step",
                "explains": None,
            }
        )
    found += [
        {"about": word, "what": f"declare {word}: {note}", "explains": None}
        for word, note in open_keys(job, batches_given)
    ]
    found += _suspects(beliefs, made, measured)
    return [*found, {"about": "calibration", "what": _USUAL, "explains": None}]


def open_keys(job: Job, batches_given: bool) -> list[tuple[str, str]]:
    """Keys that the job leaves open, with what was taken."""
    open_: list[tuple[str, str]] = []
    for note in job.notes:
        word = note.partition(" ")[0]
        if "is a default" in note and not (batches_given and "batch" in word):
            open_.append((word, note))
    if job.layout == "auto":
        open_.append(("layout", "layout auto takes the fastest that fits, and the runs may have had another"))
    elif (
        job.layout.recompute in (None, "none")
        and job.is_transformer
        and "recompute" not in job.layout.model_fields_set
    ):
        open_.append(("layout.recompute", "nobody said what is recomputed in the backward pass"))
    if job.is_transformer and job.stack is None:
        open_.append(("stack", "nobody said which attention kernel runs, nor whether the model is compiled"))
    return open_


def _suspects(beliefs: Beliefs, made: Curve, measured: Array) -> list[dict[str, object]]:
    """Coefficients that explain the errors when they alone move, the likeliest first.

    With r the log errors and J the slopes of one coefficient, it moves by ``x = J.r / (J.J + n/s^2)`` of the log, s being
    the spread of its belief with that between jobs, and n the log variance of a point; it explains the share
    of r.r that vanishes.
    """
    good = made.feasible
    r = np.log(measured[good] / made.time_s[good])
    total = float(r @ r)
    if total <= 0.0:
        return []
    rows = []
    for i, name in enumerate(NAMES):
        slope = made.jacobian[i][good]
        spread = float(np.sqrt(made.belief.spread[i] ** 2 + beliefs.scatter[i]))
        if spread <= 0.0 or not np.any(np.abs(slope) > 1e-3):
            continue
        move = float(slope @ r) / (float(slope @ slope) + POINT_NOISE**2 / spread**2)
        left = r - slope * move
        explained = 1.0 - float(left @ left) / total
        rows.append((explained - 0.05 * abs(move) / spread, explained, move, name))
    rows.sort(reverse=True)
    return [
        {
            "about": name,
            "what": f"{MEANINGS[name]}: {np.exp(move):.2f} times the belief would explain {explained:.0%} of the error"
            + (f"; {_DECLARE[name]}" if name in _DECLARE else ""),
            "explains": explained,
        }
        for _, explained, move, name in rows[:MOST_ADVICE]
        if explained >= LEAST_EXPLAINED
    ]


def _sentence(
    scores: Mapping[str, float],
    held: NDArray[np.bool_],
    beyond: Beyond | None,
    laws: Mapping[str, LawError],
    good: NDArray[np.bool_],
) -> str:
    inside = int(held.sum())
    text = (
        f"Median error {scores['median_ape']:.1%} over {scores['points']} K ({inside} inside the 90 % band)"
    )
    side = "slow" if scores["bias"] > 0 else "fast"
    text += f", on the median {abs(scores['bias']):.1%} too {side}." if abs(scores["bias"]) >= 0.005 else "."
    if (~good).any():
        text += f" At {int((~good).sum())} K the job does not run."
    if beyond is not None and laws:
        best = min(laws, key=lambda name: laws[name]["median_ape"])
        text += (
            f" Beyond K = {beyond['fitted_to'][-1]} the prediction is off by {beyond['median_ape']:.1%}; the best law through "
            f"the first two K, {best.replace('_', ' ')}, by {laws[best]['median_ape']:.1%}."
        )
    return text
