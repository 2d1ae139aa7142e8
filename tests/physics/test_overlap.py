"""Overlap: closed forms against recurrences, and recurrences against a clock that is stepped event by event."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import overlap
import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlap import MIB

seconds = st.floats(1e-3, 10.0)
slowdowns = st.floats(1.0, 3.0)


def clock(ready: list[float], duration: list[float], slowdown: float) -> float:
    """End of the last message, by following computation and communication from event to event."""
    now = progress = 0.0
    for due, length in zip(ready, duration, strict=True):
        if progress < due:
            now, progress = now + due - progress, due
        now, progress = now + length, progress + length / slowdown
    return now


def by_buckets(
    size: float, backward: float, latency: float, rate: float, slowdown: float, **kw: float
) -> float:
    sizes = overlap.bucket_sizes(size, **kw)
    ready = backward * np.cumsum(sizes) / size
    return float(overlap.queue_finish_s(ready, latency + sizes / rate, slowdown)[-1])


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=12), slowdowns)
def test_the_queue_is_the_recurrence(messages: list[tuple[float, float]], slowdown: float) -> None:
    ready = sorted(r for r, _ in messages)
    duration = [t for _, t in messages]
    plain, finish = overlap.queue_finish_s(ready, duration), 0.0
    for i, (r, t) in enumerate(zip(ready, duration, strict=True)):
        finish = max(r, finish) + t
        assert plain[i] == pytest.approx(finish, rel=1e-12)
    slowed = overlap.queue_finish_s(ready, duration, slowdown)[-1]
    assert slowed == pytest.approx(clock(ready, duration, slowdown), rel=1e-9)


@given(
    st.floats(0.1, 5000.0), st.floats(0.0, 20.0), st.floats(0.0, 0.1), st.floats(0.5, 500.0), slowdowns,
    st.floats(0.1, 40.0), st.floats(1.0, 100.0),
)  # fmt: skip
def test_closed_form_of_buckets_equals_the_recurrence(
    size: float, backward: float, latency: float, rate: float, slowdown: float, first: float, width: float
) -> None:
    sizes = {"first_bytes": first, "bucket_bytes": width}
    closed = overlap.ddp_backward_s(
        size, backward, latency_s=latency, bytes_per_s=rate, slowdown=slowdown, **sizes
    )
    assert float(closed) == pytest.approx(
        by_buckets(size, backward, latency, rate, slowdown, **sizes), rel=1e-9
    )


def test_a_model_of_175_billion_parameters() -> None:
    size = 2.0 * 175e9
    assert overlap.bucket_sizes(size).size > 10_000
    for rate in (5e9, 35e9, 36e9, 300e9):
        closed = overlap.ddp_backward_s(size, 10.0, latency_s=40e-6, bytes_per_s=rate)
        assert float(closed) == pytest.approx(by_buckets(size, 10.0, 40e-6, rate, 1.0), rel=1e-12)


def test_buckets_hold_every_byte() -> None:
    for size in (0.5, 1.0, 1.5, 26.0, 26.5, 1000.0):
        sizes = overlap.bucket_sizes(size * MIB)
        assert sizes.sum() == size * MIB
        assert sizes[0] == min(size, 1.0) * MIB


def test_limits_of_the_exchange() -> None:
    many = {"latency_s": 0.0, "first_bytes": 1e3, "bucket_bytes": 1e3}
    free = overlap.ddp_backward_s(1e9, 2.0, bytes_per_s=1e15, **many)
    assert float(free) == pytest.approx(2.0, rel=1e-5)
    # Many small buckets: the hinge that the step model rounds.
    for rate in (2e8, 4e8, 1e9, 1e10):
        hinge = 2.0 + max(1e9 / rate - 2.0, 0.0)
        assert float(overlap.ddp_backward_s(1e9, 2.0, bytes_per_s=rate, **many)) == pytest.approx(
            hinge, rel=1e-5
        )
    # One bucket hides nothing.
    whole = overlap.ddp_backward_s(1e9, 2.0, latency_s=0.5, bytes_per_s=1e9, first_bytes=1e9)
    assert float(whole) == pytest.approx(2.0 + 1.5)
    # Full contention: what was hidden is paid in computation.
    frozen = overlap.ddp_backward_s(1e9, 20.0, bytes_per_s=1e9, slowdown=1e12, **many)
    assert float(frozen) == pytest.approx(21.0, rel=1e-5)


@given(st.floats(1.0, 500.0), st.floats(0.1, 20.0), st.floats(0.5, 50.0), slowdowns, st.floats(1.0, 10.0))
def test_the_exchange_is_monotone(
    size: float, backward: float, rate: float, slowdown: float, factor: float
) -> None:
    def time(s: float = size, b: float = backward, r: float = rate, c: float = slowdown) -> float:
        return float(
            overlap.ddp_backward_s(
                s, b, latency_s=0.01, bytes_per_s=r, slowdown=c, first_bytes=1, bucket_bytes=25
            )
        )

    assert time() >= backward
    assert time(r=rate * factor) <= time() * (1 + 1e-12)
    assert time(b=backward * factor) >= time() * (1 - 1e-12)
    assert time(c=slowdown * factor) >= time() * (1 - 1e-12)


def test_elementwise_on_arrays() -> None:
    sizes, rates = np.array([[1e8], [1e9], [3e10]]), np.array([1e9, 1e10])
    grid = overlap.ddp_backward_s(sizes, 0.3, latency_s=1e-5, bytes_per_s=rates)
    assert grid.shape == (3, 2)
    assert grid[2, 1] == overlap.ddp_backward_s(3e10, 0.3, latency_s=1e-5, bytes_per_s=1e10)


@given(st.integers(1, 60), seconds, seconds, seconds)
def test_closed_form_of_prefetch_equals_the_recurrence(layers: int, g: float, c: float, r: float) -> None:
    line = np.full(layers, g)
    for scatter in (0.0, r):
        recurrence = overlap.prefetch_finish_s(line, c, scatter)
        assert float(overlap.prefetch_equal_s(layers, g, c, scatter)) == pytest.approx(
            float(recurrence), rel=1e-9
        )
    forward = overlap.prefetch_finish_s(line, c)
    for ahead in (2, 5):
        assert float(overlap.prefetch_finish_s(line, c, ahead=ahead)) == pytest.approx(
            float(forward), rel=1e-9
        )


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=20))
def test_looking_ahead_never_hurts_a_forward_pass(layers: list[tuple[float, float]]) -> None:
    gather, compute = np.array(layers).T
    times = [float(overlap.prefetch_finish_s(gather, compute, ahead=d)) for d in range(6)]
    assert times[0] == pytest.approx(float(gather.sum() + compute.sum()))
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(times))
    assert times[-1] >= max(gather[0] + compute.sum(), gather.sum() + compute[-1]) * (1 - 1e-12)


def test_uneven_layers_need_more_than_one_ahead() -> None:
    gather, compute = [0.1, 0.1, 3.0, 0.1], [1.0, 1.0, 1.0, 1.0]
    one, two = (float(overlap.prefetch_finish_s(gather, compute, ahead=d)) for d in (1, 2))
    assert one - two == pytest.approx(0.9)


def two_streams(layers: int, g: float, c: float, slowdown: float) -> float:
    """A forward pass one layer ahead in which gathering slows computing, followed in small events."""
    now, ready = g, 1
    for _ in range(layers):
        work, wire = c, (g if ready < layers else 0.0)
        while work > 1e-15 or wire > 1e-15:
            rate = (1.0 / slowdown if wire > 1e-15 else 1.0) if work > 1e-15 else 0.0
            to_work = work / rate if rate else np.inf
            leap = min(to_work, wire if wire > 1e-15 else np.inf)
            now, work, wire = now + leap, max(work - rate * leap, 0.0), max(wire - leap, 0.0)
        ready += 1
    return now


@given(st.integers(1, 12), seconds, seconds, slowdowns)
def test_contention_during_prefetch(layers: int, g: float, c: float, slowdown: float) -> None:
    closed = float(overlap.prefetch_equal_s(layers, g, c, slowdown=slowdown))
    assert closed == pytest.approx(two_streams(layers, g, c, slowdown), rel=1e-9)


def test_compression_pays_above_the_break_even_rate() -> None:
    link, ratio, size = 10e9, 4.0, 1e9
    limit = float(overlap.codec_break_even_bytes_per_s(link, ratio))
    plain = size / link
    for codec, pays in ((0.9 * limit, False), (1.1 * limit, True)):
        squeezed = overlap.compressed_exchange_s(plain, size, ratio=ratio, codec_bytes_per_s=codec)
        assert (float(squeezed) < plain) is pays
    assert np.isinf(overlap.codec_break_even_bytes_per_s(link, 1.0))


def test_rare_synchronisation_tends_to_computation_alone() -> None:
    steps = overlap.synchronised_every_s(1.0, 0.5, [1, 2, 10, 1e9])
    assert steps[:3].tolist() == [1.5, 1.25, 1.05]
    assert steps[3] == pytest.approx(1.0)
