"""`perfmodel audit` on the command line: exit codes, formats, and what a person reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfmodel.cli.main import main
from perfmodel.decide.audit.verdict import audit
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.claims import Claim

CLAIMS = Path(__file__).parents[1] / "claims"
CATALOG = Catalog.default()
ROOT = Path(__file__).parents[2]


def run(name: str, *arguments: str) -> int:
    return main(["audit", str(CLAIMS / f"{name}.yaml"), *arguments])


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [
        ("honest-llama8b-dgx-cloud", 0, "consistent"),
        ("trick-superlinear", 1, "suspicious"),
        ("impossible-sparse-peak", 1, "impossible"),
    ],
)
def test_exit_code_and_json(name: str, code: int, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--format", "json") == code
    first = capsys.readouterr()
    envelope = json.loads(first.out)
    assert envelope["schema"] == "perfmodel/audit/1"
    assert envelope["result"]["verdict"] == verdict
    for finding in envelope["result"]["findings"]:
        assert {"code", "severity", "claim", "bound", "evidence", "question"} <= set(finding)
        assert all(finding[key] for key in ("claim", "bound", "evidence", "question"))
    assert run(name, "--format", "json") == code
    assert capsys.readouterr() == first


def test_the_headline_is_restated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = tmp_path / "claim.yaml"
    claim.write_text(
        "workload: resnet50\ncluster: dgx-a100\nprecision: fp16\nregime: strong\nglobal_batch: 32768\n"
        "baseline: {k: 1, throughput: 2470}\nheadline: {k: 256, speedup: 180}\n"
        "points:\n  - {k: 64, throughput: 134400}\n",
        encoding="utf-8",
    )
    main(["audit", str(claim), "--format", "json"])
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["restated"] == "180x on 256 is E = 0.70; 64 keep 0.85."
    assert "256" in result["advice"]


@pytest.mark.parametrize(
    ("goal", "words"), [("efficiency", "keep E"), ("cost", "lowest cost"), ("time", "shortest time")]
)
def test_advice_follows_the_goal(goal: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("honest-resnet50-v100-dlperf", "--goal", goal, "--format", "json") == 0
    assert words in json.loads(capsys.readouterr().out)["result"]["advice"]


def test_a_person_reads_verdict_evidence_and_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("impossible-flop-above-peak") == 1
    text = capsys.readouterr().out
    assert "impossible" in text
    assert "times the peak" in re.sub(r"\s+", " ", text)
    assert "Questions to ask" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_claimed_and_expected_efficiency_stand_side_by_side_on_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(
        ["audit", str(CLAIMS.parents[1] / "examples" / "vendor-slide.yaml")]
    )  # no batch, so no step time can be expected
    table = capsys.readouterr().out.partition("Claimed and expected\n")[2].splitlines()
    assert table[0].split()[-2:] == ["claimed", "expected"]
    assert table[1].split()[-2:] == ["E", "E"]
    claimed, expected = map(float, table[6].split()[-2:])
    assert claimed == pytest.approx(0.980)
    assert 0.6 < expected < 0.9


def test_markdown_html_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, plot, text = tmp_path / "a.html", tmp_path / "a.svg", tmp_path / "a.md"
    assert run("trick-weak-baseline", "--report", str(page), "--plot", str(plot), "-o", str(text)) == 1
    assert "weak-baseline" in page.read_text(encoding="utf-8")
    assert "weak-baseline" in text.read_text(encoding="utf-8")
    assert plot.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "claim.yaml"),
        ("workload: resnet50\ncluster: dgx-a100\n", "points or a headline"),
        ("workload: resnet50\nversus: {cluster: dgx-h100, speedup: 4}\n", "two machines names both"),
        (
            "workload: resnet5\ncluster: dgx-a100\npoints: [{k: 8, throughput: 3}]\n",
            'did you mean "resnet50"',
        ),
        ("cluster: dgx-a100\npoints: [{k: 8, througput: 3}]\n", 'did you mean "throughput"'),
        ("cluster: dgx-a100\npoints: [{k: 0, throughput: 3}]\n", "claim.yaml:2"),
    ],
)
def test_bad_claims_are_exit_2_with_a_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["audit", str(path)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


NUMBERS = {
    "time_s": st.floats(1e-4, 1e3),
    "throughput": st.floats(1e-2, 1e7),
    "tokens_per_s": st.floats(1.0, 1e9),
    "speedup": st.floats(0.1, 5000),
    "efficiency": st.floats(0.01, 3),
    "mfu": st.floats(0.01, 2),
    "tflop_per_s_per_accelerator": st.floats(1, 3000),
    "energy_j": st.floats(1, 1e9),
}
POINT = st.fixed_dictionaries(
    {"k": st.integers(1, 600)},
    optional={
        **NUMBERS,
        "global_batch": st.integers(1, 100_000),
        "seq_len": st.sampled_from([128, 2048]),
        "precision": st.sampled_from(["fp16", "fp32"]),
        "quality": st.floats(-5, 5),
        "spread": st.floats(0, 1),
    },
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    points=st.lists(POINT, min_size=1, max_size=3),
    workload=st.sampled_from(["resnet50", "bert-large", None]),
    cluster=st.booleans(),
    more=st.fixed_dictionaries(
        {}, optional={"regime": st.sampled_from(["strong", "weak"]), "headline": POINT, "baseline": POINT}
    ),
)
def test_any_claim_gets_a_verdict(
    points: list[dict[str, Any]], workload: str | None, cluster: bool, more: dict[str, Any]
) -> None:
    where = (
        {"cluster": CATALOG.cluster("dgx-a100")}
        if cluster
        else {"accelerator": CATALOG.get("accelerators", "a100-sxm4-80gb")}
    )
    what = {} if workload is None else {"workload": CATALOG.get("workloads", workload)}
    result = audit(Claim.model_validate({"points": points, **where, **what, **more}), catalog=CATALOG)
    assert result.result["verdict"] in {"consistent", "suspicious", "impossible"}
    json.loads(result.to_json())


@pytest.mark.parametrize(
    "name",
    sorted(path.name for path in (ROOT / "examples").glob("vendor-*.yaml") if path.stem != "vendor-tokens"),
)
def test_every_shipped_slide_has_a_picture(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that names neither times nor a batch: its efficiency is drawn."""
    picture = tmp_path / "x.png"
    assert main(["audit", str(ROOT / "examples" / name), "--plot", str(picture), "--quiet"]) == 1
    assert picture.read_bytes().startswith(b"\x89PNG")
