"""The timings file of `measure step`: CSV that `study` and `calibrate` read, with its provenance in comments.

Every K adds rows and one comment line of JSON: workload, its hash, software, device, date. A row is only ever added to
rows of the same workload, and no K comes before the baseline.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import Problem, SpecError, UsageError
from perfmodel.files import write_whole
from perfmodel.readings.measure.step import StepRun

COLUMNS = ("k", "time_s", "repeat", "global_batch", "quality", "setup_s", "workload_hash")
_MARK = "# perfmodel measure step: "


@dataclass(frozen=True)
class Recorded:
    """What a timings file already holds: rows by K, and the provenance of each run."""

    rows: tuple[dict[str, str], ...] = ()
    runs: tuple[dict[str, Any], ...] = ()

    def measured_k(self) -> set[int]:
        """The K that have rows."""
        return {int(row["k"]) for row in self.rows}


def read_recorded(path: Path) -> Recorded:
    """Read a file that `measure step` wrote; SpecError when it is something else."""
    if not path.exists():
        return Recorded()
    comments: list[dict[str, Any]] = []
    body: list[str] = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(_MARK):
                comments.append(json.loads(line.removeprefix(_MARK)))
            elif line.strip() and not line.startswith("#"):
                body.append(line)
        rows = tuple(csv.DictReader(body))
        if body and (tuple(body[0].split(",")) != COLUMNS or not comments):
            raise ValueError
        for row in rows:
            int(row["k"]), float(row["time_s"])
    except (ValueError, TypeError, UnicodeDecodeError):
        raise SpecError(
            Problem(
                str(path),
                code="M030",
                message="not a timings file of perfmodel measure step",
                help="choose another --output; rows of unknown origin are not mixed with measured ones",
            )
        ) from None
    return Recorded(rows, tuple(comments))


def check_may_add(
    recorded: Recorded, k: int, workload_hash: str | None, workload: dict[str, Any] | None, reason: str | None
) -> None:
    """Refuse rows that would mix workloads or that have no baseline. `reason` is why K=1 cannot be run."""
    if k > 1 and 1 not in recorded.measured_k() and reason is None:
        raise UsageError(
            f"no K=1 run in the file yet, and K={k} alone has nothing to be compared with",
            code="M031",
            help="run it once without torchrun first; where one device cannot hold it, say so with --no-baseline REASON",
        )
    if workload_hash is None or not recorded.runs:
        return
    known = recorded.runs[-1]
    if known.get("workload_hash") != workload_hash:
        before, now = known.get("workload", {}), workload or {}
        changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        details = (
            "; ".join(f"{key}: {before.get(key)!r} -> {now.get(key)!r}" for key in changed[:5])
            or "the regime changed"
        )
        raise UsageError(
            f"another workload than the file's ({details}): timings of different workloads are not mixed",
            code="M032",
            help="fix the workload at every K, or choose another --output",
        )


def check_same_workers(recorded: Recorded, versions: dict[str, str]) -> None:
    """Refuse rows of CPU workers with another number of threads: they are another machine, not another K."""
    before = [run["threads"] for run in recorded.runs if "threads" in run]
    if before and "threads" in versions and before[-1] != versions["threads"]:
        raise UsageError(
            f"the file's workers have {before[-1]} threads each, this run's have {versions['threads']}",
            code="M033",
            help=f"set OMP_NUM_THREADS={before[-1]} as before, or choose another --output",
        )


def add_run(path: Path, recorded: Recorded, run: StepRun, reason: str | None = None) -> None:
    """Write the file anew with this run's rows in the place of earlier ones of the same K."""
    check_may_add(recorded, run.k, run.workload_hash, run.workload, reason)
    rows = [row for row in recorded.rows if int(row["k"]) != run.k]
    for repeat, seconds in enumerate(run.times_s):
        rows.append(
            {
                "k": str(run.k),
                "time_s": f"{seconds:.9g}",
                "repeat": str(repeat),
                "global_batch": f"{run.global_batch:g}",
                "quality": "" if run.quality is None else f"{run.quality:.9g}",
                "setup_s": f"{run.setup_s:.6g}",
                "workload_hash": run.workload_hash,
            }
        )
    rows.sort(key=lambda row: (int(row["k"]), int(row["repeat"])))
    about = {
        "k": run.k,
        "regime": run.regime,
        "workload_hash": run.workload_hash,
        "workload": run.workload,
        **run.provenance,
        **({"no_baseline": reason} if reason else {}),
    }
    runs = sorted(
        [item for item in recorded.runs if item.get("k") != run.k] + [about], key=lambda item: int(item["k"])
    )
    text = io.StringIO()
    for item in runs:
        text.write(_MARK + json.dumps(item, sort_keys=True) + "\n")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode("utf-8"))
