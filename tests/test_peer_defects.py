"""Mistakes that published simulators shipped, as tests of ours."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from perfmodel.decide.prediction import predict
from perfmodel.errors import SpecError
from perfmodel.explain.explanation import explain
from perfmodel.physics.coefficients import textbook
from perfmodel.physics.counting import operations
from perfmodel.physics.fabric import OPERATIONS, collective_time
from perfmodel.physics.layouts import Sharding, layouts
from perfmodel.physics.machine import machine
from perfmodel.physics.roofline import product_time, roofline_time
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.training.step import step
from perfmodel.units import UnitError, parse, unit_scale

CATALOG = Catalog.default()
LINKS = {
    "base_s": 10e-6, "step_up_s": 1e-6, "step_out_s": 5e-6, "up_bytes_per_s": 2e11,
    "out_bytes_per_s_per_node": 5e10, "p": 0.65,
}  # fmt: skip


def job(bandwidth: str = "12.5 GB/s", workload: str = "resnet50", **more):
    link = {"name": "somewhere", "latency": "3 us", "bandwidth": bandwidth}
    cluster = {"node": "hgx-a100", "nics_per_node": 1, "scale_out": link}
    return load_job(None, overrides={"workload": workload, "cluster": cluster, "global_batch": 4096, **more})


def time_at(made, k: int) -> float:
    result = made.result
    return float(result["time_s"][list(result["k"]).index(k)])


class TestGigabitsAreNotGigabytes:
    """200 Gbit/s was entered as 200 GB/s."""

    def test_the_unit_decides(self):
        assert parse("200 Gbit/s", "B/s") == 25e9
        assert parse("200 GB/s", "B/s") == 200e9

    def test_the_ambiguous_spelling_is_refused_with_both_readings(self):
        with pytest.raises(UnitError) as caught:
            parse("200 Gb/s", "B/s")
        text = f"{caught.value.message} {caught.value.hint}"
        assert "Gbit/s" in text
        assert "GB/s" in text

    def test_a_bare_number_is_refused(self):
        with pytest.raises(SpecError):
            load_job(
                None,
                overrides={
                    "workload": "resnet50",
                    "cluster": {
                        "node": "hgx-a100",
                        "scale_out": {"name": "x", "latency": "3 us", "bandwidth": 200},
                    },
                },
            )

    def test_the_prediction_sees_the_difference(self):
        slow, fast = (predict(job(b, k="64"), draws=0) for b in ("10 Gbit/s", "10 GB/s"))
        assert time_at(slow, 64) > 1.05 * time_at(fast, 64)


@pytest.mark.parametrize(
    "spellings",
    [
        ("12.5 GB/s", "100 Gbit/s", "12500 MB/s", "0.0125 TB/s"),
        ("3 GB/s", "24 Gbit/s", "3_000 MB/s", "3e9 B/s"),
    ],
)
def test_a_prediction_does_not_depend_on_the_spelling_of_a_unit(spellings):
    texts = {predict(job(spelling, k="1..64")).to_json() for spelling in spellings}
    assert len(texts) == 1


class TestShardedWeightsAreGathered:
    """A ZeRO-3 all-gather was charged as if nothing were sharded."""

    def parts(self, sharding: Sharding) -> dict[str, float]:
        ops = operations(CATALOG.get("workloads", "llama3-8b"))
        mach = machine(CATALOG.cluster("dgx-a100"), "bf16")
        at = layouts(
            64.0, global_batch=256.0, accelerators_per_node=8.0, micro_batch=1, sharding=float(sharding)
        )
        return {name: float(value) for name, value in step(ops, mach, at, textbook()).parts.items()}

    def test_only_sharded_weights_are_gathered(self):
        assert self.parts(Sharding.FSDP)["sharded_weights"] > 0
        for kind in (Sharding.DDP, Sharding.ZERO1, Sharding.ZERO2):
            assert self.parts(kind)["sharded_weights"] == 0

    def test_gathering_in_every_micro_batch_costs_more_than_one_exchange(self):
        sharded, whole = self.parts(Sharding.FSDP), self.parts(Sharding.ZERO1)
        assert sharded["sharded_weights"] + sharded["data_parallel"] > whole["data_parallel"]


class TestNoSilentEfficiency:
    """An efficiency defaulted to 1.0 and nobody was told."""

    def test_a_link_that_nobody_measured_is_named(self):
        result = explain(job(k="64")).result
        assert any("out_efficiency" in item for item in result["defaults"])

    def test_every_belief_says_what_it_rests_on(self):
        rests = predict(job(k="8")).result["rests_on"]
        beliefs = {name: item for name, item in rests.items() if name.startswith("belief: ")}
        assert len(beliefs) > 30
        assert {item["confidence"] for item in beliefs.values()} <= {"measured", "inherited", "assumed"}

    def test_an_unknown_link_widens_the_band(self):
        """Of a job that waits for its network in every layer, and computes for most of its step with either link."""
        work = {"workload": "llama3-8b", "k": "512", "global_batch": 512, "seq_len": 2048}
        same = {"name": "nobody-knows", "latency": "1.3 us", "bandwidth": "25 GB/s"}
        clusters = ("dgx-a100", {"node": "dgx-a100", "scale_out": same})
        jobs = [
            load_job(None, overrides={**work, "cluster": one, "layout": {"tp": 1, "sharding": "fsdp"}})
            for one in clusters
        ]
        known, other = (predict(job, draws=0).curve for job in jobs)
        assert float(known.step.parts["sharded_weights"][0] / known.time_s[0]) > 0.1
        assert float(other.spread[0]) > float(known.spread[0])


@pytest.mark.parametrize(
    "op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
)
def test_latency_grows_with_the_group(op):
    """Collective latency was one constant per operation."""
    inside = [float(collective_time(op, 8.0, n, 1, **LINKS)) for n in (2, 4, 8, 16)]
    across = [float(collective_time(op, 8.0, 8 * n, n, **LINKS)) for n in (2, 4, 8, 64)]
    for small, large in itertools.chain(itertools.pairwise(inside), itertools.pairwise(across)):
        assert large > small


def test_prefixes_are_powers_of_a_thousand():
    """T was 1e13."""
    for unit in ("B", "FLOP", "bit"):
        scales = [unit_scale(prefix + unit)[1] for prefix in ("k", "M", "G", "T", "P", "E")]
        assert all(large == 1000 * small for small, large in itertools.pairwise(scales))
    assert parse("1 TFLOP/s", "FLOP/s") == 1e12
    assert parse("1 TiB", "B") == 2**40


class TestTimeNeverFallsWhenBytesGrow:
    """An efficiency table with steps made 100 MB quicker than 99.99 MB."""

    sizes = np.unique(np.concatenate([np.logspace(1, 11, 3001), [99.99e6, 100e6, 2.0**20, 2.0**20 + 1]]))

    @pytest.mark.parametrize("op", OPERATIONS)
    @pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (8, 1), (16, 2), (64, 8)])
    def test_collectives(self, op, ranks, nodes):
        time = collective_time(op, self.sizes, ranks, nodes, in_switch_bytes_per_s=1.5e11, **LINKS)
        assert np.all(np.diff(time) >= 0)

    def test_memory_bound_kernels(self):
        time = roofline_time(0.0, self.sizes, flop_per_s=1e14, bytes_per_s=2e12)
        assert np.all(np.diff(time) >= 0)

    def test_matrix_products(self):
        time = product_time(self.sizes, 1024, 1024, flop_per_s=1e14, bytes_per_s=2e12)
        assert np.all(np.diff(time) >= 0)


def test_efficiency_depends_on_the_network():
    """The efficiency of n accelerators was 0.95^(n-1), whatever joins them."""
    slow, fast = (predict(job(b, k="1..512"), draws=0).result for b in ("1 GB/s", "100 GB/s"))
    last = len(slow["k"]) - 1
    assert fast["efficiency"][last] > 1.2 * slow["efficiency"][last]
    law = 0.95 ** (np.asarray(fast["k"]) - 1.0)
    assert np.max(np.abs(np.asarray(fast["efficiency"]) - law)) > 0.2


def test_a_prediction_logs_nothing():
    """Messages that nobody read took 85 % of the run."""
    code = (
        "import sys; from perfmodel.specs.jobs import load_job; from perfmodel.decide.prediction import predict;"
        "predict(load_job(None, overrides={'workload': 'llama3-8b', 'cluster': 'dgx-h100'}));"
        "import logging; sys.exit(bool(logging.root.handlers))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
