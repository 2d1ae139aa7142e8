"""`perfmodel compare` from the shell: two files, or one and what changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfmodel.cli.main import main


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    text = (
        "workload: resnet50\nglobal_batch: 4096\nk: 8..64\nprice: {{per_accelerator: 2 USD/h}}\ncluster: {}\n"
    )
    paths = tmp_path / "out.yaml", tmp_path / "up.yaml"
    for path, cluster in zip(paths, ("dgx-a100", "dgx-h100"), strict=True):
        path.write_text(text.format(cluster))
    return str(paths[0]), str(paths[1])


def result(capsys, *arguments: str):
    assert main(["compare", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["result"]


def test_a_table_of_eighty_columns_in_a_process_of_its_own(files):
    done = subprocess.run(
        [sys.executable, "-m", "perfmodel", "compare", *files], capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert done.stdout.splitlines()[0] == "out against up"
    for heading in ("Decision", "Causes", "Equal speed", "Curves"):
        assert heading in done.stdout


def test_times_and_costs_are_of_samples_throughout(files, tmp_path, capsys):
    assert main(["compare", files[0], "--global-batch", "8192", "--plot", str(tmp_path / "c.svg")]) == 0
    out = capsys.readouterr().out
    assert "samples per second" in out
    assert "step time" not in out
    assert "Times are of one sample. Costs are of a million samples." in out
    assert "time per sample" in (tmp_path / "c.svg").read_text()


def test_two_files(files, capsys):
    found = result(capsys, *files)
    assert found["names"] == ["out", "up"]
    assert found["changes"][0]["input"] == "cluster: accelerator"
    assert result(capsys, *files) == found


def test_one_file_and_a_change(files, capsys):
    found = result(capsys, files[0], "--set", "cluster=dgx-h100")
    assert found["names"] == ["dgx-a100", "dgx-h100"]
    other = result(capsys, files[0], "-c", "dgx-h100")
    assert other["time_ratio"] == found["time_ratio"]


def test_flags_hold_for_two_files_and_for_both_sides_of_none(files, capsys):
    found = result(capsys, *files, "-k", "16", "--global-batch", "1024", "--at", "16")
    assert found["k"] == [16]
    found = result(capsys, "-w", "resnet50", "-c", "dgx-a100", "-k", "8", "--set", "precision=tf32")
    assert [row["input"] for row in found["changes"]] == ["precision"]


def test_markdown_csv_plot_and_report(files, tmp_path, capsys):
    flags = ["--plot", str(tmp_path / "c.svg"), "--report", str(tmp_path / "c.html"), "--format", "csv"]
    assert main(["compare", *files, *flags]) == 0
    assert capsys.readouterr().out.startswith("k,time_s_a,time_s_b,")
    assert (tmp_path / "c.svg").stat().st_size > 1000
    assert "Equal speed" in (tmp_path / "c.html").read_text()
    assert main(["compare", *files, "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("## out against up")


def test_nothing_to_compare_with_is_exit_2(files, capsys):
    assert main(["compare", files[0]]) == 2
    assert "--set" in capsys.readouterr().err
