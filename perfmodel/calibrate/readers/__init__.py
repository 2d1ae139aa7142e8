"""Readers of the logs that people already have.

`read_timings`, `read_collectives`, `read_trace` and `read_ranks` recognise the format by themselves and raise
SpecError when a file holds nothing they can use; the modules beside them read one format each and never raise on damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfmodel.calibrate.readers.chrome_trace import read_chrome_trace
from perfmodel.calibrate.readers.comm_tables import read_comm_tables
from perfmodel.calibrate.readers.detect import detect as format_of
from perfmodel.calibrate.readers.detect import timings as timings_text
from perfmodel.calibrate.readers.nccl_tests import read_nccl_tests
from perfmodel.calibrate.readers.nsys_sqlite import read_nsys_sqlite
from perfmodel.calibrate.readers.osu import read_osu
from perfmodel.calibrate.readers.rank_times import RankTimes, read_rank_times
from perfmodel.calibrate.readers.steps import TraceSummary
from perfmodel.calibrate.readers.sweeps import Sweep
from perfmodel.calibrate.readers.timings import Parser, Timings, group_by_k, nothing_found
from perfmodel.errors import Problem, SpecError

__all__ = ["format_of", "read_collectives", "read_ranks", "read_timings", "read_trace"]

_COLLECTIVES = {"nccl-tests": read_nccl_tests, "osu": read_osu, "comm-table": read_comm_tables}


def read_timings(path: Path | str, parse: Parser, preset: str | None = None) -> Timings:
    """Timings by K. `parse` is the study's `parse_timings`, handed in because the study is a layer above."""
    return group_by_k(parse(timings_text(path, preset), str(path)))


def read_collectives(
    path: Path | str, *, op: str | None = None, ranks: int | None = None, placement: str = "out_of_place"
) -> list[Sweep]:
    """The sweeps of a log, of one placement where it has both."""
    kind = format_of(path)
    read = _COLLECTIVES.get(kind)
    if read is None:
        raise SpecError(Problem(str(path), code="R005", message=f"a {kind} file holds no collective sweeps"))
    log = read(path, op=op, ranks=ranks)
    if not log.sweeps:
        raise SpecError(nothing_found(log, "no usable sweep"))
    chosen = [sweep for sweep in log.sweeps if sweep.placement == placement]
    return chosen or list(log.sweeps)


def read_trace(paths: Path | str | Sequence[Path | str]) -> TraceSummary:
    """Steps split into parts, from profiler traces (one file per rank) or one Nsight Systems export."""
    files = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    if not files:
        raise SpecError("no trace was given")
    kinds = {format_of(path) for path in files}
    if kinds == {"nsys-sqlite"} and len(files) == 1:
        summary = read_nsys_sqlite(files[0])
    elif kinds == {"chrome-trace"}:
        summary = read_chrome_trace(files)
    else:
        raise SpecError(
            Problem(
                str(files[0]),
                code="R005",
                message=f"not the traces of one run: {', '.join(sorted(kinds))}",
                help="give Chrome traces, one per rank, or one Nsight Systems export",
            )
        )
    if not summary.ranks:
        raise SpecError(nothing_found(summary, "no steps"))
    return summary


def read_ranks(path: Path | str) -> RankTimes:
    """Per-rank step times."""
    found = read_rank_times(path)
    if found.time_s.size == 0:
        raise SpecError(nothing_found(found, "no step times of ranks"))
    return found
