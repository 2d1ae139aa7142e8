"""A regular expression of the user's own: what it must name, and how long it may take on a line."""

from __future__ import annotations

import re
import signal
import threading
from types import FrameType

from perfmodel.errors import UsageError

TIMES = ("time_s", "time_ms", "time_us", "steps_per_s")
GROUPS = ("step", *TIMES, "k", "global_batch", "quality")
LONGEST_SEARCH_S = 5.0
_CODE = "U041"
_EXAMPLE = r"such as step (?P<step>\d+).*?(?P<time_ms>[\d.]+) ms"


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """The expression of `--pattern`, with one group for the time of a step and no unknown ones."""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"--pattern: not a regular expression: {error}", code=_CODE) from None
    times = [name for name in TIMES if name in compiled.groupindex]
    unknown = [name for name in compiled.groupindex if name not in GROUPS]
    if unknown:
        raise UsageError(
            f"--pattern: unknown group {', '.join(unknown)}", code=_CODE, help=f"one of {', '.join(GROUPS)}"
        )
    if not times:
        raise UsageError("--pattern: no group captures the time of a step", code=_CODE, help=_EXAMPLE)
    if len(times) > 1:
        raise UsageError(
            f"--pattern: {' and '.join(times)} both capture the time of a step: keep one", code=_CODE
        )
    return compiled


def search_within(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The match in a line. Nested repeats can take longer than the age of the universe: after a while it is an error.

    The limit needs the alarm of the main thread; where there is none, only the user can stop it.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return pattern.search(text)
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SEARCH_S)
    try:
        return pattern.search(text)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise UsageError(
        f"--pattern: no answer on one line in {LONGEST_SEARCH_S:g} s",
        code=_CODE,
        help="repeats inside repeats, as in (a+)+, try every way to cut a line: write a+",
    )
