"""The committed accuracy figures of every mode, each group left out, are those that the code gives now.

Sources and accelerators left out are compared by whoever runs `make validate`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfmodel.validate.protocol import MODES
from perfmodel.validate.validation import validate

HEADLINE = Path(__file__).resolve().parent.parent.parent / "validation" / "headline.json"


def test_the_committed_figures_are_those_of_the_code() -> None:
    told = json.loads(HEADLINE.read_text(encoding="utf-8"))
    committed = told["group"]
    assert set(committed) == set(MODES)
    result = validate().result
    found = result["modes"]
    for mode, figures in committed.items():
        # Rounded to four places; other linear-algebra libraries may move the last of them.
        assert {key: found[mode][key] for key in figures} == pytest.approx(figures, abs=2e-4)
    for answer, figures in told["serving"]["group"].items():
        # Fitted again in each fold: the last digits of a solver are in these.
        scored = {key: result["serving"][answer][key] for key in figures}
        assert scored == pytest.approx(figures, rel=2e-2, abs=2e-3), answer
