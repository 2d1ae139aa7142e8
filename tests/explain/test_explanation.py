"""`explain`: every term with inputs that have sources, and collectives with what would hide them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.decide.facts import MACHINE_FIELDS, facts
from perfmodel.explain import explanation
from perfmodel.explain.collectives import exchanges
from perfmodel.explain.explanation import explain, point_of
from perfmodel.physics.parts import BY_NAME
from perfmodel.specs.jobs import load_job
from perfmodel.training.step import PARTS, step


def job(workload="llama3-8b", cluster="dgx-h100", k=64, **more):
    return load_job(
        None, overrides={"workload": workload, "cluster": cluster, "k": k, "global_batch": 512, **more}
    )


@pytest.fixture(scope="module")
def pipelined():
    return explain(job("llama3-70b", k=256, layout={"tp": 4, "pp": 4, "micro_batch": 2, "recompute": "full"}))


def test_terms_are_the_parts_and_sum_to_the_step(pipelined):
    result = pipelined.result
    assert [row["name"] for row in result["terms"]] == list(PARTS)
    assert sum(row["time_s"] for row in result["terms"]) == pytest.approx(result["time_s"], rel=1e-9)
    assert sum(row["share"] for row in result["terms"]) == pytest.approx(1.0, rel=1e-9)


def test_a_coefficient_that_no_part_lists_is_shown_where_it_moves_the_step(monkeypatch):
    rest = tuple(name for name in BY_NAME["compute"].beliefs if name != "tail")
    parts = {**BY_NAME, "compute": replace(BY_NAME["compute"], beliefs=rest)}
    monkeypatch.setattr(explanation, "BY_NAME", parts)
    terms = {row["name"]: row for row in explain(job("llama3-8b", k=16)).result["terms"]}
    assert "tail" in {item["name"] for item in terms["compute"]["inputs"]}
    assert "tail" not in {item["name"] for item in terms["serial"]["inputs"]}


def test_the_terms_name_every_input_that_moves_them():
    """A coefficient that moves a part by itself stands in the part's list; what only passes through does not count."""
    made = [
        explain(job("llama3-70b", k=256, layout={"tp": 4, "pp": 4, "recompute": "full"})),
        explain(job("mixtral-8x7b", k=64, layout={"ep": 8, "sharding": "fsdp"})),
        explain(job("resnet50", "dgx-1v", k=64, layout={"sharding": "parameter_server"})),
    ]
    # Waiting answers to all that it waits for: bubble, contention, straggler, stalls and what hides behind compute.
    through = {
        "bubble",
        "contention",
        "straggler",
        "input_stall",
        "host",
        "data_parallel",
        "sharded_weights",
        "imbalance",
    }
    listed = {name for part in BY_NAME.values() for name in part.beliefs}
    for found in made:
        point = point_of(found.curve)
        base = step(point.ops, point.machine, point.at, point.c).parts
        for name in listed:  # another is shown wherever it moves something
            moved = replace(point.c, **{name: getattr(point.c, name) * 1.01})
            parts = step(point.ops, point.machine, point.at, moved).parts
            for part in set(PARTS) - through:
                changed = abs(np.ravel(parts[part])[0] - np.ravel(base[part])[0])
                if changed > 1e-12 * max(abs(np.ravel(base[part])[0]), 1e-9):
                    # Recomputation is a belief only where nobody said; pace scales logits wherever they are counted.
                    assert name in BY_NAME[part].beliefs or (part, name) in {("imbalance", "pace")}, (
                        part,
                        name,
                    )


def test_inputs_carry_value_unit_source_and_basis(pipelined):
    for row in pipelined.result["terms"]:
        for item in row["inputs"]:
            assert {"name", "value", "unit", "shown", "confidence", "source", "sensitivity"} <= set(item)
            assert item["shown"]
            assert item["confidence"] in {
                "datasheet", "measured", "calibrated", "assumed", "inherited", "declared", "chosen"
            }, item  # fmt: skip
    compute = next(row for row in pipelined.result["terms"] if row["name"] == "compute")
    peak = next(item for item in compute["inputs"] if item["name"] == "peak rate")
    assert peak["value"] == pytest.approx(989e12, rel=0.01)
    assert peak["shown"].endswith("FLOP/s")
    assert peak["source"]


def test_every_fact_that_a_term_names_exists(pipelined):
    known = facts(job(k=256), pipelined.curve, 0)
    assert {name for term in BY_NAME.values() for name in term.facts} <= set(known)
    assert set(MACHINE_FIELDS) <= set(known)


