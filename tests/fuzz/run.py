"""`make fuzz`: coverage-guided fuzzing of every entry point, or of those named, for a given time each.

    python tests/fuzz/run.py SECONDS [ENTRY...]

A fault is shown once for each place in the code, its input is written to .fuzz/ENTRY/found, and the search goes on.
What was learnt stays in .fuzz/ENTRY/corpus for the next time. An input that showed a fault becomes a test when it is
moved to tests/fuzz/kept/ENTRY.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import pkgutil
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).parent
HOME = HERE.parents[1] / ".fuzz"
SLOW_S = 10.0  # for one input; far beyond any sane one, on a busy machine too


def main(seconds: int, names: list[str]) -> int:
    """Fuzz each entry in a process of its own, and return how many faults were found."""
    sys.path.insert(0, str(HERE))
    from entries import ENTRIES

    if unknown := sorted(set(names) - set(ENTRIES)):
        print(f"no entry point named {', '.join(unknown)}: there are {', '.join(ENTRIES)}", file=sys.stderr)
        return 1
    faulty = []
    for name in names or list(ENTRIES):
        before = _inputs(name)
        subprocess.run([sys.executable, str(Path(__file__)), "--one", str(seconds), name], check=False)
        if _inputs(name) - before:  # libFuzzer's own exit code knows nothing of what was collected
            faulty.append(name)
    print(f"faults in {', '.join(faulty)}" if faulty else "no faults", flush=True)
    return len(faulty)


def _inputs(name: str) -> set[Path]:
    return set((HOME / name / "found").glob("*"))


def one(seconds: int, name: str) -> int:
    """Fuzz one entry in this process; `_Collector` says what was found, and ends it."""
    import atheris

    sys.path.insert(0, str(HERE))
    noise = contextlib.redirect_stderr(io.StringIO())  # a line for each module
    with noise, atheris.instrument_imports(include=["perfmodel"]):
        import entries

        import perfmodel

        for module in pkgutil.walk_packages(perfmodel.__path__, "perfmodel."):
            if not module.name.endswith(("__main__", "from_torch", "torch_trace", "pytest_plugin")):
                importlib.import_module(module.name)
    entry = entries.ENTRIES[name]
    corpus, found = HOME / name / "corpus", HOME / name / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    for data in [*entry.seeds(), *(path.read_bytes() for path in sorted((HERE / "kept" / name).glob("*")))]:
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    collector = _Collector(name, found, seconds)

    def attempt(data: bytes) -> None:
        collector.attempt(entry.run, data)

    flags = [
        f"-max_len={entry.longest}",
        "-verbosity=0",
        "-print_final_stats=0",
    ]
    flags += ["-timeout=120", "-rss_limit_mb=4000", f"-artifact_prefix={found}/", "-seed=1"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], attempt)
    atheris.Fuzz()
    return 0


class _Collector:
    """Runs inputs, keeps the first of each fault, and counts."""

    def __init__(self, name: str, found: Path, seconds: int) -> None:
        self.name, self.found, self.seconds = name, found, seconds
        self.seen: set[str] = set()
        self.tried = 0
        self.began = time.monotonic()

    def attempt(self, run, data: bytes) -> None:  # type: ignore[no-untyped-def]
        self.tried += 1
        before = time.monotonic()
        try:
            run(data)
        except Exception as error:
            self._keep(_place(error), "".join(traceback.format_exception(error))[-3000:], data)
        spent = time.monotonic() - before
        if spent > SLOW_S:
            self._keep("slow", f"{spent:.1f} s for one input", data)
        if time.monotonic() - self.began > self.seconds:  # libFuzzer would end without a last word
            self.report()
            os._exit(0)

    def _keep(self, place: str, text: str, data: bytes) -> None:
        if place in self.seen:
            return
        self.seen.add(place)
        path = self.found / hashlib.sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        print(f"FAULT in {self.name} at {place}\n{text}\ninput: {path}\n", flush=True)

    def report(self) -> None:
        """One line about the whole run."""
        spent = time.monotonic() - self.began
        print(f"{self.name}: {self.tried} inputs in {spent:.0f} s, {len(self.seen)} faults", flush=True)


def _place(error: BaseException) -> str:
    """What tells one fault from another: the last lines of the package in its traceback, and its kind."""
    text = "".join(traceback.format_exception(error))
    frames = re.findall(r'File "[^"]*perfmodel/([^"]+)", line (\d+)', text)
    kind = re.findall(r"^(\w+(?:\.\w+)*(?:Error|Warning|Exception)\b)", text, re.MULTILINE)
    where = [frame for frame in frames if not frame[0].startswith("cli/")] or frames
    return f"{where[-1:]} {kind[:1]}"


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        sys.exit(one(int(sys.argv[2]), sys.argv[3]))
    sys.exit(bool(main(int(sys.argv[1]), sys.argv[2:])))
