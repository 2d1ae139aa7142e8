"""Groups of flags: one by one on the command line, whole in the verb."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from perfmodel.cli.groups import JobFlags, ResultFlags, expanded
from perfmodel.cli.options import JobFile


def verb(
    job: JobFile = None,
    *,
    flags: JobFlags,
    depth: Annotated[int, typer.Option(min=1)] = 3,
    to: ResultFlags,
) -> None:
    """A verb."""
    typer.echo(f"{job} {flags.workload} {flags.set_} {depth} {to.seed} {to.quiet}")


def test_a_verb_shows_the_flags_of_its_groups_where_the_group_stands() -> None:
    shown = list(inspect.signature(expanded(verb)).parameters)
    groups = [[f.name for f in fields(kind)] for kind in (JobFlags, ResultFlags)]
    assert shown == ["job", *groups[0], "depth", *groups[1]]


def test_a_verb_gets_its_groups_whole_and_the_rest_as_it_was() -> None:
    app = typer.Typer()
    app.command()(expanded(verb))
    run = CliRunner().invoke
    assert run(app, []).output == "None None None 3 0 False\n"
    given = [
        "a.yaml",
        "-w",
        "resnet50",
        "--set",
        "a=1",
        "--set",
        "b=2",
        "--depth",
        "5",
        "--seed",
        "7",
        "--quiet",
    ]
    assert run(app, given).output == "a.yaml resnet50 ['a=1', 'b=2'] 5 7 True\n"
    assert run(app, ["--depth", "0"]).exit_code == 2


def test_a_verb_may_do_without_a_flag() -> None:
    app = typer.Typer()
    app.command()(expanded(verb, without={"workload"}))
    run = CliRunner().invoke
    assert run(app, ["--set", "a=1"]).output == "None None ['a=1'] 3 0 False\n"
    assert run(app, ["-w", "resnet50"]).exit_code == 2


def test_job_from_flags() -> None:
    job = JobFlags(
        workload="llama3-8b",
        cluster="dgx-h100",
        k="8..32",
        layout="tp=2",
        seq_len=4096,
        set_=["price.fixed=3 USD/h"],
    ).job(None)
    assert (job.k, job.seq_len) == ((8, 16, 32), 4096)
    assert job.price.fixed == pytest.approx(3 / 3600)


LOOKS = {"k": "1..8", "beliefs": Path("b.json"), "specs": [Path()]}


@pytest.mark.parametrize("name", [f.name for f in fields(JobFlags) if f.name not in {*LOOKS, "set_"}])
def test_what_changes_a_job_is_told_from_what_only_looks_at_it(name: str) -> None:
    assert not JobFlags(**LOOKS, set_=["a=1"]).changes
    flags = JobFlags(**LOOKS, **{name: "x"})
    assert flags.changes
    assert flags.unchanged() == JobFlags(**LOOKS)
