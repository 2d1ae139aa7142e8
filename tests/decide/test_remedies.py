"""Remedies: never what the job already does, nor what the tool itself would refuse."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.decide.knee_causes import in_words
from perfmodel.decide.remedies import after_remedy, job_at, remedy
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import Curve, curve
from perfmodel.training.setup import setup_of
from perfmodel.training.step import PARTS


def found(workload="llama3-8b", cluster="dgx-h100", k=64, **said) -> Curve:
    said = {"workload": workload, "cluster": cluster, "k": k, **said}
    return curve(setup_of(load_job(None, overrides=said)), shipped_beliefs(), draws=0)


def offered(part: str, **said) -> str:
    return remedy(job_at(found(**said), 0), part)


def layout(**said) -> dict:
    return {"layout": {"recompute": "full", **said}}


def test_every_part_has_a_remedy():
    for said in (layout(sharding="ddp"), layout(sharding="zero1"), layout(tp=2, pp=2, sharding="zero1")):
        job = job_at(found(**said), 0)
        assert all(remedy(job, part) for part in PARTS)


@pytest.mark.parametrize(
    ("part", "said", "has", "lacks"),
    [
        ("optimizer", {"workload": "resnet50", **layout(sharding="ddp")}, "zero1", "fused"),
        ("optimizer", layout(sharding="zero1"), "fused", "shard"),
        ("optimizer", layout(sharding="fsdp"), "fused", "shard"),
        ("optimizer", layout(sharding="zero1", shard_group=8), "over all ranks", "zero1"),
        ("optimizer", {"workload": "resnet50", "k": 1}, "fused", "shard"),
        (
            "data_parallel",
            {"workload": "resnet50", **layout(sharding="ddp")},
            "every second step",
            "less often",
        ),
        ("data_parallel", {"workload": "resnet50", "sync_every": 4}, "less often", "every second step"),
        (
            "data_parallel",
            {"compression": {"ratio": 4}, **layout(sharding="zero1")},
            "bandwidth",
            "compression",
        ),
        ("data_parallel", layout(sharding="zero1"), "compression", "synchronising"),
        ("synchronisation", layout(sharding="fsdp"), "larger batch", "every second step"),
        ("sharded_weights", layout(sharding="fsdp"), "inside a node", "zero"),
        ("sharded_weights", layout(sharding="hsdp", shard_group=8), "bandwidth", "inside a node"),
        ("sharded_weights", {"k": 8, **layout(sharding="fsdp")}, "bandwidth", "inside a node"),
        ("bubble", layout(pp=4, tp=2, micro_batch=2), "interleaved", "larger batch"),
        ("bubble", layout(pp=4, tp=2, vpp=2, micro_batch=1), "larger batch", "interleaved"),
        (
            "contention",
            {"cluster": "dgx-h100", "k": 8, **layout(sharding="fsdp")},
            "fewer accelerators",
            "zero",
        ),
        ("imbalance", {"workload": "resnet50", "global_batch": 1000, "k": 64}, "share evenly", "stages"),
        ("imbalance", layout(pp=4, tp=2), "stages", "share evenly"),
        ("imbalance", {"length_spread": 0.3, **layout(sharding="fsdp")}, "by length", "stages"),
        ("expert_parallel", {"workload": "dlrm-dcnv2"}, "embedding", "expert"),
    ],
)
def test_what_already_holds_is_not_offered(part, said, has, lacks):
    words = offered(part, **said)
    assert has in words
    assert lacks not in words


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("imbalance", {"workload": "llama3-8b", "global_batch": 80, **layout(sharding="fsdp")}),
        (
            "imbalance",
            {"workload": "llama3-8b", "global_batch": 64, "length_spread": 0.3, **layout(sharding="fsdp")},
        ),
        ("input_stall", {"input": {"loader": "20 MB/s"}}),
        ("serial", {"stalls": [{"time": "10 s", "every": 10}]}),
        ("straggler", {"slow_devices": {"share": 0.1, "slowdown": 1.5}}),
    ],
)
def test_a_remedy_reaches_what_the_job_declares(part, said):
    made = found(**{"workload": "resnet50"} | said)
    assert made.parts[part][0] > 0.05 * made.time_s[0]
    saved = made.time_s - after_remedy(made, part)
    assert saved[0] == pytest.approx(made.parts[part][0], rel=0.7)


def test_a_cause_is_named_after_what_the_job_does():
    uneven = found(workload="resnet50", global_batch=1000)
    lost = {part: np.ones(1) for part in PARTS}
    assert "replicas with most samples" in in_words(uneven, "imbalance", 0, lost)
    grouped = found(**layout(sharding="hsdp", shard_group=8))
    assert in_words(grouped, "sharded_weights", 0, lost).startswith("intra-node")
    spread = found(**layout(sharding="fsdp"))
    assert in_words(spread, "sharded_weights", 0, lost).startswith("inter-node")
