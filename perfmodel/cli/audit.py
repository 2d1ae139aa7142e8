"""`perfmodel audit CLAIM.yaml`: is a vendor's claim consistent, suspicious or impossible?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.groups import ResultFlags, expanded
from perfmodel.cli.options import (
    BeliefsOption,
    SpecsOption,
    load_beliefs,
)
from perfmodel.cli.serving import audit_of_service
from perfmodel.errors import EXIT_FAILED


class Goal(StrEnum):
    """What the advice is for."""

    efficiency = "efficiency"
    cost = "cost"
    time = "time"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("audit")(expanded(audit))


def audit(
    claim: Annotated[
        Path, typer.Argument(metavar="CLAIM.yaml", show_default=False, help="What the slide says.")
    ],
    goal: Annotated[
        Goal,
        typer.Option(
            help="What you would buy for: accelerators that keep E >= 0.7, cheap work, or little time."
        ),
    ] = Goal.efficiency,
    beliefs: BeliefsOption = None,
    specs: SpecsOption = None,
    *,
    to: ResultFlags,
) -> None:
    """A vendor's claim -> consistent, suspicious or impossible, with the evidence and the questions to ask.

    Exit code 0 when consistent, 1 when suspicious or impossible.
    """
    from perfmodel.decide.audit.verdict import audit as run
    from perfmodel.specs.catalog import Catalog
    from perfmodel.specs.claims import load_claim
    from perfmodel.specs.jobs import serves

    catalog = Catalog.default(tuple(specs or ()))
    if serves(claim):
        result = audit_of_service(claim, beliefs, to.seed, catalog)
    else:
        result = run(
            load_claim(claim, catalog=catalog),
            beliefs=load_beliefs(beliefs),
            goal=goal.value,
            seed=to.seed,
            catalog=catalog,
        )
    to.emit(result)
    if result.result["verdict"] != "consistent":
        raise typer.Exit(EXIT_FAILED)
