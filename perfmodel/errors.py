"""What went wrong, where, and how to mend it; and the exit codes of the command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

T = TypeVar("T")

EXIT_OK = 0
EXIT_FAILED = 1  # a policy, a validation or an audit failed
EXIT_USAGE = 2  # bad usage or bad input
EXIT_FAULT = 3  # a fault of ours
EXIT_INTERRUPTED = 130

# A line of a binary or generated file can be megabytes long; an error shows what stands around its column.
_LONGEST_SNIPPET = 160
_LONGEST_MESSAGE = 800
_MOST_TOLD = 50  # problems of one input
_MOST_LINES = 8  # named of many that have the same


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in an input. `line` and `column` count from 1; `snippet` is the source line.

    >>> print(Problem("a.yaml", 2, 1, "S001", 'unknown key "memry"', "memry: 80 GB", "did you mean memory?"))
    a.yaml:2:1: error[S001]: unknown key "memry"
      |
    2 | memry: 80 GB
      | ^
      help: did you mean memory?
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    code: str = "U000"
    message: str = ""
    snippet: str | None = None
    help: str | None = None
    severity: str = "error"  # or "warning": worth saying, no reason to refuse

    @property
    def location(self) -> str:
        """`file:line:col`, as far as it is known; empty for a command-line flag."""
        if self.file is None:
            return ""
        parts = [self.file] + [str(part) for part in (self.line, self.column) if part is not None]
        return ":".join(parts)

    @property
    def headline(self) -> str:
        """The first line of the message: position, code, what is wrong."""
        prefix = f"{self.location}: " if self.location else ""
        message = self.message
        if len(message) > _LONGEST_MESSAGE:  # it quotes what was read, which may be anything
            message = f"{message[: _LONGEST_MESSAGE // 2]} ... {message[-_LONGEST_MESSAGE // 4 :]}"
        return f"{prefix}{self.severity}[{self.code}]: {_visible(message)}"

    def within(self, width: int) -> str:
        """The text with its first line in at most `width` columns, where the position itself leaves room.

        The position and the code stay in one piece; the message goes on in lines of its own.

        >>> print(Problem("prices/aws/p3.yaml", 9, 7, "L002", "this price is old", severity="warning").within(40))
        prices/aws/p3.yaml:9:7: warning[L002]:
            this price is old
        """
        head, *rest = str(self).split("\n")
        if len(head) <= width:
            return "\n".join([head, *rest])
        import textwrap

        message = self.headline.split("]: ", 1)[1]
        first = head[: len(head) - len(message)].rstrip()
        lines = textwrap.wrap(message, max(width - 4, 20), break_long_words=False, break_on_hyphens=False)
        return "\n".join([first, *(f"    {line}" for line in lines), *rest])

    def __str__(self) -> str:
        lines = [self.headline]
        if self.snippet is not None and self.line is not None:
            number = str(self.line)
            margin = " " * len(number)
            first = max((self.column or 1) - 1 - _LONGEST_SNIPPET // 2, 0)
            if len(self.snippet) <= _LONGEST_SNIPPET:
                first = 0
            shown = _visible(self.snippet[first : first + _LONGEST_SNIPPET])
            lines.append(f"{margin} |")
            lines.append(f"{number} | {shown}")
            if self.column is not None:
                # Tabs are kept so that the caret stands under its character in any terminal.
                pad = "".join("\t" if char == "\t" else " " for char in shown[: self.column - 1 - first])
                lines.append(f"{margin} | {pad}^")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


def _visible(text: str) -> str:
    """Text with control characters replaced: what was read must not steer the terminal that shows it."""
    return "".join(char if char.isprintable() or char in "\t\n" else "\ufffd" for char in text)


class SpecError(Exception):
    """Bad input: every problem found, not only the first."""

    def __init__(self, problems: Iterable[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = (Problem(message=problems),)
        elif isinstance(problems, Problem):
            problems = (problems,)
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__(*self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class UsageError(SpecError):
    """A bad flag or argument. `UsageError("--k: no worker counts", help="try 1..64")` is enough."""

    def __init__(
        self, problems: Iterable[Problem] | Problem | str, *, code: str = "U001", help: str | None = None
    ) -> None:
        if isinstance(problems, str):
            problems = Problem(code=code, message=problems, help=help)
        super().__init__(problems)


def gathered(calls: Iterable[Callable[[], T]]) -> list[T]:
    """What the calls give, or the problems of all of them at once."""
    found: list[T] = []
    problems: list[Problem] = []
    for call in calls:
        try:
            found.append(call())
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(dict.fromkeys(problems))
    return found


COMMA_HELP = "write decimals with a point, and nothing between thousands"


def has_comma(cell: str) -> bool:
    """Whether a cell is a number but for its commas, which are decimal to some and part thousands to others.

    >>> has_comma("0,123"), has_comma("-1,5e3"), has_comma("1.024,5"), has_comma("a,b"), has_comma("5")
    (True, True, True, False, False)
    """
    return "," in cell and re.fullmatch(r"[+-]?\d[\d.,]*(e[+-]?\d+)?", cell, re.IGNORECASE) is not None


def told_once(problems: Iterable[Problem]) -> list[Problem]:
    """Problems that are the same but for their row as one, at the first of the rows, which it counts; a flood is cut.

    >>> [p.headline for p in told_once(Problem("a.csv", line, 3, "D004", "k is blank") for line in (2, 5, 6))]
    ['a.csv:2:3: error[D004]: k is blank (3 rows: lines 2, 5, 6)']
    """
    alike: dict[Problem, list[Problem]] = {}
    for problem in problems:
        alike.setdefault(replace(problem, line=None, column=None, snippet=None), []).append(problem)
    told = [_counted(found) for found in alike.values()]
    if len(told) <= _MOST_TOLD:
        return told
    hidden = Problem(code=f"{told[-1].code[0]}000", message=f"and {len(told) - _MOST_TOLD} more problems")
    return [*told[:_MOST_TOLD], hidden]


def _counted(found: list[Problem]) -> Problem:
    lines = list(dict.fromkeys(str(problem.line) for problem in found))
    if len(lines) == 1:
        return found[0]
    named = ", ".join([*lines[:_MOST_LINES], *(["..."] if len(lines) > _MOST_LINES else [])])
    return replace(found[0], message=f"{found[0].message} ({len(lines)} rows: lines {named})")


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word most like `word`, or None; letter case is ignored.

    >>> closest("bandwith", ["latency", "bandwidth"])
    'bandwidth'
    """
    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.casefold(), name)
    found = difflib.get_close_matches(word.casefold(), list(by_folded), n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "bandwidth"?` or nothing: made to be appended to a message.

    >>> did_you_mean("H100-sxm", ["h100-sxm5-80gb", "a100-sxm4-80gb"])
    '; did you mean "h100-sxm5-80gb"?'
    >>> did_you_mean("h100", ["H100-1-80G", "h100-sxm5-80gb"])  # as it was typed, before other capitals
    '; did you mean "h100-sxm5-80gb"?'
    >>> did_you_mean("zebra", ["latency"])
    ''
    """
    names = sorted(known, key=lambda name: (not name.startswith(word), len(name)))
    # An abbreviation is more often meant than a word of the same length with other letters.
    begun = next(
        (name for name in names if len(word) > 2 and name.casefold().startswith(word.casefold())), None
    )
    best = begun or closest(word, names)
    return f'; did you mean "{best}"?' if best else ""
