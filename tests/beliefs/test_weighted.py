from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.weighted import weighted_quantile


def test_the_weight_is_taken_into_account() -> None:
    assert weighted_quantile(np.array([1.0, 2.0]), np.array([1.0, 3.0]), 0.5) == 2.0


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_rounding_of_the_shares_leads_to_no_value_beyond_the_last(q: float) -> None:
    values = np.arange(10.0)
    assert weighted_quantile(values, np.full(10, 0.1), q) == pytest.approx(max(np.ceil(10 * q) - 1, 0))
