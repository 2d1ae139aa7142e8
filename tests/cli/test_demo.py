"""`perfmodel demo` predicts a built-in job: no network, and quick enough for a first impression."""

from __future__ import annotations

import json
import resource
import shlex
import socket
import subprocess
import sys

from perfmodel.cli.main import main


def test_in_a_process_of_its_own_within_two_seconds_of_one_core(tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "perfmodel", "demo"], capture_output=True, text=True, timeout=120, cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "Scales to K" in done.stdout
    assert "Curve" in done.stdout
    assert (tmp_path / "perfmodel-demo.html").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["perfmodel-demo.html"]
    # Time of the processor, not of the clock: other work on the machine does not count.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


def test_it_opens_no_socket(tmp_path, monkeypatch, capsys):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the demo must not reach for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--format", "json"]) == 0
    envelope = json.loads(capsys.readouterr().out)
    assert envelope["schema"] == "perfmodel/prediction/1"
    assert envelope["result"]["knee"]["threshold"]["k"] is not None


def test_the_next_command_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("next: "))
    words = shlex.split(line.removeprefix("next: "))
    assert words[0] == "perfmodel"
    assert main(words[1:]) == 0
