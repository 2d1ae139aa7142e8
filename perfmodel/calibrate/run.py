"""`perfmodel calibrate`: read what was measured, condition the beliefs, and say what was learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.bands import NINETY
from perfmodel.beliefs.population import Beliefs, shipped_beliefs, to_mapping
from perfmodel.calibrate.job import Direct, FittedPoint, Moved, Report, calibrate
from perfmodel.calibrate.parts import Traced
from perfmodel.calibrate.sweeps import informed, refuse_foreign, sweeps_json
from perfmodel.calibrate.timed import far_slower, refuse_faster_than_peak, timed
from perfmodel.calibrate.traces import (
    Drawn,
    jitter_of_ranks,
    power_from_draws,
    trace_notes,
    traced_exposure,
    traced_jitter,
    traced_parts,
)
from perfmodel.decide.facts import calibrated_on
from perfmodel.decide.prediction import files_read, inputs_of, key_refused
from perfmodel.errors import Problem, SpecError
from perfmodel.readings import read_collectives, read_draws, read_ranks, read_timings, read_trace
from perfmodel.readings.accounts import account, rejections
from perfmodel.readings.accounts import notes as reader_notes
from perfmodel.readings.power_draw import Draw, power_argument
from perfmodel.readings.source import Reading
from perfmodel.readings.sweeps import Sweep
from perfmodel.readings.timings import Parser
from perfmodel.results.envelope import Result, fingerprint
from perfmodel.specs.jobs import Job
from perfmodel.specs.layout import layout_words
from perfmodel.training.rules import REASONS, Refusal
from perfmodel.training.search import search
from perfmodel.training.setup import Setup, setup_of
from perfmodel.units import counted

Array = NDArray[np.float64]

MOVED = 0.002  # of the step, from which a coefficient that moved it is shown, however little was learnt of it


def calibrate_job(
    job: Job,
    beliefs: Beliefs | None,
    parse: Parser,
    *,
    timings: Path | None = None,
    nccl: Sequence[Path] = (),
    nccl_ranks: int | None = None,
    nccl_op: str | None = None,
    traces: Sequence[Path] = (),
    ranks: Path | None = None,
    power: Sequence[str] = (),
    interval_s: float | None = None,
    preset: str | None = None,
    pattern: str | None = None,
    seed: int = 0,
) -> Result:
    """Beliefs of one job given its measurements; `result.beliefs` is what `--beliefs` reads.

    `nccl_ranks` and `nccl_op` are for collective logs that name neither. `power` names power logs (FILE or K=FILE);
    `interval_s` is for those without times. Power alone is added to a calibration that the beliefs already hold; anything
    else takes its place.
    """
    known = beliefs or shipped_beliefs()
    setup, times = setup_of(job), np.zeros(0)
    notes: list[str] = list(job.notes)
    readings: list[Reading] = []
    direct: list[Direct] = []
    traced: Traced | None = None
    swept: list[Sweep] = []
    families: list[dict[str, object]] = []
    for log in nccl:
        of_log = read_collectives(log, op=nccl_op, ranks=nccl_ranks, readings=readings)
        refuse_foreign(job, setup.machine, of_log, log)
        swept += of_log
        for sweep in of_log:
            direct += informed(setup, known, sweep, log.name, notes)
    if ranks is not None:
        times_of_ranks = read_ranks(ranks)
        readings.append(times_of_ranks)
        learnt, families, remarks = jitter_of_ranks(times_of_ranks, ranks.name, seed)
        direct += learnt
        notes += remarks
    if traces:
        summary = read_trace(list(traces), readings=readings)
        notes += trace_notes(summary)
        traced = traced_parts(job, summary, traces[0].name)
        notes += refuse_unrunnable(job, traced.place(setup), traces[0])
        direct += traced_exposure(job, setup, summary, traces[0].name, notes)
        if ranks is None:
            direct += traced_jitter(summary, traces[0].name)
    if timings is not None:
        table = read_timings(timings, parse, preset, pattern=pattern, readings=readings)
        setup, times = timed(job, setup, timings, table, notes)
        notes += refuse_unrunnable(job, setup, timings)
        refuse_faster_than_peak(job, timings, table)
    draws = read_draws(power, interval_s=interval_s, readings=readings)
    notes += reader_notes(readings)

    updated, report = _updated(job, setup, times, known, direct, traced, notes)
    # For a workload that states no work the prediction before the fit means nothing.
    warnings = far_slower(job, timings, report["points"]) if timings is not None and setup.states_work else []
    if job.layout == "auto":
        notes += _layouts_assumed(report)
    drawn: list[Drawn] = []
    if draws:
        updated, drawn = _with_power(job, updated, draws, notes)
    notes += _doubted(report["points"])

    result: dict[str, object] = {
        "answer": _answer(report, drawn),
        "mode": report["mode"],
        "points": report["points"],
        "coefficients": _coefficients(report["parameters"]),
        "unidentified": [row["name"] for row in report["parameters"] if row["status"] == "unidentified"],
        "direct": report["direct"],
        "trace": report["trace"],
        "jitter": families,
        "power": drawn,
        **sweeps_json(swept, setup.machine),
        "readings": [account(reading) for reading in readings],
        "rejected": rejections(readings),
        "notes": notes,
        "warnings": warnings,
        "beliefs": to_mapping(updated),
    }
    measured = _files(timings=timings, nccl=nccl, trace=traces, ranks=ranks, power=power)
    read_as = {
        "nccl_ranks": nccl_ranks, "nccl_op": nccl_op, "preset": preset, "pattern": pattern, "power_interval_s": interval_s,
    }  # fmt: skip
    inputs = inputs_of(job, known) | files_read(known, **measured)
    inputs |= {key: value for key, value in read_as.items() if value is not None}
    return Result("calibration", inputs, result, seed)


def _updated(
    job: Job,
    setup: Setup,
    times: Array,
    known: Beliefs,
    direct: Sequence[Direct],
    traced: Traced | None,
    notes: list[str],
) -> tuple[Beliefs, Report]:
    """Beliefs given everything but power, and the report of the fit; a calibration that is given nothing new stays."""
    new = bool(direct or traced is not None or times.size)
    if known.calibration is not None:
        if not new:
            return known, {
                "points": [],
                "parameters": [],
                "direct": [],
                "trace": [],
                "trace_layout": None,
                "mode": "power",
            }
        notes.append("the calibration that the given beliefs held is replaced")
    told = {item.name for item in direct}
    declared = [
        Direct(item.coefficient, item.value, item.spread, item.source)
        for item in setup.measured
        if item.coefficient not in told
    ]
    updated, report = calibrate(setup, times, known, [*direct, *declared], traced)
    if new:
        updated = replace(updated, meta={**updated.meta, "calibrated_on": calibrated_on(job)})
    return updated, report


def _files(
    *, power: Sequence[str], trace: Sequence[Path], nccl: Sequence[Path], **single: Path | None
) -> dict[str, dict[str, object] | list[dict[str, object]]]:
    """Fingerprints of what was measured, by option; a list where an option may be given many times."""
    found: dict[str, dict[str, object] | list[dict[str, object]]] = {
        option: dict(fingerprint(path)) for option, path in single.items() if path is not None
    }
    for option, paths in (("nccl", nccl), ("trace", trace)):
        if paths:
            found[option] = [dict(fingerprint(path)) for path in paths]
    if power:
        named = [power_argument(text) for text in power]
        found["power"] = [fingerprint(path) | ({} if k is None else {"k": k}) for k, path in named]
    return found


def _with_power(
    job: Job, beliefs: Beliefs, draws: Sequence[Draw], notes: list[str]
) -> tuple[Beliefs, list[Drawn]]:
    """Beliefs that hold what the power logs say, and a row for each K."""
    power, rows = power_from_draws(job, beliefs, draws)
    notes += [f"{draw.source}: {note}" for draw in draws for note in draw.notes]
    if beliefs.calibration is None:
        raise ValueError("power is added to a calibration")
    return beliefs.calibrated(replace(beliefs.calibration, power=power)), rows


def refuse_unrunnable(job: Job, setup: Setup, path: Path) -> list[str]:
    """Raise a SpecError where arithmetic forbids what `path` measured; a note where only memory does.

    How much memory a run needs is a model's opinion, and a run that ended knows better.
    """
    refusals = search(setup).refusal
    impossible = [Refusal(int(code)) for code in refusals if code not in (Refusal.NONE, Refusal.MEMORY)]
    if impossible:
        first = impossible[0]
        measured = f"{path.name} has a run at {_in_words(setup, refusals == first, batch=first in (Refusal.BATCH, Refusal.MICRO_BATCHES))}"
        if job.layout == "auto":
            message, hint = f"{measured}, where {REASONS[first]}", "give the layout of the runs with --layout"
            raise SpecError(Problem(str(path), 1, 1, "R010", message, hint))
        key = key_refused(job.layout, first)
        raise job.error_at(
            f"layout.{key}" if key else "layout",
            "S010",
            f"{measured}, where the layout is impossible: {REASONS[first]}",
        )
    if not (refusals == Refusal.MEMORY).any():
        return []
    where = _in_words(setup, refusals == Refusal.MEMORY)
    if job.layout == "auto":
        return [
            f"{path.name}: no layout that was tried fits in memory at {where}: give that of the runs with --layout"
        ]
    return [
        f"{path.name}: by the model's account the layout does not fit in memory at {where}, yet it ran: see --layout"
    ]


def _in_words(setup: Setup, where: NDArray[np.bool_], *, batch: bool = False) -> str:
    """The K, and where it matters the batches, of some points of a set-up."""
    words = f"K = {', '.join(f'{k:.0f}' for k in setup.k[where])}"
    return f"{words} (batch {', '.join(f'{b:g}' for b in setup.global_batch[where])})" if batch else words


def _coefficients(rows: Sequence[Moved]) -> list[dict[str, object]]:
    """Rows for the report, what moved the step most first: the factor on the prior's median, before and after."""
    shown = [row for row in rows if row["status"] != "unidentified" or abs(row["step_change"]) >= MOVED]
    return [
        {
            "name": row["name"],
            "prior": 1.0,
            "value": float(f"{row['factor']:.4g}"),
            "low": float(f"{row['factor'] * np.exp(-NINETY * row['spread_after']):.4g}"),
            "high": float(f"{row['factor'] * np.exp(NINETY * row['spread_after']):.4g}"),
            "step_change": float(f"{row['step_change']:.4g}"),
            "status": row["status"],
            "source": row["meaning"],
        }
        for row in sorted(shown, key=lambda row: -abs(row["step_change"]))
    ]


