"""The job that the files of a run describe, and where each of its keys stands in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfmodel.errors import SpecError
from perfmodel.frameworks.job import NEEDED, given, notes_of
from perfmodel.frameworks.reader import read_paths
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.job import Job
from perfmodel.specs.jobs import job_from_tree, load_job
from perfmodel.specs.loader import Tree, read_file


@dataclass(frozen=True)
class Configured:
    """A job, whether its files or flags say how many accelerators it has, and `file:line` of its keys."""

    job: Job
    says_k: bool
    says_batch: bool
    places: dict[str, str] = field(default_factory=dict)

    def place(self, key: str) -> str | None:
        """Where a key, such as `stack.overlap_gradients`, was stated."""
        return self.places.get(key)


def configured(
    paths: Sequence[Path], overrides: Mapping[str, object], specs: Sequence[Path] = ()
) -> Configured:
    """Read a job file, or the files of a training framework; flags win."""
    job, tree, places = _read(paths, overrides, specs)
    said = {*overrides, *(tree.value if tree is not None and isinstance(tree.value, dict) else ())}
    return Configured(job, "k" in said, bool({"global_batch", "batch_per_accelerator"} & said), places)


def _read(
    paths: Sequence[Path], overrides: Mapping[str, object], specs: Sequence[Path]
) -> tuple[Job, Tree | None, dict[str, str]]:
    if len(paths) == 1:
        written = _job_file(paths[0])
        if written is not None:
            return load_job(paths[0], overrides=overrides, extra_dirs=specs), written, _marks(written)
    reading = read_paths(paths, given(overrides))
    tree = reading.assembled.tree
    missing = [key for key in NEEDED if key not in overrides and tree.get(key) is None]
    if missing:
        asked = reading.draft.questions or [f"the files lack {', '.join(missing)}"]
        raise SpecError(tree.mark.problem("F020", question) for question in asked)
    job = job_from_tree(tree, paths[0].parent, Catalog.default(specs), overrides)
    job = job.model_copy(update={"notes": (*notes_of(reading), *job.notes)})
    places = {key: f"{found.place} ({found.key})" for key, found in reading.assembled.origins.items()}
    return job, tree, {key.removeprefix("items."): place for key, place in places.items()}


def _job_file(path: Path) -> Tree | None:
    """A job file as it is written; None where it is something else."""
    try:
        tree = read_file(path)
    except SpecError:
        return None
    is_job = isinstance(tree.value, dict) and {"workload", "cluster"} & tree.value.keys()
    return tree if is_job else None


def _marks(tree: Tree, path: str = "") -> dict[str, str]:
    """`file:line` of each key, two levels deep."""
    found: dict[str, str] = {}
    if not isinstance(tree.value, dict):
        return found
    for key, item in tree.value.items():
        mark = tree.keys.get(key, item.mark)
        if mark.line is not None:
            found[f"{path}{key}"] = f"{mark.source.name}:{mark.line}"
        if not path:
            found |= _marks(item, f"{key}.")
    return found
