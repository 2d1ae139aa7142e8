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
        for path in sorted(place.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                found.setdefault(path.name.removesuffix(path.suffix), []).append(path)
    return found
