"""`perfmodel workdepth JOB|DAG`: work, span, Brent's bounds, critical path, greedy speedup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.readings import worker_counts
from perfmodel.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("workdepth")(expanded(workdepth))


def workdepth(
    subject: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOB.yaml|DAG",
            show_default=False,
            help="Job file (or -w and -c): the graph of its own step. Or a graph: .json, .csv (name,time_s,after), .dot.",
        ),
    ] = None,
    *,
    workers: Annotated[
        str | None,
        typer.Option(metavar="RANGE", help="Workers of the greedy schedule; the K of a job, else doubling."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples of one operation, of a job.")] = 1,
    pieces: Annotated[
        int | None,
        typer.Option(
            min=1, max=4096, help="Pieces into which tensor parallelism cuts an operation; as the layouts do."
        ),
    ] = None,
    flags: JobFlags,
    to: ResultFlags,
) -> None:
    """Work, span and parallelism of a graph of operations, Brent's bounds, the critical path, and the speedup on P workers."""
    from perfmodel.readings.operations_graph import SUFFIXES, read_graph

    counts = None if workers is None else worker_counts("--workers", workers)
    if counts is not None and counts[-1] > 2**20:
        raise UsageError("--workers: at most 1048576", code="U016")
    from perfmodel.explain.work_depth import of_graph, of_job

    if subject is not None and subject.suffix.lower() in SUFFIXES:
        if flags != JobFlags() or samples != 1 or pieces is not None:
            raise UsageError(
                "a graph has no workload and no cluster",
                code="U016",
                help="leave out the flags of a job; --workers takes the number of workers",
            )
        to.emit(of_graph(read_graph(subject), counts, str(subject), seed=to.seed))
        return
    known, job = flags.known(), flags.job(subject)
    to.emit(of_job(job, known, samples=samples, pieces=pieces, workers=counts, seed=to.seed))
