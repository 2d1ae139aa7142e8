"""Waiting before servers: closed forms of queues, and an interval's chance of an arrival by simulation."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from perfmodel.physics.waiting import (
    LENGTH_SHARES,
    Mixture,
    busy_share,
    crossing,
    erlang_c,
    gamma_of,
    length_nodes,
    met_share,
    wait_mean_s,
    wait_quantile_s,
)


def test_an_empty_queue_keeps_nobody_waiting() -> None:
    assert float(erlang_c(3, 0.0)) == 0.0
    assert float(wait_mean_s(0.0, 1.0)) == 0.0
    assert float(wait_quantile_s(0.9, 0.0, 1.0)) == 0.0


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_one_server_is_the_queue_of_the_textbook(load: float) -> None:
    assert float(erlang_c(1, load)) == pytest.approx(load)
    assert float(wait_mean_s(load, 1.0)) == pytest.approx(load / (1 - load))
    assert float(wait_mean_s(load, 1.0, service_cv=2.0)) == pytest.approx(2.5 * load / (1 - load))
    # M/M/1: P(W > t) = load exp(-(1 - load) t)
    waited = wait_quantile_s(0.99, load / 2.0, 2.0)  # as loaded, twice as slow
    assert float(waited) == pytest.approx(2.0 * max(log(load / 0.01) / (1 - load), 0.0))


def test_a_saturated_queue_waits_for_ever() -> None:
    assert erlang_c([2, 2], [2.0, 5.0]).tolist() == [1.0, 1.0]
    assert np.isinf(wait_mean_s(2.0, 1.0, servers=2))


@pytest.mark.parametrize("cv", [0.3, 0.7, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("mean", [0.2, 1.0, 3.0])
def test_the_chance_of_an_arrival_is_that_of_a_renewal_process(cv: float, mean: float) -> None:
    """The interval begins at any moment, so the first gap is one that is already running."""
    rng = np.random.default_rng(7)
    shape = 1.0 / cv**2
    gaps = rng.gamma(shape, 1.0 / (shape * mean), 400_000)
    times = np.cumsum(gaps)
    starts = rng.uniform(0.05, 0.95, 200_000) * times[-1]
    following = times[np.searchsorted(times, starts)]
    assert float(busy_share(mean, cv)) == pytest.approx(np.mean(following - starts < 1.0), abs=0.01)


def test_intervals_more_even_than_a_tenth_count_as_a_tenth() -> None:
    assert float(busy_share(0.5, 0.01)) == float(busy_share(0.5, 0.1))
    assert float(busy_share(0.5, 0.1)) == pytest.approx(
        0.5, abs=0.01
    )  # as even as a clock: half of the intervals
    assert float(busy_share(1.0, 1.0)) == pytest.approx(1 - exp(-1))


@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 2.0])
def test_length_classes_have_the_mean_and_nearly_the_spread(cv: float) -> None:
    nodes = length_nodes(np.asarray(cv))
    assert float(nodes @ LENGTH_SHARES) == pytest.approx(1.0)
    assert np.sqrt(float(np.square(nodes) @ LENGTH_SHARES) - 1.0) == pytest.approx(cv, rel=0.12)


def test_a_crossing_is_found_in_each_element_and_halved_where_there_is_none() -> None:
    target = np.array([0.3, 2.0, 50.0])
    root = crossing(lambda x: x**3 - target, np.zeros(3), np.full(3, 4.0), 4, 12)
    assert root == pytest.approx(np.cbrt(target), rel=1e-6)
    # Without a sign change the bracket closes on the end where the function is nearest to zero.
    above = crossing(lambda x: x + 1.0, np.zeros(1), np.ones(1), 3, 20)
    below = crossing(lambda x: x - 3.0, np.zeros(1), np.ones(1), 3, 20)
    assert (float(above[0]), float(below[0])) == (pytest.approx(0.0, abs=1e-5), pytest.approx(1.0, abs=1e-5))


def test_a_mixture_is_as_long_as_its_parts_and_no_longer_than_its_limit() -> None:
    """A constant of 1 s, and 2 s and more by an exponential time of 3 s, one of each."""
    half = np.array([0.5, 0.5])
    found = Mixture(half, np.array([1.0, 5.0]), np.array([0.0, 9.0]), np.array([0.0, 2.0]))
    assert float(found.overall_mean_s) == pytest.approx(3.0)
    assert float(found.quantile_s(0.25)) == pytest.approx(1.0, rel=1e-3)
    for q in (0.6, 0.9, 0.99):
        assert float(found.quantile_s(q)) == pytest.approx(2.0 - 3.0 * log(2.0 * (1.0 - q)), rel=1e-3)
    short = Mixture(half, found.mean_s, found.variance_s2, found.least_s, 4.0)
    assert float(short.quantile_s(0.99)) == 4.0
    assert float(short.quantile_s(0.55)) == pytest.approx(float(found.quantile_s(0.55)))


def test_moments_of_a_gamma_distribution() -> None:
    shape, scale = gamma_of(np.array([2.0, 3.0, 1.0]), np.array([1.0, 9.0, 0.0]))
    assert shape.tolist() == pytest.approx([4.0, 1.0, 1e6])
    assert (shape * scale).tolist() == pytest.approx([2.0, 3.0, 1.0])
    assert (shape * scale**2)[:2].tolist() == pytest.approx([1.0, 9.0])


@pytest.mark.parametrize(("arrivals", "services"), [(0.5, 1.0), (2.0, 1.0), (1.0, 0.3), (1.7, 1.7)])
def test_waits_grow_with_the_variation_of_arrivals_and_services(arrivals: float, services: float) -> None:
    """Allen and Cunneen: the wait of M/M/c times the mean of both squared variations."""
    more = {"service_cv": services, "arrival_cv": arrivals, "servers": 3}
    factor = 0.5 * (arrivals**2 + services**2)
    random = float(wait_mean_s(2.4, 1.0, servers=3))
    assert float(wait_mean_s(2.4, 1.0, **more)) == pytest.approx(factor * random)
    waits = float(erlang_c(3, 2.4))
    assert random == pytest.approx(waits / (3.0 - 2.4))
    for q in (0.1, 0.5, 0.95):
        expected = max(factor * random / waits * log(waits / (1.0 - q)), 0.0)
        assert float(wait_quantile_s(q, 2.4, 1.0, **more)) == pytest.approx(expected)


@pytest.mark.parametrize("cv", [0.05, 0.4, 0.8, 1.0, 2.5])
@pytest.mark.parametrize("load", [0.2, 0.7, 0.95])
def test_the_arrivals_that_meet_a_busy_server_solve_their_equation(cv: float, load: float) -> None:
    found = float(met_share(np.array(load), np.array(cv)))
    k = 1.0 / max(cv, 0.1) ** 2
    assert found == pytest.approx((1.0 + (1.0 - found) / (k * load)) ** -k, rel=2e-2)
    assert (found > load) == (cv > 1.0) or found == load == pytest.approx(load)
    assert 0.0 < found < 1.0


def test_an_idle_server_is_met_by_nobody_and_a_busy_one_by_nearly_all() -> None:
    assert float(met_share(np.array(0.0), np.array(2.0))) < 0.01
    assert float(met_share(np.array(1.0), np.array(2.0))) == pytest.approx(0.9999, abs=0.05)


def test_constant_lengths_are_one_and_varied_ones_are_in_order() -> None:
    nodes = length_nodes(np.array([0.0, 0.5]))
    assert nodes[0] == pytest.approx(1.0, rel=0.01)
    assert (np.diff(nodes[1]) > 0.0).all()
    from scipy.stats import gamma

    # The middle of each class is that of the distribution, up to the factor that keeps the mean.
    middles = np.cumsum(LENGTH_SHARES) - 0.5 * LENGTH_SHARES
    expected = gamma(4.0, scale=0.25).ppf(middles)
    assert nodes[1] / nodes[1][6] == pytest.approx(expected / expected[6])


@pytest.mark.parametrize("power", [9.0, 1.0 / 9.0])
def test_false_position_does_not_crawl_along_one_end(power: float) -> None:
    """With the unmoved end halved (Illinois) twelve steps suffice where plain false position is still far off."""
    root = crossing(lambda x: x**power - 0.5**power, np.zeros(1), np.full(1, 1.3), 1, 12)
    assert float(root[0]) == pytest.approx(0.5, rel=1e-3)
