"""Knees are declared by odds that are chosen on other families than those they are scored on."""

from __future__ import annotations

import numpy as np

from perfmodel.decide.knee import cautious, first_below
from perfmodel.validate.knees import (
    ALARMS,
    GRID,
    Bend,
    choose_odds,
    crossfit_odds,
    knees_in_bands,
    score_knees,
)

K = np.array([4.0, 8.0, 16.0])


def shy(family: int, *, bends: bool, half: float = 0.3) -> Bend:
    """A curve that stops just above the threshold, whether the family bends or not."""
    measured = np.array([0.9, 0.8, 0.6]) if bends else np.array([0.9, 0.85, 0.8])
    return Bend(family, K, measured, np.array([0.95, 0.9, 0.74]), np.full(3, half))


def test_even_odds_leave_the_curve_alone_and_lower_ones_bend_it_earlier() -> None:
    efficiency, half = np.array([0.95, 0.8, 0.72]), np.array([0.1, 0.2, 0.3])
    assert np.allclose(cautious(efficiency, half, 0.5), efficiency)
    firsts = [first_below(K, cautious(efficiency, half, odds)) for odds in (0.5, 0.3, 0.05)]
    assert firsts == [np.inf, 16.0, 8.0]


def test_lower_odds_are_taken_where_they_find_knees() -> None:
    families = [shy(i, bends=True) for i in range(5)]
    odds = choose_odds(families)
    assert odds < 0.5
    assert all(one.found(one.declared(odds)) for one in families)
    assert not any(one.found(one.declared(0.5)) for one in families)


def test_no_more_alarms_than_allowed() -> None:
    families = [shy(i, bends=True) for i in range(5)] + [shy(i, bends=False) for i in range(5, 25)]
    odds = choose_odds(families)
    alarms = [one for one in families[5:] if np.isfinite(one.declared(odds))]
    assert len(alarms) <= ALARMS * 20
    assert odds == GRID[0]  # every step that finds the knees alarms all straight ones too


def test_a_fold_has_no_say_in_its_own_odds() -> None:
    families = [shy(i, bends=True) for i in range(4)] + [shy(i, bends=False) for i in range(4, 40)]
    fold = {i: int(i >= 4) for i in range(40)}
    odds = crossfit_odds(families, fold)
    assert odds[0] == GRID[0]  # chosen on straight families alone: nothing to find
    assert odds[4] < GRID[0]  # chosen on bending families alone: nothing to alarm
    assert score_knees(families, odds).false_alarms == 36


def test_counts() -> None:
    families = [shy(0, bends=True), shy(1, bends=False)]
    score = score_knees(families, dict.fromkeys(range(2), 0.3))
    assert (score.bending, score.found, score.straight, score.false_alarms) == (1, 1, 1, 1)
    assert score_knees(families, dict.fromkeys(range(2), 0.5)).as_dict()["within_factor_2"] == 0.0
    assert score.at_risk == 1


def test_a_knee_holds_where_it_lies_between_the_ends_of_its_band() -> None:
    wide, narrow = shy(0, bends=True, half=0.3), shy(1, bends=True, half=0.01)
    straight = shy(2, bends=False, half=0.01)
    assert wide.band == (
        8.0,
        np.inf,
    )  # 0.95 and 0.9 fall below 0.7 with half a chance in ten at K = 8, 0.74 need not at all
    assert narrow.band == (np.inf, np.inf)
    found = knees_in_bands([wide, narrow, straight], np.array([1.0, 3.0, 4.0]))
    assert found == {
        "families": 3,
        "bending": 2,
        "inside": 5.0 / 8.0,
        "inside_bending": 0.25,
        "closed_bending": 0.0,
    }
    closed = Bend(0, K, np.array([0.9, 0.6, 0.5]), np.array([0.9, 0.65, 0.4]), np.full(3, 0.2))
    assert closed.band == (8.0, 16.0)
    assert knees_in_bands([closed], np.ones(1))["closed_bending"] == 1.0
