"""Numbers out of a tool's report, each with the place at which it stands; every problem is kept, none raised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import Problem
from perfmodel.readings.load.point import STATISTICS

_LARGEST = 1e15
_MS = 1e-3


@dataclass
class Report:
    """One JSON object of a file. `get` takes keys by their path; `file`, `line` and `where` place it in messages."""

    data: Mapping[str, Any]
    file: str
    line: int | None = None
    where: str = ""
    problems: list[Problem] = field(default_factory=list)

    def has(self, *path: str) -> bool:
        """Whether something stands at this path."""
        return self._at(path) is not None

    def number(self, *path: str, scale: float = 1.0, zero: bool = True) -> float | None:
        """A finite number of at least zero (above it without `zero`) times `scale`; None where nothing stands."""
        value = self._at(path)
        if isinstance(value, str):
            try:
                value = float(value.replace(",", ""))
            except ValueError:
                self.reject(path, f'not a number: "{value}"')
                return None
        if value is None or isinstance(value, bool):
            return None
        if not isinstance(value, (int, float)):
            self.reject(path, "not a number")
            return None
        if math.isnan(value):
            return None  # what tools write where nothing was measured
        if not math.isfinite(value) or value > _LARGEST:
            self.reject(path, f"not a finite number: {value}")
            return None
        if value < 0.0 or (value == 0.0 and not zero):
            self.reject(path, f"must be above zero, got {value:g}")
            return None
        return float(value) * scale

    def rate(self, *path: str) -> float | None:
        """A request rate; infinity (every request at once) and zero are none."""
        value = self._at(path)
        if value is None or (isinstance(value, str) and value.lower() in ("inf", "infinity", "nan")):
            return None
        if isinstance(value, float) and math.isinf(value):
            return None
        return self.number(*path) or None

    def text(self, *path: str) -> str | None:
        """A string, or None."""
        value = self._at(path)
        return value if isinstance(value, str) else None

    def statistics(
        self, names: Mapping[str, Sequence[tuple[str, ...]]], scale: float = _MS
    ) -> dict[str, float]:
        """Statistic -> seconds, from the first of its paths that holds a number above zero."""
        found: dict[str, float] = {}
        for statistic in STATISTICS:
            for path in names.get(statistic, ()):
                value = self.number(*path, scale=scale)
                if value:
                    found[statistic] = value
                    break
        return found

    def reject(self, path: Sequence[str], message: str) -> None:
        """Keep a problem of the value at this path."""
        key = ".".join(part for part in (self.where, *path) if part)
        self.problems.append(Problem(self.file, self.line, None, "R021", f"{key}: {message}"))

    def _at(self, path: Sequence[str]) -> Any:
        value: Any = self.data
        for part in path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(part)
        return value


def ratio(top: float | None, bottom: float | None) -> float | None:
    """A quotient where both are known and the divisor is not zero."""
    return top / bottom if top is not None and bottom else None
