"""Workload specs as text: the YAML that people keep, names, and short sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

# Editors find the schema beside the file once `perfmodel schema workload` has written it there.
SCHEMA = "workload.schema.json"
_WORD = r"[A-Za-z0-9_./+=()*-](?:[A-Za-z0-9_./+=()*:-]*[A-Za-z0-9_./+=()*-])?[,;]?"
_PLAIN = re.compile(rf"[A-Za-z](?:{_WORD})?(?: {_WORD})*\Z")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def slug(name: str) -> str:
    """A name fit for the catalogue: lower case, words joined by hyphens.

    >>> slug("Meta-Llama-3.1 8B")
    'meta-llama-3.1-8b'
    """
    return re.sub(r"[^a-z0-9.]+", "-", name.casefold()).strip("-.") or "workload"


def size_name(parameters: int) -> str:
    """A parameter count as models are named.

    >>> size_name(8_030_261_248), size_name(124_439_808), size_name(671_026_419_200)
    ('8b', '124m', '671b')
    """
    for limit, unit in ((10**9, "b"), (10**6, "m"), (10**3, "k")):
        if parameters >= limit:
            value = parameters / limit
            digits = f"{value:.1f}" if value < 100 else f"{value:.0f}"
            return digits.removesuffix(".0") + unit
    return str(parameters)


def scalar(value: object, *, flow: bool = False) -> str:
    """One YAML scalar; text that YAML could read as something else is quoted.

    >>> scalar(True), scalar(4096), scalar("8.2 GFLOP"), scalar("no"), scalar("a: b")
    ('true', '4096', '8.2 GFLOP', '"no"', '"a: b"')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value)
    text = str(value)
    amount = re.fullmatch(r"[0-9][0-9.]* [A-Za-z]+", text)
    plain = _PLAIN.match(text) and text.casefold() not in _WORDS and not (flow and "," in text)
    if amount or plain:
        return text
    return json.dumps(text, ensure_ascii=False)


def render(fields: Mapping[str, object], comments: Sequence[str] = (), *, schema: str = SCHEMA) -> str:
    """A workload spec as YAML text; `comments` stand above it, after the line for editors.

    >>> print(render({"name": "tiny", "params": {"value": 7, "source": "counted"}}), end="")
    # yaml-language-server: $schema=workload.schema.json
    name: tiny
    params: {value: 7, source: counted}
    """
    lines = [f"# yaml-language-server: $schema={schema}", *(f"# {comment}" for comment in comments)]
    lines += [f"{key}: {_value(value)}" for key, value in fields.items() if value is not None]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """A scalar, or a value with its origin on one line."""
    if isinstance(value, Mapping):
        # Commas and brackets end a plain scalar inside a flow mapping.
        inner = (f"{key}: {scalar(item, flow=True)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(inner) + "}"
    return scalar(value)


def quantity(value: float, unit: str) -> str:
    """An exact amount with the prefix that keeps it short.

    >>> quantity(8178368512, "FLOP"), quantity(680e9, "FLOP"), quantity(512, "B")
    ('8.178368512 GFLOP', '680 GFLOP', '512 B')
    """
    whole = round(value)
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if whole >= 10**power:
            integer, rest = divmod(whole, 10**power)
            fraction = f"{rest:0{power}d}".rstrip("0")
            return f"{integer}.{fraction} {prefix}{unit}" if fraction else f"{integer} {prefix}{unit}"
    return f"{whole} {unit}"
