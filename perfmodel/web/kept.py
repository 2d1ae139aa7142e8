"""Things worth keeping, up to a size: what was used longest ago goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Kept(Generic[Thing]):
    """A cache with `room` for bytes. One thing may take an eighth of it; a larger one is not kept.

    >>> kept = Kept[str](room=80)
    >>> for name in ("a", "b"):
    ...     kept.put(name, name.upper(), size=10)
    >>> kept.get("a"), kept.get("z"), kept.used
    ('A', None, 20)
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.used = 0
        self._things: OrderedDict[str, tuple[Thing, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Thing | None:
        """What is kept under a key, now the last to go."""
        with self._lock:
            found = self._things.get(key)
            if found is None:
                return None
            self._things.move_to_end(key)
            return found[0]

    def put(self, key: str, thing: Thing, size: int) -> None:
        """Keep a thing of `size` bytes; others go until it fits."""
        with self._lock:
            _, old = self._things.pop(key, (None, 0))
            self.used -= old
            if size > self.room // 8:
                return
            self._things[key] = (thing, size)
            self.used += size
            while self.used > self.room:
                _, (_, gone) = self._things.popitem(last=False)
                self.used -= gone

    def __len__(self) -> int:
        return len(self._things)
