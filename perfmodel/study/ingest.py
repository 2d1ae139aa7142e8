"""One table of timings from whatever the runs left: tables, logs, accounting, traces; energy from power logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perfmodel.errors import Problem, SpecError, UsageError
from perfmodel.files import read_bytes
from perfmodel.readings import read_draws
from perfmodel.readings.accounts import account, notes, rejections
from perfmodel.readings.codecarbon import is_emissions, timings_csv
from perfmodel.readings.power_draw import Draw
from perfmodel.readings.runs import is_log
from perfmodel.readings.runs import timings as timings_of_log
from perfmodel.readings.source import Reading
from perfmodel.study.table import Timings, parse_timings, read_timings


@dataclass(frozen=True)
class Gathered:
    """Timings, and where they come from: what became of every line of every log, and the draws behind the energy."""

    timings: Timings
    readings: tuple[Reading, ...] = ()
    draws: tuple[Draw, ...] = ()

    @property
    def notes(self) -> list[str]:
        """What is remarkable about the files."""
        return [
            *(f"{self.timings.file}: {words}" for words in self.timings.told),
            *notes(self.readings),
            *(f"{draw.source}: {note}" for draw in self.draws for note in draw.notes),
        ]

    def as_json(self) -> dict[str, object]:
        """The part of a result that says what was read and what was not."""
        return {
            "readings": [account(reading) for reading in self.readings],
            "rejected": rejections(self.readings),
            "power": [
                {key: value for key, value in vars(draw).items() if key != "notes"} for draw in self.draws
            ],
            "notes": self.notes,
        }


def gather(
    paths: Sequence[Path | str],
    *,
    preset: str | None = None,
    pattern: str | None = None,
    job_name: str | None = None,
    power: Sequence[str] = (),
    interval_s: float | None = None,
) -> Gathered:
    """Read every file or folder, put the rows together, and add the energy that power logs tell."""
    readings: list[Reading] = []
    tables: list[Timings] = []
    draws: list[Draw] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            tables.append(_table(path, preset, pattern, job_name, readings))
        except UsageError:  # of a flag: the same for every file
            raise
        except SpecError as error:
            problems += error.problems
    try:
        draws = read_draws(power, interval_s=interval_s, readings=readings)
    except SpecError as error:
        problems += error.problems
    if problems:
        raise SpecError(problems)
    timings = tables[0] if len(tables) == 1 else joined(tables)
    return Gathered(with_energy(timings, draws), tuple(readings), tuple(draws))


def _table(
    path: Path | str, preset: str | None, pattern: str | None, job_name: str | None, readings: list[Reading]
) -> Timings:
    is_table = preset is None and pattern is None and Path(path).suffix.lower() == ".csv"
    if is_table and not Path(path).is_dir() and not _is_packed(Path(path)) and not is_log(Path(path)):
        data = _start(Path(path))
        if is_emissions(data):
            return parse_timings(timings_csv(read_bytes(Path(path)), str(path)), str(path))
        return read_timings(path)
    text = timings_of_log(path, preset, pattern=pattern, job_name=job_name, readings=readings)
    return parse_timings(text, str(path))


def _start(path: Path) -> bytes:
    try:
        return read_bytes(path, 4096)
    except OSError:
        return b""


def _is_packed(path: Path) -> bool:
    try:
        return read_bytes(path, 2) == b"\x1f\x8b"
    except OSError:
        return False


def joined(tables: Sequence[Timings]) -> Timings:
    """Rows of several tables one after another; parts stay where every table has them, blank columns are NaN."""
    parts = [name for name in tables[0].parts_s if all(name in table.parts_s for table in tables)]
    optional = dict.fromkeys(name for table in tables for name in table.columns)
    return Timings(
        file=", ".join(table.file for table in tables),
        k=np.concatenate([table.k for table in tables]),
        time_s=np.concatenate([table.time_s for table in tables]),
        parts_s={name: np.concatenate([table.parts_s[name] for table in tables]) for name in parts},
        columns={
            name: np.concatenate([table.columns.get(name, np.full(table.rows, np.nan)) for table in tables])
            for name in optional
        },
        ignored=tuple(dict.fromkeys(name for table in tables for name in table.ignored)),
        told=tuple(dict.fromkeys(words for table in tables for words in table.told)),
        time_from_parts=all(table.time_from_parts for table in tables) and bool(parts),
    )


def with_energy(timings: Timings, draws: Sequence[Draw]) -> Timings:
    """Rows at a logged K get `energy_j` = K times the draw of one accelerator times their time, unless they have it."""
    if not draws:
        return timings
    absent = [draw for draw in draws if not np.any(timings.k == draw.k)]
    if absent:
        measured = ", ".join(f"{k:g}" for k in np.unique(timings.k))
        raise SpecError(
            [
                Problem(
                    draw.source,
                    code="R011",
                    message=f"a power log of K={draw.k}, but the timings are of K={measured}",
                    help="say whose it is with --power K=FILE",
                )
                for draw in absent
            ]
        )
    energy = np.array(timings.columns.get("energy_j", np.full(timings.rows, np.nan)))
    for draw in draws:
        rows = (timings.k == draw.k) & np.isnan(energy)
        energy[rows] = draw.k * draw.watts * timings.time_s[rows]
    return replace(timings, columns={**timings.columns, "energy_j": energy})
