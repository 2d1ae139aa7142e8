"""`perfmodel validate`: predictions against measured runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import JobFile, progress
from perfmodel.errors import Problem, SpecError, UsageError


class Scheme(StrEnum):
    """What is left out of the fit before a family is predicted."""

    group = "group"
    source = "source"
    accelerator = "accelerator"
    stranger = "stranger"


MOST_REASONS = 8  # that are told one by one


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("validate")(expanded(validate, without={"k"}))


def validate(
    job: JobFile = None,
    timings: Annotated[
        Path | None,
        typer.Option(
            "--timings",
            metavar="FILE.csv",
            help="With a job: your own runs (k and time_s of a step; optional global_batch, repeat) against its prediction.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Folder in the form of validation/measured; the shipped corpus by default.",
        ),
    ] = None,
    scheme: Annotated[
        Scheme | None,
        typer.Option(
            "--scheme",
            "--leave-out",
            help="On the shipped corpus: what the beliefs have not seen; stranger: the whole source, with the labels "
            "that it states. Default: group, with the figures of strangers beside it.",
        ),
    ] = None,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="Fit the folds again instead of reading the shipped ones (minutes)."),
    ] = False,
    *,
    flags: JobFlags,
    to: ResultFlags,
) -> None:
    """Score predictions on measured runs by mode: median, mean and p90 error, bias, coverage, knees, and the laws to beat."""
    corpus = {"--data": data is not None, "--refit": refit, "--scheme": scheme is not None}
    if timings is not None or job is not None or flags.changes or flags.set_:
        _own(job, timings, [name for name, said in corpus.items() if said], flags, to)
        return
    if data is not None and (refit or scheme is not None):
        option = "--refit" if refit else "--scheme"
        raise UsageError(
            f"{option} applies to the shipped corpus, and --data names another",
            code="U016",
            help=f"leave {option} out: another folder is predicted with the shipped beliefs as they are",
        )
    from perfmodel.specs.catalog import Catalog
    from perfmodel.validate.validation import validate as run
    from perfmodel.validate.validation import why_nothing_scored

    progress("predicting the measured runs", to.quiet)
    protocol = (scheme or Scheme.group).value
    found = run(
        data, scheme=protocol, catalog=Catalog.default(tuple(flags.specs or ())), seed=to.seed, refit=refit
    )
    reasons = why_nothing_scored(found.result)
    if reasons:
        raise SpecError(
            Problem(str(data), code="D008", message="nothing was scored", help=_first_few(reasons))
        )
    to.emit(found)


def _own(job: Path | None, timings: Path | None, others: list[str], flags: JobFlags, to: ResultFlags) -> None:
    """Runs of one's own against the prediction of a job."""
    if others:
        raise UsageError(
            f"{', '.join(others)} and a job",
            code="U016",
            help="either a folder of measured families, or a JOB.yaml with --timings",
        )
    if timings is None:
        raise UsageError(
            "a job is validated with measured timings",
            code="U002",
            help="add --timings FILE.csv, with the columns k and time_s",
        )
    known, found = flags.known(), flags.job(job)
    from perfmodel.validate.own_timings import validate_job

    to.emit(validate_job(found, timings, known, seed=to.seed))


def _first_few(reasons: list[str]) -> str:
    beyond = len(reasons) - MOST_REASONS
    told = [*reasons[:MOST_REASONS], *([f"and {beyond} more"] if beyond > 0 else [])]
    return "\n        ".join(told)  # under the first, which follows "  help: "
