"""Tables of the communication benchmarks written in PyTorch.

- DeepSpeed (`ds_bench`, and its descendants): "---- Performance of all_reduce on 16 devices ----", then rows of
  size, description, duration and bandwidths. An all-gather's size is one rank's input there.
- IBM pytorch-communication-benchmarks: `size(MB) avgbw(GB/sec) maxbw minbw`, decimal megabytes and bus bandwidth.
- Markdown bandwidth tables (`| payload | busbw | algbw |`) of the all-reduce benchmark in common use.
- PARAM comms: `COMMS-RES-all_reduce-float32 size nElements p50 p75 p95 Min Max AlgBW BusBW`, microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from perfmodel.readings.source import Tally, binary_size, number, numbered_lines, without_launcher
from perfmodel.readings.sweeps import Sweep, SweepLog, absurd, bus_factor, canonical_op, make_sweep

_DEEPSPEED = re.compile(r"^-{2,}\s*Performance of (\S+) on (\d{1,7}) devices", re.IGNORECASE)
_IBM = re.compile(r"size\s*\(MB\)\s+avgbw\s*\(GB/sec\)", re.IGNORECASE)
_MARKDOWN = re.compile(r"^\|\s*payload\s*\|(.*)\|$", re.IGNORECASE)
_AVERAGE = re.compile(r"bandwidth of (\S+) over (\d{1,7}) ranks", re.IGNORECASE)
_PARAM = re.compile(r"COMMS-RES-([A-Za-z_]+?)-(\w+)\s+(\d.*)$")
_SCRIPT = re.compile(r"\b(allreduce|allgather|reduce-scatter)-(?:loop|stats)\b")
_LAUNCH = re.compile(r"(?:-np|-n|--nproc[_-]per[_-]node|--ntasks|world[_ ]size)[ =:]+(\d{1,7})\b")
_DURATION = re.compile(r"([\d.,]+)\s*(us|ms|s)?")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

Point = tuple[float, float]  # whole-vector bytes, seconds


@dataclass
class _Table:
    op: str | None = None
    ranks: int | None = None
    parse: Callable[[str, _Table], Point | None] | None = None
    raw_us: bool = True
    columns: list[str] = field(default_factory=list)
    points: list[tuple[int, str, Point]] = field(default_factory=list)


def read_comm_tables(path: Path | str, *, op: str | None = None, ranks: int | None = None) -> SweepLog:
    """Read a log of any of these benchmarks; `op` and `ranks` are for tables that do not name them."""
    where = Path(path)
    tally = Tally(where)
    sweeps: list[Sweep] = []
    table = _Table(op=op, ranks=ranks)
    hint_op: str | None = None
    hint_ranks: int | None = None

    def begin(
        parse: Callable[[str, _Table], Point | None] | None, new_op: str | None, new_ranks: int | None
    ) -> _Table:
        sweeps.extend(_finish(table, tally))
        return _Table(op=op or new_op or hint_op, ranks=ranks or new_ranks or hint_ranks, parse=parse)

    for line, raw in numbered_lines(where, tally):
        text = without_launcher(raw).strip()
        if not text:
            continue
        if title := _DEEPSPEED.match(text):
            table = begin(_deepspeed_row, canonical_op(title.group(1)), int(title.group(2)))
        elif table.parse is _deepspeed_row and text.startswith("Size (Bytes)"):
            table.raw_us = "Duration (us)" in text
        elif average := _AVERAGE.search(text):
            hint_op, hint_ranks = canonical_op(average.group(1)), int(average.group(2))
        elif columns := _MARKDOWN.match(text):
            table = begin(_markdown_row, None, None)
            table.columns = [cell.strip().lower() for cell in columns.group(1).split("|")]
        elif _IBM.search(text):
            table = begin(_ibm_row, canonical_op(where.stem.split("-loop")[0]), None)
        elif match := _PARAM.search(text):
            if table.parse is not _param_row or table.op != (op or canonical_op(match.group(1))):
                table = begin(_param_row, canonical_op(match.group(1)), None)
            _add(table, line, raw, match.group(3), tally)
        elif _chatter(text):
            if script := _SCRIPT.search(text):
                hint_op = canonical_op(script.group(1))
            if launch := _LAUNCH.search(text):
                hint_ranks = int(launch.group(1))
        elif table.parse is None:
            tally.reject(line, raw, "not part of a table of results")
        else:
            _add(table, line, raw, text, tally)
    sweeps.extend(_finish(table, tally))
    return tally.finish(SweepLog, sweeps=tuple(sweeps))


def _chatter(text: str) -> bool:
    return bool(
        re.match(r"^[-=+#]{2,}|^#|^\|[\s:|-]+\|$|^NCCL version|^\$|^Environment:|^- \w+:", text)
        or "COMMS-RES" in text
        or _SCRIPT.search(text)
        or _LAUNCH.search(text)
    )


def _add(table: _Table, line: int, raw: str, text: str, tally: Tally) -> None:
    if table.parse is _ibm_row and (table.op is None or table.ranks is None):
        tally.reject(
            line, raw, "bus bandwidth without operation and number of ranks: give --nccl-op and --nccl-ranks"
        )
        return
    point = table.parse(text, table) if table.parse else None
    if point is None or point[0] <= 0.0 or point[1] <= 0.0:
        tally.reject(line, raw, "not a row of size and positive time")
        return
    if why := absurd(point[0], point[1]):
        tally.reject(line, raw, why)
        return
    tally.used += 1
    table.points.append((line, raw, point))


def _finish(table: _Table, tally: Tally) -> list[Sweep]:
    if not table.points:
        return []
    op, ranks = table.op, 2 if table.op == "send_recv" else table.ranks
    if op is None or ranks is None:
        missing = (
            "operation is not named: give --nccl-op"
            if op is None
            else "number of ranks is not named: give --nccl-ranks"
        )
        for line, text, _ in table.points:
            tally.used -= 1
            tally.reject(line, text, f"the {missing}")
        return []
    return [make_sweep(op, ranks, [point for _, _, point in table.points], line=table.points[0][0])]


def _deepspeed_row(text: str, table: _Table) -> Point | None:
    # "64.0 KB   16384x4   105.3 us   9.9   4.9": the description NxM parts the size from the duration.
    match = re.match(r"^([\d.,]+\s*[KMGT]?B?)\s+(\d{1,15})x(\d{1,15})\s+(.*)$", text)
    if match is None:
        return None
    duration = _DURATION.match(match.group(4))
    value = number(duration.group(1)) if duration else None
    if duration is None or value is None:
        return None
    # The description counts exactly what the size rounds.
    size = float(int(match.group(2)) * int(match.group(3)))
    if table.op == "all_gather" and table.ranks:
        size *= table.ranks
    unit = duration.group(2) or ("us" if table.raw_us else None)
    return None if unit is None else (size, value * _SECONDS[unit])


def _ibm_row(text: str, table: _Table) -> Point | None:
    words = [number(word) for word in text.split()]
    if len(words) < 4 or words[0] is None or not words[1] or table.op is None or table.ranks is None:
        return None
    size = words[0] * 1e6
    return size, size * bus_factor(table.op, table.ranks) / (words[1] * 1e9)


def _markdown_row(text: str, table: _Table) -> Point | None:
    cells = [cell.strip() for cell in text.strip("|").split("|")]
    if len(cells) != len(table.columns) + 1:
        return None
    values = dict(zip(table.columns, cells[1:], strict=True))
    size, rate = binary_size(cells[0]), number(re.sub(r"[A-Za-z/ ]+$", "", values.get("algbw", "")))
    if rate is None and table.op and table.ranks:
        bus = number(re.sub(r"[A-Za-z/ ]+$", "", values.get("busbw", "")))
        rate = None if bus is None else bus / bus_factor(table.op, table.ranks)
    return None if size is None or not rate else (size, size / (rate * 1e9))


def _param_row(text: str, table: _Table) -> Point | None:
    values = [number(word) for word in text.split()]
    size = values[0]
    if size is None or any(value is None for value in values):
        return None
    if len(values) >= 9:  # size, elements, p50, p75, p95, min, max, algbw, busbw
        return size, float(values[2] or 0.0) * 1e-6
    if len(values) == 3 and values[1]:  # size, algbw, busbw
        return size, size / (values[1] * 1e9)
    return None
