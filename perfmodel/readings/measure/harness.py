"""`measure step` put together: find the function, run it in its group, add the rows to the timings file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfmodel.errors import SpecError, UsageError
from perfmodel.readings.measure.group import Group
from perfmodel.readings.measure.journal import Journal
from perfmodel.readings.measure.step import StepContext, StepRun, StepSettings, run_step
from perfmodel.readings.measure.timings import Recorded, add_run, check_may_add, check_same_workers
from perfmodel.results.envelope import Result
from perfmodel.workloads.from_torch import find_function


def measure_step(
    target: str,
    group: Group,
    settings: StepSettings,
    output: Path,
    recorded: Recorded,
    *,
    no_baseline: str | None = None,
    quiet: bool = True,
) -> StepRun | None:
    """Measure one K and write it; the run on rank 0, None on the others.

    Finished repeats are kept beside the output until all are done (`journal_of`).
    """
    facts = {
        "measure": "step",
        "target": target,
        "k": group.world,
        "device": group.machine.title,
        "warmup": settings.warmup,
        "steps": settings.steps,
        **group.machine.versions(),
    }
    books: list[Journal] = []

    def book(digest: str) -> Journal:
        path = journal_of(output, group.world) if group.rank == 0 else None
        books.append(Journal(path, facts | {"workload_hash": digest}))
        return books[-1]

    def check(digest: str | None = None, workload: dict[str, Any] | None = None) -> None:
        if group.rank == 0:  # the file may be on its machine only
            check_may_add(recorded, group.world, digest, workload, no_baseline)
            check_same_workers(recorded, group.machine.versions())

    check()
    build: Any = find_function(target)
    context = StepContext(group.world, group.rank, group.local_rank, group.machine.device, group.distributed)
    try:
        run = run_step(
            build,
            context,
            settings,
            barrier=group.barrier,
            largest=group.largest,
            check=check,
            book=book,
            quiet=quiet or group.rank != 0,
        )
    except (SpecError, KeyboardInterrupt):
        raise
    except Exception as error:  # the user's own code
        message = f"{target} failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise UsageError(message, code="M025") from error
    if group.rank:
        return None
    provenance = {
        "target": target,
        "device": group.machine.title,
        "backend": group.machine.backend if group.distributed else "none",
        "nodes": str(group.nodes),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "warmup_steps": str(settings.warmup),
        "steps_per_repeat": str(settings.steps),
        "resumed_repeats": str(min(books[0].resumed, settings.repeats)),
        **group.machine.versions(),
    }
    complete = StepRun(**{**vars(run), "provenance": provenance})
    add_run(output, recorded, complete, no_baseline)
    books[0].finish()
    return complete


def journal_of(output: Path, k: int) -> Path:
    """Where the finished repeats of one K are kept until its rows are written."""
    return output.with_name(f"{output.name}.k{k}.partial")


def step_result(run: StepRun, target: str) -> Result:
    """One K as an envelope."""
    result = {
        "measured": "step",
        "device": run.provenance.get("device", ""),
        "k": run.k,
        "times_s": list(run.times_s),
        "mean_s": run.mean_s,
        "spread": run.spread,
        "setup_s": run.setup_s,
        "quality": run.quality,
        "regime": run.regime,
        "global_batch": run.global_batch,
        "workload": run.workload,
        "workload_hash": run.workload_hash,
        "provenance": run.provenance,
    }
    return Result("measurement", {"target": target}, result)
