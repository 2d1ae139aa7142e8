"""Check a folder of specs: every file valid, every name resolvable, every value sourced, no price too old."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfmodel.errors import Problem, SpecError, UsageError
from perfmodel.specs.ages import STALE_DAYS, is_stale
from perfmodel.specs.catalog import KINDS, MODELS, Catalog, expand_collection
from perfmodel.specs.checking import build
from perfmodel.specs.claims import Claim, claim_from_tree
from perfmodel.specs.economy import Offer
from perfmodel.specs.fields import Record
from perfmodel.specs.folders import SUFFIXES, ZOO, spec_folders
from perfmodel.specs.hardware import Accelerator, Node
from perfmodel.specs.jobs import job_from_tree
from perfmodel.specs.loader import Mark, Source, Tree, read_file
from perfmodel.specs.policies import load_policies

MOST_FILES = 20_000
MOST_SEEN = 100_000  # files and folders that a walk may pass

_SCHEMA_NAMES = {
    "accelerator": "accelerators",
    "link": "links",
    "node": "nodes",
    "cluster": "clusters",
    "workload": "workloads",
    "price": "prices",
    "grid": "grids",
    "grids": "grids",
    "job": "job",
    "claim": "claim",
    "policies": "policies",
}
_SCHEMA_LINE = re.compile(r"#\s*yaml-language-server:\s*\$schema=\S*?(\w+)(?:\.schema)?\.json\s*")
# Keys that give a kind away where neither the folder nor the first line does.
_TELLING: tuple[tuple[str, frozenset[str]], ...] = (
    ("policies", frozenset({"policies"})),
    ("claim", frozenset({"points", "headline", "vendor"})),
    ("job", frozenset({"workload"})),
    ("accelerators", frozenset({"peak", "memory_bandwidth"})),
    ("nodes", frozenset({"accelerators_per_node"})),
    ("prices", frozenset({"on_demand", "spot", "purchase"})),
    ("grids", frozenset({"carbon", "grids"})),
    ("links", frozenset({"latency", "bandwidth"})),
    ("clusters", frozenset({"node"})),
    ("workloads", frozenset({"params", "flop_per_sample", "layers"})),
)


@dataclass(frozen=True)
class LintReport:
    """What was found: errors make a file unusable, warnings are worth knowing."""

    files: int
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity != "error")


def lint(path: Path, *, today: datetime.date) -> LintReport:
    """Check one file, or every YAML file below a folder."""
    if not path.exists():
        raise UsageError(f"no file or folder {path}", code="S012")
    if not path.is_dir():
        files, folders = [path], [path.parent.parent if path.parent.name in KINDS else path.parent]
    else:
        files = _spec_files(path)
        folders = [path.parent] if path.name in KINDS else [path]
        if not files:
            raise UsageError(f"no spec files ({', '.join(sorted(SUFFIXES))}) below {path}", code="S012")
    holding = [folder for folder in folders if any((folder / kind).is_dir() for kind in KINDS)]
    catalog = Catalog(spec_folders(holding), ZOO)  # nothing is read before its turn to be checked
    found = [problem for file in files for problem in _check(file, path, catalog, today)]
    order = sorted(
        dict.fromkeys(found), key=lambda item: (item.file or "", item.line or 0, item.column or 0, item.code)
    )
    return LintReport(len(files), tuple(order))


def _spec_files(folder: Path) -> list[Path]:
    """YAML files below a folder, in the order of their paths. A walk over a whole disk is refused early."""
    found: list[Path] = []
    seen = 0
    for place, _, inside in os.walk(folder):
        seen += len(inside) + 1
        found += [Path(place) / name for name in inside if Path(name).suffix in SUFFIXES]
        if seen > MOST_SEEN or len(found) > MOST_FILES:
            raise UsageError(
                f"{folder} holds too much to be a folder of specs: at most {MOST_FILES:,} spec files "
                f"among {MOST_SEEN:,} files and folders are checked",
                code="S012",
                help="name the folder of the specs themselves",
            )
    return sorted(item for item in found if item.is_file())


def kind_of(path: Path, tree: Tree, root: Path) -> str | None:
    """What a file declares: its first line says, or its folder, or its keys."""
    lines = tree.mark.source.lines
    named = _SCHEMA_LINE.fullmatch(lines[0].strip()) if lines else None
    if named is not None and named[1] in _SCHEMA_NAMES:
        return _SCHEMA_NAMES[named[1]]
    folders = (
        [*reversed(path.resolve().relative_to(root.resolve()).parent.parts), root.resolve().name]
        if root.is_dir()
        else [path.resolve().parent.name]
    )
    for folder in folders:
        if folder in KINDS:
            return folder
        if folder == "zoo":
            return "workloads"
    keys = set(tree.value) if isinstance(tree.value, dict) else set()
    return next((kind for kind, telling in _TELLING if keys & telling), None)


def _check(path: Path, root: Path, catalog: Catalog, today: datetime.date) -> Iterator[Problem]:
    try:
        tree = read_file(path)
        kind = kind_of(path, tree, root)
        if kind is None:
            hint = f"put it into a folder named {', '.join(KINDS)}, or name its schema on the first line"
            # A folder may hold YAML that is not ours; a file that was named is meant.
            alone = not root.is_dir()
            yield tree.mark.problem(
                "S014" if alone else "L003",
                "cannot tell what this file declares",
                hint,
                "error" if alone else "warning",
            )
            return
        if kind in ("job", "claim", "policies"):
            _load(kind, path, tree, catalog)
            return
        if kind == "grids":
            yield from _check_grids(tree)
            return
        entry = catalog.build(kind, tree if _named(tree) else _with_name(tree, path))
    except SpecError as error:
        yield from error.problems
        return
    yield from _beyond(entry, tree, path, catalog, today)


def _load(kind: str, path: Path, tree: Tree, catalog: Catalog) -> None:
    if kind == "job":
        job_from_tree(tree, path.parent, catalog, {}, path.stem)
    elif kind == "claim":
        claim_from_tree(Claim, tree, path.parent, catalog)
    else:
        load_policies(path)


def _named(tree: Tree) -> bool:
    return isinstance(tree.value, dict) and "name" in tree.value


def _with_name(tree: Tree, path: Path) -> Tree:
    if not isinstance(tree.value, dict):
        raise SpecError(tree.mark.problem("S005", "expected a mapping of keys"))
    return tree.with_item("name", Tree(path.name.removesuffix(path.suffix), tree.mark))


def _check_grids(tree: Tree) -> Iterator[Problem]:
    entries = expand_collection(tree)
    if not entries:
        yield tree.mark.problem("S004", 'missing key "grids"', "grids: {US-VA: {carbon: 379 g/kWh}}")
    for item in entries.values():
        try:
            build(MODELS["grids"], item)
        except SpecError as error:
            yield from error.problems


def _beyond(
    entry: Record, tree: Tree, path: Path, catalog: Catalog, today: datetime.date
) -> Iterator[Problem]:
    """What a valid file may still get wrong."""
    stem = path.name.removesuffix(path.suffix)
    if entry.name != stem:
        mark = _mark(tree, "name")
        yield mark.problem(
            "S014",
            f'the name "{entry.name}" is not the file\'s',
            f"name it {stem}, or the file {entry.name}{path.suffix}: entries are found by file name",
        )
    if entry.source is None and not any(origin.source for origin in entry.origins.values()):
        yield _mark(tree, "name").problem(
            "L001", "no source: nobody can check these values", "add source: and confidence:", "warning"
        )
    references: list[tuple[str, str, str | None]] = []
    if isinstance(entry, Accelerator):
        references.append(("scale_up", "links", entry.scale_up))
    if isinstance(entry, Node):
        references.append(("price_key", "prices", entry.price_key))
    if isinstance(entry, Offer):
        references += [("node", "nodes", entry.node), ("accelerator", "accelerators", entry.accelerator)]
        if is_stale(entry.date, today):
            yield _mark(tree, "date").problem(
                "L002",
                f"this price is older than {STALE_DAYS} days: {entry.date}",
                "look it up again",
                "warning",
            )
    for key, kind, name in references:
        if name is not None and name not in catalog.files(kind):
            yield catalog.unknown(kind, name, _mark(tree, key))


def _mark(tree: Tree, key: str) -> Mark:
    item = tree.get(key)
    return item.mark if item is not None else tree.mark if tree is not None else Mark(Source(""))
