"""`perfmodel explain JOB.yaml --k N`: every term of the step at one K, with formula, numbers and sources."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import JobFile, OneKOption
from perfmodel.cli.serving import refuse_for_serving
from perfmodel.cli.timelines import (
    AgainstOption,
    TimelineOption,
    check_timeline,
    measured_steps,
    write_timeline,
)
from perfmodel.errors import UsageError


@dataclass(frozen=True)
class OneKFlags(JobFlags):
    """The flags of a job that is looked at where it has one K."""

    k: OneKOption = None


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("explain")(expanded(explain))


def explain(
    job: JobFile = None,
    *,
    flags: OneKFlags,
    timeline: TimelineOption = None,
    against: AgainstOption = None,
    to: ResultFlags,
) -> None:
    """Explain the step at one K: each term with its formula, inputs, their sources, share and sensitivity; each
    collective with the bandwidth that would hide it."""
    from perfmodel.specs.jobs import serves

    if serves(job):
        refuse_for_serving(str(job), {"--timeline": timeline, "--against": against})
        from perfmodel.explain.service import explain_service

        return to.emit(explain_service(flags.service(job), flags.known_serving(), seed=to.seed))
    known, found = flags.known(), flags.job(job)
    if len(found.k) != 1:
        raise UsageError("explain shows one K", code="U016", help=f"add --k {found.k[-1]}")
    check_timeline(timeline, against, found.k, (to.output, to.plot, to.report))
    measured = measured_steps(against)
    from perfmodel.explain.explanation import explain as explain_job

    made = explain_job(found, known, seed=to.seed)
    if timeline is not None and made.curve is not None:
        write_timeline(timeline, made.curve, made, measured, to.quiet)
    return to.emit(made)
