"""What shows of an exchange: its limits, and that nothing shows less for a reason to show more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.physics.exposure import _shown

SECONDS = st.floats(1e-6, 1e3)
SHARE = st.floats(0.0, 1.0)


def shown(seconds: float, window: float, never: float) -> float:
    return float(_shown(np.asarray(seconds), np.asarray(window), np.asarray(never * seconds)))


def test_an_endless_window_hides_all_that_may_hide_and_none_hides_nothing() -> None:
    assert shown(2.0, 1e6, 0.25) == pytest.approx(0.5)
    assert shown(2.0, 0.0, 0.25) == pytest.approx(2.0)
    assert shown(0.0, 0.0, 0.25) == 0.0
    assert shown(1.0, 1.0, 0.0) == pytest.approx(1.0 - 2.0**-0.25)


@given(SECONDS, SECONDS, SHARE, SHARE)
def test_more_shows_the_more_never_hides(seconds: float, window: float, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert shown(seconds, window, less) <= shown(seconds, window, more) + 1e-12 * seconds


@given(SECONDS, SECONDS, SECONDS, SHARE)
def test_a_longer_exchange_shows_more_and_a_longer_window_less(
    one: float, other: float, third: float, never: float
) -> None:
    short, long = sorted((one, other))
    assert shown(short, third, never) <= shown(long, third, never) * (1.0 + 1e-9)
    assert shown(third, long, never) <= shown(third, short, never) * (1.0 + 1e-9)
