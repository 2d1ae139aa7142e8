"""Jobs: every form of the contract, its defaults, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import SpecError, UsageError
from perfmodel.specs import jobs
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import load_job
from perfmodel.specs.layout import Layout

FULL = """\
name: llama3-8b-on-h100
workload: llama3-8b
cluster: dgx-h100
precision: bf16
seq_len: 8192
regime: strong
global_batch: 512
layout: {sharding: fsdp}
k: 8..1024
steps: 100000
price: {regime: on-demand, fixed: 12 USD/h}
grid: US-VA
jitter: {distribution: lognormal, spread: 0.02}
reliability: {mtbf_per_accelerator: 50000 h, checkpoint: 60 s, restart: 300 s}
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.default()


@pytest.fixture
def load(tmp_path: Path, catalog: Catalog) -> Any:
    def read(text: str, **overrides: Any) -> Job:
        path = tmp_path / "job.yaml"
        path.write_text(text, encoding="utf-8")
        dotted = {key.replace("__", "."): value for key, value in overrides.items()}
        return load_job(path, overrides=dotted, catalog=catalog)

    return read


def from_flags(catalog: Catalog, **overrides: Any) -> Job:
    return load_job(None, overrides=overrides, catalog=catalog)


def test_the_contract_example(load: Any) -> None:
    job = load(FULL)
    assert job.k == (8, 16, 32, 64, 128, 256, 512, 1024)
    assert isinstance(job.layout, Layout)
    assert (job.layout.sharding, job.layout.tp, job.layout.dp) == ("fsdp", 1, None)
    assert job.price.fixed == pytest.approx(12 / 3600)
    assert job.reliability is not None
    assert job.reliability.mtbf_per_accelerator == pytest.approx(1.8e8)
    assert job.grid is not None
    assert job.jitter is not None
    assert (job.global_batch, job.batch_per_accelerator, job.steps) == (512, None, 100000)
    assert job.framework == "unknown"


def test_defaults(catalog: Catalog) -> None:
    job = from_flags(catalog, workload="resnet50", cluster="dgx-1v")
    assert (job.regime, job.layout, job.precision, job.framework) == (
        "strong",
        "auto",
        "fp16",
        "unknown",
    )
    assert job.k == tuple(2**n for n in range(11))
    assert not job.k_given
    assert job.seq_len is None
    assert any("global_batch" in note for note in job.notes)
    assert job.name == "resnet50-on-dgx-1v"
    assert from_flags(catalog, workload="llama3-8b", cluster="dgx-a100").precision == "bf16"
    assert from_flags(catalog, workload="llama3-8b", cluster="dgx-a100").seq_len == 8192


def test_layout_defaults(load: Any) -> None:
    base = "workload: {}\ncluster: dgx-a100\nlayout: {}\n"
    assert load(base.format("llama3-8b", "{tp: 2}")).layout.sharding == "zero1"
    assert load(base.format("resnet50", "{recompute: full}")).layout.sharding == "ddp"
    assert load(base.format("llama3-8b", "auto")).layout == "auto"
    pinned = load(base.format("llama3-8b", "{tp: 2, pp: 2, dp: 4}"))
    assert pinned.k == (16,)


def test_a_framework_that_is_not_stated_is_unknown_and_said_to_be(load: Any) -> None:
    assumed, given = load(FULL), load(FULL + "framework: fsdp_eager\n")
    assert (assumed.framework, assumed.framework_given) == ("unknown", False)
    assert any("the framework is not stated" in note for note in assumed.notes)
    assert given.framework_given
    assert not any("framework" in note for note in given.notes)


def test_k_stops_at_the_cluster(load: Any) -> None:
    job = load("workload: resnet50\ncluster: {node: dgx-a100, max_nodes: 4}\n")
    assert job.k[-1] == 32


@pytest.mark.parametrize(
    ("cluster", "provider_note", "usd_per_h"),
    [
        ("p5.48xlarge", "aws on-demand price of p5.48xlarge", 58.8928 / 8),
        ("tpu-v4-pod", "gcp on-demand price of tpu-v4-8", 3.22),
        ("p5e.48xlarge", "capacity-block price", 43.26 / 8),
    ],
)
def test_price_of_the_provider(catalog: Catalog, cluster: str, provider_note: str, usd_per_h: float) -> None:
    job = from_flags(catalog, workload="llama3-8b", cluster=cluster)
    assert job.price.per_accelerator is not None
    assert job.price.per_accelerator * 3600 == pytest.approx(usd_per_h)
    assert provider_note in (job.price.note or "")


