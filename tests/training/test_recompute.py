"""A share of the forward pass that is repeated: from a job's file to time and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.cli.options import parse_layout
from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.specs.layout import Layout
from perfmodel.training.curve import curve
from perfmodel.training.setup import setup_of

CATALOG = Catalog.default()
SHARES = (0.0, 0.01, 0.049, 0.05, 0.051, 0.2, 0.49, 0.5, 0.51, 0.8, 0.99, 1.0)
JOB = """workload: {workload}
cluster: dgx-h100
global_batch: 64
k: 32..64
layout: {{{layout}, micro_batch: 1, recompute: {recompute}}}
"""


def job(folder: Path, recompute: str, workload: str = "llama3-8b", layout: str = "tp: 2"):
    path = folder / "job.yaml"
    path.write_text(JOB.format(workload=workload, layout=layout, recompute=recompute))
    return load_job(path, catalog=CATALOG)


def found(read):
    """The curve of a job as its file states it."""
    return curve(setup_of(read), shipped_beliefs(), draws=2)


@pytest.mark.parametrize(
    ("workload", "layout"),
    [
        ("llama3-8b", "tp: 2"),
        ("llama3-8b", "sharding: fsdp"),
        ("llama3-8b", "tp: 2, pp: 4, sequence_parallel: false"),
        ("mixtral-8x7b", "tp: 2, ep: 4, pp: 4"),
        ("resnet50", "sharding: ddp"),
    ],
)
def test_more_of_it_takes_no_less_time_and_no_more_memory(tmp_path: Path, workload: str, layout: str) -> None:
    curves = [found(job(tmp_path, str(share), workload, layout)) for share in SHARES]
    time = np.array([one.step.time_s for one in curves])
    memory = np.array([one.memory.total for one in curves])
    assert (np.diff(time, axis=0) > 0.0).all()
    assert (np.diff(memory, axis=0) < 0.0).all()


@pytest.mark.parametrize(
    ("share", "word"), [("0", "none"), ("1.0", "full"), ("0 %", "none"), ("100 %", "full")]
)
def test_the_ends_are_the_words(tmp_path: Path, share: str, word: str) -> None:
    assert job(tmp_path, share).layout == job(tmp_path, word).layout


def test_half_of_it_frees_half_of_what_all_of_it_frees(tmp_path: Path) -> None:
    nothing, half, everything = (found(job(tmp_path, said)).memory.total for said in ("none", "0.5", "full"))
    assert half == pytest.approx((nothing + everything) / 2.0)


def test_the_layout_shows_the_share(tmp_path: Path) -> None:
    for said, shown in (
        ("0.3", 0.3),
        ("30 %", 0.3),
        ("selective", "selective"),
        ("0.05", 0.05),
        ("full", "full"),
    ):
        assert found(job(tmp_path, said)).names[0]["recompute"] == shown


def test_attention_alone_is_another_thing_than_its_share_of_the_pass(tmp_path: Path) -> None:
    word, share = (found(job(tmp_path, said)) for said in ("selective", "0.05"))
    assert (word.time_s > share.time_s).all()


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        ("selectve", '"selectve" is not a choice here; did you mean "selective"?', "or the share of a forward pass"),
        ("1.5", "must be at most 1, got 1.5", None),
        ("-0.1", "must be at least 0, got -0.1", None),
        ("true", "true is not a choice here", "one of none, selective, full"),
        ("[0.5]", "a list is not a choice here", "one of none, selective, full"),
        (".nan", "", None),
    ],
)  # fmt: skip
def test_what_is_neither_word_nor_share_is_refused_at_its_place(
    tmp_path: Path, said: str, message: str, hint: str | None
) -> None:
    with pytest.raises(SpecError) as caught:
        job(tmp_path, said)
    (problem,) = caught.value.problems
    assert message in problem.message
    assert hint is None or hint in (problem.help or "")
    assert (problem.line, problem.column) == (
        5,
        JOB.splitlines()[4].format(layout="tp: 2", recompute="@").index("@") + 1,
    )


def test_a_layout_in_python_or_a_flag_takes_either() -> None:
    assert Layout(recompute=0.25).recompute == 0.25
    assert Layout.model_validate(parse_layout("tp=2,recompute=0.25")).recompute == 0.25
