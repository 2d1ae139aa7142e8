"""OSU micro-benchmarks: collective latency and point-to-point latency or bandwidth tables.

OSU counts bytes per rank (all-gather, gather, scatter) or per pair (all-to-all); here they become the whole
vector. Latency is in microseconds, bandwidth in MB/s (1e6). The tables do not say how many ranks ran: that comes
from a launch line in the log (`mpirun -np 16`, `srun -n 16`) or from the caller.
"""

from __future__ import annotations

import re
from pathlib import Path

from perfmodel.readings.source import Tally, number, numbered_lines, without_launcher
from perfmodel.readings.sweeps import Sweep, SweepLog, absurd, canonical_op, make_sweep

_TITLE = re.compile(
    r"^#?\s{0,9}OSU\s{1,9}(?:MPI|NCCL|RCCL|SHMEM|UPC|xCCL)?\S*\s{1,9}(\S.{0,80}?)\s{1,9}(?:Test|Latency Test|Benchmark)",
    re.IGNORECASE,
)
_PER_RANK = ("all_gather", "gather", "scatter", "all_to_all")  # sizes that OSU prints per rank or per pair
_LAUNCH = re.compile(
    r"\b(?:mpirun|mpiexec|srun|jsrun|mpirun_rsh|ibrun)\b.*?\s-{1,2}(?:np|n|ntasks)[ =](\d{1,7})\b"
)


def read_osu(path: Path | str, *, op: str | None = None, ranks: int | None = None) -> SweepLog:
    """Read one log with one or many OSU tables."""
    where = Path(path)
    tally = Tally(where)
    sweeps: list[Sweep] = []
    rows: list[tuple[int, str, float, float]] = []  # line, text, printed bytes, seconds
    current: str | None = None
    kind = "latency"
    launched: int | None = None

    def close() -> None:
        sweep = _sweep(
            rows, current or op or canonical_op(where.stem.removeprefix("osu_")), ranks or launched, tally
        )
        if sweep is not None:
            sweeps.append(sweep)
        rows.clear()

    for line, raw in numbered_lines(where, tally):
        text = without_launcher(raw).strip()
        if not text:
            continue
        if launch := _LAUNCH.search(text):
            launched = int(launch.group(1))
        elif title := _TITLE.match(text):
            close()
            current, kind = _kind(title.group(1))
        elif text.startswith("#") or text.lower().startswith("size "):
            if "Bandwidth" in text or "MB/s" in text:
                kind = "bandwidth"
        elif text[0].isdigit():
            words = text.split()
            size, value = number(words[0]), number(words[1]) if len(words) > 1 else None
            if size is None or value is None or value <= 0.0 or size <= 0.0:
                tally.reject(line, raw, "not a row of size and positive time")
                continue
            time = value * 1e-6 if kind == "latency" else size / (value * 1e6)
            if why := absurd(size, time):
                tally.reject(line, raw, why)
            else:
                rows.append((line, raw, size, time))
                tally.used += 1
        else:
            tally.reject(line, raw, "not a line of OSU micro-benchmarks")
    close()
    return tally.finish(SweepLog, sweeps=tuple(sweeps))


def _kind(title: str) -> tuple[str | None, str]:
    """The operation and what its second column is, from the words of a table's title."""
    name = re.sub(r"(?i)\b(latency|personalized exchange|non-blocking|persistent)\b", "", title)
    op = canonical_op(name)
    if op is not None:
        return op, "latency"
    plain = title.lower()
    if "bandwidth" in plain:
        # A bidirectional figure counts both directions, a message rate many pairs: neither is one transfer.
        return ("send_recv" if plain.startswith("bandwidth") else None), "bandwidth"
    return ("send_recv" if not name.strip() or "multi" not in plain else None), "latency"


def _sweep(
    rows: list[tuple[int, str, float, float]], op: str | None, ranks: int | None, tally: Tally
) -> Sweep | None:
    if not rows:
        return None
    count = 2 if op == "send_recv" else ranks
    if op is None or count is None:
        reason = (
            "the operation is not named or not one that can be used"
            if op is None
            else "the number of ranks is not named: give --nccl-ranks"
        )
        for line, text, _, _ in rows:
            tally.used -= 1
            tally.reject(line, text, reason)
        return None
    scale = count if op in _PER_RANK else 1
    if scale > 1:
        tally.note(f"{op}: OSU's bytes per rank times {count} ranks give the whole vector")
    return make_sweep(op, count, [(size * scale, time) for _, _, size, time in rows], line=rows[0][0])
