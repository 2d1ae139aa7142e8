"""Reading whole files that somebody named."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# What the shell hands over open: `... | perfmodel predict /dev/stdin`, `perfmodel predict <(...)`.
_HANDED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The bytes of a file, or its first `most`.

    A named pipe waits for a writer who may never come, and a device has no end: OSError says so at once.
    """
    mode = path.stat().st_mode
    is_plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode)  # a directory says so itself when it is opened
    if not is_plain and not str(path).startswith(_HANDED) and str(path) != os.devnull:
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as file:
        return file.read(most)
