"""What the verbs share where a job serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.specs.serving import ServingJob


def refuse_for_serving(job: ServingJob, flags: Mapping[str, Any]) -> None:
    """Refuse the flags that were given and that mean nothing of a job that serves."""
    given = [name for name, value in flags.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)}: of training jobs alone, and {job.name} serves",
            code="U002",
            help="leave it out",
        )
