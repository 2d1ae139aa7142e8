"""The answer of `perfmodel diagnose`: how fast the run should be, what it may lose, and how to find out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.calibrate.parts import COVERS, Traced
from perfmodel.calibrate.traces import traced_parts
from perfmodel.decide.prediction import files_read, inputs_of
from perfmodel.diagnose.causes import CAUSES, Model
from perfmodel.diagnose.configured import Configured, configured
from perfmodel.diagnose.measured import Measured, measured_of
from perfmodel.diagnose.settings import Gain, gains
from perfmodel.diagnose.weighing import SLOWEST, STEP, Seen, Weighed, evidence, seen_of, tells_apart, weigh
from perfmodel.errors import SpecError, UsageError
from perfmodel.physics.parts import BY_NAME
from perfmodel.readings.accounts import account, rejections
from perfmodel.readings.accounts import notes as reader_notes
from perfmodel.results.envelope import Result, fingerprint
from perfmodel.specs.job import Job
from perfmodel.training.curve import Curve, curve
from perfmodel.training.given import ENDLESS_BYTES
from perfmodel.training.rules import Refusal
from perfmodel.training.setup import setup_of
from perfmodel.units import format_quantity

LIKELY = 0.02  # share of the odds, from which a cause is listed
BETTER = 2.0  # times the odds of nothing being wrong, that a listed cause has
CLEAR = 2.0  # times the odds of the second cause, from which the first is named alone
TELLING = 10.0  # times the odds of nothing being wrong: parts of a trace then speak even inside the band
WORTH = (
    0.05  # of the step: what a cause must cost to be told inside the band, or a setting in the first sentence
)
DRIFT = 0.05  # of the step, from the first third of a log to the last


def diagnose(
    config: Sequence[Path],
    log: Path | None = None,
    trace: Sequence[Path] = (),
    ranks: Path | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    beliefs: Beliefs | None = None,
    preset: str | None = None,
    pattern: str | None = None,
    specs: Sequence[Path] = (),
    seed: int = 0,
) -> Result:
    """Compare a run with what its configuration lets expect."""
    said = dict(overrides or {})
    known = beliefs or shipped_beliefs()
    seen = measured_of(log, trace, ranks, preset=preset, pattern=pattern)
    notes = list(seen.notes)
    job, how = _job_of(config, said, seen, specs, notes)
    result = judge(job, seen, known, how.place, seed=seed, notes=notes)
    files = {"config": config, "log": [log] if log else [], "trace": trace, "ranks": [ranks] if ranks else []}
    inputs = inputs_of(job, known) | files_read(
        beliefs, **{name: [fingerprint(path) for path in paths] for name, paths in files.items() if paths}
    )
    return Result("diagnosis", inputs, result, seed)


def judge(
    job: Job, seen: Measured, known: Beliefs, place: Callable[[str], str | None], *, seed: int = 0, notes: list[str] | None = None
) -> dict[str, object]:  # fmt: skip
    """The result for one job at its K and what was measured of it; `place` tells where a key of the job was stated."""
    notes = [] if notes is None else notes
    found = _expected(job, known, seed, notes)
    if job.layout == "auto":
        notes.append(
            "nobody says how the run was laid out: the fastest layout is taken, which may not be its own; state it with --layout"
        )
    model = Model.of(found)
    traced = _traced(job, seen, notes)
    measured = seen_of(
        found, model, known, seen.pace.step_s, seen.pace.error, traced, seen.slowest, seed=seed
    )
    weighed, nothing = weigh(model, CAUSES, measured)
    settings = gains(job, found, known, place)
    odds = np.exp(np.array([nothing, *(item.log_weight for item in weighed)]) - nothing)
    probability = odds / odds.sum()
    band = [float(end[0]) * model.time_s / float(found.time_s[0]) for end in (found.low_s, found.high_s)]
    verdict = _verdict(seen, model, band, weighed, odds, traced is not None)
    causes = _causes(weighed, probability, model, seen, measured) if verdict == "slow" else []
    result: dict[str, object] = {
        "verdict": verdict,
        "k": int(found.k[0]),
        "layout": found.names[0],
        "measured_s": seen.pace.step_s,
        "expected_s": model.time_s,
        "expected_s_low": band[0],
        "expected_s_high": band[1],
        "reaches": model.time_s / seen.pace.step_s,
        "steps": seen.pace.steps,
        "mean_s": seen.pace.mean_s,
        "late_share": seen.pace.late,
        "drift": seen.pace.drift,
        "parts": _parts(measured),
        "parts_s": {name: model.scale * float(part[0]) for name, part in model.step().parts.items()},
        "slowest_rank": None
        if seen.slowest is None
        else {"rank": seen.slowest_rank, "over_mean": seen.slowest, "share_of_steps": seen.slowest_share},
        "nothing_wrong": float(probability[0]),
        "causes": causes,
        "tells_apart": _apart(weighed, measured, model) if causes else None,
        "settings": settings,
        "readings": [account(one) for one in seen.readings],
        "rejected": rejections(seen.readings),
        "notes": [
            *notes,
            *_of_log(seen),
            *reader_notes(seen.readings),
            *(note for note in job.notes if not note.startswith("price:")),
        ],
    }
    told = _answer(verdict, seen.pace.step_s, model.time_s, band, causes, settings)
    return result | {"answer": told}


def _expected(job: Job, known: Beliefs, seed: int, notes: list[str]) -> Curve:
    """The curve at the K of the run; memory is not held against a run that took place."""
    setup = setup_of(job)
    found = curve(setup, known, draws=0, seed=seed)
    if found.feasible[0]:
        return found
    if found.refusals[0] == Refusal.MEMORY:
        device = setup.cluster.node.accelerator.model_copy(update={"memory": ENDLESS_BYTES})
        node = setup.cluster.node.model_copy(update={"accelerator": device})
        roomy = replace(setup, cluster=setup.cluster.model_copy(update={"node": node}))
        again = curve(roomy, known, draws=0, seed=seed)
        if again.feasible[0]:
            notes.append(
                f"the model holds that this does not fit: {found.reasons[0]}; the run took place all the same"
            )
            return again
    raise SpecError(
        f"the model holds that K = {int(found.k[0])} cannot run as configured: {found.reasons[0]}; "
        "state what the configuration leaves open (--layout, --set layout.micro_batch=1)"
    )


def _job_of(
    config: Sequence[Path], said: dict[str, object], seen: Measured, specs: Sequence[Path], notes: list[str]
) -> tuple[Job, Configured]:
    """The job at the K and batch of the run: a flag says, else the log, else the configuration."""
    if seen.k is not None:
        said.setdefault("k", str(seen.k))
    how = configured(config, said, specs)
    if len(how.job.k) != 1:
        raise UsageError(
            "neither the configuration nor the log says on how many accelerators it ran",
            code="U016",
            help="add -k",
        )
    batch = seen.global_batch
    job = how.job
    if batch is not None and "global_batch" not in said and job.regime != "weak":
        if how.says_batch and job.global_batch != int(batch):
            notes.append(
                f"the log has a global batch of {batch:g}, the configuration {job.global_batch}: the log's is taken"
            )
        if job.global_batch != int(batch):
            how = configured(config, said | {"global_batch": int(batch)}, specs)
            job = how.job
    elif not how.says_batch and batch is None:
        notes.append(
            f"nobody says the global batch: {job.global_batch} is taken; state it with --global-batch"
        )
    return job, how


def _traced(job: Job, seen: Measured, notes: list[str]) -> Traced | None:
    """The parts of a trace in the terms of the model, at the K of the run."""
    if seen.trace is None:
        return None
    workers = seen.trace.workers
    if workers is None:
        return traced_parts(job, replace(seen.trace, world=int(job.k[0])), seen.trace.path)
    if workers != job.k[0]:
        notes.append(
            f"the trace is of {workers} ranks, the run of {job.k[0]}: its parts are taken as shares of a step"
        )
    return traced_parts(job, seen.trace, seen.trace.path)


def _verdict(
    seen: Measured,
    model: Model,
    band: Sequence[float],
    weighed: Sequence[Weighed],
    odds: NDArray[np.float64],
    has_trace: bool,
) -> str:
    """fine, slow or fast: by the band, or inside it where a trace speaks for a cause that costs."""
    if seen.pace.step_s > band[1]:
        return "slow"
    if seen.pace.step_s < band[0]:
        return "fast"
    if has_trace or seen.slowest is not None:
        telling = (
            item
            for item, weight in zip(weighed, odds[1:], strict=True)
            if weight > TELLING and 1.0 - model.time_s / item.time_s > WORTH
        )
        if next(telling, None) is not None:
            return "slow"
    return "fine"


class CauseRow(TypedDict):
    """A cause worth telling, what speaks for it, and what mending it would give."""

    cause: str
    words: str
    amount: str | None
    severity: float | None
    probability: float
    explains_s: float
    gain: float
    after_s: float
    evidence: list[dict[str, object]]
    check: str


def _causes(
    weighed: Sequence[Weighed], probability: NDArray[np.float64], model: Model, seen: Measured, measured: Seen
) -> list[CauseRow]:
    """Causes worth telling, the likeliest first, with what speaks for each and what mending it would give."""
    rows: list[CauseRow] = []
    for item, share in zip(weighed, probability[1:], strict=True):
        gain = 1.0 - model.time_s / item.time_s
        if share < max(LIKELY, BETTER * probability[0]) or gain <= 0.0:
            continue
        cause = item.cause
        rows.append(
            {
                "cause": cause.name,
                "words": cause.words,
                "amount": cause.amount.format(item.severity) if item.severity is not None else None,
                "severity": item.severity,
                "probability": float(share),
                "explains_s": item.time_s,
                "gain": gain,
                "after_s": seen.pace.step_s * (1.0 - gain),
                "evidence": evidence(item, measured),
                "check": cause.check,
            }
        )
    return rows


def _parts(measured: Seen) -> list[dict[str, object]]:
    """Measured beside expected, by what a trace shows; the step alone without one."""
    words = {STEP: "the whole step", SLOWEST: "slowest rank over the mean"}
    return [
        {
            "part": name,
            "meaning": words.get(name) or COVERS[name].meaning,
            "measured": float(measured.value[i]),
            "expected": float(measured.expected[i]),
            "low": float(measured.low[i]),
            "high": float(measured.high[i]),
            "model_parts": [part for part in COVERS[name].parts if part in BY_NAME] if name in COVERS else [],
        }
        for i, name in enumerate(measured.names)
    ]


def _apart(weighed: Sequence[Weighed], measured: Seen, model: Model) -> dict[str, object] | None:
    """What would tell the two likeliest causes apart."""
    return tells_apart(weighed[0], weighed[1], measured, model.time_s) if len(weighed) > 1 else None


def _of_log(seen: Measured) -> list[str]:
    """What the log's own course says, whatever is expected."""
    pace, told = seen.pace, []
    if pace.drift is not None and abs(pace.drift) > DRIFT:
        told.append(
            f"steps became {abs(pace.drift):.0%} {'longer' if pace.drift > 0 else 'shorter'} from the first third of the log "
            f"to the last: {'heat, memory that fragments, or data that grows' if pace.drift > 0 else 'it may still have been warming up'}"
        )
    if pace.mean_s > (1.0 + DRIFT) * pace.step_s:
        told.append(
            f"the mean step is {pace.mean_s / pace.step_s - 1.0:.0%} longer than the median one, {pace.late:.0%} of steps last over "
            "1.5 times as long: checkpoints, evaluations or stalls, which come on top of what is diagnosed here"
        )
    if seen.slowest is not None and seen.slowest_share is not None and seen.slowest_share > 0.5:
        told.append(f"rank {seen.slowest_rank} is the slowest in {seen.slowest_share:.0%} of the steps")
    return told


