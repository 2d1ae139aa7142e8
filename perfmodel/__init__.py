"""Predict how a distributed training job scales before renting the hardware."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfmodel.results.envelope import Result, __version__

__all__ = ["Result", "__version__"]


def __getattr__(name: str) -> Any:
    # Looked up when asked for: `perfmodel --help` must not wait for numpy.
    if name in __all__:
        return getattr(importlib.import_module("perfmodel.results.envelope"), name)
    raise AttributeError(f"module 'perfmodel' has no attribute {name!r}")
