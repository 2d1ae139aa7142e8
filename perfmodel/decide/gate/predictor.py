"""The prediction that policies read: prediction.result as plain numbers, with bands of the ratios added."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.beliefs.population import Beliefs, shipped_beliefs
from perfmodel.decide.metrics import efficiency_band
from perfmodel.decide.prediction import predict
from perfmodel.results.envelope import plain
from perfmodel.results.prediction import PredictionAnswer
from perfmodel.specs.job import Job

# Enough for an interval of the knee that does not move with the seed; a check must stay quick.
DRAWS = 200


def predictor(beliefs: Beliefs | None, seed: int) -> Callable[[Job], PredictionAnswer]:
    """A function from a job to what `evaluate.measure` reads."""
    known = beliefs or shipped_beliefs()

    def run(job: Job) -> PredictionAnswer:
        found = predict(job, known, draws=DRAWS, seed=seed)
        result = dict(found.result)
        band = None if found.curve is None else efficiency_band(found.curve, known)
        if band is not None and found.curve is not None:
            k = found.curve.k
            result |= {"efficiency_low": band.low, "efficiency_high": band.high}
            result |= {"speedup_low": k * band.low, "speedup_high": k * band.high}
        answer: PredictionAnswer = plain(result)
        return answer

    return run
