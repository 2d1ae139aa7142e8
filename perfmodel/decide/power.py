"""What the accelerators of a job and their surroundings draw, and how far joules and grams may be off.

A band of energy has two causes, taken as independent: the time of the step, and the draw during it,

    ln E = ln E_0 +- sqrt(ln(T_high / T)^2 + (z s_P)^2)                                           (1)

with s_P the log-spread of the draw: what a power log left open, or an assumption that no measured run has checked.
Grams have the band of joules: the intensity of a grid is an average of a year, and its swing by the hour is not in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide.energy import PowerModel
from perfmodel.predict.beliefs import Beliefs, MeasuredPower
from perfmodel.specs.jobs import Job
from perfmodel.units import format_quantity

Array = NDArray[np.float64]

# Share of the rated power where an accelerator's idle draw is not known.
IDLE_SHARE = 0.12
DEFAULT_TDP_W = 400.0
DEFAULT_PUE = 1.25
# Of what a node's maximum leaves beside its accelerators, in training: a node of 8 H100 rated 10.2 kW draws 76 % of that
# (Latif et al., arXiv:2412.08602), some 5.1 kW of it in its accelerators.
HOST_LOAD = 0.57
# Log-spread of the draw where no log says more, assumed: idle draws are known to a third, accelerators fall to between 20
# and 75 % of their rating while they communicate (Patel et al., ASPLOS 2024), and rooms differ by 0.2 in their PUE.
POWER_SPREAD = 0.12
Z_90 = 1.645


def power_of(job: Job, measured: MeasuredPower | None = None) -> PowerModel:
    """Power of an accelerator and its surroundings; what no log and no datasheet gives is a stated share."""
    device, node = job.cluster.node.accelerator, job.cluster.node
    rated = device.tdp or DEFAULT_TDP_W
    host = (
        node.host_power
        or (
            HOST_LOAD * max(node.max_power - rated * node.accelerators_per_node, 0.0)
            if node.max_power
            else 0.2 * rated * node.accelerators_per_node
        )
    ) / node.accelerators_per_node
    idle = device.idle_power or IDLE_SHARE * rated
    if measured is not None:
        idle = idle if measured.idle_w is None else measured.idle_w
        rated = idle + measured.scale * (rated - idle)
    return PowerModel(
        rated_w=rated,
        idle_w=idle,
        host_w=host,
        pue=job.price.pue or DEFAULT_PUE,
        grams_per_j=job.grid.carbon if job.grid is not None else None,
    )


def measured_power(beliefs: Beliefs) -> MeasuredPower | None:
    """What power logs said, where the beliefs hold it."""
    return None if beliefs.calibration is None else beliefs.calibration.power


def power_basis(job: Job, beliefs: Beliefs) -> dict[str, Any]:
    """What joules and grams rest on."""
    measured, device = measured_power(beliefs), job.cluster.node.accelerator
    model = power_of(job, measured)
    words = (
        f"{format_quantity(model.idle_w, 'W')} at rest, {format_quantity(model.rated_w, 'W')} at full load"
    )
    if measured is not None:
        return {"value": words, "confidence": "measured", "source": measured.source, "date": None}
    source = "rated power; how much of it each part of a step draws, and the spread of that, are assumed"
    known = device.tdp is not None
    return {
        "value": words,
        "confidence": "datasheet" if known else "assumed",
        "source": source if known else f"no datasheet gives it: {source}",
        "date": device.date if known else None,
    }


def energy_band(time: tuple[Array, Array, Array], measured: MeasuredPower | None) -> tuple[Array, Array]:
    """Factors of energy at the low and the high end of its 90 % band, from (low, centre, high) of the time: (1).

    >>> low, high = energy_band((np.array([0.9]), np.array([1.0]), np.array([1.1])), None)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.8], [1.25])
    """
    low, centre, high = (np.log(seconds) for seconds in time)
    draw = Z_90 * (POWER_SPREAD if measured is None else measured.spread)
    return np.exp(-np.hypot(centre - low, draw)), np.exp(np.hypot(high - centre, draw))
