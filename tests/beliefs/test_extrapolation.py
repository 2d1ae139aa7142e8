"""Laws through measured points: how far they are trusted, and where they meet the step model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.extrapolation import (
    CHANCE,
    GROUNDS,
    PULL,
    SIGNS,
    Asked,
    Laws,
    LawTrust,
    Seen,
    _per_step,
    band_spread,
    join,
    laws_at,
    line,
    need_of_laws,
    population_signs,
)

TRUST = LawTrust(
    crossing=0.2,
    familiar=0.1,
    reach=0.3,
    loss=0.5,
    single=0.7,
    resized=1.1,
    disagreement=1.3,
    bus=1.7,
    tuned=1.9,
)


def test_the_spread_of_laws_is_its_equation() -> None:
    grounds = np.zeros((len(GROUNDS), 2))
    grounds[GROUNDS.index("reach")] = 1.0  # one doubling: where the growth is counted from
    assert TRUST.spread(grounds).tolist() == [0.1, 0.1]
    grounds[GROUNDS.index("crosses")] = [0.0, 1.0]
    assert TRUST.spread(grounds).tolist() == pytest.approx([0.1, 0.2])
    for name in GROUNDS[1:]:
        slope = getattr(TRUST, name)
        more = grounds.copy()
        more[GROUNDS.index(name)] += 0.25
        assert TRUST.spread(more) == pytest.approx(TRUST.spread(grounds) * np.exp(0.25 * slope)), name


def test_no_ground_overflows_a_spread() -> None:
    assert np.isfinite(TRUST.spread(np.full((len(GROUNDS), 1), 1e9))).all()


def test_a_measured_point_stands_for_itself_and_others_are_reached_by_laws() -> None:
    k = np.array([8.0, 16.0])
    seen = Seen(k, np.array([1.0, 1.1]), np.ones(2))
    asked = Asked(np.array([8.0, 16.0, 64.0]), np.ones(3), 8.0, 0.0, 0.0)
    found = laws_at(seen, asked, LawTrust(reach=0.2), need=0.4)
    assert np.exp(found.log_tau[:2]) == pytest.approx([1.0, 1.1])
    assert found.need.tolist() == [1.0, 1.0, 0.4]
    # a + b (k - 1)/k, a + b log2 k, and the constant of the largest K: their geometric mean.
    ring = line((k - 1) / k, seen.tau, np.array([63 / 64]), rising=False)
    log = line(np.log2(k), seen.tau, np.array([6.0]))
    assert log == pytest.approx([1.3])
    assert np.exp(found.log_tau[2]) == pytest.approx((1.1 * float(ring[0]) * 1.3) ** (1 / 3))
    assert found.grounds[GROUNDS.index("reach"), 2] == pytest.approx(np.sqrt(2.0))
    assert found.grounds[GROUNDS.index("loss"), 2] == pytest.approx(np.log(1.1))


def test_a_model_that_knew_the_shape_needs_no_laws() -> None:
    assert need_of_laws(np.zeros(2), np.array([1.0, 8.0])) == 0.0
    assert need_of_laws(np.array([0.2, -0.2]), np.array([1.0, 8.0])) > 0.99
    assert (
        need_of_laws(np.array([0.01, -0.01]), np.array([1.0, 8.0])) == 0.0
    )  # as two timings of the same differ
    assert need_of_laws(np.array([0.2, 0.2]), np.array([8.0, 8.0])) > 0.9  # one K: the level is all there is
    assert need_of_laws(np.array([0.04]), np.array([8.0])) == 0.0
    assert need_of_laws(np.zeros(0), np.zeros(0)) == 1.0


def test_no_law_moves_the_model_far_beyond_its_own_doubt() -> None:
    """A single timing and ideal scaling from there, where the model expects twenty times that, but for the timed K."""
    seen = Seen(np.array([8.0]), np.array([1.0]), np.ones(1))
    asked = Asked(np.array([8.0, 256.0]), np.ones(2), 8.0, 0.0, 0.0)
    laws = laws_at(seen, asked, LawTrust())
    model, spread = np.log([1.3, 20.0]), np.array([0.1, 0.1])
    joined = join(model, spread, laws.log_tau, laws)
    assert joined.value[0] == pytest.approx(0.0, abs=0.03)
    assert joined.value[1] == pytest.approx(model[1] - PULL * 0.1)


def test_a_smaller_batch_takes_longer_by_what_a_step_costs_whatever_its_size() -> None:
    """tau = 1 + 2 / n: measured at n = 4 and 2, asked at 1; drawn towards the last by the share that is no chance."""
    seen = Seen(np.array([8.0, 16.0]), np.array([1.5, 2.0]), np.array([4.0, 2.0]))
    d = np.log(2.0 / 1.5)
    share = d**2 / (d**2 + CHANCE**2)
    assert _per_step(seen, np.array([1.0]), 2.0) == pytest.approx([2.0 + share * (3.0 - 2.0)])
    same = Seen(seen.k, seen.tau, np.ones(2))
    assert _per_step(same, np.array([0.5]), 2.0).tolist() == [2.0]
    falling = Seen(seen.k, np.array([2.0, 1.5]), seen.batch)  # a line that falls is none: it stays level
    assert _per_step(falling, np.array([1.0]), 1.5) == pytest.approx(_per_step(falling, np.array([0.1]), 1.5))


def test_model_and_laws_meet_by_their_precisions() -> None:
    """Two estimates of 0.0 and 1.0, of spreads 0.3 and 0.4; the model's doubt grows with the gap between them."""
    laws = Laws(
        log_tau=np.array([1.0]), disagreement=np.array([0.2]), spread=np.array([0.4]), level=np.array([0.7]),
        grounds=np.array([[1.0], [1.5], [-0.3], [0.0], [0.0], [0.2], [0.0], [0.0]]), doubt=0.5, need=np.array([0.8]),
        measured=np.array([False]),
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
