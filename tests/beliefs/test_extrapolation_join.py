"""The step model and the laws joined, the band of what comes out, and the grounds of the trust in laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.extrapolation import (
    GROUNDS,
    SIGNS,
    Asked,
    LawTrust,
    Seen,
    band_spread,
    join,
    laws_at,
    line,
    population_signs,
)

TRUST = LawTrust(crossing=0.2, familiar=0.1, reach=0.3, loss=0.5, single=0.7)


def test_model_and_laws_meet_by_their_precisions() -> None:
    """Two estimates of 0.0 and 1.0, of spreads 0.3 and 0.4; the model's doubt grows with the gap between them."""
    seen = Seen(np.array([8.0]), np.array([1.0]), np.ones(1))
    laws = replace(
        laws_at(seen, Asked(np.array([32.0]), np.ones(1), 8.0, 0.0, 0.0), TRUST),
        log_tau=np.array([1.0]), disagreement=np.array([0.2]), spread=np.array([0.4]), level=np.array([0.7]),
        grounds=np.array([[1.0], [1.5], [-0.3], [0.0], [0.0], [0.2], [0.0], [0.0]]), doubt=0.5, need=np.array([0.8]),
    )  # fmt: skip
    found = join(np.array([2.0]), np.array([0.3]), np.array([3.0]), laws)
    spread = np.hypot(0.3, 0.8 * 0.5 * 1.0)
    weight = 0.8 * spread**2 / (spread**2 + 0.4**2)
    value = (1.0 - weight) * 2.0 + weight * 3.0
    assert found.value.tolist() == pytest.approx([value])
    joined = 1.0 / np.sqrt(1.0 / spread**2 + 1.0 / 0.4**2)
    # The largest measured K lies at 3.0 - 1.0 + 0.7 on the scale of the law.
    expected = dict(zip(SIGNS, [1.0, joined, 0.8, 0.2, 1.5, 0.3, 1.0, abs(value - 2.7)], strict=True))
    assert dict(zip(SIGNS, found.signs[:, 0].tolist(), strict=True)) == pytest.approx(expected)
    # At or below the largest measured K nothing is extrapolated: no disagreement, no loss, no change.
    here = replace(laws, grounds=np.where(np.arange(8)[:, None] == 1, 0.0, laws.grounds))
    told = dict(
        zip(SIGNS, join(np.array([2.0]), np.array([0.3]), np.array([3.0]), here).signs[:, 0], strict=True)
    )
    assert [told[name] for name in ("disagreement", "reach", "loss", "change")] == [0.0] * 4


def test_a_band_is_the_root_of_the_sum_of_its_weighted_signs() -> None:
    signs = np.array([[1.0], [0.2], [0.3], [9.0]])
    assert band_spread(signs, (0.1, 2.0, 1.0)) == pytest.approx(np.sqrt(0.1**2 + 0.4**2 + 0.3**2))
    assert band_spread(signs, (0.1, 2.0, 1.0, 1e9)).tolist() == [20.0]


def test_what_nobody_measured_widens_by_the_slopes_of_its_coefficients() -> None:
    effects = np.array([[0.5, 1.0], [2.0, 0.0]])
    floor, scatter, left_open = population_signs(
        effects, np.array([0.04, 0.01]), np.array([[0.0, 0.09], [0.25, 1.0]])
    )
    assert floor.tolist() == [1.0, 1.0]
    assert scatter == pytest.approx(np.sqrt([0.25 * 0.04 + 4 * 0.01, 0.04]))
    assert left_open == pytest.approx(np.sqrt([4 * 0.25, 0.09]))


def test_a_line_keeps_its_level_or_its_slope_where_both_would_not_be_positive() -> None:
    x, at = np.array([1.0, 2.0, 4.0]), np.array([8.0])
    tau = np.array([1.2, 2.2, 4.0])

    def free(*columns: np.ndarray) -> np.ndarray:
        return np.linalg.lstsq(np.stack(columns, axis=1) / tau[:, None], np.ones(3), rcond=None)[0]

    a, b = free(np.ones(3), x)
    assert min(a, b) > 0.0
    assert line(x, tau, at) == pytest.approx([a + 8.0 * b])
    steep = np.array([0.1, 2.2, 6.0])
    slope = (x / steep).sum() / ((x / steep) ** 2).sum()
    assert line(x, steep, at) == pytest.approx([8.0 * slope])  # through the origin
    one = line(np.array([1.0]), np.array([3.0]), at)
    assert one.tolist() == pytest.approx([3.0])  # one point has no slope


def test_a_node_boundary_counts_where_no_measurement_crossed_it() -> None:
    seen = Seen(np.array([4.0, 8.0]), np.array([1.0, 1.2]), np.array([2.0, 2.0]))
    asked = Asked(np.array([4.0, 8.0, 16.0]), np.array([2.0, 3.0, 2.0]), 8.0, 1.0, 1.0)
    rows = dict(zip(GROUNDS, laws_at(seen, asked, TRUST).grounds, strict=True))
    assert rows["crosses"].tolist() == [0.0, 0.0, 1.0]
    assert rows["resized"] == pytest.approx([0.0, np.log(1.5), 0.0])
    assert rows["single"].tolist() == [0.0] * 3
    assert rows["bus"].tolist() == rows["tuned"].tolist() == [1.0] * 3
    assert (
        dict(zip(GROUNDS, laws_at(seen, replace(asked, node=4.0), TRUST).grounds, strict=True))[
            "crosses"
        ].sum()
        == 0
    )
    alone = Seen(np.array([8.0]), np.array([1.2]), np.array([2.0]))
    found = dict(zip(GROUNDS, laws_at(alone, asked, TRUST).grounds, strict=True))
    assert found["single"].tolist() == [1.0] * 3
    assert found["loss"].tolist() == [0.0] * 3
