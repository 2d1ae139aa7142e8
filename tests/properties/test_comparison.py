"""Whatever changes between two jobs, the effects and their interaction are the whole difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.explain.comparison import compare
from perfmodel.results.envelope import plain
from perfmodel.specs.jobs import load_job

BEFORE = {"workload": "llama3-8b", "cluster": "dgx-a100", "k": "8,64", "global_batch": 512}
# Not every model fits everywhere: some changes are impossible by themselves.
CHANGES = st.fixed_dictionaries(
    {"cluster": st.sampled_from(["dgx-a100", "dgx-h100", "dgx-1v"])},
    optional={
        "workload": st.sampled_from(["bert-large", "llama3-70b"]),
        "global_batch": st.sampled_from([256, 1024]),
        "precision": st.just("fp16"),
        "framework": st.just("pytorch_eager"),
        "layout": st.sampled_from([{"sharding": "fsdp"}, {"tp": 8}]),
        "price": st.just({"per_accelerator": "2 USD/h", "fixed": "5 USD/h"}),
    },
)


def factor(row: dict[str, Any], key: str) -> Any:
    return 1.0 + np.nan_to_num(np.array(row[key], dtype=float))


@settings(max_examples=12, deadline=None)
@given(changed=CHANGES)
def test_parts_multiply_to_the_whole(changed: dict[str, Any]) -> None:
    a, b = (load_job(None, overrides=words) for words in (BEFORE, BEFORE | changed))
    result = plain(compare(a, b, draws=0).result)
    ratio = np.array(result["time_ratio"], dtype=float)
    told = np.isfinite(ratio)
    parts = [*result["attribution"]["effects"], {"effect": result["attribution"]["interaction"]}]
    assert np.prod([factor(row, "effect") for row in parts], axis=0)[told] == pytest.approx(ratio[told])
    if result["at_k"] is None:
        return
    at = result["k"].index(result["at_k"])
    assert np.prod([factor(row, "effect") for row in result["changes"]]) == pytest.approx(ratio[at])
    cheapest = [np.nanmin(np.array(result["per_sample"][side]["cost_usd"], dtype=float)) for side in "ab"]
    costs = np.prod([factor(row, "cost_effect") for row in result["changes"]])
    assert costs == pytest.approx(cheapest[1] / cheapest[0])
