"""The catalogue: find a spec by name in the shipped folders and the user's own; theirs win.

A name is a file name: `accelerators/h100-sxm5-80gb.yaml`. References and `extends` are resolved on the trees,
before validation, so that every problem keeps the file and line where it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from perfmodel.errors import Problem, SpecError, did_you_mean, gathered
from perfmodel.specs.checking import Path as Loc
from perfmodel.specs.checking import build
from perfmodel.specs.economy import Grid, Offer
from perfmodel.specs.fields import Record
from perfmodel.specs.folders import ZOO, files_by_name, spec_folders
from perfmodel.specs.hardware import Accelerator, Cluster, Link, Node
from perfmodel.specs.loader import Mark, Source, Tree, graft, merge, read_file
from perfmodel.specs.recount import outdated
from perfmodel.specs.workload import Workload

if TYPE_CHECKING:
    from perfmodel.specs.quotes import Quote

MODELS: dict[str, type[Record]] = {
    "accelerators": Accelerator,
    "links": Link,
    "nodes": Node,
    "clusters": Cluster,
    "workloads": Workload,
    "prices": Offer,
    "grids": Grid,
}
KINDS = tuple(MODELS)
VARIED = " (varied)"  # ends the name of a variant that has none of its own
# Which keys of a kind name an entry of another kind.
REFERENCES: dict[str, dict[str, str]] = {
    "nodes": {"accelerator": "accelerators", "scale_up": "links", "scale_out": "links"},
    "clusters": {"node": "nodes", "scale_out": "links"},
}


@dataclass
class Resolution:
    """A tree whose references are filled in, and what went wrong on the way."""

    tree: Tree
    problems: list[Problem] = field(default_factory=list)
    bad: list[Loc] = field(default_factory=list)  # paths whose contents are not worth checking


class Catalog:
    """Specs by kind and name. Reading is lazy and remembered."""

    def __init__(self, folders: Sequence[Path], zoo: Path | None = None) -> None:
        self.folders = tuple(folders)  # the first wins
        self._zoo = zoo
        self._files: dict[str, dict[str, list[Path]]] = {}
        self._trees: dict[Path, Tree] = {}
        self._models: dict[tuple[str, str], Record] = {}
        self._grids: dict[str, Tree] | None = None
        self._mentions: dict[tuple[str, str], list[str]] = {}
        self.quotes: tuple[Quote, ...] = ()  # a buyer's own prices, which win over those of the folders

    @classmethod
    def default(cls, extra_dirs: Iterable[str | Path] = ()) -> Catalog:
        """The shipped catalogue under `./hardware_specs`, PERFMODEL_SPECS and `extra_dirs`; the last named win.

        Everything in `extra_dirs` is read at once, so that all faults there are reported at once.
        """
        extra = [Path(folder) for folder in extra_dirs]
        catalog = cls(spec_folders(extra), ZOO)
        gathered([partial(catalog._check, folder) for folder in extra])
        return catalog

    def _check(self, folder: Path) -> None:
        if not folder.is_dir():
            raise SpecError(
                Problem(code="S012", message=f"no folder {folder}", help="--specs names a folder of specs")
            )
        names: dict[str, Collection[str]] = {kind: files_by_name(kind, [folder], None) for kind in KINDS}
        if not any(names.values()):
            hint = f"specs are YAML files in folders named {', '.join(KINDS)}"
            raise SpecError(Problem(str(folder), code="S012", message="no specs in this folder", help=hint))
        if names.pop("grids"):  # many to a file
            names["grids"] = self._grid_trees()
        gathered([partial(self.get, kind, name) for kind, found in names.items() for name in found])

    # Finding files

    def files(self, kind: str) -> dict[str, list[Path]]:
        """Files of a kind by name, the winning one first."""
        if kind not in self._files:
            _check_kind(kind)
            self._files[kind] = files_by_name(kind, self.folders, self._zoo)
        return self._files[kind]

    def names(self, kind: str) -> list[str]:
        """Names of a kind, sorted."""
        return sorted(self._grid_trees() if kind == "grids" else self.files(kind))

    def path(self, kind: str, name: str) -> Path | None:
        """The file that defines an entry, or None."""
        if kind == "grids":
            tree = self._grid_trees().get(name)
            return None if tree is None else Path(tree.mark.source.name)
        return next(iter(self.files(kind).get(name, ())), None)

    # Reading

    @overload
    def get(self, kind: Literal["accelerators"], name: str) -> Accelerator: ...
    @overload
    def get(self, kind: Literal["links"], name: str) -> Link: ...
    @overload
    def get(self, kind: Literal["nodes"], name: str) -> Node: ...
    @overload
    def get(self, kind: Literal["clusters"], name: str) -> Cluster: ...
    @overload
    def get(self, kind: Literal["workloads"], name: str) -> Workload: ...
    @overload
    def get(self, kind: Literal["prices"], name: str) -> Offer: ...
    @overload
    def get(self, kind: Literal["grids"], name: str) -> Grid: ...
    @overload
    def get(self, kind: str, name: str) -> Record: ...
    def get(self, kind: str, name: str) -> Record:
        """The entry as a validated model with its references filled in."""
        key = (kind, name)
        if key not in self._models:
            self._models[key] = self.build(kind, Tree(name, Mark(Source(""))))
        return self._models[key]

    def cluster(self, name: str) -> Cluster:
        """A cluster by name; a node's id means as many of them as needed on their usual fabric."""
        return self.get("clusters", name)

    def build(self, kind: str, tree: Tree) -> Record:
        """A name, or an inline mapping, as a model of `kind`."""
        resolved = self.resolve(kind, tree)
        return build(MODELS[kind], resolved.tree, resolved.bad, resolved.problems)

    def resolve(self, kind: str, tree: Tree) -> Resolution:
        """Fill in a name, `extends` and references; problems are collected, not raised."""
        _check_kind(kind)
        result = Resolution(tree)
        try:
            result.tree = self._expand(kind, tree, ())
        except SpecError as error:
            return Resolution(tree, list(error.problems), [()])
        if not isinstance(result.tree.value, dict):
            return result
        for key, target in REFERENCES.get(kind, {}).items():
            item = result.tree.value.get(key)
            if item is None or item.value is None:
                continue
            inner = self.resolve(target, item)
            result.tree = result.tree.with_item(key, inner.tree)
            result.problems.extend(inner.problems)
            result.bad.extend((key, *path) for path in inner.bad)
        if kind == "clusters":
            result.tree = _fill_cluster(result.tree)
        if "name" not in result.tree.value:
            title = result.tree.get("node")
            base = title.get("name") if title is not None and isinstance(title.value, dict) else None
            named = (
                base.value
                if base is not None and isinstance(base.value, str)
                else f"inline {_singular(kind)}"
            )
            result.tree = result.tree.with_item("name", Tree(named, result.tree.mark))
        return result

    def _expand(self, kind: str, tree: Tree, seen: tuple[tuple[str, Path | None], ...]) -> Tree:
        """A name or an `extends` chain as one mapping."""
        if isinstance(tree.value, str):
            return self._named(kind, tree.value, tree.mark, seen)
        extends = tree.get("extends")
        if extends is None:
            return tree
        if not isinstance(extends.value, str):
            raise SpecError(extends.mark.problem("S005", "extends takes the name of one entry"))
        parent = self._named(kind, extends.value, extends.mark, seen)
        own = tree.without("extends")
        if "name" not in own.value:
            own = own.with_item("name", Tree(f"{extends.value}{VARIED}", extends.mark))
        if kind == "workloads" and isinstance(parent.value, dict):
            for key in outdated(own.value, {*parent.value, *own.value}):
                parent = parent.without(key)
        # A variant is another thing: it takes over the values, not the title.
        return merge(parent.without("title"), own)

    def _named(self, kind: str, name: str, mark: Mark, seen: tuple[tuple[str, Path | None], ...]) -> Tree:
        if kind == "grids":
            grid = self._grid_trees().get(name)
            if grid is None:
                raise SpecError(self.unknown(kind, name, mark))
            return grid
        used = {path for _, path in seen}
        candidates = self.files(kind).get(name, [])
        # An entry may extend the one that it replaces: the same name in a folder of lower rank.
        path = next((candidate for candidate in candidates if candidate not in used), None)
        if path is None:
            if candidates:
                loop = " -> ".join([*(step for step, _ in seen), name])
                raise SpecError(
                    mark.problem("S009", f"inheritance loop: {loop}", "let one of them stand on its own")
                )
            if kind == "clusters" and name in self.files("nodes"):
                node = Tree(name, mark)
                return Tree({"name": Tree(name, mark), "node": node}, mark, {"name": mark, "node": mark})
            raise SpecError(self.unknown(kind, name, mark))
        tree = self._read(path)
        if not isinstance(tree.value, dict):
            raise SpecError(tree.mark.problem("S005", f"expected a mapping ({_singular(kind)})"))
        if "name" not in tree.value:
            tree = tree.with_item("name", Tree(name, tree.mark))
        return self._expand(kind, tree, (*seen, (name, path)))

    def _read(self, path: Path) -> Tree:
        if path not in self._trees:
            self._trees[path] = _tree_of(path)
        return self._trees[path]

    def _grid_trees(self) -> dict[str, Tree]:
        """Grids stand many to a file: `grids: {US-VA: {...}, ...}` under shared keys."""
        if self._grids is None:
            found: dict[str, Tree] = {}
            for paths in self.files("grids").values():
                for path in paths:
                    for name, tree in expand_collection(self._read(path)).items():
                        found.setdefault(name, tree)
            self._grids = found
        return self._grids

    def unknown(self, kind: str, name: str, mark: Mark) -> Problem:
        """What to say about a name that is not there."""
        known = self.names(kind) + (self.names("nodes") if kind == "clusters" else [])
        guess = did_you_mean(name, known)
        if kind == "grids":
            # Two letters are no guess: FR is as near to the Faroes as to France.
            titles = {str(t.value): n for n, tree in self._grid_trees().items() if (t := tree.get("title"))}
            guess = did_you_mean(titles.get(name.title(), name), known) if len(name) > 2 else ""
            find = "perfmodel catalog list grids --match France finds a place"
            return mark.problem("S008", f'no grid named "{name}"{guess}', find)
        return mark.problem(
            "S008",
            f'no {_singular(kind)} named "{name}"{guess}',
            f"perfmodel catalog list {kind} shows all {len(self.names(kind))}"
            + ("; a node of list nodes does as well" if kind == "clusters" else ""),
        )

    def offers(self, accelerator: str) -> list[Offer]:
        """Price records of an accelerator, by name."""
        offers = [self.get("prices", name) for name in self.mentioning("prices", accelerator)]
        return [offer for offer in offers if offer.accelerator == accelerator]

    def mentioning(self, kind: str, text: str) -> list[str]:
        """Names of the entries whose file holds a text: a look at it spares the reading of files that cannot match."""
        key = (kind, text)
        if key not in self._mentions:
            named = sorted(self.files(kind).items())
            self._mentions[key] = [name for name, paths in named if text in _text_of(paths[0])]
        return self._mentions[key]


