"""`perfmodel demo`: no input, no network: an answer, a table, an HTML report and the next command to type."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.options import FormatOption, NoColorOption, OutputOption, QuietOption, emit

if TYPE_CHECKING:
    from perfmodel.results import Result

REPORT = "perfmodel-demo.html"
NEXT = 'perfmodel study YOUR_TIMINGS.csv --regime strong --price "3.20 USD/h" --report study.html'


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("demo")(demo)


def built_in() -> Result:
    """The result that the demo shows: a study of timings that ship with the package."""
    from perfmodel.study.options import StudyOptions
    from perfmodel.study.runner import study
    from perfmodel.study.table import parse_timings

    data = resources.files("perfmodel.study").joinpath("demo_timings.csv").read_bytes()
    options = StudyOptions(regime="strong", price_usd_per_s=3.20 / 3600.0, work=4096.0 * 500.0)
    return study(parse_timings(data, "demo timings"), options)


def demo(
    report: Annotated[
        Path, typer.Option("--report", metavar="FILE.html", help="Where the HTML report goes.")
    ] = Path(REPORT),
    format: FormatOption = None,
    output: OutputOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Run on built-in data: no input, no network."""
    can_render = importlib.util.find_spec("perfmodel.report.html") is not None
    emit(built_in(), format, output, report=report if can_render else None, quiet=quiet)
    if quiet:
        return
    if can_render:
        typer.echo(f"wrote {report}", err=True)
    typer.echo(f"next: {NEXT}", err=True)
