"""What `predict` answers in JSON, as far as other verbs read it: each key stands here once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

Numbers = list[float | None]  # aligned with `k`; None where the K cannot run


class KneeAnswer(TypedDict, total=False):
    """A knee by one rule, with the ends of its band."""

    k: int | None
    k_low: int | None
    k_high: int | None
    cause: str | None


class Optimum(TypedDict, total=False):
    """The cheapest K, or the fastest."""

    k: int | None
    k_low: int | None
    k_high: int | None


class PredictionAnswer(TypedDict, total=False):
    """The curve over K; `run` has what the whole run takes, where its length is known."""

    k: list[int]
    time_s: Numbers
    time_s_low: Numbers
    time_s_high: Numbers
    memory_bytes: Numbers
    parts_s: Mapping[str, Numbers]
    reason: list[str | None]
    layout: list[Mapping[str, object] | str | None]
    knee: Mapping[str, KneeAnswer]
    p_star: Optimum | None
    fastest: Optimum | None
    run: Mapping[str, Numbers] | None
