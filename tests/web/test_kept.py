"""What the server keeps between questions: bounded, and never another answer than without it."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.decide.prediction import predict
from perfmodel.web.kept import Kept
from perfmodel.web.requests import WhatIf

JOB = {"workload": "llama3-8b", "cluster": "dgx-h100", "k": "8..64"}


def test_the_oldest_goes_first_and_use_makes_young():
    kept = Kept[int](room=80)
    for name in range(8):
        kept.put(str(name), name, size=10)
    assert kept.get("0") == 0
    kept.put("8", 8, size=10)
    assert kept.get("1") is None
    assert kept.get("0") == 0
    assert (kept.used, len(kept)) == (80, 8)


def test_what_is_put_again_counts_once_and_what_is_too_large_not_at_all():
    kept = Kept[int](room=80)
    kept.put("a", 1, size=10)
    kept.put("a", 2, size=4)
    assert (kept.get("a"), kept.used) == (2, 4)
    kept.put("b", 3, size=11)
    assert kept.get("b") is None
    kept.put("a", 4, size=11)
    assert (kept.get("a"), kept.used) == (None, 0)


@pytest.mark.parametrize(
    "moved",
    [
        {"price": 1.25},
        {"fixed": 500.0, "steps": 1000},
        {"grid": "US-VA"},
        {"bandwidth": 3e9},
        {"latency": 5e-5, "jitter": 0.05},
        {"seed": 7},
        {"layout": {"tp": 2}},
        {"global_batch": 64},
        {"k": "8..32"},
    ],
)
def test_an_answer_after_another_is_the_answer_on_its_own(moved, library):
    """The first question fills what the second may reuse; a fresh prediction knows nothing of it."""
    library.predict(WhatIf(**JOB))
    request = WhatIf.model_validate({**JOB, **moved})
    again = library.predict(request)
    fresh = predict(library._job(request), library._beliefs, seed=request.seed).envelope()
    assert again == fresh
    assert again != library.predict(WhatIf(**JOB))


def test_drags_of_money_reuse_the_curve_and_drags_of_links_the_search(library, monkeypatch):
    import perfmodel.decide.prediction as prediction
    import perfmodel.training.search as search

    calls: dict[str, int] = {"curve": 0, "search": 0}

    def counted(name, function):
        def call(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(prediction, "curve_of", counted("curve", prediction.curve_of))
    monkeypatch.setattr(search, "search", counted("search", search.search))
    job = {**JOB, "seq_len": 4096}
    for price in np.linspace(1.0, 3.0, 5).tolist():
        library.predict(WhatIf(**job, price=price))
    assert calls == {"curve": 1, "search": 1}
    for bandwidth in (1e9, 2e9, 4e9):
        library.predict(WhatIf(**job, bandwidth=bandwidth))
    assert calls == {"curve": 4, "search": 1}
