"""Memory per device against the tables of the papers that it follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.physics.pipeline import peak_in_flight
from perfmodel.physics.state_bytes import chunks_alive, state_bytes, transformer_activation_bytes

counts = st.sampled_from([1, 2, 4, 8, 16])


def states(params: float, *, stage: int, ranks: int, weight: float = 2.0, trained: float = 1.0) -> float:
    """All states of a ZeRO stage on one device [B]."""
    parts = state_bytes(
        params,
        trainable_fraction=trained,
        weight_bytes=weight,
        weight_shards=ranks if stage >= 3 else 1,
        gradient_shards=ranks if stage >= 2 else 1,
        optimizer_shards=ranks if stage >= 1 else 1,
    )
    return float(sum(parts))


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_figure_1_of_the_zero_paper(stage: int, gigabytes: float) -> None:
    """7.5 B parameters on 64 devices, Adam in mixed precision."""
    assert states(7.5e9, stage=stage, ranks=64) / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_full_precision_and_adapters() -> None:
    assert states(1e9, stage=0, ranks=1, weight=4.0) == pytest.approx(16e9)
    # 1 % trained: frozen weights have neither gradients nor moments.
    assert states(1e9, stage=0, ranks=1, trained=0.01) == pytest.approx(2e9 + 0.14e9)


@given(st.floats(1e6, 1e12), counts, st.integers(0, 2))
def test_each_stage_of_sharding_holds_no_more_than_the_one_before(
    params: float, ranks: int, stage: int
) -> None:
    assert states(params, stage=stage + 1, ranks=ranks) <= states(params, stage=stage, ranks=ranks)


def activations(tp: float, *, sequence: float, recompute: float = 0.0, width: float = 4.0) -> float:
    """Per token and hidden unit [B]: norms and masks, projections and a feed-forward block of that width."""
    return float(
        transformer_activation_bytes(
            5.0, 4.0 + 2.0 * width, 1.0, tp=tp, sequence_parallel=sequence, recompute=recompute
        )
    )


@pytest.mark.parametrize("t", [1, 2, 8])
def test_table_2_of_korthikanti(t: int) -> None:
    """Per token and hidden unit, without the score matrix: 10 + 24/t; 34/t with sequence parallelism; 2."""
    assert activations(t, sequence=0.0) == pytest.approx(10 + 24 / t)
    assert activations(t, sequence=1.0) == pytest.approx(34 / t)
    assert activations(t, sequence=0.0, recompute=1.0) == pytest.approx(2.0)
    assert activations(t, sequence=1.0, recompute=1.0) == pytest.approx(2.0 / t)


@given(counts, st.sampled_from([0.0, 1.0]), st.floats(1.0, 8.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_recomputation_and_cutting_never_hold_more(
    t: int, sequence: float, width: float, less: float, more: float
) -> None:
    low, high = sorted((less, more))
    kept = activations(t, sequence=sequence, recompute=low, width=width)
    assert activations(t, sequence=sequence, recompute=high, width=width) <= kept * (1 + 1e-12)
    assert activations(2 * t, sequence=sequence, recompute=low, width=width) <= kept * (1 + 1e-12)


def test_activations_scale_with_tokens_and_element_size() -> None:
    kept = {"tp": 4, "sequence_parallel": 1, "recompute": 0.0}
    base = transformer_activation_bytes(1024 * 5, 1024 * 12, 1024, **kept)
    double = transformer_activation_bytes(2048 * 5, 2048 * 12, 2048, **kept)
    wide = transformer_activation_bytes(1024 * 5, 1024 * 12, 1024, element_bytes=4.0, **kept)
    assert float(double) == pytest.approx(2 * float(base))
    assert float(wide) == pytest.approx(2 * float(base))


@pytest.mark.parametrize(("p", "v", "m"), [(1, 1, 8), (4, 1, 16), (4, 1, 2), (8, 2, 32), (4, 3, 12)])
def test_micro_batches_alive_are_those_of_the_schedule(p: int, v: int, m: int) -> None:
    flight = peak_in_flight("interleaved" if v > 1 else "1f1b", p, m, v)
    assert float(chunks_alive(p, v, m)) == pytest.approx(float(flight))


def test_enough_micro_batches_keep_all_layers_alive_whatever_the_depth() -> None:
    depths = np.array([1, 2, 8, 32])
    assert chunks_alive(depths, 1, 64) / depths == pytest.approx(1.0)


def test_the_last_stage_begins_its_backward_pass_at_once() -> None:
    assert chunks_alive(np.array([1, 2, 8]), 1, 64, last=True) == pytest.approx(1.0)
    # Of v chunks of layers all but the last wait for p micro-batches to come round.
    assert float(chunks_alive(4, 2, 64, last=True)) == pytest.approx((4 + 1) / 2)
