"""Predict how a distributed training job scales before renting the hardware."""

from __future__ import annotations

from perfmodel.results import Result, __version__

__all__ = ["Result", "__version__"]
