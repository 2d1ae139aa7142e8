"""The doors through which bytes of strangers come in, each as a function of bytes that raises where the tool has a fault.

A refusal (exit code 2 with an error's code) is a good answer to anything. A fault is exit code 3, any exception but a
SpecError from a reader, a warning, an answer that is no strict JSON, or a refusal without a word.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import seeds

from perfmodel.cli.main import main
from perfmodel.errors import SpecError


class FaultError(AssertionError):
    """The tool has done what it promises never to do."""


@dataclass(frozen=True)
class Entry:
    """One door: what is done with the bytes, good inputs to start from, and the longest input worth trying."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    longest: int = 4096


@functools.cache
def folder() -> Path:
    """Where inputs are put, in memory where the system has such a place; the process leaves it empty."""
    shared = Path("/dev/shm")
    found = tempfile.TemporaryDirectory(prefix="perfmodel-fuzz-", dir=shared if shared.is_dir() else None)
    _kept.append(found)
    return Path(found.name)


_kept: list[Any] = []  # until the process ends


def put(name: str, data: bytes) -> Path:
    """A file of that name holding the input."""
    path = folder() / name
    path.write_bytes(data)
    return path


def command(*arguments: str | Path) -> None:
    """Run a verb for its JSON, and hold its exit code and both streams to what is promised."""
    os.environ["PERFMODEL_DEBUG"] = "1"
    out, err = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        warnings.simplefilter("error")
        code = main([*map(str, arguments)])
    if code not in (0, 1, 2):
        raise FaultError(f"exit code {code}\n{err.getvalue()}")
    if code == 2 and "error[" not in err.getvalue():
        raise FaultError(f"refused without an error\n{err.getvalue()}")
    if code != 2:
        json.loads(out.getvalue(), parse_constant=_no_number)


def _no_number(word: str) -> NoReturn:
    raise FaultError(f"{word} in the JSON")


def reading(read: Callable[[Path], Any], name: str) -> Callable[[bytes], None]:
    """A reader of files that must raise nothing but SpecError."""

    def run(data: bytes) -> None:
        path = put(name, data)
        with warnings.catch_warnings(), contextlib.suppress(SpecError):
            warnings.simplefilter("error")
            read(path)

    return run


def verb(name: str, before: Sequence[str], after: Sequence[str] = ()) -> Callable[[bytes], None]:
    """A verb that gets the input as a file."""

    def run(data: bytes) -> None:
        command(*before, put(name, data), *after, "--format", "json")

    return run


JOB = ("-w", "resnet50", "-c", "dgx-a100", "--global-batch", "2048")


def units(data: bytes) -> None:
    """Any text as a quantity of any dimension, and back."""
    from perfmodel.units import DIMENSIONS, UnitError, format_quantity, parse

    text = data.decode("utf-8", "replace")
    for dimension in DIMENSIONS:
        with contextlib.suppress(UnitError):
            value = parse(text, dimension)
            format_quantity(value, dimension)


def policies(data: bytes) -> None:
    """One policy in the grammar of the gate."""
    from perfmodel.decide.gate.grammar import PolicyError, parse
    from perfmodel.units import UnitError

    with contextlib.suppress(PolicyError, UnitError):
        parse(data.decode("utf-8", "replace"))


def collective_logs(data: bytes) -> None:
    """Every reader of what a benchmark of collectives prints."""
    from perfmodel.readings.comm_tables import read_comm_tables
    from perfmodel.readings.nccl_tests import read_nccl_tests
    from perfmodel.readings.osu import read_osu

    for read in (read_nccl_tests, read_osu, read_comm_tables):
        reading(read, "sweep.txt")(data)


def training_logs(data: bytes) -> None:
    """Every preset of a training log, and whatever the detection takes the file for."""
    from perfmodel.readings.train_log import PRESETS, read_train_log

    for preset in PRESETS:
        reading(functools.partial(read_train_log, preset=preset), "run_k8.log")(data)
    command("study", put("run_k8.log", data), "--format", "json")


def device_logs(data: bytes) -> None:
    """Power, step times of ranks, and accounting."""
    from perfmodel.readings.power import read_power
    from perfmodel.readings.rank_times import read_rank_times
    from perfmodel.readings.sacct import read_sacct

    for read in (read_power, read_rank_times, read_sacct):
        reading(read, "device.csv")(data)


def traces(data: bytes) -> None:
    """Profiler traces, packed or not."""
    command("study", put("run_k8.json", data), "--format", "json")


def nsys(data: bytes) -> None:
    """Nsight's databases."""
    command("study", put("run_k8.sqlite", data), "--format", "json")


def reports(data: bytes) -> None:
    """Saved results, rendered in every form that needs no drawing library, and as a page."""
    path = put("saved.json", data)
    command("report", path, "--format", "json")
    for form in ("table", "csv", "md"):
        with contextlib.suppress(json.JSONDecodeError):
            command("report", path, "--format", form)
    command("report", path, "--format", "json", "--report", folder() / "saved.html")


def importers(data: bytes) -> None:
    """Configurations and launch scripts of any framework."""
    from perfmodel.frameworks.document import decoded
    from perfmodel.frameworks.reader import read_texts

    with warnings.catch_warnings(), contextlib.suppress(SpecError):
        warnings.simplefilter("error")
        read_texts([(decoded(data, "x"), "x")])


