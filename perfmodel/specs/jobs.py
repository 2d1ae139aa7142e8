"""Loading a job: the file's words, the flags over them, and every name looked up."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from perfmodel.errors import SpecError, UsageError, did_you_mean
from perfmodel.specs.catalog import REFERENCES, Catalog, Resolution
from perfmodel.specs.checking import build
from perfmodel.specs.defaults import Finisher
from perfmodel.specs.folders import SUFFIXES
from perfmodel.specs.jitter import Jitter, read_samples
from perfmodel.specs.job import Algorithm, Algorithms, Job, JobFile, Reliability
from perfmodel.specs.loader import Mark, Source, Tree, graft, merge, read_file
from perfmodel.specs.recount import COUNTED, DIMENSIONS, outdated, told
from perfmodel.specs.serving import ServingJob
from perfmodel.specs.serving_words import KEY, is_serving, serving_job

__all__ = [
    "WORKLOAD_READERS",
    "Jitter",
    "Job",
    "JobFile",
    "Reliability",
    "ServingJob",
    "any_job_from_tree",
    "job_from_tree",
    "load_any_job",
    "load_job",
    "locate",
    "serves",
]

# `workload: {hf: config.json}` and `{torch: "mod:fn"}`: a reader takes the target, with a file name made absolute
# against the job's folder, and returns the fields of a workload (or an object that has them as `.fields`).
# An entry is a callable, or "module:function" that is imported when it is first needed.
WORKLOAD_READERS: dict[str, Callable[[str], Any] | str] = {
    "hf": "perfmodel.workloads.from_hf:read_config",
    "torch": "perfmodel.workloads.from_torch:read_module",
}
# A file that is no job may be a framework's configuration: path and overrides to a tree with notes, or None.
FOREIGN_READER = "perfmodel.frameworks.job:tree_of"
SERVING_VERBS = "predict, plan, check, explain, compare, roofline and calibrate"
_FLAGS = frozenset({"workload", "cluster", "k", "regime", "global_batch", "seq_len", "precision", "layout"})


def load_job(
    source: str | Path | Mapping[str, object] | None,
    *,
    overrides: Mapping[str, object] | None = None,
    extra_dirs: Iterable[str | Path] = (),
    catalog: Catalog | None = None,
) -> Job:
    """The training job of `load_any_job`; one that serves is refused in words."""
    return _training(load_any_job(source, overrides=overrides, extra_dirs=extra_dirs, catalog=catalog))


def load_any_job(
    source: str | Path | Mapping[str, object] | None,
    *,
    overrides: Mapping[str, object] | None = None,
    extra_dirs: Iterable[str | Path] = (),
    catalog: Catalog | None = None,
) -> Job | ServingJob:
    """Read a job file (or a mapping, or none), put `overrides` (dotted paths) over it, resolve names, fill in defaults."""
    catalog = catalog or Catalog.default(extra_dirs)
    notes: tuple[str, ...] = ()
    path = Path(source) if isinstance(source, (str, Path)) else None
    if isinstance(source, Mapping):
        tree, folder = graft(dict(source), Mark(Source("job"))), Path()
    elif path is None:
        tree, folder = Tree({}, Mark(Source(""))), Path()
        if not overrides or not {"workload", "cluster"} <= {key.partition(".")[0] for key in overrides}:
            raise UsageError(
                "no job given", code="U002", help="name a JOB.yaml, or give both -w WORKLOAD and -c CLUSTER"
            )
    else:
        (tree, notes), folder = _read(path, overrides or {}), path.parent
        if not isinstance(tree.value, dict):
            raise SpecError(
                tree.mark.problem("S005", "a job is a mapping of keys", "perfmodel init writes an example")
            )
    job = any_job_from_tree(
        tree, folder, catalog, overrides or {}, default_name=path.stem if path is not None else None
    )
    return job.model_copy(update={"notes": (*notes, *job.notes)}) if notes else job


def _read(path: Path, overrides: Mapping[str, object]) -> tuple[Tree, tuple[str, ...]]:
    """A job file as it is; a training framework's file as the job that it describes, with notes."""
    problem: SpecError | None = None
    tree = None
    try:
        tree = read_file(path)
    except SpecError as error:
        problem = error  # a launch script or TOML is no YAML
    if tree is not None and isinstance(tree.value, dict) and {"workload", "cluster"} & tree.value.keys():
        return tree, ()
    module, _, function = FOREIGN_READER.partition(":")
    found: tuple[Tree, tuple[str, ...]] | None = getattr(importlib.import_module(module), function)(
        path, overrides
    )
    if found is not None:
        return found
    if tree is None:
        assert problem is not None
        raise problem
    return tree, ()


