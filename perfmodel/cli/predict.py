"""`perfmodel predict JOB.yaml`: the scaling curve with bands, knees, p*, cost and energy."""

from __future__ import annotations

from typing import Annotated

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
    app.command("predict")(predict)


def predict(
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
    threshold: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Efficiency that defines the knee.")
    ] = 0.70,
    draws: Annotated[
        int, typer.Option(min=0, max=100_000, help="Draws behind the intervals of knee and p*.")
    ] = 200,
    seed: SeedOption = 0,
    format: FormatOption = None,
    output: OutputOption = None,
    plot: PlotOption = None,
    report: ReportOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Predict T(K), speedup and efficiency with 90 % bands, the knee and its cause, p*, cost, energy and carbon."""
    known = load_beliefs(beliefs)
    found = job_from_options(
        job, workload=workload, cluster=cluster, k=k, regime=regime, global_batch=global_batch, seq_len=seq_len,
        precision=precision, layout=layout, assignments=set_, specs=specs,
    )  # fmt: skip
    from perfmodel.decide.prediction import predict as predict_job

    emit(
        predict_job(found, known, draws=draws, seed=seed, threshold=threshold),
        format,
        output,
        plot,
        report,
        quiet,
    )
