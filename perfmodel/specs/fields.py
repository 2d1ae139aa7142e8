"""Field types of the specs: quantities with units and limits, counts, fractions, and where a value comes from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from perfmodel.errors import SpecError
from perfmodel.specs.loader import Mark, Source, Tree
from perfmodel.specs.refusals import refusal
from perfmodel.units import EXAMPLES, UnitError, format_quantity, parse, pattern

Confidence = Literal["datasheet", "measured", "calibrated", "assumed"]

# Validation context of the loader: text written by a person, where a bare number for a dimensional field is an
# error. Python code that builds a model gives SI floats.
FROM_FILE: dict[str, Any] = {"from_file": True}
ORIGIN_KEYS = frozenset({"value", "source", "date", "confidence", "note"})


def problem(code: str, message: str, help: str | None = None, at: str | None = None) -> PydanticCustomError:
    """A validation error of ours; `at` names the key of a record that it is about."""
    # The message goes through a template of pydantic's, where braces have a meaning.
    return PydanticCustomError("spec", "{text}", {"text": message, "code": code, "help": help, "at": at})


@dataclass(frozen=True)
class Quantity:
    """A float in SI units, written as text with a unit. `least` and `most` are the limits of what is believable.

    `bare` marks a field whose name carries its unit (`flop_per_sample`): there a plain number is complete.
    """

    dimension: str
    least: str | None = None
    most: str | None = None
    bare: bool = False

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        text = {"type": "string", "pattern": pattern(self.dimension), "examples": [EXAMPLES[self.dimension]]}
        return {"anyOf": [text, {"type": "number"}]} if self.bare else text

    def read(self, value: Any, info: ValidationInfo) -> float:
        """Text or (from Python) an SI number to a float within the limits."""
        written = bool(info.context and info.context.get("from_file"))
        if isinstance(value, (Mapping, list, tuple)) or value is None:
            raise self._wrong_type(value)
        try:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and (self.bare or not written):
                number = parse(value, "1")
            else:
                number = parse(value, self.dimension)
        except UnitError as error:
            raise problem("S006", error.message, error.hint) from None
        return self._limited(number, value)

    def _wrong_type(self, value: Any) -> PydanticCustomError:
        found = "nothing" if value is None else "a mapping" if isinstance(value, Mapping) else "a list"
        return problem(
            "S005", f"expected a quantity, got {found}", f'write it like "{EXAMPLES[self.dimension]}"'
        )

    def _limited(self, number: float, written: Any) -> float:
        shown = written if isinstance(written, str) else format_quantity(number, self.dimension)
        if number < 0:
            raise problem("S007", f"must not be negative: {shown}")
        if self.least is not None and number < parse(self.least, self.dimension):
            raise problem(
                "S007",
                f"{shown} is too small to be real: at least {self.least} is expected",
                "check the prefix of the unit",
            )
        if self.most is not None and number > parse(self.most, self.dimension):
            raise problem(
                "S007",
                f"{shown} is beyond anything built: at most {self.most} is expected",
                "check the prefix of the unit",
            )
        return number


_BILLIONS = re.compile(r"(?<=[0-9]) ?(B|bn|billion)$")


class ReadByItself:
    """A field whose value `read` understands without what stands around it."""

    read: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)


@dataclass(frozen=True)
class Number(ReadByItself):
    """A plain number: a count (`whole`) or a ratio; `50 %` and `8 G` are read too."""

    least: float = 0.0
    most: float = math.inf
    whole: bool = False
    above: bool = False  # the lower limit itself is not allowed

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        limits: dict[str, Any] = {"exclusiveMinimum" if self.above else "minimum": self.least}
        if math.isfinite(self.most):
            limits["maximum"] = self.most
        number = {"type": "integer" if self.whole else "number", **limits}
        return {"anyOf": [number, {"type": "string", "pattern": pattern("1")}]}

    def read(self, value: Any) -> float | int:
        """A number, or text such as `90 %`, within the limits."""
        what = "a whole number" if self.whole else "a number"
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            found = (
                "nothing"
                if value is None
                else str(value).lower()
                if isinstance(value, bool)
                else "a mapping"
                if isinstance(value, Mapping)
                else "a list"
            )
            raise problem("S005", f"expected {what}, got {found}")
        if isinstance(value, int):
            return self._limited(value, value)
        if self.whole and isinstance(value, str):
            value = _BILLIONS.sub("G", value)  # a count is no amount of data: 100B tokens are 100 billion
        try:
            number = parse(value, "1")
        except UnitError as error:
            if isinstance(value, str) and not re.match(r"\s*[+-]?\.?[0-9]", value):
                raise problem("S005", f'expected {what}, got "{value}"') from None
            raise problem("S006", error.message, error.hint) from None
        if not self.whole:
            return self._limited(number, value)
        if number != int(number):
            raise problem("S005", f"expected a whole number, got {value}")
        return self._limited(int(number), value)

    def _limited(self, number: float | int, written: Any) -> float | int:
        if number < self.least or (self.above and number == self.least):
            limit = f"above {self.least:g}" if self.above else f"at least {self.least:g}"
            raise problem("S007", f"must be {limit}, got {written}")
        if number > self.most:
            raise problem("S007", f"must be at most {self.most:g}, got {written}")
        return number if self.whole else float(number)


@dataclass(frozen=True)
class DateText(ReadByItself):
    """A year, month or day in ISO form, kept as text: `2024`, `2024-10`, `2024-10-01`."""

    _FORM: ClassVar[re.Pattern[str]] = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "pattern": f"^{self._FORM.pattern}$"}, {"type": "integer"}]}

    def read(self, value: Any) -> str:
        """The date as text."""
        text = str(value)
        if isinstance(value, bool) or not isinstance(value, (int, str)) or not self._FORM.fullmatch(text):
            raise problem("S005", f"not a date: {value}", "write 2024, 2024-10 or 2024-10-01")
        return text


Count = Annotated[int, Number(least=1, most=1e15, whole=True)]
CountOrZero = Annotated[int, Number(least=0, most=1e15, whole=True)]
Fraction = Annotated[float, Number(least=0, most=1)]
Efficiency = Annotated[float, Number(least=1e-4, most=1)]
Date = Annotated[str, DateText()]
Money = Annotated[float, Quantity("USD", most="1000 MUSD")]
HourlyPrice = Annotated[float, Quantity("USD/s", most="1000000 USD/h")]
Duration = Annotated[float, Quantity("s", most="100000 day")]
Interval = Annotated[float, Quantity("s", least="1 s", most="100000 day")]
TimeBetweenFailures = Annotated[float, Quantity("s", least="1 min", most="100000 day")]


class Origin(BaseModel):
    """Where one value comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = Field(None, description="Where the value was read.")
    date: Date | None = Field(None, description="When it was true.")
    confidence: Confidence | None = Field(None, description="What kind of knowledge it is.")
    note: str | None = Field(None, description="What a reader should know about it.")