def job_from_tree(
    tree: Tree,
    folder: Path,
    catalog: Catalog,
    overrides: Mapping[str, object],
    default_name: str | None = None,
) -> Job:
    """The training job of `any_job_from_tree`; one that serves is refused in words."""
    return _training(any_job_from_tree(tree, folder, catalog, overrides, default_name))


def serves(path: Path | None) -> bool:
    """Whether a file is a job that serves, by its keys alone; what is wrong with it is for its reader to say."""
    if path is None:
        return False
    try:
        return is_serving(read_file(path))
    except SpecError:
        return False


def _training(job: Job | ServingJob) -> Job:
    if isinstance(job, ServingJob):
        raise job.error_at(
            KEY,
            "S010",
            "this job serves requests, and what was asked is answered for training jobs alone",
            f"serving jobs are answered by {SERVING_VERBS}",
        )
    return job


def any_job_from_tree(
    tree: Tree,
    folder: Path,
    catalog: Catalog,
    overrides: Mapping[str, object],
    default_name: str | None = None,
) -> Job | ServingJob:
    """The job that a mapping describes; relative file names start at `folder`."""
    deep: list[tuple[list[str], Tree]] = []
    for key, value in overrides.items():
        item = graft(value, Mark(Source(_flag(key))))
        parts = key.split(".")
        if len(parts) == 1:
            tree = tree.with_item(key, item)
            tree.keys[key] = item.mark
        else:
            deep.append((parts, item))
    resolved = _references(tree, folder, catalog)
    for parts, item in deep:
        resolved.tree = _set(resolved, parts, item, catalog, "jobs")
    if is_serving(resolved.tree):
        return serving_job(resolved, folder, catalog, default_name)
    recounted = _recounted(resolved, [parts for parts, _ in deep], tree.get("workload"))
    written = _measured_jitter(_shorthands(resolved), folder, resolved)
    spec = build(JobFile, written, resolved.bad, resolved.problems)
    job = Finisher(spec, written, catalog).job(default_name)
    return job.model_copy(update={"notes": (*job.notes, recounted)}) if recounted else job


def _recounted(resolved: Resolution, changed: list[list[str]], written: Tree | None) -> str | None:
    """Drop the stated parameters of a workload whose dimensions were changed; what to say of it, and of a variant."""
    names = {parts[1] for parts in changed if parts[0] == "workload" and len(parts) == 2}
    workload = resolved.tree.get("workload")
    if workload is None or not isinstance(workload.value, dict):
        return None
    gone = outdated(names, workload.value)
    for key in gone:
        workload = workload.without(key)
    resolved.tree = resolved.tree.with_item("workload", workload)
    own = written.value if written is not None and isinstance(written.value, dict) else {}
    # A variant of a model (`extends`) left its counts behind where the model was looked up.
    varied = set(own) if "extends" in own and not set(COUNTED) & set(own) else set()
    if gone or varied & DIMENSIONS:
        return told(names | varied)
    return None


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}" if key in _FLAGS else f"--set {key}"


def _references(tree: Tree, folder: Path, catalog: Catalog) -> Resolution:
    """Workload, cluster and grid as mappings."""
    result = Resolution(tree)
    for key, kind in (("workload", "workloads"), ("cluster", "clusters"), ("grid", "grids")):
        locate(result, key, kind, folder, catalog)
    return result


def locate(result: Resolution, key: str, kind: str, folder: Path, catalog: Catalog) -> None:
    """Replace what stands under `key`, a name, a file or an inline mapping, by the mapping that it means."""
    item = result.tree.get(key)
    if item is None or item.value is None:
        return
    try:
        found = catalog.resolve(kind, _located(kind, item, folder))
    except SpecError as error:
        found = Resolution(item, list(error.problems), [()])
    result.tree = result.tree.with_item(key, found.tree)
    result.problems.extend(found.problems)
    result.bad.extend((key, *path) for path in found.bad)


def _located(kind: str, item: Tree, folder: Path) -> Tree:
    """A file name, `{file: ...}` or a reader's form as a mapping; anything else as it is."""
    if isinstance(item.value, str):
        if kind == "grids" and re.match(r"\s*\d", item.value):
            return graft({"name": "given", "carbon": item.value}, item.mark)
        if kind != "grids" and (item.value.endswith(SUFFIXES) or "/" in item.value):
            return _from_file(item, folder)
        return item
    file = item.get("file")
    if file is not None:
        return merge(_from_file(file, folder), item.without("file"))
    if kind != "workloads":
        return item
    for reader in WORKLOAD_READERS:
        target = item.get(reader)
        if target is not None:
            return merge(_read_with(reader, target, folder), item.without(reader))
    return item


