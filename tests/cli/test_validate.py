"""`perfmodel validate` on another folder, and on a broken one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MEASURED = Path(__file__).resolve().parent.parent.parent / "validation" / "measured"


Run = Callable[..., subprocess.CompletedProcess[str]]


def subset(folder: Path) -> Path:
    """Families of one source, with the whole list of workloads and no collectives."""
    for name, keep in (("families.csv", 2), ("points.csv", 0)):
        lines = (MEASURED / name).read_text(encoding="utf-8").splitlines(keepends=True)
        chosen = [line for line in lines[1:] if (",mxnet," in line if keep else line.startswith("mxnet-"))]
        (folder / name).write_text(
            lines[0] + "".join(line for line in chosen if line.startswith("mxnet-")), encoding="utf-8"
        )
    (folder / "workloads.csv").write_text(
        (MEASURED / "workloads.csv").read_text(encoding="utf-8"), encoding="utf-8"
    )
    return folder


def test_another_folder_is_scored_with_the_shipped_priors(run: Run, tmp_path: Path) -> None:
    done = run("validate", "--data", str(subset(tmp_path)), "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    keys = {
        "families",
        "points",
        "median_ape",
        "mean_ape",
        "p90_ape",
        "bias",
        "coverage_90",
        "band_width_median",
        "knee_within_factor_2",
        "by",
        "baselines",
    }
    for mode in ("datasheet", "one_node", "two_point"):
        assert keys <= set(result["modes"][mode])
        assert result["modes"][mode]["families"] == 3
    assert {"kind", "accelerator", "source"} <= set(result["modes"]["datasheet"]["by"])
    assert result["collectives"]["points"] == 0


def test_the_table_of_a_process_of_its_own_fits_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perfmodel", "validate", "--data", str(subset(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_points_kept_out_by_their_grade_are_counted_and_the_title_says_what_the_beliefs_saw(
    run: Run, tmp_path: Path
) -> None:
    points = subset(tmp_path) / "points.csv"
    lines = points.read_text(encoding="utf-8").splitlines(keepends=True)
    grade = lines[0].split(",").index("grade")
    cells = lines[1].split(",")
    cells[grade] = "C"
    points.write_text("".join([lines[0], ",".join(cells), *lines[2:]]), encoding="utf-8")
    done = run("validate", "--data", str(tmp_path))
    assert "note: 1 point not scored: grade C" in done.stdout
    assert "with the shipped beliefs as they are" in " ".join(done.stdout.split())
    crossing = [line.split()[:2] for line in done.stdout.splitlines() if " crossing " in line]
    assert ["one", "node"] in crossing
    assert not any(
        words[0] == "datasheet" for words in crossing
    )  # nothing was calibrated: nothing is crossed


def test_words_that_say_nothing_to_the_model_are_named(run: Run, tmp_path: Path) -> None:
    folder = subset(tmp_path)
    as_it_is = " ".join(run("validate", "--data", str(folder)).stdout.split())
    families = folder / "families.csv"
    text = families.read_text(encoding="utf-8").replace(",mxnet,", ",frobnicator,").replace(",weak,", ",odd,")
    families.write_text(text, encoding="utf-8")
    said = " ".join(run("validate", "--data", str(folder)).stdout.split())
    assert (
        '3 families of unknown framework_class "frobnicator": predicted by what all frameworks share' in said
    )
    assert 'of unknown regime "odd"' in said
    assert "of unknown" not in as_it_is


def test_a_folder_of_which_nothing_can_be_scored_is_refused_with_every_reason(
    run: Run, tmp_path: Path
) -> None:
    families = subset(tmp_path) / "families.csv"
    lines = families.read_text(encoding="utf-8").splitlines(keepends=True)
    column = lines[0].split(",").index("accelerator")
    known = lines[1].split(",")[column]
    families.write_text("".join(lines).replace(f",{known},", ",abacus-1,"), encoding="utf-8")
    done = run("validate", "--data", str(tmp_path), "--format", "json")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path}: error[D008]: nothing was scored" in done.stderr
    assert 'families.csv:2: 3 families: accelerator "abacus-1" is not in the catalogue' in done.stderr


def test_a_lone_point_without_a_batch_says_what_each_mode_lacks(run: Run, tmp_path: Path) -> None:
    points = subset(tmp_path) / "points.csv"
    head, first, *_ = points.read_text(encoding="utf-8").splitlines(keepends=True)
    cells = first.split(",")
    for name in ("global_batch", "micro_batch", "accumulation"):
        cells[head.split(",").index(name)] = ""
    points.write_text(head + ",".join(cells), encoding="utf-8")
    done = run("validate", "--data", str(tmp_path))
    assert done.returncode == 2
    assert "mode datasheet: 1 family: no batch stated" in done.stderr
    assert "mode two_point: 1 family: fewer than three values of K" in done.stderr
    assert "families.csv:3: 2 families: no points of grade A or B" in done.stderr
    assert done.stdout == ""


def test_a_broken_folder_is_refused(run: Run, tmp_path: Path) -> None:
    done = run("validate", "--data", str(tmp_path))
    assert done.returncode == 2
    assert "families.csv" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", [("--refit",), ("--scheme", "group"), ("--scheme", "source")])
def test_what_is_fitted_again_or_left_out_is_of_the_shipped_corpus(
    run: Run, tmp_path: Path, option: tuple[str, ...]
) -> None:
    done = run("validate", "--data", str(subset(tmp_path)), *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error[U016]: {option[0]} applies to the shipped corpus, and --data names another" in done.stderr
