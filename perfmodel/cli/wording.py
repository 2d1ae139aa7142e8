"""What typer refuses on the command line, in our words."""

from __future__ import annotations

from typing import Any

from perfmodel.errors import Problem
from perfmodel.specs.refusals import refusal


def complaint(error: Any) -> Problem:
    """A usage error of typer as a problem: a bad value by its flag, anything else as typer says it."""
    context = getattr(error, "ctx", None)
    usage = f"{context.command_path if context is not None else 'perfmodel'} --help"
    parameter, refused = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    if parameter is None or refused is None:  # earlier releases of typer say by themselves what they expect
        return Problem(code="U001", message=error.format_message(), help=usage)
    message, choices = refusal(refused()[0])
    return Problem(code="U001", message=f"{max(parameter.opts, key=len)}: {message}", help=choices or usage)
