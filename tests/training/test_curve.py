"""T(K) of whole jobs: feasibility with reasons, baselines, regimes, declared jitter, bands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.extrapolation import population_signs
from perfmodel.beliefs.population import Calibration, shipped_beliefs, textbook_beliefs
from perfmodel.physics.coefficients import NAMES
from perfmodel.physics.jitter import equivalent_spread
from perfmodel.physics.stragglers import expected_max
from perfmodel.physics.variation import Variation
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.specs.layout import Layout, layout_words
from perfmodel.training.curve import (
    Curve,
    _joined,
    _unmeasured,
    _without_foreign_times,
    centre,
    curve,
    effect_covariance,
    sensitivities,
)
from perfmodel.training.setup import Setup, setup_of
from perfmodel.training.space import Refusal

CATALOG = Catalog.default()


def setup(workload="llama3-8b", cluster="dgx-h100", k=(8, 16, 32), batch=512.0, **more) -> Setup:
    ks = np.array(k, dtype=float)
    return Setup(
        CATALOG.get("workloads", workload),
        CATALOG.cluster(cluster),
        "bf16",
        ks,
        np.broadcast_to(np.asarray(batch, dtype=float), ks.shape).copy(),
        **more,
    )


def found(*args, draws=0, **more) -> Curve:
    return curve(setup(*args, **more), shipped_beliefs(), draws=draws)


def test_infeasible_k_is_nan_with_a_reason_and_the_rest_is_kept():
    made = found(k=(1, 8, 12, 1024), batch=512.0)
    assert made.feasible.tolist() == [False, True, True, True]
    assert np.isnan(made.time_s[0])
    assert np.isfinite(made.time_s[1:]).all()
    assert "GB" in made.reasons[0]
    assert made.reasons[1] is None
    assert np.isnan(made.parts["compute"][0])


def test_the_reason_names_the_largest_part():
    made = found(k=(8,), layout=Layout(sharding="ddp", micro_batch=1))
    assert made.refusals[0] == Refusal.MEMORY
    assert "optimizer" in made.reasons[0]


def followed(advice: str, layout: Layout, k: int) -> tuple[Layout | None, int]:
    """The layout and K that an advice speaks of."""
    if advice.startswith("K = "):
        number, _, rest = advice.removeprefix("K = ").partition(" ")
        return (None if rest == "fits with another layout" else layout), int(number)
    if advice == "another layout fits":
        return None, k
    pairs = (part.split("=") for part in advice.removesuffix(" would fit").split(", "))
    changed = {key: int(value) if value.isdigit() else value for key, value in pairs}
    return Layout.model_validate(layout.model_dump(exclude_unset=True) | changed), k


@pytest.mark.parametrize(
    ("workload", "k", "given"),
    [
        ("llama3-8b", 8, {"sharding": "ddp", "micro_batch": 1}),
        ("llama3-70b", 64, {"tp": 4, "pp": 2, "micro_batch": 1, "schedule": "gpipe"}),
        ("llama3-70b", 64, {"tp": 8, "pp": 4, "micro_batch": 8, "schedule": "gpipe", "recompute": "none"}),
        ("llama3-70b", 64, {"tp": 2, "sharding": "hsdp", "shard_group": 2}),
        ("llama3-70b", 64, {"dp": 32, "tp": 2, "micro_batch": 1}),
        ("llama3-70b", 64, {"tp": 8, "pp": 4, "accumulation": 2}),
        ("llama3-70b", 64, {"tp": 8, "pp": 4, "accumulation": 2, "micro_batch": 64}),
        ("llama3-70b", 64, {"tp": 2, "sequence_parallel": True, "micro_batch": 8}),
        ("llama3-70b", 64, {"tp": 2, "sequence_parallel": False, "micro_batch": 8}),
        ("llama3-70b", 64, {"pp": 4, "vpp": 2, "micro_batch": 1}),
        ("llama3-70b", 8, {"dp": 8, "sharding": "hsdp", "shard_group": 4}),
        ("llama3-70b", 8, {"tp": 8}),
        ("mixtral-8x7b", 8, {"ep": 8, "dp": 8, "recompute": 0.3}),
    ],
)
def test_advice_that_is_followed_fits(workload, k, given):
    layout = Layout.model_validate(given)
    made = found(workload, k=(k,), batch=256.0, layout=layout)
    assert made.refusals[0] == Refusal.MEMORY
    other, enough = followed(made.reasons[0].rpartition(": ")[2], layout, k)
    assert found(workload, k=(enough,), batch=256.0, layout=other).feasible[0]


def test_the_k_that_a_reason_promises_fits():
    made = found("llama3-70b", k=(4,))
    assert not made.feasible[0]
    enough = int(made.reasons[0].rpartition("K = ")[2].split()[0])
    assert found("llama3-70b", k=(enough,)).feasible[0]
    assert not found("llama3-70b", k=(enough // 2,)).feasible[0]


@pytest.mark.parametrize(
    ("k", "given"),
    [
        (8, {"tp": 8, "accumulation": 1, "sharding": "fsdp"}),
        (64, {"tp": 8, "accumulation": 1, "sharding": "fsdp"}),
        (8, {"tp": 8, "recompute": "full"}),
    ],
)
def test_the_k_that_a_reason_promises_fits_where_the_batch_grows_with_it(k, given):
    def weak(layout, k) -> Curve:
        words = {"workload": "llama3-70b", "cluster": "dgx-h100", "k": str(k), "layout": layout}
        asked = load_job(None, overrides=words | {"regime": "weak", "batch_per_accelerator": 8})
        return curve(setup_of(asked), shipped_beliefs(), draws=0)

    made = weak(given, k)
    assert made.refusals[0] == Refusal.MEMORY
    layout, enough = followed(made.reasons[0].rpartition(": ")[2], Layout.model_validate(given), k)
    assert weak("auto" if layout is None else layout.model_dump(exclude_unset=True), enough).feasible[0]


def test_k_need_not_be_a_power_of_two():
    made = found("resnet50", k=(1, 3, 5, 7, 12, 20, 100), batch=4096.0)
    assert made.feasible.all()
    assert np.all(np.diff(made.time_s) < 0)
    assert made.names[4]["dp"] == 12
    assert made.names[4]["micro_batch"] * made.names[4]["accumulation"] >= 4096 / 12


def test_one_k_does_not_depend_on_the_others():
    whole = found(k=(8, 16, 32, 64))
    for index, k in enumerate((8, 16, 32, 64)):
        alone = found(k=(k,))
        assert alone.time_s[0] == pytest.approx(whole.time_s[index], rel=1e-12)
        assert alone.names[0] == whole.names[index]


def test_auto_is_no_slower_than_any_layout_given():
    best = found(k=(64,)).time_s[0]
    for layout in (Layout(tp=2), Layout(tp=4, pp=2), Layout(sharding="fsdp"), Layout(recompute="full")):
        made = found(k=(64,), layout=layout)
        assert not made.feasible[0] or made.time_s[0] >= best * (1 - 1e-6)


def test_parts_sum_to_the_time_and_the_band_holds_it():
    made = found(k=(8, 64, 512))
    assert np.allclose(sum(made.parts.values()), made.time_s, rtol=1e-9)
    assert np.all(made.low_s < made.time_s)
    assert np.all(made.time_s < made.high_s)


def test_draws_are_about_the_curve_and_repeat():
    one, again = (found(k=(8, 64), draws=400) for _ in range(2))
    assert one.draws_s.shape == (400, 2)
    assert np.array_equal(one.draws_s, again.draws_s)
    other = curve(setup(k=(8, 64)), shipped_beliefs(), draws=400, seed=1)
    assert not np.array_equal(one.draws_s, other.draws_s)
    assert np.all(np.abs(np.log(np.median(one.draws_s, axis=0) / one.time_s)) < 0.25)


def test_textbook_beliefs_serve_as_well():
    made = curve(setup(k=(8, 64)), textbook_beliefs(), draws=0)
    assert np.isfinite(made.time_s).all()


@pytest.mark.parametrize("family", ["normal", "gumbel", "exponential", "gamma", "weibull", "pareto"])
def test_declared_jitter_of_any_family_costs_its_expected_maximum(family):
    base = {"workload": "resnet50", "k": (1, 8, 64, 512), "batch": 4096.0}
    calm = found(**base, jitter=1e-9)
    made = found(**base, jitter=0.08, variation=Variation(family, 0.08))
    before = sum(
        calm.parts[name] for name in calm.parts if name not in ("straggler", "input_stall", "serial")
    )
    factor = made.parts["straggler"] / before + 1.0
    assert factor == pytest.approx(expected_max([1, 8, 64, 512], family, 1.0, 0.08), rel=3e-3)


def test_more_jitter_waits_longer_in_every_family():
    for family in ("lognormal", "pareto"):
        small, large = (equivalent_spread([8, 512], Variation(family, s)) for s in (0.01, 0.1))
        assert np.all(small < large)


def test_a_zero_bubble_schedule_leaves_a_third_of_the_bubble():
    plain, zero = (
        found("gpt3-175b", "dgx-a100", k=(128,), batch=64.0, layout=Layout(tp=8, pp=16, micro_batch=1, recompute="full", schedule=s))
        for s in ("1f1b", "zero-bubble")
    )  # fmt: skip
    assert zero.parts["bubble"][0] == pytest.approx(plain.parts["bubble"][0] / 3.0)


def test_slopes_are_those_of_a_large_step():
    made = found(k=(64,))
    slopes = sensitivities(made.setup, made.at, made.logs)
    assert slopes.shape[1] == 1
    assert np.all(np.abs(slopes) <= 1.0 + 1e-6)


def test_a_cluster_with_few_nodes_ends_there():
    small = setup(k=(8, 32))
    small = replace(small, cluster=small.cluster.model_copy(update={"max_nodes": 2}))
    made = curve(small, shipped_beliefs(), draws=0)
    assert made.feasible.tolist() == [True, False]
    assert made.reasons[1] == "the cluster has 16 accelerators"


def test_batches_of_weak_scaling_follow_k():
    ks = np.array([8.0, 64.0, 512.0])
    made = found("resnet50", k=ks, batch=64.0 * ks)
    assert [name["micro_batch"] * name["accumulation"] for name in made.names] == [64, 64, 64]
    assert np.all(np.diff(made.time_s) > 0)


@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3", "hsdp"])
def test_a_layout_names_the_group_that_shares_a_copy_where_it_is_not_all_ranks(sharding):
    given = Layout(sharding=sharding, shard_group=8, recompute="full")
    made = found(k=(8, 64), layout=given)
    assert [name.get("shard_group") for name in made.names] == [None, 8]
    assert f"{made.names[1]['sharding']} group 8" in layout_words(made.names[1])


def calibrated(made: Setup, *, timed: bool):
    """Shipped beliefs with a made-up calibration of every effect."""
    beliefs = shipped_beliefs()
    n = beliefs.scatter.size
    points = np.array([8.0]) if timed else np.zeros(0)
    return beliefs.calibrated(
        Calibration(np.linspace(0.1, 0.2, n), 1e-4 * np.eye(n), "two_point", 1, points, points, batch=points)
    )


@pytest.mark.parametrize(("left", "narrowed"), [(0.25, 0.5), (1.0, 1.0), (4.0, 1.0)])
def test_sweeps_narrow_a_band_as_they_narrow_the_beliefs_and_never_widen_it(left, narrowed):
    made = setup()
    beliefs = shipped_beliefs()
    belief, _ = centre(made, beliefs)
    rng = np.random.default_rng(3)
    effects = rng.normal(size=(beliefs.scatter.size, made.k.size))
    open_ = np.zeros_like(beliefs.scatter)
    open_[: len(NAMES)] = belief.spread**2
    before = np.array(
        [sum(e**2 * v for e, v in zip(column, beliefs.scatter + open_, strict=True)) for column in effects.T]
    )
    computing = np.full(made.k.size, 0.8)
    plain = _unmeasured(made, beliefs, belief, effects, before, computing)
    signs = population_signs(effects, beliefs.scatter, open_)
    assert plain == pytest.approx(beliefs.band_spread("datasheet", made.features(), signs, computing))
    known = calibrated(made, timed=False)
    assert _unmeasured(made, known, belief, effects, left * before, computing) == pytest.approx(
        plain * narrowed
    )


def test_step_times_of_another_job_move_coefficients_and_are_no_points_of_this_one():
    made = setup()
    beliefs = calibrated(made, timed=True)
    belief, _ = centre(made, beliefs)
    own = replace(beliefs, meta={**beliefs.meta, "calibrated_on": made.identity})
    foreign = replace(beliefs, meta={**beliefs.meta, "calibrated_on": {"workload": "resnet50"}})
    assert _without_foreign_times(made, own, belief) is own
    kept = _without_foreign_times(made, foreign, belief).calibration
    assert kept.k.size == kept.tau.size == kept.batch.size == 0
    assert kept.mean[: len(NAMES)] == pytest.approx(beliefs.calibration.mean[: len(NAMES)])
    assert (kept.mean[len(NAMES) :] == 0.0).all()
    assert kept.covariance == pytest.approx(effect_covariance(shipped_beliefs(), belief))


def test_where_a_model_is_doubted_the_laws_give_the_time():
    """Accelerator-time per token is what laws extrapolate: at a measured K the measurement stands."""
    made = setup(k=(8, 16))
    tokens = float(made.operations.tokens)
    known = replace(
        calibrated(made, timed=True).calibration, k=made.k, tau=np.array([1e-4, 1.1e-4]), batch=512.0 / made.k
    )
    joined = _joined(made, shipped_beliefs(), known, np.log(np.array([50.0, 50.0])), np.array([1e3, 1e3]))
    measured = known.tau * 512.0 * tokens / made.k
    assert np.exp(joined.value) == pytest.approx(measured, rel=1e-3)


def test_what_hides_is_scaled_with_the_time():
    made = setup(k=(8, 16, 32), layout=Layout(sharding="zero1", micro_batch=1))
    beliefs = calibrated(made, timed=True)
    slow = replace(
        beliefs, calibration=replace(beliefs.calibration, tau=np.array([1.0]), batch=np.array([64.0]))
    )
    one = curve(made, slow, draws=0)
    ratio = one.time_s / one.step.time_s
    assert (ratio > 10).all()  # a second a token: far from what the model has
    assert one.hidden_s == pytest.approx(one.step.hidden_s * ratio)
    assert sum(one.parts.values()) == pytest.approx(one.time_s)
