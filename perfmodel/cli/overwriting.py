"""No output takes the place of an input: checked on the command line, before anything is read or computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfmodel.errors import UsageError

_TARGETS = ("-o", "--output", "--plot", "--report")
# What verbs read in folders: measured runs (`validate --data`) and specs (`--specs`).
_READ_IN_FOLDERS = ("families.csv", "points.csv", "sources.csv", "workloads.csv", "collectives.csv", "*.yaml")


# Files that people keep and verbs read through others: specs, and the baseline of a gate. Only these verbs write such.
_KEPT = ("*.yaml", "*.yml", "*.lock.json")
_WRITERS = ("import", "init", "measure", "workload")


def refuse_overwriting(arguments: Sequence[str]) -> None:
    """Refuse a target that is a file which the same command names as an input, or reads in a folder that it names.

    A result never takes the place of a spec or a baseline either: a job names files that no argument does.
    """
    targets, sources = _split(arguments)
    is_result = not any(word in _WRITERS for word in arguments[:1])
    for target in filter(Path.exists, targets):
        if any(_reads(source, target) for source in sources):
            raise UsageError(
                f"cannot write {target}: it is an input of this very command",
                code="U014",
                help="give another name",
            )
        if is_result and any(map(target.match, _KEPT)):
            raise UsageError(
                f"cannot write {target}: a spec or a baseline stands there, and a result is neither",
                code="U014",
                help="give another name, or remove the file first",
            )


def _split(arguments: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Paths to write, and other words that name something on disk.

    >>> _split(["predict", ".", "--plot=a.svg", "-o", "b.json"])
    ([PosixPath('a.svg'), PosixPath('b.json')], [PosixPath('.')])
    """
    targets, others = [], []
    for before, word in zip(["", *arguments], arguments, strict=False):
        flag, equals, value = word.partition("=")
        if before in _TARGETS:
            targets.append(Path(word))
        elif flag in _TARGETS and equals:
            targets.append(Path(value))
        else:
            others += [word, value] if equals else [word]
    return targets, [path for path in map(Path, filter(None, others)) if _on_disk(path)]


def _on_disk(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a value of another option, too long or too odd to be a name
        return False


def _reads(source: Path, target: Path) -> bool:
    if source.is_dir():
        inside = any(map(source.samefile, target.absolute().parents))
        return inside and any(map(target.match, _READ_IN_FOLDERS))
    return source.samefile(target)
