"""How long to ask a scheduler for: the 95 % bound of a run, in the words of Slurm and Kueue."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from perfmodel.decide.prediction import Prediction
from perfmodel.errors import UsageError
from perfmodel.results.envelope import Result, plain
from perfmodel.units import clock, format_quantity

PROBABILITY = 0.95
MINUTE_S = 60.0


class WallTime(TypedDict):
    """What to ask of a scheduler at each K; None where the job does not run."""

    k: list[int]
    steps: list[int]
    expected_s: list[float | None]
    bound_s: list[float | None]
    probability: float
    request_s: list[int | None]
    slurm: list[str | None]
    kueue: list[str | None]
    reason: list[str | None]
    notes: list[str]


def wall_time(made: Prediction) -> Result:
    """The request at each K, from a prediction of a run whose length is known."""
    result = made.result
    run = result["run"]
    if run is None:
        raise UsageError(
            "--wall-time: nobody says how long the run is",
            code="U016",
            help="add --set steps=N, --set tokens=15T or --set epochs=90",
        )
    ks = np.asarray(result["k"])
    asked: list[float | None] = plain(np.asarray(run["time_s_high"]))
    middle: list[float | None] = plain(np.asarray(run["time_s"]))
    # Schedulers count whole minutes, and cut what is longer.
    seconds = [None if value is None else int(np.ceil(value / MINUTE_S) * MINUTE_S) for value in asked]
    rows: WallTime = {
        "k": [int(k) for k in ks],
        "steps": [int(steps) for steps in np.asarray(run["steps"])],
        "expected_s": middle,
        "bound_s": asked,
        "probability": PROBABILITY,
        "request_s": seconds,
        "slurm": [None if value is None else f"--time={clock(float(value))}" for value in seconds],
        "kueue": [
            None if value is None else f'kueue.x-k8s.io/max-exec-time-seconds: "{value}"' for value in seconds
        ],
        "reason": list(result["reason"]),
        "notes": [
            "the bound is of steps and of the interruptions that the job states; the time to start, to compile and to wait for "
            "the machine comes on top",
            *(note for note in result["notes"] if not note.startswith(("price:", "p*"))),
        ],
    }
    return Result("wall-time", made.inputs, {**rows, "answer": _answer(rows)}, made.seed)


def _answer(rows: WallTime) -> str:
    told = [i for i, bound in enumerate(rows["bound_s"]) if bound is not None]
    if not told:
        return "No K can run: there is nothing to ask for."
    last = told[-1]
    return (
        f"At K = {rows['k'][last]} ask for {rows['slurm'][last]} (Slurm) or {rows['request_s'][last]} s (Kueue): with a "
        f"probability of 95 % the run of {rows['steps'][last]:,} steps takes no longer than "
        f"{format_quantity(rows['bound_s'][last] or 0.0, 's', 3)}; expected are {format_quantity(rows['expected_s'][last] or 0.0, 's', 3)}."
    )
