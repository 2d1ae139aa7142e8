"""What Weights & Biases keeps of a run: CSV of a chart or of the history, JSON, and the file of an offline run.

An offline run (`run-<id>.wandb`) is a log of records in the form of LevelDB (google/leveldb, doc/log_format.md) after a
header of 7 bytes, `:W&B`, a magic number and a version; a record is a protobuf message whose field 2 is a row of the
history (items 1: key 1 or nested key 2, JSON 16; step 2), and which holds settings in field 5 and in field 4 of field 17.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfmodel.errors import Problem, SpecError
from perfmodel.readings.metrics.series import Metrics, numbers, step_of, whole
from perfmodel.readings.metrics.wire import BrokenError, fields
from perfmodel.readings.source import DAMAGED, Tally, number, numbered_lines, open_bytes
from perfmodel.readings.train_log import TrainLog

HEADER = b":W&B"
_HEADER_BYTES, _BLOCK = 7, 32768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
LONGEST_RECORD = 8 << 20
MOST_JSON_BYTES = 256 << 20
_EDGES = ("__MIN", "__MAX")  # columns of a chart beside each line of it


def is_chart(cells: list[str]) -> bool:
    """Whether these cells head a CSV that W&B wrote: of a chart (`run - metric`), or of a run's history.

    >>> is_chart(["Step", "run-1 - train/loss", "run-1 - train/loss__MIN"]), is_chart(["_step", "_timestamp", "loss"])
    (True, True)
    """
    lower = [cell.casefold() for cell in cells]
    return ("_step" in lower and ("_timestamp" in lower or "_runtime" in lower)) or (
        any(
            name in ("step", "global_step", *map(str.casefold, ("trainer/global_step", "train/global_step")))
            for name in lower[:1]
        )
        and any(" - " in cell for cell in cells[1:])
    )


def read_wandb(path: Path | str) -> TrainLog:
    """Step times from any of the forms."""
    where = Path(path)
    tally, found = Tally(where), Metrics()
    with open_bytes(where) as raw:
        head = raw.peek(8)[:8]
    if head.startswith(HEADER):
        _offline(where, tally, found)
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        _json(where, tally, found)
    else:
        _csv(where, tally, found)
    return found.log(tally, "wandb", where.stem)


def _row(row: Mapping[str, Any], found: Metrics, step: int | None = None) -> bool:
    """Keep a row of the history; whether it had a number."""
    at = step_of(row)
    at = step if at is None else at
    if at is None:
        return False
    clock = row.get("_timestamp", row.get("_runtime"))
    when = float(clock) if isinstance(clock, (int, float)) and not isinstance(clock, bool) else None
    kept = False
    for key, value in numbers(row):
        if not key.startswith("_"):
            kept |= found.add(key, at, value, when)
    return kept


# -- CSV -----------------------------------------------------------------------------------------------------------


def _csv(path: Path, tally: Tally, found: Metrics) -> None:
    names: list[str] = []
    runs: set[str] = set()

    def texts() -> Iterator[str]:
        for _, line in numbered_lines(path, tally):
            yield line.replace("\0", " ")

    rows = csv.reader(texts())
    while True:
        try:
            cells = next(rows, None)
        except csv.Error as error:
            tally.reject(tally.lines, "", f"not CSV: {error}")
            continue
        if cells is None:
            break
        if not names:
            names = [cell.strip() for cell in cells]
            runs = {name.partition(" - ")[0] for name in names if " - " in name}
            if len(runs) > 1:
                raise SpecError(
                    Problem(
                        str(path), 1, code="R008", message=f"the chart holds {len(runs)} runs: {', '.join(sorted(runs)[:4])}",
                        help="export it with one run shown, or export each run",
                    )
                )  # fmt: skip
            continue
        row: dict[str, Any] = {}
        for name, cell in zip(names, cells, strict=False):
            value = number(cell.strip())
            if value is not None and not name.endswith(_EDGES):
                row[name.partition(" - ")[2] or ("global_step" if name == "Step" else name)] = value
        if _row(row, found):
            tally.used += 1
        elif any(cell.strip() for cell in cells):
            tally.reject(tally.lines, ",".join(cells), "no step with a number")


# -- JSON ----------------------------------------------------------------------------------------------------------


def _json(path: Path, tally: Tally, found: Metrics) -> None:
    """A row a line, or one list of rows, or `{metric: {step: value}}` as a data frame writes itself."""
    whole_text: list[str] = []
    size = 0
    for place, line in numbered_lines(path, tally):
        size += len(line)
        if size > MOST_JSON_BYTES:
            tally.note("the file is very long: the rest was left out")
            break
        text = line.strip()
        row = _parsed(text) if text.startswith("{") and text.endswith("}") and not whole_text else None
        if isinstance(row, dict) and step_of(row) is not None:
            tally.used += _row(row, found)
        elif isinstance(row, dict) and not any(isinstance(item, dict) for item in row.values()):
            tally.reject(place, text, "no step in it")
        elif text:
            whole_text.append(text)
    if not whole_text:
        return
    data = _parsed("\n".join(whole_text))
    if isinstance(data, dict):
        tables = data.get("history", data.get("data"))
        data = tables if isinstance(tables, list) else list(_columns(data))
    rows = [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []
    kept = sum(_row(row, found) for row in rows)
    if kept:
        tally.used += len(whole_text)
    else:
        tally.reject(1, whole_text[0], "neither rows with a step nor columns by step")


def _columns(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of a data frame's `{column: {index: value}}`."""
    columns = {str(name): column for name, column in data.items() if isinstance(column, Mapping)}
    indices = dict.fromkeys(index for column in columns.values() for index in column)
    for index in indices:
        yield {name: column[index] for name, column in columns.items() if column.get(index) is not None}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# -- offline runs --------------------------------------------------------------------------------------------------


