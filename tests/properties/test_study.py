"""Invariants of a study, whatever the timings."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import SpecError
from perfmodel.study.options import StudyOptions
from perfmodel.study.rubric import study
from perfmodel.study.table import Timings, parse_timings


@st.composite
def timings(draw, *, optional: bool = True) -> Timings:
    """Any table: some K (not always 1), some repeats, positive times; sometimes parts, quality, energy."""
    ks = draw(st.lists(st.integers(1, 4096), min_size=1, max_size=7, unique=True))
    rows = draw(st.lists(st.sampled_from(ks), min_size=len(ks), max_size=25)) + ks
    n = len(rows)
    parts = {}
    positive = st.floats(1e-3, 1e4)
    time = np.array(draw(st.lists(positive, min_size=n, max_size=n)))
    if optional and draw(st.booleans()):
        shares = np.array(draw(st.lists(st.floats(0.0, 1.0), min_size=2 * n, max_size=2 * n))).reshape(2, n)
        compute = time * (1 - shares[0])
        parts = {"compute": compute, "communication": (time - compute) * shares[1]}
        parts["idle"] = time - compute - parts["communication"]
    columns = {}
    if optional and draw(st.booleans()):
        columns["quality"] = np.array(draw(st.lists(st.floats(0.86, 0.88), min_size=n, max_size=n)))
        columns["energy_j"] = time * 300.0
    return Timings("x.csv", np.array(rows, dtype=float), time, parts, columns)


regimes = st.sampled_from(["strong", "weak", None])


@settings(max_examples=60)
@given(timings(), regimes, st.floats(0.05, 1.0))
def test_every_study_is_complete_and_consistent(table, regime, threshold):
    options = StudyOptions(regime=regime, threshold=threshold, price_usd_per_s=0.001, straggler=(1.0, 1.5))
    envelope = study(table, options).envelope()
    json.dumps(envelope, allow_nan=False)
    result = envelope["result"]
    k, speedup = np.array(result["k"]), np.array(result["speedup"])
    assert (np.diff(k) > 0).all()
    assert speedup[0] == pytest.approx(k[0])
    assert np.array(result["efficiency"]) == pytest.approx(speedup / k)
    assert sum(result["repeats"]) == table.rows
    passed = [n for n in result["k"] if n not in result["quality"]["excluded_k"]]
    if result["recommended_k"] is not None:
        index = result["k"].index(result["recommended_k"])
        assert result["efficiency"][index] >= threshold - 1e-9
        assert result["recommended_k"] in passed
        assert result["bend"]["cause"] != "undetermined"
        assert not any(
            threshold <= e <= 1.0  # above 1 the baseline is not honest
            for n, e in zip(result["k"], result["efficiency"], strict=True)
            if n > result["recommended_k"] and n in passed
        )
    assert result["cost_optimal_k"] in passed
    assert result["fastest_k"] in passed
    assert result["exchange"]["times_the_cost"] >= 1 - 1e-9
    assert result["exchange"]["times_faster"] >= 1 - 1e-9
    assert len(result["checklist"]) == 9
    assert result["verdict"].endswith(".")
    bend = result["bend"]["k"]
    assert bend == result["threshold"]["first_below_k"]


@settings(max_examples=25)
@given(timings(), st.floats(0.01, 100.0))
def test_the_unit_of_time_does_not_matter(table, scale):
    other = Timings(
        "x.csv",
        table.k,
        table.time_s * scale,
        {name: part * scale for name, part in table.parts_s.items()},
        table.columns,
    )
    one, two = study(table).result, study(other).result
    assert two["speedup"] == pytest.approx(one["speedup"])
    assert two["mean_s"] == pytest.approx(one["mean_s"] * scale)
    assert two["threshold"] == one["threshold"] or np.isclose(one["efficiency"], 0.7, atol=1e-9).any()


@settings(max_examples=25)
@given(timings(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(table, random):
    order = list(range(table.rows))
    random.shuffle(order)
    shuffled = Timings(
        "x.csv",
        table.k[order],
        table.time_s[order],
        {name: part[order] for name, part in table.parts_s.items()},
        {name: column[order] for name, column in table.columns.items()},
    )
    one, two = study(table).result, study(shuffled).result
    assert two["mean_s"] == pytest.approx(one["mean_s"])
    assert two["speedup"] == pytest.approx(one["speedup"])
    assert two["repeats"].tolist() == one["repeats"].tolist()


@settings(max_examples=25)
@given(timings(), st.floats(0.01, 1000.0), regimes)
def test_prices_scale_linearly_and_move_no_choice(table, factor, regime):
    one = study(table, StudyOptions(regime=regime, price_usd_per_s=0.002, work=50.0)).result
    two = study(table, StudyOptions(regime=regime, price_usd_per_s=0.002 * factor, work=50.0)).result
    assert two["cost_usd"] == pytest.approx(one["cost_usd"] * factor)
    assert two["work_per_usd"] == pytest.approx(one["work_per_usd"] / factor)
    assert two["fastest_k"] == one["fastest_k"]
    assert two["recommended_k"] == one["recommended_k"]
    assert two["exchange"]["times_the_cost"] == pytest.approx(one["exchange"]["times_the_cost"])
    cheapest = [list(r["k"]).index(r["cost_optimal_k"]) for r in (one, two)]
    assert one["cost_per_work"][cheapest[0]] == pytest.approx(one["cost_per_work"][cheapest[1]])


@settings(max_examples=25)
@given(timings())
def test_ledger_of_parts_adds_up_to_the_loss(table):
    result = study(table).result
    if not table.parts_s:
        return
    k, mean = result["k"], result["mean_s"]
    lost = k * mean - k[0] * mean[0]
    assert np.sum(list(result["ledger_worker_s"].values()), axis=0) == pytest.approx(
        lost, abs=1e-9 * float(np.max(k * mean))
    )


@settings(max_examples=25)
@given(timings(), st.floats(1.0, 3.0), st.floats(0.0, 2.0))
def test_a_slower_straggler_never_helps(table, low, more):
    one = study(table, StudyOptions(straggler=(low, low))).result["straggler"]
    two = study(table, StudyOptions(straggler=(low, low + more))).result["straggler"]
    assert (two["mean_s"] >= one["mean_s"] * (1 - 1e-12)).all()
    assert (two["std_s"] >= one["std_s"] * (1 - 1e-12)).all()


text_cells = st.text(alphabet='0123456789.,-+eEknaif"#\n _xs', max_size=60)


def refusal(data: str | bytes) -> SpecError | None:
    """None when the text is a table of timings that can be studied."""
    try:
        found = parse_timings(data, "f.csv")
    except SpecError as error:
        return error
    assert (found.k >= 1).all()
    assert (found.time_s > 0).all()
    study(found)
    return None


@settings(max_examples=200)
@given(st.one_of(text_cells, text_cells.map(lambda body: "k,time_s\n" + body)))
def test_any_text_is_studied_or_refused_with_a_place(text):
    error = refusal(text)
    if error is not None:
        assert error.problems
        assert all(problem.file == "f.csv" and problem.code.startswith("T") for problem in error.problems)


@settings(max_examples=100)
@given(st.binary(max_size=80))
def test_any_bytes_are_studied_or_refused(data):
    error = refusal(b"k,time_s\n" + data)
    assert error is None or str(error).startswith("f.csv:")
