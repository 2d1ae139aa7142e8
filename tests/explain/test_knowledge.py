"""What the beliefs about a piece of hardware rest on."""

from __future__ import annotations

import pytest

from perfmodel.beliefs.features import features
from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.explain.knowledge import about
from perfmodel.specs.catalog import Catalog

CATALOG = Catalog.default()


def basis(kind: str, name: str) -> dict[str, str]:
    return {row["name"]: row["basis"] for row in about(CATALOG.get(kind, name), shipped_beliefs())}


@pytest.mark.parametrize("name", ["h100-sxm5-80gb", "h20", "rubin-sxm", "rtx-3090"])
def test_it_is_what_a_prediction_on_that_accelerator_says(name: str) -> None:
    device = CATALOG.get("accelerators", name)
    workload = CATALOG.get("workloads", "llama3-8b")
    levels = features(
        workload, device, "bf16", framework="pytorch_eager", scale_up=device.scale_up, scale_out=None
    )
    said = shipped_beliefs().belief(levels).basis
    shown = basis("accelerators", name)
    hardware_alone = (
        "memory",
        "cast_bytes",
        "base_s",
    )  # others have levels of the job too
    assert {key: shown[key] for key in hardware_alone} == {key: said[key] for key in hardware_alone}


def test_runs_on_it_on_its_generation_and_on_nothing_like_it_are_told_apart() -> None:
    assert basis("accelerators", "h100-sxm5-80gb")["matmul"] == "measured"
    assert basis("accelerators", "h20")["matmul"] == "measured"
    assert basis("accelerators", "rubin-sxm")["matmul"] == "assumed"


def test_a_link_is_asked_only_for_what_it_carries() -> None:
    inside, outside = basis("links", "nvswitch-3"), basis("links", "ib-hdr")
    assert (inside["up_efficiency"], outside["out_efficiency"]) == ("measured", "measured")
    assert "out_efficiency" not in inside
    assert "up_efficiency" not in outside


def test_families_are_counted_where_the_belief_comes_from() -> None:
    rows = {row["name"]: row for row in about(CATALOG.get("accelerators", "h20"), shipped_beliefs())}
    assert rows["matmul"]["from"] == "generation hopper"
    assert rows["matmul"]["families"] > 100
    assert about(CATALOG.get("workloads", "llama3-8b"), shipped_beliefs()) == []
