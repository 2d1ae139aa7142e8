"""`--timeline FILE` and `--against TRACE` of predict and explain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.options import check_folder, write_text
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.results.envelope import Result
    from perfmodel.training.curve import Curve

TimelineOption = Annotated[
    Path | None,
    typer.Option(
        "--timeline",
        metavar="FILE.json",
        help="Write the step at the one K as a trace for Perfetto or Chrome.",
    ),
]
AgainstOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--against",
        metavar="TRACE",
        help="Put a step of this profiler trace beside it in the timeline. Repeatable.",
    ),
]


def check_timeline(
    timeline: Path | None, against: Sequence[Path] | None, k: Sequence[int], others: Sequence[Path | None]
) -> None:
    """Refuse what no timeline can be written of, before anything is."""
    if timeline is None:
        if against:
            raise UsageError("--against goes with --timeline", code="U044", help="add --timeline step.json")
        return
    if len(k) != 1:
        raise UsageError("--timeline shows one K", code="U016", help=f"add --k {k[-1]}")
    if timeline.suffix.lower() != ".json":
        raise UsageError(
            f"--timeline: cannot write {timeline.name}",
            code="U013",
            help="the trace is JSON: end the name in .json",
        )
    check_folder(timeline)
    if timeline.absolute() in {path.absolute() for path in others if path is not None}:
        raise UsageError("--timeline and the other outputs must be different files", code="U014")


def measured_steps(against: Sequence[Path] | None) -> list[dict[str, object]]:
    """The steps of traces, read before anything is written."""
    if not against:
        return []
    from dataclasses import asdict

    from perfmodel.readings.one_step import read_one_step

    found = []
    for path in against:
        step = read_one_step(path)
        events = [asdict(event) for event in step.events]
        found.append({"name": f"{path.name}, step {step.number}", "time_s": step.time_s, "events": events})
    return found


def write_timeline(
    path: Path, curve: Curve, result: Result, measured: Sequence[dict[str, object]], quiet: bool
) -> None:
    """The step of a curve's one K as a trace."""
    from perfmodel.explain.timeline import timeline
    from perfmodel.report.trace_events import document
    from perfmodel.results.envelope import __version__

    if not curve.feasible[0]:
        raise UsageError(
            f"--timeline: K = {int(curve.k[0])} is not feasible: {curve.reasons[0]}", code="U043"
        )
    made = timeline(curve)
    about = {
        "written by": f"perfmodel {__version__}",
        "job": str(result.inputs.get("name", "")),
        "accelerators": str(int(curve.k[0])),
        "step_s": f"{made.time_s:.9g}",
        "micro_batches": str(made.micro_batches),
        "micro_batches_drawn": str(made.drawn),
        "notes": "; ".join(made.notes),
    }
    for number, step in enumerate(measured, start=1):
        about[f"measured {number}"] = f"{step['name']}: {step['time_s']:.6g} s"
    write_text(path, document(made.mapping(), about, measured))
    if not quiet:
        typer.echo(f"wrote {path}; open it in ui.perfetto.dev", err=True)
