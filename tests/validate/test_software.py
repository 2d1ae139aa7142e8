"""Facts of the software that a source, a family or one of its points states."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.stack import Stack
from perfmodel.validate.corpus import read_corpus
from perfmodel.validate.jobs import Jobs

FAMILIES = """family,source,workload,precision,accelerator,accelerators_per_node,framework_class,sharding,stack
told,old,gpt2-xl,bf16,h100-sxm5-80gb,8,pytorch_eager,ddp,{}
untold,old,gpt2-xl,bf16,h100-sxm5-80gb,8,pytorch_eager,ddp,
"""
POINTS = """family,k,global_batch,seq_len,step_s,sharding,stack
told,1,8,1024,1.0,,
told,8,64,1024,1.1,fsdp,{}
untold,1,8,1024,1.0,,
"""
SOURCES = "source,address,stack\nold,example.org,date=2021-08\n"


def corpus(folder: Path, family: str = "", point: str = "") -> Path:
    (folder / "families.csv").write_text(FAMILIES.format(family))
    (folder / "points.csv").write_text(POINTS.format(point))
    (folder / "sources.csv").write_text(SOURCES)
    (folder / "workloads.csv").write_text("workload,kind\n")
    return folder


def test_a_point_wins_over_its_family_and_that_over_its_source(tmp_path: Path) -> None:
    read = read_corpus(corpus(tmp_path, "date=2024-10;attention=flash2", "attention=unfused; compiled=true"))
    jobs = Jobs(Catalog.default())
    workload = Catalog.default().get("workloads", "gpt2-xl")
    first, second, other = (jobs.job(read.families[p.text["family"]], p, workload) for p in read.points)
    stacks = [job.stack or Stack() for job in (first, second, other)]
    assert [one.date for one in stacks] == ["2024-10", "2024-10", "2021-08"]
    assert [one.attention for one in stacks] == ["flash2", "unfused", None]
    assert [one.compiled for one in stacks] == [None, True, None]
    assert [job.layout.sharding for job in (first, second)] == ["ddp", "fsdp"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("flash2", 'stack: "flash2" is no key=value'),
        ("date=2021-08;date=2022", "stack: date stands twice"),
        ("date=yesterday", "stack: date: not a date: yesterday"),
        ("kernel=flash2", "stack: kernel: unknown key"),
        ("attention=flash9", 'stack: attention: "flash9" is not a choice here'),
        ("compiled=maybe", "stack: compiled"),
    ],
)
def test_a_wrong_fact_is_named_with_its_line(tmp_path: Path, cell: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_corpus(corpus(tmp_path, point=cell))
    (problem,) = caught.value.problems
    assert problem.message.startswith(words)
    assert (Path(str(problem.file)).name, problem.line, problem.column) == ("points.csv", 3, 25)


def test_a_wrong_sharding_of_a_point_is_refused(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    points = (folder / "points.csv").read_text().replace("fsdp", "fsdq")
    (folder / "points.csv").write_text(points)
    with pytest.raises(SpecError, match='sharding "fsdq" is not known'):
        read_corpus(folder)
