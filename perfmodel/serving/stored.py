"""Beliefs of serving read from a file."""

from __future__ import annotations

import json
from pathlib import Path

from perfmodel.errors import Problem, UsageError
from perfmodel.files import read_bytes
from perfmodel.serving.beliefs import SCHEMA, ServingBeliefs, from_mapping


def read_serving_beliefs(path: Path) -> ServingBeliefs:
    """Read what `serving.beliefs.to_mapping` wrote; anything else is refused with its reason."""
    try:
        data = json.loads(read_bytes(path).decode("utf-8-sig"))
        if not isinstance(data, dict):
            raise ValueError(f"it is no {SCHEMA}")
        return from_mapping(data)
    except OSError as error:
        raise UsageError(f"--beliefs: cannot read {path}: {error.strerror}", code="U015") from None
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        message = f"holds no beliefs of serving: {error}"
        hint = "beliefs of training jobs say nothing of services; leave --beliefs out for the shipped ones"
        raise UsageError(Problem(str(path), code="U015", message=message, help=hint)) from None
