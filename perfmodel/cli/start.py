"""Where a command begins: Ctrl-C and SIGTERM are heard before anything heavy is imported, and until the process ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from types import FrameType

INTERRUPTED = 130  # as in `errors`, whose import would take the time that this module is to save
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main() -> int:
    """Run the command line; `interruptible` takes the signals over while a verb works, and hands them back here."""
    # A caller that ignores a signal (nohup, a shell's background job) goes on ignoring it.
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    atexit.register(_finish)  # what is registered first runs last
    from perfmodel.cli import main as command

    return command.main()


def _end(number: int, frame: FrameType | None) -> None:
    """Nothing has been begun, or everything is written: there is nothing to undo, and no import to break off."""
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _finish() -> None:
    """The command has ended. The interpreter takes its handlers away before it ends: a signal then must not change the code."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
