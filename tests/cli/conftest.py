"""The command line called in this process: nothing is imported again, and what a user sees is the same."""

from __future__ import annotations

import contextlib
import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perfmodel.cli.main import main

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run() -> Run:
    """`run("predict", ..., cwd=folder)`: exit code and both outputs, as of a process of its own behind pipes."""

    def call(*arguments: str, cwd: Path | str = ".") -> subprocess.CompletedProcess[str]:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
        out, err = streams
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
        said, told = (stream.buffer.getvalue().decode("utf-8") for stream in streams)  # type: ignore[attr-defined]
        return subprocess.CompletedProcess(arguments, code, said, told)

    return call
