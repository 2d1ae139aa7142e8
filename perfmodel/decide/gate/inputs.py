"""A resolved job as plain numbers for the lock file, and back. Words that no prediction reads are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perfmodel.specs.jobs import Job

# Provenance and prose: a new comment in a spec must not look like a new machine.
_PROSE = frozenset(
    {
        "source", "date", "confidence", "notes", "note", "title", "vendor", "provider", "fabric", "cpu",
        "params_note", "params_from_dimensions", "activation_bytes_method", "collective_basis", "memory_type",
    }
)  # fmt: skip
_OWN = ("k_given", "framework_given", "notes")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {str(key): _plain(item) for key, item in value.items() if key not in _PROSE}
        return {key: item for key, item in kept.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def dump(job: Job) -> dict[str, Any]:
    """Everything that a prediction reads, SI numbers by name."""
    whole = job.model_dump(mode="json", exclude_none=True)
    return dict(_plain({key: value for key, value in whole.items() if key not in _OWN}))


def restore(inputs: Mapping[str, object]) -> Job:
    """The job that `dump` wrote. Fields that a job has always, though they may be empty, are filled with None."""
    empty = {name: None for name, field in Job.model_fields.items() if field.is_required()}
    return Job.model_validate({**empty, **inputs, "k_given": True, "notes": ()})


def with_k(job: Job, extra: Iterable[int]) -> Job:
    """The job with more K on its ladder: those that its policies name."""
    ladder = tuple(sorted({*job.k, *extra}))
    if ladder == job.k:
        return job
    made = job.model_copy(update={"k": ladder, "k_given": True})
    made._tree = job._tree
    return made
