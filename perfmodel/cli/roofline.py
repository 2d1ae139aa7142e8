"""`perfmodel roofline JOB.yaml`: where each phase sits under the roofs, and how it moves with K."""

from __future__ import annotations

import typer

from perfmodel.cli.options import (
    BeliefsOption,
    ClusterOption,
    FormatOption,
    GlobalBatchOption,
    JobFile,
    KOption,
    LayoutOption,
    NoColorOption,
    OutputOption,
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
    emit,
    job_from_options,
    load_beliefs,
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("roofline")(roofline)


def roofline(
    job: JobFile = None,
    workload: WorkloadOption = None,
    cluster: ClusterOption = None,
    k: KOption = None,
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
    output: OutputOption = None,
    plot: PlotOption = None,
    report: ReportOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Place each phase of the step under the roofline: FLOP per byte, rate reached, roofs, as the batch per worker shrinks."""
    known = load_beliefs(beliefs)
    found = job_from_options(
        job, workload=workload, cluster=cluster, k=k, regime=regime, global_batch=global_batch, seq_len=seq_len,
        precision=precision, layout=layout, assignments=set_, specs=specs,
    )  # fmt: skip
    from perfmodel.decide.roofline import roofline as roofline_of

    emit(roofline_of(found, known, seed=seed), format, output, plot, report, quiet)
