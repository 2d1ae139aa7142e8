"""The tables of docs/reference/files.md name keys that the verbs really give."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from perfmodel.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
COMMANDS = {
    "prediction": "predict examples/purchase.yaml",
    "explanation": "explain examples/purchase.yaml --k 64",
    "roofline": "roofline examples/purchase.yaml",
    "comparison": "compare examples/purchase.yaml --set global_batch=512",
    "study": "study examples/alexnet-k80.csv --regime weak",
    "law": "law amdahl --serial 0.05 -k 1..8",
    "plan": "plan examples/purchase.yaml --clusters dgx-h100 --max-k 64",
    "audit": "audit examples/vendor-impossible.yaml",
    "check": "check examples/ci/perfmodel.yaml",
    "calibration": "calibrate examples/rented-node.yaml --timings examples/rented-node.csv",
}


def documented(first):
    row = re.search(rf"^\| {re.escape(first)} \| `([^`]*)` \|$", PAGE, re.MULTILINE)
    assert row is not None, first
    return row.group(1).split(", ")


def result_of(kind, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main([*COMMANDS[kind].split(), "--format", "json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == f"perfmodel/{kind}/1"
    return found["result"]


@pytest.mark.parametrize("kind", COMMANDS)
def test_documented_keys_are_there(kind, monkeypatch, capsys):
    result = result_of(kind, monkeypatch, capsys)
    assert set(documented(f"`{kind}`")) <= set(result)
    inner = {
        "prediction": [
            ("`prediction.knee.threshold`, `.curvature`, `.marginal`", lambda: result["knee"]["threshold"]),
            ("`prediction.p_star`, `prediction.fastest`", lambda: result["p_star"]),
            ("`prediction.rests_on.NAME`", lambda: result["rests_on"]["accelerator"]),
        ],
        "plan": [("`plan.candidates[]`", lambda: result["candidates"][0])],
        "audit": [("`audit.findings[]`", lambda: result["findings"][0])],
        "check": [("`check.policies[]`", lambda: result["policies"][0])],
        "comparison": [("`comparison.changes[]`", lambda: result["changes"][0])],
    }
    for name, item in inner.get(kind, []):
        assert set(documented(name)) <= set(item()), name
