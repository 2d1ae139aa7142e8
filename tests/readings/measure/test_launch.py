"""Processes started and ended together, without torch: real processes that write, fail, hang and are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import perfmodel.readings.measure.launch
from perfmodel.errors import UsageError
from perfmodel.readings.measure.launch import relaunch, run_ranks

PLACE = "import os, sys, time; rank = int(os.environ['RANK']); "


def python(code: str) -> list[str]:
    return [sys.executable, "-c", PLACE + code]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_rank_knows_its_place(tmp_path: Path) -> None:
    code = f"open(rf'{tmp_path}/{{rank}}', 'w').write(os.environ['WORLD_SIZE'] + os.environ['LOCAL_RANK'])"
    assert run_ranks(python(code), 3) == 0
    assert sorted(file.read_text() for file in tmp_path.iterdir()) == ["30", "31", "32"]


def test_one_failure_ends_all_and_is_heard(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Children of a suite in the background of a shell ignore the interrupt, and wait for what comes after it.
    monkeypatch.setattr(perfmodel.readings.measure.launch, "PATIENCE_S", 1.0)
    code = (
        f"open(rf'{tmp_path}/{{rank}}', 'w').write(str(os.getpid()));"
        f"rank or (time.sleep(60), open(rf'{tmp_path}/slept', 'w').close());"
        "print('no memory', file=sys.stderr); sys.exit(3)"
    )
    assert run_ranks(python(code), 2) == 3
    assert not (tmp_path / "slept").exists()  # nobody waited for the other rank
    assert "no memory" in capfd.readouterr().err
    assert not alive(int((tmp_path / "0").read_text()))


def test_ranks_that_ignore_the_interrupt_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfmodel.readings.measure.launch, "PATIENCE_S", 0.3)
    code = (
        "import signal; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)];"
        f"open(rf'{tmp_path}/{{rank}}', 'w').write(str(os.getpid()));"
        "time.sleep(60) if rank else (time.sleep(0.5), sys.exit(2))"
    )
    assert run_ranks(python(code), 2) == 2
    assert not alive(int((tmp_path / "1").read_text()))


def test_an_interrupt_of_the_parent_alone_leaves_nobody_behind(tmp_path: Path) -> None:
    child = f"open(rf'{tmp_path}/{{rank}}.pid', 'w').write(str(os.getpid())); time.sleep(60)"
    # A suite started in the background of a shell ignores interrupts, and its children with it.
    parent = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from perfmodel.readings.measure.launch import run_ranks; run_ranks({python(child)!r}, 2)"
    )
    started = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120.0
        while len(list(tmp_path.glob("*.pid"))) < 2 or not all(f.read_text() for f in tmp_path.glob("*.pid")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        started.send_signal(signal.SIGINT)
        started.wait(60)
        left = [int(file.read_text()) for file in tmp_path.glob("*.pid")]
        assert not any(alive(process) for process in left)
    finally:
        started.kill()
        started.wait()
        for file in tmp_path.glob("*.pid"):
            with suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)


def test_more_processes_than_a_machine_can_run_are_refused_before_any_starts(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(UsageError, match="8 at most here"):
        relaunch(9, ["measure", "device"])
