"""Laws of pipeline schedules, and their agreement with the step model where it is exact."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perfmodel.physics.coefficients import quiet
from perfmodel.physics.counting import operations
from perfmodel.physics.exchanges import Links, pipeline_message
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import Machine, machine
from perfmodel.physics.operations import Operations
from perfmodel.physics.pipeline import bubble_fraction, idle_s, schedule_s, step_time, uneven_step_time
from perfmodel.specs.catalog import Catalog
from perfmodel.training.step import step

Array = NDArray[np.float64]

stage_times = st.lists(st.floats(0.1, 2.0), min_size=1, max_size=6).map(np.array)
ratios = st.floats(0.5, 3.0)
counts = st.integers(1, 12)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), ratios)
@settings(max_examples=40)
def test_equal_stages_give_the_textbook_bubble(p: int, rounds: int, v: int, ratio: float) -> None:
    m = p * rounds
    f = np.ones(p)
    for schedule, virtual in (("gpipe", 1), ("1f1b", 1), ("interleaved", v)):
        time = schedule_s(schedule, f, ratio * f, m, virtual=virtual)
        _, bubble = idle_s(time, f, ratio * f, m)
        assert float(bubble / time) == pytest.approx(float(bubble_fraction(p, m, virtual)), abs=1e-9)
        for closed in (
            step_time(schedule, f, ratio * f, m, virtual),
            uneven_step_time(schedule, p, m, 1.0, ratio, virtual=virtual),
        ):
            assert float(time) == pytest.approx(float(closed), rel=1e-9)


@given(stage_times, st.lists(st.floats(0.1, 4.0), min_size=6, max_size=6), counts)
@settings(max_examples=60)
def test_gpipe_is_exact_for_any_stages(f: Array, b: list[float], m: int) -> None:
    back = np.array(b[: f.size])
    closed = float(step_time("gpipe", f, back, m))
    assert float(schedule_s("gpipe", f, back, m)) == pytest.approx(closed, rel=1e-9)


@given(stage_times, ratios, counts)
@settings(max_examples=60)
def test_the_closed_form_of_1f1b_bounds_and_is_reached(f: Array, ratio: float, m: int) -> None:
    b = ratio * f
    closed = float(step_time("1f1b", f, b, m))
    assert (
        m * float((f + b).max()) * (1 - 1e-12) <= float(schedule_s("1f1b", f, b, m)) <= closed * (1 + 1e-12)
    )
    ascending = np.sort(f)
    reached = schedule_s("1f1b", ascending, ratio * ascending, m)
    assert float(reached) == pytest.approx(closed, rel=1e-9)


@given(stage_times, ratios, counts, st.floats(0.0, 2.0), st.floats(1.0, 2.0))
@settings(max_examples=40)
def test_slower_stages_and_messages_never_help(
    f: Array, ratio: float, m: int, message: float, factor: float
) -> None:
    for schedule in ("gpipe", "1f1b"):
        plain = float(schedule_s(schedule, f, ratio * f, m))
        assert float(schedule_s(schedule, f, ratio * f, m, message_s=message)) >= plain * (1 - 1e-12)
        slower = f.copy()
        slower[0] *= factor
        assert float(schedule_s(schedule, slower, ratio * f, m)) >= plain * (1 - 1e-12)
        assert float(schedule_s(schedule, factor * f, factor * ratio * f, m)) == pytest.approx(factor * plain)


@lru_cache(maxsize=1)
def textbook() -> tuple[Operations, Machine]:
    """Equal stages (no logits beside the last of them) and links that cost nothing."""
    catalog = Catalog.default()
    ops = operations(catalog.get("workloads", "gpt3-175b"))
    ops = replace(ops, slot_count=ops.slot_count * (1.0 - ops.slot_last), logit_elements=np.zeros(()))
    found = machine(catalog.cluster("dgx-a100"), "bf16")
    names = ("memory_bytes_per_s", "up_bytes_per_s", "out_bytes_per_s", "host_link_bytes_per_s")
    free = dict.fromkeys(names, np.asarray(1e40)) | dict.fromkeys(
        ("up_latency_s", "out_latency_s"), np.zeros(())
    )
    return ops, replace(found, **free)


@given(st.sampled_from([2, 4, 8]), st.integers(1, 4), st.sampled_from([1, 2, 3]))
@settings(max_examples=20)
def test_the_step_model_agrees_with_the_schedule(p: int, rounds: int, v: int) -> None:
    ops, mach = textbook()
    m = p * rounds
    at = layouts(float(p), global_batch=float(m), accelerators_per_node=mach.node, pp=p, vpp=v, micro_batch=1)
    found = step(ops, mach, at, quiet())
    each = (float(found.time_s) - float(found.parts["bubble"])) / m
    stage = np.full(p, each / 3.0)
    schedule = "interleaved" if v > 1 else "1f1b"
    exact = float(schedule_s(schedule, stage, 2.0 * stage, m, virtual=v))
    assert float(found.time_s) == pytest.approx(exact, rel=1e-9)


@given(st.sampled_from([2, 4, 8]), st.floats(1e6, 1e12))
@settings(max_examples=20)
def test_nothing_hides_the_messages_of_a_single_micro_batch(p: int, rate: float) -> None:
    ops, mach = textbook()
    slow = replace(mach, up_bytes_per_s=np.asarray(rate))
    at = layouts(float(p), global_batch=1.0, accelerators_per_node=mach.node, pp=p, micro_batch=1)
    alone, found = step(ops, mach, at, quiet()), step(ops, slow, at, quiet())
    each = float(alone.time_s - alone.parts["bubble"])
    message = float(pipeline_message(ops, at, Links(slow, at, quiet())))
    exact = float(schedule_s("1f1b", np.full(p, each / 3.0), np.full(p, each / 1.5), 1, message_s=message))
    assert float(found.time_s - found.parts["pipeline_messages"]) == pytest.approx(exact, rel=1e-9)
