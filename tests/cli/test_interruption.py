"""Ctrl-C and SIGTERM end a command with 130, a message and nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfmodel.cli import start
from perfmodel.errors import EXIT_INTERRUPTED

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


@contextmanager
def ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """A child that is gone afterwards, with its pipes closed, even where the test fails."""
    with child:
        try:
            yield
        finally:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_does_not_hear_is_ended(number: signal.Signals) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _DEAF],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a worker may ignore it
    )
    with ended(child):
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(number)
        # Less than it sleeps: the signal may come just before its sleep begins.
        _, errors = child.communicate(timeout=25)
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
    with ended(child):
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=2.0)  # it has begun, and has far to go
        child.terminate()
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert errors == b"interrupted\n"
    assert target.read_text() == "old"


def test_a_closed_stderr_is_no_fault(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m perfmodel predict {tmp_path / 'absent.yaml'} 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 2


# The signal comes while the command line is still being imported, or when all is done and the interpreter goes home.
_EARLY = """
import os, signal, sys
from perfmodel.cli import start
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.{number})
sys.meta_path.insert(0, Finder())
sys.exit(start.main())
"""
_LATE = """
import atexit, os, signal, sys
from perfmodel.cli import start
sys.argv = ["perfmodel", "--version"]
code = start.main()
atexit.register(lambda: os.kill(os.getpid(), signal.{number}))
sys.exit(code)
"""
# An exception raised in the callback of a weak reference is lost: the process must not end as if nothing had been.
_LOST = """
import os, signal, weakref
from perfmodel.cli.interruption import Interrupted, interruptible
class Thing: pass
thing = Thing()
try:
    with interruptible("serve"):
        watched = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.{number}))
        del thing
except Interrupted:
    os.write(2, b"interrupted\\n")
    raise SystemExit(130)
"""


@pytest.mark.parametrize("script", [_EARLY, _LATE, _LOST], ids=["early", "late", "lost"])
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_at_any_moment_is_130_and_one_word(script: str, number: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", script.format(number=number)],
        capture_output=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        check=False,
    )
    assert (child.returncode, child.stderr) == (EXIT_INTERRUPTED, b"interrupted\n")


def test_a_signal_at_the_very_end_changes_no_answer() -> None:
    script = """
import atexit, os, signal, sys
from perfmodel.cli import start
atexit.register(os.kill, os.getpid(), signal.SIGTERM)
sys.argv = ["perfmodel", "--version"]
sys.exit(start.main())
"""
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (child.returncode, child.stderr) == (0, b"")


def test_both_know_the_same_code() -> None:
    assert start.INTERRUPTED == EXIT_INTERRUPTED


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_stderr_on_a_full_disk_is_no_failed_policy(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m perfmodel predict {tmp_path / 'absent.yaml'} 2>/dev/full"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 2
