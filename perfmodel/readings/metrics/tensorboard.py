"""Scalars of a TensorBoard event file: records of TFRecord, each an `Event` message.

A record is the length of its data (8 bytes, little-endian), a checksum of that (4), the data, and a checksum of it (4).
An event has the time (1) and the step (2), and a summary (5) of values (1) with tag (1) and number: a plain one (2), or a
tensor (8) of one entry. Everything else (images, histograms, graphs) is passed over.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.readings.metrics.series import Metrics
from perfmodel.readings.metrics.wire import BrokenError, fields
from perfmodel.readings.source import DAMAGED, Tally, open_bytes
from perfmodel.readings.train_log import TrainLog

LONGEST = 1 << 20  # bytes of a record that is looked into: scalars take some hundred
MOST_RECORDS = 5_000_000
_FLOATS = {
    1: ("<f4", 5),
    2: ("<f8", 6),
    3: ("<i4", 7),
    9: ("<i8", 10),
}  # dtype -> in bytes, field of single values


def looks_like_events(head: bytes) -> bool:
    """Whether a file begins with the record that every event file begins with: the version of its form."""
    if len(head) < 24:
        return False
    length = struct.unpack("<Q", head[:8])[0]
    return 9 <= length <= 256 and b"brain.Event:" in head[12 : 12 + length]


def read_tensorboard(path: Path | str) -> TrainLog:
    """Step times from the scalars of one file."""
    where = Path(path)
    tally, found = Tally(where), Metrics()
    with open_bytes(where) as raw:
        while tally.lines < MOST_RECORDS:
            try:
                head = raw.read(12)
            except DAMAGED:
                head = b"?"
            if not head:
                break
            tally.lines += 1
            if len(head) < 12:
                tally.reject(0, "", "the last record is cut off")
                break
            length = struct.unpack("<Q", head[:8])[0]
            if length > LONGEST:
                if not _skip(raw, length + 4):
                    tally.reject(0, "", "the last record is cut off")
                    break
                continue
            try:
                data, tail = raw.read(length), raw.read(4)
            except DAMAGED:
                data = tail = b""
            if len(data) < length or len(tail) < 4:
                tally.reject(0, "", "the last record is cut off")
                break
            try:
                tally.used += _event(data, found)
            except (BrokenError, struct.error, ValueError):
                tally.reject(0, "", "a record is no event")
    return found.log(
        tally, "tensorboard", where.parent.name if where.name.startswith("events.out") else where.stem
    )


def _skip(raw: Any, count: int) -> bool:
    """Read over bytes in pieces; False where the file ends before."""
    while count > 0:
        try:
            piece = len(raw.read(min(count, LONGEST)))
        except DAMAGED:
            return False
        if not piece:
            return False
        count -= piece
    return True


def _event(data: bytes, found: Metrics) -> bool:
    """Keep the scalars of an event; whether it had any."""
    clock, step, kept = None, 0, False
    summaries = []
    for number, value in fields(data):
        if number == 1 and isinstance(value, float):
            clock = value
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            if number == 1 and isinstance(value, bytes):
                tag, scalar = _scalar(value)
                kept |= scalar is not None and found.add(tag, step, scalar, clock)
    return kept


def _scalar(data: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")[:300]
        elif number == 2 and isinstance(value, float):
            scalar = value
        elif number == 8 and isinstance(value, bytes):
            scalar = _tensor(value)
    return tag, scalar


def _tensor(data: bytes) -> float | None:
    """The one entry of a tensor; None where it has another number of them or another type."""
    kind, content = 0, b""
    singles: dict[int, bytes | float | int] = {}
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number >= 5:
            singles[number] = value
    if kind not in _FLOATS:
        return None
    form, single = _FLOATS[kind]
    value = singles.get(single, content)
    if isinstance(value, bytes):  # packed
        width = np.dtype(form).itemsize
        return float(np.frombuffer(value, form)[0]) if len(value) == width else None
    return float(value)
