"""Collective timings of a folder: what is refused, what is listed, and the catalogue on which the rest is predicted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.validate.corpus import FAMILY_COLUMNS, POINT_COLUMNS, read_corpus
from perfmodel.validate.validation import validate


def folder_of(parent: Path, collectives: str) -> Path:
    """A folder of collectives and no runs."""
    folder = parent / "d"
    folder.mkdir()
    (folder / "families.csv").write_text(",".join(FAMILY_COLUMNS) + "\n")
    (folder / "points.csv").write_text(",".join(POINT_COLUMNS) + "\n")
    (folder / "workloads.csv").write_text("workload,kind\n")
    (folder / "collectives.csv").write_text(collectives)
    return folder


SWEEPS = "sweep,op,ranks,nodes,bytes,time_s\n"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a,all_reduce,,1,1048576,5e-5", "ranks is blank"),
        (",,8,1,,", "sweep, op, bytes, time_s is blank"),
        ("a,all_reduce,1,1,1048576,5e-5", "ranks is 1: one rank exchanges nothing"),
        ("a,all_reduce,8.5,1,1048576,5e-5", 'ranks is "8.5": not a positive whole number'),
        ("a,all_reduce,8,9,1048576,5e-5", "nodes is more than ranks"),
        ("a,al_reduce,8,1,1048576,5e-5", 'op "al_reduce" is not known; did you mean "all_reduce"?'),
        ("a,frobnicate,8,1,1048576,5e-5", 'op "frobnicate" is not known'),
        ("a,all_reduce,8,1,1048576,1e-9", "a call of 1e-09 s"),
        ("a,all_reduce,8,1,1e9,1e-6", "a rate of 1e+15 B/s"),
        ("a,all_reduce,8,1,1e15,1", "a message of 1e+15 bytes"),
    ],
)
def test_a_collective_timing_that_cannot_be_is_refused(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_corpus(folder_of(tmp_path, SWEEPS + row + "\n"))
    (problem,) = caught.value.problems
    assert (Path(str(problem.file)).name, problem.line, problem.message) == ("collectives.csv", 2, said)


WIRED_SWEEPS = "sweep,op,accelerator,scale_up,scale_out,ranks,nodes,bytes,time_s\n"


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        ("abacus-1,,", 'accelerator "abacus-1" is not in the catalogue'),
        (
            "h100-sxm5-80gb,nvswich-3,",
            'link "nvswich-3" is not in the catalogue; did you mean "nvswitch-3"?',
        ),
        ("h100-sxm5-80gb,nvswitch-3,nope", 'link "nope" is not in the catalogue'),
    ],
)
def test_a_sweep_on_unknown_hardware_is_listed_and_not_scored(
    tmp_path: Path, hardware: str, reason: str
) -> None:
    rows = [f"a,all_reduce,{hardware},8,1,{2**power},5e-5\n" for power in (20, 21)]
    known = "b,all_reduce,h100-sxm5-80gb,nvswitch-3,,8,1,1048576,5e-5\n"
    folder = folder_of(tmp_path, WIRED_SWEEPS + "".join(rows) + known)
    result = validate(folder, modes=()).result
    assert result["unresolved"] == [
        {"sweep": "a", "reason": f"collectives: {reason}", "place": "collectives.csv:2"}
    ]
    assert result["collectives"]["points"] == 1


def test_a_sweep_of_which_no_hardware_is_stated_is_scored(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, SWEEPS + "a,all_reduce,8,1,1048576,5e-5\n")
    result = validate(folder, modes=()).result
    assert result["unresolved"] == []
    assert result["collectives"]["points"] == 1


def test_collectives_are_predicted_on_the_catalogue_that_is_passed(tmp_path: Path) -> None:
    """A link of another rate under the same name: large messages are predicted otherwise."""
    row = "b,all_reduce,h100-sxm5-80gb,nvswitch-3,,8,1,1073741824,5e-3\n"
    folder = folder_of(tmp_path, WIRED_SWEEPS + row)
    shipped = Catalog.default()
    path = shipped.path("links", "nvswitch-3")
    assert path is not None
    slow = tmp_path / "specs" / "links" / path.name
    slow.parent.mkdir(parents=True)
    slow.write_text(re.sub(r"bandwidth: .*", "bandwidth: 1 GB/s", path.read_text(encoding="utf-8")))
    own = Catalog.default([tmp_path / "specs"])
    errors = [
        validate(folder, modes=(), catalog=c).result["collectives"]["median_ape"] for c in (shipped, own)
    ]
    assert errors[1] > 10 * errors[0]
