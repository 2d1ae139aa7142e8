"""`measure step` put together: find the function, run it in its group, add the rows to the timings file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfmodel.errors import SpecError, UsageError
from perfmodel.measure.group import Group
from perfmodel.measure.step import StepContext, StepRun, StepSettings, run_step
from perfmodel.measure.timings import Recorded, add_run, check_may_add
from perfmodel.results import Result
from perfmodel.workloads.from_torch import find_function


def measure_step(
    target: str,
    group: Group,
    settings: StepSettings,
    output: Path,
    recorded: Recorded,
    *,
    no_baseline: str | None = None,
) -> StepRun | None:
    """Measure one K and write it; the run on rank 0, None on the others."""

    def check(digest: str | None = None, workload: dict[str, Any] | None = None) -> None:
        if group.rank == 0:  # the file may be on its machine only
            check_may_add(recorded, group.world, digest, workload, no_baseline)

    check()
    build: Any = find_function(target)
    context = StepContext(group.world, group.rank, group.local_rank, group.machine.device, group.distributed)
    try:
        run = run_step(build, context, settings, barrier=group.barrier, largest=group.largest, check=check)
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
        **group.machine.versions(),
    }
    complete = StepRun(**{**vars(run), "provenance": provenance})
    add_run(output, recorded, complete, no_baseline)
    return complete


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
