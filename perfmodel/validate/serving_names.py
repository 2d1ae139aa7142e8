"""What public sources call models, accelerators and engines, and what these are in the catalogue: `serving_names.yaml`.

The table is data; here it is only looked up. The first pattern that is found in a name counts. A name that no pattern
fits is taken as a name of the catalogue; one that the catalogue lacks stays unknown, and its rows are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from perfmodel.serving.engine import Engine, engine
from perfmodel.workloads.text import slug

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """One list of the file: patterns and what they stand for."""

    entries: tuple[tuple[re.Pattern[str], Entry], ...]

    def find(self, name: str) -> Entry | None:
        """The first entry whose pattern is in the name.

        >>> names().models.find(plain("meta-llama/Llama-3.1-70B-Instruct"))["is"]
        'llama3-70b'
        """
        return next((entry for pattern, entry in self.entries if pattern.search(name)), None)


@dataclass(frozen=True)
class Names:
    """The whole file."""

    models: Table
    accelerators: Table
    engines: Table
    stated: Table  # precisions that the name of a model states
    precisions: Mapping[str, Entry]
    sources: Table
    datasets: Sequence[Entry] = field(default=())
    conversations: Sequence[Entry] = field(default=())


def plain(name: str) -> str:
    """A name without its owner, in lower case, with hyphens alone.

    >>> plain("/workspace/DeepSeek-v3.2"), plain("LLaMA v3.1 8B"), plain("NVIDIA H100-SXM-80GB")
    ('deepseek-v3.2', 'llama-v3.1-8b', 'nvidia-h100-sxm-80gb')
    """
    return _hyphened(name.rsplit("/", 1)[-1])


def _hyphened(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


@cache
def names() -> Names:
    """The shipped table."""
    from ruamel.yaml import YAML

    text = resources.files("perfmodel").joinpath("validate/serving_names.yaml").read_text(encoding="utf-8")
    data = YAML(typ="safe", pure=True).load(text)

    def table(key: str) -> Table:
        return Table(tuple((re.compile(entry["match"]), entry) for entry in data[key]))

    return Names(
        models=table("models"),
        accelerators=table("accelerators"),
        engines=table("engines"),
        stated=table("precisions_in_names"),
        precisions=data["precisions"],
        sources=table("sources"),
        datasets=tuple(data["datasets"]),
        conversations=tuple(data["conversations"]),
    )


def model_entry(name: str) -> Entry:
    """What a model's name stands for; where no pattern fits, the name itself."""
    return names().models.find(plain(name)) or {"is": slug(plain(name))}


def accelerator_entry(name: str) -> Entry:
    """What an accelerator's name stands for; where no pattern fits, the name itself."""
    return names().accelerators.find(plain(name)) or {"is": slug(plain(name))}


def engine_entry(name: str) -> Entry:
    """What an engine's name stands for; one that is not known is its own class."""
    whole = _hyphened(name)
    return names().engines.find(whole) or {"is": slug(whole) if whole else "unknown"}


def source_entry(name: str) -> Entry:
    """What rows of a source leave open."""
    return names().sources.find(name.lower()) or {}


def known_engine(name: str, version: str, date: str) -> Engine:
    """What an engine does, by its name in `runs.csv`; its version may stand in the name.

    >>> known_engine("vLLM 0.5.2", "", "2024-08").era, known_engine("vllm", "", "2026-01").era
    ('vllm-v0', 'vllm-v1')
    >>> known_engine("vllm", "nightly-5b8c30", "2026-04").era, known_engine("TensorRT 9.3.0, CUDA 12.2", "", "2024-03").era
    ('vllm-v1', 'tensorrt-llm-v0')
    """
    entry = engine_entry(name)
    named = None if "version_of" in entry else _version(name)
    return engine(str(entry["is"]), _version(version) or named, date or None)


def _version(text: str) -> str | None:
    """The first dotted number of a text.

    >>> _version("v0.5.10.post1"), _version("nightly-5b8c30"), _version("CUDA 12.2")
    ('0.5.10', None, '12.2')
    """
    found = re.search(r"(?<![\w.])v?(\d+(?:\.\d+)+)", text)
    return found[1] if found else None
