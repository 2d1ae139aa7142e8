"""A job on another cluster than its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfmodel.errors import SpecError, UsageError
from perfmodel.specs.job import Job
from perfmodel.specs.prices import GIVEN


def elsewhere(load: Callable[[Mapping[str, object]], Job], cluster: object, nothing: object = None) -> Job:
    """The job that `load` makes of a mapping of changes, on another cluster.

    A price by the hour that the job gives is of its own cluster's accelerator: another one has its own price.
    `cluster` and `nothing` are what stands for the name and for no value in such a mapping.
    """
    job = load({"cluster": cluster})
    if GIVEN not in (job.price.note or ""):
        return job
    try:
        own = load({})
    except (SpecError, UsageError):  # it names no cluster: the price is of whatever is asked about
        return job
    if own.cluster.node.accelerator.name == job.cluster.node.accelerator.name:
        return job
    there = load({"cluster": cluster, "price.per_accelerator": nothing})
    told = f"the price that is given is of {own.cluster.name}: {there.cluster.name} has its own"
    return there.model_copy(update={"notes": (*there.notes, told)})
