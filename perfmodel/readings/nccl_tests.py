"""nccl-tests and rccl-tests text output: every collective, in and out of place, several runs in one log.

A run begins with its banner (`# nThread ...`) or its table header; the operation comes from the banner, from a
command line in the log, from the file's name or, where the numbers settle it, from bus over algorithm
bandwidth. Sizes are whole-vector bytes, as nccl-tests counts them; times are microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from perfmodel.readings.source import Tally, number, numbered_lines, without_launcher
from perfmodel.readings.sweeps import Sweep, SweepLog, absurd, bus_factor, canonical_op, make_sweep

_OP = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|reduce|gather|scatter|send_?recv)v?_perf\b"
)
_RANK = re.compile(
    r"^#\s*Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?Pid\s+\S+\s+on\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\]\s*)?(.*)$"
)
_BANNER = re.compile(r"^#\s*nThreads?:?\s+\d+")
_ALGORITHM = re.compile(r"\bNCCL_ALGO=(\S+)")
_WARNING = re.compile(
    r"NCCL WARN|\bWARN(?:ING)?\b|Test (?:NCCL|CUDA|HIP) failure|out of memory", re.IGNORECASE
)
_CHATTER = re.compile(
    r"NCCL (?:INFO|version)|RCCL version|rccl-tests|^\s*[$>]|_perf\b|mpirun|srun|slurm|^[-=+*]{3,}",
    re.IGNORECASE,
)
_GROUP = 4  # columns of one measurement: time, algorithm and bus bandwidth, errors
_COLUMNS_BEFORE_TIME = 5  # size, count, type, redop, root


@dataclass
class _Run:
    """One table while it is being read."""

    op: str | None = None
    nodes: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    device: str | None = None
    algorithm: str | None = None
    columns: list[str] | None = None
    rows: list[_Row] = field(default_factory=list)


@dataclass(frozen=True)
class _Row:
    line: int
    text: str
    size: float
    dtype: str
    redop: str
    groups: tuple[tuple[float, float, float], ...]  # (time us, algbw, busbw), out of place then in place


def read_nccl_tests(path: Path | str, *, op: str | None = None, ranks: int | None = None) -> SweepLog:
    """Read a log. `op` and `ranks` are for logs that name neither the test nor its devices."""
    where = Path(path)
    tally = Tally(where)
    sweeps: list[Sweep] = []
    warnings: list[str] = []
    run = _Run()
    named: str | None = None  # the operation of the last command line or banner
    forced: str | None = None  # NCCL_ALGO of the last command line

    def close() -> None:
        sweeps.extend(_sweeps(run, tally, op or run.op or _op_of(where.stem), ranks))

    for line, raw in numbered_lines(where, tally):
        text = without_launcher(raw).strip()
        if not text:
            continue
        found = _OP.search(text)
        if found and not text.startswith("# Collective test concluded"):
            named = canonical_op(found.group(1))
        if (algorithm := _ALGORITHM.search(text)) or (found and not text.startswith("#")):
            forced = algorithm.group(1) if algorithm else None
        if _BANNER.match(text) or text.startswith("# Collective test starting"):
            if run.rows or run.ranks:
                close()
                run = _Run()
            run.op, run.algorithm = named, forced
        elif device := _RANK.match(text):
            if run.rows:
                close()
                run = _Run(op=named, algorithm=forced)
            run.ranks.add(int(device.group(1)))
            run.nodes.add(device.group(2))
            run.device = device.group(3).strip() or None
        elif text.startswith("#"):
            words = text.lstrip("# ").split()
            if words[:2] == ["size", "count"] and "time" in words:
                if run.rows:
                    close()
                    run = _Run(named, run.nodes, run.ranks, run.device, forced)
                run.columns = words
                run.op = run.op or named
        elif text[0].isdigit() and (row := _row(line, raw, text, run.columns, tally)) is not None:
            run.rows.append(row)
        elif text[0].isdigit():
            continue
        elif _WARNING.search(text):
            warnings.append(f"{line}: {text[:160]}")
        elif not _CHATTER.search(text):
            tally.reject(line, raw, "not a line of nccl-tests")
    close()
    return tally.finish(SweepLog, sweeps=tuple(sweeps), warnings=tuple(warnings))


def _op_of(name: str) -> str | None:
    match = _OP.search(
        name if name.endswith("_perf") else re.sub(r"[^a-zA-Z]+", "_", name).strip("_") + "_perf"
    )
    return canonical_op(match.group(1)) if match else None


def _row(line: int, raw: str, text: str, columns: list[str] | None, tally: Tally) -> _Row | None:
    words = text.split()
    size = number(words[0])
    first = columns.index("time") if columns else _first_time(words)
    if size is None or first is None or len(words) < 3:
        tally.reject(line, raw, "not a row of results")
        return None
    width = _group_width(columns, first)
    if width < _GROUP:
        tally.reject(
            line, raw, "the header above it is damaged: it does not name time, algbw, busbw and errors"
        )
        return None
    expected = len(columns) if columns else first + (len(words) - first) // width * width
    if len(words) < expected or (len(words) - first) < width:
        tally.reject(line, raw, f"the row has {len(words)} of {max(expected, first + width)} columns")
        return None
    groups = []
    for begin in range(first, expected - width + 1, width):
        time, algbw, busbw = (number(word) for word in words[begin : begin + 3])
        if time is None or algbw is None or busbw is None or time <= 0.0:
            tally.reject(line, raw, "time or bandwidth is not a number above zero")
            return None
        if (wrong := number(words[begin + 3])) is not None and wrong >= 1.0:
            tally.reject(line, raw, f"{wrong:g} wrong elements: the result was not correct")
            return None
        groups.append((time, algbw, busbw))
    if size <= 0.0 or not groups:
        tally.reject(line, raw, "a message of zero bytes")
        return None
    if wrong_units := next((why for time, *_ in groups if (why := absurd(size, time * 1e-6))), None):
        tally.reject(line, raw, wrong_units)
        return None
    redop = words[3] if first >= 4 and number(words[3]) is None else "none"
    tally.used += 1
    return _Row(line, raw, size, words[2], redop, tuple(groups))


def _first_time(words: list[str]) -> int | None:
    # Without a header: size count type [redop [root]] then groups of four numbers.
    for begin in range(_COLUMNS_BEFORE_TIME, 2, -1):
        rest = words[begin:]
        if len(rest) in (_GROUP, 2 * _GROUP) and all(
            number(word) is not None or word == "N/A" for word in rest
        ):
            return begin
    return None


def _group_width(columns: list[str] | None, first: int) -> int:
    if columns is None:
        return _GROUP
    later = [index for index, word in enumerate(columns) if word == "time" and index > first]
    return (later[0] if later else len(columns)) - first


def _sweeps(run: _Run, tally: Tally, op: str | None, ranks: int | None) -> list[Sweep]:
    if not run.rows:
        return []
    count = ranks or len(run.ranks) or None
    op = op or _op_from_numbers(run.rows, count)
    if op is not None and count is None:
        count = _ranks_from_numbers(run.rows, op)
        if count is not None:
            tally.note(f"ranks ({count}) inferred from bus over algorithm bandwidth")
    if op is None or count is None:
        reason = (
            "the operation is not named: give --nccl-op"
            if op is None
            else "the number of ranks is not named: give --nccl-ranks"
        )
        for row in run.rows:
            tally.used -= 1
            tally.reject(row.line, row.text, reason)
        return []
    result = []
    for index, placement in enumerate(("out_of_place", "in_place")):
        points = [(row.size, row.groups[index][0] * 1e-6) for row in run.rows if len(row.groups) > index]
        if points:
            result.append(
                make_sweep(
                    op,
                    count,
                    points,
                    nodes=len(run.nodes) or None,
                    placement=placement,
                    dtype=run.rows[0].dtype,
                    device=run.device,
                    algorithm=run.algorithm,
                    line=run.rows[0].line,
                )
            )
    return result


def _largest_ratio(rows: list[_Row]) -> float | None:
    # Two decimals are printed: only a row with much bandwidth gives a sharp ratio.
    _, algbw, busbw = max((row.groups[0] for row in rows), key=lambda group: group[1])
    return busbw / algbw if algbw >= 1.0 else None


def _op_from_numbers(rows: list[_Row], ranks: int | None) -> str | None:
    """An all-reduce or a reduce-scatter shows in its ratio and reduction; the others look alike."""
    ratio = _largest_ratio(rows)
    if ratio is None or ranks is None or ranks < 2 or rows[0].redop == "none":
        return None
    for op in ("all_reduce", "reduce_scatter"):
        if ranks > 2 and abs(ratio - bus_factor(op, ranks)) < 0.02:
            return op
    return None


def _ranks_from_numbers(rows: list[_Row], op: str) -> int | None:
    """2(n-1)/n or (n-1)/n solved for n, where the printed digits settle it."""
    ratio = _largest_ratio(rows)
    share = None if ratio is None else ratio / 2.0 if op == "all_reduce" else ratio
    if share is None or not 0.45 <= share < 0.99 or op in ("broadcast", "reduce", "send_recv"):
        return None
    ranks = 1.0 / (1.0 - share)
    return round(ranks) if abs(ranks - round(ranks)) < 0.2 else None
