"""`perfmodel diagnose --config FILE --log FILE`: whether a run is slow, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.readings import PatternOption, say_rejected
from perfmodel.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("diagnose")(expanded(diagnose))


def diagnose(
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="What the run was started with: a job, or a framework's files. Repeatable; or -w and -c.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="Its log, or what W&B, TensorBoard or MLflow kept of it."),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option("--trace", metavar="FILE", help="Profiler trace of some of its steps. Repeatable."),
    ] = None,
    ranks: Annotated[
        Path | None, typer.Option("--ranks", metavar="FILE", help="Its ranks' own step times.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Read the log as of megatron, torchtitan, nemo, lightning or hf-trainer."),
    ] = None,
    pattern: PatternOption = None,
    *,
    flags: JobFlags,
    to: ResultFlags,
) -> None:
    """Is my run slow: measured against expected by part, causes ranked by what they explain, and what each would gain.

    Every cause is the step predicted again with one fact changed. The run is fine inside the 90 % band.
    """
    if not config and not (flags.workload and flags.cluster):
        raise UsageError(
            "the configuration of the run is not stated",
            code="U002",
            help="give --config FILE, or both -w and -c",
        )
    if log is None and not trace and ranks is None:
        raise UsageError(
            "nothing measured to diagnose", code="U016", help="give --log, --trace or both, of one run"
        )
    from perfmodel.diagnose.diagnosis import diagnose as run

    result = run(
        tuple(config or ()),
        log,
        tuple(trace or ()),
        ranks,
        overrides=flags.overrides(),
        beliefs=flags.known(),
        preset=preset,
        pattern=pattern,
        specs=tuple(flags.specs or ()),
        seed=to.seed,
    )
    say_rejected(result, to.quiet)
    to.emit(result)
