"""`perfmodel explain JOB.yaml --k N`: every term of the step at one K, with formula, numbers and sources."""

from __future__ import annotations

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import JobFile
from perfmodel.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("explain")(expanded(explain))


def explain(job: JobFile = None, *, flags: JobFlags, to: ResultFlags) -> None:
    """Explain the step at one K: each term with its formula, inputs, their sources, share and sensitivity; each
    collective with the bandwidth that would hide it."""
    known, found = flags.known(), flags.job(job)
    if len(found.k) != 1:
        raise UsageError("explain shows one K", code="U016", help=f"add --k {found.k[-1]}")
    from perfmodel.decide.explanation import explain as explain_job

    to.emit(explain_job(found, known, seed=to.seed))
