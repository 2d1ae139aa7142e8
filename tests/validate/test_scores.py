"""Figures of merit, laws, folds and the joining of laws with the step model."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.extrapolation import (
    SIGNS,
    Asked,
    Laws,
    LawTrust,
    Seen,
    band_spread,
    join,
    laws_at,
    line,
)
from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.validate import baselines
from perfmodel.validate.folds import SCHEMES, assign, shipped_folds
from perfmodel.validate.scores import errors


def test_every_family_weighs_the_same() -> None:
    family = np.array([0] * 9 + [1])
    log_error = np.log(np.array([1.0] * 9 + [1.5]))
    assert errors(log_error, family)["mean_ape"] == pytest.approx(0.25)


@pytest.mark.parametrize("name", ["amdahl", "ring_law", "log_law"])
def test_a_law_recovers_itself(name: str) -> None:
    k, at = np.array([1.0, 2.0, 8.0]), np.array([16.0, 64.0])
    truth = {
        "amdahl": lambda x: 1 + 0.01 * (x - 1),
        "ring_law": lambda x: 1 + 0.2 * (x - 1) / x,
        "log_law": lambda x: 1 + 0.05 * np.log2(x),
    }[name]
    assert baselines.predict(name, k, truth(k), at) == pytest.approx(truth(at), rel=1e-9)


def test_laws_never_fall_below_half_of_the_best_measured() -> None:
    assert line(np.array([0.0, 1.0]), np.array([1.0, 0.1]), np.array([5.0]), rising=False)[
        0
    ] == pytest.approx(0.05)


def laws(
    k: list[float],
    tau: list[float],
    at: list[float],
    trust: LawTrust,
    *,
    batch: float = 1.0,
    bus: float = 0.0,
    tuned: float = 0.0,
) -> Laws:
    """On nodes of eight; the batch of one accelerator is 1 where measured and `batch` where asked."""
    asked = Asked(np.array(at), np.full(len(at), batch), 8.0, bus, tuned)
    return laws_at(Seen(np.array(k), np.array(tau), np.ones(len(k))), asked, trust)


def test_the_wider_the_model_the_more_the_law_pulls() -> None:
    known = laws([1.0, 8.0], [1.0, 1.1], [64.0, 64.0], LawTrust(doubt=0.0))
    model, law = np.array([0.0, 0.0]), np.array([1.0, 1.0])
    found = join(model, np.array([0.01, 1.0]), law, known)
    assert found.value[0] < 0.05 < 0.9 < found.value[1]
    assert band_spread(found.signs, (0.0, 1.0, 0.0, 0.0, 0.0))[0] < 0.02
    assert found.signs.shape == (len(SIGNS), 2)


def test_the_change_since_the_largest_measured_k_is_a_sign() -> None:
    k, tau, at = np.array([1.0, 8.0]), np.array([1.0, 1.1]), np.array([16.0, 64.0])
    known = laws_at(Seen(k, tau, np.ones(2)), Asked(at, np.ones(2), 8.0, 0.0, 0.0), LawTrust(doubt=0.0))
    work = 0.3  # any unit of the joined times
    found = join(np.log([1.1, 1.5]) - work, np.full(2, 1e-6), known.log_tau - work, known)
    assert found.signs[SIGNS.index("change")] == pytest.approx([0.0, np.log(1.5 / 1.1)], abs=1e-6)


def test_what_a_step_costs_whatever_its_size_weighs_on_smaller_batches() -> None:
    """T = 128 a / k + c of a global batch of 128: tau = a + c k / 128, Amdahl's law, which the others cannot see."""
    a, c = 0.05, 1.5  # the two timings differ by a fifth: far beyond chance
    k, at = np.array([1.0, 2.0]), np.array([2.0, 16.0])
    tau, truth = a + c * k / 128.0, a + c * at / 128.0
    asked = Asked(at, 128.0 / at, 32.0, 0.0, 0.0)
    found = laws_at(Seen(k, tau, 128.0 / k), asked, LawTrust())
    ring, log = line((k - 1.0) / k, tau, (at - 1.0) / at, rising=False), line(np.log2(k), tau, np.log2(at))
    blended = (4.0 * np.log(truth) + np.log(ring) + np.log(log)) / 6.0
    assert found.log_tau == pytest.approx(np.array([np.log(tau[-1]), blended[-1]]), abs=0.01)
    assert found.level == pytest.approx(np.log(tau[-1]))
    stays = laws_at(Seen(k, tau, np.ones(2)), Asked(at, np.ones(2), 32.0, 0.0, 0.0), LawTrust())
    assert abs(found.log_tau[-1] - np.log(truth[-1])) < 0.5 * abs(stays.log_tau[-1] - np.log(truth[-1]))
    # Two timings that differ by no more than chance say little of what a small batch would cost.
    by_chance = laws_at(Seen(k, np.array([0.05, 0.0501]), 128.0 / k), asked, LawTrust())
    assert by_chance.log_tau[-1] == pytest.approx(np.log(0.0501), abs=0.01)


