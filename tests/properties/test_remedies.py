"""The bottleneck that is named is what the answer answers to: of all remedies on offer the one named first saves most."""

from __future__ import annotations

import numpy as np
import pytest
from random_jobs import jobs_of, random_job

from perfmodel.decide.knee_causes import saved
from perfmodel.decide.prediction import predict
from perfmodel.decide.remedies import LINKS, slowest_link
from perfmodel.specs.jobs import load_job

SEEDS = jobs_of(60)


def test_no_other_remedy_saves_more_than_the_one_that_is_named():
    told = 0
    for seed in SEEDS:
        made = predict(random_job(seed, doublings=6), draws=2)
        if made.curve is None:
            continue
        result, found = made.result, made.curve
        lost = {name: np.asarray(values) for name, values in result["ledger_accelerator_s"].items()}
        for rule, knee in result["knee"].items():
            if knee.get("cause_part") is None:
                continue
            beyond = np.flatnonzero(found.feasible & (found.k > (knee["k"] or np.inf)))
            index = int(beyond[0]) if beyond.size else int(np.flatnonzero(found.feasible)[-1])
            others = [saved(found, part, index) for part, values in lost.items() if values[index] > 0]
            assert knee["remedy_saves"] >= max(others) - 1e-12, (seed, rule)
            told += 1
    assert told >= len(SEEDS)


def test_the_link_of_a_remedy_is_the_one_that_matters():
    """Four cards a host without links of their own: inside the host a faster network changes nothing, the bus does."""
    node = {"name": "rtx", "accelerator": "rtx-4090", "accelerators_per_node": 4}
    words = {"workload": "bert-large", "global_batch": 1024, "layout": {"sharding": "ddp"}, "k": [1, 2, 4]}

    def on(link: str):
        return predict(
            load_job(words | {"cluster": {"node": node, "nics_per_node": 1, "scale_out": link}}), draws=2
        )

    slow, fast = on("ethernet-25"), on("roce-400")
    assert fast.result["time_s"][-1] == pytest.approx(slow.result["time_s"][-1], rel=1e-3)
    assert slowest_link(slow.curve, "data_parallel", 2) == next(words for words in LINKS if "bus" in words)
