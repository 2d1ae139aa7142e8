"""Bounds of what a population fit may learn."""

from __future__ import annotations

import pytest

from perfmodel.calibrate.population import LARGEST_GROWTH, LARGEST_SPREAD, TIMED_GROWTH, _largest


def test_what_is_timed_on_its_own_may_spread_less_than_what_only_steps_tell() -> None:
    assert _largest("up_step_s", 0.2) == pytest.approx(TIMED_GROWTH * 0.2)
    assert _largest("matmul", 0.1) == pytest.approx(LARGEST_GROWTH * 0.1)
    assert _largest("sync_s", 0.1) == LARGEST_SPREAD
