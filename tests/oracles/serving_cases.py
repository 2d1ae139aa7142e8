"""Random serving cases: the queue approximation beside the simulation of the same replica and traffic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import serving_des as des
from numpy.typing import NDArray

from perfmodel.physics import queueing

Array = NDArray[np.float64]
QUANTITIES = ("ttft", "tpot", "e2e", "ttft_p99", "tpot_p99", "e2e_p99")


@dataclass(frozen=True)
class Case:
    """One replica and its traffic; `load` is the share of its saturation rate."""

    base_s: float
    token_s: float
    sequence_s: float
    context_s: float
    roof: bool  # a step is the larger of weights and arithmetic, else their sum
    input_tokens: float
    output_tokens: float
    input_cv: float
    output_cv: float
    arrival_cv: float
    chunk: int
    slots: int
    load: float

    def step_s(self, decodes: float, prefill: float, context: float) -> float:
        arithmetic = self.token_s * (decodes + prefill)
        head = max(self.base_s, arithmetic) if self.roof else self.base_s + arithmetic
        return head + self.sequence_s * decodes + self.context_s * context

    def mean_step_s(self, mean_context: float) -> queueing.StepTime:
        def step(decodes: Array, prefill: Array) -> Array:
            arithmetic = self.token_s * (decodes + prefill)
            head = np.maximum(self.base_s, arithmetic) if self.roof else self.base_s + arithmetic
            return np.asarray(head + (self.sequence_s + self.context_s * mean_context) * decodes)

        return step


def random_case(rng: np.random.Generator) -> Case:
    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    return Case(
        base_s=between(0.005, 0.04),
        token_s=between(1e-5, 2e-4),
        sequence_s=float(rng.uniform(0.0, 2e-4)),
        context_s=between(1e-9, 5e-8),
        roof=bool(rng.random() < 0.5),
        input_tokens=between(64, 8000),
        output_tokens=between(16, 800),
        input_cv=float(rng.choice([0.0, 0.5, 1.0])),
        output_cv=float(rng.choice([0.0, 0.5, 1.0])),
        arrival_cv=float(rng.choice([0.5, 1.0, 1.0, 1.0, 1.5])),
        chunk=int(rng.choice([512, 2048, 8192])),
        slots=int(rng.choice([8, 32, 128, 256])),
        load=float(rng.uniform(0.1, 0.95)),
    )


def both(case: Case, rng: np.random.Generator, requests: int) -> tuple[Array, Array, Array]:
    """The approximation and the simulation, in the order of `QUANTITIES`, and how well the simulation knows each."""
    inputs = des.lengths(rng, case.input_tokens, case.input_cv, requests)
    outputs = des.lengths(rng, case.output_tokens, case.output_cv, requests)
    traffic = queueing.Traffic(inputs.mean(), outputs.mean(), case.input_cv, case.output_cv, case.arrival_cv)
    context = float(inputs.mean() + 0.5 * outputs.mean() * (1.0 + case.output_cv**2))
    step, limits = case.mean_step_s(context), {"slots": case.slots, "chunk_tokens": case.chunk}
    rate = case.load * queueing.saturation_rate_per_s(step, traffic, **limits)
    found = queueing.latency(step, rate, traffic, **limits)
    stream = des.Requests(des.arrivals(rng, float(rate), requests, case.arrival_cv), inputs, outputs)
    run = des.simulate(des.Replica(case.step_s, case.slots, case.chunk), stream).kept(0.1)
    approximate = np.array(
        [
            found.ttft_mean_s,
            found.tpot_mean_s,
            found.e2e_mean_s,
            found.ttft_quantile_s(0.99),
            found.tpot_quantile_s(0.99),
            found.e2e_quantile_s(0.99),
        ],
        float,
    )
    times = (run.ttft_s, run.tpot_s, run.e2e_s)
    simulated = [time.mean() for time in times] + [np.quantile(time, 0.99) for time in times]
    unsure = [_relative_error(time, np.mean, 10) for time in times]
    unsure += [_relative_error(time, _highest_percent, 5) for time in times]
    return approximate, np.array(simulated), np.array(unsure)


def _highest_percent(time_s: Array) -> float:
    return float(np.quantile(time_s, 0.99))


def _relative_error(time_s: Array, of: Callable[[Array], float], batches: int) -> float:
    """Standard error of a mean or quantile over correlated requests, as a share of it: by those of batches.

    Bursts in front of few slots keep long memories: 1500 requests may know their mean wait to no better than 40 %.
    """
    found = np.array([of(batch) for batch in np.array_split(time_s, batches)])
    return float(found.std(ddof=1) / np.sqrt(batches) / of(time_s))


def errors(cases: int, requests: int, seed: int = 0) -> tuple[Array, Array, list[Case]]:
    """log(approximate / simulated) by case and quantity, the simulation's own relative errors, the cases."""
    found, unsure, told = [], [], []
    for index in range(cases):
        rng = np.random.default_rng([seed, index])
        case = random_case(rng)
        approximate, simulated, error = both(case, rng, requests)
        found.append(np.log(approximate / simulated))
        unsure.append(error)
        told.append(case)
    return np.array(found), np.array(unsure), told
