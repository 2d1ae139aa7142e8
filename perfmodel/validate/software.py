"""What a line of families.csv or points.csv states of its software: facts of a job's `stack`, as `key=value` joined by `;`."""

from __future__ import annotations

from functools import lru_cache

from perfmodel.specs.refusals import refusal
from perfmodel.specs.stack import Stack

_TRUTHS = {"true": True, "false": False}
_HELP = "key=value;key=value with the keys of a job's stack, as in date=2024-10;attention=flash2"


def stack_facts(cell: str) -> dict[str, object]:
    """The facts of a cell whose faults were reported before.

    >>> stack_facts("date=2021-08; overlap_gradients=false"), stack_facts("")
    ({'date': '2021-08', 'overlap_gradients': False}, {})
    """
    return dict(_read(cell)[0])


def stack_faults(cell: str) -> list[tuple[str, str]]:
    """What is wrong with a cell, and how to mend it.

    >>> stack_faults("date=2021-08"), stack_faults("flash2")[0][0]
    ([], 'stack: "flash2" is no key=value')
    """
    return list(_read(cell)[1])


@lru_cache(maxsize=1024)
def _read(cell: str) -> tuple[dict[str, object], list[tuple[str, str]]]:
    from pydantic import ValidationError

    facts: dict[str, object] = {}
    faults: list[tuple[str, str]] = []
    for item in filter(None, map(str.strip, cell.split(";"))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not (key and equals and value):
            faults.append((f'stack: "{item[:40]}" is no key=value', _HELP))
        elif key in facts:
            faults.append((f"stack: {key} stands twice", "keep one of the two"))
        facts[key] = _TRUTHS.get(value, value)
    if faults:
        return {}, faults
    try:
        read = Stack.model_validate(facts)
    except ValidationError as error:
        told = [(".".join(str(part) for part in item["loc"]), *refusal(item)) for item in error.errors()]
        return {}, [(f"stack: {where}: {message}", hint or _HELP) for where, message, hint in told]
    return {name: getattr(read, name) for name in facts}, []
