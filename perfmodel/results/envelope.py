"""The envelope: one JSON form for every answer, from which every rendering is made."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__version__ = "0.2.0"


def plain(value: Any) -> Any:
    """Turn arrays, numpy scalars and non-finite floats into what JSON can hold (non-finite becomes null).

    >>> plain({"k": np.array([1, 2]), "t": [float("nan"), 0.5]})
    {'k': [1, 2], 't': [None, 0.5]}
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is dict:
        return {str(key): plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and value.ndim == 1:
            return [item if -math.inf < item < math.inf else None for item in value.tolist()]
        return value.tolist() if value.dtype.kind in "biu" else plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    # Subclasses, seldom: enumerations, named tuples, read-only mappings.
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def fingerprint(path: Path) -> dict[str, str]:
    """A file that an answer rests on, for `inputs.files`: its name without folders, and the SHA-256 of its bytes.

    Of a folder the hash is over the relative names and the hashes of all files in it but hidden ones, sorted.
    """
    if not path.is_dir():
        return {"file": path.name, "sha256": _sha256(path)}
    below = (item for item in path.rglob("*") if item.is_file())
    names = sorted(name for item in below if not (name := item.relative_to(path).as_posix()).startswith("."))
    listed = "".join(f"{_sha256(path / name)}  {name}\n" for name in names if "/." not in name)
    return {
        "file": path.name or ".",
        "sha256": hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest(),
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, repr=False)
class Result:
    """An answer of one verb: `kind` names the schema, `inputs` reproduces it, `result` the documented mapping."""

    kind: str
    inputs: dict[str, Any]
    result: dict[str, Any]
    seed: int = 0
    version: str = field(default=__version__)

    def envelope(self) -> dict[str, Any]:
        """The mapping that `--format json` prints."""
        return {
            "schema": f"perfmodel/{self.kind}/1",
            "version": self.version,
            "seed": self.seed,
            "inputs": plain(self.inputs),
            "result": plain(self.result),
        }

    def __repr__(self) -> str:
        about = importlib.import_module("perfmodel.report.kinds").rendering_of(shown := self.envelope())
        return "\n".join(filter(None, (f"<{self.kind}> {about.title(shown)}", about.answer(shown))))

    def __getitem__(self, key: str) -> Any:
        """An entry of the result: `prediction["knee"]`."""
        return self.result[key]

    def to_dict(self) -> dict[str, Any]:
        """The same as `--format json`, as plain Python values that `json.dumps` takes."""
        return self.envelope()

    def to_json(self) -> str:
        """Deterministic JSON text, ending in a newline."""
        return json.dumps(self.envelope(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    # Notebooks. The renderings live above this module, so they are looked up when asked for.
    def _repr_html_(self) -> str:
        return str(importlib.import_module("perfmodel.report.notebook").html(self.envelope()))

    def plot(self, name: str | None = None) -> Any:
        """A matplotlib Figure of this result; `name` picks one of the plots that fit its kind."""
        return importlib.import_module("perfmodel.report.plots").figure(self.envelope(), name)

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row per K (needs pandas)."""
        return importlib.import_module("perfmodel.report.notebook").frame(self.envelope())


def read_envelope(text: str) -> Result:
    """The inverse of `Result.to_json`."""
    data = json.loads(text)
    kind = str(data["schema"]).split("/")[1]
    return Result(kind, data["inputs"], data["result"], int(data["seed"]), str(data["version"]))