def test_price_of_a_machine_that_nobody_rents_is_the_median_and_says_so(catalog: Catalog) -> None:
    job = from_flags(catalog, workload="llama3-8b", cluster="dgx-h100")
    rates = sorted(
        o.on_demand / o.accelerators for o in catalog.offers("h100-sxm5-80gb") if o.on_demand is not None
    )
    middle = (rates[(len(rates) - 1) // 2] + rates[len(rates) // 2]) / 2
    assert job.price.per_accelerator == pytest.approx(middle)
    assert f"median of {len(rates)} on-demand prices" in (job.price.note or "")
    assert any("no on-demand price of " in note for note in job.notes)


def test_price_words(load: Any) -> None:
    base = "workload: resnet50\ncluster: dgx-h100\nprice: {}\n"
    assert load(
        base.format("{per_accelerator: 2.10 USD/h, fixed: 0 USD/h}")
    ).price.per_accelerator == pytest.approx(2.1 / 3600)
    assert load(base.format("2.10 USD/h")).price.per_accelerator == pytest.approx(2.1 / 3600)
    assert load(base.format("{provider: lambda}")).price.per_accelerator == pytest.approx(
        (3.99 + 4.29) / 2 / 3600
    )
    spot = load(base.format("{regime: spot}"))
    assert spot.price.per_accelerator < load(base.format("{}")).price.per_accelerator
    owned = load(base.format("{regime: owned, utilisation: 0.5, life: 1461 day}"))
    assert owned.price.purchase == 400_000 / 8
    standing = 50_000 / (4 * 365.25 * 24) / 0.5
    power_kw = (700 + 0.57 * 4600 / 8) / 1000  # the host draws 0.57 of what the rating leaves it
    assert owned.price.per_accelerator * 3600 == pytest.approx(standing + power_kw * 1.2 * 0.08)


def test_no_price_is_no_error_unless_one_was_asked_for(load: Any) -> None:
    base = "workload: resnet50\ncluster: gb200-nvl72\n"
    assert load(base).price.per_accelerator is None
    with pytest.raises(SpecError, match="no spot price of gb200"):
        load(base + "price: {regime: spot}\n")


def test_inline_cluster_of_the_contract(load: Any) -> None:
    job = load(
        "workload: {flop_per_sample: 24.6 GFLOP, bytes_per_sample: 4e8, params: 25.6 M, sample: image}\n"
        "cluster:\n  node: hgx-a100\n  nics_per_node: 4\n"
        "  scale_out: {name: roce-100, latency: 3 us, bandwidth: 12.5 GB/s}\n"
        "  topology: {kind: rail, oversubscription: 1}\n"
        "regime: weak\nbatch_per_accelerator: 64\n"
    )
    assert job.cluster.scale_out is not None
    assert (job.cluster.scale_out.bandwidth, job.cluster.scale_out.latency) == (12.5e9, 3e-6)
    assert job.cluster.scale_out.collective_step is None
    assert job.cluster.nics_per_node == 4
    assert (job.global_batch, job.batch_per_accelerator, job.regime) == (None, 64, "weak")
    assert (job.workload.kind, job.workload.params, job.workload.bytes_per_sample) == (
        "generic",
        25_600_000,
        4e8,
    )


def test_batch_per_accelerator_alone_means_weak(load: Any) -> None:
    assert load("workload: resnet50\ncluster: dgx-a100\nbatch_per_accelerator: 64\n").regime == "weak"


def test_workload_and_cluster_files(tmp_path: Path, load: Any) -> None:
    (tmp_path / "model.yaml").write_text("extends: llama3-8b\nlayers: 16\nparams: 4.5e9\n")
    (tmp_path / "mine.yaml").write_text("extends: dgx-h100\nmax_nodes: 2\n")
    job = load("workload: {file: model.yaml, seq_len: 4096}\ncluster: mine.yaml\n")
    assert (job.workload.layers, job.workload.hidden, job.seq_len) == (16, 4096, 4096)
    assert job.workload.name == "model"
    assert job.cluster.max_accelerators == 16


def test_readers_are_found_by_name(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def reader(target: str) -> dict[str, Any]:
        seen.append(target)
        return {"name": "read", "flop_per_sample": "1 GFLOP", "bytes_per_sample": "1 MB", "params": 1000}

    monkeypatch.setitem(jobs.WORKLOAD_READERS, "torch", reader)
    job = load('workload: {torch: "pkg.model:build", params: 2000}\ncluster: dgx-a100\n')
    assert seen == ["pkg.model:build"]
    assert (job.workload.name, job.workload.params) == ("read", 2000)


def test_a_reader_that_refuses_points_at_the_job(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def reader(target: str) -> dict[str, Any]:
        raise UsageError(f"cannot import {target}", code="W200")

    monkeypatch.setitem(jobs.WORKLOAD_READERS, "torch", reader)
    with pytest.raises(SpecError) as caught:
        load('workload: {torch: "pkg:build"}\ncluster: dgx-a100\n')
    problem = caught.value.problems[0]
    assert (problem.line, problem.column, problem.code) == (1, 19, "W200")


def test_flags_win_over_the_file(load: Any) -> None:
    job = load(FULL, k="16", precision="fp8", layout={"tp": 4}, seq_len=4096)
    assert (job.k, job.precision, job.seq_len) == ((16,), "fp8", 4096)
    assert job.layout.tp == 4


def test_deep_overrides(load: Any) -> None:
    job = load(
        FULL,
        cluster__scale_out="roce-400",
        cluster__node__accelerator__memory="96 GB",
        layout__tp=2,
        workload__layers=16,
        price__per_accelerator="2 USD/h",
    )
    assert job.cluster.scale_out.name == "roce-400"
    assert job.cluster.accelerator.memory == 96e9
    assert (job.layout.tp, job.layout.sharding) == (2, "fsdp")
    assert job.workload.layers == 16
    assert job.price.per_accelerator == pytest.approx(2 / 3600)
    assert job.price.fixed == pytest.approx(12 / 3600)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"precision": "fp9"}, '--precision: error[S011]: "fp9" is not a choice here; did you mean "fp8"?'),
        (
            {"prce.fixed": "2 USD/h"},
            '--set prce.fixed: error[S003]: unknown key "prce"; did you mean "price"?',
        ),
        ({"cluster.node": "dgx-h10"}, '--set cluster.node: error[S008]: no node named "dgx-h10"'),
        ({"layout.tp": 5}, "--set layout.tp: error[S010]: tp 5 does not divide the 32 heads"),
        (
            {"cluster": "dgx-h10"},
            '--cluster: error[S008]: no cluster named "dgx-h10"; did you mean "dgx-h100"?',
        ),
    ],
)
def test_a_bad_flag_is_named(load: Any, overrides: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(FULL, **{key.replace(".", "__"): value for key, value in overrides.items()})
    assert text in str(caught.value)
    assert len(caught.value.problems) == 1


def test_neither_file_nor_names(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="no job given"):
        from_flags(catalog, workload="resnet50")


def test_an_error_at_a_value_of_the_job(load: Any) -> None:
    job = load(FULL)
    problem = job.error_at("layout.sharding", "S010", "odd").problems[0]
    assert (problem.line, problem.column) == (8, 20)
    # The workload's own lines stand in another file: the key is the place.
    problem = job.error_at("workload", "S010", "odd").problems[0]
    assert (problem.line, problem.column) == (2, 1)
    assert job.error_at("nothing", "S010", "odd").problems[0].line == 1


def test_a_sequence_length_means_nothing_to_images(load: Any) -> None:
    job = load("workload: resnet50\ncluster: dgx-a100\nseq_len: 512\n")
    assert job.seq_len is None
    assert any("seq_len has no meaning" in note for note in job.notes)


def test_hybrid_sharding_is_in_a_node_where_nobody_says() -> None:
    said = {"workload": "llama3-8b", "cluster": "dgx-h100", "k": [8, 64]}
    job = load_job(None, overrides={**said, "layout": {"sharding": "hsdp", "tp": 2}})
    assert isinstance(job.layout, Layout)
    assert job.layout.shard_group == 4
    assert any("shard_group 4" in note for note in job.notes)
    given = load_job(None, overrides={**said, "layout": {"sharding": "hsdp", "shard_group": 2}})
    assert isinstance(given.layout, Layout)
    assert given.layout.shard_group == 2
    assert not any("shard_group" in note for note in given.notes)


def test_a_shard_group_that_is_all_ranks_is_told() -> None:
    said = {"workload": "llama3-8b", "cluster": "dgx-h100", "k": [8, 12]}
    uneven = load_job(None, overrides={**said, "layout": {"sharding": "hsdp"}})
    assert isinstance(uneven.layout, Layout)
    assert uneven.layout.shard_group is None
    assert any("the 8 of a node do not divide the 12" in note for note in uneven.notes)
    wide = load_job(None, overrides={**said, "layout": {"sharding": "fsdp", "shard_group": 64}})
    assert any("shard_group 64 is more than the 12 ranks" in note for note in wide.notes)


def test_one_k_and_one_accelerator_are_told_in_the_singular() -> None:
    said = {"workload": "resnet50", "cluster": {"node": "dgx-a100", "max_nodes": 1}}
    with pytest.raises(SpecError, match="does not fit K = 1"):
        load_job(None, overrides={**said, "k": 1, "layout": {"dp": 2}})
