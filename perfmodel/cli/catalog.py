"""`perfmodel catalog`: list, show and lint the hardware, workloads, prices and grids."""

from __future__ import annotations

import datetime
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli import completion
from perfmodel.cli.groups import ResultFlags, expanded
from perfmodel.cli.options import NoColorOption, OutputOption, QuietOption, SpecsOption, write_text
from perfmodel.errors import EXIT_OK, EXIT_USAGE, UsageError

if TYPE_CHECKING:
    from perfmodel.specs.lint import LintReport


class LintFormat(StrEnum):
    """How problems are printed."""

    table = "table"
    json = "json"
    sarif = "sarif"


TodayOption = Annotated[
    str | None, typer.Option("--today", metavar="DATE", help="Count ages from this day, not from today.")
]


def list_entries(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="accelerators, links, nodes, clusters, workloads, prices or grids.",
            autocompletion=completion.kinds,
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="KEY", help="Column or field to sort by, ascending.")
    ] = None,
    reverse: Annotated[bool, typer.Option("-r", "--reverse", help="Largest first.")] = False,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="TEST", help='Keep what passes: vendor=NVIDIA, "memory >= 80 GB". Repeatable.'
        ),
    ] = None,
    match: Annotated[
        str | None, typer.Option("--match", metavar="TEXT", help="Keep rows that hold this text.")
    ] = None,
    specs: SpecsOption = None,
    today: TodayOption = None,
    *,
    to: ResultFlags,
) -> None:
    """List the entries of a kind; without one, the kinds."""
    from perfmodel.explain.browse import listing, overview
    from perfmodel.specs.catalog import Catalog

    catalog = Catalog.default(specs or ())
    if kind is None:
        to.emit(overview(catalog))
        return
    result = listing(
        catalog,
        _kind(kind),
        sort=sort,
        reverse=reverse,
        filters=filters or (),
        match=match,
        today=_day(today),
    )
    to.emit(result)


def show(
    name: Annotated[
        str, typer.Argument(help="Name of an entry.", autocompletion=completion.names(*completion.KINDS))
    ],
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="Where the name exists more than once.", autocompletion=completion.kinds),
    ] = None,
    specs: SpecsOption = None,
    today: TodayOption = None,
    *,
    to: ResultFlags,
) -> None:
    """Show one entry: every value with its source, what follows from them, and what beliefs about it rest on."""
    from perfmodel.explain.entry import details
    from perfmodel.specs.catalog import Catalog

    catalog = Catalog.default(specs or ())
    chosen = None if kind is None else _kind(kind)
    found = details(catalog, name, chosen, today=_day(today))
    if found.inputs["kind"] in ("accelerators", "links"):
        from dataclasses import replace

        from perfmodel.beliefs.population import shipped_beliefs
        from perfmodel.explain.knowledge import about

        known = about(catalog.get(found.inputs["kind"], name), shipped_beliefs())
        found = replace(found, result={**found.result, "beliefs": known})
    to.emit(found)


