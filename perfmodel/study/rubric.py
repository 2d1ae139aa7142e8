"""`perfmodel study`: one pass over one table of timings gives the whole rubric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from perfmodel.decide import knee, metrics
from perfmodel.physics.fits import Choice, choose_law, fit_amdahl, fit_usl
from perfmodel.physics.laws import Array
from perfmodel.results.envelope import Result
from perfmodel.study import honesty, split, textbook, verdict
from perfmodel.study.bend import Bend, diagnose
from perfmodel.study.ingest import gather
from perfmodel.study.injection import inject_straggler
from perfmodel.study.money import Money, energy_json, price_runs, serving_json
from perfmodel.study.options import StudyOptions
from perfmodel.study.quality import Gate, quality_gate
from perfmodel.study.statistics import Points, summarise
from perfmodel.study.table import Timings
from perfmodel.study.workers import workers_of


def study_file(
    path: Path | str | Sequence[Path | str],
    options: StudyOptions | None = None,
    *,
    preset: str | None = None,
    pattern: str | None = None,
    job_name: str | None = None,
    power: Sequence[str] = (),
    interval_s: float | None = None,
    seed: int = 0,
) -> Result:
    """Study timings from a CSV file, training logs, Slurm accounting, traces, or folders of these.

    `job_name` takes the jobs of that name from Slurm's output. `power` names power logs (FILE or K=FILE) that give each run's energy; `interval_s` is for logs without times.
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    found = gather(
        paths, preset=preset, pattern=pattern, job_name=job_name, power=power, interval_s=interval_s
    )
    result = study(found.timings, options, seed=seed)
    read = found.as_json()
    told = {"notes": [*result.result["notes"], *found.notes]}
    return replace(result, result={**result.result, "workers": workers_of(found.readings), **read, **told})


def study(timings: Timings, options: StudyOptions | None = None, *, seed: int = 0) -> Result:
    """Study a table of timings; the result's mapping is the contract's `study.result`.

    Nothing in a study is random: the seed is only carried into the envelope.

    >>> from perfmodel.study.table import parse_timings
    >>> found = study(parse_timings("k,time_s\\n1,800\\n2,430\\n4,260\\n8,206\\n16,235\\n")).result
    >>> found["threshold"]["first_below_k"], found["fastest_k"], found["bend"]["cause"]
    (8, 8, 'communication')
    """
    options, told = _settled(options or StudyOptions(), timings)
    regime = options.settled_regime
    timings = textbook.per_worker(textbook.from_baseline(timings, options.baseline_k), options.price_per)
    points = summarise(timings, ci=options.ci, regime=regime)
    gate = quality_gate(points, options.quality_tolerance)
    money = price_runs(points, gate, options)
    judged = gate.kept(points)
    choice = choose_law(
        judged.k,
        judged.mean_s,
        std_s=judged.std_s,
        repeats=judged.repeats,
        regime=regime,
        baseline_k=float(judged.baseline_k),
    )
    bend, parted = diagnose(judged, choice, options.threshold)
    further = split.further_measurement(judged, choice, parted)
    clears = verdict.clearing_k(points, gate, options.threshold)
    recommended = clears if points.k.size > 1 and bend.named else None
    evidence = honesty.Evidence(timings, points, options, gate, money, bend)
    findings = honesty.examine(evidence)
    in_doubt = any(finding.code == honesty.LOOKS_WEAK for finding in findings)
    said = verdict.sentence(points, gate, money, bend, options, recommended, further)
    result: dict[str, object] = {
        **_curve(points),
        **_bill(money),
        "quality_by_k": points.columns.get("quality"),
        "gap": textbook.gap_to_ideal(points, judged),
        "parts_usd": textbook.part_dollars(points, money),
        "regimes": textbook.by_regime(points, gate, money, options.regimes, recommended),
        "fits": _fits(judged, choice, parted, bend, further),
        "quality": gate.as_json(),
        "threshold": _threshold(judged, options.threshold),
        "knee": _knees(judged, _climbed(points, gate, money), bend, options.threshold),
        "regime": regime,
        "regime_in_doubt": in_doubt,
        "baseline_k": points.baseline_k,
        "parts_s": points.parts_s,
        "parts_percent": {name: 100.0 * part / points.mean_s for name, part in points.parts_s.items()},
        "ledger_worker_s": _ledger(points, gate, parted),
        "energy_j": points.columns.get("energy_j"),
        "carbon_g": _carbon(points, options.carbon_g_per_j),
        "energy": energy_json(points, gate, money.work),
        "throughput": points.columns.get("throughput"),
        "latency_p99_s": points.columns.get("latency_p99_s"),
        "serving": serving_json(points, gate, options),
        "setup_s": points.columns.get("setup_s"),
        "bend": _bend(bend),
        "straggler": None
        if options.straggler is None
        else {
            **inject_straggler(points, options.straggler, options.threshold, options.ci),
            "slowest_of_repeats": textbook.slowest_of_repeats(timings, points, options.threshold),
        },
        "recommended_k": recommended,
        "cost_optimal_k": money.cost_optimal_k,
        "fastest_k": money.fastest_k,
        "exchange": None
        if money.exchange is None
        else {
            "times_the_cost": money.exchange.times_the_cost,
            "times_faster": money.exchange.times_faster,
        },
        "honesty": honesty.findings_json(findings),
        "checklist": honesty.checklist(evidence, findings),
        "verdict": verdict.doubted(said) if in_doubt else said,
        "notes": [] if told is None else [told],
    }
    inputs = {"file": timings.file, "rows": timings.rows, "sha256": timings.sha256, **options.as_inputs()}
    return Result("study", inputs, result, seed)