def _likeliest(causes: Sequence[CauseRow]) -> str:
    """The cause, where one stands out; else those that measurements do not tell apart."""
    if not causes:
        return "no single cause that is known here explains it."
    first = causes[0]
    equal = [row for row in causes if CLEAR * row["probability"] > first["probability"]]
    if len(equal) == 1:
        about = f" ({first['amount']})" if first["amount"] else ""
        saved = f"mended, {first['gain']:.0%} of the step is saved"
        return f"most likely cause, at {first['probability']:.0%}: {first['words']}{about}; {saved}."
    named = [f"{row['words']} ({row['probability']:.0%})" for row in equal[:3]]
    more = f" or one of {len(equal) - 3} more" if len(equal) > 3 else ""
    return f"what was measured does not tell its cause: {', '.join(named)}{more}; see the checks."


def _answer(
    verdict: str,
    measured_s: float,
    expected_s: float,
    ends: Sequence[float],
    causes: Sequence[CauseRow],
    settings: Sequence[Gain],
) -> str:
    """One sentence, and one more where the configuration itself costs."""
    step, expected, low, high = (format_quantity(time, "s") for time in (measured_s, expected_s, *ends))
    reaches = f"{expected_s / measured_s:.0%}"
    band = f"{step} a step against {expected} ({low} to {high})"
    if verdict == "slow":
        text = f"The run reaches {reaches} of what this stack should: {band}; "
        text += _likeliest(causes)
    elif verdict == "fast":
        text = (
            f"The run is faster than its configuration lets expect: {band}. See that K, batch, sequence length and precision "
            "are those of this run; then calibrate with its log."
        )
    else:
        text = f"The run is fine: {band}, {reaches} of the expected pace and inside the band."
    best = next((row for row in settings if row["gain"] >= WORTH), None)
    if best is not None and verdict != "fast":
        where = f" ({best['stated_at']})" if best["stated_at"] else ""
        text += f" The configuration gives away {best['gain']:.0%} of the step: {best['change']}{where}."
    return text