class SpecModel(BaseModel):
    """Frozen, strict about keys, and aware of the origin of every value.

    A value may be written as `memory: {value: 80 GB, source: ..., date: ..., confidence: ...}`; the attribute is
    the plain value and `origin("memory")` tells the rest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=lambda: MappingProxyType({}))

    @model_validator(mode="wrap")
    @classmethod
    def _take_origins(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            if isinstance(data, cls):
                return data
            found = (
                "nothing"
                if data is None
                else f'"{data}"'
                if isinstance(data, (str, int, float))
                else "a list"
            )
            raise problem("S005", f"expected a mapping ({cls.__name__.lower()}), got {found}")
        plain, origins = take_origins(data)
        made = handler(plain)
        if origins:
            made._origins = MappingProxyType(origins)
        return made

    def origin(self, field: str) -> Origin:
        """Where the value of `field` (`memory`, `peak.bf16`) comes from: its own words, else the record's."""
        own = self._origins.get(field, Origin())
        record = {key: getattr(self, key, None) for key in ("source", "date", "confidence")}
        return Origin(
            source=own.source or record["source"],
            date=own.date or record["date"],
            confidence=own.confidence or record["confidence"],
            note=own.note,
        )

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The values that state their own origin, by field name."""
        return self._origins


class FileModel(SpecModel):
    """A spec with the file it was read from."""

    _tree: Tree | None = PrivateAttr(None)

    def error_at(self, path: str, code: str, message: str, help: str | None = None) -> SpecError:
        """An error at the line of a value (`layout.tp`, `points.2.speedup`), or of the nearest key above it."""
        mark = self._tree.mark_at(path) if self._tree is not None else Mark(Source(""))
        return SpecError(mark.problem(code, message, help))


class Record(SpecModel):
    """A catalogue entry: its name, and the default origin of its values."""

    name: str = Field(description="The id by which other files name it.", min_length=1, max_length=120)
    title: str | None = Field(None, description="The name that people use.")
    source: str | None = Field(None, description="Where the values were read; a value may name its own.")
    date: Date | None = Field(None, description="When the values were true.")
    confidence: Confidence | None = Field(None, description="datasheet, measured, calibrated or assumed.")
    notes: str | None = Field(None, description="What a reader should know.")


def take_origins(data: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[str, Origin]]:
    """Replace every `{value: ..., source: ...}` by its value, one level into mappings; return the origins too.

    >>> take_origins({"tdp": {"value": "700 W", "confidence": "assumed"}})[0]
    {'tdp': '700 W'}
    """
    plain: dict[Any, Any] = {}
    origins: dict[str, Origin] = {}
    for key, value in data.items():
        plain[key] = value
        if isinstance(value, Mapping) and "value" in value:
            plain[key], origins[str(key)] = value["value"], _origin(value)
        elif key == "peak" and isinstance(value, Mapping):  # a mapping of plain values: one level down
            inner, nested = take_origins(value)
            plain[key] = inner
            origins.update({f"{key}.{name}": origin for name, origin in nested.items()})
    return plain, origins


def _origin(value: Mapping[Any, Any]) -> Origin:
    try:
        return Origin.model_validate({key: item for key, item in value.items() if key != "value"})
    except ValidationError as error:
        raise problem("S005", f"cannot read the origin of a value: {refusal(error.errors()[0])[0]}") from None