def test_slopes_have_the_right_sign_and_size(pipelined):
    slopes = {
        item["name"]: item["sensitivity"] for row in pipelined.result["terms"] for item in row["inputs"]
    }
    assert -1.0 <= slopes["peak rate"] < -0.3
    assert -1.0 <= slopes["memory bandwidth"] <= 0.0
    assert slopes["bubble"] > 0.0
    assert slopes["network bandwidth"] <= 0.0


def test_a_term_answers_to_what_moves_it():
    """Tensor parallelism inside a node has nothing of the network that data parallelism waits for."""
    found = explain(job(k=256, global_batch=128, layout={"tp": 2}))
    strongest = {row["name"]: set(row["sensitivity"]) for row in found.result["terms"]}
    assert strongest["tensor_parallel"] == {"tp_exposed", "scale-up bandwidth", "up_efficiency"}
    network = {"network bandwidth", "out_efficiency", "net_exposed"}
    assert strongest["data_parallel"] & network
    waits = next(row for row in found.result["terms"] if row["name"] == "data_parallel")
    moved = {item["name"]: item["sensitivity"] for item in waits["inputs"] if item["name"] in network}
    # A quicker network takes as much of the step away as more that shows of its exchange adds.
    assert moved["network bandwidth"] == pytest.approx(moved["out_efficiency"], rel=0.1)
    assert moved["network bandwidth"] < -0.01
    assert moved["net_exposed"] > 0.01


def test_collectives_of_a_pipelined_layout(pipelined):
    rows = {row["name"]: row for row in pipelined.result["collectives"]}
    assert set(rows) == {"tensor parallel", "data parallel", "pipeline messages"}
    tensor = rows["tensor parallel"]
    assert tensor["ranks"] == 4
    assert tensor["nodes"] == 1
    assert tensor["message_bytes"] == pytest.approx(2 * 8192 * 8192 * 2)
    assert tensor["link"] == "scale-up link"
    replicas = rows["data parallel"]
    assert replicas["ranks"] == 16
    assert replicas["nodes"] == 8  # two ranks of a group in a node of eight
    assert replicas["link"] == "network of a node"
    for row in rows.values():
        assert row["exposed_s"] + row["hidden_s"] == pytest.approx(
            max(row["time_s"], row["exposed_s"]), rel=1e-9
        )
    parts = {row["name"]: row["time_s"] for row in pipelined.result["terms"]}
    assert tensor["exposed_s"] == pytest.approx(parts["tensor_parallel"], rel=1e-9)


@pytest.mark.parametrize(
    ("workload", "layout", "names"),
    [
        (
            "mixtral-8x7b",
            {"ep": 8, "sharding": "fsdp"},
            {"expert parallel", "sharded weights", "data parallel"},
        ),
        ("llama3-8b", {"cp": 2, "sharding": "zero1"}, {"context parallel", "data parallel"}),
        ("resnet50", {"sharding": "parameter_server"}, {"data parallel"}),
        ("resnet50", {"sharding": "ddp"}, {"data parallel"}),
    ],
)
def test_each_kind_of_collective_is_told(workload, layout, names):
    result = explain(job(workload, k=64, layout=layout)).result
    assert {row["name"] for row in result["collectives"]} == names


@pytest.mark.parametrize(
    "layout", [{"sharding": "fsdp"}, {"sharding": "zero1"}, {"sharding": "fsdp", "pp": 4}, {"tp": 8, "sharding": "hsdp", "shard_group": 8},
               {"sharding": "zero1", "shard_group": 8}, {"sharding": "zero2", "shard_group": 8}]
)  # fmt: skip
def test_hidden_time_is_that_of_the_step_model(layout):
    found = explain(job("llama3-8b", k=64, layout=layout | {"micro_batch": 1, "recompute": "full"}))
    assert found.result["feasible"]
    rows = [row for row in found.result["collectives"] if row["name"] in ("data parallel", "sharded weights")]
    hidden = float(np.ravel(found.curve.hidden_s)[0])
    assert sum(row["hidden_s"] for row in rows) == pytest.approx(hidden, rel=1e-9)


def test_one_accelerator_has_no_collectives():
    assert explain(job("resnet50", k=1)).result["collectives"] == []


