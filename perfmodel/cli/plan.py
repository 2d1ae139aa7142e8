"""`perfmodel plan JOB.yaml`: the best layout, K and hardware for a deadline, a budget or an efficiency."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli import completion
from perfmodel.cli.exporting import (
    ExportOption,
    check_flags,
    emit_export,
    export_plan,
    job_of_framework,
)
from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import BudgetOption, DeadlineOption, JobFile, parse_set, scalar, told_by
from perfmodel.cli.readings import quantity
from perfmodel.cli.serving import plan_service
from perfmodel.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, SpecError, UsageError, gathered

if TYPE_CHECKING:
    from perfmodel.decide.plan.backends import Progress, Runner
    from perfmodel.specs.catalog import Catalog
    from perfmodel.specs.jobs import Job
    from perfmodel.specs.loader import Tree
    from perfmodel.training.space import Bounds


class Objective(StrEnum):
    """What is made small."""

    time = "time"
    cost = "cost"
    energy = "energy"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("plan")(expanded(plan, without={"layout"}))


def plan(
    job: JobFile = None,
    *,
    flags: JobFlags,
    objective: Annotated[
        Objective | None,
        typer.Option(help="What to minimise; cost when only a deadline is given, else time."),
    ] = None,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    max_k: Annotated[int | None, typer.Option(min=1, help="Most accelerators.")] = None,
    min_efficiency: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Least efficiency, against the fastest layout at the smallest K."
        ),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            metavar="A,B|all",
            help="Search these clusters too; all: the whole catalogue.",
            autocompletion=completion.several("clusters", "nodes"),
        ),
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Plan every job file of a folder as one fleet.")
    ] = None,
    accelerators: Annotated[
        int | None, typer.Option(min=1, help="Accelerators that the fleet shares.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="PATH=A..B UNIT:N", help="What if one value were N values from A to B."),
    ] = None,
    bounds: Annotated[str | None, typer.Option(metavar="max_tp=8,...", help="Edges of the search.")] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Candidates to rank.")] = 10,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Processes.")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler that spreads the search.")
    ] = None,
    draws: Annotated[
        int, typer.Option(min=2, max=100_000, help="Draws behind the comparison of the first two.")
    ] = 200,
    export: ExportOption = None,
    to: ResultFlags,
) -> int:
    """Search layouts, K and hardware; say the answer in a sentence, and what to relax when there is none."""
    from perfmodel.specs.jobs import serves

    if jobs is None and serves(job):
        refused: dict[str, object] = {
            "--objective": objective, "--deadline": deadline, "--min-efficiency": min_efficiency, "--accelerators": accelerators,
            "--sweep": sweep, "--bounds": bounds, "--scheduler": scheduler, "--export": export,
        }  # fmt: skip
        return plan_service(job, flags, refused, clusters, budget, max_k, top, to)
    from perfmodel.beliefs.population import shipped_beliefs
    from perfmodel.decide.plan import run
    from perfmodel.decide.plan.planner import Request

    check_flags(export, to.format)
    if export is not None and (jobs is not None or sweep is not None):
        raise UsageError("--export writes one job: it goes with neither --jobs nor --sweep", code="U042")
    # One catalogue for all jobs: what it has read once it need not read again.
    catalog = flags.catalog()
    whose: dict[str, Tree] = {}

    def load(path: Path | None, changed: Mapping[str, Tree] = MappingProxyType({})) -> Job:
        return flags.job(path, catalog, {**whose, **changed})

    if export is not None:
        whose = job_of_framework(export, partial(load, job))

    request = Request(
        objective=str(objective or (Objective.cost if deadline and not budget else Objective.time)),
        objective_unpriced=None if objective else str(Objective.time),
        deadline_s=_above_zero("--deadline", deadline, "s"),
        budget_usd=_above_zero("--budget", budget, "USD"),
        max_k=max_k,
        min_efficiency=min_efficiency,
        keep=top,
        bounds=_bounds(bounds),
        draws=draws,
        seed=to.seed,
    )
    known = flags.known() or shipped_beliefs()
    place = run.Place(_runner(workers, scheduler), workers if scheduler is None else 8, _progress(to.quiet))
    if jobs is not None:
        paths = _job_files(jobs)
        loaded = gathered([partial(load, path) for path in paths])
        named = {path.stem: one for path, one in zip(paths, loaded, strict=True)}
        outcome = run.plan_fleet(named, request, known, accelerators, place)
    elif sweep is not None:

        def swept(extra: str | None) -> Job:
            return load(job, parse_set([extra] if extra else (), "--sweep"))

        outcome = run.plan_sweep(sweep, swept, request, known, place, catalog)
    else:
        found = _on_clusters(partial(load, job), clusters, catalog) if clusters else [load(job)]
        outcome = run.plan_job(found, request, known, place, catalog)
    if export is None:
        to.emit(outcome.result)
    else:
        ranked = outcome.result.result["candidates"]
        text = export_plan(export, partial(load, job), ranked, known, to.quiet, clusters=clusters is not None)
        emit_export(text, to.output, to.quiet)
    if outcome.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if outcome.met else EXIT_FAILED


def _above_zero(flag: str, text: str | None, dimension: str) -> float | None:
    found = quantity(flag, text, dimension)
    if found is not None and found <= 0:
        raise UsageError(f"{flag}: must be above zero: {text}", code="U021")
    return found


def _bounds(text: str | None) -> Bounds:
    """`max_tp=8,max_vpp=4` as bounds."""
    import dataclasses

    from perfmodel.training.space import Bounds

    if text is None:
        return Bounds()
    known = {f.name for f in dataclasses.fields(Bounds) if f.type == "int"}
    values: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, value = (side.strip() for side in part.partition("="))
        number = scalar(value)
        if key not in known or isinstance(number, (bool, str)) or number < 1:
            raise UsageError(
                f'--bounds: cannot read "{part}"',
                code="U022",
                help=f"write max_tp=8,max_vpp=4; there are {', '.join(sorted(known))}",
            )
        values[key] = number
    if "max_micro_batch" in values:  # binds every network
        values.setdefault("max_share", values["max_micro_batch"])
    return Bounds(**values)  # type: ignore[arg-type]


def _on_clusters(load: Callable[..., Job], text: str, catalog: Catalog) -> list[Job]:
    """The job on each named cluster; with `all`, on every cluster of the catalogue on which it makes sense."""
    if text.strip() != "all":
        names = list(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
        if not names:
            raise UsageError(
                "--clusters: nothing given", code="U023", help="write --clusters dgx-a100,dgx-h100, or all"
            )
        return gathered([partial(_moved, load, name) for name in names])
    found = []
    for name in catalog.names("clusters"):
        try:
            found.append(_moved(load, name))
        except SpecError:  # a precision, a K or a price that this cluster does not have
            continue
    if not found:
        load()  # nothing fits anywhere: the job itself is wrong, and says why
    return found


def _moved(load: Callable[..., Job], name: str) -> Job:
    """The job on another cluster, its problems told of the flag."""
    from perfmodel.decide.plan.elsewhere import elsewhere

    return elsewhere(load, told_by("--clusters", name), told_by("--clusters", None))


def _job_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"--jobs: no folder {folder}", code="U023")
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    if not paths:
        raise UsageError(f"--jobs: no job file in {folder}", code="U023", help="job files end in .yaml")
    return paths


def _runner(workers: int, scheduler: str | None) -> Runner:
    from perfmodel.decide.plan import backends as runners

    if scheduler is not None:
        return runners.on_dask(scheduler)
    return runners.run_here if workers == 1 else runners.in_processes(workers)


def _progress(quiet: bool) -> Progress | None:
    """A bar on stderr for searches that last, only where a person is watching."""
    if quiet or not sys.stderr.isatty():
        return None
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("searching"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    started = time.monotonic()
    line: list[TaskID] = []

    def show(done: int, total: int) -> None:
        if not line and done < total and time.monotonic() - started > 1.0:
            bar.start()
            line.append(bar.add_task("search", total=total))
        if line:
            bar.update(line[0], completed=done, total=total)
            if done == total:
                bar.stop()

    return show
