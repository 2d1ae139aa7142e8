"""`perfmodel demo`: an answer, a report and a next command, from any folder, with no input."""

from __future__ import annotations

import json

from perfmodel.cli.main import main


def test_demo_answers_writes_a_report_and_names_the_next_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    captured = capsys.readouterr()
    assert "K" in captured.out
    assert "next: perfmodel" in captured.err
    report = (tmp_path / "perfmodel-demo.html").read_text()
    assert report.lstrip().lower().startswith("<!doctype html>")
    assert "http://" not in report.replace("http://www.w3.org", "")


def test_demo_as_json_is_the_same_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    texts = []
    for _ in range(2):
        assert main(["demo", "--format", "json", "--quiet"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["result"]


def test_demo_where_it_cannot_write_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--report", "nowhere/demo.html"]) == 2
    assert "no folder nowhere" in capsys.readouterr().err