def test_the_bandwidth_that_makes_a_collective_negligible_does():
    link = {"name": "slow", "latency": "5 us", "bandwidth": "2 GB/s"}
    cluster = {"node": "hgx-a100", "nics_per_node": 1, "scale_out": link}
    layout = {"sharding": "ddp", "micro_batch": 8}
    found = explain(job("bert-large", cluster, k=16, layout=layout))
    row = next(row for row in exchanges(point_of(found.curve)) if row.name == "data parallel")
    assert row.exposed_s > 0.05 * found.result["time_s"]
    assert row.negligible_at_bytes_per_s > row.bandwidth_bytes_per_s
    cluster["scale_out"] = link | {"bandwidth": f"{row.negligible_at_bytes_per_s * 1.02:.0f} B/s"}
    bought = explain(job("bert-large", cluster, k=16, layout=layout)).result
    share = next(term["share"] for term in bought["terms"] if term["name"] == "data_parallel")
    assert share <= 0.0101
    assert row.hidden_at_bytes_per_s is not None
    assert row.bandwidth_bytes_per_s < row.hidden_at_bytes_per_s


@pytest.mark.parametrize(
    ("workload", "cluster", "k"),
    [("llama3-70b", "dgx-h100", 512), ("gpt3-175b", "dgx-a100", 1024), ("bert-large", "dgx-a100", 64), ("resnet50", "dgx-a100", 64)],
)  # fmt: skip
def test_what_a_link_would_need_could_be_built(workload, cluster, k):
    """No link beyond the memory that feeds it, and none so slow that the collective would outlast the step."""
    found = explain(job(workload, cluster, k=k, global_batch=4096))
    machine = found.curve.setup.machine
    for row in exchanges(point_of(found.curve)):
        most = machine.memory_bytes_per_s * (machine.node if row.link == "network of a node" else 1.0)
        for need in (row.hidden_at_bytes_per_s, row.negligible_at_bytes_per_s):
            assert need is None or need <= most
        if row.hidden_at_bytes_per_s is not None:
            point = point_of(found.curve).with_links(
                np.array(row.hidden_at_bytes_per_s / row.bandwidth_bytes_per_s),
                row.link == "network of a node",
            )
            there = next(other for other in exchanges(point) if other.name == row.name)
            assert there.time_s <= found.result["time_s"]
        is_negligible = row.exposed_s <= 0.01 * found.result["time_s"]
        cheaper = (
            row.negligible_at_bytes_per_s is not None
            and row.negligible_at_bytes_per_s <= row.bandwidth_bytes_per_s
        )
        assert is_negligible == cheaper


def test_what_does_not_fit_is_explained_with_its_memory():
    result = explain(job("llama3-70b", k=4)).result
    assert result["time_s"] is None
    assert not result["feasible"]
    assert "K = " in result["answer"]
    assert result["memory_bytes"] > result["memory_limit_bytes"]
    assert result["terms"] == []


def test_defaults_are_listed():
    work = {"name": "mine", "flop_per_sample": "24 GFLOP", "bytes_per_sample": "400 MB", "params": 25_000_000}
    result = explain(job(work, k=8)).result
    text = " ".join(result["defaults"])
    assert "kernel launches" in text
    assert "input bytes" in text


def test_compute_units_are_an_input_of_gpus_and_missed_where_nobody_gave_them():
    def slope(found):
        compute = next(row for row in found["terms"] if row["name"] == "compute")
        return next(item["sensitivity"] for item in compute["inputs"] if item["name"] == "compute units")

    own = {"accelerator": {"name": "own", "vendor": "NVIDIA", "generation": "hopper", "memory": "80 GB",
                           "memory_bandwidth": "3.35 TB/s", "peak": {"bf16": "989 TFLOP/s"}},
           "name": "mine", "accelerators_per_node": 8, "scale_up": "nvswitch-3"}  # fmt: skip
    unsaid = explain(job(cluster={"node": own, "scale_out": "ib-ndr"}, k=8)).result
    said, other = explain(job(k=8)).result, explain(job(cluster="tpu-v5p-host", k=4)).result
    # More units at the same rate make a longer wave.
    assert 0.005 < slope(said) < 0.1
    assert slope(unsaid) == slope(other) == 0.0
    told = [
        [line for line in found["defaults"] if "compute units" in line] for found in (said, unsaid, other)
    ]
    assert [len(lines) for lines in told] == [0, 1, 0]
    assert told[1][0].startswith("compute units of own are not stated")


def test_one_k_at_a_time():
    with pytest.raises(ValueError, match="one K"):
        explain(job(k="8,16"))


def test_memory_parts_sum(pipelined):
    result = pipelined.result
    assert sum(result["memory_parts_bytes"].values()) == pytest.approx(result["memory_bytes"])
