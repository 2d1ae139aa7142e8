"""A pytest fixture for repositories that train: `perfmodel_check`, so that a test can assert on a knee.

def test_the_job_still_scales(perfmodel_check):
    result = perfmodel_check("job.yaml", "knee >= 64", "efficiency(k=64) >= 0.7")
    assert result["p_star"]["k"] <= 16

def test_the_gate(perfmodel_check):
    perfmodel_check("perfmodel.yaml")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import pytest

Verdict = Literal["pass", "fail"]


class PerfmodelCheck:
    """Checks a policy file, or one job against policies given in the test; relative paths start at the test's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, file: str | Path, *policies: str, undecided: Verdict = "pass", seed: int = 0
    ) -> Mapping[str, object]:
        """Raise AssertionError for policies that fail; return prediction.result of a job, check.result of a policy file."""
        path = self.folder / file
        return self._job(path, policies, undecided, seed) if policies else self._gate(path, undecided, seed)

    def _gate(self, path: Path, undecided: Verdict, seed: int) -> Mapping[str, object]:
        from perfmodel.cli.options import load_beliefs
        from perfmodel.decide.gate import baseline
        from perfmodel.decide.gate.check import check
        from perfmodel.decide.gate.predictor import predictor
        from perfmodel.report.ci.rows import rows
        from perfmodel.specs.policies import load_policies

        gate = load_policies(path)
        checked = check(
            gate,
            predictor(load_beliefs(gate.beliefs), seed),
            lock=baseline.read(gate.baseline),
            undecided=undecided,
            seed=seed,
        )
        envelope = checked.result.envelope()
        _complain([row.sentence for row in rows(envelope) if row.blocking])
        return dict(envelope["result"])

    def _job(
        self, path: Path, policies: tuple[str, ...], undecided: Verdict, seed: int
    ) -> Mapping[str, object]:
        from perfmodel.decide.gate import inputs
        from perfmodel.decide.gate.check import decide_one
        from perfmodel.decide.gate.evaluate import outcome
        from perfmodel.decide.gate.grammar import parse
        from perfmodel.decide.gate.predictor import predictor
        from perfmodel.decide.gate.serving import Asked
        from perfmodel.decide.serving.prediction import predict_serving
        from perfmodel.report.ci.rows import band, number
        from perfmodel.results.envelope import plain
        from perfmodel.specs.jobs import load_any_job
        from perfmodel.specs.serving import ServingJob

        wanted = [parse(text) for text in policies]
        if any(policy.change for policy in wanted):
            raise ValueError("change(...) needs a committed baseline: put it into perfmodel.yaml")
        found = load_any_job(path)
        if isinstance(found, ServingJob):
            asked = Asked(found)
            result: Mapping[str, object] = plain(predict_serving(found, seed=seed).result)
            outcomes = [outcome(policy, asked.measure(policy)) for policy in wanted]
        else:
            job = inputs.with_k(found, (policy.k for policy in wanted if policy.k is not None))
            answer = predictor(None, seed)(job)
            result = answer
            outcomes = [decide_one(policy, answer, None, job) for policy in wanted]
        failed = []
        for policy, decided in zip(wanted, outcomes, strict=True):
            if decided.verdict == "fail" or (decided.verdict == "undecided" and undecided == "fail"):
                value, low, high = decided.value.value, decided.value.low, decided.value.high
                between = band(low, high, decided.unit)
                shown = number(value, decided.unit) + (f" (90 % band {between})" if between else "")
                why = f"; {decided.value.reason}" if decided.value.reason else ""
                failed.append(f"{policy.text}: {decided.verdict}, predicted {shown}{why}")
        _complain(failed)
        return result


def _complain(failed: list[str]) -> None:
    if failed:
        raise AssertionError("\n".join(["perfmodel policies failed:", *(f"  {line}" for line in failed)]))


@pytest.fixture
def perfmodel_check(request: pytest.FixtureRequest) -> Callable[..., Mapping[str, object]]:
    """Check a job or a policy file from a test: `perfmodel_check("job.yaml", "knee >= 64")`."""
    return PerfmodelCheck(request.path.parent)
