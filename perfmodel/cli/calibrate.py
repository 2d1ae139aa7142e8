"""`perfmodel calibrate JOB.yaml`: measurements become beliefs, with a fit report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.options import (
    BeliefsOption,
    ClusterOption,
    FormatOption,
    GlobalBatchOption,
    JobFile,
    LayoutOption,
    NoColorOption,
    PlotOption,
    PrecisionOption,
    QuietOption,
    RegimeOption,
    ReportOption,
    SeedOption,
    SeqLenOption,
    SetOption,
    SpecsOption,
    WorkloadOption,
    check_targets,
    emit,
    job_from_options,
    load_beliefs,
    write_text,
)
from perfmodel.cli.readings import (
    PatternOption,
    PowerIntervalOption,
    PowerOption,
    sampling_interval,
    say_rejected,
)
from perfmodel.errors import UsageError, did_you_mean


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("calibrate")(calibrate)


def calibrate(
    job: JobFile = None,
    timings: Annotated[
        Path | None,
        typer.Option(
            "--timings", metavar="FILE", help="Step times by K: CSV, training log, sacct, or a folder."
        ),
    ] = None,
    nccl: Annotated[
        Path | None, typer.Option("--nccl", metavar="FILE", help="nccl-tests, OSU or comm-benchmark log.")
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
    workload: WorkloadOption = None,
    cluster: ClusterOption = None,
    regime: RegimeOption = None,
    global_batch: GlobalBatchOption = None,
    seq_len: SeqLenOption = None,
    precision: PrecisionOption = None,
    layout: LayoutOption = None,
    beliefs: BeliefsOption = None,
    set_: SetOption = None,
    specs: SpecsOption = None,
    seed: SeedOption = 0,
    format: FormatOption = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the beliefs here, for --beliefs."),
    ] = None,
    plot: PlotOption = None,
    report: ReportOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Update the beliefs with measurements: step times, a collective log, traces, per-rank times, power logs."""
    if not (timings or nccl or trace or ranks or power):
        raise UsageError(
            "nothing to calibrate with",
            code="U016",
            help="give --timings, --nccl, --trace, --ranks or --power",
        )
    if nccl is None and (nccl_ranks is not None or nccl_op is not None):
        raise UsageError("--nccl-ranks and --nccl-op speak of a log: give it with --nccl", code="U016")
    found = job_from_options(
        job, workload=workload, cluster=cluster, regime=regime, global_batch=global_batch, seq_len=seq_len,
        precision=precision, layout=layout, assignments=set_, specs=specs,
    )  # fmt: skip
    from perfmodel.calibrate.readers.sweeps import OPS, canonical_op
    from perfmodel.decide.calibration import calibrate_job
    from perfmodel.study.table import parse_timings

    if nccl_op is not None and canonical_op(nccl_op) is None:
        raise UsageError(
            f'--nccl-op: unknown "{nccl_op}"{did_you_mean(nccl_op, OPS)}',
            code="U044",
            help=f"one of {', '.join(OPS)}",
        )

    result = calibrate_job(
        found,
        load_beliefs(beliefs),
        parse_timings,
        timings=timings,
        nccl=nccl,
        nccl_ranks=nccl_ranks,
        nccl_op=None if nccl_op is None else canonical_op(nccl_op),
        traces=tuple(trace or ()),
        ranks=ranks,
        preset=preset,
        pattern=pattern,
        power=power or (),
        interval_s=sampling_interval(power_interval, power),
        seed=seed,
    )
    say_rejected(result, quiet)
    for warning in () if quiet else result.result["warnings"]:
        typer.echo(f"note: {warning}", err=True)
    check_targets(output, plot, report)
    if output is not None:
        write_text(output, result.to_json())
    emit(result, format, None, plot, report, quiet)
