"""Does `diagnose` find what is wrong? Faults put into predicted runs, and healthy runs that must be left in peace.

A healthy run is drawn from the prediction's own band; a faulty one is the step with one cause changed, at a severity that costs
`LEAST` of the step or more, on a machine drawn from that band. A trace shows the parts of the faulty step as the step model has
them: what it tells of real profilers is not tested here, nor faults that the causes do not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.parts import COVERS
from perfmodel.diagnose.causes import CAUSES, Model
from perfmodel.diagnose.diagnosis import judge
from perfmodel.diagnose.measured import Measured, Pace
from perfmodel.diagnose.weighing import quantities
from perfmodel.readings.steps import RankSteps, TraceSummary
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import Curve, curve
from perfmodel.training.setup import setup_of
from perfmodel.training.step import Step

LEAST = 0.15
SEVERITIES = 3  # of each cause that has any
STEPS = 20
NOISE = 0.005  # between the steps of a log
JOBS: tuple[dict[str, Any], ...] = (
    {"workload": "llama3-8b", "cluster": "dgx-h100", "k": 64, "global_batch": 256, "seq_len": 8192,
     "layout": {"tp": 2, "sharding": "zero1", "micro_batch": 1, "recompute": "selective"}},
    {"workload": "llama3-8b", "cluster": "dgx-h100", "k": 64, "global_batch": 128, "seq_len": 8192,
     "layout": {"sharding": "fsdp", "micro_batch": 1, "recompute": "full"}, "framework": "fsdp_eager"},
    {"workload": "llama3-70b", "cluster": "dgx-h100", "k": 256, "global_batch": 256, "seq_len": 8192,
     "layout": {"tp": 4, "pp": 4, "sharding": "zero1", "micro_batch": 1, "recompute": "selective"}},
    {"workload": "mixtral-8x7b", "cluster": "dgx-h100", "k": 64, "global_batch": 256, "seq_len": 4096,
     "layout": {"ep": 8, "sharding": "zero1", "micro_batch": 1, "recompute": "none"}},
    {"workload": "bert-large", "cluster": "dgx-a100", "k": 32, "global_batch": 1024, "layout": {"sharding": "ddp"}},
    {"workload": "resnet50", "cluster": "dgx-a100", "k": 32, "global_batch": 8192, "layout": {"sharding": "ddp"}},
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One run: what was wrong with it (None: nothing), what was measured, and what was said."""

    fault: str | None
    traced: bool
    verdict: str
    named: tuple[str, ...]


def trials(seed: int = 0) -> Iterator[Trial]:
    """Every cause in every job, by log and by trace, and as many healthy runs."""
    rng = np.random.default_rng(seed)
    for keys in JOBS:
        job = load_job(keys)
        found = curve(setup_of(job), shipped_beliefs(), draws=0)
        model = Model.of(found)
        for cause in CAUSES:
            if not cause.applies(model):
                continue
            grid = cause.severities
            made = cause.change(model, grid).step()
            times = np.broadcast_to(made.time_s, grid.shape)[:, 0] * model.scale
            costly = np.flatnonzero(times > (1.0 + LEAST) * model.time_s)
            chosen = (
                costly[np.linspace(0, costly.size - 1, SEVERITIES).round().astype(int)]
                if costly.size
                else costly
            )
            for at in np.unique(chosen):
                faulty = cause.change(model, grid[at : at + 1]).step()
                yield from _both(job, found, model, faulty, cause.name, rng)
                yield from _both(job, found, model, model.step(), None, rng)


def _both(
    job: Job, found: Curve, model: Model, made: Step, fault: str | None, rng: np.random.Generator
) -> Iterator[Trial]:
    """A run on a machine of its own, by its log alone and with a trace."""
    machine = float(np.exp(float(found.spread[0]) * rng.standard_normal()))
    mean = float(np.asarray(made.time_s).reshape(-1)[0]) * model.scale * machine
    pace = Pace.of(mean * (1.0 + NOISE * rng.standard_normal(STEPS)))
    for trace in (None, _trace(made, model.scale * machine, int(job.k[0]))):
        seen = Measured(pace, "study", int(job.k[0]), None, trace)
        said: Mapping[str, Any] = judge(job, seen, shipped_beliefs(), lambda key: None)
        yield Trial(fault, trace is not None, said["verdict"], tuple(row["cause"] for row in said["causes"]))


def _trace(made: Step, scale: float, k: int) -> TraceSummary:
    """A rank's steps with the parts of one predicted step."""
    names = ("compute", "exposed_communication", "idle", "input_stall", "hidden_communication")
    assert set(names) <= COVERS.keys()
    seconds = dict(zip(names, quantities(made, names, scale).reshape(-1, len(names))[0], strict=True))
    parts = {name: np.full(5, seconds[name]) for name in names[:4]} | {"exposed_copy": np.zeros(5)}
    step_s = np.sum(list(parts.values()), axis=0)
    rank = RankSteps(0, np.arange(5), step_s, parts, np.full(5, seconds["hidden_communication"]), ())
    return TraceSummary(path="study", ranks=(rank,), steps_from="study", world=k)


def table(found: list[Trial]) -> str:
    """Shares of faults that are found, by log and with a trace, and of healthy runs that are left in peace."""
    lines = [
        f"{'':12} {'faults':>7} {'said slow':>10} {'first':>7} {'of first 3':>11}   {'healthy':>8} {'said slow':>10}"
    ]
    for traced in (False, True):
        ill = [trial for trial in found if trial.fault is not None and trial.traced == traced]
        well = [trial for trial in found if trial.fault is None and trial.traced == traced]
        first = np.mean([trial.named[:1] == (trial.fault,) for trial in ill])
        third = np.mean([trial.fault in trial.named[:3] for trial in ill])
        slow = [float(np.mean([trial.verdict == "slow" for trial in group])) for group in (ill, well)]
        lines.append(
            f"{'with a trace' if traced else 'by its log':12} {len(ill):7d} {slow[0]:10.0%} {first:7.0%} {third:11.0%}   "
            f"{len(well):8d} {slow[1]:10.0%}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(list(trials())))
