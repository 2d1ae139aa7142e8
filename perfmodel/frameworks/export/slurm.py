"""A Slurm batch script around the launch of the job's framework."""

from __future__ import annotations

from perfmodel.frameworks.export.chosen import Chosen, Writer
from perfmodel.units import clock

_MASTER = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


def write(chosen: Chosen, inner: Writer) -> str:
    """The script of the framework with a header for Slurm; one task a node starts the ranks of its accelerators."""
    chosen.under_slurm = True
    lines = inner(chosen).split("\n")
    run_s = chosen.expected.run_s
    header = [
        f"#SBATCH --job-name={_name(chosen.job.name)}",
        f"#SBATCH --nodes={chosen.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={chosen.per_node}",
        "#SBATCH --exclusive",
    ]
    header.append(
        f"#SBATCH --time={clock(run_s)}"
        if run_s is not None
        else "# No --time: the job states no steps (--set steps=N)."
    )
    at = next(index for index, line in enumerate(lines) if line.startswith("set -euo"))
    return "\n".join([lines[0], *header, *lines[1 : at + 1], _MASTER, *lines[at + 1 :]])


def _name(text: str) -> str:
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in text)[:60]
