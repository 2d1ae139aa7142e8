"""Bands learnt on held-out errors hold on errors that had no part in them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.extrapolation import SIGNS
from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.validate.bands import Records, factors, learn, likeliest
from perfmodel.validate.folds import SCHEMES, Folds, to_mapping, unpack

SPREADS = {"hopper": 0.03, "volta": 0.30}


def records(families: int, seed: int = 0, *, heavy: bool = False) -> Records:
    """Two points a family, spread by its generation, with a Student-t or a Gaussian for the errors."""
    rng = np.random.default_rng(seed)
    values = (("generation", "hopper"), ("generation", "volta"), ("tuning", "stock"))
    family = np.repeat(np.arange(families, dtype=np.intp), 2)
    code = family % 2
    shape = rng.standard_t(3, family.size) if heavy else rng.normal(size=family.size)
    squares = np.zeros((len(SIGNS), family.size))
    squares[1] = 1.0
    return Records(
        mode="two_point",
        family=family,
        error=np.array(list(SPREADS.values()))[code] * shape,
        weight=np.full(family.size, 0.5),
        squares=squares,
        at=np.zeros((0, family.size)),
        codes=np.stack([code, np.full_like(code, 2)]),
        values=values,
    )


def data(families: int, kinds: tuple[str, ...] = ("convnet",)) -> SimpleNamespace:
    return SimpleNamespace(kinds=tuple(kinds[i % len(kinds)] for i in range(families)))


def test_the_gradient_finds_the_spread_of_each_value() -> None:
    many = records(4000, heavy=True)
    spread = many.spread(likeliest(many))
    assert spread[0] / SPREADS["hopper"] == pytest.approx(1.0, abs=0.1)
    assert spread[2] / SPREADS["volta"] == pytest.approx(1.0, abs=0.1)


def test_the_gradient_is_that_of_the_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A datasheet's last sign is not scaled: central differences of the likelihood agree with what it says."""
    rng = np.random.default_rng(3)
    one = replace(
        records(40),
        mode="datasheet",
        squares=np.square(rng.uniform(0.1, 1.0, (3, 80))),
        at=rng.uniform(0.0, 1.0, (3, 80)),
    )
    seen: dict[str, Any] = {}

    def caught(loss: Any, start: Any, **more: Any) -> Any:
        seen["loss"] = loss
        return SimpleNamespace(x=start)

    monkeypatch.setattr("scipy.optimize.minimize", caught)
    at = likeliest(one) + rng.normal(0.0, 0.2, 3 + 3 + 3)
    step = 1e-5 * np.eye(at.size)
    numeric = [(seen["loss"](at + d)[0] - seen["loss"](at - d)[0]) / 2e-5 for d in step]
    assert seen["loss"](at)[1] == pytest.approx(numeric, rel=1e-4, abs=1e-5)


def test_few_families_are_shrunk_to_all() -> None:
    """Ten families a side tell less than two thousand: the spreads stay closer to each other."""

    def ratio(families: int) -> float:
        one = records(families)
        spread = one.spread(likeliest(one))
        return float(spread[2] / spread[0])

    assert 1.0 < ratio(20) < ratio(4000)


def test_without_a_value_in_the_records_its_shift_is_nothing() -> None:
    many = records(400)
    found = likeliest(many.only(many.codes[0] == 0))
    assert many.parts(found)[2][1] == pytest.approx(0.0, abs=1e-4)


def test_nine_in_ten_of_unseen_errors_are_inside_and_folds_do_without_their_own() -> None:
    seen, unseen = records(600, heavy=True), records(4000, seed=1, heavy=True)
    folds = {"group": np.arange(600) % 10}
    learnt, nested = learn(data(600), seen, folds, "group")
    levels = learnt.shape["levels"]
    shift = np.array([levels["generation"][name] for name in SPREADS])[unseen.codes[0]]
    spread = learnt.weights[1] * np.exp(shift + levels.get("tuning", {}).get("stock", 0.0))
    inside = np.abs(unseen.error) <= learnt.conformal["all"] * spread
    assert inside.mean() == pytest.approx(0.9, abs=0.02)
    for code in range(len(SPREADS)):
        assert 0.85 < inside[unseen.codes[0] == code].mean() < 0.95
    assert len(nested["group"]) == 10
    # Errors that are a hundred times larger in one fold move every other fold's band, not its own.
    worse = replace(seen, error=np.where(folds["group"][seen.family] == 3, 100.0, 1.0) * seen.error)
    moved = learn(data(600), worse, folds, "group")[1]["group"]
    assert moved[3].weights == pytest.approx(nested["group"][3].weights, rel=0.02)
    assert moved[4].conformal["all"] > 1.2 * moved[3].conformal["all"]


def test_a_kind_of_few_borrows_and_a_kind_of_many_does_not() -> None:
    kinds = ["convnet"] * 1000 + ["gnn"] * 2 + ["moe-transformer"] * 1000
    score = np.array([1.0] * 1000 + [50.0] * 2 + [4.0] * 1000)
    family = np.arange(len(kinds), dtype=np.intp)
    found = factors(kinds, family, score, np.ones(len(kinds)))
    assert found["convnet"] == 1.0
    assert found["moe-transformer"] == found["all"] == 4.0
    assert found["gnn"] == 50.0  # two of twelve are more than one in ten
    alone = factors(kinds, family, score, np.where(score == 50.0, 0.1, 1.0))
    assert alone["gnn"] == 4.0


def test_a_folds_file_keeps_the_bands_of_each_fold_and_reads_without_them() -> None:
    own = {
        "bands": {"one_node": [0.0, 1.0]},
        "scales": {"one_node": {"slopes": {}, "levels": {}}},
        "conformal": {"one_node": {"all": 7.0}},
    }
    folds = Folds(
        names=(("matmul", "all", ""),),
        keys={"group": {"a": 0}},
        values={"group": np.array([[0.1]] * SCHEMES["group"])},
        bands={"group": [own] * SCHEMES["group"]},
    )
    again = unpack(to_mapping(folds))
    beliefs = again.beliefs(shipped_beliefs(), "group", 0)
    assert beliefs.factor("one_node", "convnet") == 7.0
    assert beliefs.factor("ratio", "convnet") == shipped_beliefs().factor("ratio", "convnet")
    assert beliefs.band_weights("one_node") == [0.0, 1.0]
    older = unpack({key: value for key, value in to_mapping(folds).items() if key != "bands"})
    assert older.beliefs(shipped_beliefs(), "group", 0).bands == shipped_beliefs().bands