def _layouts_assumed(report: Report) -> list[str]:
    """Which layouts the fit took the runs to have, where nobody gave one; K with the same layout together."""
    notes = []
    if report["trace_layout"] is not None:
        words = layout_words(report["trace_layout"])
        notes.append(f"the trace was read as a run with the layout {words}: give its own with --layout")
    by_layout: dict[str, list[str]] = {}
    for row in report["points"]:
        by_layout.setdefault(layout_words(row["layout"]), []).append(str(row["k"]))
    if by_layout:
        assumed = "; ".join(f"K = {', '.join(k)}: {words}" for words, k in by_layout.items())
        notes.append(
            f"nobody gave the layout of the measured runs: the fit assumes what the search chose, {assumed}; "
            "state what ran with --layout"
        )
    return notes


def _doubted(points: Sequence[FittedPoint]) -> list[str]:
    """A note where the fit took measurements to be no clean runs."""
    doubted = [str(row["k"]) for row in points if row["doubted"]]
    if not doubted:
        return []
    return [
        f"doubted, and given little weight: the measurement at K = {', '.join(doubted)}; predictions "
        "may pass them by, bands included: time them again, or leave out what was no clean run"
    ]


def _answer(report: Report, drawn: Sequence[Drawn]) -> str:
    power = ""
    if drawn:
        power = "Power: " + ", ".join(
            f"K = {row['k']} draws {row['measured_w']:.0f} W per accelerator ({row['before_w']:.0f} W was expected)"
            for row in drawn
        )
    rows = report["parameters"]
    if not rows:
        return power + "."
    counts = {
        status: sum(row["status"] == status for row in rows)
        for status in ("fitted", "at a bound", "in conflict with the prior", "unidentified")
    }
    moved = len(rows) - counts["unidentified"]
    words = f"{moved} of {len(rows)} beliefs {'was' if moved == 1 else 'were'} informed, {counts['unidentified']} were not"
    if counts["at a bound"]:
        words += f"; {counts['at a bound']} ended at a bound"
    if counts["in conflict with the prior"]:
        words += f"; {counted(counts['in conflict with the prior'], 'contradicts', 'contradict')} the prior"
    if report["points"]:
        top = max(rows, key=lambda row: abs(row["step_change"]))
        fitted, before = (
            np.array([row[key] for row in report["points"]]) for key in ("fitted_s", "before_s")
        )
        shift = float(np.exp(np.log(fitted / before).mean())) - 1.0
        words += f". The step moved by {shift:+.1%}"
        if abs(top["step_change"]) >= MOVED:
            words += f", most of all by {top['name']} ({top['step_change']:+.1%}: {top['meaning']})"
        worst = max(abs(row["residual"]) for row in report["points"])
        count = len(report["points"])
        words += f". The fit is within {worst:.1%} of the {count} measured point{'s' if count > 1 else ''}"
    used = sum(row["spread"] is not None for row in report["trace"])
    if report["trace"]:
        words += f". {used} of {len(report['trace'])} numbers of the trace were used"
    return words + "." + (f" {power}." if power else "")
