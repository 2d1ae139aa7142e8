"""How a call is timed: warm-up first, enough calls in a row to drown the clock, several repeats, their spread.

Nothing here imports torch. The clock and the synchronisation are arguments, so the rules are tested with a fake clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Clock = Callable[[], float]
Agree = Callable[[float], float]  # one number from every rank -> the largest, known to all

NOISY = 0.10  # relative spread above which a measurement is called noisy


def _nothing() -> None:
    return None


def _alone(value: float) -> float:
    return value


@dataclass(frozen=True)
class Settings:
    """Warm-up ends after `warmup_calls` calls and `warmup_s` seconds; a repeat lasts at least `repeat_s`."""

    warmup_calls: int = 3
    warmup_s: float = 0.05
    repeat_s: float = 0.02
    repeats: int = 7
    most_calls: int = 10_000
    longest_call_s: float = 5.0  # a call that takes longer is given up: emulation, or the wrong size

    @classmethod
    def quick(cls) -> Settings:
        """Rougher and some five times shorter."""
        return cls(warmup_calls=2, warmup_s=0.01, repeat_s=0.005, repeats=5, longest_call_s=1.0)


class TooSlowError(RuntimeError):
    """One call takes longer than the settings allow."""


@dataclass(frozen=True)
class Sample:
    """Time of one call: the repeats' times [s], whose median counts, and how many calls each repeat held."""

    times_s: tuple[float, ...]
    calls: int

    @property
    def time_s(self) -> float:
        """Median of the repeats [s]."""
        return float(np.median(self.times_s))

    @property
    def spread(self) -> float:
        """Relative spread: 1.4826 times the median absolute deviation over the median (a robust deviation)."""
        return spread(self.times_s)


def spread(times_s: Sequence[float]) -> float:
    """Robust relative spread of repeats.

    >>> round(spread([1.0, 1.0, 1.02, 0.98, 9.0]), 4)
    0.0297
    """
    values = np.asarray(times_s, np.float64)
    median = float(np.median(values))
    return float(1.4826 * np.median(np.abs(values - median)) / median)


def time_call(
    call: Callable[[], object],
    settings: Settings,
    *,
    synchronize: Callable[[], object] = _nothing,
    clock: Clock = time.perf_counter,
    agree: Agree = _alone,
) -> Sample:
    """Time `call`. `synchronize` waits for the device (and the other ranks); `agree` takes the slowest rank's number.

    Every rank makes the same number of calls: the count comes from the agreed time of the warm-up.
    """
    begin = clock()
    calls = 0
    elapsed = 0.0
    while calls < settings.warmup_calls or elapsed < settings.warmup_s:
        call()
        synchronize()
        calls += 1
        elapsed = agree(clock() - begin)
        if elapsed > calls * settings.longest_call_s:
            raise TooSlowError(f"one call takes {elapsed / calls:.2g} s")
        if calls >= settings.most_calls:
            break
    # The first warm-up calls may be slow (allocation, compilation); two more tell the steady time.
    begin = clock()
    call()
    call()
    synchronize()
    steady = max(agree((clock() - begin) / 2.0), 1e-9)
    inner = int(min(max(np.ceil(settings.repeat_s / steady), 1), settings.most_calls))
    times = []
    for _ in range(settings.repeats):
        synchronize()
        begin = clock()
        for _ in range(inner):
            call()
        synchronize()
        times.append(agree((clock() - begin) / inner))
    return Sample(tuple(times), inner)