def _from_file(item: Tree, folder: Path) -> Tree:
    if not isinstance(item.value, str):
        raise SpecError(item.mark.problem("S005", "expected a file name"))
    path = folder / item.value
    if not path.is_file():
        raise SpecError(
            item.mark.problem("S012", f"no file {path}", "file names start at the job file's folder")
        )
    tree = read_file(path)
    if not isinstance(tree.value, dict):
        raise SpecError(tree.mark.problem("S005", "expected a mapping of keys"))
    return tree if "name" in tree.value else tree.with_item("name", Tree(path.stem, tree.mark))


def _read_with(name: str, target: Tree, folder: Path) -> Tree:
    if not isinstance(target.value, str):
        raise SpecError(target.mark.problem("S005", f"expected text after {name}:"))
    reader = WORKLOAD_READERS[name]
    if isinstance(reader, str):
        module, _, function = reader.partition(":")
        reader = getattr(importlib.import_module(module), function)
    text = target.value if name == "torch" else str(folder / target.value)
    try:
        found = reader(text)
    except SpecError as error:
        # A reader that cannot point at a file points at the line that asked for it.
        raise SpecError(
            item if item.file is not None else target.mark.problem(item.code, item.message, item.help)
            for item in error.problems
        ) from None
    return graft(dict(getattr(found, "fields", found)), target.mark)


def _set(resolved: Resolution, parts: list[str], item: Tree, catalog: Catalog, kind: str) -> Tree:
    """Set one value deep in a resolved tree; a name put where a reference stands is looked up."""
    tree, key = resolved.tree, parts[0]
    inner_kind = (
        {"workload": "workloads", "cluster": "clusters"}.get(key)
        if kind == "jobs"
        else REFERENCES.get(kind, {}).get(key)
    )
    if len(parts) == 1:
        if inner_kind is not None:
            found = catalog.resolve(inner_kind, item)
            resolved.problems.extend(found.problems)
            resolved.bad.extend((key, *path) for path in found.bad)
            item = found.tree
        made = tree.with_item(key, item)
        return Tree(made.value, made.mark, {**made.keys, key: item.mark})
    child = tree.get(key)
    if child is None or not isinstance(child.value, dict):
        child = Tree({}, item.mark)
    below = Resolution(child)
    changed = _set(below, parts[1:], item, catalog, inner_kind or "")
    resolved.problems.extend(below.problems)
    resolved.bad.extend((key, *path) for path in below.bad)
    return tree.with_item(key, changed)


def _shorthands(resolved: Resolution) -> Tree:
    """`layout: auto`, `price: 2.10 USD/h` and `algorithm: ring` in their long forms."""
    tree = resolved.tree
    layout, price, name = tree.get("layout"), tree.get("price"), tree.get("name")
    if layout is not None and isinstance(layout.value, str):
        if layout.value != "auto":
            resolved.problems.append(
                layout.mark.problem(
                    "S011",
                    f'"{layout.value}" is not a layout',
                    "write auto, or {tp: 2, pp: 4, sharding: zero1}",
                )
            )
        tree = tree.without("layout")
    if price is not None and isinstance(price.value, (str, int, float)) and not isinstance(price.value, bool):
        tree = tree.with_item(
            "price", Tree({"per_accelerator": price}, price.mark, {"per_accelerator": price.mark})
        )
    algorithm = tree.get("algorithm")
    if algorithm is not None and isinstance(algorithm.value, str):
        tree = _one_algorithm(tree, algorithm, resolved)
    if name is not None and name.value is None:
        tree = tree.without("name")
    return tree


def _measured_jitter(tree: Tree, folder: Path, resolved: Resolution) -> Tree:
    """`jitter: {file: steps.csv}` with the step times of the file in its place."""
    jitter = tree.get("jitter")
    file = jitter.get("file") if jitter is not None and isinstance(jitter.value, dict) else None
    if jitter is None or file is None or not isinstance(file.value, str):
        return tree
    try:
        samples = read_samples(folder / file.value)
    except SpecError as error:
        resolved.problems.extend(error.problems)
        return tree.without("jitter")
    kind = jitter.get("distribution") or graft("empirical", file.mark)
    made = (
        jitter.without("file").with_item("samples", graft(samples, file.mark)).with_item("distribution", kind)
    )
    return tree.with_item("jitter", made)


def _one_algorithm(tree: Tree, word: Tree, resolved: Resolution) -> Tree:
    """`algorithm: ring` as the mapping that gives every kind of exchange a ring."""
    known = get_args(Algorithm)
    if word.value not in known:
        guess = did_you_mean(str(word.value), known)
        help = f"one of {', '.join(known)}, or a mapping by kind of exchange"
        resolved.problems.append(
            word.mark.problem("S011", f'"{word.value}" is not an algorithm{guess}', help)
        )
        return tree.without("algorithm")
    kinds = tuple(Algorithms.model_fields)
    return tree.with_item(
        "algorithm", Tree(dict.fromkeys(kinds, word), word.mark, dict.fromkeys(kinds, word.mark))
    )
