"""`perfmodel.lock.json`: the inputs and the predictions that were last agreed on, in a form that reviews well."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfmodel.decide.gate.evaluate import array_of
from perfmodel.errors import Problem, SpecError
from perfmodel.files import parse_json, pretty_json, read_bytes
from perfmodel.results.prediction import PredictionAnswer
from perfmodel.specs.layout import layout_words
from perfmodel.specs.policies import LOCK_NAME

SCHEMA = "perfmodel/lock/1"
_REWRITE = "write it again with: perfmodel check --update-baseline"
DIGITS = 6  # of a prediction: more would churn with the last bit of another processor
_ARRAYS = (
    "time_s", "time_s_low", "time_s_high", "efficiency", "speedup", "throughput",
    "cost_usd", "energy_j", "carbon_g", "memory_bytes", "mfu", "tflop_per_s_per_accelerator",
    "tokens_per_s_per_accelerator", "run.time_s", "run.cost_usd",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One job of the lock: what it was given and what was predicted, shaped like prediction.result."""

    inputs: Mapping[str, object]
    result: PredictionAnswer


@dataclass(frozen=True)
class Lock:
    """The committed baseline."""

    version: str
    seed: int
    jobs: dict[str, Entry]


def rounded(value: object) -> Any:
    """Numbers to `DIGITS` significant digits, in any nesting; integers stay.

    >>> rounded({"t": [0.123456789, None, 64]})
    {'t': [0.123457, None, 64]}
    """
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def summary(result: PredictionAnswer) -> PredictionAnswer:
    """What of a prediction is locked: the curve, the parts and the chosen K."""
    chosen = {
        "k": list(result["k"]),
        **{name: list(values) for name in _ARRAYS if (values := array_of(result, name)) is not None},
        "reason": list(result.get("reason") or [None] * len(result["k"])),
        "parts_s": {name: list(values) for name, values in result.get("parts_s", {}).items()},
        "layout": [
            layout_words(layout) if isinstance(layout, Mapping) else layout
            for layout in result.get("layout") or ()
        ],
        "knee": {
            rule: {key: knee.get(key) for key in ("k", "k_low", "k_high", "cause")}
            for rule, knee in result["knee"].items()
        },
        "p_star": {"k": (result.get("p_star") or {}).get("k")},
        "fastest": {"k": (result.get("fastest") or {}).get("k")},
    }
    locked: PredictionAnswer = rounded(chosen)
    return locked


def dumps(lock: Lock) -> str:
    """Text with sorted keys, one line for what fits a line, ending in a newline."""
    tree = {
        "schema": SCHEMA,
        "version": lock.version,
        "seed": lock.seed,
        "jobs": {name: {"inputs": entry.inputs, "result": entry.result} for name, entry in lock.jobs.items()},
    }
    return pretty_json(tree, sort_below=0) + "\n"


def loads(text: str, file: str = LOCK_NAME) -> Lock:
    """Read a lock; a broken one is bad input, with its line."""
    try:
        data = parse_json(text, file, "P010")
    except SpecError as error:
        raise SpecError(replace(problem, help=_REWRITE) for problem in error.problems) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise SpecError(_problem(file, f"not a lock file of this version: schema must be {SCHEMA}"))
    jobs = data.get("jobs")
    if not isinstance(jobs, dict) or not isinstance(data.get("seed"), int):
        raise SpecError(_problem(file, "a lock file needs seed and jobs"))
    entries = {}
    for name, entry in jobs.items():
        whole = isinstance(entry, dict) and isinstance(entry.get("inputs"), dict)
        if not whole or not _is_result(entry.get("result")):
            raise SpecError(_problem(file, f'the entry of job "{name}" is incomplete'))
        entries[str(name)] = Entry(entry["inputs"], entry["result"])
    return Lock(str(data.get("version", "")), int(data["seed"]), entries)


def _is_result(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("k"), list):
        return False
    arrays = [item for name, item in value.items() if name in _ARRAYS or name == "k"]
    knees = value.get("knee")
    return (
        "time_s" in value
        and all(isinstance(item, list) and len(item) == len(value["k"]) for item in arrays)
        and all(isinstance(entry, (int, float, type(None))) for item in arrays for entry in item)
        and isinstance(knees, dict)
        and all(isinstance(knee, dict) and "k" in knee for knee in knees.values())
        and isinstance(value.get("p_star"), dict)
        and isinstance(value.get("fastest"), dict)
    )


def _problem(file: str, message: str, line: int | None = None, column: int | None = None) -> Problem:
    return Problem(file, line, column, "P010", message, help=_REWRITE)


def read(path: Path) -> Lock | None:
    """The lock beside a policy file, or None where there is none yet."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise SpecError(_problem(str(path), f"cannot be read: {reason}")) from None
    return loads(text, str(path))
