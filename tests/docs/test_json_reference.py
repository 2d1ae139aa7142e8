"""The tables of docs/reference/files.md name the keys that the verbs give: all of them, and no others."""

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
    "wall-time": "predict examples/purchase.yaml --k 64 --wall-time",
    "explanation": "explain examples/purchase.yaml --k 64",
    "roofline": "roofline examples/purchase.yaml",
    "comparison": "compare examples/purchase.yaml --set global_batch=512",
    "study": "study examples/alexnet-k80.csv --regime weak",
    "load-study": "study examples/load-curve.csv --slo ttft_p99=1s",
    "serving": "predict examples/serve-chat.yaml",
    "serving-plan": "plan examples/serve-chat.yaml",
    "service-explanation": "explain examples/serve-chat.yaml",
    "service-roofline": "roofline examples/serve-chat.yaml",
    "service-comparison": "compare examples/serve-chat.yaml --set serving.prefix_hit=0",
    "serving-calibration": "calibrate examples/serve-benchmark.yaml --timings examples/load-curve.csv",
    "law": "law amdahl --serial 0.05 -k 1..8",
    "collective": "collective all_reduce --bytes 1MB --ranks 8 --alpha 5us --bandwidth 25GB/s",
    "workdepth": "workdepth -w pythia-1b -c dgx-a100 -k 8,16",
    "timings": "validate examples/timings/bert-large-dgx-a100.yaml --timings examples/timings/bert-large-dgx-a100.csv",
    "kernel": "roofline --flop 1e9 --bytes 1e6 -c dgx-a100",
    "straggler": "law stragglers -k 1,8",
    "plan": "plan examples/purchase.yaml --clusters dgx-h100 --max-k 64",
    "audit": "audit examples/vendor-impossible.yaml",
    "check": "check examples/ci/perfmodel.yaml",
    "diagnosis": "diagnose --config examples/slow-run.sh --log examples/slow-run.log -c dgx-h100",
    "calibration": "calibrate examples/rented-node.yaml --timings examples/rented-node.csv",
}

FAMILY = "mxnet-alexnet-p2.16xlarge,"


def documented(first):
    row = re.search(rf"^\| {re.escape(first)} \| `([^`]*)` \|$", PAGE, re.MULTILINE)
    assert row is not None, first
    return row.group(1).split(", ")


@pytest.fixture
def result_of(monkeypatch, capsys):
    def run(kind, command):
        monkeypatch.chdir(ROOT)
        assert main([*command.split(), "--format", "json"]) in (0, 1)
        found = json.loads(capsys.readouterr().out)
        assert found["schema"] == f"perfmodel/{kind}/1"
        return found["result"]

    return run


ITEMS = {
    "prediction": {
        "`prediction.knee.threshold`, `.curvature`, `.marginal`": lambda result: [*result["knee"].values()],
        "`prediction.p_star`, `prediction.fastest`": lambda result: [result["p_star"], result["fastest"]],
        "`prediction.rests_on.NAME`": lambda result: [result["rests_on"]["accelerator"]],
    },
    "serving": {
        "`serving.knee.slo`, `.curvature`": lambda result: [*result["knee"].values()],
        "`serving.fleet`": lambda result: [result["fleet"]],
        "`serving.narrow[]`": lambda result: result["narrow"],
    },
    "serving-plan": {
        "`serving-plan.candidates[]`": lambda result: result["candidates"],
        "`serving-plan.pareto[]`": lambda result: result["pareto"],
    },
    "plan": {"`plan.candidates[]`": lambda result: result["candidates"]},
    "diagnosis": {
        "`diagnosis.causes[]`": lambda result: result["causes"],
        "`diagnosis.settings[]`": lambda result: result["settings"],
    },
    "audit": {"`audit.findings[]`": lambda result: result["findings"]},
    "check": {"`check.policies[]`": lambda result: result["policies"]},
    "comparison": {
        "`comparison.changes[]`": lambda result: result["changes"],
        "`prediction`": lambda result: [result["a"], result["b"]],
    },
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_the_documented_keys_are_those_of_the_verb(kind, result_of):
    result = result_of(kind, COMMANDS[kind])
    assert set(documented(f"`{kind}`")) == set(result)
    for name, items in ITEMS.get(kind, {}).items():
        assert items(result)
        for item in items(result):
            assert set(documented(name)) == set(item), name


@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("`plan` that cannot meet its limits", "--budget 1USD"),
        ("`plan --sweep`", "--sweep seq_len=2048..4096:2"),
    ],
)
def test_a_plan_may_have_more_keys(where, options, result_of):
    result = result_of("plan", f"{COMMANDS['plan']} {options}")
    assert set(documented(where)) == set(result) - set(documented("`plan`"))


def one_measured_family(folder):
    """The shortest form of a folder that `validate` reads: a family, its points and the workloads."""
    measured = ROOT / "validation" / "measured"
    for name, chosen in {"families": FAMILY, "points": FAMILY, "workloads": ""}.items():
        header, *rows = (measured / f"{name}.csv").read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [row for row in rows if row.startswith(chosen)]
        (folder / f"{name}.csv").write_text("".join([header, *kept]), encoding="utf-8")
    return folder


def test_the_documented_keys_are_those_of_a_validation(tmp_path, result_of):
    result = result_of("validation", f"validate --data {one_measured_family(tmp_path)}")
    assert set(documented("`validation`")) == set(result)
    for row in result["families"]:
        assert set(documented("`validation.families[]`")) == set(row)
    for name, mode in result["modes"].items():
        missing = {"knee", "baselines_crossing"} if name == "datasheet" else set()
        assert set(documented("`validation.modes.NAME`")) - missing == set(mode), name


def test_the_documented_keys_are_those_of_serving_runs(tmp_path, result_of):
    header, *rows = (
        (ROOT / "validation" / "measured" / "serving" / "runs.csv").read_text("utf-8").splitlines(True)
    )
    curve = [row for row in rows if "config_id=634;" in row]
    (tmp_path / "runs.csv").write_text("".join([header, *curve]), encoding="utf-8")
    result = result_of("validation", f"validate --data {tmp_path}")
    assert set(documented("`validation` of a folder with `runs.csv`, or of the shipped corpus")) == (
        set(result) - set(documented("`validation`"))
    )
    assert set(documented("`validation.serving`")) == set(result["serving"])
    assert set(documented("`validation.serving.tpot`")) == set(result["serving"]["tpot"])
