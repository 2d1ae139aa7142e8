"""Beliefs of serving read from a file."""

from __future__ import annotations

import json
from pathlib import Path

from perfmodel.errors import Problem, UsageError
from perfmodel.files import read_bytes
from perfmodel.serving import calibrated
from perfmodel.serving.beliefs import SCHEMA, ServingBeliefs, from_mapping, shipped_beliefs


def read_serving_beliefs(path: Path) -> ServingBeliefs:
    """Read what `perfmodel calibrate` wrote of a server, or `serving.beliefs.to_mapping`; anything else is refused."""
    try:
        data = json.loads(read_bytes(path).decode("utf-8-sig"))
        if not isinstance(data, dict):
            raise ValueError(f"it is no {SCHEMA}")
        held = data.get("result")
        if isinstance(held, dict) and "beliefs" in held:
            data = held["beliefs"]
        if data.get("schema") == calibrated.SCHEMA:
            return calibrated.from_mapping(data, shipped_beliefs())
        return from_mapping(data)
    except OSError as error:
        raise UsageError(f"--beliefs: cannot read {path}: {error.strerror}", code="U015") from None
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        message = f"holds no beliefs of serving: {error}"
        hint = "these beliefs are of training jobs, not of services; leave --beliefs out for the shipped ones"
        raise UsageError(Problem(str(path), code="U015", message=message, help=hint)) from None
