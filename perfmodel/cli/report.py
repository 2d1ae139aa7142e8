"""`perfmodel report`: render a saved result again, without computing anything."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.options import (
    DigitsOption,
    FormatOption,
    NoColorOption,
    OutputOption,
    PlotOption,
    QuietOption,
    ReportOption,
    check_targets,
    emit,
)
from perfmodel.errors import Problem, SpecError, UsageError

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
    digits: DigitsOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Render a saved result again: table, CSV, Markdown, plot or HTML."""
    from perfmodel.report import saved, terminal
    from perfmodel.results.envelope import read_envelope

    if figure is not None and plot is None:
        raise UsageError(
            "--figure names the plot that --plot writes, and --plot is missing",
            code="U013",
            help=f"add --plot FILE.svg, such as --plot {figure}.svg",
        )
    envelope = saved.load(file)
    try:
        result = read_envelope(json.dumps(envelope))
        if plot is not None and figure is not None:
            from perfmodel.report import plots

            check_targets(output, plot, report)
            plots.save(plots.figure(envelope, figure), plot)
            plot = None
        if output is None and not quiet:  # all of it can be shown, or none of it is
            from rich.console import Console

            terminal.render(envelope, Console(file=io.StringIO()))
        emit(result, format, output, plot, report, quiet, digits)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        # What this version saved, it can show: a value of another form was put there by somebody else.
        raise SpecError(
            Problem(
                str(file),
                code="R007",
                message=f"a value in it has not the form that perfmodel saves: {error}",
                help="it was edited, damaged or saved by another version; save the result again",
            )
        ) from None


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report")(report)