def _offline(path: Path, tally: Tally, found: Metrics) -> None:
    for data in _records(path, tally):
        tally.lines += 1
        try:
            tally.used += _record(data, found)
        except (BrokenError, ValueError):
            tally.reject(0, "", "a record is no message of W&B")


def _records(path: Path, tally: Tally) -> Iterator[bytes]:
    """The records of a LevelDB log, joined where they cross its blocks."""
    with open_bytes(path) as raw:
        offset = len(raw.read(_HEADER_BYTES))
        joined: bytearray | None = None
        while True:
            left = _BLOCK - offset % _BLOCK
            if left < 7:
                offset += len(raw.read(left))
                continue
            try:
                head = raw.read(7)
            except DAMAGED:
                head = b"?"
            if not head:
                return
            if len(head) < 7:
                return tally.note("the file ends inside a record: the run was still going on, or was killed")
            length, kind = int.from_bytes(head[4:6], "little"), head[6]
            data = raw.read(length)
            offset += 7 + len(data)
            if len(data) < length:
                return tally.note("the file ends inside a record: the run was still going on, or was killed")
            if kind == _FULL:
                yield data
                joined = None
            elif kind == _FIRST:
                joined = bytearray(data)
            elif kind in (_MIDDLE, _LAST) and joined is not None:
                joined += data
                if len(joined) > LONGEST_RECORD:
                    joined = None
                elif kind == _LAST:
                    yield bytes(joined)
                    joined = None


def _record(data: bytes, found: Metrics) -> bool:
    for field, value in fields(data):
        if field == 2 and isinstance(value, bytes):
            return _history(value, found)
        if field == 5 and isinstance(value, bytes):
            found.set_all(dict(_items(value)))
        elif field == 17 and isinstance(value, bytes):
            for inner, part in fields(value):
                if inner == 4 and isinstance(part, bytes):
                    found.set_all(dict(_items(part)))
    return False


def _history(data: bytes, found: Metrics) -> bool:
    step = None
    for field, value in fields(data):
        if field == 2 and isinstance(value, bytes):
            step = next((whole(number) for inner, number in fields(value) if inner == 1), 0)
    return _row(dict(_items(data)), found, step)


def _items(data: bytes) -> Iterator[tuple[str, Any]]:
    """Key and value of each item (field 1) of a row or of settings."""
    for field, item in fields(data):
        if field != 1 or not isinstance(item, bytes):
            continue
        key, nested, text = "", [], ""
        for inner, value in fields(item):
            if isinstance(value, bytes) and inner in (1, 2, 16):
                words = value.decode("utf-8", "replace")
                if inner == 1:
                    key = words
                elif inner == 2:
                    nested.append(words)
                else:
                    text = words
        name = (key or "/".join(nested))[:300]
        if name and re.match(r"\s*[-\d\"{]", text):
            yield name, _parsed(text)
