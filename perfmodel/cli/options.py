"""What the verbs share: the option types, the readers of their text forms, and where results go."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli import completion
from perfmodel.errors import UsageError
from perfmodel.files import write_whole
from perfmodel.specs.precisions import PRECISIONS

if TYPE_CHECKING:
    from perfmodel.beliefs.population import Beliefs
    from perfmodel.results.envelope import Result
    from perfmodel.specs.loader import Tree


class Format(StrEnum):
    """How the result is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


class RegimeName(StrEnum):
    """What stays fixed as K grows."""

    strong = "strong"
    weak = "weak"


JobFile = Annotated[
    Path | None, typer.Argument(metavar="JOB.yaml", help="Job file; or use -w and -c.", show_default=False)
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "-w",
        "--workload",
        help="Workload: a zoo name or a file.",
        autocompletion=completion.names("workloads"),
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "-c",
        "--cluster",
        help="Cluster: a catalogue name or a file.",
        autocompletion=completion.names("clusters", "nodes"),
    ),
]
K_OPTION = typer.Option(
    "-k",
    "--k",
    metavar="RANGE",
    help="Worker counts: 8 | 1,2,4,8 | 1..1024 (doubling) | 64..128:8 (steps).",
)
KOption = Annotated[str | None, K_OPTION]
OneKOption = Annotated[
    str | None,
    typer.Option(
        "-k", "--k", metavar="K", help="The number of accelerators; needed unless the job names one."
    ),
]
RegimeOption = Annotated[
    RegimeName | None,
    typer.Option("--regime", help="strong: global batch fixed; weak: batch per accelerator fixed."),
]
GlobalBatchOption = Annotated[
    int | None, typer.Option("--global-batch", min=1, help="Samples per optimizer step.")
]
HeadroomOption = Annotated[
    float | None,
    typer.Option(
        "--headroom", min=0, max=0.9, help="Share of memory that automatic layouts leave free. Default: 0.05."
    ),
]
SeqLenOption = Annotated[int | None, typer.Option("--seq-len", min=1, help="Tokens per sequence.")]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", help=f"Type of the matmuls: {', '.join(PRECISIONS)}.")
]
LayoutOption = Annotated[str | None, typer.Option("--layout", help="auto, or tp=2,pp=4,sharding=zero1.")]
BeliefsOption = Annotated[
    Path | None, typer.Option("--beliefs", help="Beliefs written by `perfmodel calibrate`.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change one value of the job; the value is YAML. Repeatable.",
        autocompletion=completion.assignment,
    ),
]
SpecsOption = Annotated[
    list[Path] | None,
    typer.Option("--specs", metavar="DIR", help="Folder of your own specs; they win. Repeatable."),
]
PricesOption = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="Your own quotes, by node or accelerator; they win."),
]
DeadlineOption = Annotated[str | None, typer.Option("--deadline", help='Longest run: "3 day".')]
BudgetOption = Annotated[str | None, typer.Option("--budget", help='Dearest run: "5000 USD".')]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="Default: table, or by the suffix of --output.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write the result here, not to the terminal."),
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Write the plot: .svg, .png or .pdf.")
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.html", help="Write a self-contained HTML report.")
]
DigitsOption = Annotated[
    int | None,
    typer.Option(
        "--digits",
        min=1,
        max=15,
        show_default="3",
        help="Significant digits of the numbers in tables and text; CSV and JSON have all.",
    ),
]
FullOption = Annotated[
    bool, typer.Option("--full", help="Print every table and note, not the first screen alone.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", help="No table and no progress: files and the exit code only.")
]
NoColorOption = Annotated[bool, typer.Option("--no-color", help="No colours (NO_COLOR does the same).")]

_PLOT_SUFFIXES = (".svg", ".png", ".pdf")
_PAGE_SUFFIXES = (".html", ".htm")


def parse_layout(text: str) -> str | dict[str, object]:
    """`auto`, or `tp=2,pp=4,sharding=zero1` as a mapping.

    >>> parse_layout("tp=2,sharding=zero1")
    {'tp': 2, 'sharding': 'zero1'}
    """
    if text.strip() == "auto":
        return "auto"
    layout: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (side.strip() for side in part.partition("="))
        if not equals or not key or not value:
            raise UsageError(
                f'--layout: cannot read "{part}"', code="U011", help="write auto, or tp=2,pp=4,sharding=zero1"
            )
        if key in layout:
            raise UsageError(f'--layout: "{key}" is given twice', code="U011")
        layout[key] = scalar(value)
    if not layout:
        raise UsageError(
            "--layout: nothing given", code="U011", help="write auto, or tp=2,pp=4,sharding=zero1"
        )
    return layout


def scalar(text: str) -> int | bool | str:
    """The value of a `key=value` flag: an integer, a truth value, or the text itself."""
    if re.fullmatch("[+-]?[0-9]{1,18}", text):
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def parse_set(assignments: Sequence[str] | None, flag: str = "--set") -> dict[str, Tree]:
    """`--set path=value` flags as a mapping from dotted path to value; the value is YAML, and a mistake in it names its flag."""
    from perfmodel.specs.loader import parse_value

    found: dict[str, Tree] = {}
    for text in assignments or ():
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise UsageError(
                f'{flag}: cannot read "{text}"',
                code="U012",
                help='write --set path=value, such as --set "price={per_accelerator: 2 USD/h}"',
            )
        name = f"{flag} {path.strip()}"
        found[path.strip()] = told_by(name, parse_value(value, name))
    return found


