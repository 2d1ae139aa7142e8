"""`make soak`: the metamorphic tests on many random jobs, a part at a time, and every job that breaks a relation.

Not a test itself: CI takes the first jobs alone, this takes as many as it is told.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent

PART = 500  # jobs that one process keeps in memory
SUITES = ("test_one_answer.py", "test_agreement.py", "test_remedies.py")
NO_JOBS = "not without_any_work"  # tests there that take the whole catalogue, and once is enough


def main(jobs: int, first: int = 0) -> int:
    """Soak, and return how many parts failed."""
    failed, began = 0, time.monotonic()
    for start in range(first, first + jobs, PART):
        count = min(PART, first + jobs - start)
        environment = {**os.environ, "PERFMODEL_JOBS": str(count), "PERFMODEL_FIRST": str(start)}
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-n", "0", "-k", NO_JOBS]
        command += [str(HERE / name) for name in SUITES]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        failed += run.returncode != 0
        last = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr.strip()
        print(f"jobs {start} to {start + count - 1}: {last}", flush=True)
        if run.returncode:
            print(
                "\n".join(line for line in run.stdout.splitlines() if re.match(r"E  |FAILED", line)),
                flush=True,
            )
    print(f"{jobs} jobs in {time.monotonic() - began:.0f} s, {failed} parts with a violation")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(*(int(word) for word in sys.argv[1:]))))
