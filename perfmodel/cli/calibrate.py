"""`perfmodel calibrate JOB.yaml`: measurements become beliefs, with a fit report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import JobFile, check_targets, write_text
from perfmodel.cli.readings import (
    PatternOption,
    PowerIntervalOption,
    PowerOption,
    sampling_interval,
    say_rejected,
)
from perfmodel.cli.serving import calibrate_server
from perfmodel.errors import UsageError, did_you_mean


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("calibrate")(expanded(calibrate, without={"k"}))


@dataclass(frozen=True)
class FitFlags(ResultFlags):
    """Where a fit goes: its beliefs to a file, its report to the terminal all the same."""

    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the beliefs here, for --beliefs."),
    ] = None


def calibrate(
    job: JobFile = None,
    timings: Annotated[
        Path | None,
        typer.Option(
            "--timings", metavar="FILE", help="Step times by K: CSV, training log, sacct, or a folder."
        ),
    ] = None,
    nccl: Annotated[
        list[Path] | None,
        typer.Option("--nccl", metavar="FILE", help="nccl-tests, OSU or comm-benchmark log. Repeatable."),
    ] = None,
    nccl_ranks: Annotated[
        int | None,
        typer.Option(min=2, max=10_000_000, help="Ranks of a collective log that does not name them (OSU)."),
    ] = None,
    nccl_op: Annotated[
        str | None, typer.Option(help="Operation of a collective log that does not name it: all_reduce, ...")
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Trace of one run (Kineto, Nsight sqlite, Ray timeline), one per rank. Repeatable.",
        ),
    ] = None,
    ranks: Annotated[
        Path | None, typer.Option("--ranks", metavar="FILE", help="Step times of each rank.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset", help="Format of a training log: megatron, torchtitan, nemo, lightning, hf-trainer."
        ),
    ] = None,
    pattern: PatternOption = None,
    power: PowerOption = None,
    power_interval: PowerIntervalOption = None,
    *,
    flags: JobFlags,
    to: FitFlags,
) -> None:
    """Update the beliefs with measurements: step times, a collective log, traces, per-rank times, power logs."""
    if not (timings or nccl or trace or ranks or power):
        raise UsageError(
            "nothing to calibrate with",
            code="U016",
            help="give --timings, --nccl, --trace, --ranks or --power",
        )
    if not nccl and (nccl_ranks is not None or nccl_op is not None):
        raise UsageError("--nccl-ranks and --nccl-op describe a log: give it with --nccl", code="U016")
    from perfmodel.specs.jobs import serves

    if serves(job):
        refused: dict[str, object] = {
            "--nccl": nccl,
            "--trace": trace,
            "--ranks": ranks,
            "--preset": preset,
            "--power": power,
        }
        return calibrate_server(job, flags, refused, timings, to)
    found = flags.job(job)
    from perfmodel.calibrate.run import calibrate_job
    from perfmodel.readings.sweeps import OPS, canonical_op
    from perfmodel.study.table import parse_timings

    if nccl_op is not None and canonical_op(nccl_op) is None:
        raise UsageError(
            f'--nccl-op: unknown "{nccl_op}"{did_you_mean(nccl_op, OPS)}',
            code="U044",
            help=f"one of {', '.join(OPS)}",
        )

    result = calibrate_job(
        found,
        flags.known(),
        parse_timings,
        timings=timings,
        nccl=tuple(nccl or ()),
        nccl_ranks=nccl_ranks,
        nccl_op=None if nccl_op is None else canonical_op(nccl_op),
        traces=tuple(trace or ()),
        ranks=ranks,
        preset=preset,
        pattern=pattern,
        power=power or (),
        interval_s=sampling_interval(power_interval, power),
        seed=to.seed,
    )
    say_rejected(result, to.quiet)
    for warning in () if to.quiet else result.result["warnings"]:
        typer.echo(f"note: {warning}", err=True)
    check_targets(to.output, to.plot, to.report)
    if to.output is not None:
        write_text(to.output, result.to_json())
    replace(to, output=None).emit(result)
