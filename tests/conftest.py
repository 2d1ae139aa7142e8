"""Settings for the whole suite."""

from __future__ import annotations

from hypothesis import settings

# A shared machine may stall any example; a time limit per example would fail tests for no fault of theirs.
settings.register_profile("perfmodel", deadline=None, print_blob=True)
settings.load_profile("perfmodel")
