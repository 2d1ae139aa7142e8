"""Invariants of the two-tier collective time: what more hardware or fewer bytes can never do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.physics.fabric import OPERATIONS, OWN_SHARD_COPY, collective_time

sizes = st.floats(1.0, 1e11)
positive = st.floats(0.1, 10.0)


@st.composite
def settings_(draw: st.DrawFn) -> dict[str, Any]:
    nodes = draw(st.integers(1, 64))
    return {
        "op": draw(st.sampled_from(OPERATIONS)),
        "message_bytes": draw(sizes),
        "ranks": nodes * draw(st.integers(1, 16)),
        "nodes": nodes,
        "base_s": 1e-5 * draw(positive),
        "step_up_s": 1e-6 * draw(positive),
        "step_out_s": 1e-5 * draw(positive),
        "up_bytes_per_s": 3e11 * draw(positive),
        "out_bytes_per_s_per_node": 2e11 * draw(positive),
        "in_switch_bytes_per_s": draw(st.sampled_from([0.0, 2e11])),
        "in_network_bytes_per_s": draw(st.sampled_from([0.0, 2e11])),
        "p": draw(st.floats(0.5, 1.0)),
    }


@given(settings_(), st.floats(1.0, 10.0))
def test_more_hardware_is_never_slower(at: dict[str, Any], factor: float) -> None:
    before = float(collective_time(**at))
    for name in ("up_bytes_per_s", "out_bytes_per_s_per_node"):
        assert float(collective_time(**at | {name: at[name] * factor})) <= before * (1 + 1e-12)
    for name in ("base_s", "step_up_s", "step_out_s"):
        assert float(collective_time(**at | {name: at[name] / factor})) <= before * (1 + 1e-12)
    switched = at | {"in_switch_bytes_per_s": 4e11, "in_network_bytes_per_s": 4e11}
    assert float(collective_time(**switched)) <= before * (1 + 1e-12)


@given(settings_(), st.floats(1.0, 10.0))
def test_more_bytes_are_never_faster(at: dict[str, Any], factor: float) -> None:
    more = at | {"message_bytes": at["message_bytes"] * factor}
    assert float(collective_time(**more)) >= float(collective_time(**at)) * (1 - 1e-12)


@given(settings_())
def test_time_is_positive_unless_alone(at: dict[str, Any]) -> None:
    seconds = float(collective_time(**at))
    assert (seconds > 0) == (at["ranks"] > 1)
    assert np.isfinite(seconds)


@given(st.lists(settings_(), min_size=2, max_size=5))
def test_batch_axis_is_elementwise(items: list[dict[str, Any]]) -> None:
    op = items[0]["op"]
    names = [name for name in items[0] if name != "op"]
    together = collective_time(op, **{name: np.array([item[name] for item in items]) for name in names})
    alone = [float(collective_time(**item | {"op": op})) for item in items]
    assert together == pytest.approx(alone, rel=1e-14)


@given(sizes, st.integers(2, 16), positive, positive)
def test_ring_equals_hockney_in_its_limit(size: float, n: int, latency: float, rate: float) -> None:
    seconds = collective_time(
        "all_reduce", size, n, 1, base_s=0.0, step_up_s=1e-6 * latency, step_out_s=0.0,
        up_bytes_per_s=1e11 * rate, out_bytes_per_s_per_node=1.0, p=1.0,
    )  # fmt: skip
    copy = OWN_SHARD_COPY / n * size / (1e11 * rate)
    hockney = 2 * (n - 1) * 1e-6 * latency + 2 * (n - 1) / n * size / (1e11 * rate)
    assert float(seconds) - copy == pytest.approx(hockney, rel=1e-9)
