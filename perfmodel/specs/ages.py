"""How old a dated value is, and when a price is too old to be relied on."""

from __future__ import annotations

import datetime
from typing import Final

STALE_DAYS: Final = 180


def age_days(date: str | None, today: datetime.date) -> int | None:
    """Days since a date given as a day, month or year; the end of the month or year counts.

    >>> age_days("2026-01-01", datetime.date(2026, 1, 31)), age_days("2025", datetime.date(2026, 1, 31))
    (30, 31)
    """
    if not date:
        return None
    parts = [int(part) for part in date.split("-")]
    try:
        if len(parts) == 3:
            day = datetime.date(*parts)
        else:
            year, month = (parts[0], parts[1]) if len(parts) == 2 else (parts[0], 12)
            following = datetime.date(year + month // 12, month % 12 + 1, 1)
            day = following - datetime.timedelta(days=1)
    except ValueError:
        return None
    return max(0, (today - day).days)


def is_stale(date: str | None, today: datetime.date) -> bool:
    """Whether a price of that date is too old to be relied on."""
    age = age_days(date, today)
    return age is not None and age > STALE_DAYS
