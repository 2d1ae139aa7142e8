"""`--export FORMAT` of predict and plan: the chosen layout as a framework's configuration and launch line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.options import told_by, write_text
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.beliefs.population import Beliefs
    from perfmodel.decide.prediction import Prediction
    from perfmodel.frameworks.export.chosen import Expected
    from perfmodel.specs.jobs import Job
    from perfmodel.specs.loader import Tree

Load = Callable[[Mapping[str, "Tree"]], "Job"]
NOT_EXPRESSED = "U040"
_TRIED = 100  # layouts of one K, of which the fastest that the framework can express is written


class ExportFormat(StrEnum):
    """The frameworks whose configuration is written."""

    megatron = "megatron"
    bridge = "bridge"
    torchtitan = "torchtitan"
    deepspeed = "deepspeed"
    accelerate = "accelerate"
    maxtext = "maxtext"
    slurm = "slurm"


ExportOption = Annotated[
    ExportFormat | None,
    typer.Option(
        "--export", help="Write the layout as this framework's configuration and launch, not a table."
    ),
]


def check_flags(export: ExportFormat | None, format: object) -> None:
    """Refuse flags that exclude each other."""
    if export is not None and format is not None:
        raise UsageError(
            "--export and --format exclude each other",
            code="U042",
            help="run the verb twice, or leave one out",
        )


def job_of_framework(export: ExportFormat, load: Load) -> dict[str, Tree]:
    """The overrides that make a job one of the framework that is written."""
    from perfmodel.frameworks.export.formats import named, target_of

    job = load({})
    return _told(named(target_of(export, job), job))


def exported(
    export: ExportFormat, load: Load, chosen: Mapping[str, object], k: int, beliefs: Beliefs | None
) -> str:
    """The text for one layout at one K: the job with all of it stated is predicted, and written with that."""
    from perfmodel.decide.prediction import predict
    from perfmodel.frameworks.export.formats import complete, target_of, text_of

    at_k = _told({"k": k})
    job = load(at_k)
    first = predict(load(at_k | _told({"layout": _plain(chosen)})), beliefs, draws=0)
    assert first.curve is not None
    cuts_norms = bool(first.curve.at.sequence_parallel.max() > 0)
    stated = complete(target_of(export, job), job, chosen, cuts_norms)
    final = load(at_k | _told(stated))
    return text_of(export, final, expected_of(predict(final, beliefs, draws=0), final))


def expected_of(made: Prediction, job: Job) -> Expected:
    """What a prediction at one K says of its step."""
    from perfmodel.frameworks.export.chosen import Expected

    result = made.result
    if not result["feasible"][0]:
        raise UsageError(f"--export: K = {job.k[0]} is not feasible: {result['reason'][0]}", code="U043")
    run = result["run"]
    return Expected(
        time_s=float(result["time_s"][0]),
        low_s=float(result["time_s_low"][0]),
        high_s=float(result["time_s_high"][0]),
        memory_bytes=float(result["memory_bytes"][0]),
        memory_limit_bytes=float(result["memory_limit_bytes"]),
        run_s=float(run["time_s_high"][0]) if run is not None else None,
    )


def export_prediction(export: ExportFormat, load: Load, beliefs: Beliefs | None, quiet: bool) -> str:
    """The layout that a prediction chooses at the job's one K."""
    from perfmodel.decide.prediction import predict

    whose = job_of_framework(export, load)

    def load_as(changed: Mapping[str, Tree]) -> Job:
        return load(whose | dict(changed))

    job = load_as({})
    if len(job.k) != 1:
        raise UsageError("--export writes one K", code="U016", help=f"add --k {job.k[-1]}")
    if job.layout == "auto":
        return export_plan(export, load_as, _ranked(job, beliefs), beliefs, quiet)
    made = predict(job, beliefs, draws=0)
    expected_of(made, job)  # refuses a K that is not feasible
    return exported(export, load_as, made.result["layout"][0], job.k[0], beliefs)


def _ranked(job: Job, beliefs: Beliefs | None) -> Sequence[Mapping[str, object]]:
    """The layouts of a job at its one K, the fastest first: what a framework cannot express is passed over."""
    from perfmodel.beliefs.population import shipped_beliefs
    from perfmodel.decide.plan import run
    from perfmodel.decide.plan.planner import Request

    request = Request(objective="time", max_k=job.k[0], keep=_TRIED)
    ranked = run.plan_job([job], request, beliefs or shipped_beliefs()).result.result["candidates"]
    return [{**candidate, "cluster": None} for candidate in ranked]


def export_plan(
    export: ExportFormat,
    load: Load,
    candidates: Sequence[Mapping[str, Any]],
    beliefs: Beliefs | None,
    quiet: bool,
    *,
    clusters: bool = False,
) -> str:
    """The best candidate of a plan that the framework can express; why better ones are left out goes to stderr."""
    if not candidates:
        raise UsageError("--export: the plan has no candidate to write", code="U043")
    refused: list[UsageError] = []
    for candidate in candidates:

        def load_there(changed: Mapping[str, Tree], cluster: str | None = candidate["cluster"]) -> Job:
            there = {"cluster": told_by("--clusters", cluster)} if cluster is not None and clusters else {}
            return load(there | dict(changed))

        try:
            text = exported(export, load_there, candidate["layout"], int(candidate["k"]), beliefs)
        except UsageError as error:
            if error.problems[0].code != NOT_EXPRESSED:
                raise
            refused.append(error)
            continue
        if refused and not quiet:
            typer.echo(
                f"rank {candidate['rank']} of the search is written, for of rank 1 "
                f"{refused[0].problems[0].message.removeprefix('--export: ')}",
                err=True,
            )
        return text
    raise refused[0]


def emit_export(text: str, output: Path | None, quiet: bool) -> None:
    """To the file of `--output`, or to standard output."""
    if output is None:
        sys.stdout.write(text)
        return
    write_text(output, text)
    if not quiet:
        typer.echo(f"wrote {output}", err=True)


def _plain(chosen: Mapping[str, object]) -> dict[str, object]:
    return {
        key: value for key, value in chosen.items() if value is not None and key not in ("dp", "accumulation")
    }


def _told(values: Mapping[str, object]) -> dict[str, Tree]:
    return {key: told_by("--export", value) for key, value in values.items()}
