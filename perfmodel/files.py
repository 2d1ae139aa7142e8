"""Whole files that somebody named: reading them, the JSON in them, and writing them in one piece."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfmodel.errors import Problem, SpecError

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


def parse_json(text: str, file: str | None, code: str) -> Any:
    """The value of a JSON text; a SpecError with the line and column where it is none.

    Python reads neither deep nesting nor integers of more than some 4,300 digits: both are refused like bad syntax.

    >>> parse_json("[1, 2]", "a.json", "R004")
    [1, 2]
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        lines = text.split("\n")
        snippet = lines[error.lineno - 1] if error.lineno <= len(lines) else None
        found = Problem(file, error.lineno, error.colno, code, f"not valid JSON: {error.msg}", snippet)
    except RecursionError:
        found = Problem(file, 1 if file else None, None, code, "not valid JSON: nested too deeply")
    except ValueError:
        found = Problem(file, 1 if file else None, None, code, "a number has too many digits to be read")
    raise SpecError(found)


@contextlib.contextmanager
def csv_faults(file: str, code: str) -> Iterator[None]:
    """Turn what Python's csv refuses (a bare carriage return, a cell without end) into a SpecError.

    >>> with csv_faults("t.csv", "R004"):
    ...     list(csv.reader(["a\rb"]))
    Traceback (most recent call last):
        ...
    perfmodel.errors.SpecError: t.csv: error[R004]: not readable as CSV: new-line character seen in unquoted field
      help: a quote may be left open, or lines end in a bare carriage return
    """
    try:
        yield
    except csv.Error as error:
        raise SpecError(
            Problem(
                file,
                code=code,
                message=f"not readable as CSV: {str(error).partition(' - ')[0]}",
                help="a quote may be left open, or lines end in a bare carriage return",
            )
        ) from None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside and rename it: an interruption or a full disk leaves the old one as it was.

    A device, a pipe, or a file in a folder that takes no new ones is written in place. A link stays a link.
    """
    target = path.resolve()
    is_plain = not target.exists() or target.is_file()
    if not is_plain or not os.access(target.parent, os.W_OK):
        path.write_bytes(data)
        return
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".new", dir=target.parent)
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        beside.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The mask of new files; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Let one process at a time read and rewrite the files of a folder; others wait.

    Where the system has no such locks (Windows, some network file systems) nothing is held.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


LINE = 110  # characters of a line of JSON that people read


def pretty_json(value: object, indent: int = 0, *, sort_below: int | None = None) -> str:
    """JSON with one line for whatever fits one, so that a change of a number is a change of a line.

    `sort_below`: mappings that stand deeper than so many columns have their keys in order; the others stay as they are.

    >>> print(pretty_json({"b": [1, 2], "a": {"long": ["x" * 60, "y" * 60]}}))
    {
      "b": [1, 2],
      "a": {
        "long": [
          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
          "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
        ]
      }
    }
    """
    flat = json.dumps(value, sort_keys=sort_below is not None, ensure_ascii=False, allow_nan=False)
    if len(flat) + indent <= LINE or not isinstance(value, (dict, list)) or not value:
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        keys = sorted(value) if sort_below is not None and indent > sort_below else list(value)
        inner = [
            f"{json.dumps(key, ensure_ascii=False)}: {pretty_json(value[key], indent + 2, sort_below=sort_below)}"
            for key in keys
        ]
        return "{\n" + ",\n".join(pad + item for item in inner) + "\n" + " " * indent + "}"
    inner = [pretty_json(item, indent + 2, sort_below=sort_below) for item in value]
    return "[\n" + ",\n".join(pad + item for item in inner) + "\n" + " " * indent + "]"
