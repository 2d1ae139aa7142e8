"""The queue approximation beside the simulation on 500 random cases below 95 % of saturation, and fleets beside fleets.

python tests/oracles/queue_study.py [CASES] [REQUESTS]    # some minutes; the suite runs a small sample of the same
"""

from __future__ import annotations

import sys

import numpy as np
import serving_cases as cases
import serving_des as des

from perfmodel.physics import queueing

FLEETS = 40
SHARE = 0.9  # of the requests whose first token must come in time


def approximation(count: int, requests: int) -> None:
    """Errors of means and 99th percentiles; cases whose simulation does not know its own value are told apart."""
    found, unsure, told = cases.errors(count, requests)
    print(f"{count} cases of {requests} requests, |approximate / simulated - 1|")
    for column, name in enumerate(cases.QUANTITIES):
        sure = unsure[:, column] < (0.05 if column < 3 else 0.15)
        error = np.abs(np.expm1(found[:, column]))
        worst = np.exp(np.abs(found[sure, column]).max())
        print(
            f"{name:9s} median {100 * np.median(error):5.1f} %  p90 {100 * np.quantile(error, 0.9):5.1f} %  "
            f"of {int(sure.sum())} sure cases: within 5 % {100 * (error[sure] < 0.05).mean():5.1f} %, "
            f"within 15 % {100 * (error[sure] < 0.15).mean():5.1f} %, beyond a factor of two "
            f"{int((np.abs(found[sure, column]) > np.log(2)).sum())}, largest factor {worst:.2f}"
        )
        for index in np.argsort(-np.abs(np.where(sure, found[:, column], 0.0)))[:2]:
            print(f"    {np.exp(found[index, column]):.2f} {told[index]}")


def fleet(index: int, requests: int) -> tuple[int, int]:
    """Replicas that one random case needs for its first-token limit: by the approximation, and by simulation."""
    rng = np.random.default_rng([7, index])
    case = cases.random_case(rng)
    traffic = queueing.Traffic(case.input_tokens, case.output_tokens, case.input_cv, case.output_cv, 1.0)
    context = case.input_tokens + 0.5 * case.output_tokens * (1.0 + case.output_cv**2)
    step, limits = case.mean_step_s(context), {"slots": case.slots, "chunk_tokens": case.chunk}
    saturation = float(queueing.saturation_rate_per_s(step, traffic, **limits))
    demand = saturation * rng.uniform(2.0, 12.0)
    idle = queueing.latency(step, 0.05 * saturation, traffic, **limits)
    limit = float(idle.ttft_quantile_s(SHARE)) * rng.uniform(1.5, 3.0)

    def predicted(replicas: int) -> float:
        found = queueing.latency(step, demand / replicas, traffic, **limits)
        return float(found.ttft_quantile_s(SHARE)) if bool(found.stable) else np.inf

    def simulated(replicas: int) -> float:
        stream = np.random.default_rng([11, index])
        asked = des.Requests(
            des.arrivals(stream, demand / replicas, requests),
            des.lengths(stream, case.input_tokens, case.input_cv, requests),
            des.lengths(stream, case.output_tokens, case.output_cv, requests),
        )
        run = des.simulate(des.Replica(case.step_s, case.slots, case.chunk), asked).kept(0.1)
        return float(np.quantile(run.ttft_s, SHARE))

    ours = next(r for r in range(max(int(demand / saturation * 0.8), 1), 400) if predicted(r) <= limit)
    theirs = next(r for r in range(max(ours // 2, 1), 400) if simulated(r) <= limit)
    return ours, theirs


def fleets(count: int, requests: int) -> None:
    """How often both need as many replicas."""
    pairs = np.array([fleet(index, requests) for index in range(count)])
    off = np.abs(pairs[:, 0] - pairs[:, 1])
    good = (off <= 1) | (off <= 0.15 * pairs[:, 1])
    print(f"fleets: {int(good.sum())} of {count} within one replica or 15 %; all (ours/simulated):")
    print(" ".join(f"{a}/{b}" for a, b in pairs))


def main() -> int:
    """Both."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    requests = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    approximation(count, requests)
    fleets(min(FLEETS, count), requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
