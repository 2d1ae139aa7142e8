"""Console blocks of README and docs: run them, compare them loosely, write their output again.

A block that is run has a comment above it::

    <!-- run exit=1 from="Findings" show=12 keys="Verdict|Questions to ask" -->
    ```console
    $ perfmodel audit examples/vendor-slide.yaml
    ...
    ```

`exit` is the exit code (0), `from` the text that starts the first line shown, `show` the lines of output kept (all),
`keys` texts that the output must hold whatever its numbers are; with `exact=yes` the page must show the output to the
last digit, which suits what rests on no belief. The blocks of one page run in order in one folder
that holds a copy of `examples/`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 80
_BLOCK = re.compile(
    r"^<!-- run ?(?P<options>.*?) ?-->\n```console\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PLAIN = re.compile(r"^```console\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One marked console block."""

    line: int
    commands: tuple[tuple[str, ...], ...]
    shown: tuple[str, ...]  # the output that the page shows
    exit_code: int
    start: str | None
    show: int | None
    keys: tuple[str, ...]
    exact: bool = False


@dataclass(frozen=True)
class Outcome:
    """What the commands of a block did."""

    codes: tuple[int, ...]
    output: str  # stdout, or what was said on stderr when there is none
    errors: str


def pages() -> list[Path]:
    """README and every page of the docs, but for what is generated."""
    docs = ROOT / "docs"
    found = [path for path in docs.rglob("*.md") if not path.relative_to(docs).parts[0].startswith("_")]
    return [ROOT / "README.md", *sorted(found)]


def blocks(text: str) -> Iterator[Block]:
    """The marked blocks of a page, in order."""
    for match in _BLOCK.finditer(text):
        options = dict(part.split("=", 1) for part in shlex.split(match["options"]))
        unknown = set(options) - {"exit", "from", "show", "keys", "exact"}
        line = text.count("\n", 0, match.start()) + 1
        if unknown:
            raise ValueError(f"line {line}: unknown option {', '.join(sorted(unknown))}")
        lines = match["body"].splitlines()
        commands = tuple(tuple(shlex.split(row[2:])) for row in lines if row.startswith("$ "))
        yield Block(
            line=line,
            commands=commands,
            shown=tuple(row for row in lines if not row.startswith("$ ")),
            exit_code=int(options.get("exit", 0)),
            start=options.get("from"),
            show=int(options["show"]) if "show" in options else None,
            keys=tuple(filter(None, options.get("keys", "").split("|"))),
            exact=options.get("exact") == "yes",
        )


def commands_shown(text: str) -> list[str]:
    """Every `perfmodel` command of a page, marked or not."""
    found = []
    for match in _PLAIN.finditer(text):
        found += [row[2:] for row in match["body"].splitlines() if row.startswith("$ perfmodel ")]
    return found


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[None]:
    """Work in `folder`, which gets a copy of the examples, with a terminal of fixed width and no colours."""
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    before, here = dict(os.environ), Path.cwd()
    os.environ.update({"COLUMNS": str(WIDTH), "NO_COLOR": "1", "CI": "1"})
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)


def run(block: Block) -> Outcome:
    """Run the commands of a block in this process, in the current folder."""
    from perfmodel.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    codes = []
    for command in block.commands:
        if command[0] != "perfmodel":
            raise ValueError(f"line {block.line}: only perfmodel commands are run, not {command[0]}")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            codes.append(main(list(command[1:])))
    return Outcome(tuple(codes), out.getvalue() or err.getvalue(), err.getvalue())


def excerpt(block: Block, outcome: Outcome) -> list[str]:
    """The lines of the output that the page shows."""
    if block.show == 0:
        return []
    lines = [line.rstrip() for line in outcome.output.rstrip("\n").splitlines()]
    if block.start is not None:
        first = next((i for i, line in enumerate(lines) if line.startswith(block.start)), None)
        if first is None:
            raise ValueError(f"line {block.line}: no line of the output starts with {block.start!r}")
        lines = lines[first:]
    if block.show is not None and len(lines) > block.show:
        lines = lines[: block.show]
        while lines and not lines[-1]:
            lines.pop()
        lines.append("...")
    return lines


def problems(block: Block, outcome: Outcome) -> list[str]:
    """What is wrong with a block: exit codes, texts that output and page must both hold and, where it is exact, every line."""
    found = []
    if any(code != block.exit_code for code in outcome.codes):
        found.append(f"exit codes {outcome.codes}, not {block.exit_code}: {outcome.errors.strip()}")
    flat, shown = " ".join(outcome.output.split()), " ".join(" ".join(block.shown).split())
    for key in block.keys:
        if key not in flat:
            found.append(f"the output lacks {key!r}")
        if block.show != 0 and key not in shown:
            found.append(f"the page lacks {key!r}")
    if block.exact and not found:
        told = excerpt(block, outcome)
        found += [
            f"the output has {now!r}, the page {then!r}"
            for now, then in zip_longest(told, block.shown, fillvalue="no line")
            if now != then
        ]
    return found


def refreshed(text: str) -> str:
    """The page with the output of every marked block as it is now; the current folder is the workplace."""
    renewed = []
    for block in blocks(text):
        outcome = run(block)
        if any(code != block.exit_code for code in outcome.codes):
            raise ValueError(f"line {block.line}: exit codes {outcome.codes}: {outcome.errors.strip()}")
        renewed.append(excerpt(block, outcome))
    todo = iter(renewed)

    def replace(match: re.Match[str]) -> str:
        commands = [row for row in match["body"].splitlines() if row.startswith("$ ")]
        start = match.start("body") - match.start()
        return match[0][:start] + "\n".join([*commands, *next(todo)]) + "\n```"

    return _BLOCK.sub(replace, text)
