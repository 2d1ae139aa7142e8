"""`perfmodel check [perfmodel.yaml]`: the gate for continuous integration."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.options import (
    BeliefsOption,
    NoColorOption,
    PlotOption,
    QuietOption,
    ReportOption,
    SeedOption,
    SpecsOption,
    check_folder,
    check_targets,
    emit,
    load_beliefs,
    write_text,
)
from perfmodel.errors import EXIT_FAILED, SpecError, UsageError
from perfmodel.files import held

if TYPE_CHECKING:
    from perfmodel.results.envelope import Result


class CheckFormat(StrEnum):
    """How the result is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"
    junit = "junit"
    sarif = "sarif"
    github = "github"


class Undecided(StrEnum):
    """What a band across the limit counts as."""

    passing = "pass"
    failing = "fail"


_SUFFIXES = {".json": "json", ".csv": "csv", ".md": "md", ".xml": "junit", ".sarif": "sarif"}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("check")(check)


def check(
    file: Annotated[
        Path, typer.Argument(metavar="perfmodel.yaml", show_default=False, help="Jobs and policies.")
    ] = Path("perfmodel.yaml"),
    undecided: Annotated[
        Undecided | None,
        typer.Option(help="What an undecided policy counts as; pass, unless the file says otherwise."),
    ] = None,
    update_baseline: Annotated[
        bool,
        typer.Option(
            "--update-baseline", help="Write perfmodel.lock.json; changes are then measured from it."
        ),
    ] = False,
    write: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT=FILE",
            help="Write the result in one more format: sarif=perfmodel.sarif. Repeatable.",
        ),
    ] = None,
    beliefs: BeliefsOption = None,
    specs: SpecsOption = None,
    seed: SeedOption = 0,
    format: Annotated[
        CheckFormat | None,
        typer.Option("--format", help="Default: table, or by the suffix of --output."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the result here, not to the terminal."),
    ] = None,
    plot: PlotOption = None,
    report: ReportOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Policies and a committed baseline: pass, fail or undecided. `md` is the text of a pull-request comment.

    Exit code 1 when a policy fails; an undecided one fails only with --undecided fail.
    """
    suffix = output.suffix.lower() if output is not None else ""
    shown = CheckFormat(format or _SUFFIXES.get(suffix, "table"))
    targets = [_target(text) for text in write or ()]
    check_targets(output, plot, report)
    for _, extra in targets:
        check_folder(extra)
    try:
        result, blocked = _run(file, undecided, update_baseline, beliefs, specs, seed)
    except SpecError as error:
        for kind, path in [*targets, (shown, output)]:
            _write_problems(error, kind, path)
        raise
    for kind, path in targets:
        _write(result, kind, path, quiet)
    _write(result, shown, output, quiet)
    if plot is not None or report is not None:
        emit(result, "table", None, plot, report, quiet=True)
    if blocked:
        raise typer.Exit(EXIT_FAILED)


def _run(
    file: Path,
    undecided: Undecided | None,
    update: bool,
    beliefs: Path | None,
    specs: list[Path] | None,
    seed: int,
) -> tuple[Result, bool]:
    from perfmodel.decide.gate import baseline
    from perfmodel.decide.gate.check import check as run
    from perfmodel.decide.gate.predictor import predictor
    from perfmodel.decide.prediction import files_read
    from perfmodel.specs.policies import load_policies

    gate = load_policies(file, extra_dirs=tuple(specs or ()))
    word = undecided.value if undecided is not None else gate.spec.undecided or "pass"
    known = load_beliefs(beliefs or gate.beliefs)
    predict = predictor(known, seed)
    with held(gate.baseline.parent) if update else nullcontext():
        lock = baseline.read(gate.baseline)
        checked = run(gate, predict, lock=lock, undecided=word, seed=seed, accept=update)
        if update:
            write_text(gate.baseline, baseline.dumps(checked.lock))
    result = replace(checked.result, inputs=checked.result.inputs | files_read(known))
    return result, checked.blocked


def _target(text: str) -> tuple[CheckFormat, Path]:
    name, equals, path = text.partition("=")
    if not equals or not path or name not in set(CheckFormat):
        raise UsageError(
            f'--write: cannot read "{text}"',
            code="U031",
            help=f"write FORMAT=FILE; formats: {', '.join(CheckFormat)}",
        )
    return CheckFormat(name), Path(path)


def _write(result: Result, kind: CheckFormat, path: Path | None, quiet: bool) -> None:
    """To a file, or to the terminal."""
    from perfmodel.report import ci

    if kind.value not in ci.FORMATS:
        emit(result, kind.value, path, None, None, quiet)
        return
    text = ci.render(result.envelope(), kind.value)
    if path is not None:
        write_text(path, text)
    else:
        sys.stdout.write(text)


def _write_problems(error: SpecError, kind: CheckFormat, path: Path | None) -> None:
    """Bad input in the formats that can show it at its line; everywhere else the message on stderr is enough."""
    from perfmodel.report import ci
    from perfmodel.results.envelope import __version__

    text = ci.render_problems(error.problems, kind.value, __version__)
    if text is None:
        return
    if path is not None:
        write_text(path, text)
    else:
        sys.stdout.write(text)
