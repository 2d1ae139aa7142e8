"""Each honesty check fires on its case and stays silent otherwise; the six rows of the checklist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfmodel.study.options import StudyOptions
from perfmodel.study.rubric import study
from perfmodel.study.table import parse_timings


def codes(text: str, **options: Any) -> set[str]:
    result = study(parse_timings(text), StudyOptions(**options)).result
    return {item["code"] for item in result["honesty"]}


def honest(repeats: int = 4, extra: str = "", cells: str = "") -> str:
    rng = np.random.default_rng(4)
    rows = [f"k,time_s{extra}"]
    for k in (1, 2, 4, 8, 16):
        for _ in range(repeats):
            time = (1 / k + 0.02 * np.log2(k)) * (1 + 0.01 * rng.standard_normal())
            rows.append(f"{k},{time:.6f}{cells.format(k=k)}")
    return "\n".join(rows) + "\n"


def test_an_honest_table_raises_nothing():
    assert codes(honest(), regime="strong") == set()


def test_missing_regime():
    assert codes(honest()) == {"missing_regime"}


FLAT = "k,time_s\n1,100\n2,102\n4,104\n8,110\n"


@pytest.mark.parametrize(
    ("text", "is_weak"),
    [
        (FLAT, True),
        (honest(extra=",global_batch", cells=",{k}00"), False),  # read as weak
        (FLAT.replace("\n", ",512\n").replace("time_s,512", "time_s,global_batch"), False),
        ("k,time_s\n1,100\n2,102\n", False),
    ],
)
def test_a_regime_that_nobody_stated_is_doubted_where_batches_or_times_speak_against_it(text, is_weak):
    result = study(parse_timings(text)).result
    assert ("looks_weak" in codes(text)) == result["regime_in_doubt"] == is_weak
    assert result["verdict"].startswith("If this is strong scaling, which it does not look like: ") == is_weak
    assert not codes(text, regime="strong") & {"looks_weak", "missing_regime"}


def test_superlinear_points_question_the_baseline():
    assert "superlinear" in codes("k,time_s\n1,10\n2,4.5\n4,2.6\n8,1.6\n")
    result = study(parse_timings("k,time_s\n1,10\n2,4.5\n4,2.6\n8,1.6\n")).result
    finding = next(item for item in result["honesty"] if item["code"] == "superlinear")
    assert finding["k"] == (2,)
    assert "baseline" in finding["advice"]
    assert result["checklist"][0]["ok"] is False


def test_superlinear_within_the_interval_is_noise():
    noisy = "k,time_s\n" + "".join(f"1,{t}\n2,{t / 2.02}\n" for t in (9.5, 10, 10.5, 10.2))
    assert "superlinear" not in codes(noisy)


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_too_good_to_be_true(factor):
    rows = "".join(f"{k},{(factor if k > 1 else 1) * 64 / k}\n" for k in (1, 2, 4, 8, 16, 32))
    assert "too_straight" in codes("k,time_s\n" + rows)


def test_the_same_loss_at_every_k_is_suspicious_too():
    rows = "".join(f"{k},{(1.18 if k > 1 else 1) * 64 / k}\n" for k in (1, 2, 4, 8, 16, 32))
    assert "too_straight" in codes("k,time_s\n" + rows)


def test_a_short_straight_range_is_no_accusation():
    assert "too_straight" not in codes("k,time_s\n1,8\n2,4\n4,2\n")


def test_batch_that_grows_in_a_strong_study():
    grown = honest(extra=",global_batch", cells=",{k}00")
    result = study(parse_timings(grown), StudyOptions(regime="strong")).result
    finding = next(item for item in result["honesty"] if item["code"] == "batch_grows")
    assert "this is a weak study" in finding["message"]
    assert result["checklist"][1]["ok"] is False
    assert "batch_grows" not in codes(grown, regime="weak")


def test_batch_per_worker_must_be_fixed_in_a_weak_study():
    fixed = honest(extra=",global_batch", cells=",512")
    assert "batch_per_worker" in codes(fixed, regime="weak")
    assert codes(fixed, regime="strong") == set()


def test_repeats():
    assert "no_repeats" in codes(honest(repeats=1))
    assert "single_baseline" in codes("k,time_s\n1,10\n2,5.1\n2,5.2\n4,2.9\n4,3\n")
    assert "single_runs" in codes("k,time_s\n1,10\n1,10.1\n2,5.1\n2,5.2\n4,2.9\n")
    assert "identical_repeats" in codes("k,time_s\n1,10\n1,10\n2,5.1\n2,5.2\n")


def test_one_run_apart_from_others_that_agree():
    found = study(
        parse_timings("k,time_s\n1,100\n1,101\n1,99\n4,27.5\n4,27.9\n4,40.2\n"), StudyOptions()
    ).result
    (item,) = [item for item in found["honesty"] if item["code"] == "outlying_run"]
    assert item["k"] == (4,)
    assert "40.2 s" in item["message"]
    assert "27.9 s" in item["message"]
    assert "outlying_run" not in codes("k,time_s\n1,100\n1,130\n1,75\n4,27\n")


def test_a_bend_between_distant_k_asks_for_one_between():
    rows = "k,time_s\n1,100\n2,51\n4,28\n16,10\n"
    found = study(parse_timings(rows), StudyOptions()).result["honesty"]
    assert [item["advice"] for item in found if item["code"] == "coarse_bend"] == ["time K = 8 to place it"]
    assert "coarse_bend" not in codes(rows.replace("16,10", "8,20"))


def test_unused_columns_are_named():
    assert "ignored_columns" in codes(honest(extra=",colour", cells=",red"))


def test_checklist_all_green():
    text = honest(extra=",quality,price_usd_per_h,global_batch,setup_s", cells=",0.9,{k},256,3")
    rows = study(parse_timings(text), StudyOptions(regime="strong")).result["checklist"]
    assert [row["ok"] for row in rows] == [True] * 9


def test_checklist_all_red():
    rows = study(parse_timings("k,time_s\n8,3\n")).result["checklist"]
    assert [row["ok"] for row in rows] == [False] * 9
    assert all(row["note"] for row in rows)
