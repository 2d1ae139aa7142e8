"""Serving runs of any folder are scored; what cannot be is listed and counted, and nothing falls over."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from perfmodel.cli.main import main
from perfmodel.validate.serving_files import SERVED
from perfmodel.validate.serving_scores import _doubled, learning_weights, summary
from perfmodel.validate.validation import validate

ROW = {
    "source": "a new lab", "model": "meta-llama/Llama-3.1-8B-Instruct", "accelerator": "NVIDIA H100 80GB HBM3",
    "engine": "vLLM 0.11.0", "scenario": "closed-loop", "isl": "1024", "osl": "256",
}  # fmt: skip


def folder(path: Path, rows: list[dict[str, str]], columns: list[str] | None = None) -> Path:
    with (path / "runs.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns or sorted({name for row in rows for name in row}), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def curve() -> list[dict[str, str]]:
    times = {1: (0.03, 0.0075), 8: (0.05, 0.0085), 32: (0.09, 0.0115), 128: (0.35, 0.0240)}
    return [
        {**ROW, "concurrency": str(c), "ttft_mean_s": str(first), "tpot_mean_s": str(token)}
        for c, (first, token) in times.items()
    ]


def test_a_folder_of_serving_runs_alone_is_scored(tmp_path: Path) -> None:
    found = validate(folder(tmp_path, curve())).result["serving"]
    assert found["scored"] == 4
    for name in ("throughput", "tpot", "ttft"):
        one = found[name]
        assert one["rows"] == 4
        assert one["median_ape"] < 0.6
        assert set(one["baselines"]) == {"roofs", "constant_shares"}
        assert one["by"]["source"].keys() == {"a new lab"}
        assert one["calibrated"]["curves"] == 1
    assert found["ttft_p99"] == {"rows": 0, "sources": 0}
    assert found["tpot"]["calibrated"]["two_points"]["rows"] == 2


def test_strangers_are_listed_and_the_rest_is_scored(tmp_path: Path) -> None:
    strangers = [
        {**curve()[0], "engine": "brand-new-engine"},
        {**curve()[0], "engine": ""},
        {**curve()[0], "accelerator": "Abacus 9000"},
        {**curve()[0], "accelerator": "mi300z"},
        {**curve()[0], "model": "Nobody-9B"},
        {**curve()[0], "model": ""},
        {**curve()[0], "scenario": "agents"},
        {**curve()[0], "isl": "", "osl": ""},
    ]
    found = validate(folder(tmp_path, [*curve(), *strangers])).result["serving"]
    assert found["runs"] == 12
    assert found["scored"] == 6
    assert sum(one["rows"] for one in found["unresolved"]) == 6
    assert {"level": "engine", "value": "brand-new-engine", "rows": 1} in found["unseen"]
    engines = found["tpot"]["by"]["engine"]
    assert engines["brand-new-engine"]["band_width_median"] > engines["vllm-v1"]["band_width_median"]


def test_columns_in_any_order_and_no_more_than_needed(tmp_path: Path) -> None:
    rows = curve()
    usual = validate(folder(tmp_path, rows)).result["serving"]
    turned = validate(folder(tmp_path, rows, sorted(rows[0], reverse=True))).result["serving"]
    assert turned["tpot"] == usual["tpot"]
    bare = [{**ROW, "scenario": "offline", "throughput_out_tok_s": "9000"}]
    assert validate(folder(tmp_path, bare)).result["serving"]["throughput"]["rows"] == 1


def test_nothing_scored_is_told_with_its_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(tmp_path, [{**curve()[0], "model": "Nobody-9B"}])
    assert main(["validate", "--data", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert 'runs.csv:2: 1 serving run: model "Nobody-9B" is not in the zoo' in told


def test_the_verb_prints_what_it_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(tmp_path, [*curve(), {**curve()[0], "model": "Nobody-9B"}])
    assert main(["validate", "--data", str(tmp_path), "--format", "md"]) == 0
    told = capsys.readouterr().out
    assert "Serving: error by answer" in told
    assert "1 serving run not scored" in told
    assert main(["validate", "--data", str(tmp_path), "--format", "json"]) == 0
    assert set(SERVED) < set(json.loads(capsys.readouterr().out)["result"]["serving"])


def test_figures_are_those_of_a_few_rows_by_hand() -> None:
    error, half = np.log([1.1, 0.5, 2.0]), np.array([0.2, 0.2, 1.0])
    found = summary(error, half, np.array(["a", "a", "b"]))
    assert found["median_ape"] == pytest.approx(0.5)
    assert found["mean_ape"] == pytest.approx((0.1 + 0.5 + 1.0) / 3.0)
    assert found["coverage_90"] == pytest.approx(2.0 / 3.0)
    even = summary(error, half, np.array(["a", "a", "b"]), np.array([0.5, 0.5, 1.0]))
    assert even["coverage_90"] == pytest.approx(0.75)


def test_a_source_of_few_rows_is_no_whole_sample() -> None:
    weight = learning_weights(np.array(["long"] * 40 + ["short"] * 5))
    assert weight[:40].sum() == pytest.approx(1.0)
    assert weight[40:].sum() == pytest.approx(0.5)


def test_a_knee_is_where_the_time_has_doubled() -> None:
    load = np.log([1.0, 4.0, 16.0, 64.0])
    assert np.exp(_doubled(load, np.log([1.0, 1.2, 2.0, 4.0]))) == pytest.approx(16.0)
    assert np.exp(_doubled(load, np.log([1.0, 1.0, 1.0, 1.0]))) == pytest.approx(256.0)
