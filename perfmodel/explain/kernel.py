"""One kernel under the roofline: its intensity, the ridge, what bounds it, and what to do in that case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from perfmodel.errors import UsageError
from perfmodel.physics.machine import ELEMENT_BYTES, machine
from perfmodel.physics.roofline import ridge_flop_per_byte, roofline_time
from perfmodel.results.envelope import Result
from perfmodel.specs.hardware import Cluster
from perfmodel.units import format_quantity

NEAR: Final = 2.0  # times the ridge, up or down, within which both roofs matter

REMEDIES: Final = {
    "memory": "move fewer bytes for the same work: fuse it with its neighbours, keep operands on chip (tiling), take a "
    "narrower type, make the batch larger; a higher peak rate would change nothing, a device with more memory bandwidth would",
    "compute": "do less arithmetic or do it faster: a lower precision with a higher peak, sparsity, a better algorithm; more "
    "memory bandwidth would change nothing",
    "launch": "launch fewer and larger kernels: fuse or capture them in graphs, take a larger batch per accelerator; neither "
    "roof is near",
    "both": "both roofs matter near the ridge: kernels lose up to a fifth there, so gain on either side shows in part",
}


@dataclass(frozen=True)
class Kernel:
    """Work of one kernel: FLOP, and bytes that pass device memory at least."""

    flop: float
    traffic_bytes: float
    shape: tuple[int, int, int] | None = None  # of a matrix product m x n x k


def product(m: int, n: int, k: int, element_bytes: float) -> Kernel:
    """A matrix product (m, k) x (k, n): 2 m n k FLOP; each operand read once, the result written once.

    >>> product(2, 3, 4, 2.0)
    Kernel(flop=48.0, traffic_bytes=52.0, shape=(2, 3, 4))
    """
    return Kernel(2.0 * m * n * k, element_bytes * (m * k + k * n + m * n), (m, n, k))


def place(
    cluster: Cluster,
    precision: str | None,
    flop: float | None,
    traffic_bytes: float | None,
    shape: tuple[int, int, int] | None,
    *,
    seed: int = 0,
) -> Result:
    """A kernel on the accelerator of a cluster, at its datasheet rates."""
    device = cluster.accelerator
    usual = next((name for name in ("bf16", "fp16", "fp32") if name in device.peak), next(iter(device.peak)))
    chosen = precision or usual
    if not device.trains_in(chosen):
        raise UsageError(
            f"--precision: {device.name} has no {chosen}",
            code="U016",
            help=f"it has {', '.join(device.peak)}",
        )
    numbers = machine(cluster, chosen)
    width = ELEMENT_BYTES[chosen] if chosen not in ("fp8", "fp4", "int8") else {"fp4": 0.5}.get(chosen, 1.0)
    if shape is not None:
        kernel = product(*shape, width)
    elif flop is not None and traffic_bytes is not None:
        kernel = Kernel(flop, traffic_bytes)
    else:
        raise UsageError(
            "a kernel has FLOP and bytes", code="U002", help="give --flop and --bytes, or --m, --n and --k"
        )
    peak, bandwidth = float(numbers.peak_flop_per_s), float(numbers.memory_bytes_per_s)
    ridge = float(ridge_flop_per_byte(peak, bandwidth))
    intensity = kernel.flop / kernel.traffic_bytes
    compute_s, memory_s = kernel.flop / peak, kernel.traffic_bytes / bandwidth
    bound = "compute" if compute_s >= memory_s else "memory"
    attainable = min(peak, intensity * bandwidth)
    near = 1.0 / NEAR < intensity / ridge < NEAR
    time = float(roofline_time(kernel.flop, kernel.traffic_bytes, flop_per_s=peak, bytes_per_s=bandwidth))
    result: dict[str, object] = {
        "accelerator": device.name,
        "precision": chosen,
        "flop": kernel.flop,
        "traffic_bytes": kernel.traffic_bytes,
        "shape": list(kernel.shape) if kernel.shape else None,
        "intensity_flop_per_byte": intensity,
        "ridge_flop_per_byte": ridge,
        "peak_flop_per_s": peak,
        "memory_bandwidth_bytes_per_s": bandwidth,
        "compute_s": compute_s,
        "memory_s": memory_s,
        "roof_s": max(compute_s, memory_s),
        "time_s": time,
        "attainable_flop_per_s": attainable,
        "share_of_peak": attainable / peak,
        "bound": bound,
        "remedy": REMEDIES["both" if near else bound],
    }
    result["answer"] = _sentence(result)
    result["notes"] = [
        "Rates are the datasheet's; what kernels reach inside a step is less (`perfmodel roofline JOB.yaml`).",
        *(["Bytes of a product: both operands read once, the result written once."] if kernel.shape else []),
    ]
    inputs = {
        "cluster": cluster.name,
        "precision": chosen,
        "flop": kernel.flop,
        "traffic_bytes": kernel.traffic_bytes,
    }
    return Result("kernel", inputs, result, seed)


def _sentence(result: dict[str, object]) -> str:
    """Where the kernel stands, and what to do."""
    ridge, intensity = result["ridge_flop_per_byte"], result["intensity_flop_per_byte"]
    side = "above" if result["bound"] == "compute" else "below"
    roof = "the peak rate" if result["bound"] == "compute" else "memory bandwidth"
    time = format_quantity(result["roof_s"], "s", 4)
    rate = format_quantity(result["attainable_flop_per_s"], "FLOP/s", 4)
    return (
        f"{intensity:.4g} FLOP per byte, {side} the ridge at {ridge:.4g}: bound by {roof}, at best {time} "
        f"({rate}, {result['share_of_peak']:.1%} of the peak). To do: {result['remedy']}."
    )
