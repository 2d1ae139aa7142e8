"""`perfmodel roofline JOB.yaml`: where each phase sits under the roofs, and how it moves with K."""

from __future__ import annotations

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import JobFile


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("roofline")(expanded(roofline))


def roofline(job: JobFile = None, *, flags: JobFlags, to: ResultFlags) -> None:
    """Place each phase of the step under the roofline: FLOP per byte, rate reached, roofs, as the batch per worker shrinks."""
    known, found = flags.known(), flags.job(job)
    from perfmodel.explain.roofline import roofline as roofline_of

    to.emit(roofline_of(found, known, seed=to.seed))
