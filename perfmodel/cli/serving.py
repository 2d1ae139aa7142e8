"""What the verbs share where a job serves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.cli.options import told_by
from perfmodel.errors import EXIT_FAILED, EXIT_OK, SpecError, UsageError, gathered

if TYPE_CHECKING:
    from perfmodel.cli.calibrate import FitFlags
    from perfmodel.cli.groups import JobFlags, ResultFlags
    from perfmodel.results.envelope import Result
    from perfmodel.specs.catalog import Catalog
    from perfmodel.specs.serving import ServingJob


def refuse_for_serving(name: str, flags: Mapping[str, object]) -> None:
    """Refuse the flags that were given and that mean nothing of a job that serves."""
    given = [flag for flag, value in flags.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)}: of training jobs alone, and {name} serves", code="U002", help="leave it out"
        )


def plan_service(
    path: Path | None,
    flags: JobFlags,
    refused: Mapping[str, object],
    clusters: str | None,
    budget: str | None,
    max_accelerators: int | None,
    top: int,
    to: ResultFlags,
) -> int:
    """`perfmodel plan` of a job that serves: the cheapest services on the named clusters."""
    from perfmodel.decide.serving.search import Wanted, plan_serving

    refuse_for_serving(str(path), refused)
    paid = _per_hour(budget)
    names = list(dict.fromkeys(filter(None, (name.strip() for name in (clusters or "").split(",")))))
    if names == ["all"]:
        jobs = _everywhere(path, flags)
    elif names:
        jobs = gathered([partial(_service, path, flags, name) for name in names])
    else:
        jobs = [_service(path, flags, None)]
    wanted = Wanted(keep=top, most_accelerators=max_accelerators, budget_usd_per_s=paid, seed=to.seed)
    result, met = plan_serving(jobs, wanted, flags.known_serving())
    to.emit(result)
    return EXIT_OK if met else EXIT_FAILED


def calibrate_server(
    path: Path | None, flags: JobFlags, refused: Mapping[str, object], loads: Path | None, to: FitFlags
) -> None:
    """`perfmodel calibrate` of a job that serves: measured loads of its server."""
    from dataclasses import replace

    from perfmodel.calibrate.service import calibrate_service
    from perfmodel.cli.options import check_targets, write_text

    refuse_for_serving(str(path), refused)
    if loads is None:
        raise UsageError(
            "nothing to calibrate with",
            code="U016",
            help="give --timings: the report of a load tool, or measure serving",
        )
    result = calibrate_service(flags.service(path), [loads], flags.known_serving(), seed=to.seed)
    check_targets(to.output, to.plot, to.report)
    if to.output is not None:
        write_text(to.output, result.to_json())
    replace(to, output=None).emit(result)


def audit_of_service(claim: Path, beliefs: Path | None, seed: int, catalog: Catalog) -> Result:
    """`perfmodel audit` of a claimed rate of tokens."""
    from perfmodel.decide.audit.service import audit_service
    from perfmodel.specs.serving_claims import load_service_claim

    known = None
    if beliefs is not None:
        from perfmodel.serving.stored import read_serving_beliefs

        known = read_serving_beliefs(beliefs)
    return audit_service(
        load_service_claim(claim, catalog=catalog), beliefs=known, seed=seed, catalog=catalog
    )


def _per_hour(budget: str | None) -> float | None:
    """`--budget "100 USD/h"` in USD per second."""
    if budget is None:
        return None
    from perfmodel.units import UnitError, parse

    try:
        found = parse(budget, "USD/s")
    except UnitError as error:
        help = 'a service is paid by the hour: write --budget "100 USD/h"'
        raise UsageError(f"--budget: {error.message}", code="U021", help=help) from None
    if found <= 0.0:
        raise UsageError(f"--budget: must be above zero: {budget}", code="U021")
    return found


def _service(path: Path | None, flags: JobFlags, cluster: str | None) -> ServingJob:
    return flags.service(path, {"cluster": told_by("--clusters", cluster)} if cluster else {})


def _everywhere(path: Path | None, flags: JobFlags) -> list[ServingJob]:
    """The job on every cluster of the catalogue on which it makes sense."""
    from perfmodel.specs.catalog import Catalog

    found = []
    for name in Catalog.default(tuple(flags.specs or ())).names("clusters"):
        try:
            found.append(_service(path, flags, name))
        except SpecError:  # a number format or a link that this cluster does not have
            continue
    return found or [_service(path, flags, None)]