GROWS = 0.02  # by which the batch of a worker may differ between K of weak scaling


def _settled(options: StudyOptions, timings: Timings) -> tuple[StudyOptions, str | None]:
    """The options with the regime that the batches show, where nobody said one; and why, in words."""
    batch, k = timings.columns.get("global_batch"), timings.k
    if options.regime is not None or batch is None or np.isnan(batch).any() or np.unique(k).size < 2:
        return options, None
    each = batch / k
    if np.ptp(each) > GROWS * each.mean():
        return options, None
    told = f"the batch grows with K, {each.mean():g} for each worker: read as weak scaling"
    return replace(options, regime="weak"), told


def _carbon(points: Points, g_per_j: float | None) -> Array | None:
    """Grams of CO2-equivalent of a run: as the table has them, else its energy on the grid that was named."""
    energy, stated = points.columns.get("energy_j"), points.columns.get("carbon_g")
    if g_per_j is not None and energy is not None:
        return energy * g_per_j
    return stated


def _curve(points: Points) -> dict[str, object]:
    return {
        "k": points.k.astype(np.int64),
        "repeats": points.repeats,
        "mean_s": points.mean_s,
        "std_s": points.std_s,
        "ci95_s": points.ci95_s,
        "speedup": points.speedup,
        "speedup_ci95": points.speedup_ci95,
        "speedup_low": np.maximum(points.speedup - points.speedup_ci95, 0.0),
        "speedup_high": points.speedup + points.speedup_ci95,
        "efficiency": points.efficiency,
        "efficiency_ci95": points.efficiency_ci95,
    }


def _bill(money: Money) -> dict[str, object]:
    priced = money.basis is not None
    return {
        "cost_usd": money.cost_usd if priced else None,
        "cost_per_work": money.cost_per_work if priced else None,
        "work_per_usd": money.work_per_usd if priced else None,
        "cost_basis": money.basis,
        "work": money.work,
        "marginal": metrics.ladder_rows(money.ladder),
    }


def _threshold(points: Points, threshold: float) -> dict[str, object]:
    above = points.efficiency >= threshold - 1e-12
    below = np.flatnonzero(~above)
    held = np.flatnonzero(above)
    straddles = np.abs(points.efficiency - threshold) < np.nan_to_num(points.efficiency_ci95)
    return {
        "value": threshold,
        "first_below_k": int(points.k[below[0]]) if below.size else None,
        "last_at_or_above_k": int(points.k[held[-1]]) if held.size else None,
        "undecided_k": [int(k) for k in points.k[straddles]],
    }


def _climbed(points: Points, gate: Gate, money: Money) -> Array:
    """What each further point that passes costs; without a price the ladder is climbed in worker-seconds."""
    cost = money.equal_work_usd if money.basis is not None else points.k * points.mean_s / money.work
    return cost[gate.passed]


