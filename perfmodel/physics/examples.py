"""A small job for the examples of this package: two layers of a transformer on nodes of eight accelerators.

The numbers are round so that an example can be checked by hand: 100 TFLOP/s and 1 TB/s an accelerator, 100 GB/s over its
scale-up link, 12.5 GB/s to the network.
"""

from __future__ import annotations

from functools import lru_cache

from perfmodel.physics.counting import operations
from perfmodel.physics.machine import Machine, numbers
from perfmodel.physics.operations import Operations
from perfmodel.physics.serving_shape import ServingShape, serving_shape
from perfmodel.specs.hardware import Accelerator, Link
from perfmodel.specs.workload import Workload


@lru_cache(maxsize=1)
def transformer() -> Operations:
    """A decoder of 2 layers, width 1,024, 16 heads, 32,000 words, on sequences of 1,024 tokens."""
    return operations(
        Workload(
            name="example", kind="decoder-transformer", layers=2, hidden=1024, heads=16, ffn=4096, vocab=32_000,
            params=57_933_824, tied_embeddings=True, seq_len=1024,
        )
    )  # fmt: skip


@lru_cache(maxsize=1)
def node() -> Machine:
    """One of the nodes; bf16."""
    device = Accelerator(
        name="example", memory=80e9, memory_bandwidth=1e12, peak={"bf16": 1e14, "fp32": 2e13}
    )
    return numbers(
        device,
        "bf16",
        per_node=8.0,
        domain=8.0,
        scale_up=Link(name="example", kind="scale-up", latency=1e-6, bandwidth=1e11),
        network_bytes_per_s=1e11,
        network_latency_s=2e-6,
    )


@lru_cache(maxsize=1)
def decoder() -> ServingShape:
    """A decoder of 8 billion parameters: 32 layers, width 4,096, 32 heads that share 8 of keys and values."""
    return serving_shape(
        Workload(
            name="example", kind="decoder-transformer", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14_336,
            gated_mlp=True, vocab=128_256, params=8_030_261_248,
        )
    )  # fmt: skip
