"""The file of `perfmodel check`: jobs, and the policies that they must keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from perfmodel.errors import Problem, SpecError, did_you_mean
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.checking import build
from perfmodel.specs.fields import SpecModel
from perfmodel.specs.folders import SUFFIXES
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import any_job_from_tree, load_any_job
from perfmodel.specs.loader import Mark, Tree, read_file
from perfmodel.specs.serving import ServingJob

LOCK_NAME = "perfmodel.lock.json"


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


class Policy(SpecModel):
    """One rule: `efficiency(k=64) >= 0.7`. In a file it may stand alone as text."""

    expression: str = Field(
        description="knee >= 64, time(k=128) <= 1.2 s, change(time, k=64) <= 5 %, ...", min_length=1
    )
    jobs: Names | None = Field(None, description="Jobs that it applies to; all when missing.")
    reason: str | None = Field(None, description="Why it is there; shown when it fails.")


class JobEntry(SpecModel):
    """A job of the file: another file, with values changed."""

    file: str = Field(description="Job file, relative to this file.")
    set: dict[str, object] = Field(default_factory=dict, description="Dotted path to value, as --set does.")


class PolicyFile(SpecModel):
    """perfmodel.yaml."""

    jobs: dict[str, object] = Field(
        description="Name to a job file, an inline job, or {file: ..., set: {...}}.", min_length=1
    )
    policies: tuple[Policy, ...] = Field((), description="Rules.")
    baseline: str = Field(LOCK_NAME, description="The committed baseline, relative to this file.")
    undecided: Literal["pass", "fail"] | None = Field(
        None, description="What a band across the limit counts as."
    )
    beliefs: str | None = Field(
        None, description="Beliefs that `perfmodel calibrate` wrote, relative to this file."
    )
    specs: Names = Field((), description="Folders of your own specs, relative to this file.")


@dataclass(frozen=True)
class Rule:
    """A policy and the place where it stands."""

    policy: Policy
    mark: Mark

    @property
    def expression(self) -> str:
        return self.policy.expression

    def problem(self, code: str, message: str, offset: int = 0, help: str | None = None) -> Problem:
        """A problem inside the expression, `offset` characters from its start."""
        mark = self.mark
        line = (
            mark.source.lines[mark.line - 1]
            if mark.line is not None and mark.line <= len(mark.source.lines)
            else ""
        )
        # The expression may be quoted or stand after a key: the column of its text, where it is on one line.
        start = line.find(self.expression, (mark.column or 1) - 1)
        column = (start + 1 if start >= 0 else mark.column or 1) + (offset if start >= 0 else 0)
        return Mark(mark.source, mark.line, column).problem(code, message, help)


@dataclass(frozen=True)
class Gate:
    """A policy file with its jobs loaded."""

    path: Path
    spec: PolicyFile
    jobs: Mapping[str, Job | ServingJob]
    rules: tuple[Rule, ...]
    catalog: Catalog = field(repr=False, compare=False)

    @property
    def baseline(self) -> Path:
        """Where the committed baseline lies."""
        return self.path.parent / self.spec.baseline

    @property
    def beliefs(self) -> Path | None:
        """Where the beliefs lie, if any are named."""
        return None if self.spec.beliefs is None else self.path.parent / self.spec.beliefs


def load_policies(path: str | Path, *, extra_dirs: Iterable[str | Path] = ()) -> Gate:
    """Read a policy file and every job that it names; all problems of all of them at once."""
    path = Path(path)
    tree = _long_forms(read_file(path))
    spec = build(PolicyFile, tree)
    folders = [path.parent / folder for folder in spec.specs]
    problems = [
        tree.mark_at(f"specs.{at}").problem("S012", f"no folder {folder}", "it starts at this file's folder")
        for at, folder in enumerate(folders)
        if not folder.is_dir()
    ]
    catalog = Catalog.default([*filter(Path.is_dir, folders), *extra_dirs])
    jobs: dict[str, Job | ServingJob] = {}
    entries = tree.value["jobs"].value
    for name, entry in entries.items():
        try:
            jobs[name] = _job(name, entry, path.parent, catalog)
        except SpecError as error:
            problems.extend(error.problems)
    rules = _rules(tree, spec)
    for rule in rules:
        for name in rule.policy.jobs or ():
            if name not in entries:
                hint = f"jobs: {', '.join(entries)}"
                problems.append(
                    rule.mark.problem("S008", f'no job named "{name}"{did_you_mean(name, entries)}', hint)
                )
    if problems:
        raise SpecError(dict.fromkeys(problems))
    return Gate(path, spec, jobs, rules, catalog)


def _long_forms(tree: Tree) -> Tree:
    """`jobs: [a.yaml]` as a mapping, and policies that stand alone as text as mappings."""
    if not isinstance(tree.value, dict):
        raise SpecError(tree.mark.problem("S005", "a policy file is a mapping with jobs and policies"))
    jobs, policies = tree.get("jobs"), tree.get("policies")
    if jobs is not None and isinstance(jobs.value, str):
        jobs = Tree([jobs], jobs.mark)
    if jobs is not None and isinstance(jobs.value, list):
        named = {Path(str(item.value)).stem: item for item in jobs.value}
        if len(named) < len(jobs.value):
            raise SpecError(
                jobs.mark.problem(
                    "S002", "two jobs have the same name", "write jobs as a mapping from name to file"
                )
            )
        tree = tree.with_item(
            "jobs", Tree(named, jobs.mark, {name: item.mark for name, item in named.items()})
        )
    if policies is not None and isinstance(policies.value, str):
        policies = Tree([policies], policies.mark)
    if policies is not None and isinstance(policies.value, list):
        items = [
            Tree({"expression": item}, item.mark, {"expression": item.mark})
            if isinstance(item.value, str)
            else item
            for item in policies.value
        ]
        tree = tree.with_item("policies", Tree(items, policies.mark))
    return tree


def _job(name: str, entry: Tree, folder: Path, catalog: Catalog) -> Job | ServingJob:
    if isinstance(entry.value, str):
        return _from_file(name, entry, folder, catalog, {})
    if not isinstance(entry.value, dict):
        raise SpecError(entry.mark.problem("S005", f"job {name}: expected a file name or a mapping"))
    file = entry.get("file")
    if file is None:
        return any_job_from_tree(entry, folder, catalog, {}, default_name=name)
    build(JobEntry, entry)
    changes = entry.get("set")
    return _from_file(name, file, folder, catalog, {} if changes is None else changes.value)


def _from_file(
    name: str, file: Tree, folder: Path, catalog: Catalog, overrides: Mapping[str, object]
) -> Job | ServingJob:
    path = folder / str(file.value)
    if not path.is_file():
        hint = (
            "file names start at this file's folder"
            if str(file.value).endswith(SUFFIXES)
            else "a job is a YAML file"
        )
        raise SpecError(file.mark.problem("S012", f"job {name}: no file {path}", hint))
    return load_any_job(path, overrides=overrides, catalog=catalog)


def _rules(tree: Tree, spec: PolicyFile) -> tuple[Rule, ...]:
    written = tree.get("policies")
    items = written.value if written is not None and isinstance(written.value, list) else []
    return tuple(
        Rule(policy, item.value["expression"].mark) for policy, item in zip(spec.policies, items, strict=True)
    )
