"""Beliefs of serving: shifts add up, what nobody measured is wider, and the file keeps them."""

import numpy as np
import pytest

from perfmodel.physics.serving_coefficients import MEDIANS, NAMES
from perfmodel.serving.beliefs import (
    ServingBeliefs,
    from_mapping,
    serving_features,
    shipped_beliefs,
    textbook_beliefs,
    to_mapping,
)
from perfmodel.serving.engine import ENGINES, engine
from perfmodel.serving.engine import NAMES as ENGINE_NAMES
from perfmodel.specs.catalog import Catalog

FEATURES = {"engine": "vllm-v1", "generation": "hopper", "width": "fp8", "vendor": "NVIDIA", "link": "switch"}


def test_without_a_fit_the_medians_are_the_textbook_ones():
    found = textbook_beliefs().belief({})
    assert np.allclose(np.exp(found.median), [MEDIANS[name] for name in NAMES])
    assert not any(found.measured.values())


def test_a_known_level_shifts_its_coefficient():
    plain, old = (textbook_beliefs().belief({**FEATURES, "engine": era}) for era in ("vllm-v1", "vllm-v0"))
    index = NAMES.index("layer_s")
    assert old.median[index] > plain.median[index]


def test_a_measured_level_narrows_the_belief():
    base = textbook_beliefs()
    key = ("layer_s", "engine", "vllm-v1")
    fitted = ServingBeliefs({**base.values, key: 0.2}, {**base.spreads, key: 0.05}, counts={key: 40})
    index = NAMES.index("layer_s")
    before, after = base.belief(FEATURES), fitted.belief(FEATURES)
    assert after.spread[index] < before.spread[index]
    assert after.median[index] == pytest.approx(before.median[index] + 0.2)


def test_the_file_keeps_them():
    base = textbook_beliefs()
    again = from_mapping(to_mapping(base))
    assert np.allclose(again.belief(FEATURES).median, base.belief(FEATURES).median, atol=1e-4)


def test_a_malformed_file_is_refused():
    data = to_mapping(textbook_beliefs())
    with pytest.raises(ValueError, match="not a perfmodel/serving-beliefs"):
        from_mapping({**data, "schema": "perfmodel/beliefs/1"})
    with pytest.raises(ValueError, match="no belief about compute"):
        from_mapping({**data, "shifts": {k: v for k, v in data["shifts"].items() if k != "compute"}})


def test_the_shipped_ones_cover_every_coefficient():
    catalog = Catalog.default()
    node = catalog.cluster("dgx-h100").node
    features = serving_features(node.accelerator, "fp8", "sglang", node.scale_up)
    found = shipped_beliefs().beliefs([features, {**features, "engine": "unknown"}])
    assert found.median.shape == (len(NAMES), 2)
    assert np.isfinite(found.median).all()


def test_the_shipped_ones_are_fitted_and_doubt_what_they_have_not_seen():
    known = shipped_beliefs()
    assert known.is_fitted
    seen = {**FEATURES, "front": "http"}
    usual, strange = known.belief(seen), known.belief({**seen, "vendor": "Somebody", "engine": "a-new-one"})
    for name in ("layer_s", "pace"):
        assert strange.spread[NAMES.index(name)] > usual.spread[NAMES.index(name)]
        assert usual.measured[name]
        assert not strange.measured[name]
    assert set(known.bands) == {"throughput", "burst", "tpot", "ttft", "tpot_p99", "ttft_p99"}


def test_engines_have_facts_of_their_own():
    assert engine("vllm", "0.7.3").mixed is False
    assert engine("vllm", "v0.11.0").mixed is True
    assert engine("vllm", date="2024-10").era == "vllm-v0"
    assert engine("a-new-one").era == "a-new-one"
    assert set(ENGINE_NAMES) == {
        "vllm",
        *(name for name in ENGINES if name[:4] != "vllm" and name[-3:] != "-v0"),
    }
