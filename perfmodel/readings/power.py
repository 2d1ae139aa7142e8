"""Power logs: energy of each device from samples over time.

Read are `nvidia-smi --query-gpu=timestamp,index,power.draw --format=csv[,noheader][,nounits] -l 1`, DCGM tables in CSV
(a column of times, one of device ids, one named `DCGM_FI_DEV_POWER_USAGE` or `power...`) and the plain text of
`dcgmi dmon -e 155` (no times: the caller gives the interval). Energy is the trapezoid of power over time; gaps
longer than ten median intervals are left out and said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.readings.source import Reading, Tally, csv_cells, number, numbered_lines

LONGEST_GAP = 10.0  # median intervals
LARGEST_W = 1e6  # one device: beyond it a reading is damaged
LATEST_S = 1e11  # year 5138: likewise
_POWER = re.compile(
    r"(?i)power(?:\.draw)?(?:\.average|\.instant)?(?:_usage|_watts)?\b|DCGM_FI_DEV_POWER_USAGE|^watts?$"
)
_NOT_POWER = re.compile(r"(?i)limit|cap|state|management|violation")
_TIME = re.compile(r"(?i)^(?:timestamp|time|date|datetime|ts|time_s|unix_?time)\b")
_DEVICE = re.compile(r"(?i)^(?:index|gpu|gpu_?id|device|id|uuid|pci\.bus_id|entity|gpu_index)\b")
_DMON = re.compile(r"^GPU(?:-I)?\s+(\d+)\s+(\S+)")
_FORMATS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True)
class DevicePower:
    """One device's samples: times from the log's first [s], power [W], and their energy [J]."""

    device: str
    time_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    energy_j: float
    mean_w: float


@dataclass(frozen=True, kw_only=True)
class PowerLog(Reading):
    """All devices of one log."""

    devices: tuple[DevicePower, ...] = ()

    def energy_j(self) -> float:
        """Energy of all devices [J]."""
        return sum(device.energy_j for device in self.devices)

    def mean_w(self) -> float:
        """Sum of the devices' mean power [W]."""
        return sum(device.mean_w for device in self.devices)


def read_power(path: Path | str, *, interval_s: float | None = None) -> PowerLog:
    """Read a power log. `interval_s` is for logs that print no times."""
    where = Path(path)
    tally = Tally(where)
    samples: dict[str, list[tuple[float, float]]] = {}
    columns: tuple[int | None, int | None, int] | None = None  # time, device, power
    for line, text in numbered_lines(where, tally):
        if not text.strip() or text.startswith("#") or text.split()[0] == "ID":
            continue
        if dmon := _DMON.match(text):
            _take_dmon(dmon.group(1), dmon.group(2), line, text, samples, interval_s, tally)
            continue
        cells = csv_cells(text)
        header = _header(cells)
        if header is not None:
            columns = header
            continue
        columns = columns or _guess(cells)
        reason = "not a row of a power log" if columns is None else _take(cells, columns, samples, interval_s)
        if reason is None:
            tally.used += 1
        else:
            tally.reject(line, text, reason)
    devices = [_device(name, points, tally) for name, points in sorted(samples.items(), key=_by_number)]
    return tally.finish(PowerLog, devices=tuple(devices))


def _by_number(item: tuple[str, object]) -> tuple[int, str]:
    name = item[0]
    return (int(name) if name.isdecimal() and len(name) < 10 else 1 << 30, name)


def _header(cells: list[str]) -> tuple[int | None, int | None, int] | None:
    power = [i for i, cell in enumerate(cells) if _POWER.search(cell) and not _NOT_POWER.search(cell)]
    if not power:
        return None
    time = next((i for i, cell in enumerate(cells) if _TIME.match(cell)), None)
    device = next((i for i, cell in enumerate(cells) if _DEVICE.match(cell)), None)
    return time, device, power[0]


def _guess(cells: list[str]) -> tuple[int | None, int | None, int] | None:
    """Columns of a table without header: a time, then perhaps a small whole number, then watts."""
    time = next(
        (i for i, cell in enumerate(cells) if _seconds(cell) is not None and not cell.isdigit()), None
    )
    watts = next((i for i, cell in enumerate(cells) if re.fullmatch(r"[\d.]+\s*W", cell)), None)
    device = next((i for i, cell in enumerate(cells) if cell.isdigit() and i not in (time, watts)), None)
    if watts is None and time is not None:
        watts = next(
            (
                i
                for i, cell in enumerate(cells)
                if i not in (time, device) and "." in cell and number(cell) is not None
            ),
            None,
        )
    return None if watts is None else (time, device, watts)


def _take(
    cells: list[str],
    columns: tuple[int | None, int | None, int],
    samples: dict[str, list[tuple[float, float]]],
    interval_s: float | None,
) -> str | None:
    time_at, device_at, power_at = columns
    if len(cells) <= max(index for index in columns if index is not None):
        return "the row has too few columns"
    watts = number(re.sub(r"\s*W$", "", cells[power_at]))
    if watts is None or not 0.0 <= watts <= LARGEST_W:
        return "power is not a number of watts"
    name = cells[device_at] if device_at is not None else "0"
    if time_at is not None:
        time = _seconds(cells[time_at])
        if time is None or abs(time) > LATEST_S:
            return "the time cannot be read"
    elif interval_s is not None:
        time = len(samples.get(name, ())) * interval_s
    else:
        return "no times in the log: give the sampling interval"
    samples.setdefault(name, []).append((time, watts))
    return None


def _take_dmon(
    name: str,
    value: str,
    line: int,
    text: str,
    samples: dict[str, list[tuple[float, float]]],
    interval_s: float | None,
    tally: Tally,
) -> None:
    watts = number(value)
    if watts is None or not 0.0 <= watts <= LARGEST_W:
        tally.reject(line, text, "power is not a number of watts")
    elif interval_s is None:
        tally.reject(line, text, "no times in the log: give the sampling interval")
    else:
        points = samples.setdefault(name, [])
        points.append((len(points) * interval_s, watts))
        tally.used += 1


def _seconds(text: str) -> float | None:
    """Seconds of a time stamp, of a Unix time (also in ms, us or ns) or of a plain number of seconds."""
    for form in _FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    value = number(text)
    if value is None:
        try:
            return datetime.fromisoformat(text).astimezone(UTC).timestamp()
        except (ValueError, OverflowError):
            return None
    for scale in (1e9, 1e6, 1e3):  # Unix times of this century lie between 1e9 and 1e10 seconds
        if value > 1e9 * scale:
            return value / scale
    return value


def _device(name: str, points: list[tuple[float, float]], tally: Tally) -> DevicePower:
    points.sort()
    time = np.array([t for t, _ in points], np.float64)
    power = np.array([w for _, w in points], np.float64)
    steps = np.diff(time)
    positive = steps[steps > 0.0]
    covered = (steps > 0.0) & (steps <= LONGEST_GAP * (np.median(positive) if positive.size else 0.0))
    length = float(steps[covered].sum())
    energy = float((steps * (power[1:] + power[:-1]) / 2.0)[covered].sum())
    gap = float(steps[~covered].sum())
    if gap > 0.0:
        tally.note(f"device {name}: {gap:.3g} s without samples are not in its energy")
    mean = energy / length if length > 0.0 else float(power.mean())
    return DevicePower(name, time - time[0], power, energy, mean)
