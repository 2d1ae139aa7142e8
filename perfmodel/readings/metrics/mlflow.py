"""Metric files of MLflow: a file for each metric, a line `milliseconds value step` for each value.

One such file is enough where it is the time of a step. The folder of a run (`mlruns/0/<run>`), or its `metrics` folder,
gives all of them, and its `params` the number of workers and the batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from perfmodel.readings.metrics.series import MOST_TAGS, Metrics, whole
from perfmodel.readings.source import Tally, number, numbered_lines
from perfmodel.readings.train_log import TrainLog

LINE = re.compile(r"^(\d{12,14}) (\S{1,40}) (-?\d{1,12})(?: \S*)?$")
LONGEST_PARAM = 200


def is_run(folder: Path) -> bool:
    """Whether a folder is a run of MLflow, or the metrics of one."""
    return folder.is_dir() and ((folder / "metrics").is_dir() and (folder / "meta.yaml").is_file())


def read_mlflow(path: Path | str) -> TrainLog:
    """Step times from the metrics of one run, or from one of its files."""
    where = Path(path)
    tally, found = Tally(where), Metrics()
    if where.is_dir():
        for tag, file in _files(where / "metrics"):
            _metric(file, tag, tally, found)
        for tag, file in _files(where / "params"):
            with file.open("rb") as raw:
                found.set(tag, raw.read(LONGEST_PARAM).decode("utf-8", "replace").strip())
    else:
        _metric(where, where.name, tally, found)
    return found.log(tally, "mlflow", where.name if where.is_dir() else where.stem)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below a folder by their relative names, in order."""
    if folder.is_dir():
        inside = sorted(item for item in islice(folder.rglob("*"), 4 * MOST_TAGS) if item.is_file())
        yield from ((item.relative_to(folder).as_posix(), item) for item in inside[:MOST_TAGS])


def _metric(file: Path, tag: str, tally: Tally, found: Metrics) -> None:
    for place, line in numbered_lines(file, tally):
        text = line.strip()
        if not text:
            continue
        match = LINE.match(text)
        value = number(match.group(2)) if match else None
        step = whole(match.group(3)) if match else None
        if match is None or value is None or step is None:
            tally.reject(place, f"{tag}: {line}", "not the form of MLflow: milliseconds value step")
        elif found.add(tag, step, value, float(match.group(1)) * 1e-3):
            tally.used += 1
