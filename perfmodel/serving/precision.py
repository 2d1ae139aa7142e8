"""Number formats of a served model: bits of a weight, with its share of scales, and the arithmetic that uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from perfmodel.specs.hardware import Accelerator


@dataclass(frozen=True, slots=True)
class Format:
    """Weights and arithmetic apart: 4-bit weights may be multiplied in 16 bits."""

    weight_bits: float
    arithmetic: str


#: By the words of `serving.precision`.
FORMATS: Final[dict[str, Format]] = {
    "fp32": Format(32.0, "fp32"),
    "bf16": Format(16.0, "bf16"),
    "fp16": Format(16.0, "bf16"),
    "fp8": Format(8.0, "fp8"),
    "int8": Format(8.0, "int8"),
    "w8a16": Format(8.0, "bf16"),
    "fp4": Format(4.5, "fp4"),  # with a scale for each 16 values
    "mxfp4": Format(4.25, "fp4"),  # with a scale for each 32
    "int4": Format(4.25, "bf16"),
}
#: Weights that stay in 16 bits beside experts of this format: the checkpoints that use it quantise experts alone.
EXPERTS_ALONE: Final = frozenset({"mxfp4"})
CACHE_BYTES: Final[dict[str, float]] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}


def usual_precision(device: Accelerator) -> str:
    """What a model is served in where nobody says: 16 bits if the accelerator has them.

    >>> usual_precision(Accelerator(name="x", memory=1e9, memory_bandwidth=1e12, peak={"fp16": 1e14}))
    'fp16'
    """
    return next((name for name in ("bf16", "fp16") if name in device.peak), "fp32")