def test_losses_and_laws_at_odds_widen_what_lies_beyond_the_measurements_alone() -> None:
    """More timings, with the losses that they show, never widen the band of a K that was measured."""
    known = laws([8.0, 16.0, 32.0], [1.0, 1.2, 1.6], [8.0, 16.0, 32.0, 64.0], LawTrust(doubt=0.0))
    found = join(np.log([1.0, 1.2, 1.6, 2.2]), np.full(4, 0.01), known.log_tau, known)
    for name in ("disagreement", "loss", "change"):
        sign = found.signs[SIGNS.index(name)]
        assert sign[:3].tolist() == [0.0, 0.0, 0.0], name
        assert sign[3] > 0.1, name


def test_a_model_far_from_the_laws_is_doubted() -> None:
    """The further away it says, the smaller the share of the way that it takes the answer."""
    known = laws([1.0, 8.0], [1.0, 1.1], [64.0, 64.0, 64.0], LawTrust(doubt=0.3))
    gap = np.array([0.01, 0.15, 0.4])
    kept = join(gap, np.full(3, 0.1), np.zeros(3), known).value / gap
    assert (np.diff(kept) < -0.01).all()
    sure = laws([1.0, 8.0], [1.0, 1.1], [64.0, 64.0, 64.0], LawTrust(doubt=0.0))
    assert join(gap, np.full(3, 0.1), np.zeros(3), sure).value / gap == pytest.approx(kept[0], rel=1e-2)


def test_laws_are_trusted_less_far_away_and_after_losses() -> None:
    trust = LawTrust(reach=0.5, loss=2.0)
    flat, lossy = (laws([1.0, 2.0], [1.0, tau], [4.0, 8.0], trust).spread for tau in (1.0, 1.3))
    assert flat[0] == pytest.approx(trust.familiar)
    assert (np.diff(flat) > 0).all()
    assert (lossy > 1.5 * flat).all()


def test_laws_are_trusted_less_where_the_batch_changed_or_they_disagree_and_by_what_the_job_is() -> None:
    trust = LawTrust(resized=0.5, disagreement=2.0, bus=-0.4, tuned=0.3)
    start = laws([1.0, 2.0], [1.0, 1.0], [4.0], trust).spread[0]
    assert start == pytest.approx(trust.familiar)
    for batch in (0.25, 4.0):
        found = laws([1.0, 2.0], [1.0, 1.0], [4.0], trust, batch=batch).spread[0]
        assert found == pytest.approx(start * 4.0**0.5)
    assert laws([1.0, 2.0], [1.0, 1.0], [4.0], trust, bus=1.0).spread[0] == pytest.approx(
        start * np.exp(-0.4)
    )
    assert laws([1.0, 2.0], [1.0, 1.0], [4.0], trust, tuned=1.0).spread[0] == pytest.approx(
        start * np.exp(0.3)
    )
    apart = laws([1.0, 2.0], [1.0, 1.3], [4.0], trust)
    assert apart.disagreement[0] == pytest.approx(np.log(1.6 / 1.3))
    assert apart.spread[0] == pytest.approx(start * np.exp(2.0 * apart.disagreement[0]))


def test_trust_is_read_from_the_priors_and_has_defaults() -> None:
    assert LawTrust.read({}) == LawTrust()
    assert LawTrust.read({"laws": {"reach": 1}}).reach == 1.0
    shipped = LawTrust.read(shipped_beliefs().meta)
    # Far off, of another batch or at odds, laws are trusted no more than at home.
    assert min(shipped.reach, shipped.resized, shipped.disagreement) >= 0.0


def test_folds_keep_a_key_on_one_side_and_are_all_shipped() -> None:
    keys = ["a", "b", "c", "a", "d"]
    found = assign(keys, 2)
    assert found[0] == found[3]
    shipped = shipped_folds()
    for scheme, most in SCHEMES.items():
        count = min(most, len(shipped.keys[scheme]))
        assert shipped.values[scheme].shape[0] == count
        assert set(shipped.keys[scheme].values()) == set(range(count))