def lint(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="File or folder; the shipped catalogue when missing."),
    ] = None,
    today: TodayOption = None,
    format: Annotated[
        LintFormat, typer.Option("--format", help="How problems are printed.")
    ] = LintFormat.table,
    output: OutputOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Check specs: exit 2 when one cannot be used; warnings alone exit 0."""
    from perfmodel.results.envelope import Result, __version__
    from perfmodel.specs.catalog import display
    from perfmodel.specs.folders import shipped_folder
    from perfmodel.specs.lint import lint as check

    report = check(path or Path(display(shipped_folder())), today=_day(today))
    if format == LintFormat.sarif:
        from perfmodel.report.ci.sarif import render_problems

        text = render_problems(report.problems, __version__)
    elif format == LintFormat.json:
        found = [
            {
                key: getattr(item, key)
                for key in ("file", "line", "column", "code", "severity", "message", "help")
            }
            for item in report.problems
        ]
        result = {
            "files": report.files,
            "errors": len(report.errors),
            "warnings": len(report.warnings),
            "problems": found,
        }
        text = Result("lint", {"path": str(path) if path is not None else None}, result).to_json()
    else:
        text = _lint_text(report, None if path is not None else display(shipped_folder()), quiet)
    if output is not None:
        write_text(output, text)
    else:
        sys.stdout.write(text)
    if report.errors:  # the report is data: on stderr a script still sees why the exit code is 2
        first = report.errors[0]
        more = f" (and {len(report.errors) - 1} more errors)" if len(report.errors) > 1 else ""
        print(f"{first.headline}{more}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(EXIT_USAGE if report.errors else EXIT_OK)


def _lint_text(report: LintReport, folder: str | None, quiet: bool) -> str:
    """Errors with their lines, warnings briefly and what mends them once; `folder` is taken off the names of files."""
    import shutil
    from dataclasses import replace

    # A pipe gets one line a problem.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    shown: list[str] = []
    helps: dict[str, None] = {}
    for item in report.errors if quiet else report.problems:
        if folder is not None and item.file is not None:
            item = replace(item, file=item.file.removeprefix(f"{folder}/"))
        if item.severity == "warning":
            if item.help:
                helps[f"{item.code}: {item.help}"] = None
            item = replace(item, snippet=None, help=None)
        shown.append(str(item) if width is None else item.within(width))
    if folder is not None and shown:
        shown.insert(0, f"in {folder}:")
    shown += [f"  help for {words}" for words in helps]
    shown.append(f"{report.files} files: {len(report.errors)} errors, {len(report.warnings)} warnings")
    return "".join(f"{line}\n" for line in shown)


def _kind(text: str) -> str:
    """`accelerator` and `accelerators` are both understood."""
    return f"{text}s" if f"{text}s" in completion.KINDS else text


def _prices() -> None:
    """Price lists of others as records of yours."""


def _day(text: str | None, flag: str = "--today") -> datetime.date:
    if text is None:
        return datetime.date.today()
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f'{flag}: cannot read "{text}"', code="U016", help="write it like 2026-08-31"
        ) from None


def import_prices(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="SkyPilot's vms.csv, or a price list as CSV.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            help="Your folder of specs, for --specs: prices go into its prices/.",
        ),
    ] = Path("hardware_specs"),
    provider: Annotated[
        str | None, typer.Option("--provider", help="Whose prices they are, where the list does not say.")
    ] = None,
    date: Annotated[
        str | None,
        typer.Option("--date", metavar="DATE", help="When they were true, where the list does not say."),
    ] = None,
    accelerator: Annotated[
        list[str] | None,
        typer.Option(
            "--accelerator", metavar="NAME=ENTRY", help="The entry that a name of the list means. Repeatable."
        ),
    ] = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Turn price lists into price records; your own records and newer ones stay."""
    from perfmodel.specs.price_lists import import_prices as run

    names = dict(text.partition("=")[::2] for text in accelerator or ())
    if not all(names.values()):
        raise UsageError("--accelerator: write NAME=ENTRY, such as H100=h100-sxm5-80gb", code="U012")
    if output.exists() and not output.is_dir():
        raise UsageError(f"--output: {output} is no folder", code="U014", help="name a folder of specs")
    found = run(
        files,
        output,
        provider=provider,
        dated=None if date is None else _day(date, "--date").isoformat(),
        names=names,
    )
    if not quiet:
        for name in found.written:
            sys.stdout.write(f"{name}\n")
        for what, items in (("kept", found.kept), ("left out", found.refused)):
            for reason in dict.fromkeys(item.reason for item in items):
                names_ = [item.name for item in items if item.reason == reason]
                more = f" and {len(names_) - 3} more" if len(names_) > 3 else ""
                typer.echo(f"{what}: {', '.join(names_[:3])}{more}: {reason}", err=True)
        if found.undated:
            typer.echo("note: the list has no dates: --date DATE keeps them", err=True)
        typer.echo(
            f"{len(found.written)} prices written to {output}, {len(found.kept)} kept, {len(found.refused)} left out; "
            f"use them with --specs {output}",
            err=True,
        )


def register(app: typer.Typer) -> None:
    """Add the verb with its parts."""
    prices = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    prices.callback()(_prices)
    prices.command("import")(import_prices)
    verb = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    not_drawn = {"seed", "plot", "report"}
    verb.command("list")(expanded(list_entries, without=not_drawn))
    verb.command("show")(expanded(show, without=not_drawn))
    verb.command("lint")(lint)
    verb.add_typer(prices, name="prices", help="Price lists of others as records of yours.")
    app.add_typer(verb, name="catalog", help="The hardware, workload and price catalogue.")
