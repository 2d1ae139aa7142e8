"""Fifty people drag sliders for a minute: latency, errors and memory of `perfmodel serve` under wrk.

    python benchmarks/load_page.py [--users 50] [--seconds 60] [--pause-ms 2000]

Needs wrk (apt-get install -y wrk). The machine should be otherwise idle: load generator and server share it. The
printed load averages tell whether it was; processor time per request is nearly the same on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

SCRIPT = Path(__file__).with_name("page_users.lua")
TARGET_P95_MS = 250.0


def main() -> int:
    """Run the load and print one JSON line; exit 1 when the target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--pause-ms", type=int, default=2000, help="time a person looks before the next drag")
    parser.add_argument("--step-ms", type=int, default=100, help="time between two positions of a drag")
    given = parser.parse_args()
    wrk = shutil.which("wrk")
    if wrk is None:
        sys.stderr.write("wrk is not installed: apt-get install -y wrk\n")
        return 2
    command = [sys.executable, "-m", "perfmodel", "serve", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = server.stderr.readline().split()[4].rstrip("/")
        wait_until_warm(address)
        memory = Memory(server.pid)
        spent, load = cpu_seconds(server.pid), os.getloadavg()[0]
        threads = 2
        environment = os.environ | {
            "USERS_PER_THREAD": str(max(1, given.users // threads)),
            "PAUSE_MS": str(given.pause_ms),
            "STEP_MS": str(given.step_ms),
        }
        arguments = [
            wrk,
            f"-t{threads}",
            f"-c{given.users}",
            f"-d{given.seconds}s",
            "--timeout",
            "30s",
            "-s",
            str(SCRIPT),
            address,
        ]
        output = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
        found = json.loads(output.strip().splitlines()[-1])
        spent = cpu_seconds(server.pid) - spent
        found |= {"users": given.users, **memory.stop()}
        found |= {"cpu_ms_per_request": round(1e3 * spent / max(1, found["requests"]), 2)}
        found |= {"load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2)}
        with urllib.request.urlopen(f"{address}/healthz") as response:
            found["served"] = json.load(response)
        sys.stdout.write(json.dumps(found) + "\n")
        return 0 if found["errors"] == 0 and found["p95_ms"] <= TARGET_P95_MS else 1
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)


def wait_until_warm(address: str) -> None:
    """Ask until the workers have read their specs and answer quickly."""
    body = json.dumps({"workload": "resnet50", "cluster": "dgx-a100"}).encode()
    request = urllib.request.Request(f"{address}/api/predict", body, {"content-type": "application/json"})
    for _ in range(120):
        try:
            urllib.request.urlopen(request, timeout=60).read()
            urllib.request.urlopen(f"{address}/api/catalog", timeout=60).read()
            time.sleep(3)
            return
        except urllib.error.URLError:
            time.sleep(0.5)
    raise SystemExit("the server did not come up")


class Memory:
    """Samples the resident memory of a process and its children, once a second."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.samples: list[float] = []
        self._go = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, list[float]]:
        """Memory at the start, after each fifth of the run, and at its end [MB]."""
        self._go.set()
        self._thread.join()
        last = len(self.samples) - 1
        return {"memory_mb": [round(self.samples[last * i // 5], 1) for i in range(6)]}

    def _watch(self) -> None:
        while True:
            self.samples.append(sum(resident_mb(pid) for pid in (self.pid, *children(self.pid))))
            if self._go.wait(1.0):
                return


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children so far [s] (Linux)."""
    ticks = 0
    for one in (pid, *children(pid)):
        words = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Child processes (Linux)."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def resident_mb(pid: int) -> float:
    """Resident memory of one process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
