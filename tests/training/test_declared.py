"""What a job declares beside its layout: numbers worked out by hand, defaults that change nothing, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from overlap import MIB, ddp_backward_s

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.run import calibrate_job
from perfmodel.calibrate.traces import traced_exposure
from perfmodel.decide.prediction import predict
from perfmodel.errors import SpecError
from perfmodel.explain.explanation import explain
from perfmodel.physics.coefficients import NAMES, quiet, textbook
from perfmodel.physics.constants import BUCKET_BYTES
from perfmodel.physics.counting import operations
from perfmodel.physics.layouts import DECLARED, Layouts, Sharding, layouts
from perfmodel.physics.machine import Machine, machine
from perfmodel.physics.memory import memory
from perfmodel.physics.stragglers import expected_max_with_slow_devices
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.study.table import parse_timings
from perfmodel.training import declared
from perfmodel.training.curve import centre, curve
from perfmodel.training.declared import MEMORY_SPREAD, informed, measured_hardware
from perfmodel.training.setup import setup_of
from perfmodel.training.step import Step, step

CATALOG = Catalog.default()
GRID: dict[str, Any] = {"workload": "resnet50", "cluster": "dgx-a100", "global_batch": 4096, "k": "8..64"}

# Workload, cluster, precision, K, batch, layout: every way of sharing weights and gradients.
JOBS: tuple[Any, ...] = (
    ("resnet50", "dgx-a100", "fp16", 64, 4096, {}),
    ("gpt3-175b", "dgx-a100", "bf16", 512, 512, {"tp": 8, "pp": 8, "micro_batch": 1, "sharding": Sharding.ZERO1}),
    ("llama3-8b", "dgx-h100", "bf16", 128, 256, {"micro_batch": 1, "sharding": Sharding.FSDP}),
    ("llama3-8b", "dgx-h100", "bf16", 256, 1024, {"micro_batch": 4, "sharding": Sharding.HSDP, "shard_group": 8}),
    ("bert-large", "dgx-h100", "fp32", 32, 4096, {"micro_batch": 128, "sharding": Sharding.ZERO2}),
    ("vgg16", "dgx-a100", "fp32", 24, 768, {"sharding": Sharding.PARAMETER_SERVER}),
    ("mixtral-8x7b", "dgx-h100", "bf16", 64, 512, {"tp": 2, "ep": 8, "micro_batch": 2, "sharding": Sharding.ZERO1}),
)  # fmt: skip


def _point(
    workload: str, cluster: str, precision: str, k: float, batch: float, **more: Any
) -> tuple[Any, Machine, Layouts]:
    found = machine(CATALOG.cluster(cluster), precision)
    at = layouts(k, global_batch=batch, accelerators_per_node=found.node, **more)
    return operations(CATALOG.get("workloads", workload)), found, at


def _vgg(k: float = 64, **declared: float) -> Step:
    return step(*_point("vgg16", "dgx-a100", "fp16", k, 2048, declared=declared), textbook())


def _part(found: Step, name: str) -> float:
    return float(found.parts[name])


@pytest.mark.parametrize("row", JOBS, ids=lambda row: f"{row[0]}-{row[3]}")
def test_saying_the_defaults_changes_nothing(row: Any) -> None:
    *what, layout = row
    unsaid, said = (step(*_point(*what, declared=d, **layout), textbook()) for d in (None, DECLARED))
    assert {name: float(part) for name, part in said.parts.items()} == {
        name: float(part) for name, part in unsaid.parts.items()
    }
    assert float(said.hidden_s) == float(unsaid.hidden_s)


def test_synchronising_every_n_steps_divides_the_exchange() -> None:
    once, often = _vgg(sync_every=4), _vgg()
    assert _part(once, "data_parallel") == pytest.approx(_part(often, "data_parallel") / 4)
    assert _part(once, "synchronisation") == pytest.approx(_part(often, "synchronisation") / 4)
    assert _part(once, "straggler") < _part(often, "straggler")
    assert _part(once, "compute") == _part(often, "compute")


def test_eight_bit_gradients_are_compression_by_two() -> None:
    assert float(_vgg(gradient_bytes=1.0).time_s) == pytest.approx(float(_vgg(compression=2.0).time_s))
    assert float(_vgg(gradient_bytes=4.0).time_s) > float(_vgg().time_s)


def test_the_codec_takes_the_devices_own_time() -> None:
    free, dear = _vgg(compression=8.0), _vgg(compression=8.0, compression_s=1.2e-3)
    assert _part(dear, "data_parallel") - _part(free, "data_parallel") == pytest.approx(1.2e-3)
    assert _part(_vgg(1, compression=8.0, compression_s=1.2e-3), "data_parallel") == 0.0
    assert float(free.time_s) < float(_vgg().time_s) < float(dear.time_s)


def test_weights_are_not_compressed() -> None:
    def at(**declared: float) -> Step:
        row = _point(
            "llama3-8b",
            "dgx-h100",
            "bf16",
            128,
            256,
            micro_batch=1,
            sharding=Sharding.ZERO1,
            declared=declared,
        )
        return step(*row, replace(textbook(), net_exposed=np.asarray(1.0)))

    whole, least = at(), at(compression=1e5)
    assert 0.45 < _part(least, "data_parallel") / _part(whole, "data_parallel") < 0.6


def test_one_bucket_hides_nothing_and_tiny_buckets_pay_a_call_each() -> None:
    usual, one, tiny = (
        _vgg(),
        _vgg(bucket_bytes=1e12, first_bucket_bytes=1e12),
        _vgg(bucket_bytes=64 * 1024.0),
    )
    whole = _part(usual, "data_parallel") + float(usual.hidden_s)
    assert _part(one, "data_parallel") == pytest.approx(whole)
    assert _part(tiny, "data_parallel") > _part(usual, "data_parallel")
    assert _part(_vgg(bucket_bytes=BUCKET_BYTES * 4), "data_parallel") > _part(usual, "data_parallel")
    half = _vgg(bucket_bytes=BUCKET_BYTES / 2)
    assert _part(half, "data_parallel") < _part(usual, "data_parallel")


def test_buckets_move_the_exposed_time_the_way_the_recurrence_does() -> None:
    gradient, backward = 276e6, 0.05
    exact = [
        float(ddp_backward_s(gradient, backward, latency_s=1e-5, bytes_per_s=2e10, bucket_bytes=width))
        for width in (12 * MIB, 25 * MIB, 100 * MIB, 400 * MIB)
    ]
    ours = [
        _part(_vgg(bucket_bytes=width), "data_parallel")
        for width in (12 * MIB, 25 * MIB, 100 * MIB, 400 * MIB)
    ]
    assert np.all(np.diff(exact) > 0)
    assert np.all(np.diff(ours) > 0)


def test_sharded_gradients_are_reduced_in_every_micro_batch() -> None:
    def at(kind: Sharding, steps: int) -> Step:
        row = _point("llama3-8b", "dgx-h100", "bf16", 64, 512, accumulation=steps, sharding=kind)
        return step(*row, replace(textbook(), net_exposed=np.asarray(1.0)))

    assert float(at(Sharding.ZERO2, 1).time_s) == float(at(Sharding.ZERO1, 1).time_s)
    once = _part(at(Sharding.ZERO1, 8), "data_parallel")
    # Of the reduce-scatter and the all-gather, equal here, the first runs eight times.
    assert _part(at(Sharding.ZERO2, 8), "data_parallel") == pytest.approx(4.5 * once, rel=0.01)


def test_replicas_that_lack_a_sample_are_imbalance() -> None:
    row = _point("resnet50", "dgx-a100", "fp16", 3, 100)
    uneven = replace(row[2], micro_batch=np.asarray(34.0))
    found, even = step(row[0], row[1], uneven, textbook()), step(*row, textbook())
    full = _part(found, "compute") + _part(found, "imbalance")
    assert _part(found, "imbalance") == pytest.approx(full * (1 - 100 / (3 * 34)))
    assert _part(even, "imbalance") == 0.0
    assert sum(float(part) for part in found.parts.values()) == pytest.approx(float(found.time_s), rel=1e-12)


def test_variable_lengths_make_replicas_wait() -> None:
    assert _part(_vgg(1, length_spread=0.5), "imbalance") == 0.0
    few, many = _vgg(8, length_spread=0.5), _vgg(256, length_spread=0.5)
    assert (
        0.0
        < _part(few, "imbalance") / _part(few, "compute")
        < _part(many, "imbalance") / _part(many, "compute")
    )


def test_slow_devices_as_the_exact_mixture_has_them() -> None:
    row = _point("resnet50", "dgx-a100", "fp16", 512, 4096, declared={"slow_share": 0.005, "slowdown": 1.2})
    found = step(*row, replace(textbook(), jitter=np.asarray(0.004)))
    before = sum(
        float(part)
        for name, part in found.parts.items()
        if name not in ("straggler", "input_stall", "serial")
    )
    exact = float(expected_max_with_slow_devices(512, 0.004, slow_fraction=0.005, slowdown=1.2))
    assert 1 + _part(found, "straggler") / before == pytest.approx(exact, rel=0.01)


def test_stalls_and_input_rates() -> None:
    assert _part(_vgg(stall_s=0.03), "serial") == pytest.approx(0.03)
    row = _point("resnet50", "dgx-a100", "fp16", 64, 4096, declared={"storage_bytes_per_s": 1e9})
    wanted = float(row[0].input_bytes) * 4096 / 1e9
    assert float(step(*row, quiet()).time_s) == pytest.approx(wanted, rel=0.01)
    row = _point("resnet50", "dgx-a100", "fp16", 64, 4096, declared={"loader_bytes_per_s": 1e8})
    assert float(step(*row, quiet()).time_s) == pytest.approx(wanted * 10 / 8, rel=0.01)


def test_wide_gradients_take_memory() -> None:
    row = ("llama3-8b", "dgx-h100", "bf16", 8, 64)
    usual, wide = _point(*row), _point(*row, declared={"gradient_bytes": 4.0})
    assert float(memory(*wide).parts["gradients"]) == 2 * float(memory(*usual).parts["gradients"])
    narrow = _point(*row, declared={"gradient_bytes": 1.0})
    assert float(memory(*narrow).parts["gradients"]) == float(memory(*usual).parts["gradients"])


def test_a_job_file_declares_them_all(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "workload: resnet50\ncluster: dgx-a100\nglobal_batch: 4096\nk: 32\ngradient_dtype: fp8\n"
        "compression: {ratio: 8, cost: 1.2 ms}\nsync_every: 4\nbucket: 10 MB\nfirst_bucket: 2 MB\n"
        "stalls: [{name: checkpoint, time: 30 s, every: 1000}, {name: log, time: 1 ms}]\n"
        "input: {loader: 2 GB/s, storage: 40 GB/s}\nlength_spread: 0.3\n"
        "slow_devices: {share: 0.5 %, slowdown: 1.1}\n",
        encoding="utf-8",
    )
    job = load_job(path)
    assert setup_of(job).declared == pytest.approx(
        {
            "gradient_bytes": 1.0, "compression": 8.0, "compression_s": 1.2e-3, "sync_every": 4.0, "bucket_bytes": 1e7,
            "first_bucket_bytes": 2e6, "stall_s": 0.031, "loader_bytes_per_s": 2e9, "storage_bytes_per_s": 4e10,
            "length_spread": 0.3, "slow_share": 0.005, "slowdown": 1.1, "held_gradient_bytes": 1.0,
        }
    )  # fmt: skip
    found = explain(job).result
    shown = {row["name"]: row for term in found["terms"] for row in term["inputs"]}
    assert shown["compression"]["value"] == 8.0
    assert shown["synchronised every"]["confidence"] == "declared"
    assert shown["stalls"]["sensitivity"] > 0.1
    assert any(note.startswith("declared: gradient bytes 1 B, compression 8") for note in found["notes"])
    assert "/synchronised every" in next(t["formula"] for t in found["terms"] if t["name"] == "data_parallel")


@pytest.mark.parametrize(
    ("said", "bucket", "gradient", "notes"),
    [
        (
            "framework: megatron_eager",
            (1e12, "default of megatron_eager: all gradients in one call, after the backward pass"),
            (4.0, "default of megatron_eager: gradients of bf16 are added and reduced in 32 bit"),
            ["default of megatron_eager", "default of megatron_eager"],
        ),
        (
            "framework: megatron_eager\nbucket: 25 MiB\ngradient_dtype: bf16",
            (BUCKET_BYTES, "job"),
            (2.0, "job"),
            ["declared"],
        ),
        (
            "framework: megatron_core\nprecision: fp16",
            (BUCKET_BYTES, "default"),
            (2.0, "default: as the precision has it"),
            [],
        ),
        ("bucket: 100 MB", (1e8, "job"), (2.0, "default: as the precision has it"), ["declared"]),
    ],
)
def test_a_framework_exchanges_in_its_own_way_and_a_job_overrules_it(
    tmp_path: Path, said: str, bucket: tuple[float, str], gradient: tuple[float, str], notes: list[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"workload: gpt2-xl\ncluster: dgx-a100\nglobal_batch: 512\nk: 64\nlayout: {{micro_batch: 4}}\n{said}\n",
        encoding="utf-8",
    )
    job = load_job(path)
    found = explain(job).result
    shown = {row["name"]: (row["value"], row["source"]) for term in found["terms"] for row in term["inputs"]}
    assert (shown["bucket"], shown["gradient bytes"]) == (bucket, gradient)
    at = curve(setup_of(job), shipped_beliefs()).at
    assert (float(at.bucket_bytes), float(at.gradient_bytes) or 2.0) == (bucket[0], gradient[0])
    words = ("declared", "default of")
    assert [note.split(":")[0] for note in found["notes"] if note.startswith(words)] == notes


def test_nonsense_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "workload: resnet50\ncluster: dgx-a100\ncompression: {ratio: 0.5, cost: -1 ms}\nsync_every: 0\nbucket: 3\n"
        "gradient_dtype: fp7\nslow_devices: {share: 2, slowdown: 0.5}\n",
        encoding="utf-8",
    )
    with pytest.raises(SpecError) as caught:
        load_job(path)
    assert sorted((p.line or 0) for p in caught.value.problems) == [3, 3, 4, 5, 6, 7, 7]


def test_replicas_that_step_alone_hold_the_whole_state() -> None:
    with pytest.raises(SpecError, match="must each hold the whole state"):
        load_job(None, overrides={**GRID, "sync_every": 4, "layout": {"sharding": "zero1"}})
    language = {"workload": "gpt2-xl", "cluster": "dgx-h100", "k": "8,16", "sync_every": 4}
    for layout in ("auto", {"micro_batch": 4}):
        job = load_job(None, overrides={**language, "layout": layout})
        assert {row["sharding"] for row in predict(job, draws=0).result["layout"]} == {"ddp"}


def _own(**changes: Any) -> Any:
    unsure = {"value": 0.9, "confidence": "assumed"}
    device = "cluster.node.accelerator"
    own = {f"{device}.name": "mine", f"{device}.matmul_fraction": unsure, f"{device}.memory_fraction": unsure}
    words = {**GRID, **own, **changes}
    return setup_of(load_job(None, overrides=words))


def test_measured_hardware_of_the_user_moves_the_belief() -> None:
    beliefs = shipped_beliefs()
    at = NAMES.index("memory")
    before, _ = centre(_own(), beliefs)
    told = _own(**{"cluster.node.accelerator.memory_fraction": {"value": 0.95, "confidence": "measured"}})
    after, logs = centre(told, beliefs)
    # The measurement weighs by its precision against what the population and the scatter between jobs leave open.
    scatter = beliefs.scatter[at]
    open_before = before.spread[at] ** 2 + scatter
    left = 1.0 / (1.0 / open_before + 1.0 / MEMORY_SPREAD**2)
    assert before.median[at] < logs[at] < np.log(0.95)
    assert logs[at] == pytest.approx(
        left * (before.median[at] / open_before + np.log(0.95) / MEMORY_SPREAD**2)
    )
    assert after.spread[at] == pytest.approx(np.sqrt(max(left - scatter, 0.0)), abs=1e-9)
    assert after.basis["memory"] == "measured"
    others = [i for i in range(len(NAMES)) if i != at]
    assert np.array_equal(after.median[others], before.median[others])


def test_a_measurement_narrows_what_is_open_down_to_the_scatter_between_jobs() -> None:
    known, _ = centre(_own(), shipped_beliefs())
    wide = replace(known, spread=known.spread + 0.3)
    at, scatter = NAMES.index("memory"), np.full(len(NAMES), 0.02)
    said = _own(**{"cluster.node.accelerator.memory_fraction": {"value": 0.95, "confidence": "measured"}})
    (found,) = measured_hardware(said.cluster)
    rough = informed(wide, scatter, [replace(found, spread=0.3)])
    exact = informed(wide, scatter, [replace(found, spread=1e-6)])
    assert 0.0 == exact.spread[at] < rough.spread[at] < wide.spread[at]
    assert wide.median[at] < rough.median[at] < exact.median[at]


def test_values_that_are_not_measured_or_not_the_users_inform_nothing() -> None:
    said = _own(**{"cluster.node.accelerator.memory_fraction": {"value": 0.95, "confidence": "assumed"}})
    assert measured_hardware(said.cluster) == ()
    for name in CATALOG.names("clusters"):
        assert measured_hardware(CATALOG.cluster(name)) == ()


def test_a_link_measured_by_the_user_informs_its_efficiency() -> None:
    link = {"name": "wire", "latency": "2 us", "bandwidth": "25 GB/s",
            "efficiency": {"value": 0.5, "confidence": "measured"}}  # fmt: skip
    cluster = _own(**{"cluster.scale_out": link}).cluster
    (found,) = measured_hardware(cluster)
    assert (found.coefficient, found.value) == ("out_efficiency", 0.5)
    belief, _ = centre(_own(), shipped_beliefs())
    scatter = shipped_beliefs().scatter[: len(NAMES)]
    exact = informed(belief, scatter, [replace(found, spread=1e-9)])
    assert exact.median[NAMES.index("out_efficiency")] == pytest.approx(np.log(0.5))


def test_a_calibration_counts_measured_hardware_among_its_measurements(tmp_path: Path) -> None:
    timings = tmp_path / "timings.csv"
    timings.write_text("k,time_s\n8,0.30\n16,0.16\n", encoding="utf-8")
    told = {"cluster.node.accelerator.memory_fraction": {"value": 0.95, "confidence": "measured"}}
    found = calibrate_job(
        load_job(None, overrides={**GRID, **told}), None, parse_timings, timings=timings
    ).result
    assert [row["name"] for row in found["direct"]] == ["memory"]
    unsaid = calibrate_job(load_job(None, overrides=GRID), None, parse_timings, timings=timings).result
    assert unsaid["direct"] == []


def test_a_spec_of_ones_own_in_the_usual_folders_is_not_the_shipped_one(tmp_path, monkeypatch):
    (tmp_path / "accelerators").mkdir()
    own = "extends: h100-sxm5-80gb\nname: h100-sxm5-80gb\nmatmul_fraction: {value: 0.61, confidence: measured}\n"
    (tmp_path / "accelerators" / "h100-sxm5-80gb.yaml").write_text(own, encoding="utf-8")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    declared._shipped.cache_clear()
    found = declared.measured_hardware(Catalog.default().cluster("dgx-h100"))
    assert [(item.coefficient, item.value) for item in found] == [("matmul", 0.61)]


def test_a_trace_that_hides_an_exchange_in_one_call_is_told_and_informs_nothing() -> None:
    said = {"workload": "gpt2-xl", "cluster": "dgx-a100", "global_batch": 512, "k": 16}
    job = load_job(None, overrides={**said, "framework": "megatron_eager", "layout": {"micro_batch": 4}})
    seen: list[str] = []
    summary: Any = SimpleNamespace(hidden_fraction=lambda: 0.9, workers=16, steps_from="markers")
    assert traced_exposure(job, setup_of(job), summary, "t.json", seen) == []
    assert "90% of the exchange ran under compute" in seen[0]
