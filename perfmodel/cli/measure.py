"""`perfmodel measure`: times this machine (needs the extra `torch`) or a server (the extra `load`)."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli import completion
from perfmodel.cli.measure_serving import serving
from perfmodel.cli.options import (
    FormatOption,
    OutputOption,
    QuietOption,
    check_folder,
    emit,
    emit_spec,
    write_text,
)
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cuda, cuda:1 or cpu; else the GPU if there is one.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the spec.")]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Fewer repeats: rougher, some five times shorter.")
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--nproc",
        min=2,
        help="Start this many processes here (or: torchrun ... --no-python -- perfmodel ...).",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb with its four measurements."""
    verb = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    verb.command("device")(device)
    verb.command("collective")(collective)
    verb.command("step")(step)
    verb.command("serving")(serving)
    app.add_typer(
        verb,
        name="measure",
        help="Time this machine or a server: collectives, matmul, memory, a step, serving.",
    )


def device(
    device: DeviceOption = None,
    nproc: ProcessesOption = None,
    precision: Annotated[str | None, typer.Option("--precision", help="Such as fp32,bf16; else all.")] = None,
    sizes: Annotated[str | None, typer.Option("--sizes", help="Matmul sizes, such as 1024,4096.")] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            help="Catalogue accelerator whose datasheet the spec extends.",
            autocompletion=completion.names("accelerators"),
        ),
    ] = None,
    name: NameOption = None,
    quick: QuickOption = False,
    output: OutputOption = None,
    format: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Matmul rate by size and precision, memory bandwidth, launch overhead -> an Accelerator spec.

    With --nproc also what it keeps of them while all ranks of the host work at once.
    """
    from perfmodel.readings.measure.crowd import measure_crowd
    from perfmodel.readings.measure.device import (
        PRECISIONS,
        accelerator_fields,
        accelerator_yaml,
        device_result,
        measure_device,
    )
    from perfmodel.readings.measure.group import process_group
    from perfmodel.readings.measure.timing import Settings

    parent = None
    if like is not None:
        from perfmodel.specs.catalog import Catalog

        parent = Catalog.default().get("accelerators", like)
    _launch(nproc, _journal(output, "device"))
    settings = Settings.quick() if quick else Settings()
    with process_group(device) as group, _kept(output, "device") as journal:
        report = None
        if group.rank == 0:
            report = measure_device(
                group.machine,
                precisions=tuple(precision.split(",")) if precision else PRECISIONS,
                sizes=_numbers(sizes, "--sizes"),
                settings=settings,
                journal=journal,
                quiet=quiet,
            )
        crowd = measure_crowd(group, report, settings).fields() if group.distributed else None
    if report is None:
        return
    fields = accelerator_fields(report, name=name, extends=parent, crowd=crowd)
    emit_spec(device_result(report, fields), accelerator_yaml(fields), format, output, quiet)


def collective(
    nproc: ProcessesOption = None,
    op: Annotated[str | None, typer.Option("--op", help="Such as all_reduce,all_gather; else all.")] = None,
    smallest: Annotated[
        str, typer.Option("--min", metavar="BYTES", help="Smallest size, such as 1K.")
    ] = "1K",
    largest: Annotated[
        str, typer.Option("--max", metavar="BYTES", help="Largest size, such as 64M.")
    ] = "64M",
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Write the sweeps as nccl-tests would.")
    ] = None,
    device: DeviceOption = None,
    name: NameOption = None,
    quick: QuickOption = False,
    output: OutputOption = None,
    format: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Sweep of operations and sizes between processes -> a Link spec and a log for `calibrate --nccl`."""
    from perfmodel.readings.measure.collective import (
        OPS,
        collective_result,
        link_fields,
        link_yaml,
        measure_collective,
        nccl_tests_log,
        sizes_between,
    )
    from perfmodel.readings.measure.group import process_group
    from perfmodel.readings.measure.timing import Settings
    from perfmodel.readings.source import binary_size

    for path in (output, log):
        if path is not None:
            check_folder(path)
    _launch(nproc, _journal(output or log, "collective"))
    limits = [binary_size(text) for text in (smallest, largest)]
    if limits[0] is None or limits[1] is None:
        raise UsageError("--min, --max: cannot read the size", code="M010", help="such as 1K, 64M or 1048576")
    with process_group(device) as group, _kept(output or log, "collective") as journal:
        report = measure_collective(
            group,
            ops=tuple(op.split(",")) if op else OPS,
            sizes=sizes_between(limits[0], limits[1], group.world),
            settings=Settings.quick() if quick else None,
            journal=journal,
            quiet=quiet,
        )
        if group.rank:
            return
    fields, error = link_fields(report, name=name)
    if log is not None:
        write_text(log, nccl_tests_log(report))
    emit_spec(collective_result(report, fields, error), link_yaml(fields), format, output, quiet)


