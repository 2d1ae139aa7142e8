"""What Ctrl-C and a request to end (SIGTERM) do: exit code 130 within a second, whatever the process is doing."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from perfmodel.errors import EXIT_INTERRUPTED

GRACE_S = 0.6  # from the signal until the process ends without waiting for what still runs
# These stop what they started in their own time: a server its requests, a measurement the processes of its ranks.
_OWN_TIME = ("serve", "measure")


class Interrupted(KeyboardInterrupt):
    """Raised in place of KeyboardInterrupt itself, which makes CPython end with a signal and not with our exit code
    when it passes through code that was compiled from text (as imports of named tuples are), even if it is caught."""


@contextlib.contextmanager
def interruptible(verb: str | None) -> Iterator[None]:
    """Turn both signals into KeyboardInterrupt, and end the process if that is not heard in time.

    A long call into compiled code, or a pool that waits for its workers, may hold the exception back. Files are
    written beside and renamed, so an abrupt end leaves the old ones whole.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False
    report = sys.unraisablehook

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True
        raise Interrupted

    # A caller that ignores a signal (nohup, a shell's background job) goes on ignoring it.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    changed = [number for number in before if before[number] is not signal.SIG_IGN]
    # Raised inside a destructor or a callback of a weak reference the exception goes no further: no reason for words.
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, Interrupted) else report(lost)
    with _deadline() if verb not in _OWN_TIME else contextlib.nullcontext():
        for number in changed:
            signal.signal(number, stop)
        try:
            yield
            if heard:
                raise Interrupted
        finally:
            sys.unraisablehook = report
            for number in changed:
                signal.signal(number, before[number])


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    """End the process GRACE_S after a signal, unless the block is left before.

    Python runs a signal's handler in the main thread between two of its instructions, which a long call delays. The
    interpreter writes the number of the signal to a descriptor at once, and a thread of our own waits for that.
    """
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    left = threading.Event()

    def wait() -> None:
        if os.read(receiver, 1) and not left.wait(GRACE_S):
            _end()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    before = signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(before)
        os.close(sender)
        waiter.join()
        os.close(receiver)


# A signal to a worker (a pool ends its workers with one) is no signal to its parent, whose descriptor it inherits.
os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


def _end() -> None:
    """End this process and the workers that it started."""
    # Nothing may be imported here: the signal may have come in the middle of an import, with its lock held.
    processes = sys.modules.get("multiprocessing")
    for child in processes.active_children() if processes is not None else ():
        child.kill()
    # Their semaphores have names that outlive them: unlinked here, or a tracker of Python's complains of each.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        with contextlib.suppress(Exception):
            util._run_finalizers(0)
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)
