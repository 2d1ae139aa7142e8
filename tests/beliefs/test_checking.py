"""Every fault of a beliefs file that was edited or written by another version, by its place."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.checking import faults
from perfmodel.beliefs.population import EFFECTS, Calibration, from_mapping, shipped_beliefs, to_mapping

N = len(EFFECTS)
POINTS = np.array([1.0, 8.0])
MADE = to_mapping(
    shipped_beliefs().calibrated(
        Calibration(
            np.full(N, 0.1), 0.01 * np.eye(N), "two_point", 2, POINTS, np.array([0.5, 0.6]), batch=np.ones(2), need=0.25
        )
    )
)  # fmt: skip


def edited(place: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(MADE)
    *way, last = place.split(".")
    here = data
    for key in way:
        here = here[key]
    here[last] = value
    return data


def test_a_file_as_it_was_written_has_no_fault_and_is_read_back() -> None:
    assert list(faults(MADE)) == []
    known = from_mapping(MADE).calibration
    assert known is not None
    assert known.need == 0.25
    assert known.k.tolist() == [1.0, 8.0]


def test_older_files_state_no_need_of_laws() -> None:
    data = copy.deepcopy(MADE)
    del data["calibration"]["need"]
    known = from_mapping(data).calibration
    assert known is not None
    assert known.need == 1.0


def test_values_keep_five_digits_behind_the_point() -> None:
    data = to_mapping(shipped_beliefs())
    entries = [
        entry for levels in data["shifts"].values() for values in levels.values() for entry in values.values()
    ]
    assert all(round(number, 5) == number for median, spread, _ in entries for number in (median, spread))


@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        ("noise", -0.1, "noise is -0.1, expected 0 to"),
        ("noise", float("nan"), "noise is not a finite number"),
        ("calibration.mode", "datasheet", "calibration.mode is datasheet"),
        ("calibration.need", 1.5, "calibration.need is 1.5, expected 0 to 1"),
        ("calibration.anchor", {"no_such": 0.1}, "calibration.anchor names what is no coefficient"),
        ("calibration.notes", "text", "calibration.notes is not a list"),
        ("calibration.k", [1.0, 8.5], "calibration.k is not whole everywhere"),
        ("calibration.k", [1.0], "are not lists of the same length"),
        ("calibration.tau", [0.0, 0.6], "calibration.tau"),
        ("calibration.points", 3, "calibration.points is 3, but calibration.k has 2"),
        ("calibration.covariance", [[1.0]], f"expected {N} by {N}"),
        ("calibration.covariance", (-np.eye(N)).tolist(), "lopsided or has a negative variance"),
        ("calibration.power", {"scale": 1.0, "spread": 0.1, "idle_w": 1.2e5, "source": "log"}, "power.idle_w"),
        ("calibration.power", {"scale": 1.0, "spread": 0.1, "idle_w": None, "source": 3}, "power.source is not text"),
    ],
)  # fmt: skip
def test_a_fault_is_named_by_its_place(place: str, value: Any, fault: str) -> None:
    found = list(faults(edited(place, value)))
    assert any(fault in line for line in found), found


def test_what_may_be_is_no_fault() -> None:
    for place, value in (
        ("calibration.anchor", {"matmul": 0.1}),
        ("calibration.k", [1, 8]),
        ("calibration.power", {"scale": 1.0, "spread": 0.1, "idle_w": 9e4, "source": "log"}),
        ("calibration.power", None),
    ):
        assert list(faults(edited(place, value))) == [], place
