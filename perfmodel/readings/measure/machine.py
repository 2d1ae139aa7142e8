"""What torch runs on here: the device, its name, and how to wait for it. torch is imported when asked for."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import UsageError


@dataclass(frozen=True)
class Machine:
    """One device: `kind` is cuda, rocm or cpu; `device` is torch's name for it; memory in bytes."""

    torch: Any
    kind: str
    device: str
    title: str
    vendor: str | None
    memory_bytes: float
    compute_units: int | None
    l2_bytes: float | None

    @property
    def synchronize(self) -> Callable[[], None]:
        """Waits until the device has done everything."""
        if self.kind == "cpu":
            return lambda: None
        return lambda: self.torch.cuda.synchronize(self.device)

    @property
    def backend(self) -> str:
        """torch.distributed's backend: RCCL answers to the name nccl."""
        return "gloo" if self.kind == "cpu" else "nccl"

    def versions(self) -> dict[str, str]:
        """Software that the numbers depend on."""
        torch = self.torch
        found = {"torch": str(torch.__version__), "python": platform.python_version()}
        if self.kind == "cuda":
            found["cuda"] = str(torch.version.cuda)
        elif self.kind == "rocm":
            found["rocm"] = str(torch.version.hip)
        else:
            found["threads"] = str(torch.get_num_threads())
        return found


def require_torch() -> None:
    """Say how to get torch when it is missing, without importing it."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "measuring needs PyTorch, which is not installed here",
            code="M001",
            help='pip install "perfmodel[torch]"; a CPU build measures the CPU',
        )


def find_machine(device: str | None = None, local_rank: int = 0) -> Machine:
    """The device to measure: `device` as torch spells it, else the local rank's GPU, else the CPU.

    On a CPU a worker has one thread unless OMP_NUM_THREADS says how many.
    """
    require_torch()
    torch: Any = importlib.import_module("torch")
    if device is None:
        device = f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"
    if device.split(":")[0] not in ("cuda", "cpu"):
        raise UsageError(f'--device: cannot measure "{device}"', code="M002", help="cuda, cuda:1 or cpu")
    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            raise UsageError("--device: torch sees no GPU here", code="M002", help="use --device cpu")
        device = device if ":" in device else f"cuda:{local_rank}"
        torch.cuda.set_device(device)
        facts = torch.cuda.get_device_properties(device)
        rocm = torch.version.hip is not None
        return Machine(
            torch,
            "rocm" if rocm else "cuda",
            device,
            str(facts.name),
            "AMD" if rocm else "NVIDIA",
            float(facts.total_memory),
            int(facts.multi_processor_count),
            float(facts.L2_cache_size) if getattr(facts, "L2_cache_size", 0) else None,
        )
    if "OMP_NUM_THREADS" not in os.environ:
        # A worker has one thread at every K, as launchers have it: else K=1 would be another machine than K=2.
        torch.set_num_threads(1)
    return Machine(torch, "cpu", "cpu", _cpu_title(), None, _host_memory(), torch.get_num_threads(), None)


# Each line multiplies two small matrices; what a processor lacks may end the process, not raise.
_PROBES = {
    "fp16": "x = torch.ones(64, 64, dtype=torch.float16); torch.mm(x, x)",
    "bf16": "x = torch.ones(64, 64, dtype=torch.bfloat16); torch.mm(x, x)",
    "fp8": "x = torch.ones(64, 64).to(torch.float8_e4m3fn); o = torch.ones(()); "
    "torch._scaled_mm(x, x.t(), scale_a=o, scale_b=o, out_dtype=torch.bfloat16)",
}


def cannot_multiply(machine: Machine, precision: str) -> str | None:
    """Why this CPU cannot multiply in a precision, found out in a process of its own; None when it can.

    GPU builds raise a plain error instead, and need no probe.
    """
    if machine.kind != "cpu" or precision not in _PROBES:
        return None
    command = [sys.executable, "-c", f"import torch; {_PROBES[precision]}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "a small product took minutes"
    if done.returncode < 0:
        return f"the process ended with signal {-done.returncode} (an instruction that this CPU lacks)"
    if done.returncode > 0:
        return (done.stderr.strip().splitlines() or ["it failed"])[-1][:160]
    return None


def _cpu_title() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "CPU"


def _host_memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        raise UsageError(
            "the memory of this system cannot be read", code="M004", help="measure on Linux or macOS"
        ) from None
