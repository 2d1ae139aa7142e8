"""`perfmodel import FILE...`: a job file from the configuration of a training framework."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.groups import JobFlags, expanded
from perfmodel.cli.options import FormatOption, NoColorOption, OutputOption, QuietOption, emit_spec
from perfmodel.errors import SpecError, UsageError

if TYPE_CHECKING:
    from perfmodel.frameworks.reader import Reading
    from perfmodel.results.envelope import Result

_MOST_TOLD = 12


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("import")(expanded(import_, without={"beliefs"}))


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Launch scripts and configurations of one run, its Slurm header, the model's config.json; - is standard input.",
        ),
    ],
    *,
    flags: JobFlags,
    output: OutputOption = None,
    format: FormatOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Read the files of a training framework, write the job they describe, and ask for what they leave open.

    Nothing is run, sourced or imported. Flags answer questions: -c, -k, -w and the others of a job.
    """
    overrides = flags.overrides()
    reading = _read(files, overrides)
    job = _with(reading.assembled.plain(), overrides)
    complete = _checked(reading, overrides, tuple(flags.specs or ()))
    from perfmodel.frameworks.text import render

    result = _result(reading, job, complete)
    emit_spec(result, render(reading, job), format, output, quiet)
    if not quiet and format is None:
        _tell(reading, complete)


def _read(files: list[Path], overrides: Mapping[str, object]) -> Reading:
    from perfmodel.frameworks.document import MOST_BYTES, decoded, read_text
    from perfmodel.frameworks.job import given
    from perfmodel.frameworks.reader import read_texts

    if sum(str(path) == "-" for path in files) > 1:
        raise UsageError("standard input is named twice", code="U001", help="write - once")
    texts = []
    for path in files:
        if str(path) == "-":
            texts.append((decoded(sys.stdin.buffer.read(MOST_BYTES + 1), "-"), "-"))
        else:
            texts.append((read_text(path), str(path)))
    folders = [path.parent for path in files if str(path) != "-"]
    return read_texts(texts, given(overrides), folders)


def _with(job: dict[str, Any], overrides: Mapping[str, object]) -> dict[str, object]:
    """The job with what flags say in it."""
    from perfmodel.frameworks.job import given

    for path, value in given(overrides).items():
        parts, inside = path.split("."), job
        for part in parts[:-1]:
            if isinstance(inside.get(part), str):
                raise UsageError(
                    f"--set {path}: {part} is a name here, which has no keys",
                    help="give it as a mapping first",
                )
            inside = inside.setdefault(part, {})
        inside[parts[-1]] = value
    order = ["name", "workload", "cluster"]
    return {**{key: job[key] for key in order if key in job}, **job}


def _checked(reading: Reading, overrides: Mapping[str, object], specs: tuple[Path, ...]) -> bool:
    """Whether the job is complete; what is wrong with it is refused at the line of the configuration."""
    from perfmodel.frameworks.job import NEEDED
    from perfmodel.specs.catalog import Catalog
    from perfmodel.specs.jobs import job_from_tree

    tree = reading.assembled.tree
    missing = [key for key in NEEDED if key not in overrides and tree.get(key) is None]
    stand_in = {"workload": "llama3-8b", "cluster": "dgx-h100"}
    if (
        missing
    ):  # checked as far as it goes: a stand-in for what is missing, and only problems that it does not cause
        checked = dict(overrides) | {key: stand_in[key] for key in missing}
        checked.pop("layout", None)
    else:
        checked = dict(overrides)
    try:
        job_from_tree(tree, Path(), Catalog.default(specs), checked)
    except SpecError as error:
        if not missing:
            raise
        known = [
            item
            for item in error.problems
            if item.file is not None and item.code in ("S003", "S005", "S011", "S006", "S007")
        ]
        if known:
            raise SpecError(known) from None
    return not missing


def _result(reading: Reading, job: Mapping[str, object], complete: bool) -> Result:
    from perfmodel.results.envelope import Result

    draft = reading.draft
    result = {
        "frameworks": list(reading.frameworks),
        "job": dict(job),
        "complete": complete,
        "findings": [
            {
                "field": name,
                "value": found.value,
                "key": found.key,
                "file": found.mark.source.name,
                "line": found.mark.line,
            }
            for name, found in draft.findings.items()
            if "." not in name or name.split(".")[0] in ("layout", "stack", "world", "batch", "model")
        ],
        "not_understood": [
            {
                "key": entry.key,
                "value": str(entry.value)[:200],
                "file": entry.mark.source.name,
                "line": entry.mark.line,
            }
            for entry in draft.not_understood
        ],
        "questions": list(draft.questions),
        "ignored": draft.ignored,
        "notes": list(draft.notes),
    }
    return Result("import", {"files": [Path(name).name for name in reading.files]}, result)


def _tell(reading: Reading, complete: bool) -> None:
    draft = reading.draft
    named = ", ".join(reading.frameworks) or "launcher"
    say = [f"{named}: {len(draft.findings)} facts read, {len(draft.not_understood)} settings not understood, "
           f"{draft.ignored} that do not matter here"]  # fmt: skip
    say += [f"question: {question}" for question in draft.questions[:_MOST_TOLD]]
    if len(draft.questions) > _MOST_TOLD:
        say.append(f"and {len(draft.questions) - _MOST_TOLD} more questions, in the file")
    if not complete:
        say.append("the job is not complete: flags answer the questions, or edit the file")
    typer.echo("\n".join(say), err=True)
