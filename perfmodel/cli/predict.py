"""`perfmodel predict JOB.yaml`: the scaling curve with bands, knees, p*, cost and energy."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.exporting import ExportOption, check_flags, emit_export, export_prediction
from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import BudgetOption, DeadlineOption, JobFile, told_by
from perfmodel.cli.serving import refuse_for_serving
from perfmodel.cli.timelines import (
    AgainstOption,
    TimelineOption,
    check_timeline,
    measured_steps,
    write_timeline,
)
from perfmodel.errors import EXIT_FAILED, UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("predict")(expanded(predict))


def predict(
    job: JobFile = None,
    *,
    flags: JobFlags,
    threshold: Annotated[
        float,
        typer.Option(min=0.01, max=0.99, help="Efficiency, against the smallest K, that defines the knee."),
    ] = 0.70,
    draws: Annotated[
        int, typer.Option(min=0, max=100_000, help="Draws behind the intervals of knee and p*.")
    ] = 200,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    export: ExportOption = None,
    timeline: TimelineOption = None,
    against: AgainstOption = None,
    wall_time: Annotated[
        bool,
        typer.Option(
            "--wall-time",
            help="What to ask Slurm or Kueue for: the 95 % bound of the run, instead of the curve.",
        ),
    ] = False,
    to: ResultFlags,
) -> None:
    """Predict T(K), speedup and efficiency with 90 % bands, the knee and its cause, p*, cost, energy and carbon."""
    check_flags(export, to.format)
    if wall_time and (export is not None or timeline is not None or to.plot is not None):
        raise UsageError("--wall-time goes with none of --export, --timeline and --plot", code="U042")
    changed = {
        name: told_by(f"--{name}", text)
        for name, text in (("deadline", deadline), ("budget", budget))
        if text
    }
    from perfmodel.specs.serving import ServingJob

    found = flags.any_job(job, changed=changed)
    if isinstance(found, ServingJob):
        refuse_for_serving(found.name, {"--export": export, "--timeline": timeline, "--against": against})
        from perfmodel.decide.serving.prediction import predict_serving

        return to.emit(predict_serving(found, flags.known_serving(), seed=to.seed))
    known = flags.known()
    if export is not None:
        text = export_prediction(
            export, lambda more: flags.job(job, changed=changed | dict(more)), known, to.quiet
        )
        return emit_export(text, to.output, to.quiet)
    check_timeline(timeline, against, found.k, (to.output, to.plot, to.report))
    measured = measured_steps(against)
    from perfmodel.decide.prediction import predict as predict_job

    made = predict_job(found, known, draws=draws, seed=to.seed, threshold=threshold)
    if wall_time:
        from perfmodel.decide.walltime import wall_time as request

        return to.emit(request(made))
    if timeline is not None and made.curve is not None:
        write_timeline(timeline, made.curve, made, measured, to.quiet)
    to.emit(made)
    if not any(made.result["feasible"]):
        raise typer.Exit(EXIT_FAILED)
    return None
