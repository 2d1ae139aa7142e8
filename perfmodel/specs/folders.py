"""Where the catalogue's files are. Light enough for a shell that waits for a completion: nothing is parsed here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".yaml", ".yml")
AT_REST_NS = 2_000_000_000
_PACKAGE = Path(__file__).resolve().parent.parent
ZOO = _PACKAGE / "workloads" / "zoo"


def shipped_folder() -> Path:
    """The hardware specs of the installed wheel, or of the checkout."""
    inside = _PACKAGE / "_hardware_specs"
    return inside if inside.is_dir() else _PACKAGE.parent / "hardware_specs"


def spec_folders(extra: Iterable[Path] = ()) -> tuple[Path, ...]:
    """The folders of specs that exist, the winning one first: `extra` (the last wins), PERFMODEL_SPECS,
    `./hardware_specs`, the shipped ones."""
    named = [Path(part) for part in os.environ.get("PERFMODEL_SPECS", "").split(os.pathsep) if part]
    found: dict[Path, Path] = {}
    for folder in (*reversed(list(extra)), *named, Path("hardware_specs"), shipped_folder()):
        if folder.is_dir():
            found.setdefault(folder.resolve(), folder)
    return tuple(found.values())


def files_by_name(kind: str, folders: Sequence[Path], zoo: Path | None = ZOO) -> dict[str, list[Path]]:
    """Files of a kind by the name that they define, the winning one first."""
    found: dict[str, list[Path]] = {}
    places = [folder / kind for folder in folders]
    if kind == "workloads" and zoo is not None:
        places.append(zoo)
    for place in places:
        for path in _spec_files(place):
            found.setdefault(path.stem, []).append(path)
    return found


@dataclass(frozen=True)
class _Found:
    files: tuple[Path, ...]
    folders: dict[str, tuple[int, ...]]  # each that was searched, and its state then
    can_keep: bool


_KEPT: dict[tuple[str, str], _Found] = {}


def _spec_files(place: Path) -> tuple[Path, ...]:
    """Specs below a folder, in the order of their paths; folders at rest are not searched again by this process."""
    key = (str(place), os.path.abspath(place))  # noqa: PTH100
    found = _KEPT.get(key)
    if found is None or any(_state(folder) != state for folder, state in found.folders.items()):
        _KEPT.pop(key, None)
        found = _search(place)
        if found.can_keep:
            _KEPT[key] = found
    return found.files


def _state(folder: str) -> tuple[int, ...]:
    """What changes when something is put into a folder or taken from it; nothing where there is none."""
    try:
        found = os.stat(folder)  # noqa: PTH116
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns


def _search(place: Path) -> _Found:
    """Strings until the end: paths are slow to make and to compare."""
    now = time.time_ns()
    folders: dict[str, tuple[int, ...]] = {}
    names: list[str] = []
    for folder, _, inside in os.walk(place):
        folders[folder] = _state(folder)
        names += [
            os.path.join(folder, name)  # noqa: PTH118
            for name in inside
            if name.endswith(SUFFIXES) and name not in SUFFIXES
        ]
    names.sort(key=lambda path: path.replace(os.sep, "\0"))  # folder by folder, as paths compare
    files = tuple(Path(name) for name in names if os.path.isfile(name))  # noqa: PTH113
    # A folder that changed just now may change again within the tick of the clock that dates it, and a link that
    # leads nowhere may lead to a file without any change of the folder.
    at_rest = all(state and now - max(state[2:]) > AT_REST_NS for state in folders.values())
    return _Found(files, folders, bool(folders) and at_rest and len(files) == len(names))
