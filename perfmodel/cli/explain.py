"""`perfmodel explain JOB.yaml --k N`: every term of the step at one K, with formula, numbers and sources."""

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
from perfmodel.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("explain")(explain)


def explain(
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
    """Explain the step at one K: each term with its formula, inputs, their sources, share and sensitivity; each
    collective with the bandwidth that would hide it."""
    known = load_beliefs(beliefs)
    found = job_from_options(
        job, workload=workload, cluster=cluster, k=k, regime=regime, global_batch=global_batch, seq_len=seq_len,
        precision=precision, layout=layout, assignments=set_, specs=specs,
    )  # fmt: skip
    if len(found.k) != 1:
        raise UsageError("explain shows one K", code="U016", help=f"add --k {found.k[-1]}")
    from perfmodel.decide.explanation import explain as explain_job

    emit(explain_job(found, known, seed=seed), format, output, plot, report, quiet)
