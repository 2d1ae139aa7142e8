"""Refit the shipped beliefs, validate them, and write again every file that shows a fitted number: `make fit`.

    python validation/refit.py [--list] [--again] [--only STEP ...] [--pages PYTHON]

The steps run in order, each a script that can be run alone. A step that finished is left out the next time as long as the files
that it reads and writes are unchanged, so that an interrupted run continues where it stopped; `--again` runs all of them. The
record of finished steps and of their times is in `build/fit.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "build" / "fit.json"
MEASURED = ("validation/measured/*.csv", "perfmodel/validate/*.csv", "hardware_specs/**/*.yaml")
#: Packages whose code moves a fitted number or a prediction.
MODEL = tuple(
    f"perfmodel/{room}/**/*.py"
    for room in ("physics", "specs", "workloads", "beliefs", "training", "serving", "calibrate", "validate")
)
PRIORS = "perfmodel/priors/*"
ANSWERS = ("perfmodel/**/*.py", PRIORS, "examples/**/*.yaml", "examples/**/*.csv")


@dataclass(frozen=True)
class Step:
    """One script: what it reads, what it writes (patterns below the project), and why it runs."""

    name: str
    says: str
    command: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class Finished(TypedDict):
    """What the record keeps of a step."""

    reads: str
    writes: str
    seconds: float


def steps(python: str, pages_python: str, root: Path = ROOT) -> list[Step]:
    """All steps in order; the fit of serving where the project has one.

    Each fit reads its own measurements; whatever follows reads the fitted files.
    """
    validation = "validation/{}.py"
    found = [
        Step(
            "collectives", "latency and bandwidth of links, from sweeps of collectives",
            (python, validation.format("fit_collectives")), (*MODEL, *MEASURED),
            ("perfmodel/priors/collectives.yaml", "perfmodel/priors/collective_folds.yaml"),
        ),
        Step(
            "training", "coefficients of the training step, with every fold left out",
            (python, validation.format("fit_priors")), (*MODEL, *MEASURED, "perfmodel/priors/collectives.yaml"),
            ("perfmodel/priors/step.yaml", "perfmodel/priors/folds.yaml"),
        ),
    ]  # fmt: skip
    if (root / "validation" / "fit_serving.py").exists():
        found.append(
            Step(
                "serving", "coefficients of a replica that serves",
                (python, validation.format("fit_serving")),
                (*MODEL, "validation/measured/serving/*.csv", "hardware_specs/**/*.yaml"), ("perfmodel/priors/serving*",),
            )
        )  # fmt: skip
    shown = (*MODEL, *MEASURED, PRIORS)
    found += [
        Step(
            "validation", "predictions against every measured run",
            (python, validation.format("report")), shown,
            ("validation/REPORT.md", "validation/report.html", "validation/headline.json"),
        ),
        Step(
            "layouts", "order of measured layouts", (python, validation.format("layouts")), shown, ("docs/layouts.md",),
        ),
        Step(
            "audit", "power and false alarms of the audit",
            (python, validation.format("audit_power")), (*shown, "perfmodel/decide/**/*.py"), ("docs/audit-power.md",),
        ),
        Step(
            "repricing", "optimum under other prices",
            (python, validation.format("repricing")), (*shown, "perfmodel/decide/**/*.py"), ("docs/repricing.md",),
        ),
        Step(
            "baseline", "baseline of the example of a gate",
            (python, "-m", "perfmodel", "check", "examples/ci/perfmodel.yaml", "--update-baseline"), ANSWERS,
            ("examples/ci/perfmodel.lock.json",),
        ),
        Step(
            "pages", "output shown in README, docs and notebooks",
            (pages_python, "docs/refresh_readme.py"), (*ANSWERS, "docs/**/*.md", "README.md"),
            ("README.md", "docs/**/*.md", "examples/notebooks/*.ipynb"),
        ),
    ]  # fmt: skip
    return found


def matched(patterns: Sequence[str], root: Path) -> set[Path]:
    """Files below the project that the patterns match."""
    return {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}


def digest(paths: set[Path], root: Path) -> str:
    """SHA-256 over names and contents of files."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.relative_to(root).as_posix().encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def state(step: Step, root: Path) -> tuple[str, str]:
    """Digests of what a step reads and of what it writes; a file that it does both with counts as written."""
    writes = matched(step.writes, root)
    return digest(matched(step.reads, root) - writes, root), digest(writes, root)


def is_current(step: Step, record: dict[str, Finished], root: Path = ROOT) -> bool:
    """Whether the step finished with the files as they are now."""
    last = record.get(step.name)
    return last is not None and (last["reads"], last["writes"]) == state(step, root)


def run(chosen: Sequence[Step], again: bool = False, root: Path = ROOT, record_file: Path = RECORD) -> int:
    """Run what is not current, in order; the exit code of the first that fails."""
    record: dict[str, Finished] = {}
    if record_file.exists():
        record = json.loads(record_file.read_text(encoding="utf-8"))
    for number, step in enumerate(chosen, 1):
        label = f"[{number}/{len(chosen)}] {step.name}"
        if not again and is_current(step, record, root):
            print(f"{label}: unchanged, left out", file=sys.stderr)
            continue
        last = record.pop(step.name, None)
        expected = f", took {last['seconds'] / 60.0:.1f} min last time" if last else ""
        print(f"{label}: {step.says}{expected}", file=sys.stderr, flush=True)
        started = time.monotonic()
        reads, _ = state(step, root)  # before it runs: a file that changes meanwhile makes the step run again
        code = subprocess.run(step.command, cwd=root, check=False).returncode
        if code:
            print(
                f"{label}: failed with {code}; `make fit` continues here once it is mended", file=sys.stderr
            )
            return code
        record[step.name] = {
            "reads": reads,
            "writes": state(step, root)[1],
            "seconds": round(time.monotonic() - started, 1),
        }
        record_file.parent.mkdir(parents=True, exist_ok=True)
        record_file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the steps and whether each is current")
    parser.add_argument("--again", action="store_true", help="run every step, also those that are current")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="run these steps alone")
    parser.add_argument(
        "--pages", default=sys.executable, help="Python that has the tools of the documentation"
    )
    given = parser.parse_args()
    known = steps(sys.executable, given.pages)
    unknown = sorted(set(given.only or ()) - {step.name for step in known})
    if unknown:
        parser.error(f"no step {', '.join(unknown)}; the steps are {', '.join(step.name for step in known)}")
    chosen = [step for step in known if not given.only or step.name in given.only]
    if given.list:
        record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        for step in chosen:
            print(f"{step.name:12} {'current' if is_current(step, record) else 'to run ':7}  {step.says}")
        return 0
    return run(chosen, given.again)


if __name__ == "__main__":
    sys.exit(main())