def _knees(points: Points, cost: Array, bend: Bend, threshold: float) -> dict[str, object]:
    """The three rules on the measured points."""
    found = (
        knee.threshold_knee(points.k, points.efficiency, threshold=threshold),
        knee.curvature_knee(points.k, points.speedup),
        knee.marginal_knee(points.k, points.speedup, cost),
    )
    beyond = f"not reached up to K = {int(points.k[-1])}"
    return {
        item.rule: {"k": int(item.k), "cause": bend.leading} if item.reached else {"k": None, "cause": beyond}
        for item in found
    }


def _fits(
    points: Points, choice: Choice, parted: split.Split | None, bend: Bend, further: str | None
) -> dict[str, object]:
    weak = points.regime == "weak"
    amdahl = fit_amdahl(points.k, points.speedup, baseline_k=points.baseline_k)
    usl = fit_usl(points.k, points.speedup, baseline_k=points.baseline_k)
    note = None
    if weak:
        note = "in the weak regime serial time is constant and leaves no trace: Gustafson's law applies"
    elif amdahl.at_bound:
        note = "the points are superlinear on the whole: the fitted serial fraction would be negative"
    at = int(np.flatnonzero(points.k == bend.at_k)[0])
    return {
        "amdahl": {
            "serial_fraction": None if weak else amdahl.serial_fraction,
            "stderr": None if weak else amdahl.stderr,
            "ceiling": None if weak else amdahl.ceiling,
            "k_at_efficiency_050": None if weak else amdahl.k_at_efficiency_050,
            "note": note,
        },
        "gustafson": _gustafson(points) if weak else None,
        "usl": {
            "sigma": usl.sigma,
            "sigma_stderr": usl.sigma_stderr,
            "kappa": usl.kappa,
            "kappa_stderr": usl.kappa_stderr,
            "k_peak": usl.k_peak,
        },
        "communication": _communication(choice),
        "choice": split.as_json(choice, points.baseline_k),
        "split": None
        if parted is None
        else {
            "source": parted.source,
            "at_k": bend.at_k,
            "shares": parted.shares(at),
            "shares_low": parted.low,
            "shares_high": parted.high,
            "separable": parted.separable,
        },
        "further_measurement": further,
    }


def _gustafson(points: Points) -> dict[str, object]:
    """Least squares through the origin on `1 - E = s (1 - 1/p)`."""
    x = 1.0 - 1.0 / points.relative
    y = 1.0 - points.efficiency
    square = float(x @ x)
    if square == 0.0:
        return {"serial_fraction": None, "stderr": None}
    s = float(x @ y) / square
    freedom = points.k.size - 2  # the baseline is pinned
    residual = float(np.sum((y - s * x) ** 2))
    return {
        "serial_fraction": min(max(s, 0.0), 1.0),
        "stderr": float(np.sqrt(residual / freedom / square)) if freedom > 0 else None,
    }


def _communication(choice: Choice) -> dict[str, object] | None:
    """The best law with a growing term: its seconds at K0's scale, with standard errors."""
    growing = [fit for fit in choice.fits if {"linear", "log2"} & set(fit.terms)]
    if not growing:
        return None
    fit = growing[0]
    term = "linear" if "linear" in fit.terms else "log2"
    one = fit.seconds["parallel"] + fit.seconds.get("serial", 0.0)
    return {
        "law": fit.law,
        "term": term,
        "growth": "seconds per further worker (K/K0 - 1)"
        if term == "linear"
        else "seconds per doubling (log2 K/K0)",
        "seconds": fit.seconds[term],
        "stderr_s": fit.stderr_s[term],
        "serial_fraction": fit.seconds["serial"] / one if "serial" in fit.seconds and one > 0 else None,
        "rms_relative": fit.rms_relative,
        "aicc": fit.aicc,
    }


def _ledger(points: Points, gate: Gate, parted: split.Split | None) -> dict[str, Array] | None:
    """Lost worker-seconds, K times the lost seconds: by part when there are parts, else by fitted cause."""
    if points.parts_s:
        return {name: points.k * (part - points.ideal_part_s(part)) for name, part in points.parts_s.items()}
    if parted is None:
        return None
    return {cause: points.k * gate.spread(lost) for cause, lost in parted.lost_s.items()}


def _bend(bend: Bend) -> dict[str, object]:
    return {
        "k": bend.k,
        "cause": bend.cause,
        "leading_loss": bend.leading,
        "close_behind": bend.second,
        "confidence": bend.confidence,
        "evidence": list(bend.evidence),
        "remedy": bend.remedy,
        "crossing_k": bend.crossing_k,
        "crossing_k_if_halved": bend.if_halved,
    }
