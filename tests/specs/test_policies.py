"""Policy files: jobs by file, inline or varied; rules that know their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.errors import SpecError
from perfmodel.specs.policies import load_policies

JOB = "workload: resnet50\ncluster: dgx-a100\nglobal_batch: 4096\n"


def write(folder: Path, text: str) -> Path:
    (folder / "job.yaml").write_text(JOB)
    path = folder / "perfmodel.yaml"
    path.write_text(text)
    return path


def test_every_form(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "jobs:\n  a: job.yaml\n  b: {file: job.yaml, set: {k: 8..64, layout.recompute: full}}\n"
        "  c: {workload: resnet50, cluster: dgx-h100}\n"
        "policies:\n  - knee >= 64\n  - {expression: 'memory <= 90 %', jobs: [a, b], reason: headroom}\n"
        "undecided: fail\nbaseline: base.json\nbeliefs: mine.json\n",
    )
    gate = load_policies(path)
    assert list(gate.jobs) == ["a", "b", "c"]
    assert gate.jobs["b"].k == (8, 16, 32, 64)
    assert gate.jobs["c"].cluster.name == "dgx-h100"
    assert [rule.expression for rule in gate.rules] == ["knee >= 64", "memory <= 90 %"]
    assert gate.rules[1].policy.jobs == ("a", "b")
    assert gate.baseline == tmp_path / "base.json"
    assert gate.beliefs == tmp_path / "mine.json"
    assert gate.spec.undecided == "fail"


def test_a_list_of_jobs(tmp_path: Path) -> None:
    gate = load_policies(write(tmp_path, "jobs: [job.yaml]\npolicies: knee >= 8\n"))
    assert list(gate.jobs) == ["job"]
    assert gate.baseline == tmp_path / "perfmodel.lock.json"


@pytest.mark.parametrize(
    ("line", "column"),
    [("  - knee >= 64", 10), ("  - 'knee >= 64'", 11), ("  - {expression: knee >= 64}", 23)],
)
def test_a_rule_points_into_its_expression(tmp_path: Path, line: str, column: int) -> None:
    gate = load_policies(write(tmp_path, f"jobs: job.yaml\npolicies:\n{line}\n"))
    problem = gate.rules[0].problem("P001", "odd", offset=5)
    assert (problem.line, problem.column) == (3, column)


def test_problems_of_all_jobs_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "jobs:\n  a: nowhere.yaml\n  b: {file: job.yaml, set: {k: 0}}\n  c: 3\npolicies:\n  - {expression: x, jobs: d}\n",
    )
    with pytest.raises(SpecError) as caught:
        load_policies(path)
    assert [problem.code for problem in caught.value.problems] == ["S012", "S007", "S005", "S008"]


def test_a_changed_value_is_blamed_at_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path, "jobs:\n  a:\n    file: job.yaml\n    set: {precision: bf17}\npolicies: [knee >= 8]\n"
    )
    with pytest.raises(SpecError, match=r':4:22: error\[S011\]: "bf17" is not a choice here'):
        load_policies(path)


def test_a_folder_of_specs_that_is_not_there_is_named_at_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "jobs: [job.yaml]\npolicies: [knee >= 8]\nspecs: [mine]\n")
    with pytest.raises(SpecError, match=r":3:9: error\[S012\]: no folder"):
        load_policies(path)


def test_two_jobs_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="same name"):
        load_policies(write(tmp_path, "jobs: [job.yaml, sub/job.yaml]\n"))
