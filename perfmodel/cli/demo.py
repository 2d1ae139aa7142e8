"""`perfmodel demo`: no input, no network: an answer, a table, an HTML report and the next command to type."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.options import FormatOption, NoColorOption, OutputOption, QuietOption, check_folder, emit

if TYPE_CHECKING:
    from perfmodel.results.envelope import Result

REPORT = "perfmodel-demo.html"
NEXT = "perfmodel explain -w {workload} -c {cluster} --global-batch {batch} --k {k}"
OWN = "perfmodel init, then perfmodel predict job.yaml"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("demo")(demo)


def built_in() -> Result:
    """The prediction that the demo shows, of a job that ships with the package."""
    from perfmodel.decide.prediction import predict
    from perfmodel.specs.jobs import load_job

    with resources.as_file(resources.files("perfmodel.cli").joinpath("demo_job.yaml")) as path:
        return predict(load_job(path))


def next_command(result: Result) -> str:
    """What to type next: why the curve bends where it does."""
    knee = result.result["knee"]["threshold"]["k"] or result.result["fastest"]["k"]
    inputs = result.inputs
    return NEXT.format(
        workload=inputs["workload"]["name"],
        cluster=inputs["cluster"]["name"],
        batch=inputs["global_batch"],
        k=knee,
    )


def demo(
    report: Annotated[
        Path, typer.Option("--report", metavar="FILE.html", help="Where the HTML report goes.")
    ] = Path(REPORT),
    format: FormatOption = None,
    output: OutputOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Predict a built-in job: no input, no network."""
    check_folder(report)
    result = built_in()
    emit(result, format, output, report=report, quiet=quiet)
    if quiet:
        return
    typer.echo(f"wrote {report}", err=True)
    typer.echo(f"next: {next_command(result)}", err=True)
    typer.echo(f"your own job: {OWN}", err=True)
