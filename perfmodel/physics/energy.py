"""Electrical energy and carbon of a step, from what the accelerators do in it.

An accelerator draws its idle power plus a share of the range up to its rated power that depends on the
activity. The room multiplies by its power usage effectiveness (PUE); the host adds its own.

References
----------
.. [1] P. Patel et al., "Characterizing power management opportunities for LLMs in the cloud", ASPLOS 2024:
   training reaches or passes the rated power while it computes and falls to between 20 and 75 % of it
   while it communicates.
.. [2] I. Latif et al., arXiv:2412.08602 and arXiv:2506.14551: a node of 8 H100 rated 10.2 kW draws at most
   8.4 kW and about 76 % of the rating in intensive training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

KWH_J = 3.6e6


@dataclass(frozen=True)
class PowerShares:
    """Share of the range from idle to rated power that each activity draws, 0 to 1 (assumed, after [1])."""

    compute: float = 0.90
    memory: float = 0.65
    communication: float = 0.45
    waiting: float = 0.15

    def __getitem__(self, activity: str) -> float:
        return float(getattr(self, activity))


def power_w(share: npt.ArrayLike, *, rated_w: npt.ArrayLike, idle_w: npt.ArrayLike) -> Floats:
    r"""Draw of one accelerator [W].

    .. math:: P = P_0 + a\,(P_{\max} - P_0)

    Parameters
    ----------
    share : part a of the range from idle to rated power, 0 to 1.
    rated_w, idle_w : draw at full load and at rest [W].

    Returns
    -------
    Watts.

    >>> power_w(0.5, rated_w=700.0, idle_w=100.0).item()
    400.0
    """
    idle = np.asarray(idle_w, dtype=float)
    return np.asarray(idle + np.asarray(share, dtype=float) * (np.asarray(rated_w, dtype=float) - idle))


def energy_j(
    k: npt.ArrayLike,
    seconds: dict[str, npt.NDArray[np.float64]],
    *,
    rated_w: npt.ArrayLike,
    idle_w: npt.ArrayLike,
    host_w: npt.ArrayLike = 0.0,
    pue: npt.ArrayLike = 1.0,
    shares: PowerShares | None = None,
) -> Floats:
    r"""Energy of `k` accelerators that spend `seconds[activity]` each on the activities [J].

    .. math:: E = \mathrm{PUE}\;K\sum_a t_a\,(P_a + P_\mathrm{host})

    `host_w` is the host's draw per accelerator [W]; hosts draw it whatever the accelerators do.

    Parameters
    ----------
    k : number of accelerators.
    seconds : time of one accelerator by activity [s]; the activities of `PowerShares`.
    rated_w, idle_w : draw of an accelerator at full load and at rest [W].
    host_w : draw of the host per accelerator [W], whatever the accelerators do.
    pue : power usage effectiveness of the room, 1 or more.
    shares : part of the power range that each activity draws.

    Returns
    -------
    Joules at the meter.

    >>> t = {"compute": np.array([2.0]), "waiting": np.array([1.0])}
    >>> s = PowerShares(compute=1.0, waiting=0.0)
    >>> energy_j([8], t, rated_w=700.0, idle_w=100.0, host_w=300.0, pue=1.25, shares=s).tolist()
    [24000.0]
    """
    draw = PowerShares() if shares is None else shares
    joules: Floats = np.zeros(())
    for activity, time in seconds.items():
        active = power_w(draw[activity], rated_w=rated_w, idle_w=idle_w)
        joules = joules + np.asarray(time, dtype=float) * (active + np.asarray(host_w, dtype=float))
    return np.asarray(np.asarray(pue, dtype=float) * np.asarray(k, dtype=float) * joules)


def carbon_g(energy: npt.ArrayLike, grams_per_j: npt.ArrayLike) -> Floats:
    r"""Grams of CO2 equivalent of `energy` [J] on a grid that emits `grams_per_j` [g/J].

    .. math:: m = E\,c

    Parameters
    ----------
    energy : energy at the meter [J].
    grams_per_j : intensity of the grid [g/J].

    Returns
    -------
    Grams of CO2 equivalent.

    >>> carbon_g(KWH_J, 400.0 / KWH_J).round(9).item()
    400.0
    """
    return np.asarray(np.asarray(energy, dtype=float) * np.asarray(grams_per_j, dtype=float))
