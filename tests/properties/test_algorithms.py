"""Whatever the group and the fabric: a chosen algorithm grows with bytes and ranks, and moves T(K) the right way."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfmodel.explain.one_collective import Asked, Stated, by_letters
from perfmodel.physics.algorithms import ALGORITHMS, CODES
from perfmodel.physics.coefficients import MEDIANS, NAMES, from_logs
from perfmodel.physics.counting import operations
from perfmodel.physics.fabric import OPERATIONS, collective_time
from perfmodel.physics.layouts import SHARDING_CODES, layouts
from perfmodel.physics.machine import Machine, machine
from perfmodel.specs.catalog import Catalog
from perfmodel.training.step import step

rates = st.floats(1e9, 1e12)
latencies = st.floats(0.0, 1e-4)


@given(
    st.sampled_from(OPERATIONS),
    st.sampled_from(ALGORITHMS),
    st.floats(1.0, 1e11),
    st.floats(1.0, 64.0),
    st.floats(1.0, 64.0),
    latencies,
    latencies,
    rates,
    rates,
    st.sampled_from([0.0, 3e11]),
)
@example(
    "all_reduce", "tree", 1.0, 4.0, 1.0, 0.0, 0.0, 1e9, 1e9, 0.0
)  # whose own-shard copy shrank with the group
@settings(max_examples=150, deadline=None)
def test_a_chosen_algorithm_is_positive_and_grows_with_bytes_and_ranks_of_a_domain(
    op: str,
    name: str,
    size: float,
    g: float,
    k: float,
    up_s: float,
    out_s: float,
    up: float,
    out: float,
    switch: float,
) -> None:
    def time(bytes_: float, inside: float) -> float:
        return float(
            collective_time(
                op, bytes_, inside * k, k, base_s=1e-5, step_up_s=up_s, step_out_s=out_s, up_bytes_per_s=up,
                out_bytes_per_s_per_node=out, in_switch_bytes_per_s=switch, p=0.65, algorithm=name,
            )
        )  # fmt: skip

    one = time(size, g)
    assert np.isfinite(one)
    assert one >= 0.0
    assert time(2.0 * size, g) >= one
    if name != "auto":  # the library's own way may change with the group
        assert time(size, 1.5 * g) >= one * (1.0 - 1e-12)


@lru_cache(maxsize=1)
def _catalog() -> Catalog:
    return Catalog.default()


@lru_cache(maxsize=4)
def _machine(name: str) -> Machine:
    return machine(_catalog().cluster(name), "bf16")


C = from_logs(np.log(np.array([MEDIANS[name] for name in NAMES])))


def _times(work: str, sharding: str, batch: float, k: np.ndarray, names: list[str]) -> dict[str, np.ndarray]:
    ops = operations(_catalog().get("workloads", work))
    found = {}
    for name in names:
        at = layouts(
            k, global_batch=batch * k, accelerators_per_node=8, micro_batch=1.0, sharding=float(SHARDING_CODES[sharding]),
            declared={"data_algorithm": CODES[name]},
        )  # fmt: skip
        found[name] = step(ops, _machine("dgx-a100"), at, C).time_s
    return found


@given(
    st.sampled_from(["ddp", "zero1", "fsdp"]),
    st.sampled_from(["pythia-160m", "pythia-1b"]),
    st.integers(1, 4),
)
@settings(max_examples=12, deadline=None)
def test_a_ring_costs_the_step_more_than_a_tree_where_latency_rules(
    sharding: str, work: str, batch: int
) -> None:
    k = np.array([4096.0, 16384.0])
    found = _times(work, sharding, batch, k, ["ring", "tree", "halving_doubling"])
    assert (found["ring"] > found["tree"]).all()
    assert (found["ring"] > found["halving_doubling"]).all()
    # 2 (n - 1) messages: four times the ranks, four times the latency; a tree adds two messages a doubling.
    assert found["ring"][1] - found["ring"][0] > 2.0 * (found["tree"][1] - found["tree"][0])


@given(st.sampled_from(["pythia-6.9b", "llama2-13b"]))
@settings(max_examples=4, deadline=None)
def test_a_tree_costs_more_than_a_ring_where_bytes_rule(work: str) -> None:
    k = np.array([4.0, 8.0])
    found = _times(work, "ddp", 1, k, ["ring", "tree", "parameter_server"])
    assert (found["tree"] > found["ring"]).all()
    assert (found["parameter_server"] > found["tree"]).all()


def test_codes_of_several_algorithms_side_by_side_give_each_its_own() -> None:
    ops, k = operations(_catalog().get("workloads", "pythia-1b")), np.full(len(ALGORITHMS), 256.0)
    mixed = layouts(
        k, global_batch=k, accelerators_per_node=8, micro_batch=1.0,
        declared={"data_algorithm": np.array(list(CODES.values()))},
    )  # fmt: skip
    together = step(ops, _machine("dgx-a100"), mixed, C).time_s
    alone = _times("pythia-1b", "ddp", 1, np.array([256.0]), list(ALGORITHMS))
    np.testing.assert_allclose(together, [float(alone[name][0]) for name in ALGORITHMS], rtol=1e-12)
    assert len(set(np.round(together, 9))) >= 5


@given(st.integers(3, 1024), st.floats(1.0, 1e11), st.floats(1e-7, 1e-3), st.floats(1e8, 1e12))
@settings(max_examples=60, deadline=None)
def test_the_verb_gives_ring_and_trees_their_textbook_times(
    n: int, size: float, alpha: float, rate: float
) -> None:
    """The forms of the textbooks, written out here: whatever the group, the message and the link."""
    asked = Asked("all_reduce", (size,), (n,), ("ring", "binomial_tree", "tree"))
    found = {row["algorithm"]: row["time_s"] for row in by_letters(asked, Stated(alpha, rate)).result["rows"]}
    levels = np.ceil(np.log2(n))
    ring = 2 * (n - 1) * alpha + 2 * (n - 1) / n * size / rate
    binomial = 2 * levels * (alpha + size / rate)
    two_trees = 2 * levels * alpha + 2 * size / rate + 2 * np.sqrt(2 * levels * alpha * 2 * size / rate)
    forms = {"ring": ring, "binomial_tree": binomial, "tree": two_trees}
    for name, time in forms.items():
        np.testing.assert_allclose(found[name], time, rtol=1e-9, err_msg=name)
