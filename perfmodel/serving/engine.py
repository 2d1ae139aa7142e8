"""What a serving engine does unless it is told otherwise, by name and version.

The limits are the defaults that the projects document. An engine whose versions differ in kind is two engines: what vLLM
calls V1 schedules in another process than its model runs and mixes prompts with decodes, V0 did neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Engine:
    """Facts of an engine that the physics reads; `era` is the value of the level `engine` of the coefficients."""

    era: str
    mixed: bool  # prompts share a step with decodes
    chunk_tokens: int  # budget of a step
    max_sequences: int  # at once, in a replica
    memory_fraction: float  # of the device that the engine takes
    reserve: (
        float  # share of the output that a sequence holds memory for: 1 booked at the start, 0.5 as it grows
    )
    source: str


_VLLM: Final = "documentation of vLLM: engine arguments"
_SGLANG: Final = "documentation of SGLang: server arguments"
_TENSORRT: Final = "documentation of TensorRT-LLM: runtime configuration"
_TGI: Final = "documentation of text-generation-inference: launcher arguments"
_LMDEPLOY: Final = "documentation of LMDeploy: TurboMind configuration"
_MLC: Final = "documentation of MLC LLM: engine modes"
_LLAMA: Final = "documentation of llama.cpp: server"
_MII: Final = "documentation of DeepSpeed-MII: FastGen"
_ASSUMED: Final = "assumed"

ENGINES: Final[dict[str, Engine]] = {
    "vllm-v1": Engine("vllm-v1", True, 8192, 256, 0.9, 0.5, _VLLM),
    "vllm-v0": Engine("vllm-v0", False, 8192, 256, 0.9, 0.5, _VLLM),
    "sglang": Engine("sglang", False, 8192, 4096, 0.88, 0.5, _SGLANG),
    "tensorrt-llm": Engine("tensorrt-llm", True, 8192, 2048, 0.9, 1.0, _TENSORRT),
    "tensorrt-llm-v0": Engine("tensorrt-llm-v0", True, 8192, 2048, 0.9, 1.0, _TENSORRT),
    "tgi": Engine("tgi", False, 4096, 128, 0.9, 1.0, _TGI),
    "lmdeploy": Engine("lmdeploy", True, 8192, 128, 0.8, 0.5, _LMDEPLOY),
    "mlc": Engine("mlc", False, 2048, 128, 0.85, 0.5, _MLC),
    "llama.cpp": Engine("llama.cpp", True, 2048, 256, 0.95, 1.0, _LLAMA),
    "deepspeed-mii": Engine("deepspeed-mii", True, 768, 768, 0.9, 0.5, _MII),
    "transformers": Engine("transformers", False, 1_000_000, 1024, 0.95, 0.5, _ASSUMED),
    "neuron": Engine("neuron", False, 8192, 256, 0.9, 1.0, _ASSUMED),
    "gaudi": Engine("gaudi", False, 8192, 1024, 0.9, 1.0, _ASSUMED),
    "mindie": Engine("mindie", False, 8192, 200, 0.9, 0.5, _ASSUMED),
}
#: Of an engine that nobody names: what the most used one does.
UNKNOWN: Final = Engine("unknown", True, 8192, 256, 0.9, 0.5, _ASSUMED)
#: Names that a job may give. Eras of vLLM and TensorRT-LLM are told apart by version or date.
NAMES: Final = (
    "vllm",
    *(name for name in ENGINES if not name.startswith("vllm") and not name.endswith("-v0")),
)
#: The first release of vLLM whose default is V1, and the month of it.
_V1_VERSION: Final = (0, 8)
_V1_DATE: Final = "2025-03"
#: The first release of TensorRT-LLM that runs PyTorch by default and not an engine compiled beforehand, and its month.
_PYTORCH_VERSION: Final = (1, 0)
_PYTORCH_DATE: Final = "2025-09"
#: From this memory on, V1 takes this many sequences (its engine arguments; not read again).
_ROOMY_BYTES: Final = 70.0 * 2**30
_ROOMY_SEQUENCES: Final = 1024
_CLOSE_TOKENS: Final = 2048  # budget of a step of its server on smaller and older devices


def version_numbers(text: str | None) -> tuple[int, ...]:
    """The leading numbers of a version.

    >>> version_numbers("v0.10.1.post1"), version_numbers(None)
    ((0, 10, 1), ())
    """
    found = re.match(r"v?(\d+(?:\.\d+)*)", text or "")
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _is_before(
    least: tuple[int, ...], month: str, version: str | None = None, date: str | None = None
) -> bool:
    """Whether a release, or else a date, is of an earlier kind."""
    numbers = version_numbers(version)
    return numbers < least if numbers else bool(date) and str(date) < month


def engine(name: str | None, version: str | None = None, date: str | None = None) -> Engine:
    """The facts of an engine; `version` or else `date` (year and month) tells what vLLM it is, the newer by default.

    >>> engine("vllm", "0.6.3").era, engine("vllm", date="2025-06").era, engine(None).era
    ('vllm-v0', 'vllm-v1', 'unknown')
    >>> engine("tensorrt-llm", "0.17").era, engine("tensorrt-llm", "0.8.1", "2026-02").era
    ('tensorrt-llm-v0', 'tensorrt-llm')
    """
    if name is None:
        return UNKNOWN
    if name == "vllm":
        return ENGINES["vllm-v0" if _is_before(_V1_VERSION, _V1_DATE, version, date) else "vllm-v1"]
    if name == "tensorrt-llm":
        # Its containers may state the version of what packs them, such as 0.8.1 in 2026: a date must not speak against it.
        said = [{"version": version}] * bool(version_numbers(version)) + [{"date": date}] * bool(date)
        if said and all(_is_before(**one, least=_PYTORCH_VERSION, month=_PYTORCH_DATE) for one in said):
            return ENGINES["tensorrt-llm-v0"]
    return ENGINES.get(name, replace(UNKNOWN, era=name))


def sequences_on(found: Engine, memory_bytes: float, generation: str | None) -> int:
    """Sequences at once on a device: vLLM's V1 takes 1,024 on one of 70 GiB and more that is newer than an A100.

    >>> sequences_on(ENGINES["vllm-v1"], 80 * 2**30, "hopper"), sequences_on(ENGINES["vllm-v1"], 80 * 2**30, "ampere")
    (1024, 256)
    """
    return _ROOMY_SEQUENCES if _is_roomy(found, memory_bytes, generation) else found.max_sequences


def chunk_on(found: Engine, memory_bytes: float, generation: str | None) -> int:
    """Token budget of a step on a device: vLLM's V1 takes 2,048 on a small one or an A100.

    >>> chunk_on(ENGINES["vllm-v1"], 80 * 2**30, "hopper"), chunk_on(ENGINES["vllm-v1"], 80 * 2**30, "ampere")
    (8192, 2048)
    """
    is_close = found.era == "vllm-v1" and not _is_roomy(found, memory_bytes, generation)
    return _CLOSE_TOKENS if is_close else found.chunk_tokens


def _is_roomy(found: Engine, memory_bytes: float, generation: str | None) -> bool:
    return found.era == "vllm-v1" and memory_bytes >= _ROOMY_BYTES and generation != "ampere"
