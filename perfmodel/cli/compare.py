"""`perfmodel compare A.yaml B.yaml`: two jobs side by side, and which changed input caused what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.options import (
    BeliefsOption,
    ClusterOption,
    FormatOption,
    GlobalBatchOption,
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

if TYPE_CHECKING:
    from perfmodel.specs.jobs import Job


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("compare")(compare)


def compare(
    a: Annotated[
        Path | None,
        typer.Argument(metavar="A.yaml", help="The first job; or use -w and -c.", show_default=False),
    ] = None,
    b: Annotated[
        Path | None,
        typer.Argument(metavar="B.yaml", help="The second; when missing, A with --set.", show_default=False),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", min=1, help="K whose difference is told by cause.")
    ] = None,
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
    """Compare two jobs: speed, knee, p* and cost, and the difference by changed input, one at a time.

    With two files the flags hold for both. With one, or with -w and -c, the second job is the first with the changes
    of --set; flags beside one file change the second job too.
    """
    known = load_beliefs(beliefs)

    def load(path: Path | None, *, flags: bool, assignments: list[str] | None) -> Job:
        return job_from_options(
            path,
            workload=workload if flags else None,
            cluster=cluster if flags else None,
            k=k,
            regime=regime if flags else None,
            global_batch=global_batch if flags else None,
            seq_len=seq_len if flags else None,
            precision=precision if flags else None,
            layout=layout if flags else None,
            assignments=assignments,
            specs=specs,
        )

    flags = (workload, cluster, regime, global_batch, seq_len, precision, layout)
    if b is None and not set_ and (a is None or not any(flags)):
        raise UsageError(
            "there is no second job to compare with",
            code="U017",
            help="name B.yaml, or say what changes: --set cluster=dgx-h100",
        )
    first = load(a, flags=b is not None or a is None, assignments=set_ if b is not None else None)
    second = load(b or a, flags=True, assignments=set_)
    from perfmodel.decide.comparison import compare as compare_jobs

    emit(compare_jobs(first, second, known, at=at, seed=seed), format, output, plot, report, quiet)
