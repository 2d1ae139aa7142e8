"""`perfmodel explain JOB.yaml --k N`: every term of the step at one K, with formula, numbers and sources."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import JobFile, OneKOption
from perfmodel.errors import UsageError


@dataclass(frozen=True)
class OneKFlags(JobFlags):
    """The flags of a job that is looked at where it has one K."""

    k: OneKOption = None


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("explain")(expanded(explain))


def explain(job: JobFile = None, *, flags: OneKFlags, to: ResultFlags) -> None:
    """Explain the step at one K: each term with its formula, inputs, their sources, share and sensitivity; each
    collective with the bandwidth that would hide it."""
    known, found = flags.known(), flags.job(job)
    if len(found.k) != 1:
        raise UsageError("explain shows one K", code="U016", help=f"add --k {found.k[-1]}")
    from perfmodel.explain.explanation import explain as explain_job

    to.emit(explain_job(found, known, seed=to.seed))
