"""Where the catalogue's files are. Light enough for a shell that waits for a completion: nothing is parsed here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

SUFFIXES = (".yaml", ".yml")
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


def _spec_files(place: Path) -> list[Path]:
    """Specs below a folder, in the order of their paths. Strings until the end: paths are slow to make and to compare."""
    names = [
        os.path.join(folder, name)  # noqa: PTH118
        for folder, _, inside in os.walk(place)
        for name in inside
        if name.endswith(SUFFIXES) and name not in SUFFIXES
    ]
    names.sort(key=lambda path: path.replace(os.sep, "\0"))  # folder by folder, as paths compare
    return [Path(name) for name in names if os.path.isfile(name)]  # noqa: PTH113
