"""Start the processes of a measurement on this machine, and end them all when one fails or the user stops the run.

Each process gets what torchrun would give it (RANK, WORLD_SIZE, ...), so a cluster's own launcher works as well. Rank 0
speaks; of the others only the first to fail by itself is heard, for ranks that fail together say the same.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from perfmodel.errors import UsageError
from perfmodel.readings.measure.machine import require_torch

PATIENCE_S = 20.0  # for processes that were asked to end
POLL_S = 0.05
RELAUNCHED = "PERFMODEL_RELAUNCHED"  # in the environment of processes that `relaunch` started

_Child = subprocess.Popen[bytes]
RANKS_PER_CORE = 4


def launched() -> bool:
    """Whether a launcher started this process as one of several (or as the only one of a group)."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def relaunch(processes: int, arguments: Sequence[str]) -> int:
    """Run `perfmodel ARGUMENTS` in `processes` processes of this machine; the exit code of the first that failed."""
    if processes < 1:
        raise UsageError(f"--nproc: {processes} processes", code="M003", help="1 or more")
    most = RANKS_PER_CORE * (os.cpu_count() or 1)
    if processes > most:
        raise UsageError(
            f"--nproc: {processes} processes would measure the scheduler of {os.cpu_count()} cores",
            code="M003",
            help=f"{most} at most here",
        )
    require_torch()
    return run_ranks([sys.executable, "-m", "perfmodel", *arguments], processes)


def run_ranks(command: Sequence[str], processes: int) -> int:
    """Run a command once per rank and wait for all; the exit code of the first rank that failed, else 0."""
    with tempfile.TemporaryDirectory(prefix="perfmodel-") as folder:
        children: list[_Child] = []
        heard = [Path(folder) / f"rank{rank}.err" for rank in range(processes)]
        try:
            shared = _environment(processes)
            for rank in range(processes):
                own = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                if rank == 0:
                    children.append(subprocess.Popen(command, env=own))
                else:
                    with heard[rank].open("wb") as stream:
                        children.append(
                            subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=stream)
                        )
            failed = _first_failure(children)
        finally:
            _stop(children)  # nothing to do where all have ended
        if failed is None:
            return 0
        if failed:
            sys.stderr.write(heard[failed].read_text(encoding="utf-8", errors="replace"))
        code = children[failed].returncode
        return code if code > 0 else 128 - code  # a signal's number, as shells count it


def _environment(processes: int) -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "OMP_NUM_THREADS": "1",
        **os.environ,
        RELAUNCHED: "1",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _first_failure(children: Sequence[_Child]) -> int | None:
    """Wait until all ranks ended well (None) or one did not (its rank; rank 0 before others that fail with it)."""
    while True:
        codes = [child.poll() for child in children]
        if all(code == 0 for code in codes):
            return None
        if any(code for code in codes):
            time.sleep(10 * POLL_S)
            codes = [child.poll() for child in children]
            return next(rank for rank, code in enumerate(codes) if code)
        time.sleep(POLL_S)


def _stop(children: Sequence[_Child]) -> None:
    """End every rank that still runs: interrupted first, terminated after `PATIENCE_S`, killed after as long again."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        running = [child for child in children if child.poll() is None]
        for child in running:
            child.send_signal(number)
        deadline = time.monotonic() + PATIENCE_S
        for child in running:
            try:
                child.wait(max(deadline - time.monotonic(), POLL_S))
            except subprocess.TimeoutExpired:
                continue
