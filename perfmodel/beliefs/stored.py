"""Beliefs as `perfmodel calibrate` writes them: read from a file, or taken from its result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfmodel.beliefs.checking import faults
from perfmodel.beliefs.population import Beliefs, from_mapping
from perfmodel.errors import Problem, UsageError
from perfmodel.files import read_bytes
from perfmodel.results.envelope import fingerprint


def read_beliefs(path: Path, named_by: str = "--beliefs") -> Beliefs:
    """The beliefs of a file; `named_by` is the option that its problems start with."""
    try:
        data = json.loads(read_bytes(path).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{named_by}: cannot read {path}: {error.strerror}", code="U015") from None
    except UnicodeDecodeError:
        raise _none(str(path), ["not a text file"]) from None
    except RecursionError:
        raise _none(str(path), ["nested too deeply"]) from None
    except ValueError as error:
        raise _none(str(path), [f"not JSON: {error}"]) from None
    result = data.get("result") if isinstance(data, dict) else None
    if isinstance(result, dict) and "beliefs" in result:
        data = result["beliefs"]
    return replace(beliefs_of(data, str(path)), origin=fingerprint(path))


def beliefs_of(data: Any, place: str) -> Beliefs:
    """The beliefs of a mapping that came from `place`."""
    found = faults(data)
    if found:
        raise _none(place, found)
    return from_mapping(data)


def _none(place: str, faults: Iterable[str]) -> UsageError:
    help = "`perfmodel calibrate -o FILE` writes them; calibrate again after an update"
    return UsageError(
        Problem(place, code="U015", message=f"holds no beliefs: {fault}", help=help) for fault in faults
    )
