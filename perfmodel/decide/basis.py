"""What an answer rests on: its inputs with their sources, the beliefs that move it most, and what no model saw."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from perfmodel.beliefs.population import Beliefs
from perfmodel.decide.energy import power_basis
from perfmodel.physics.coefficients import MEANINGS, NAMES
from perfmodel.specs.jobs import Job
from perfmodel.training.curve import Curve
from perfmodel.units import format_quantity

SMALLEST_EFFECT = 1e-5  # of the step, that is told of an input

NOT_MODELLED: tuple[tuple[str, str], ...] = (
    ("other jobs on the same network", "optimistic"),
    ("checkpoint writes and evaluation that are not declared", "optimistic"),
    ("power capping and thermal throttling of long runs", "optimistic"),
    ("kernels tuned for this one model", "pessimistic"),
    ("faulty links and slow devices that are not declared", "optimistic"),
)


def not_modelled() -> list[dict[str, str]]:
    """Effects that are left out, and which way that biases the answer."""
    return [{"effect": effect, "bias": bias} for effect, bias in NOT_MODELLED]


def rests_on(job: Job, found: Curve, beliefs: Beliefs | None = None) -> dict[str, object]:
    """Every input that matters, with value, confidence and source; then every belief with its basis.

    With `beliefs` the power behind joules and grams is among them.
    """
    node = job.cluster.node
    items: dict[str, object] = {}
    for label, record in (
        ("workload", job.workload),
        ("accelerator", node.accelerator),
        ("node", node),
        ("scale-up link", node.scale_up),
        ("scale-out link", job.cluster.network),
    ):
        if record is not None:
            items[label] = {
                "value": record.name,
                "confidence": record.confidence or "assumed",
                "source": record.source,
                "date": record.date,
            }
    items["price"] = {
        "value": "unknown"
        if job.price.per_accelerator is None
        else format_quantity(job.price.per_accelerator, "USD/s"),
        "confidence": "datasheet" if job.price.source else "assumed",
        "source": job.price.source or job.price.note,
        "date": job.price.date,
    }
    if beliefs is not None:
        items["power"] = power_basis(job, beliefs)
        if job.grid is not None:
            items["grid"] = {
                "value": f"{job.grid.name}: {format_quantity(job.grid.carbon, 'g/J')}",
                "confidence": job.grid.confidence or "assumed",
                "source": job.grid.source,
                "date": job.grid.date,
            }
    for index, name in enumerate(NAMES):
        items[f"belief: {name}"] = {
            "value": float(f"{np.exp(found.logs[index]):.4g}"),
            "confidence": found.belief.basis[name],
            "source": MEANINGS[name],
        }
    return items


class Sensitivity(TypedDict):
    """How the step time changes when a belief moves by its own spread, as fractions."""

    input: str
    meaning: str
    change: float
    low: float
    high: float


def sensitivity(found: Curve) -> list[Sensitivity]:
    """Change of the step time at the largest feasible K when a belief moves by its own spread, largest first."""
    last = int(np.flatnonzero(found.feasible)[-1])
    slopes = found.jacobian[:, last]
    rows: list[Sensitivity] = []
    for index, name in enumerate(NAMES):
        reach = max(float(found.belief.spread[index]), 0.1)
        rows.append(
            {
                "input": name,
                "meaning": MEANINGS[name],
                "change": float(np.expm1(reach)),
                "low": float(np.expm1(-reach * slopes[index])),
                "high": float(np.expm1(reach * slopes[index])),
            }
        )
    rows = [row for row in rows if abs(row["high"]) > SMALLEST_EFFECT]
    rows.sort(key=lambda row: -abs(row["high"]))
    return rows[:12]
