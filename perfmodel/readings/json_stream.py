"""Events out of a JSON trace of any size, a few megabytes at a time.

A trace is `{"traceEvents": [event, ...], ...}` or `[event, ...]`. Text is read in chunks; the run of whole events in a
chunk is cut at the last separator and parsed in one call, which is as fast as parsing the file at once. Where that
fails (the end of the list, damage) events are parsed singly; damage is skipped up to the next thing that
looks like an event and counted. Memory holds one chunk and its events.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from io import BufferedReader, BytesIO
from typing import Any

from perfmodel.readings.source import DAMAGE, DAMAGED, Tally

CHUNK = 2 << 20  # bytes
LONGEST_EVENT = 1 << 20  # characters; what does not parse within them is damage, not cut by the chunk
_GAP = re.compile(r"[\s,]*")
_EVENT = re.compile(r'\{\s*"(?:ph|cat|name|pid|tid|ts|id|bp|s)"\s*:')
_LIST = re.compile(r'"traceEvents"\s*:\s*\[')
_SEPARATOR = re.compile(r'\s*,\s*\{\s*"\w+"')
_KEPT = ("distributedInfo", "deviceProperties", "baseTimeNanoseconds", "traceName", "displayTimeUnit")
_SINGLY = 256  # events parsed one by one before the fast way is tried (again)

_NUMBERS = (int, float)  # not bool
NO_TIMING = "an event without a start and a length"


def timing(event: dict[str, Any]) -> tuple[float, float] | None:
    """Start and length [us] of an event; None when either is missing or absurd."""
    start: Any = event.get("ts")
    length: Any = event.get("dur")
    if type(start) in _NUMBERS and type(length) in _NUMBERS and 0 <= length < 1e15 and -1e18 < start < 1e18:
        return start, length
    return None


class EventStream:
    """`for batch in EventStream(raw, tally)` gives lists of parsed events; `header` holds what stands beside them."""

    def __init__(self, raw: BufferedReader | BytesIO, tally: Tally, chunk: int = CHUNK) -> None:
        self.header: dict[str, Any] = {}
        self.line = 1
        self._raw = raw
        self._spoilt = False
        self._tally = tally
        self._chunk = chunk
        self._decode_bytes = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._separator: str | None = None
        self._batch = ("", 1)  # text and first line of the last batch
        self._batch_lines: list[int] | None = None

    def line_of(self, index: int) -> int:
        """The line on which an event of the last batch begins; worked out only when it is asked for."""
        if self._batch_lines is None:
            text, line = self._batch
            self._batch_lines, at = [], 0
            while at < len(text):
                gap = _GAP.match(text, at)
                begin = gap.end() if gap else at
                line += text.count("\n", at, begin)
                if begin >= len(text):
                    break
                self._batch_lines.append(line)
                _, at = self._decode(text, begin)
                line += text.count("\n", begin, at)
        return self._batch_lines[index]

    def __iter__(self) -> Iterator[list[Any]]:
        first = self._peek()
        if first == "[":
            self._at += 1
            yield from self._events()
        elif first == "{":
            self._at += 1
            yield from self._members()
        else:
            self._tally.lines += 1
            self._tally.reject(1, self._text[:80], "not a JSON trace")

    def _fill(self) -> bool:
        """Read one more chunk; False when there is none."""
        if self._ended:
            return False
        data = self._read()
        self._ended = not data
        self._text = self._text[self._at :] + self._decode_bytes(data, self._ended)
        self._at = 0
        return not self._ended

    def _read(self) -> bytes:
        """The next chunk, less where the file ends or is damaged; damage is counted when it is met."""
        parts: list[bytes] = []
        missing = 0 if self._spoilt else self._chunk
        while missing > 0:
            try:
                part = self._raw.read1(missing)
            except DAMAGED:
                self._spoilt = True
                self._tally.lines += 1
                self._tally.reject(self.line, "", DAMAGE)
                break
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _move(self, to: int) -> None:
        self.line += self._text.count("\n", self._at, to)
        self._at = to

    def _peek(self) -> str:
        """The next character that is neither space nor comma; empty at the end."""
        while True:
            gap = _GAP.match(self._text, self._at)
            self._move(gap.end() if gap else self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _value(self) -> Any:
        """The JSON value at the present place; ValueError where there is damage."""
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except (ValueError, RecursionError):
                if len(self._text) - self._at < LONGEST_EVENT and self._fill():
                    continue
                raise ValueError from None
            # A number at the end of the chunk may go on in the next.
            if end == len(self._text) and not isinstance(value, (dict, list, str)) and self._fill():
                continue
            self._move(end)
            return value

    def _members(self) -> Iterator[list[Any]]:
        """The top-level object: the list of events and what stands before and after it."""
        while (char := self._peek()) not in ("", "}"):
            try:
                if char != '"':
                    raise ValueError
                key = self._value()
                if self._peek() != ":":
                    raise ValueError
                self._at += 1
                if key == "traceEvents" and self._peek() == "[":
                    self._at += 1
                    yield from self._events()
                    continue
                self._peek()
                value = self._value()
            except ValueError:
                if not self._skip_to(_LIST, "damage beside the list of events"):
                    return
                self._move(self._text.index("[", self._at) + 1)
                yield from self._events()
                continue
            if key in _KEPT:
                self.header[key] = value

    def _events(self) -> Iterator[list[Any]]:
        singly = _SINGLY
        while True:
            char = self._peek()
            if char == "]":
                self._at += 1
                return
            if char == "":
                self._tally.lines += 1
                self._tally.reject(self.line, "", "the trace ends inside its list of events")
                return
            batch = None if singly else self._run()
            if batch is not None:
                yield batch
                continue
            singly = singly - 1 if singly else _SINGLY
            begin = self._text[self._at : self._at + 80]
            line = self.line
            self._batch, self._batch_lines = ("", line), [line]
            try:
                value = self._value()
            except ValueError:
                self._tally.lines += 1
                if self._ended and not _EVENT.search(self._text, self._at + 1):
                    self._move(len(self._text))
                    self._tally.reject(line, begin, "the trace ends inside an event")
                    return
                self._tally.reject(line, begin, "not readable as an event")
                if not self._skip_to(_EVENT, None):
                    return
                continue
            if self._separator is None and isinstance(value, dict):
                found = _SEPARATOR.match(self._text, self._at)
                self._separator = "}" + found.group() if found else None
            yield [value]

    def _run(self) -> list[Any] | None:
        """All whole events of this chunk at once, or None where they must be taken singly."""
        if self._separator is None:
            return None
        cut = self._text.rfind(self._separator, self._at)
        if cut < 0 and self._fill():
            cut = self._text.rfind(self._separator, self._at)
        if cut < 0:
            return None
        try:
            # Cut inside a string or a nested list, the text has an open quote or bracket and does not parse.
            text = self._text[self._at : cut + 1]
            batch = json.loads(f"[{text}]", strict=False)
        except (ValueError, RecursionError):
            return None
        self._batch, self._batch_lines = (text, self.line), None
        self._move(cut + 1)
        return list(batch)

    def _skip_to(self, pattern: re.Pattern[str], reason: str | None) -> bool:
        """Go to the next match after this place; False when there is none."""
        if reason is not None:
            self._tally.lines += 1
            self._tally.reject(self.line, self._text[self._at : self._at + 80], reason)
        self._move(min(self._at + 1, len(self._text)))
        while True:
            found = pattern.search(self._text, self._at)
            if found:
                self._move(found.start())
                return True
            self._move(max(self._at, len(self._text) - 64))  # a match may straddle the chunks
            if not self._fill():
                self._move(len(self._text))
                return False
