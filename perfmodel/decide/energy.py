"""Energy and carbon of a curve: what accelerators and their surroundings draw in each part of a step, and how far that may be off.

`physics.energy` holds the formulas. Here each part of a step (or a column of a study) is one of four activities, and what an
activity draws makes the energy of a step.

A band of energy has three causes, taken as independent: the time of the step, how much of its power range an accelerator
draws during it, and what surrounds it,

    ln E = ln E_0 +- sqrt(b^2 + (z w s_r)^2 + (z s_s)^2),    b = ln(T_high / T) above, ln(T / T_low) below       (1)

with w the part of the energy that the range above idle makes up, s_r the log-spread of the share drawn of it (what a power
log left open, else `SHARE_SPREAD`), and s_s that of host, idle draw and room, of which no log tells. The spreads are
assumed: no measured run checks them. Grams have the band of joules: a grid's intensity is the mean of a year.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from perfmodel.beliefs.bands import NINETY
from perfmodel.beliefs.population import Beliefs, MeasuredPower
from perfmodel.physics import energy as power
from perfmodel.physics.parts import activity
from perfmodel.specs.jobs import Job
from perfmodel.units import format_quantity

Floats = npt.NDArray[np.float64]

# Share of the rated power where an accelerator's idle draw is not known.
IDLE_SHARE = 0.12
DEFAULT_TDP_W = 400.0
DEFAULT_PUE = 1.25
UNKNOWN_HOST_SHARE = 0.2  # of the accelerators' rating
# Log-spread of the assumed shares of the power range (physics/energy.py): caps and idle hosts halve them.
SHARE_SPREAD = 0.35
# Of all the rest: a PUE between 1.1 and 1.5, a host's draw and an idle one known to a third.
SURROUNDINGS_SPREAD = 0.1


@dataclass(frozen=True)
class PowerModel:
    """One accelerator and its surroundings.

    rated_w, idle_w : draw at full load and idle [W]; host_w : the host's draw per accelerator [W];
    pue : of the room; grams_per_j : carbon of the grid [g/J], None when no grid is named.
    """

    rated_w: float
    idle_w: float
    host_w: float = 0.0
    pue: float = 1.0
    grams_per_j: float | None = None
    shares: power.PowerShares = field(default_factory=power.PowerShares)


@dataclass(frozen=True)
class Energy:
    """Energy [J] and carbon [g] of one step at each K, and the mean draw of the whole job at the meter [W]."""

    energy_j: Floats
    carbon_g: Floats | None
    power_w: Floats


def activity_seconds(parts_s: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
    """Parts of a step gathered by activity [s].

    >>> out = activity_seconds({"compute": [2.0], "data_parallel": [0.5], "bubble": [0.25]})
    >>> {name: value.tolist() for name, value in out.items()}
    {'compute': [2.0], 'communication': [0.5], 'waiting': [0.25]}
    """
    seconds: dict[str, Floats] = {}
    for name, value in parts_s.items():
        doing = activity(name)
        seconds[doing] = seconds.get(doing, np.zeros(())) + np.asarray(value, dtype=float)
    return seconds


def step_energy(k: npt.ArrayLike, parts_s: Mapping[str, npt.ArrayLike], model: PowerModel) -> Energy:
    """Energy of one step on `k` accelerators whose parts last `parts_s` seconds.

    >>> m = PowerModel(rated_w=700.0, idle_w=100.0)
    >>> e = step_energy([1, 2], {"compute": [2.0, 1.0], "data_parallel": [0.0, 0.2]}, m)
    >>> bool(e.energy_j[1] > e.energy_j[0]), bool(e.power_w[1] < 2 * e.power_w[0])
    (True, True)
    """
    seconds = activity_seconds(parts_s)
    joules = power.energy_j(
        k,
        seconds,
        rated_w=model.rated_w,
        idle_w=model.idle_w,
        host_w=model.host_w,
        pue=model.pue,
        shares=model.shares,
    )
    total = sum(seconds.values(), np.zeros(()))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.asarray(joules / total)
    carbon = None if model.grams_per_j is None else power.carbon_g(joules, model.grams_per_j)
    return Energy(joules, carbon, mean)


def power_of(job: Job, measured: MeasuredPower | None = None) -> PowerModel:
    """Power of an accelerator and its surroundings; what no log and no datasheet gives is a stated share."""
    device, node = job.cluster.node.accelerator, job.cluster.node
    rated = device.tdp or DEFAULT_TDP_W
    host = node.host_draw
    if host is None:
        host = UNKNOWN_HOST_SHARE * rated * node.accelerators_per_node
    idle = device.idle_power or IDLE_SHARE * rated
    if measured is not None:
        idle = idle if measured.idle_w is None else measured.idle_w
        rated = idle + measured.scale * (rated - idle)
    return PowerModel(
        rated_w=rated,
        idle_w=idle,
        host_w=host / node.accelerators_per_node,
        pue=job.price.pue or DEFAULT_PUE,
        grams_per_j=job.grid.carbon if job.grid is not None else None,
    )


def measured_power(beliefs: Beliefs) -> MeasuredPower | None:
    """The power that logs measured, where the beliefs hold it."""
    return None if beliefs.calibration is None else beliefs.calibration.power


def power_basis(job: Job, beliefs: Beliefs) -> dict[str, object]:
    """What joules and grams rest on."""
    measured, device = measured_power(beliefs), job.cluster.node.accelerator
    model = power_of(job, measured)
    words = (
        f"{format_quantity(model.idle_w, 'W')} at rest, {format_quantity(model.rated_w, 'W')} at full load; "
        f"its share of the host {format_quantity(model.host_w, 'W')}; PUE {model.pue:.4g}"
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


def range_share(k: Floats, parts_s: Mapping[str, Floats], model: PowerModel) -> Floats:
    """Part of a step's energy that accelerators draw above idle: w of (1)."""
    whole, resting = (
        step_energy(k, parts_s, m).energy_j for m in (model, replace(model, rated_w=model.idle_w))
    )
    return np.asarray(1.0 - resting / whole)


def energy_band(
    time: tuple[Floats, Floats, Floats], share: Floats, measured: MeasuredPower | None
) -> tuple[Floats, Floats]:
    """Factors of energy at the low and the high end of its 90 % band, from (low, centre, high) of the time: (1).

    >>> sure = (np.ones(1), np.ones(1), np.ones(1))
    >>> [end.round(2).tolist() for end in energy_band(sure, np.array([0.6]), None)]
    [[0.68], [1.47]]
    """
    low, centre, high = (np.log(seconds) for seconds in time)
    drawn = share * (SHARE_SPREAD if measured is None else measured.spread)
    doubt = NINETY * np.hypot(drawn, SURROUNDINGS_SPREAD)
    return np.exp(-np.hypot(centre - low, doubt)), np.exp(np.hypot(high - centre, doubt))
