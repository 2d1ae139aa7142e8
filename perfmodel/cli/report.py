"""`perfmodel report`: render a saved result again, without computing anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.options import (
    FormatOption,
    NoColorOption,
    OutputOption,
    PlotOption,
    QuietOption,
    ReportOption,
    check_targets,
    emit,
)
from perfmodel.errors import UsageError

FileArgument = Annotated[
    Path,
    typer.Argument(metavar="RESULT.json|REPORT.html", help="A result saved with --format json or --report."),
]
FigureOption = Annotated[
    str | None,
    typer.Option("--figure", metavar="NAME", help="Which plot --plot writes: speedup, parts, cost, ..."),
]


def report(
    file: FileArgument,
    format: FormatOption = None,
    output: OutputOption = None,
    plot: PlotOption = None,
    figure: FigureOption = None,
    report: ReportOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Render a saved result again: table, CSV, Markdown, plot or HTML."""
    from perfmodel.report import saved
    from perfmodel.results import read_envelope

    if figure is not None and plot is None:
        raise UsageError(
            "--figure says which plot --plot writes, and there is no --plot",
            code="U013",
            help=f"add --plot FILE.svg, such as --plot {figure}.svg",
        )
    envelope = saved.load(file)
    result = read_envelope(json.dumps(envelope))
    if plot is not None and figure is not None:
        from perfmodel.report import plots

        check_targets(output, plot, report)
        plots.save(plots.figure(envelope, figure), plot)
        plot = None
    emit(result, format, output, plot, report, quiet)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report")(report)