def _tree_of(path: Path) -> Tree:
    """The file as it is now; what another catalogue of this process read of the same file is not parsed again."""
    state = _state(path)
    return (
        read_file(path, shown=display(path))
        if state is None
        else _parsed(path.resolve(), display(path), state)
    )


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes when the file does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size


def _text_of(path: Path) -> str:
    """The text of the file as it is now, whatever it is."""
    return _text(path.absolute(), _state(path))


@lru_cache(maxsize=4096)
def _text(path: Path, state: tuple[int, ...] | None) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


@lru_cache(maxsize=4096)
def _parsed(path: Path, shown: str, state: tuple[int, ...]) -> Tree:
    """The tree of a file in this state; it must not be changed."""
    return read_file(path, shown=shown)


def expand_collection(tree: Tree) -> dict[str, Tree]:
    """The entries of a collection file; keys beside `grids` are defaults of every entry."""
    items = tree.get("grids")
    if items is None or not isinstance(items.value, dict):
        name = tree.get("name")
        return {str(name.value): tree} if name is not None else {}
    shared = tree.without("grids")
    found = {}
    for name, item in items.value.items():
        whole = merge(shared, item) if isinstance(item.value, dict) else item
        if isinstance(whole.value, dict):
            whole = whole.with_item("name", Tree(name, items.keys[name]))
        found[name] = whole
    return found


def _fill_cluster(tree: Tree) -> Tree:
    """A cluster takes from its node what it does not state itself."""
    node = tree.get("node")
    if node is None or not isinstance(node.value, dict):
        return tree
    for key in ("scale_out", "nics_per_node"):
        own = tree.get(key)
        inherited = node.get(key)
        if (own is None or own.value is None) and inherited is not None:
            tree = tree.with_item(key, inherited)
    if tree.get("topology") is None:
        tree = tree.with_item("topology", graft({"kind": "rail"}, tree.mark))
    return tree


def display(path: Path) -> str:
    """A path as a person would type it: relative where it is below the current folder."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _singular(kind: str) -> str:
    return kind.removesuffix("s")


def _check_kind(kind: str) -> None:
    if kind not in MODELS:
        raise SpecError(
            Problem(
                code="S008",
                message=f'no catalogue kind "{kind}"{did_you_mean(kind, KINDS)}',
                help=f"one of {', '.join(KINDS)}",
            )
        )
