"""Energy and carbon of a curve, from the named parts of the step.

`physics.energy` holds the formulas. Here each part of a step (or a column of a study) is one of four
activities, and what an activity draws makes the energy of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfmodel.physics import energy as power
from perfmodel.physics.parts import activity

Floats = npt.NDArray[np.float64]


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
