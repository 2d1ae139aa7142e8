"""Options and messages of the verbs that read logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.errors import Problem, UsageError
from perfmodel.units import UnitError, parse

if TYPE_CHECKING:
    from perfmodel.results.envelope import Result

PatternOption = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="REGEX",
        help="Read a training log by this expression, with groups step and time_s, time_ms, time_us or steps_per_s "
        "(and k, global_batch, quality).",
    ),
]
PowerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--power",
        metavar="[K=]FILE",
        help="nvidia-smi or DCGM power log of the run at K; without K=, K is read from its name or its devices. Repeatable.",
    ),
]
PowerIntervalOption = Annotated[
    str | None, typer.Option(help='Sampling interval of a power log without times, such as "1 s".')
]


def quantity(flag: str, text: str | None, dimension: str) -> float | None:
    """A flag's quantity in SI, or UsageError that names the flag."""
    if text is None:
        return None
    try:
        return parse(text, dimension)
    except UnitError as error:
        raise UsageError(Problem(code="U021", message=f"{flag}: {error.message}", help=error.hint)) from None


def worker_counts(flag: str, text: str) -> tuple[int, ...]:
    """A flag's worker counts, or UsageError that names the flag."""
    from perfmodel.specs.ranges import parse_k

    try:
        return parse_k(text)
    except UsageError as error:
        raise UsageError(
            replace(problem, message=f"{flag}: {problem.message}") for problem in error.problems
        ) from None


def sampling_interval(text: str | None, power: Sequence[str] | None) -> float | None:
    """`--power-interval` in seconds: a time above zero, for power logs that are given."""
    found = quantity("--power-interval", text, "s")
    if found is None:
        return None
    if not power:
        raise UsageError("--power-interval without --power: there is no log to sample", code="U021")
    if not 1e-6 <= found <= 86400.0:
        raise UsageError(f"--power-interval: expected 1 us to 1 day, got {text}", code="U021")
    return found


def say_rejected(result: Result, quiet: bool) -> None:
    """Rejected lines on stderr, a sentence a file; the result has each with its number, text and reason."""
    if quiet:
        return
    reasons: dict[str, list[str]] = {}
    for item in result.result["rejected"]:
        known = reasons.setdefault(item["file"], [])
        if item["reason"] not in known:
            known.append(item["reason"])
    for reading in result.result["readings"]:
        if reading["rejected"]:
            where = reading["rejected_lines"]
            at = f" (line {shortened(where)})" if where else ""
            words = "; ".join(reasons.get(reading["file"], ()))
            typer.echo(
                f"{reading['file']}: {reading['rejected']} of {reading['lines']} lines rejected{at}: {words}",
                err=True,
            )


def shortened(numbers: str, most: int = 8) -> str:
    """The first few of many line numbers.

    >>> shortened("3, 7-9, 12", 2)
    '3, 7-9, ...'
    """
    runs = numbers.split(", ")
    return ", ".join(runs[:most]) + (", ..." if len(runs) > most else "")
