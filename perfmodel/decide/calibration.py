"""`perfmodel calibrate`: read what was measured, condition the beliefs, and say what was learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.calibrate.job import Direct, calibrate
from perfmodel.calibrate.readers import read_collectives, read_ranks, read_timings, read_trace
from perfmodel.calibrate.readers.steps import TraceSummary
from perfmodel.calibrate.readers.sweeps import Sweep
from perfmodel.calibrate.readers.timings import Parser
from perfmodel.decide.prediction import inputs_of, setup_of
from perfmodel.errors import Problem, SpecError
from perfmodel.models.fabric import OWN_SHARD_COPY
from perfmodel.predict.beliefs import Beliefs, shipped_beliefs, to_mapping
from perfmodel.predict.curve import Setup
from perfmodel.results import Result
from perfmodel.specs.jobs import Job

SWEEP_SPREAD = 0.05  # of a link's rate read off a sweep: the same hardware by other hands differs by 2-3 %
LATENCY_SPREAD = 0.25  # the same for small messages
JITTER_SPREAD = 0.3
TRACE_SPREAD = 0.2  # of the exposed share read off a trace


def calibrate_job(
    job: Job,
    beliefs: Beliefs | None,
    parse: Parser,
    *,
    timings: Path | None = None,
    nccl: Path | None = None,
    traces: Sequence[Path] = (),
    ranks: Path | None = None,
    preset: str | None = None,
    seed: int = 0,
) -> Result:
    """Beliefs of one job given its measurements; `result.beliefs` is what `--beliefs` reads."""
    known = beliefs or shipped_beliefs()
    setup = setup_of(job)
    notes: list[str] = list(job.notes)
    direct: list[Direct] = []
    if nccl is not None:
        for sweep in read_collectives(nccl):
            direct += from_sweep(setup, sweep, nccl.name, notes)
    if ranks is not None:
        spread = float(np.std(read_ranks(ranks).jitter()))
        direct.append(Direct("jitter", max(spread, 1e-4), JITTER_SPREAD, ranks.name))
    if traces:
        summary = read_trace(list(traces))
        notes += trace_notes(summary)
        direct += from_trace(setup, summary, traces[0].name, notes)
    times = np.zeros(0)
    if timings is not None:
        setup, times = _timed(job, setup, timings, parse, preset, notes)
    updated, report = calibrate(setup, times, known, direct)
    doubted = [row["k"] for row in report["points"] if row["doubted"]]
    if doubted:
        notes.append(
            f"doubted, and given little weight: the measurement at K = {', '.join(map(str, doubted))}"
        )
    result: dict[str, Any] = {
        "answer": _answer(report),
        "mode": report["mode"],
        "points": report["points"],
        "coefficients": _coefficients(report["parameters"]),
        "direct": report["direct"],
        "notes": notes,
        "beliefs": to_mapping(updated),
    }
    return Result("calibration", inputs_of(job, known), result, seed)


def _timed(
    job: Job, setup: Setup, path: Path, parse: Parser, preset: str | None, notes: list[str]
) -> tuple[Setup, np.ndarray[Any, np.dtype[np.float64]]]:
    table = read_timings(path, parse, preset)
    k = table.k.astype(float)
    limit = setup.cluster.max_accelerators
    if limit is not None and k.max() > limit:
        raise SpecError(
            Problem(
                str(path),
                1,
                1,
                "R010",
                f"K={int(k.max())} was measured, but the cluster has {limit} accelerators",
            )
        )
    stated = np.isfinite(table.global_batch)
    if job.regime == "weak":
        batch = k * float(job.batch_per_accelerator or 1)
    else:
        batch = np.full_like(k, float(job.global_batch or 1))
    if stated.any():
        batch = np.where(stated, table.global_batch, batch)
        notes.append("batches are those of the timings file")
    return replace(setup, k=k, global_batch=batch), table.time_s


def from_sweep(setup: Setup, sweep: Sweep, source: str, notes: list[str]) -> list[Direct]:
    """Rate and latency of the link that an all-reduce, gather or scatter sweep ran over."""
    machine = setup.machine
    nodes = float(sweep.nodes or max(1.0, np.ceil(sweep.ranks / float(machine.node))))
    if sweep.op not in ("all_reduce", "all_gather", "reduce_scatter") or sweep.ranks < 2:
        notes.append(f"{source}: a sweep of {sweep.op} among {sweep.ranks} ranks informs no belief")
        return []
    n, size, seconds = float(sweep.ranks), float(sweep.bytes[-1]), float(sweep.time_s[-1])
    rounds = 2.0 if sweep.op == "all_reduce" else 1.0
    found: list[Direct] = []
    if nodes > 1:
        share = (
            rounds * (1.0 - 1.0 / n)
            if sweep.op != "all_reduce"
            else min(2.0 - 2.0 / n, min(2.0, 0.5 * nodes))
        )
        rate = size * share / seconds / (n / nodes)
        link = float(machine.out_bytes_per_s / machine.taper(np.asarray(nodes)))
        found.append(Direct("out_efficiency", rate / link, SWEEP_SPREAD, source))
    else:
        share = rounds * (1.0 - 1.0 / n) + OWN_SHARD_COPY / n
        if float(machine.in_switch) > 0 and sweep.op == "all_reduce" and n > 4:
            notes.append(
                f"{source}: the switch reduces, so the all-reduce sweep does not tell the ring's rate; an all-gather sweep does"
            )
        else:
            ranks = np.asarray(n)
            link = float(machine.up_bytes_per_s * machine.share(ranks, np.ones(()), ranks))
            found.append(
                Direct(
                    "up_efficiency",
                    size * share / seconds / link,
                    SWEEP_SPREAD,
                    source,
                )
            )
    small = float(sweep.time_s[0])
    if float(sweep.bytes[0]) <= 65536 and nodes == 1:
        found.append(Direct("base_s", small, LATENCY_SPREAD, source))
    return found


def from_trace(setup: Setup, summary: TraceSummary, source: str, notes: list[str]) -> list[Direct]:
    """Exposed share of the gradient exchange, from a trace of a data-parallel run."""
    hidden = summary.hidden_fraction()
    if hidden is None:
        return []
    if setup.layout is not None and setup.layout.model_parallel > 1:
        notes.append(f"{source}: tensor, pipeline and context traffic are mixed in it; no belief is informed")
        return []
    workers = max(rank.rank for rank in summary.ranks) + 1
    name = "dp_exposed" if workers <= float(setup.machine.node) else "net_exposed"
    return [Direct(name, float(np.clip(1.0 - hidden, 0.01, 1.0)), TRACE_SPREAD, source)]


def trace_notes(summary: TraceSummary) -> list[str]:
    """What a trace shows, in words; its step time belongs into --timings."""
    parts = summary.parts_s()
    total = sum(parts.values())
    shares = ", ".join(
        f"{name.replace('_', ' ')} {value / total:.0%}" for name, value in parts.items() if total > 0
    )
    hidden = summary.hidden_fraction()
    words = [f"trace: a step of {float(np.mean(summary.step_s())):.4g} s: {shares}"]
    if hidden is not None:
        words.append(f"trace: {hidden:.0%} of the communication ran under compute")
    return words


def _coefficients(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for the report: the factor on the prior's median, before and after."""
    return [
        {
            "name": row["name"],
            "prior": 1.0,
            "value": float(f"{row['factor']:.4g}"),
            "low": float(f"{row['factor'] * np.exp(-1.645 * row['spread_after']):.4g}"),
            "high": float(f"{row['factor'] * np.exp(1.645 * row['spread_after']):.4g}"),
            "status": row["status"],
            "source": row["meaning"],
        }
        for row in rows
        if row["status"] != "unidentified"
    ]


def _answer(report: dict[str, Any]) -> str:
    rows = report["parameters"]
    counts = {
        status: sum(row["status"] == status for row in rows)
        for status in ("fitted", "at a bound", "in conflict with the prior", "unidentified")
    }
    words = f"{counts['fitted']} of {len(rows)} beliefs were informed, {counts['unidentified']} were not"
    if counts["at a bound"]:
        words += f", {counts['at a bound']} ended at a bound"
    if counts["in conflict with the prior"]:
        words += f", {counts['in conflict with the prior']} contradict the prior"
    if report["points"]:
        worst = max(abs(row["residual"]) for row in report["points"])
        words += f". The fit is within {worst:.1%} of the {len(report['points'])} measured points"
    return words + "."
