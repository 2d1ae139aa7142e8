"""What stands in for a network that nobody states, and families that were not timed on their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.specs.catalog import Catalog
from perfmodel.specs.folders import shipped_folder
from perfmodel.validate.resolve import Resolved, _usual_networks

NODE = "accelerator: {}\naccelerators_per_node: {}\n"


def catalog(folder: Path, **nodes: str) -> Catalog:
    """A catalogue of these nodes with two accelerators of one generation on a link of 25 GB/s."""
    files = {f"nodes/{name}": text for name, text in nodes.items()}
    files["links/net"] = "latency: 2 us\nbandwidth: 25 GB/s\n"
    for name in ("old", "new"):
        files[f"accelerators/{name}"] = (
            "generation: gen\nmemory: 80 GB\nmemory_bandwidth: 2 TB/s\npeak: {bf16: 300 TFLOP/s}\n"
        )
    for name, text in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Catalog([folder])


def test_the_usual_network_is_the_median_share_over_nodes_of_an_accelerator_and_of_its_generation(
    tmp_path: Path,
) -> None:
    found = catalog(
        tmp_path,
        one_nic=NODE.format("old", 8) + "scale_out: net\n",
        four=NODE.format("old", 8) + "scale_out: net\nnics_per_node: 4\n",
        eight=NODE.format("new", 8) + "scale_out: net\nnics_per_node: 8\n",
        alone=NODE.format("new", 4),
    )
    assert _usual_networks(found) == pytest.approx(
        {"old": 25e9 * (1 / 8 + 4 / 8) / 2, "new": 25e9, "gen": 25e9 * 4 / 8}
    )


def test_no_nodes_no_networks(tmp_path: Path) -> None:
    assert _usual_networks(catalog(tmp_path)) == {}


def test_the_shipped_nodes_give_an_a100_an_eighth_to_a_whole_fast_port() -> None:
    usual = _usual_networks(Catalog([shipped_folder()]))
    assert 1e9 < usual["a100-sxm4-80gb"] < 50e9
    assert usual["ampere"] > 0.0


def test_families_composed_of_the_same_timings_count_as_one(resolved: Resolved) -> None:
    """vTrain's times on one node: four depths of each of two widths, all from the cells of that width."""
    names = [row.text["family"] for row in resolved.families]
    weights = dict(zip(names, resolved.observations.weights, strict=True))
    lighter = {name: weight for name, weight in weights.items() if weight != 1.0}
    assert set(lighter.values()) == {0.25}
    assert sum(lighter.values()) == 2.0
    assert all("-single" in name for name in lighter)
