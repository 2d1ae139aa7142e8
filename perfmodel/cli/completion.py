"""Names that a shell completes: read off the catalogue's files, without parsing a spec or importing a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("accelerators", "links", "nodes", "clusters", "workloads", "prices", "grids")
# What --set may name, and the kind whose names complete its value.
PATHS: dict[str, tuple[str, ...]] = {
    "workload": ("workloads",),
    "cluster": ("clusters", "nodes"),
    "cluster.node": ("nodes",),
    "cluster.node.accelerator": ("accelerators",),
    "cluster.node.scale_up": ("links",),
    "cluster.scale_out": ("links",),
    "grid": ("grids",),
}
# Grids stand many to a file, each on a line of its own under `grids:`.
_GRID = re.compile(r"""^  (?:"([^"\\]+)"|'([^']+)'|([^\s#"'][^#]*?)):\s""", re.MULTILINE)
Completer = Callable[[str], list[str]]


def names(*kinds: str) -> Completer:
    """A completer of the names of these kinds."""
    return lambda incomplete: _begun(incomplete, _known(kinds))


def several(*kinds: str) -> Completer:
    """A completer of names in a list with commas: the last one is completed."""

    def complete(incomplete: str) -> list[str]:
        done, comma, last = incomplete.rpartition(",")
        taken = set(done.split(","))
        return [f"{done}{comma}{name}" for name in _begun(last, _known(kinds)) if name not in taken]

    return complete


def kinds(incomplete: str) -> list[str]:
    """The kinds of the catalogue."""
    return _begun(incomplete, KINDS)


def assignment(incomplete: str) -> list[str]:
    """`grid=US-VA`: the path, then the names that it may take."""
    path, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{known}=" for known in _begun(path, PATHS)]
    return [f"{path}={name}" for name in _begun(value, _known(PATHS.get(path, ())))]


def grids_in(text: str) -> list[str]:
    """Names of the grids of one file.

    >>> grids_in('kind: x\\ngrids:\\n  "New York": {carbon: 1 g/kWh}\\n  US-VA: {carbon: 2 g/kWh}\\n')
    ['New York', 'US-VA']
    """
    _, _, below = text.partition("\ngrids:\n")
    return ["".join(groups).strip() for groups in _GRID.findall(below)]


def _known(kinds: tuple[str, ...]) -> list[str]:
    from perfmodel.specs.folders import files_by_name, spec_folders

    folders = spec_folders()
    found: set[str] = set()
    for kind in kinds:
        files: dict[str, list[Path]] = files_by_name(kind, folders)
        if kind == "grids":
            for paths in files.values():
                found.update(name for path in paths for name in grids_in(path.read_text(encoding="utf-8")))
        else:
            found.update(files)
    return sorted(found)


def _begun(incomplete: str, known: list[str] | tuple[str, ...] | dict[str, tuple[str, ...]]) -> list[str]:
    """What begins as written, whatever the case."""
    return [name for name in known if name.casefold().startswith(incomplete.casefold())]
