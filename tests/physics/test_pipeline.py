"""Pipeline schedules: orders that a device can run, and times worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics import pipeline


@pytest.mark.parametrize(
    ("schedule", "virtual"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 1), ("interleaved", 3)]
)
def test_every_stage_runs_every_pass_once(schedule: str, virtual: int) -> None:
    stages, micro = 4, 8
    wanted = {(back, i, c) for back in (False, True) for i in range(micro) for c in range(virtual)}
    for stage in range(stages):
        order = pipeline.stage_order(schedule, stage, stages, micro, virtual)
        assert len(order) == len(wanted)
        assert set(order) == wanted


def alive(order: list[pipeline.Operation]) -> int:
    """Most forward passes whose backward pass is still to come."""
    return int(np.max(np.cumsum([-1 if o.backward else 1 for o in order])))


@pytest.mark.parametrize(
    ("schedule", "virtual"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 4)]
)
@pytest.mark.parametrize(("stages", "micro"), [(2, 2), (4, 4), (4, 16), (8, 24)])
def test_activations_alive_are_those_of_the_orders(
    schedule: str, virtual: int, stages: int, micro: int
) -> None:
    counted = alive(pipeline.stage_order(schedule, 0, stages, micro, virtual)) / virtual
    assert float(pipeline.peak_in_flight(schedule, stages, micro, virtual)) == pytest.approx(counted)


def test_later_stages_of_1f1b_hold_less() -> None:
    assert [alive(pipeline.stage_order("1f1b", s, 4, 16)) for s in range(4)] == [4, 3, 2, 1]


def test_two_stages_by_hand() -> None:
    time = pipeline.schedule_s("1f1b", [1.0, 1.0], [2.0, 2.0], 3, message_s=1.0)
    # F0 0-1 | message | 2-3, B0 3-5 | message | 6-8; F1 1-2, arrives 3, runs 5-6, B1 6-8, back at 9;
    # F2 8-9, arrives 10, runs 10-11, B2 11-13, back at 14: B2 14-16.
    assert float(time) == 16.0


def test_messages_of_gpipe_cost_only_filling_and_draining() -> None:
    f, b = np.ones(4), 2.0 * np.ones(4)
    for message in (0.0, 0.1, 5.0):
        time = float(pipeline.schedule_s("gpipe", f, b, 8, message_s=message))
        assert time == pytest.approx(33.0 + 2 * 3 * message)
        closed = pipeline.uneven_step_time("gpipe", 4, 8, 1.0, 2.0, message_s=message)
        assert time == pytest.approx(float(closed))


def test_messages_of_1f1b_stretch_its_steady_state() -> None:
    """With one micro-batch of slack a stage, every answer that comes late is waited for."""
    f, b = np.ones(4), 2.0 * np.ones(4)
    few, many = (
        float(pipeline.schedule_s("1f1b", f, b, m, message_s=0.5) - pipeline.schedule_s("1f1b", f, b, m))
        for m in (4, 16)
    )
    assert many > few >= 2 * 3 * 0.5


def test_a_slow_last_stage_costs_every_micro_batch_and_a_slow_first_stage_less() -> None:
    slow_last, slow_first = np.array([1.0, 1.0, 1.0, 1.5]), np.array([1.5, 1.0, 1.0, 1.0])
    for schedule, virtual in (("1f1b", 1), ("interleaved", 2)):
        closed = float(pipeline.step_time(schedule, slow_last, 2 * slow_last, 8, virtual))
        last = float(pipeline.schedule_s(schedule, slow_last, 2 * slow_last, 8, virtual=virtual))
        first = float(pipeline.schedule_s(schedule, slow_first, 2 * slow_first, 8, virtual=virtual))
        assert last == pytest.approx(closed)
        assert first < last
        any_p = pipeline.uneven_step_time(schedule, [1, 4], 8, 1.0, 2.0, last_s=1.5, virtual=virtual)
        assert any_p.tolist() == pytest.approx([8 * 4.5, closed])


def test_idle_time_is_split_by_cause() -> None:
    stage = np.array([1.0, 1.0, 1.0, 1.5])
    time = pipeline.schedule_s("1f1b", stage, 2 * stage, 8)
    imbalance, bubble = pipeline.idle_s(time, stage, 2 * stage, 8)
    assert float(imbalance) == pytest.approx(8 * (4.5 - 3 * 1.125))
    assert float(bubble) == pytest.approx(9.0)
    assert float(imbalance + bubble + 8 * 3 * 1.125) == pytest.approx(float(time))


def test_leading_axes_are_independent() -> None:
    f = np.random.default_rng(0).uniform(0.5, 1.5, (5, 3))
    message = np.linspace(0.0, 1.0, 5)
    together = pipeline.schedule_s("1f1b", f, 2 * f, 6, message_s=message)
    for i in range(5):
        assert together[i] == pipeline.schedule_s("1f1b", f[i], 2 * f[i], 6, message_s=message[i])


def test_what_cannot_be_scheduled_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown schedule 'zb'"):
        pipeline.step_time("zb", [1.0], [1.0], 1)
    with pytest.raises(ValueError, match="whole rounds: 6 micro-batches on 4 stages"):
        pipeline.schedule_s("interleaved", [1.0] * 4, [1.0] * 4, 6, virtual=2)
    with pytest.raises(ValueError, match="one chunk a stage"):
        pipeline.schedule_s("1f1b", [1.0] * 4, [1.0] * 4, 8, virtual=2)