def step(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:FN", help="Function that returns a StepProgram; a file.py works too."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="CSV", help="Timings file; rows are added to it.")
    ],
    nproc: ProcessesOption = None,
    warmup: Annotated[int, typer.Option("--warmup", min=1, help="Steps before the clock starts.")] = 5,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps in one repeat.")] = 10,
    repeats: Annotated[int, typer.Option("--repeats", min=2, help="Repeats; each gives a row.")] = 5,
    no_baseline: Annotated[
        str | None,
        typer.Option("--no-baseline", metavar="REASON", help="Why K=1 cannot be run; kept in the file."),
    ] = None,
    device: DeviceOption = None,
    format: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Time a training step at this K by the five rules; K=1 first, then under --nproc or torchrun."""
    from perfmodel.readings.measure.group import process_group
    from perfmodel.readings.measure.harness import journal_of, measure_step, step_result
    from perfmodel.readings.measure.launch import launched
    from perfmodel.readings.measure.step import StepSettings
    from perfmodel.readings.measure.timings import check_may_add, read_recorded

    check_folder(output)
    recorded = read_recorded(output)
    if nproc and not launched():
        check_may_add(recorded, nproc, None, None, no_baseline)  # before any process is started
    settings = StepSettings(warmup, steps, repeats)
    _launch(nproc, journal_of(output, nproc or 1))
    with process_group(device) as group, _said(journal_of(output, group.world)):
        run = measure_step(target, group, settings, output, recorded, no_baseline=no_baseline, quiet=quiet)
    if run is not None:
        if format is None:
            text = f"K={run.k}: {run.mean_s:.4g} s a step, spread {run.spread:.1%}, workload {run.workload_hash} -> {output}"
            if not quiet:
                typer.echo(text, err=True)
        else:
            emit(step_result(run, target), format, None, quiet=quiet)


def _launch(nproc: int | None, journal: Path) -> None:
    """Start the processes and end with their exit code, unless this is already one of them."""
    from perfmodel.readings.measure.launch import launched, relaunch

    if nproc is None or launched():
        return
    with _said(journal):
        code = relaunch(nproc, sys.argv[1:])
    raise typer.Exit(code)


@contextmanager
def _kept(output: Path | None, what: str) -> Iterator[Path]:
    """The journal beside the output; when the run is stopped, say where it is."""
    journal = _journal(output, what)
    check_folder(journal)
    with _said(journal):
        yield journal


def _journal(output: Path | None, what: str) -> Path:
    base = output or Path(f"perfmodel-{what}")
    return base.with_name(base.name + ".partial")


@contextmanager
def _said(journal: Path) -> Iterator[None]:
    """Say where finished work is kept when the run is stopped; once, whoever started the processes."""
    from perfmodel.readings.measure.launch import RELAUNCHED

    try:
        yield
    except KeyboardInterrupt:
        if journal.exists() and os.environ.get("RANK", "0") == "0" and RELAUNCHED not in os.environ:
            typer.echo(f"what was finished is kept in {journal}: run the same command to go on", err=True)
        raise


def _numbers(text: str | None, flag: str) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < 99 and int(word) > 0 for word in words):
        raise UsageError(
            f'{flag}: cannot read "{text}"', code="M007", help="whole numbers, such as 1024,4096"
        )
    return tuple(int(word) for word in words)