def told_by(flag: str, value: object) -> Tree:
    """A value of a job whose problems name `flag`."""
    from perfmodel.specs.loader import Mark, Source, graft

    return graft(value, Mark(Source(flag)))


def load_beliefs(path: Path | None) -> Beliefs | None:
    """Beliefs from a file of `perfmodel calibrate`, or None for the shipped ones."""
    if path is None:
        return None
    from perfmodel.beliefs.stored import read_beliefs

    return read_beliefs(path)


def emit(
    result: Result,
    format: Format | str | None = None,
    output: Path | None = None,
    plot: Path | None = None,
    report: Path | None = None,
    quiet: bool = False,
    digits: int | None = None,
    full: bool = False,
) -> None:
    """Write a result to where the flags point: text to stdout or `output`, a plot, an HTML report."""
    if digits is not None:
        with importlib.import_module("perfmodel.report.text").with_digits(digits):
            emit(result, format, output, plot, report, quiet, full=full)
        return
    chosen = _format(format, output)
    check_targets(output, plot, report)
    if plot is not None:  # first: not every result has a plot, and then nothing is written
        _write_plot(result, plot)
    if report is not None:  # before the terminal's: the reader of a pipe may leave in the middle
        html = importlib.import_module("perfmodel.report.html")
        write_text(report, html.render(result.envelope(), command=command_line()))
    if output is not None:
        write_text(output, _text(result, chosen, width=110))
    elif chosen == Format.table:
        if not quiet:
            importlib.import_module("perfmodel.report.terminal").render(result.envelope(), full=full)
    else:
        sys.stdout.write(_text(result, chosen, width=110))


def emit_spec(
    result: Result, yaml: str, format: Format | None, output: Path | None, quiet: bool, about: str = ""
) -> None:
    """Write a spec as YAML, unless another format is asked for by flag or by the name of the output."""
    if format is not None or _format(None, output) != Format.table:
        emit(result, format, output, quiet=quiet)
    elif output is None:
        sys.stdout.write(yaml)
    else:
        write_text(output, yaml)
        if not quiet:
            typer.echo(f"wrote {output}{about}", err=True)


def _format(format: Format | str | None, output: Path | None) -> Format:
    if format is not None:
        return Format(format)
    suffix = output.suffix.lstrip(".").lower() if output is not None else ""
    return Format(suffix) if suffix in ("json", "csv", "md") else Format.table


def _text(result: Result, format: Format, width: int) -> str:
    if format == Format.json:
        return result.to_json()
    if format == Format.csv:
        return str(importlib.import_module("perfmodel.report.tables").to_csv(result.envelope()))
    if format == Format.md:
        return str(importlib.import_module("perfmodel.report.markdown").render(result.envelope()))
    import io

    from rich.console import Console

    buffer = io.StringIO()
    console = Console(file=buffer, width=width, no_color=True, highlight=False)
    importlib.import_module("perfmodel.report.terminal").render(result.envelope(), console)
    return buffer.getvalue()


def _write_plot(result: Result, path: Path) -> None:
    # Without a home that can be written to it would warn of a slower start the next time.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        importlib.import_module("perfmodel.report.plots").save(result.envelope(), path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", code="U014") from None


def check_targets(output: Path | None, plot: Path | None = None, report: Path | None = None) -> None:
    """Refuse a bad target before any of them is written, so that nothing is left half done."""
    if plot is not None and plot.suffix.lower() not in _PLOT_SUFFIXES:
        raise UsageError(
            f"--plot: cannot write {plot.name}",
            code="U013",
            help=f"end the name in one of {', '.join(_PLOT_SUFFIXES)}",
        )
    if output is not None and output.suffix.lower() in _PAGE_SUFFIXES:
        raise UsageError(
            f"--output: {output.name} would hold no page", code="U013", help="write pages with --report"
        )
    if report is not None and report.suffix.lower() not in _PAGE_SUFFIXES:
        raise UsageError(
            f"--report: cannot write {report.name}",
            code="U013",
            help="a report is a page: end the name in .html",
        )
    targets = [path for path in (output, plot, report) if path is not None]
    for path in targets:
        check_folder(path)
    if len({path.absolute() for path in targets}) < len(targets):
        raise UsageError("--output, --plot and --report must be different files", code="U014")


def check_folder(path: Path) -> None:
    """Refuse a file that cannot be written: its folder is missing or closed, or it is a folder itself."""
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: no folder {path.parent}", code="U014")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", code="U014")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}: permission denied", code="U014")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with Unix line ends, or say why not."""
    check_folder(path)
    try:
        write_whole(path, text.encode("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", code="U014") from None


def command_line() -> str:
    """The command as a person would type it, for reports."""
    import shlex

    return " ".join(["perfmodel", *(shlex.quote(word) for word in sys.argv[1:])])


def progress(message: str, quiet: bool = False) -> None:
    """One line of progress on stderr, only where a person is watching."""
    if not quiet and sys.stderr.isatty() and not os.environ.get("CI"):
        typer.echo(message, err=True)
