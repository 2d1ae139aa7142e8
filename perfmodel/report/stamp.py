"""The reproduction stamp: what it takes to get the same bytes again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.report.model import Envelope, inputs_of


@dataclass(frozen=True)
class Stamp:
    """Version, seed, command and the hash of each input."""

    version: str
    seed: str
    command: str
    inputs: tuple[tuple[str, str], ...]
    digest: str

    @property
    def line(self) -> str:
        """All of it in one line."""
        command = f", `{self.command}`" if self.command else ""
        return f"perfmodel {self.version}, seed {self.seed}, inputs {self.digest[:12]}{command}"


def stamp(envelope: Envelope, command: str = "") -> Stamp:
    """The stamp of an envelope; a hash that an input carries itself (`sha256`) is kept, else it is made here."""
    inputs = inputs_of(envelope)
    named = tuple((str(name), _hash(value)) for name, value in inputs.items())
    return Stamp(
        str(envelope.get("version", "")),
        str(envelope.get("seed", "")),
        command or str(inputs.get("command", "")),
        named,
        _digest(inputs),
    )


def _hash(value: object) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("sha256"), str):
        return str(value["sha256"])
    return _digest(value)


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
