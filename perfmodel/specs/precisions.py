"""Types of the matmuls. Nothing is imported here that a shell would wait for."""

from __future__ import annotations

from typing import Literal, get_args

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
