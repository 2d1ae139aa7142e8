"""Amounts that a person states in tokens, passes or money: the batch, the length of the run, and its limits."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, NamedTuple

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import core_schema

from perfmodel.specs.fields import Count, Number, ReadByItself, SpecModel, problem
from perfmodel.units import UnitError, parse, pattern

_AROUND = re.compile(r"(?P<middle>[^±]{0,60}?)(?:\+-|\+/-|±)(?P<give>.{0,60})", re.DOTALL)
MOST_GIVE = 0.5  # of the amount: a batch that may be half as large again is no statement
ROUNDING = 0.01  # of the run: two statements of its length that differ by less are one


class Around(NamedTuple):
    """A number and how far it may be missed, as a share of it."""

    value: float
    give: float = 0.0


class AroundText(ReadByItself):
    """`4M`, `4M +-10 %` or `4M +- 400k`: about so many."""

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        number = pattern("1").removeprefix("^").removesuffix("$")
        text = {
            "type": "string",
            "pattern": rf"^{number}( ?(\+-|\+/-|±) ?{number})?$",
            "examples": ["4M +-10 %"],
        }
        return {"anyOf": [{"type": "integer", "minimum": 1}, text]}

    @staticmethod
    def read(value: Any) -> Around:
        """The number with its share of give.

        >>> AroundText.read("4M +-10 %"), AroundText.read("1M +- 50k"), AroundText.read(4194304)
        (Around(value=4000000.0, give=0.1), Around(value=1000000.0, give=0.05), Around(value=4194304.0, give=0.0))
        """
        if isinstance(value, (list, tuple)) and len(value) == 2:
            value, give = value
            return Around(float(value), float(give))
        found = _AROUND.fullmatch(value) if isinstance(value, str) else None
        middle = Number(least=1, most=1e12).read(found["middle"].strip() if found else value)
        if found is None:
            return Around(float(middle))
        try:
            share = parse(found["give"].strip(), "1")
        except UnitError as error:
            raise problem("S006", error.message, "write it like 4M +-10 %") from None
        if not found["give"].endswith("%"):
            share /= middle
        if not 0.0 < share <= MOST_GIVE:
            raise problem(
                "S007",
                f"may be missed by up to {MOST_GIVE:.0%}, got {found['give']}",
                "write it like 4M +-10 %",
            )
        return Around(float(middle), share)


AroundTokens = Annotated[Around, AroundText()]


class Data(SpecModel):
    """What one pass over the data has."""

    samples: Count | None = Field(None, description="Samples of one pass.")
    tokens: Count | None = Field(None, description="Tokens of one pass, for language models.")

    @model_validator(mode="after")
    def _one(self) -> Data:
        if (self.samples is None) == (self.tokens is None):
            raise problem(
                "S004",
                "one pass over the data is stated once",
                "give data: {samples: 1.28 M}, or {tokens: 300 G}",
            )
        return self


Epochs = Annotated[float, Number(least=0, most=1e6, above=True)]
TokensPerParameter = Annotated[float, Number(least=0, most=1e9, above=True)]


def batch_around(about: Around, seq_len: int) -> tuple[int, int, int]:
    """Sequences nearest to an amount of tokens, and the fewest and the most that keep to it.

    >>> batch_around(Around(4e6, 0.1), 8192)
    (488, 440, 537)
    """
    nearest = max(1, round(about.value / seq_len))
    if not about.give:
        return nearest, nearest, nearest
    low = math.ceil(about.value * (1.0 - about.give) / seq_len - 1e-9)
    high = math.floor(about.value * (1.0 + about.give) / seq_len + 1e-9)
    return nearest, min(max(1, low), nearest), max(high, nearest)


def agree(stated: float, other: float, unit: float) -> bool:
    """Whether two lengths of a run are one, to a step's `unit` or rounding.

    >>> agree(1000.0, 1005.0, 1.0), agree(1000.0, 1100.0, 1.0), agree(3.0, 3.9, 1.0)
    (True, False, True)
    """
    return abs(stated - other) <= max(unit, ROUNDING * max(abs(stated), abs(other)))
