"""Settings for the whole suite."""

from __future__ import annotations

import gc
import os
import sys

# Compiled and rewritten modules are kept: dozens of processes would each compile the package again, and every run of
# the tests the tests themselves.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from hypothesis import settings  # noqa: E402

# A shared machine may stall any example; a time limit per example would fail tests for no fault of theirs. Everybody tries
# the same examples, so that a commit passes or fails for all; with PERFMODEL_EXPLORE=1 they are new ones in each run.
settings.register_profile(
    "perfmodel", deadline=None, print_blob=True, derandomize=not os.environ.get("PERFMODEL_EXPLORE")
)
settings.load_profile("perfmodel")


def pytest_collection_finish() -> None:
    """What was collected stays until the end, and is large: no later search for garbage need look at it."""
    gc.collect()
    gc.freeze()