def imported(data: bytes) -> None:
    """The same through the verb, with what a stranger's file leaves out."""
    command(
        "predict", put("job.yaml", data), "-c", "dgx-a100", "-k", "8", "--draws", "20", "--format", "json"
    )


def arguments(data: bytes) -> None:
    """What stands behind the flags of a verb, separated by line ends; no flag that writes or measures."""
    words = data.decode("utf-8", "replace").split("\n")
    verbs = ("predict", "law", "collective", "plan", "explain")
    named = verbs[len(words) % len(verbs)]
    ends = ("-o", "--o", "--p", "--r", "--w", "--s", "--t", "--e", "--a", "-")
    first = {"law": ["amdahl"], "collective": ["all_reduce"]}.get(named, [*JOB, "-k", "8"])
    safe = [
        word
        for word in words
        if not word.startswith(ends) or word.startswith(("--set", "--steps", "--threshold"))
    ]
    if named != "law":
        safe = [word for part in safe for word in ("--set", part)][:8] if named != "collective" else safe
    command(named, *first, *safe, "--format", "json")


@functools.cache
def _page() -> tuple[Any, Any]:
    import asyncio

    from perfmodel.web.answers import Library
    from perfmodel.web.app import create_app
    from perfmodel.web.guards import Limits
    from perfmodel.web.workshop import Workers

    workers = Workers(Library)
    _kept.append(workers)
    return create_app(workers, Limits(rate_per_s=1e9, burst=1e9)), asyncio.new_event_loop()


def bodies(data: bytes) -> None:
    """Bodies of each POST of the page: never a fault of the server, always JSON or a page."""
    app, loop = _page()
    name = ("predict", "compare", "calibrate", "job", "report")[len(data) % 5]
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/api/{name}",
        "raw_path": f"/api/{name}".encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8765"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
    }
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    loop.run_until_complete(app(scope, receive, send))
    status = said[0]["status"]
    body = b"".join(part.get("body", b"") for part in said[1:])
    if status not in (200, 400, 413, 415, 422):
        raise FaultError(f"{name}: status {status}: {body[:500]!r}")
    if status != 200 or name != "report":
        json.loads(body, parse_constant=_no_number)


def small_tables(data: bytes) -> None:
    """Step times of a jitter, prices by regime, and emissions."""
    from perfmodel.readings.codecarbon import timings_csv
    from perfmodel.specs.jitter import read_samples
    from perfmodel.study.regimes import parse_regimes

    reading(read_samples, "samples.csv")(data)
    reading(lambda path: parse_regimes(str(path)), "regimes.csv")(data)
    reading(lambda path: timings_csv(path.read_bytes(), path.name), "emissions_k8.csv")(data)


def load_tests(data: bytes) -> None:
    """Reports of load tools."""
    from perfmodel.readings.load import read_load

    reading(read_load, "load.json")(data)
    reading(read_load, "load.csv")(data)


def _database() -> list[bytes]:
    """A small export of Nsight Systems."""
    path = folder() / "seed.sqlite"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(seeds.NSYS)
    return [path.read_bytes()]


ENTRIES: dict[str, Entry] = {
    "units": Entry(units, lambda: seeds.UNITS, 128),
    "policies": Entry(policies, lambda: seeds.POLICIES, 256),
    "jobs": Entry(verb("job.yaml", ["predict"], ["-k", "8,64", "--draws", "20"]), seeds.jobs),
    "clusters": Entry(verb("c.yaml", ["predict", "-w", "resnet50", "-k", "8", "-c"]), seeds.clusters),
    "gates": Entry(verb("perfmodel.yaml", ["check"]), seeds.gates),
    "claims": Entry(verb("claim.yaml", ["audit"]), seeds.claims),
    "timings": Entry(verb("t.csv", ["study"]), seeds.timings),
    "calibrations": Entry(verb("t.csv", ["calibrate", *JOB, "--timings"]), seeds.timings, 1024),
    "collective_logs": Entry(collective_logs, lambda: seeds.SWEEPS),
    "training_logs": Entry(training_logs, lambda: seeds.TRAINING),
    "device_logs": Entry(device_logs, lambda: seeds.DEVICES),
    "load_tests": Entry(load_tests, seeds.load_tests),
    "small_tables": Entry(small_tables, lambda: seeds.TABLES, 1024),
    "traces": Entry(traces, seeds.traces, 16_384),
    "nsys": Entry(nsys, _database, 65_536),
    "reports": Entry(reports, seeds.results, 200_000),
    "bodies": Entry(bodies, lambda: seeds.BODIES),
    "importers": Entry(importers, seeds.imports),
    "imported": Entry(imported, seeds.imports),
    "models": Entry(verb("config.json", ["workload", "from-hf"]), seeds.models),
    "graphs": Entry(verb("g.dot", ["workdepth"]), seeds.graphs),
    "beliefs": Entry(verb("b.json", ["predict", *JOB, "-k", "8", "--beliefs"]), seeds.beliefs, 600_000),
    "arguments": Entry(arguments, lambda: seeds.ARGUMENTS, 512),
}
