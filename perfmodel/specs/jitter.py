"""How one worker's step time varies, as a job declares it: a family, a mixture, or measured samples."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from perfmodel.errors import Problem, SpecError
from perfmodel.files import csv_faults, read_bytes
from perfmodel.specs.fields import Number, SpecModel, problem
from perfmodel.units import plain_number

JitterFamily = Literal["normal", "lognormal", "gumbel", "exponential", "pareto", "gamma", "weibull"]
Spread = Annotated[float, Number(least=0, most=5)]
TailIndex = Annotated[float, Number(least=2, most=1000, above=True)]
LEAST_SAMPLES: Final = 2
MOST_SAMPLES: Final = 5000  # of a longer file, so many of its quantiles are kept, the largest among them
_COLUMN: Final = "time_s"


class JitterPart(SpecModel):
    """One kind of step in a mixture."""

    share: Annotated[float, Number(least=0, most=1, above=True)] = Field(
        description="Share of the steps; they sum to 1."
    )
    slower: Annotated[float, Number(least=0, most=1000, above=True)] = Field(
        1.0, description="Mean of these steps over that of the usual ones."
    )
    distribution: JitterFamily = Field("lognormal", description="Family of these steps.")
    spread: Spread = Field(0.0, description="Standard deviation over their mean.")
    tail: TailIndex = Field(3.0, description="Tail index of pareto.")


class Jitter(SpecModel):
    """How much the step time of one worker varies."""

    distribution: JitterFamily | Literal["mixture", "empirical"] = Field(
        "lognormal", description="Family of the distribution, mixture, or empirical: measured samples."
    )
    spread: Spread | None = Field(None, description="Standard deviation over the mean, of a family.")
    tail: TailIndex | None = Field(None, description="Tail index of pareto, above 2; 3 when missing.")
    shift: Annotated[float, Number(least=0, most=0.999)] | None = Field(
        None, description="Share of the mean that never varies, of a family."
    )
    mixture: tuple[JitterPart, ...] | None = Field(None, description="Kinds of steps with their shares.")
    file: str | None = Field(None, description="File of measured step times, one a line or a column time_s.")
    samples: tuple[Annotated[float, Number(least=0, most=1e9, above=True)], ...] | None = Field(
        None, description="Measured step times, in any unit."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Jitter:
        given = {
            key
            for key in ("spread", "tail", "shift", "mixture", "file", "samples")
            if getattr(self, key) is not None
        }
        allowed = {"mixture": {"mixture"}, "empirical": {"file", "samples"}}.get(
            self.distribution, {"spread", "tail", "shift"}
        )
        for key in ("spread", "tail", "shift", "mixture", "file", "samples"):
            if key in given - allowed:
                raise problem("S010", f'"{key}" is no part of distribution {self.distribution}', at=key)
        if self.tail is not None and self.distribution != "pareto":
            raise problem("S010", f"tail is the index of pareto, not of {self.distribution}", at="tail")
        if self.distribution == "mixture":
            self._mixture()
        elif self.distribution == "empirical":
            if not given:
                raise problem(
                    "S004", "empirical needs measured step times", "give file: steps.csv, or samples: [...]"
                )
            if self.samples is not None and len(self.samples) < LEAST_SAMPLES:
                raise problem(
                    "S010", f"at least {LEAST_SAMPLES} samples tell how a time varies", at="samples"
                )
        elif self.spread is None:
            raise problem("S004", 'missing key "spread"', "standard deviation over the mean, such as 0.02")
        elif self.shift and self.spread >= 5.0 * (1.0 - self.shift):
            raise problem("S010", "shift leaves too little of the step to vary so much", at="shift")
        return self

    def _mixture(self) -> None:
        parts = self.mixture or ()
        if len(parts) < 2:
            raise problem(
                "S010",
                "a mixture has at least two parts",
                "mixture: [{share: 0.99, spread: 0.02}, {share: 0.01, slower: 2}]",
            )
        total = sum(part.share for part in parts)
        if abs(total - 1.0) > 1e-6:
            raise problem("S010", f"the shares sum to {total:g}, not 1", at="mixture")


def read_samples(path: Path) -> list[float]:
    """Step times of a file: a number a line, or the column `time_s` of a CSV; every fault with its line."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise SpecError(Problem(str(path), code="S012", message=f"cannot read: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise SpecError(Problem(str(path), code="S012", message="not UTF-8 text")) from None
    with csv_faults(str(path), "S012"):
        rows = [
            (n, row)
            for n, row in enumerate(csv.reader(io.StringIO(text, newline="")), start=1)
            if row and not row[0].startswith("#")
        ]
    at = 0
    if rows and not _is_number(rows[0][1][0]):
        names = [cell.strip() for cell in rows[0][1]]
        if _COLUMN not in names:
            raise SpecError(
                Problem(
                    str(path),
                    rows[0][0],
                    1,
                    "S012",
                    f'no column "{_COLUMN}"',
                    help="a number a line, or a column time_s",
                )
            )
        at, rows = names.index(_COLUMN), rows[1:]
    found: list[float] = []
    problems: list[Problem] = []
    for number, row in rows:
        cell = row[at].strip() if at < len(row) else ""
        value = plain_number(cell) if _is_number(cell) else float("nan")
        if not 0.0 < value <= 1e9:
            problems.append(
                Problem(
                    str(path),
                    number,
                    None,
                    "S012",
                    f"not a time above zero: {cell or 'nothing'}",
                    help="plain numbers",
                )
            )
        found.append(value)
    if len(found) < LEAST_SAMPLES and not problems:
        problems.append(
            Problem(str(path), code="S012", message=f"fewer than {LEAST_SAMPLES} step times in it")
        )
    if problems:
        raise SpecError(problems)
    found.sort()
    if len(found) > MOST_SAMPLES:
        last = len(found) - 1
        found = [found[round(i * last / (MOST_SAMPLES - 1))] for i in range(MOST_SAMPLES)]
    return found


def _is_number(text: str) -> bool:
    try:
        plain_number(text.strip())
    except ValueError:
        return False
    return True
