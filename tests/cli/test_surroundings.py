"""Where a command runs is not its business: other encodings, no home, a reader of the pipe that leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

JOB = ("predict", "-w", "resnet50", "-c", "dgx-a100", "-k", "1..8", "--draws", "20")


def perfmodel(*words: str, **changed: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "perfmodel", *words]
    return subprocess.run(command, env=os.environ | changed, capture_output=True, check=False)


def test_an_encoding_without_our_characters_is_no_fault() -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    for words in (("schema", "job"), JOB, (*JOB, "--format", "md")):
        done = perfmodel(*words, **ascii_only)
        assert (done.returncode, done.stderr) == (0, b""), words
        assert done.stdout.isascii()


def test_no_home_is_no_reason_for_words(tmp_path: Path) -> None:
    done = perfmodel(
        *JOB,
        "--plot",
        str(tmp_path / "p.svg"),
        HOME="/nonexistent",
        XDG_CACHE_HOME="/nonexistent",
        MPLCONFIGDIR="",
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "p.svg").stat().st_size > 1000


def test_a_report_is_written_although_nobody_reads_the_table_to_its_end(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "perfmodel", *JOB, "--report", str(tmp_path / "r.html")]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "r.html").stat().st_size > 10_000
