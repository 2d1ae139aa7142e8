"""A resolved job as plain numbers for the lock file, and back. Words that no prediction reads are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perfmodel.specs.jobs import Job

# Provenance and prose: a new comment in a spec must not look like a new machine. The vendor and the confidence are none: the
# one decides how products fill a device, the other whether an efficiency was measured.
_PROSE = frozenset(
    {
        "source", "date", "notes", "note", "title", "provider", "fabric", "cpu",
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


def dump(job: Job) -> dict[str, object]:
    """Everything that a prediction reads, SI numbers by name."""
    whole = job.model_dump(mode="json", exclude_none=True)
    found = dict(_plain({key: value for key, value in whole.items() if key not in _OWN}))
    node = found["cluster"]["node"]
    records = (
        (job.cluster.node.accelerator, node.get("accelerator"), ("matmul_fraction", "memory_fraction")),
        (job.cluster.node.scale_up, node.get("scale_up"), ("efficiency",)),
        (job.cluster.network, found["cluster"].get("scale_out") or node.get("scale_out"), ("efficiency",)),
    )
    for record, kept, fields in records:
        for field in fields:
            # A measured efficiency moves the beliefs; a mapping's own confidence is lost with the mapping.
            if (
                record is not None
                and kept
                and field in kept
                and record.origin(field).confidence == "measured"
            ):
                kept[field] = {"value": kept[field], "confidence": "measured"}
    return found


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
