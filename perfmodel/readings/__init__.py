"""Readers of the logs that people already have.

`read_timings`, `read_collectives`, `read_trace`, `read_draws` and `read_ranks` recognise the format by themselves and raise
SpecError when a file holds nothing they can use; the modules beside them read one format each and never raise on damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfmodel.errors import Problem, SpecError
from perfmodel.readings.comm_tables import read_comm_tables
from perfmodel.readings.detect import detect as format_of
from perfmodel.readings.nccl_tests import read_nccl_tests
from perfmodel.readings.osu import read_osu
from perfmodel.readings.power import read_power
from perfmodel.readings.power_draw import Draw, draw_of, merged_draws, power_argument
from perfmodel.readings.rank_times import RankTimes, read_rank_times
from perfmodel.readings.runs import TRACES, is_table
from perfmodel.readings.runs import timings as timings_text
from perfmodel.readings.source import Reading
from perfmodel.readings.steps import TraceSummary, combine
from perfmodel.readings.sweeps import Sweep
from perfmodel.readings.timings import Parser, Timings, group_by_k, nothing_found

__all__ = ["format_of", "read_collectives", "read_draws", "read_ranks", "read_timings", "read_trace"]

_COLLECTIVES = {"nccl-tests": read_nccl_tests, "osu": read_osu, "comm-table": read_comm_tables}


def read_timings(
    path: Path | str,
    parse: Parser,
    preset: str | None = None,
    *,
    pattern: str | None = None,
    readings: list[Reading] | None = None,
) -> Timings:
    """Timings by K. `parse` is the study's `parse_timings`, handed in because the study is a layer above."""
    table = parse(timings_text(path, preset, pattern=pattern, readings=readings), str(path))
    return group_by_k(table, written=is_table(Path(path), preset, pattern))


def read_collectives(
    path: Path | str,
    *,
    op: str | None = None,
    ranks: int | None = None,
    placement: str = "out_of_place",
    readings: list[Reading] | None = None,
) -> list[Sweep]:
    """The sweeps of a log, of one placement where it has both."""
    kind = format_of(path)
    read = _COLLECTIVES.get(kind)
    if read is None:
        raise SpecError(Problem(str(path), code="R005", message=f"a {kind} file holds no collective sweeps"))
    log = read(path, op=op, ranks=ranks)
    if readings is not None:
        readings.append(log)
    if not log.sweeps:
        raise SpecError(nothing_found(log, "no usable sweep"))
    chosen = [sweep for sweep in log.sweeps if sweep.placement == placement]
    return chosen or list(log.sweeps)


def read_trace(
    paths: Path | str | Sequence[Path | str], *, readings: list[Reading] | None = None
) -> TraceSummary:
    """Steps split into parts, from the traces of one run: profiler traces, a Ray timeline or Nsight Systems exports."""
    files = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    if not files:
        raise SpecError("no trace was given")
    kinds = {format_of(path) for path in files}
    if len(kinds) > 1 or not kinds <= set(TRACES):
        raise SpecError(
            Problem(
                str(files[0]),
                code="R005",
                message=f"not the traces of one run: {', '.join(sorted(kinds))}",
                help="give Chrome traces or Nsight Systems exports, one per rank or with many ranks in one",
            )
        )
    read = TRACES[kinds.pop()]
    found = [read(path) for path in files]
    if readings is not None:
        readings += found
    summary = combine(found)
    if not summary.ranks:
        raise SpecError(nothing_found(summary, "no steps"))
    return summary


def read_draws(
    arguments: Sequence[str], *, interval_s: float | None = None, readings: list[Reading] | None = None
) -> list[Draw]:
    """What the accelerators drew at each K, from power logs given as FILE or K=FILE; ascending in K."""
    found: list[Draw] = []
    problems: list[Problem] = []
    for argument in arguments:
        try:
            k, path = power_argument(argument)
            log = read_power(path, interval_s=interval_s)
            if readings is not None:
                readings.append(log)
            found.append(draw_of(log, k))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return merged_draws(found)


def read_ranks(path: Path | str) -> RankTimes:
    """Per-rank step times."""
    found = read_rank_times(path)
    if found.time_s.size == 0:
        raise SpecError(nothing_found(found, "no step times of ranks"))
    return found
