"""The band of a job that leaves a fact of its software or layout open contains what the job is predicted with it stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.errors import SpecError
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import Curve, curve
from perfmodel.training.setup import setup_of
from tests.oracles.random_jobs import jobs_of

CATALOG = Catalog.default()
WORKLOADS = ("llama3-8b", "llama3-70b", "gpt3-175b", "mixtral-8x7b", "gpt2-xl")
CLUSTERS = ("dgx-a100", "dgx-h100", "dgx-1v", "p5.48xlarge")
# What one may state, and how often runs that were published since 2023 have it (rough shares, by which a miss counts).
VARIANTS: dict[str, tuple[tuple[dict[str, Any], float], ...]] = {
    "framework": (
        ({"framework": "megatron_core"}, 0.35),
        ({"framework": "fsdp_eager"}, 0.25),
        ({"framework": "fsdp_compiled"}, 0.20),
        ({"framework": "xla"}, 0.10),
        ({"framework": "megatron_eager"}, 0.05),
        ({"framework": "pytorch_eager"}, 0.05),
    ),
    "attention": tuple(
        ({"stack": {"attention": name}}, share)
        for name, share in (("flash2", 0.40), ("cudnn", 0.35), ("flash3", 0.20), ("unfused", 0.05))
    ),
    "recomputation": tuple(
        ({"layout": {"recompute": name}}, share)
        for name, share in (("none", 0.60), ("selective", 0.15), ("full", 0.25))
    ),
    "virtual stages": tuple(({"layout": {"vpp": n}}, share) for n, share in ((1, 0.5), (2, 0.25), (4, 0.25))),
    "overlap of gradients": (
        ({"stack": {"overlap_gradients": True}}, 0.7),
        ({"stack": {"overlap_gradients": False}}, 0.3),
    ),
    "sequence parallelism": (
        ({"layout": {"sequence_parallel": True}}, 0.6),
        ({"layout": {"sequence_parallel": False}}, 0.4),
    ),
    "gradient type": (({"gradient_dtype": "fp32"}, 0.5), ({"gradient_dtype": "bf16"}, 0.5)),
}
LEAST = 0.9  # of the weight, over all jobs


def _words(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, 11])
    k = int(8 * 2 ** rng.integers(0, 8))
    return {
        "workload": str(rng.choice(WORKLOADS)),
        "cluster": str(rng.choice(CLUSTERS)),
        "k": [k],
        "global_batch": max(k, int(2 ** rng.integers(6, 12))),
        "layout": {"tp": int(2 ** rng.integers(0, 4)), "pp": int(2 ** rng.integers(0, 4))},
    }


def _merged(words: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    both = words | stated
    return both | {"layout": words["layout"] | stated.get("layout", {})}


def _curve(words: dict[str, Any], draws: int) -> Curve | None:
    """None where a job file could not say so, or where it does not fit."""
    try:
        found = curve(
            setup_of(load_job(None, overrides=words, catalog=CATALOG)), shipped_beliefs(), draws=draws
        )
    except SpecError:
        return None
    return found if bool(found.feasible[-1]) else None


@pytest.fixture(scope="module")
def undeclared() -> list[tuple[dict[str, Any], Curve]]:
    every = ((words, _curve(words, 60)) for words in map(_words, jobs_of(24)))
    return [(words, found) for words, found in every if found is not None]


@pytest.mark.parametrize("fact", VARIANTS)
def test_the_band_contains_every_variant_at_its_weight(
    fact: str, undeclared: list[tuple[dict[str, Any], Curve]]
) -> None:
    inside = weight = 0.0
    for words, found in undeclared:
        for stated, share in VARIANTS[fact]:
            variant = _curve(_merged(words, stated), 0)
            if variant is None:
                continue
            held = found.low_s[-1] <= variant.time_s[-1] <= found.high_s[-1]
            inside, weight = inside + share * float(held), weight + share
    assert weight > 5.0  # enough variants were possible
    assert inside / weight >= LEAST
