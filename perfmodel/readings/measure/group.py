"""The processes of one measurement: started by a launcher (RANK and WORLD_SIZE in the environment) or a single one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from perfmodel.readings.measure.launch import launched
from perfmodel.readings.measure.machine import Machine, find_machine


@dataclass(frozen=True)
class Group:
    """This process among its peers. `distributed` is false for a single process without a process group."""

    machine: Machine
    rank: int = 0
    world: int = 1
    local_world: int = 1
    local_rank: int = 0
    distributed: bool = False

    @property
    def nodes(self) -> int:
        """Machines that take part."""
        return max(self.world // max(self.local_world, 1), 1)

    def barrier(self) -> None:
        """Wait for the device, then for the other ranks."""
        self.machine.synchronize()
        if self.distributed:
            self.machine.torch.distributed.barrier()

    def largest(self, value: float) -> float:
        """The largest of all ranks' values, on every rank."""
        if not self.distributed:
            return value
        torch: Any = self.machine.torch
        # Doubles on the host would need a second backend: the tensor goes where the collectives run.
        tensor = torch.tensor([value], dtype=torch.float64, device=self.machine.device)
        torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MAX)
        return float(tensor.item())


@contextmanager
def process_group(device: str | None = None) -> Iterator[Group]:
    """Join the group that the launcher describes; leave it at the end, whatever happens."""
    if not launched() or os.environ["WORLD_SIZE"] == "1":  # one process needs no group, whoever started it
        yield Group(find_machine(device))
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    machine = find_machine(device, local_rank)
    distributed: Any = machine.torch.distributed
    distributed.init_process_group(machine.backend)
    try:
        yield Group(machine, rank, world, int(os.environ.get("LOCAL_WORLD_SIZE", world)), local_rank, True)
    finally:
        distributed.destroy_process_group()
