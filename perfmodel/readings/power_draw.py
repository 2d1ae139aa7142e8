"""What an accelerator draws while a run is on, from a power log that may begin before it and end after it.

Samples fall into two groups where the log shows both: at rest and at work, told apart by the middle between the log's
5th and 95th percentile. A device's run lasts from its first to its last sample at work, pauses inside included; what
lies outside is idle. A log without contrast is one run from end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfmodel.errors import SpecError, UsageError
from perfmodel.readings.power import LONGEST_GAP, DevicePower, PowerLog
from perfmodel.readings.timings import nothing_found
from perfmodel.readings.train_log import k_of_name

CONTRAST = 1.5  # of the 95th over the 5th percentile, below which a log shows one state only
LEAST_IDLE = 5  # samples


@dataclass(frozen=True)
class Draw:
    """Mean draw of one accelerator during a run on `k` of them [W], and at rest where the log shows it."""

    k: int
    watts: float
    idle_watts: float | None
    devices: int  # that were logged at work
    seconds: float  # logged at work, mean over devices
    samples: int
    source: str
    notes: tuple[str, ...] = ()


def power_argument(text: str) -> tuple[int | None, Path]:
    """`FILE` or `K=FILE`; a file whose own name has the sign is a file.

    >>> power_argument("8=power.csv")[0], power_argument("power_k4.csv")[0]
    (8, None)
    """
    head, sign, rest = text.partition("=")
    if not sign or Path(text).exists():
        return None, Path(text)
    if not head.isdecimal() or not 0 < int(head) < 10**7 or not rest:
        raise UsageError(
            f'--power: cannot read "{text}"', code="U043", help="FILE, or K=FILE such as 8=power.csv"
        )
    return int(head), Path(rest)


def draw_of(log: PowerLog, k: int | None = None) -> Draw:
    """The draw of one run. K is given, read from the file's name, or the number of devices at work."""
    if not log.devices:
        raise SpecError(nothing_found(log, "no samples of power"))
    pooled = np.concatenate([device.power_w for device in log.devices])
    low, high = np.percentile(pooled, [5.0, 95.0])
    contrast = high >= CONTRAST * max(low, 1e-9)
    middle = 0.5 * (low + high) if contrast else -1.0
    busy: list[tuple[float, float, int]] = []  # joules, seconds, samples
    rest: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    for device in log.devices:
        at = np.flatnonzero(device.power_w > middle)
        if not at.size:
            rest.append(device.power_w)
            continue
        run = slice(int(at[0]), int(at[-1]) + 1)
        busy.append((*_energy(device, run), run.stop - run.start))
        rest += [device.power_w[: run.start], device.power_w[run.stop :]]
    chosen = k or k_of_name(Path(log.path).name.split(".")[0]) or len(busy)
    notes = []
    if len(busy) > chosen:
        busy = sorted(busy, key=lambda item: -item[0])[:chosen]
        notes.append(f"more than {chosen} devices were at work: the {chosen} that used most energy count")
    elif len(busy) < chosen:
        notes.append(f"{len(busy)} of {chosen} devices were logged: the others are taken to draw the same")
    idle = np.concatenate(rest) if rest else np.zeros(0)
    joules, seconds = sum(item[0] for item in busy), sum(item[1] for item in busy)
    watts = joules / seconds if seconds > 0.0 else float(np.mean(pooled[pooled > middle]))
    if idle.size:
        notes.append(f"{idle.size} samples at rest before, after or beside the run are not in its draw")
    return Draw(
        k=chosen,
        watts=watts,
        idle_watts=float(np.median(idle)) if idle.size >= LEAST_IDLE else None,
        devices=len(busy),
        seconds=seconds / len(busy),
        samples=sum(item[2] for item in busy),
        source=log.path,
        notes=tuple(notes),
    )


def _energy(device: DevicePower, run: slice) -> tuple[float, float]:
    """Joules and seconds of a device over part of its samples, gaps left out."""
    time, power = device.time_s[run], device.power_w[run]
    steps = np.diff(time)
    usual = np.diff(device.time_s)
    positive = usual[usual > 0.0]
    covered = (steps > 0.0) & (steps <= LONGEST_GAP * (np.median(positive) if positive.size else 0.0))
    return float((steps * (power[1:] + power[:-1]) / 2.0)[covered].sum()), float(steps[covered].sum())


def merged_draws(draws: Sequence[Draw]) -> list[Draw]:
    """One draw for each K: logs of one K (of several nodes, or repeats) count by their devices and time."""
    found = []
    for k in sorted({draw.k for draw in draws}):
        same = [draw for draw in draws if draw.k == k]
        weight = np.array([max(draw.devices * draw.seconds, 1e-9) for draw in same])
        idle = [draw.idle_watts for draw in same if draw.idle_watts is not None]
        found.append(
            Draw(
                k=k,
                watts=float(np.average([draw.watts for draw in same], weights=weight)),
                idle_watts=float(np.median(idle)) if idle else None,
                devices=sum(draw.devices for draw in same),
                seconds=float(np.mean([draw.seconds for draw in same])),
                samples=sum(draw.samples for draw in same),
                source=", ".join(dict.fromkeys(draw.source for draw in same)),
                notes=tuple(note for draw in same for note in draw.notes),
            )
        )
    return found
