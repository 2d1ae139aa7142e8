"""Random valid jobs of the whole catalogue, for relations that hold whatever the job is.

`PERFMODEL_JOBS` says how many each test takes and `PERFMODEL_FIRST` from which seed on: `make soak` takes many.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np

from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.training.setup import setup_of

CATALOG = Catalog.default()
FIRST = int(os.environ.get("PERFMODEL_FIRST", "0"))
# Half of the jobs are of these, which many people ask about; the others are of anything in the catalogue.
WORKLOADS = (
    "bert-large",
    "gpt2-xl",
    "llama3-8b",
    "llama3-70b",
    "gpt3-175b",
    "mixtral-8x7b",
    "deepseek-v3",
    "resnet50",
)
CLUSTERS = ("dgx-1v", "dgx-a100", "dgx-h100", "p5.48xlarge")
FAMILIES = ("normal", "lognormal", "gumbel", "exponential", "pareto")


def jobs_of(usual: int) -> range:
    """The seeds of a test that usually takes so many jobs."""
    return range(FIRST, FIRST + int(os.environ.get("PERFMODEL_JOBS", str(usual))))


def one_in(usual: int) -> int:
    """Every how-manieth job a dear test takes: all of them when many jobs were asked for."""
    return 1 if "PERFMODEL_JOBS" in os.environ else usual


@cache
def _all(kind: str) -> tuple[str, ...]:
    return tuple(CATALOG.names(kind))


def random_job(seed: int, doublings: int | None = None) -> Job:
    """A valid job with facts that a search must not forget; `doublings` of K in place of three random K."""
    return _found(seed, doublings)[0]


def stated_job(seed: int, layout: dict[str, Any]) -> Job:
    """The job of a seed at its largest K with that layout; a SpecError where a job file could not say so."""
    job, words = _found(seed, None)
    return load_job(None, overrides=words | {"layout": layout, "k": [job.k[-1]]}, catalog=CATALOG)


def _found(seed: int, doublings: int | None) -> tuple[Job, dict[str, Any]]:
    for attempt in range(20):
        words = _words(np.random.default_rng([seed, attempt]), doublings)
        try:
            job = load_job(None, overrides=words, catalog=CATALOG)
            if setup_of(job).states_work:  # the others are refused by every verb
                return job, words
        except SpecError:  # as where a cluster has not so many accelerators, or a model no such sequence
            continue
    raise AssertionError(f"no valid job from seed {seed}")


def _words(rng: np.random.Generator, doublings: int | None) -> dict[str, Any]:
    def one(values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    usual = rng.random() < 0.5
    words: dict[str, Any] = {
        "workload": one(WORKLOADS if usual else _all("workloads")),
        "cluster": one(CLUSTERS if usual else _all("clusters")),
        "steps": 1000,
    }
    least = int(2 ** rng.integers(0, 9))
    if doublings is None:
        words["k"] = sorted({least, least * 2, int(rng.integers(1, 40)) * one((1, 8))})
    else:
        least = one((1, 8, 16, 64))
        words["k"] = [least * 2**i for i in range(doublings)]
    if rng.random() < 0.2:
        words |= {"regime": "weak", "batch_per_accelerator": int(2 ** rng.integers(0, 6))}
    else:
        words["global_batch"] = one((int(2 ** rng.integers(3, 12)), int(rng.integers(8, 3000))))
    if rng.random() < 0.3:
        words["jitter"] = {"distribution": one(FAMILIES), "spread": float(rng.uniform(0.01, 0.2))}
    if rng.random() < 0.15:
        words["sync_every"] = int(rng.integers(2, 8))
    if rng.random() < 0.15:
        words["slow_devices"] = {"share": 0.01, "slowdown": 1.3}
    if rng.random() < 0.2:
        words["gradient_dtype"] = one(("fp32", "bf16"))
    if rng.random() < 0.2:
        words["seq_len"] = one((1024, 4096, 16384))
    if rng.random() < 0.2:
        words["framework"] = one(("megatron_eager", "fsdp_eager", "pytorch_eager"))
    return words


def random_layout(seed: int) -> dict[str, Any]:
    """The words of a layout, nothing left open; it may not fit, or not be possible."""
    rng = np.random.default_rng([seed, 7])
    return {
        "tp": int(2 ** rng.integers(0, 4)),
        "pp": int(2 ** rng.integers(0, 4)),
        "cp": int(2 ** rng.integers(0, 2)) if rng.random() < 0.2 else 1,
        "micro_batch": int(2 ** rng.integers(0, 4)),
        "recompute": str(rng.choice(["none", "selective", "full"])),
        "sharding": str(rng.choice(["ddp", "zero1", "zero2", "fsdp"])),
    }
