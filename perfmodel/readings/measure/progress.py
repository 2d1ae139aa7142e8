"""A progress bar for people: on a terminal only, on stderr, and never under `--quiet` or in CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def tracked(items: Iterable[T], total: int, title: str, *, quiet: bool = False) -> Iterator[T]:
    """The items, with a bar where somebody is watching."""
    if quiet or os.environ.get("CI") or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=title, total=total, console=Console(stderr=True), transient=True)
