"""Ctrl-C and SIGTERM end a command with 130, a message and nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Holds the exception back like a long call into compiled code, after saying that it has begun.
_DEAF = """
import time
from perfmodel.cli.interruption import interruptible
with interruptible("validate"):
    while True:
        try:
            print("begun", flush=True)
            time.sleep(30)
        except KeyboardInterrupt:
            pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_does_not_hear_is_ended(number: signal.Signals) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _DEAF],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a worker may ignore it
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(number)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert errors == b"interrupted\n"


def test_sigterm_leaves_the_old_output(tmp_path: Path) -> None:
    target = tmp_path / "validation.json"
    target.write_text("old")
    child = subprocess.Popen(
        [sys.executable, "-m", "perfmodel", "validate", "--format", "json", "-o", str(target)],
        stderr=subprocess.PIPE,
        env={**os.environ, "PERFMODEL_DEBUG": "0"},
    )
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=2.0)  # it has begun, and has far to go
    child.terminate()
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert errors == b"interrupted\n"
    assert target.read_text() == "old"


def test_a_closed_stderr_is_no_fault(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m perfmodel predict {tmp_path / 'absent.yaml'} 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 2
