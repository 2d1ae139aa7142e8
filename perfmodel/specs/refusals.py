"""What pydantic refuses, in our words. Nothing is imported here that a shell would wait for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfmodel.errors import did_you_mean

_LONGEST_SHOWN = 40
_EXPECTED = {
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "string": "text",
}


def refusal(item: Mapping[str, Any]) -> tuple[str, str | None]:
    """The message of one item of `ValidationError.errors()`, and how to mend it; what was given where it is there.

    >>> refusal({"type": "greater_than_equal", "ctx": {"ge": 1}, "input": "0"})
    ('must be at least 1, got 0', None)
    >>> refusal({"type": "literal_error", "ctx": {"expected": "'strong' or 'weak'"}, "input": "week"})
    ('"week" is not a choice here; did you mean "weak"?', 'one of strong, weak')
    """
    kind, given, context = item["type"], item.get("input"), item.get("ctx") or {}
    got = f", got {found(given)}" if "input" in item else ""
    if kind == "missing":
        return "missing", None
    if kind == "extra_forbidden":
        return "unknown key", None
    choices = re.findall(r"'([^']*)'", _choices(item))
    if choices:
        named = f"{found(given)} is " if got else ""
        return f"{named}not a choice here{did_you_mean(str(given), choices)}", f"one of {', '.join(choices)}"
    if str(given).strip().lower() == "nan":  # beyond every limit, yet none is the matter
        return "expected a number, got nan", None
    for key, words in (("ge", "at least"), ("le", "at most")):
        if key in context:
            return f"must be {words} {context[key]:.10g}{got.replace(chr(34), '')}", None
    if kind.endswith("too_short"):
        return "must not be empty", None
    if kind.endswith("too_long"):
        return f"longer than {context['max_length']}", None
    expected = _EXPECTED.get(kind.partition("_")[0])
    if expected is not None and kind.partition("_")[2] in (
        "type",
        "parsing",
        "parsing_size",
        "from_float",
        "number",
    ):
        is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
        return (
            f"expected {expected}{got}",
            f'put it in quotes: "{given}"' if kind == "string_type" and is_number else None,
        )
    if kind == "string_pattern_mismatch":
        return "cannot be read", None
    return f"{item['msg'][:1].lower()}{item['msg'][1:]}", None


def _choices(item: Mapping[str, Any]) -> str:
    """The quoted choices of a literal, or of an enumeration of the command line."""
    if item["type"] == "literal_error":
        return str(item["ctx"]["expected"])
    return str(item.get("msg", "")).partition(" is not one of ")[2]


def found(value: object) -> str:
    """What stands where something else should, in a word."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = str(value)
    shown = text[:_LONGEST_SHOWN] + "..." * (len(text) > _LONGEST_SHOWN)
    return f'"{shown}"' if isinstance(value, str) else shown
