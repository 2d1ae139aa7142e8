from __future__ import annotations

import json

import pytest

from perfmodel.cli.main import main
from perfmodel.report import html


@pytest.fixture
def saved(tmp_path, make):
    envelope = make["prediction"]()
    (tmp_path / "r.json").write_text(json.dumps(envelope), encoding="utf-8")
    (tmp_path / "r.html").write_text(html.render(envelope), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["r.json", "r.html"])
def test_report_reads_json_and_html_back(name, saved, make, capsys):
    assert main(["report", str(saved / name), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == make["prediction"]()


def test_report_renders_every_format(saved, capsys):
    source = str(saved / "r.json")
    assert main(["report", source, "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("## llama3-8b on dgx-h100")
    assert main(["report", source, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("k,time_s,")
    assert main(["report", source]) == 0
    assert "Scales to K" in capsys.readouterr().out
    assert main(["report", source, "--quiet", "--plot", str(saved / "p.svg"), "--figure", "cost"]) == 0
    assert "Cost against time" in (saved / "p.svg").read_text()
    assert main(["report", source, "--quiet", "--report", str(saved / "again.html")]) == 0
    assert html.read((saved / "again.html").read_text()) == json.loads((saved / "r.json").read_text())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "r.txt:1:2: error[R004]: not valid JSON"),
        ("[]", "error[R005]: not a perfmodel result"),
        ('{"schema": "perfmodel/prediction/2"}', "error[R006]"),
        ('{"schema": "perfmodel/prediction/1"}', "inputs or result is missing"),
        ("<html></html>", "error[R001]: this HTML file holds no perfmodel result"),
        ("[" * 100_000, "error[R004]"),
    ],
)
def test_what_is_no_result_is_refused(text, said, tmp_path, capsys):
    path = tmp_path / "r.txt"
    path.write_text(text, encoding="utf-8")
    assert main(["report", str(path)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_missing_binary_and_unknown_plot(tmp_path, saved, capsys):
    assert main(["report", str(tmp_path / "none.json")]) == 2
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    assert main(["report", str(tmp_path / "b")]) == 2
    source = str(saved / "r.json")
    assert main(["report", source, "--plot", str(tmp_path / "x.svg"), "--figure", "nonsense"]) == 2
    assert "it has: speedup" in capsys.readouterr().err


def test_a_figure_without_a_plot_to_write_is_refused(saved, capsys):
    assert main(["report", str(saved / "r.json"), "--figure", "cost"]) == 2
    captured = capsys.readouterr()
    assert "--plot cost.svg" in captured.err
    assert captured.out == ""
