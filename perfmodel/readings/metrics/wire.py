"""Fields of a protobuf message, from its bytes alone (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Value = int | float | bytes


class BrokenError(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends.

    >>> varint(bytes([0xAC, 0x02]), 0)
    (300, 2)
    """
    found = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise BrokenError("a number does not end")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field in its order: integers, 64-bit floats, 32-bit floats, or bytes.

    >>> list(fields(bytes([0x08, 0x96, 0x01, 0x12, 0x02, 0x68, 0x69])))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind, width = key & 7, 0
        if kind == 0:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            width, at = varint(data, at)
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
        else:
            raise BrokenError("a field of unknown kind")
        if at + width > len(data):
            raise BrokenError("a field does not end")
        piece = data[at : at + width]
        at += width
        if kind == 2:
            yield key >> 3, piece
        else:
            yield key >> 3, struct.unpack("<d" if kind == 1 else "<f", piece)[0]
