"""`perfmodel compare A.yaml B.yaml`: two jobs side by side, and which changed input caused what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.serving import refuse_for_serving
from perfmodel.errors import UsageError, gathered


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("compare")(expanded(compare))


def compare(
    a: Annotated[
        Path | None,
        typer.Argument(metavar="A.yaml", help="The first job; or use -w and -c.", show_default=False),
    ] = None,
    b: Annotated[
        Path | None,
        typer.Argument(metavar="B.yaml", help="The second; when missing, A with --set.", show_default=False),
    ] = None,
    *,
    at: Annotated[
        int | None, typer.Option("--at", min=1, help="K whose difference is broken down by cause.")
    ] = None,
    flags: JobFlags,
    to: ResultFlags,
) -> None:
    """Compare two jobs: speed, knee, p* and cost, and the difference by changed input, one at a time.

    With two files the flags hold for both. With one, or with -w and -c, the second job is the first with the changes
    of --set; flags beside one file change the second job too.
    """
    from perfmodel.specs.jobs import serves

    both_serve = serves(a) and serves(b or a)
    known = None if both_serve else flags.known()
    if b is None and not flags.set_ and (a is None or not flags.changes):
        raise UsageError(
            "there is no second job to compare with",
            code="U017",
            help="name B.yaml, or say what changes: --set cluster=dgx-h100",
        )
    before = replace(flags, set_=None) if a is None else replace(flags.unchanged(), prices=flags.prices)
    if both_serve:
        refuse_for_serving(str(a), {"--at": at})
        from perfmodel.explain.service_comparison import compare_services

        pair = gathered(
            [partial((before if b is None else flags).service, a), partial(flags.service, b or a)]
        )
        return to.emit(compare_services(pair[0], pair[1], flags.known_serving(), seed=to.seed))
    first, second = gathered([partial((before if b is None else flags).job, a), partial(flags.job, b or a)])
    from perfmodel.explain.comparison import compare as compare_jobs

    return to.emit(compare_jobs(first, second, known, at=at, seed=to.seed))
