"""Renderings of a `check` envelope for machines that watch a repository: JUnit, SARIF, GitHub, pull requests."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.errors import Problem
from perfmodel.report.ci import github, junit, pr_comment, sarif
from perfmodel.report.model import Envelope

FORMATS = ("md", "junit", "sarif", "github")


def render(envelope: Envelope, format: str) -> str:
    """The envelope in one of `FORMATS`."""
    renderers = {
        "md": pr_comment.render,
        "junit": junit.render,
        "sarif": sarif.render,
        "github": github.render,
    }
    return renderers[format](envelope)


def render_problems(problems: Sequence[Problem], format: str, version: str) -> str | None:
    """Inputs that cannot be read, in a format that shows them at their line; None where it has no such form."""
    if format == "junit":
        return junit.render_problems(problems)
    if format == "sarif":
        return sarif.render_problems(problems, version)
    return github.render_problems(problems) if format == "github" else None
