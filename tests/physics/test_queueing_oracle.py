"""The queue in front of a replica against the same equations state by state, solved by bisection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scalar_serving as oracle

from perfmodel.physics.queueing import Traffic, latency, saturation_rate_per_s


def roof(n: Any, p: Any) -> Any:
    """A step that reads weights until it computes longer than that."""
    return np.maximum(0.008, 5e-5 * (n + p)) + 1e-4 * n + 0.002 * (p > 0.0)


def line(n: Any, p: Any) -> Any:
    return 0.010 + 2e-4 * n + 4e-5 * p


#: Step, input, output, variation of input, output and arrivals, slots, tokens of a step.
CASES: dict[str, tuple[Any, float, float, float, float, float, int, float]] = {
    "even": (line, 500.0, 200.0, 0.0, 0.0, 1.0, 40, 2048.0),
    "varied": (line, 500.0, 200.0, 0.8, 1.0, 1.0, 40, 2048.0),
    "bursts": (line, 300.0, 60.0, 0.4, 0.5, 2.0, 24, 1024.0),
    "regular": (line, 300.0, 60.0, 0.4, 0.5, 0.3, 24, 1024.0),
    "roof": (roof, 700.0, 150.0, 1.0, 0.6, 1.0, 32, 1024.0),
    "long prompts": (roof, 3000.0, 80.0, 0.3, 0.4, 1.5, 48, 512.0),
    "few slots": (line, 200.0, 400.0, 0.5, 1.2, 1.0, 4, 1024.0),
    "one token": (line, 900.0, 1.0, 0.7, 0.0, 1.0, 16, 1024.0),
    "tiny chunk": (line, 40.0, 100.0, 0.5, 0.5, 1.2, 20, 12.0),
}


def built(name: str, rate: float) -> oracle.Queue:
    step, tokens, outputs, input_cv, output_cv, arrival_cv, slots, chunk = CASES[name]
    return oracle.Queue(
        lambda n, p: float(step(n, p)), rate, tokens, outputs, input_cv, output_cv, arrival_cv, slots, chunk
    )


@pytest.mark.parametrize("name", CASES)
def test_latency_is_the_sum_over_all_numbers_of_sequences(name: str) -> None:
    step, tokens, outputs, input_cv, output_cv, arrival_cv, slots, chunk = CASES[name]
    traffic = Traffic(tokens, outputs, input_cv, output_cv, arrival_cv)
    limit = float(saturation_rate_per_s(step, traffic, slots=slots, chunk_tokens=chunk))
    assert limit == pytest.approx(built(name, 0.0).saturation(), rel=1e-3)
    shares = np.array([0.01, 0.3, 0.7, 0.93])
    found = latency(step, shares * limit, traffic, slots=slots, chunk_tokens=chunk)
    assert found.stable.all()
    for i, rate in enumerate(shares * limit):
        expected = built(name, float(rate)).solve()
        told = (name, shares[i])
        near = {"rel": 0.01, "abs": 1e-9}
        assert float(found.batch[i]) == pytest.approx(expected["batch"], **near), told
        assert float(found.step_s[i]) == pytest.approx(expected["step"], **near), told
        assert float(found.wait_share[i]) == pytest.approx(expected["wait_share"], rel=0.03, abs=1e-6), told
        assert float(found.wait_s[i]) == pytest.approx(expected["wait"], rel=0.03, abs=1e-6), told
        for quantity in ("ttft", "tpot", "e2e"):
            whole = expected[quantity]
            assert float(getattr(found, f"{quantity}_mean_s")[i]) == pytest.approx(
                oracle.mean_of(whole), **near
            ), told
            if oracle.mean_of(whole) == 0.0:
                continue  # a single token has none after it
            for q in (
                0.5,
                0.95,
                0.995,
            ):  # within classes of lengths: at their edges a quantile may be anywhere between
                value = float(getattr(found, f"{quantity}_quantile_s")(q)[i])
                assert value == pytest.approx(oracle.quantile_of(whole, q), rel=0.02), (*told, quantity, q)


def test_states_beyond_the_nodes_are_summed_with_strides() -> None:
    """What strides cost: next to nothing in the numbers of sequences, some in the chance that all slots are taken."""
    traffic = Traffic(300.0, 250.0, 0.5, 0.8)
    for slots, share in ((90, 0.6), (90, 0.92), (400, 0.9), (400, 0.97)):
        limit = float(saturation_rate_per_s(line, traffic, slots=slots, chunk_tokens=4096))
        found = latency(line, share * limit, traffic, slots=slots, chunk_tokens=4096)
        queue = oracle.Queue(
            lambda n, p: float(line(n, p)), share * limit, 300.0, 250.0, 0.5, 0.8, 1.0, slots, 4096.0
        )
        expected = queue.solve()
        assert float(found.batch) == pytest.approx(expected["batch"], rel=3e-3)
        assert float(found.tpot_mean_s) == pytest.approx(oracle.mean_of(expected["tpot"]), rel=2e-3)
        assert float(found.ttft_mean_s) == pytest.approx(oracle.mean_of(expected["ttft"]), rel=0.07)
        assert float(found.wait_share) == pytest.approx(expected["wait_share"], rel=0.2, abs=1e-6)


def test_a_mean_step_has_settled_after_its_rounds() -> None:
    """Four rounds of the mean step are as good as forty, up to loads at which the queue is long anyhow."""
    queue = built("varied", 0.0)
    limit = queue.saturation()
    for share in (0.3, 0.7, 0.9):
        few = queue.steps(20.0, share * limit)["mean"]
        queue.rounds = 40
        assert few == pytest.approx(queue.steps(20.0, share * limit)["mean"], rel=0.01)
        queue.rounds = 4


def test_saturated_loads_have_no_latency() -> None:
    traffic = Traffic(500.0, 200.0)
    limit = float(saturation_rate_per_s(line, traffic, slots=40, chunk_tokens=2048))
    found = latency(line, np.array([0.5, 1.2]) * limit, traffic, slots=40, chunk_tokens=2048)
    assert found.stable.tolist() == [True, False]
    assert math.isnan(found.ttft_mean_s[1])
    assert math.isnan(found.batch[1])
    assert math.isnan(found.ttft_quantile_s(0.9)[1])
    alone = latency(line, 0.5 * limit, traffic, slots=40, chunk_tokens=2048)
    assert float(found.tpot_mean_s[0]) == pytest.approx(float(alone.tpot_mean_s), rel=1e-9)
