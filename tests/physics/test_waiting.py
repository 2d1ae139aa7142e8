"""Waiting before servers: closed forms of queues, and an interval's chance of an arrival by simulation."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from perfmodel.physics.waiting import (
    busy_share,
    erlang_c,
    length_nodes,
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
    nodes, shares = length_nodes(np.asarray(cv))
    assert float(nodes @ shares) == pytest.approx(1.0)
    assert np.sqrt(float(np.square(nodes) @ shares) - 1.0) == pytest.approx(cv, rel=0.12)
